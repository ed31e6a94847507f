"""Where a process keeps everything: in Postgres, or, to try things out, in its own memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from batonpass.codec.code import code_version
from batonpass.postgres.outbox import Outbox
from batonpass.postgres.store import Place, PostgresStore
from batonpass.postgres.upkeep import Retention
from batonpass.runtime.memory_audits import MemoryAudits
from batonpass.runtime.memory_log import Alone, MemoryRecordLog
from batonpass.runtime.memory_tokens import MemoryTokens

if TYPE_CHECKING:
    from batonpass.runtime.access import Tokens
    from batonpass.runtime.audits import Audits
    from batonpass.runtime.history import Sample
    from batonpass.runtime.ports import Archive, Clock, Ownership, RecordLog, Samples
    from batonpass.settings import Settings


class Store(Protocol):
    """What a process needs of its store."""

    @property
    def log(self) -> RecordLog:
        """The records of all groups."""
        ...

    @property
    def archive(self) -> Archive:
        """What stands beside them."""
        ...

    @property
    def samples(self) -> Samples:
        """Where samples of lags and rates go."""
        ...

    @property
    def tokens(self) -> Tokens:
        """The tokens of callers."""
        ...

    @property
    def audits(self) -> Audits:
        """What the nightly audits came to."""
        ...

    @property
    def ownership(self) -> Ownership:
        """Which groups are this coordinator's."""
        ...

    @property
    def outbox(self) -> Outbox | None:
        """What has still to be told to others of events, where that is kept."""
        ...

    async def start(self, changed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Begin what runs in the background; ``changed`` is called when other groups are this coordinator's."""
        ...

    async def stop(self) -> None:
        """Give every group up and disconnect."""
        ...

    def not_ready(self) -> str:
        """Return why requests had better go elsewhere; "" when there is no reason."""
        ...

    def lease_left_s(self) -> float:
        """Return for how long this coordinator goes on answering if the store went away now."""
        ...


class Unkept:
    """Takes samples and keeps none of them."""

    async def keep_samples(self, samples: Sequence[Sample]) -> None:
        """Do nothing."""


class MemoryStore:
    """A store that is gone with its process, and that nobody shares."""

    def __init__(self, clock: Clock) -> None:
        self.log = self.archive = MemoryRecordLog()
        self.samples = Unkept()
        self.outbox = None
        self.tokens = MemoryTokens(clock.now_ms)
        self.audits = MemoryAudits()
        self.ownership = Alone()

    async def start(self, changed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Do nothing: nothing runs in the background."""

    async def stop(self) -> None:
        """Do nothing: it is forgotten by itself."""

    def not_ready(self) -> str:
        """Return that there is no reason."""
        return ""

    def lease_left_s(self) -> float:
        """Return that it does not end."""
        return float("inf")


def store_of(settings: Settings, url: str, clock: Clock) -> Store:
    """Return the store that the settings name, for a coordinator that others reach under ``url``."""
    if settings.database_url is None:
        return MemoryStore(clock)
    return PostgresStore(
        Place(
            settings.database_url.get_secret_value(),
            coordinator_url=url,
            code=code_version(),
            connections_max=settings.database_connections_max,
            lease_ms=settings.lease_ms,
            renewal_ms=settings.lease_renewal_ms,
            alone=settings.sole_coordinator,
            retention=Retention(
                changes=settings.keep_changes_days,
                traces=settings.keep_traces_days,
                samples=settings.keep_samples_days,
                records=settings.keep_records_days,
                generations=settings.keep_generations_days,
                events=settings.keep_events_days,
                commands=settings.keep_commands_days,
                audits=settings.keep_audits_days,
                unexported=settings.keep_unexported_days,
            ),
        )
    )
