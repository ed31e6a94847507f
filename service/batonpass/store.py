"""Where a process keeps everything: in Postgres, or, to try things out, in its own memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.connect import connect
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.runtime.memory_log import Alone, MemoryRecordLog
from batonpass.runtime.memory_tokens import MemoryTokens

if TYPE_CHECKING:
    from batonpass.runtime.access import Tokens
    from batonpass.runtime.history import Sample
    from batonpass.runtime.ports import Archive, Clock, Ownership, RecordLog, Samples
    from batonpass.settings import Settings


async def _nothing() -> None:
    pass


class NotKept:
    """Takes samples and keeps none."""

    async def keep_samples(self, samples: Sequence[Sample]) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Store:
    """What a process needs of its store.

    ``not_ready`` says why requests had better go elsewhere, or "". ``lease_left_s``
    is how long this coordinator may go on answering if the store went away now.
    """

    log: RecordLog
    archive: Archive
    samples: Samples
    tokens: Tokens
    ownership: Ownership
    start: Callable[[], Awaitable[None]] = _nothing
    stop: Callable[[], Awaitable[None]] = _nothing
    not_ready: Callable[[], str] = str
    lease_left_s: Callable[[], float] = lambda: float("inf")


def store_of(settings: Settings, url: str, clock: Clock) -> Store:  # noqa: ARG001 - the fleet is to know it
    """Return the store that the settings name, for a coordinator that others reach under ``url``."""
    if settings.database_url is None:
        log = MemoryRecordLog()
        return Store(log=log, archive=log, samples=NotKept(), tokens=MemoryTokens(clock.now_ms), ownership=Alone())
    engine = connect(settings.database_url.get_secret_value(), connections_max=settings.database_connections_max)
    log_ = PostgresRecordLog(engine)
    return Store(
        log=log_,
        archive=PostgresArchive(engine),
        samples=NotKept(),
        tokens=MemoryTokens(clock.now_ms),
        ownership=Alone(),
        stop=engine.dispose,
    )
