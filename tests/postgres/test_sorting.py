"""Changes are found as soon as they are committed, and exactly once, while they are put where they belong."""

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.codec.changes import Change
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.records import ProbeScheduled
from batonpass.postgres import sorting
from batonpass.postgres.append import BATCH_CHANGES_MAX
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.schema import migrations, upgrade
from batonpass.postgres.sorting import keep_sorted, sort_some
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit

ORDERS = GroupId("orders")
NOW = datetime(2031, 5, 17, 12, tzinfo=UTC)
MANY = 25_000
BATCHES = MANY // BATCH_CHANGES_MAX


def change(number: int) -> Change:
    """Return a change of one of a few tasks."""
    return Change(TaskId(f"0_{number % 100}"), MemberId("m1"), "granted", "none", "active", number, 1)


async def count(engine: AsyncEngine, table: str) -> int:
    """Return how many rows a table has."""
    async with engine.connect() as connection:
        return int((await connection.execute(text(f"select count(*) from {table}"))).scalar_one())  # noqa: S608


async def test_every_change_is_seen_once_at_any_time(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    changes = tuple(map(change, range(MANY)))
    await postgres_log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(1)], History(changes=changes)))
    await postgres_log.append(Commit(ORDERS, 1, 1, [ProbeScheduled(1)], History(changes=changes[:3])))
    assert (await count(engine, "fresh_changes"), await count(engine, "assignment_events")) == (MANY + 3, 0)
    assert await count(engine, "change_batches") == BATCHES + 1
    expected = [changes[1], *(one for one in reversed(changes) if one.task == "0_1")]
    archive = PostgresArchive(engine)
    moving = asyncio.create_task(sort_some(engine))
    seen = 0
    while not moving.done() or seen < 2:
        assert list(await archive.task_changes(ORDERS, TaskId("0_1"), limit=999)) == expected
        seen += 1
    assert await moving
    assert await count(engine, "change_batches") == BATCHES + 1 - sorting.BATCHES_AT_ONCE
    assert not await sort_some(engine)
    assert (await count(engine, "fresh_changes"), await count(engine, "assignment_events")) == (0, MANY + 3)
    assert list(await archive.task_changes(ORDERS, TaskId("0_1"), limit=999)) == expected
    assert list(await archive.task_changes(ORDERS, TaskId("0_1"), limit=2)) == expected[:2]


async def test_several_that_sort_at_once_move_everything_once(
    engine: AsyncEngine, postgres_log: PostgresRecordLog
) -> None:
    await postgres_log.append(
        Commit(ORDERS, 1, 0, [ProbeScheduled(1)], History(changes=tuple(map(change, range(MANY)))))
    )
    sorters = [asyncio.create_task(keep_sorted(engine)) for _ in range(3)]
    async with asyncio.timeout(60):
        while await count(engine, "fresh_changes"):
            await asyncio.sleep(0.1)
    for one in sorters:
        one.cancel()
    await asyncio.gather(*sorters, return_exceptions=True)
    assert await count(engine, "assignment_events") == MANY


async def test_every_field_comes_back_whether_it_is_kept_once_or_for_each(
    engine: AsyncEngine, postgres_log: PostgresRecordLog
) -> None:
    """Batches of changes that differ in everything, in nothing, and in whether there is a value at all."""
    first = change(0)._replace(member_epoch=4, token=2**40, state="lost", warm=True, why='it\'s "so", \\ [null] \u00e9')
    other = Change(TaskId("a b_7"), MemberId("m2"), "revoked", "active", "none", 2**41, 3, 5, 6, "", None, "", 2**40)
    for number, changes in enumerate(
        [(first,), (first, first), (first, other), (other, first), (other, other._replace(warm=False))]
    ):
        await postgres_log.append(Commit(ORDERS, 1, number, [ProbeScheduled(1)], History(changes=changes)))
        archive = PostgresArchive(engine)
        for more in (True, False):
            for task in {one.task for one in changes}:
                expected = [one for one in reversed(changes) if one.task == task]
                assert list(await archive.task_changes(ORDERS, task, limit=len(expected))) == expected
            if more:
                await sort_some(engine)


async def test_programs_before_batches_go_on(bare_url: str, tmp_path: Path) -> None:
    """What they wrote in bulk goes where it belongs with the upgrade, and so does what they write after it."""
    rows = [
        (ORDERS, NOW, 1, place, "0_1", "m1", "granted", "none", "active", "", 1, 1, 1, None, "") for place in range(6)
    ]
    before = shutil.copytree(migrations(), tmp_path / "before")
    for path in sorted((before / "versions").glob("0*.py"))[6:]:
        path.unlink()
    await upgrade(bare_url, folder=before)
    driver = await asyncpg.connect(bare_url)
    await driver.copy_records_to_table("fresh_changes", records=rows[:3])
    columns = [
        name
        for name, *_ in await driver.fetch(
            "select attname from pg_attribute where attrelid = 'fresh_changes'::regclass and attnum > 0 order by attnum"
        )
    ]
    await upgrade(bare_url)
    await driver.copy_records_to_table("fresh_changes", records=rows[3:], columns=columns)
    assert [
        tuple(row)[: len(columns)] for row in await driver.fetch("select * from assignment_events order by place")
    ] == rows
    assert await driver.fetch("select * from fresh_changes") == []
    await driver.close()
