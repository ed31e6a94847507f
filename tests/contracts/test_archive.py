"""What every archive owes those who ask: all that was committed beside the records, and nothing of what was not."""

import asyncio
import threading
from typing import Any, NamedTuple

import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.contracts.memory_store import MemoryLog

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation, Moved
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, GroupDeclaration
from batonpass.core.state.model import Subtopology, Topology
from batonpass.core.state.reasons import Reason
from batonpass.core.state.records import ProbeScheduled
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.runtime.events import Event
from batonpass.runtime.history import Asked, History
from batonpass.runtime.ports import Archive, Commit, RecordLog, Superseded, VersionConflict

ORDERS, CLICKS = GroupId("orders"), GroupId("clicks")
M1, M2, TASK = MemberId("m1"), MemberId("m2"), TaskId("0_3")
STORES = ("memory_store", "postgres_store")
AT_MS = 1_790_000_000_123


class Store(NamedTuple):
    """Where commits go, and where they are read."""

    log: RecordLog
    archive: Archive


@pytest.fixture
def memory_store() -> Store:
    """Return an empty store in memory."""
    log = MemoryLog()
    return Store(log, log)


@pytest.fixture
def postgres_store(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> Store:
    """Return an empty store on Postgres."""
    return Store(postgres_log, PostgresArchive(engine))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    """Return an empty store of each kind."""
    made: Store = request.getfixturevalue(request.param)
    return made


def generation(number: int) -> Generation:
    """Return a generation with everything in it that may be hard to keep."""
    return Generation(
        number=number,
        group_epoch=number + 1,
        at_ms=AT_MS + number,
        triggers=("join", 'it\'s, \\ a "trigger"'),
        members=3,
        tasks=8,
        moves=2,
        lower_bound=1,
        warmups=1,
        score_before=2.5,
        score=1 / 3,
        decide_ms=0.1,
        moved=(Moved(TASK, None, M1, (), (M2,), "no-owner"), Moved(TaskId("0_4"), M2, None, (M1,), (), "")),
        reasons=(Reason("balance", None, None, "a\0b", 2), Reason("pinned", TASK, M1)),
    )


def change(number: int, task: TaskId = TASK) -> Change:
    """Return a change of a task."""
    return Change(task, M1, "granted", "none", "active", AT_MS + number, 4, number, 41, "running", number % 2 == 0, "x")


def event(number: int) -> Event:
    """Return an event with a body that has a bit of everything."""
    body = {"n": number, "text": "a\0b 🏃", "list": [1, 2.5, None, True], "of": {"more": {}}}
    return Event("generation", AT_MS + number, 4, M1 if number % 2 else None, None if number % 2 else TASK, body)


async def commit(
    store: Store, history: History, group_id: GroupId = ORDERS, version: int = 0, records: int = 1
) -> None:
    """Append a record with a history."""
    await store.log.append(Commit(group_id, 1, version, [ProbeScheduled(1)] * records, history))


async def test_generations_come_newest_first(store: Store) -> None:
    for number in range(5):
        await commit(store, History(generation=generation(number + 1)), version=number)
    await commit(store, History(generation=generation(9)), CLICKS)
    archive = store.archive
    without = [generation(number)._replace(moved=()) for number in (5, 4, 3, 2, 1)]
    assert list(await archive.generations(ORDERS, before=None, limit=9)) == without
    assert list(await archive.generations(ORDERS, before=4, limit=2)) == without[2:4]
    assert await archive.generation(ORDERS, 3) == generation(3)
    assert await archive.generation(ORDERS, 9) is None


async def test_what_a_generation_moved_is_read_beside_the_loop(
    postgres_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of a large group moves all of its tasks: 20 MB."""
    await commit(postgres_store, History(generation=generation(1)))
    threads: list[threading.Thread] = []
    decode = msgspec.json.decode

    def noted(text: str, **named: Any) -> Any:
        if named["type"] == tuple[Moved, ...]:
            threads.append(threading.current_thread())
        return decode(text, **named)

    monkeypatch.setattr(msgspec.json, "decode", noted)
    assert await postgres_store.archive.generation(ORDERS, 1) == generation(1)
    assert len(threads) == 1
    assert threading.main_thread() not in threads


async def test_changes_of_a_task_come_newest_first(store: Store) -> None:
    other = TaskId("0_4")
    await commit(store, History(changes=(change(1), change(2), change(9, other))))
    await commit(store, History(changes=(change(3),)), version=1)
    await commit(store, History(changes=(change(8),)), CLICKS)
    assert list(await store.archive.task_changes(ORDERS, TASK, limit=9)) == [change(3), change(2), change(1)]
    assert list(await store.archive.task_changes(ORDERS, TASK, limit=2)) == [change(3), change(2)]
    assert list(await store.archive.task_changes(ORDERS, other, limit=2)) == [change(9, other)]


async def test_events_have_positions_without_gaps(store: Store) -> None:
    assert await store.archive.last_position() == 0
    await commit(store, History(events=(event(1), event(2))))
    await commit(store, History(events=(event(3),)), CLICKS)
    await commit(store, History(events=(event(4),)), version=1)
    found = await store.archive.events(None, after=0, limit=9)
    assert [(one.position, one.group, one.event) for one in found] == [
        (1, ORDERS, event(1)),
        (2, ORDERS, event(2)),
        (3, CLICKS, event(3)),
        (4, ORDERS, event(4)),
    ]
    assert list(await store.archive.events(None, after=1, limit=2)) == list(found[1:3])
    assert [one.position for one in await store.archive.events(ORDERS, after=1, limit=9)] == [2, 4]
    assert list(await store.archive.events(None, after=4, limit=9)) == []
    assert list(await store.archive.events_before(None, before=None, limit=9)) == list(reversed(found))
    assert [one.position for one in await store.archive.events_before(None, before=4, limit=2)] == [3, 2]
    assert [one.position for one in await store.archive.events_before(ORDERS, before=None, limit=2)] == [4, 2]
    assert [one.position for one in await store.archive.events_before(ORDERS, before=4, limit=9)] == [2, 1]
    assert list(await store.archive.events_before(CLICKS, before=3, limit=9)) == []
    assert await store.archive.last_position() == 4


async def test_a_refused_commit_leaves_no_history(store: Store) -> None:
    """It takes no position either (L2)."""
    history = History(
        asked=Asked("ann", command="probe"), generation=generation(1), changes=(change(1),), events=(event(1),)
    )
    with pytest.raises(VersionConflict):
        await commit(store, history, version=3)
    await store.log.take_over(ORDERS)
    await store.log.take_over(ORDERS)
    with pytest.raises(Superseded):
        await commit(store, history)
    archive = store.archive
    assert list(await archive.generations(ORDERS, before=None, limit=9)) == []
    assert list(await archive.task_changes(ORDERS, TASK, limit=9)) == []
    assert list(await archive.events(None, after=0, limit=9)) == []
    assert list(await archive.commands(None, before=None, limit=9)) == []
    assert await archive.last_position() == 0


async def test_commits_at_once_share_the_positions(store: Store) -> None:
    """A commit's events stay together."""
    groups = [GroupId(f"g{number}") for number in range(40)]
    await asyncio.gather(*(commit(store, History(events=(event(1), event(2))), group) for group in groups))
    found = await store.archive.events(None, after=0, limit=99)
    assert [one.position for one in found] == list(range(1, 81))
    assert [found[n].group for n in range(0, 80, 2)] == [found[n].group for n in range(1, 80, 2)]
    assert [one.event for one in found] == [event(1), event(2)] * 40


async def test_commands_leave_a_row_each(store: Store) -> None:
    drain = Asked("ann \0", "node goes \0 away", "c-1", "drain")
    await commit(store, History(drain, AT_MS, item=DrainRequest(M1, 30_000)))
    await commit(store, History(Asked("bob", "", "c-2", "probe"), AT_MS + 1), version=1, records=0)
    await commit(store, History(Asked("a member", "", "c-3")), version=1)
    await commit(store, History(Asked("eve", command="pause"), AT_MS + 2), CLICKS)
    found = await store.archive.commands(ORDERS, before=None, limit=9)
    assert [(one.group, one.at_ms, one.asked.command, one.asked.cause) for one in found] == [
        (ORDERS, AT_MS + 1, "probe", "c-2"),
        (ORDERS, AT_MS, "drain", "c-1"),
    ]
    assert found[1].asked == drain
    assert [one.subject for one in found] == [{}, {"member_id": "m1", "deadline_ms": 30_000}]
    everybodys = await store.archive.commands(None, before=None, limit=9)
    assert [one.asked.who for one in everybodys] == ["eve", "bob", "ann \0"]
    assert list(await store.archive.commands(ORDERS, before=found[0].position, limit=9)) == [found[1]]
    assert list(await store.archive.commands(None, before=None, limit=1)) == [everybodys[0]]


async def test_of_a_large_command_the_audit_trail_has_the_size(store: Store) -> None:
    """A page has up to a thousand rows, and a declaration up to eight megabytes."""
    topics = tuple(f"topic-{number}" for number in range(5_000))
    large = GroupDeclaration(ORDERS, Topology(1, (Subtopology("0", 1, source_topics=topics),)), None, None)
    await commit(store, History(Asked("ann", command="declare"), AT_MS, item=large))
    (found,) = await store.archive.commands(ORDERS, before=None, limit=9)
    assert list(found.subject) == ["left_out_bytes"]


async def test_a_commit_with_very_many_changes_is_like_any_other(store: Store) -> None:
    tasks = [TaskId(f"0_{number}") for number in range(1_000)]
    many = tuple(change(number, task) for number, task in enumerate(tasks))
    with pytest.raises(VersionConflict):
        await commit(store, History(changes=many, events=(event(1),)), version=7)
    assert list(await store.archive.task_changes(ORDERS, tasks[5], limit=9)) == []
    await commit(store, History(changes=many, generation=generation(1), events=(event(1),)))
    for task in (tasks[0], tasks[5], tasks[999]):
        assert list(await store.archive.task_changes(ORDERS, task, limit=9)) == [many[tasks.index(task)]]
    assert await store.archive.generation(ORDERS, 1) == generation(1)
    assert await store.archive.last_position() == 1


async def test_large_commits_at_once_do_not_spoil_one_another(store: Store) -> None:
    many = tuple(change(number) for number in range(300))
    groups = [GroupId(f"g{number}") for number in range(12)]
    for group in groups[::3]:
        await commit(store, History(), group)
    histories = [History(changes=many if number % 2 else many[:1]) for number in range(12)]
    tried = [commit(store, history, group) for group, history in zip(groups, histories, strict=True)]
    outcomes = await asyncio.gather(*tried, return_exceptions=True)
    assert [type(one) for one in outcomes[::3]] == [VersionConflict] * 4
    assert [one for number, one in enumerate(outcomes) if number % 3] == [None] * 8
    for number, (group, history) in enumerate(zip(groups, histories, strict=True)):
        found = await store.archive.task_changes(group, TASK, limit=999)
        assert len(found) == (len(history.changes) if number % 3 else 0)
