"""Sorts changes after their commit: each becomes a row, in the part of the table for its day, with an index.

A commit writes its changes as batches, each in one text, because rows and an index would cost most of what a large
commit takes. A query reads ``assignment_events`` and ``fresh_changes``, which shows the remaining batches as rows, in
one statement. So it sees every change exactly once, wherever it is.
"""

from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.advisory_locks import SORTING_LOCK
from batonpass.postgres.connect import alone, keep_at, transacting
from batonpass.postgres.tables import assignment_events, batches_as_rows

BATCHES_AT_ONCE: Final = 100
EVERY_S: Final = 5.0
PAUSE_S: Final = 0.1

_COLUMNS: Final = ", ".join(column.name for column in assignment_events.columns)
_MOVE: Final = text(
    "with taken as (delete from change_batches"  # noqa: S608 - constants
    " where ctid = any(array(select ctid from change_batches limit :batches)) returning *),"
    f" moved as (insert into assignment_events ({_COLUMNS}) {batches_as_rows('taken')})"
    " select count(*) from taken"
)


async def sort_some(engine: AsyncEngine) -> bool:
    """Move some batches; return whether there may be more. Only one of several coordinators does so at a time.

    Raises:
        StoreUnavailable: when the database cannot be reached; nothing was moved.
    """
    async with transacting(engine) as connection:
        if not await alone(connection, SORTING_LOCK):
            return False
        moved: int = (await connection.execute(_MOVE, {"batches": BATCHES_AT_ONCE})).scalar_one()
        return moved == BATCHES_AT_ONCE


async def keep_sorted(engine: AsyncEngine) -> None:
    """Move all batches, every few seconds, until cancelled."""

    async def turn() -> float:
        # The pause lets appends go first.
        return PAUSE_S if await sort_some(engine) else EVERY_S

    await keep_at(turn, again_s=EVERY_S, failing="changes cannot be sorted, and pile up")
