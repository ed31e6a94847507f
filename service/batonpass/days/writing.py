"""Writes the rows of whole groups into a database, each group in one transaction: all of it or nothing."""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from batonpass.days.rows import COLUMNS, GroupRows
from batonpass.postgres.connect import reaching, transacting
from batonpass.postgres.upkeep import Upkeep

COPY_TIMEOUT_S: Final = 600.0

_THERE: Final = text(
    "select group_id from group_heads where group_id = any(cast(:groups as text[]))"
    " union select group_id from record_log where group_id = any(cast(:groups as text[])) order by 1"
)
_HEAD: Final = text(
    "insert into group_heads (group_id, version, coordinator_epoch) values (:of_group, :version, :epoch)"
)
# Other writers of events wait for this row, so it is locked last.
_POSITIONS: Final = text(
    "insert into event_counter as e (id, position) values (1, :count)"
    " on conflict (id) do update set position = e.position + excluded.position returning position"
)


class GroupsThere(Exception):
    """Groups of these names are in the database; nothing is written over them."""

    def __init__(self, groups: Sequence[str]) -> None:
        super().__init__(", ".join(groups))
        self.groups = tuple(groups)


async def refuse_existing(engine: AsyncEngine, groups: Sequence[str]) -> None:
    """Check that there are no groups of these names.

    Raises:
        GroupsThere: when there are; it has their names.
        StoreUnavailable: when the database cannot be reached.
    """
    async with reaching(engine) as connection:
        found = list((await connection.execute(_THERE, {"groups": list(groups)})).scalars())
    if found:
        raise GroupsThere(found)


async def make_days(engine: AsyncEngine, days: Iterable[date]) -> None:
    """Make the parts of these days in every table that is cut into days.

    Raises:
        StoreUnavailable: when the database cannot be reached, or a lock could not be taken.
    """
    upkeep = Upkeep(engine)
    for day in days:
        await upkeep.make_day(day)


async def write(engine: AsyncEngine, rows: GroupRows) -> None:
    """Write one group with everything that it left.

    Raises:
        StoreUnavailable: when the database cannot be reached; nothing of the group was written.
        DBAPIError: when a group of this name exists.
    """
    async with transacting(engine) as connection:
        await connection.execute(
            _HEAD, {"of_group": rows.group_id, "version": rows.version, "epoch": rows.coordinator_epoch}
        )
        for name, table in rows.tables.items():
            if name != "events":
                await _copy(connection, name, table)
        events = rows.tables["events"]
        if events:
            last: int = (await connection.execute(_POSITIONS, {"count": len(events)})).scalar_one()
            first = last - len(events) + 1
            await _copy(connection, "events", [(place, *row[1:]) for place, row in enumerate(events, start=first)])


async def _copy(connection: AsyncConnection, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await driver.copy_records_to_table(name, records=rows, columns=COLUMNS[name], timeout=COPY_TIMEOUT_S)
