"""A load begins with the newest snapshot that can be read, and what cannot be read costs time alone."""

from collections.abc import Sequence

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.unleased import unleased_log

from batonpass.codec.records import UnreadableRecord
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.core.state.records import ProbeScheduled
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.runtime.ports import Commit, Loaded

ORDERS = GroupId("orders")


async def sql(engine: AsyncEngine, statement: str) -> Sequence[object]:
    """Run a statement and return the first column of what it gives."""
    async with engine.connect() as connection:
        done = await connection.execute(text(statement))
        return list(done.scalars()) if done.returns_rows else []


@pytest.fixture
async def grown(postgres_log: PostgresRecordLog) -> PostgresRecordLog:
    """Return a log with a group of 40 records, and snapshots of it at 10, 20, 30 and 35."""
    await postgres_log.take_over(ORDERS)
    group = Group(ORDERS)
    for version in range(40):
        records = [ProbeScheduled(version)]
        await postgres_log.append(Commit(ORDERS, 1, version, records))
        group = evolve(group, records)
        if group.version in (10, 20, 30, 35):
            await postgres_log.keep_snapshot(group)
    return postgres_log


def whole(loaded: Loaded) -> Group:
    """Return the group that a load adds up to."""
    return evolve(loaded.base or Group(ORDERS), loaded.records)


EXPECTED = evolve(Group(ORDERS), [ProbeScheduled(version) for version in range(40)])


async def test_a_load_begins_with_the_newest_snapshot(grown: PostgresRecordLog, engine: AsyncEngine) -> None:
    loaded = await grown.read(ORDERS)
    assert loaded.base is not None
    assert (loaded.version, loaded.base.version, len(loaded.records)) == (40, 35, 5)
    assert whole(loaded) == EXPECTED
    assert await sql(engine, "select version from snapshots order by version") == [20, 30, 35]


async def test_a_caller_that_knows_where_it_is_gets_records_alone(grown: PostgresRecordLog) -> None:
    assert await grown.read(ORDERS, after_version=38) == Loaded(40, (ProbeScheduled(38), ProbeScheduled(39)))
    assert len((await grown.read(ORDERS, after_version=0)).records) == 40


@pytest.mark.parametrize(
    "damage",
    [
        "update snapshots set format = 99 where version = 35",
        "update snapshots set payload = 'no zlib' where version = 35",
        "update snapshots set payload = substr(payload, 1, 40) where version = 35",
    ],
)
async def test_a_snapshot_that_cannot_be_read_is_passed_over(
    grown: PostgresRecordLog, engine: AsyncEngine, damage: str
) -> None:
    await sql(engine, damage)
    loaded = await grown.read(ORDERS)
    assert loaded.base is not None
    assert loaded.base.version == 30
    assert whole(loaded) == EXPECTED


async def test_without_any_the_records_are_there(grown: PostgresRecordLog, engine: AsyncEngine) -> None:
    await sql(engine, "update snapshots set format = 99")
    assert whole(await grown.read(ORDERS)) == EXPECTED
    await sql(engine, "delete from record_log where seq <= 20")
    with pytest.raises(UnreadableRecord, match="20 records after the first 0"):
        await grown.read(ORDERS)
    await sql(engine, "update snapshots set format = 1")
    assert whole(await grown.read(ORDERS)) == EXPECTED


async def test_only_the_owner_keeps_a_snapshot_and_only_of_what_is_committed(
    grown: PostgresRecordLog, engine: AsyncEngine
) -> None:
    await grown.keep_snapshot(evolve(EXPECTED, [ProbeScheduled(0)]))
    await unleased_log(engine).keep_snapshot(EXPECTED)
    assert await sql(engine, "select max(version) from snapshots") == [35]
    await grown.keep_snapshot(EXPECTED)
    assert await sql(engine, "select max(version) from snapshots") == [40]


class ReadsLess:
    """A tenure beside a coordinator that reads no snapshot of this version."""

    id = "reads-less"

    def taken(self, group_id: GroupId, identity: str) -> None:
        """Take note of nothing."""

    def writes_up_to(self) -> dict[str, int]:
        """Return that no snapshot may be written."""
        return {"group-snapshot": 0, "probe-scheduled": 1}


async def test_none_is_written_that_a_live_coordinator_cannot_read(engine: AsyncEngine) -> None:
    """The older program could have to load the group next."""
    log = PostgresRecordLog(engine, tenure=ReadsLess())
    await log.take_over(ORDERS)
    await log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(0)]))
    await log.keep_snapshot(evolve(Group(ORDERS), [ProbeScheduled(0)]))
    assert await sql(engine, "select count(*) from snapshots") == [0]
