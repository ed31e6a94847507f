"""A day of any size: a few simulated groups, and as many copies of them as are needed, made by the database itself."""

from collections.abc import Callable
from functools import cache

from sqlalchemy import text
from tests.benchmarks.audit import DAY

from batonpass.days.generate import rows_of
from batonpass.days.rows import GroupRows
from batonpass.days.writing import make_days, write
from batonpass.postgres.connect import connect
from batonpass.simulate.scenario.drawing import draw_day

VARIANTS = 3
EVENTS_OF_A_VARIANT = 6_000
COPIES_AT_ONCE = 25
"""A statement ends before the connection takes it for lost, also on a slow machine."""

_COPY = {
    "group_heads": "insert into group_heads (group_id, version, coordinator_epoch)"
    " select group_id || '.' || n, version, coordinator_epoch from group_heads, generate_series({low}, {high}) n"
    " where group_id like 'base-_'",
    "record_log": "insert into record_log (group_id, seq, coordinator_epoch, at, kind, version, payload)"
    " select group_id || '.' || n, seq, coordinator_epoch, at, kind, version, payload"
    " from record_log, generate_series({low}, {high}) n where group_id like 'base-_'",
    "generations": "insert into generations select group_id || '.' || n, number, version, group_epoch, at, triggers,"
    " members, tasks, moves, lower_bound, warmups, score_before, score, decide_ms, moved, reasons"
    " from generations, generate_series({low}, {high}) n where group_id like 'base-_'",
}


@cache
def variants() -> tuple[GroupRows, ...]:
    """Return the simulated days that all others are copies of."""
    return tuple(rows_of(draw_day(seed, events=EVENTS_OF_A_VARIANT), DAY, sample_every=0) for seed in range(VARIANTS))


async def fill(url: str, records: int, passed: Callable[[int, int], None] = lambda _done, _of: None) -> int:
    """Write a day of about so many records into a migrated database; return how many they are.

    ``passed`` hears how many copies there are, of how many. Only the few groups that are copied go through the core.
    """
    engine = connect(url)
    days = variants()
    await make_days(engine, (DAY,))
    for number, day in enumerate(days):
        copy = day.copy_as(f"base-{number}")
        # Without snapshots, the whole of the log is read.
        copy.tables["snapshots"] = []
        await write(engine, copy)
    each = sum(day.version for day in days)
    copies = max(0, round(records / each) - 1)
    for low in range(1, copies + 1, COPIES_AT_ONCE):
        high = min(copies, low + COPIES_AT_ONCE - 1)
        for statement in _COPY.values():
            async with engine.connect() as connection:
                await connection.execute(text("set statement_timeout = 0"))
                await connection.execute(text(statement.format(low=low, high=high)))
        passed(high, copies)
    async with engine.connect() as connection:
        await connection.execute(text("analyze record_log"))
    await engine.dispose()
    return each * (copies + 1)
