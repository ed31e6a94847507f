"""Puts the changes of large commits where they belong, after the commit.

They are copied into a table without an index, because the index costs most of what such a commit takes. Whoever asks
for changes looks into both tables in one statement, so that every change is seen exactly once, wherever it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.postgres.connect import transacting
from batonpass.postgres.tables import assignment_events
from batonpass.runtime.ports import StoreUnavailable

CHUNK: Final = 10_000
EVERY_S: Final = 5.0
PAUSE_S: Final = 0.1
ONE_AT_A_TIME: Final = 7_046_029_254_386_355
"""The key of the lock that sorting takes: any number that nobody else uses in this database."""

_COLUMNS: Final = ", ".join(column.name for column in assignment_events.columns)
_MOVE: Final = text(
    "with moved as (delete from fresh_changes where ctid = any(array(select ctid from fresh_changes limit :chunk))"  # noqa: S608
    f" returning {_COLUMNS}) insert into assignment_events ({_COLUMNS}) select {_COLUMNS} from moved"
)
_TURN: Final = text("select pg_try_advisory_xact_lock(:key)")


async def sort_chunk(engine: AsyncEngine) -> bool:
    """Move some changes; say whether there may be more. Of several coordinators one does so at a time.

    Raises:
        StoreUnavailable: when the database is away; nothing was moved.
    """
    async with transacting(engine) as connection:
        if not (await connection.execute(_TURN, {"key": ONE_AT_A_TIME})).scalar_one():
            return False
        return (await connection.execute(_MOVE, {"chunk": CHUNK})).rowcount == CHUNK


async def keep_sorted(engine: AsyncEngine) -> None:
    """Move what is there, every few seconds, until cancelled."""
    while True:
        more = False
        with contextlib.suppress(StoreUnavailable, DBAPIError):
            more = await sort_chunk(engine)
        # In between, appends go first.
        await asyncio.sleep(PAUSE_S if more else EVERY_S)
