"""The outbox: committed events that are still to be passed on, by reader."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.connect import execute, fetch_rows
from batonpass.runtime.history import StoredEvent
from batonpass.runtime.ports import Outbox

_BEGIN: Final = text(
    "insert into outbox_readers as o (name, position)"
    " values (:name, coalesce((select min(position) - 1 from events), (select position from event_counter), 0))"
    " on conflict (name) do update set at = clock_timestamp() returning position"
)
_PASSED: Final = text(
    "update outbox_readers set position = greatest(position, :position), at = clock_timestamp() where name = :name"
)


class PostgresOutbox(Outbox):
    """Events in the order of their commits, for one publisher with a name, which passes them on at least once.

    They are kept for it for a limited time (``upkeep``).

    Only one process at a time should read under a name. Two would only pass events on twice.
    """

    def __init__(self, engine: AsyncEngine, name: str) -> None:
        """Read under a name; a new one begins with the oldest event that is kept."""
        self._engine = engine
        self._archive = PostgresArchive(engine)
        self._name = name

    async def next(self, limit: int) -> Sequence[StoredEvent]:
        ((position,),) = await fetch_rows(self._engine, _BEGIN, name=self._name)
        return await self._archive.events(None, after=position, limit=limit)

    async def passed(self, position: int) -> None:
        """Note that everything up to a position was passed on; a lower one than before changes nothing.

        Raises:
            StoreUnavailable: when the database cannot be reached; then events may be passed on once more.
        """
        await execute(self._engine, _PASSED, name=self._name, position=position)
