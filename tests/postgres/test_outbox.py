"""A reader of the outbox gets every event, in the order of the commits, until it says that it has passed it on."""

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.unleased import unleased_log

from batonpass.codec.changes import Change
from batonpass.core.state.ids import GroupId
from batonpass.core.state.records import ProbeScheduled
from batonpass.postgres.outbox import PostgresOutbox
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.runtime.events import Event
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit

EVENT = Event("x", 1, 1, None, None, {})


async def commit_events(log: PostgresRecordLog, group: str, count: int = 1) -> None:
    """Commit some events of a new group."""
    await log.append(Commit(GroupId(group), 1, 0, [ProbeScheduled(1)], History(events=(EVENT,) * count)))


async def test_events_that_were_not_passed_on_come_again(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    await commit_events(postgres_log, "a", 3)
    await commit_events(postgres_log, "b", 2)
    outbox = PostgresOutbox(engine, "kafka")
    for _ in range(2):
        assert [one.position for one in await outbox.next(4)] == [1, 2, 3, 4]
    await outbox.passed(3)
    await outbox.passed(2)
    assert [one.position for one in await PostgresOutbox(engine, "kafka").next(9)] == [4, 5]
    assert [one.position for one in await PostgresOutbox(engine, "other").next(9)] == [1, 2, 3, 4, 5]
    await outbox.passed(5)
    assert list(await outbox.next(9)) == []


async def test_a_new_reader_begins_with_what_is_kept(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    await commit_events(postgres_log, "a", 3)
    async with engine.connect() as connection:
        await connection.execute(text("delete from events where position < 3"))
        assert [one.position for one in await PostgresOutbox(engine, "late").next(9)] == [3]
        await connection.execute(text("delete from events"))
    assert list(await PostgresOutbox(engine, "later").next(9)) == []
    await commit_events(postgres_log, "b")
    assert [one.position for one in await PostgresOutbox(engine, "later").next(9)] == [4]


@pytest.mark.parametrize("many", [1, 300])
async def test_no_event_is_passed_by(engine: AsyncEngine, many: int) -> None:
    logs = [unleased_log(engine) for _ in range(3)]
    change = Change("0_1", "m1", "granted", "none", "active", 1, 1)  # type: ignore[arg-type]
    history = History(events=(EVENT, EVENT), changes=(change,) * many)
    seen: list[int] = []
    writing = asyncio.gather(
        *(
            log.append(Commit(GroupId(f"{number}-{group}"), 1, 0, [ProbeScheduled(1)], history))
            for number, log in enumerate(logs)
            for group in range(30)
        )
    )
    outbox = PostgresOutbox(engine, "kafka")
    while len(seen) < 180:
        page = await outbox.next(7)
        seen += [one.position for one in page]
        if page:
            await outbox.passed(page[-1].position)
        assert not writing.done() or page
    await writing
    assert seen == list(range(1, 181))
