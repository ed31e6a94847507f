"""What the record log says, and what is in it, when the database or the way to it fails in the middle."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from asyncpg import InternalClientError, PostgresError  # type: ignore[import-untyped]
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.unleased import unleased_log
from tests.proof.proxy import Proxy
from tests.runtime.fakes import make_world

from batonpass.codec.changes import Change
from batonpass.core.decide import decide
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import GroupDeclaration, PauseRequest, ResumeRequest
from batonpass.core.state.model import Group, Member, Subtopology, Topology
from batonpass.core.state.records import ProbeScheduled
from batonpass.core.state.replies import Done
from batonpass.postgres import record_log, writer
from batonpass.postgres.connect import connect, unavailable_when_away
from batonpass.postgres.leases import Leases
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.events import Event
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit, CoordinatorLoading, Loaded, StoreUnavailable

ORDERS = GroupId("orders")
POD = Member(MemberId("pod"), 1_000)
CHANGE = Change(TaskId("0_1"), MemberId("m1"), "granted", "none", "active", 1, 1)
DECLARED = GroupDeclaration(ORDERS, Topology(1, (Subtopology("0", 4),)), {})


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """A proxy before the database."""
    async with Proxy(int(make_url(database_url).port or 0)) as made:
        yield made


@pytest.fixture
async def far(proxy: Proxy, database_url: str) -> AsyncIterator[AsyncEngine]:
    """Connections that go through the proxy."""
    made = connect(make_url(database_url).set(port=proxy.port).render_as_string(hide_password=False))
    yield made
    proxy.hangs, proxy.delay_s = False, 0.0
    await made.dispose()


def commit(version: int, group_id: GroupId = ORDERS, history: History | None = None) -> Commit:
    """Return a commit of one record."""
    return Commit(group_id, 1, version, [ProbeScheduled(version)], history or History())


async def held(proxy: Proxy, log: PostgresRecordLog, one: Commit) -> asyncio.Task[None]:
    """Begin an append whose answer does not come, and wait until the database has had the time to make it."""
    proxy.hangs = True
    writing = asyncio.create_task(log.append(one))
    await asyncio.sleep(0.5)
    assert not writing.done()
    return writing


async def reached(log: PostgresRecordLog, version: int) -> None:
    """Wait until the group has come to a version."""
    async with asyncio.timeout(20):
        while (await log.read(ORDERS)).version < version:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("many", [1, 300])
async def test_of_an_append_that_was_cut_the_fate_is_in_the_log(
    proxy: Proxy, far: AsyncEngine, postgres_log: PostgresRecordLog, many: int
) -> None:
    log = PostgresRecordLog(far, tenure=postgres_log._tenure)
    await log.take_over(ORDERS)
    history = History(changes=(CHANGE,) * many)
    await log.append(commit(0, history=history))
    writing = await held(proxy, log, commit(1, history=history))
    await reached(postgres_log, 2)
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        await writing
    proxy.hangs = False
    found = await log.read(ORDERS, after_version=1)
    assert found == Loaded(2, (ProbeScheduled(1),))
    await log.append(commit(found.version))


async def test_a_writer_that_freezes_in_the_middle_holds_nobody_up(
    proxy: Proxy, far: AsyncEngine, postgres_log: PostgresRecordLog
) -> None:
    """Once it is sent, a large commit needs nothing more of its process."""
    log, other = PostgresRecordLog(far, tenure=postgres_log._tenure), GroupId("clicks")
    history = History(changes=(CHANGE,) * 50_000, events=(Event("x", 1, 1, None, None, {}),))
    await log.append(commit(0, history=history))
    writing = await held(proxy, log, commit(1, history=history))
    started = time.monotonic()
    await postgres_log.append(commit(0, other, history))
    assert time.monotonic() - started < 5
    await reached(postgres_log, 2)
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        await writing


async def test_a_coordinator_finds_out_what_became_of_its_append(
    proxy: Proxy, far: AsyncEngine, engine: AsyncEngine
) -> None:
    """The command is not done twice, and the group goes on from what is in the log (L2, L3)."""
    log = unleased_log(far)
    coordinator = Coordinator(replace(make_world().ports, log=log, decide=decide, evolve=evolve))
    await coordinator.ask(ORDERS, DECLARED)
    # So that its statements are known to the connection, and no answer but the commit's can be held back.
    await coordinator.ask(ORDERS, PauseRequest())
    await coordinator.ask(ORDERS, ResumeRequest())
    before, _ = await coordinator.look(ORDERS)
    proxy.hangs = True
    asking = asyncio.create_task(coordinator.ask(ORDERS, PauseRequest()))
    near = unleased_log(engine)
    await reached(near, before.version + 1)
    assert (await coordinator.look(ORDERS))[0] == before
    proxy.cut()
    assert isinstance(await asking, StoreUnavailable)
    proxy.hangs = False
    assert await coordinator.ask(ORDERS, ResumeRequest()) == Done()
    after, _ = await coordinator.look(ORDERS)
    found = await near.read(ORDERS)
    assert after == evolve(Group(ORDERS), found.records)
    assert [type(one).__name__ for one in found.records[before.version :]][:2] == ["Paused", "Resumed"]
    async with engine.connect() as connection:
        epochs = await connection.execute(text("select distinct coordinator_epoch from record_log"))
        assert epochs.scalars().all() == [1]


async def test_appends_share_the_wait_for_a_slow_disk(proxy: Proxy, far: AsyncEngine) -> None:
    """They go out together."""
    log = unleased_log(far)
    groups = [GroupId(f"group-{number}") for number in range(60)]
    for group in groups:
        await log.append(commit(0, group))
    proxy.delay_s = 0.3
    started = time.monotonic()
    await asyncio.gather(*(log.append(commit(1, group)) for group in groups))
    assert time.monotonic() - started < 60 * 0.3 / 4
    proxy.delay_s = 0.0
    assert {(await log.read(group)).version for group in groups} == {2}


async def test_a_large_commit_holds_up_no_small_one(engine: AsyncEngine) -> None:
    log = unleased_log(engine)
    await log.append(commit(0))
    await log.append(commit(0, GroupId("large")))
    async with engine.execution_options(isolation_level="READ COMMITTED").begin() as holder:
        await holder.execute(text("select * from group_heads where group_id = 'large' for update"))
        changes = tuple(CHANGE._replace(task=TaskId(f"0_{number}")) for number in range(50_000))
        large = asyncio.create_task(log.append(commit(1, GroupId("large"), History(changes=changes))))
        for version in range(1, 4):
            await log.append(commit(version))
        assert not large.done()
    await large


async def test_a_group_whose_head_is_locked_holds_up_no_other_one(engine: AsyncEngine) -> None:
    """Its own commit is made when the head is free."""
    log, held = unleased_log(engine), GroupId("held")
    for group_id in (ORDERS, held):
        await log.append(commit(0, group_id))
    async with engine.execution_options(isolation_level="READ COMMITTED").begin() as holder:
        await holder.execute(text("select * from group_heads where group_id = 'held' for update"))
        waiting = asyncio.create_task(log.append(commit(1, held)))
        begun = time.monotonic()
        for version in range(1, 20):
            await log.append(commit(version))
        assert time.monotonic() - begun < 5
        assert not waiting.done()
    await waiting
    assert (await log.read(held)).version == 2


async def test_a_start_among_locked_heads_is_ready_and_reads_them_when_they_are_free(engine: AsyncEngine) -> None:
    groups = [GroupId(f"group-{number}") for number in range(6)]
    before = unleased_log(engine)
    for group_id in groups:
        await before.append(commit(0, group_id))
    coordinator = Coordinator(replace(make_world().ports, log=unleased_log(engine)))
    async with engine.execution_options(isolation_level="READ COMMITTED").begin() as holder:
        await holder.execute(text("select from group_heads where group_id < 'group-3' for update"))
        for read in (coordinator.start, coordinator.ownership_changed):
            with pytest.raises(CoordinatorLoading, match=r"another session has the head of group-\d locked"):
                async with asyncio.timeout(5):
                    await read()
            assert coordinator.is_ready
            assert [group.id for group, _ in coordinator.loaded_groups()] == groups[3:]
    await coordinator.ownership_changed()
    assert sorted(group.id for group, _ in coordinator.loaded_groups()) == groups
    await coordinator.stop()


async def test_a_head_that_stays_locked_is_named(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_log, "STATEMENT_TIMEOUT_S", 0.2)
    log = unleased_log(engine)
    await log.append(commit(0))
    async with engine.execution_options(isolation_level="READ COMMITTED").begin() as holder:
        await holder.execute(text("select * from group_heads for update"))
        with pytest.raises(StoreUnavailable, match="another session has rows of orders locked"):
            await log.append(commit(1))
    await log.append(commit(1))


async def test_a_commit_that_the_database_cannot_take_fails_alone(engine: AsyncEngine) -> None:
    log = unleased_log(engine)
    bad = History(events=(Event("x", 1, 1, None, TaskId("0_\0"), {}),))
    commits = [commit(0, GroupId(f"group-{number}"), bad if number == 7 else None) for number in range(20)]
    outcomes = await asyncio.gather(*(log.append(one) for one in commits), return_exceptions=True)
    assert [number for number, one in enumerate(outcomes) if one is not None] == [7]
    assert isinstance(outcomes[7], PostgresError)
    assert len(await log.group_ids()) == 19


async def test_a_commit_on_which_the_program_fails_fails_alone() -> None:
    async def write(batch: Sequence[Any]) -> list[None]:
        if any(one.commit.group_id == "group-1" for one in batch):
            raise ZeroDivisionError
        return [None] * len(batch)

    appends = writer.Writer(write)
    prepared: list[Any] = [SimpleNamespace(commit=commit(0, GroupId(f"group-{one}")), weight=1) for one in range(3)]
    outcomes = await asyncio.gather(*map(appends.append, prepared), return_exceptions=True)
    assert [type(one) for one in outcomes] == [type(None), ZeroDivisionError, type(None)]


async def test_an_append_whose_caller_gave_up_in_the_queue_is_not_begun(proxy: Proxy, far: AsyncEngine) -> None:
    log = unleased_log(far)
    first = await held(proxy, log, commit(0))
    queued = asyncio.create_task(log.append(commit(0, GroupId("queued"))))
    await asyncio.sleep(0)
    queued.cancel()
    proxy.hangs = False
    await first
    await log.append(commit(0, GroupId("later")))
    assert await log.group_ids() == ["later", "orders"]


async def test_a_queue_that_is_full_refuses(proxy: Proxy, far: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    log = unleased_log(far)
    first = await held(proxy, log, commit(0))
    monkeypatch.setattr(writer, "WAITING_MAX", 2)
    waiting = [asyncio.create_task(log.append(commit(0, GroupId(name)))) for name in ("a", "b")]
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="2 commits are waiting"):
        await log.append(commit(0, GroupId("c")))
    proxy.hangs = False
    await asyncio.gather(first, *waiting)
    assert await log.group_ids() == ["a", "b", "orders"]


async def test_a_statement_that_the_server_gives_up_is_undone(engine: AsyncEngine, own_url: str) -> None:
    """It is the server's own statement timeout, and not the client's."""
    blocked = connect(own_url)
    async with blocked.connect() as connection:
        name = make_url(own_url).database
        await connection.execute(text(f"alter database {name} set statement_timeout = '300ms'"))
    await blocked.dispose()
    log = unleased_log(blocked)
    await log.append(commit(0))
    async with blocked.execution_options(isolation_level="READ COMMITTED").begin() as holder:
        await holder.execute(text("lock table record_log in exclusive mode"))
        with pytest.raises(StoreUnavailable, match="statement timeout"):
            await log.append(commit(1))
    assert (await log.read(ORDERS)).version == 1
    await blocked.dispose()


async def test_a_lease_is_renewed_however_busy_the_rest_is(database_url: str) -> None:
    busy = connect(database_url, connections_max=1)
    leases_engine = connect(database_url, connections_max=2)
    leases = Leases(leases_engine, lease_ms=5_000)
    await leases.register("me", url="", code="", reads={})
    async with busy.connect():
        assert await asyncio.wait_for(leases.renew("me"), 5)
    await busy.dispose()
    await leases_engine.dispose()


async def test_positions_have_no_gaps_after_failures(proxy: Proxy, far: AsyncEngine, engine: AsyncEngine) -> None:
    log = unleased_log(far)
    history = History(events=(Event("x", 1, 1, None, None, {}),))
    await log.append(commit(0, history=history))
    large = replace(history, changes=(CHANGE,) * 500)
    cut = await held(proxy, log, commit(0, GroupId("cut"), large))
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        await cut
    proxy.hangs = False
    await asyncio.gather(
        *(log.append(commit(number % 2, GroupId(f"g{number}"), history)) for number in range(10)),
        return_exceptions=True,
    )
    async with engine.connect() as connection:
        found = (await connection.execute(text("select position from events order by position"))).scalars().all()
        last = (await connection.execute(text("select position from event_counter"))).scalar_one()
    assert list(found) == [1, 2, 3, 4, 5, 6]
    assert last == 6


def test_a_connection_that_ends_between_two_steps_of_the_driver_is_named_as_what_it_is() -> None:
    """The driver tells of its own states then, which says nothing to an operator."""
    told = pytest.raises(StoreUnavailable, match="connection was closed, or of no more use: cannot switch")
    with told, unavailable_when_away():
        raise InternalClientError("cannot switch to state 12; another operation (2) is in progress")
