"""A coordinator speaks only for the groups that are its own now (L4), and forgets what is not."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.runtime.fakes import GROUP, M1, M2, World, make_world

from batonpass.codec.records import UnreadableRecord
from batonpass.core.decide import Decision
from batonpass.core.state.ids import GroupId, TaskId
from batonpass.core.state.inputs import (
    GroupDeclaration,
    Heartbeat,
    Input,
    PauseRequest,
    PinRequest,
    ProbeRequest,
    Started,
)
from batonpass.core.state.model import Group, Subtopology, Task, Topology
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import ProbeScheduled, Record
from batonpass.core.state.replies import Answer, Done
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.invariants import Transition, Violation
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.engine import COPIES_DECIDED_AT_ONCE
from batonpass.runtime.history import Asked
from batonpass.runtime.ports import Commit, CoordinatorLoading, Loaded, NotOwner, StoreUnavailable

OTHER = GroupId("other")
ENDED = PMap({(name := TaskId(f"0_{number}")): Task(name) for number in range(COPIES_DECIDED_AT_ONCE + 1)})
"""The tasks of a group that was large. They are not in its table, and what looks at all of them takes as long."""


@pytest.fixture
def world() -> World:
    """Return a world without laws."""
    return make_world()


def take_away(world: World, group_id: GroupId, url: str | None = "http://other") -> None:
    """Let the group be another coordinator's from now on; without a URL nobody knows whose."""
    world.ownership.lost.add(group_id)
    world.ownership.url = url
    world.log.owner = url


async def test_a_coordinator_lists_no_groups_before_it_knows_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None at all would look as if there were none."""
    await world.log.append(Commit(GROUP, 1, 0, [ProbeScheduled(1)]))
    coordinator = Coordinator(world.ports)
    with pytest.raises(NotOwner, match="still reading its groups"):
        await coordinator.declared(after="", limit=10)
    with monkeypatch.context() as context:
        context.setattr(world.ownership, "not_ready", lambda: "the lease is over")
        with pytest.raises(NotOwner, match="the lease is over; try again"):
            await coordinator.start()
        assert not coordinator.is_ready
    await coordinator.start()
    assert await coordinator.declared(after="", limit=10) == [GROUP]
    monkeypatch.setattr(world.ownership, "not_ready", lambda: "the lease is over")
    with pytest.raises(NotOwner, match="the lease is over; try again"):
        await coordinator.declared(after="", limit=10)


async def test_whoever_asks_for_a_group_learns_why_nobody_answers_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = Coordinator(world.ports)
    await coordinator.ask(GROUP, ProbeRequest())
    take_away(world, GROUP, None)
    monkeypatch.setattr(world.ownership, "not_ready", lambda: "the lease is over: no connection within 5 s")
    with pytest.raises(NotOwner, match=r"not known yet \(the lease is over: no connection within 5 s\); try again"):
        await coordinator.look(GROUP)


async def test_without_a_valid_lease_nothing_is_said(world: World) -> None:
    coordinator = Coordinator(world.ports)
    await coordinator.ask(GROUP, ProbeRequest())
    take_away(world, GROUP, None)
    assert isinstance(await coordinator.ask(GROUP, Heartbeat(M1, 1, 1)), NotOwner)
    assert isinstance(await coordinator.ask(GROUP, ProbeRequest()), NotOwner)
    with pytest.raises(NotOwner):
        await coordinator.look(GROUP)
    assert isinstance(await coordinator.poll(GROUP, M1, after=0, wait_ms=0), NotOwner)
    world.ownership.lost.clear()
    assert await coordinator.ask(GROUP, Heartbeat(M1, 2, 1)) == Done()
    assert (await coordinator.look(GROUP))[0].version == 1


async def test_a_heartbeat_that_is_refused_for_want_of_a_lease_was_heard(world: World) -> None:
    """No member is expired for a silence that was the coordinator's own (L5)."""
    coordinator = Coordinator(world.ports)
    await coordinator.ask(GROUP, ProbeRequest())
    await coordinator.ask(GROUP, Heartbeat(M1, 1, 1))
    take_away(world, GROUP, None)
    world.clock.at_ms += 5_000
    await coordinator.ask(GROUP, Heartbeat(M1, 2, 1))
    world.ownership.lost.clear()
    _, soft = await coordinator.look(GROUP)
    assert soft.members[M1].heard_ms == world.clock.at_ms


async def test_a_group_that_went_to_another_is_let_go(world: World) -> None:
    coordinator = Coordinator(world.ports)
    await coordinator.ask(GROUP, ProbeRequest())
    waiting = asyncio.create_task(coordinator.poll(GROUP, M1, after=0, wait_ms=5_000))
    await asyncio.sleep(0.01)
    take_away(world, GROUP)
    await coordinator.ownership_changed()
    refused = await asyncio.wait_for(waiting, 1)
    assert isinstance(refused, NotOwner)
    assert "http://other" in refused.detail
    assert coordinator.loaded_groups() == []


async def test_a_group_that_comes_to_this_one_is_taken_over_and_read(world: World) -> None:
    """No request is needed for it, and judging begins then (L3)."""
    await world.log.append(Commit(GROUP, 1, 0, [ProbeScheduled(1)]))
    take_away(world, GROUP)
    coordinator = Coordinator(world.ports)
    await coordinator.start()
    assert coordinator.loaded_groups() == []
    world.ownership.lost.clear()
    world.log.owner = None
    await coordinator.ownership_changed()
    assert [group.version for group, _ in coordinator.loaded_groups()] == [1]
    assert Started() in world.seen.asked


async def test_a_group_that_cannot_be_read_keeps_no_other_from_being_served(world: World) -> None:
    await world.log.append(Commit(GROUP, 1, 0, [ProbeScheduled(1)]))
    await world.log.append(Commit(OTHER, 1, 0, [ProbeScheduled(1)]))
    read = world.log.read

    async def damaged(group_id: GroupId, *, after_version: int | None = None) -> Loaded:
        if group_id == GROUP:
            raise UnreadableRecord("damaged")
        return await read(group_id, after_version=after_version)

    world.log.read = damaged  # type: ignore[method-assign]
    coordinator = Coordinator(world.ports)
    await coordinator.start()
    await coordinator.ownership_changed()
    assert coordinator.is_ready
    assert [group.id for group, _ in coordinator.loaded_groups()] == [OTHER]
    assert isinstance(world.seen.defects[0], UnreadableRecord)


async def test_a_group_that_cannot_be_taken_over_now_keeps_no_other_from_being_served(world: World) -> None:
    """At a start and when groups come from others. It is tried again."""
    await world.log.append(Commit(GROUP, 1, 0, [ProbeScheduled(1)]))
    await world.log.append(Commit(OTHER, 1, 0, [ProbeScheduled(1)]))
    locked, take_over = {min(GROUP, OTHER)}, world.log.take_over

    async def taken(group_id: GroupId) -> int:
        if group_id in locked:
            raise StoreUnavailable("another session has its head locked")
        return await take_over(group_id)

    world.log.take_over = taken  # type: ignore[method-assign]
    for read in (Coordinator.start, Coordinator.ownership_changed):
        coordinator = Coordinator(world.ports)
        with pytest.raises(CoordinatorLoading, match="head locked"):
            await read(coordinator)
        assert coordinator.is_ready == (read is Coordinator.start)
        assert [group.id for group, _ in coordinator.loaded_groups()] == [max(GROUP, OTHER)]
        freed, locked = locked, set()
        await read(coordinator)
        assert {group.id for group, _ in coordinator.loaded_groups()} == {GROUP, OTHER}
        locked = freed
        await coordinator.stop()


async def test_a_group_that_is_still_anothers_keeps_no_start_from_being_ready(world: World) -> None:
    world.log.empty = {GROUP, OTHER}
    world.log.owner = "http://other"
    coordinator = Coordinator(world.ports)
    with pytest.raises(NotOwner):
        await coordinator.start()
    assert coordinator.is_ready
    await coordinator.stop()


async def test_what_is_under_way_is_finished_before_a_group_is_let_go(world: World) -> None:
    """The log still took the append."""
    coordinator = Coordinator(world.ports)
    await coordinator.ask(GROUP, ProbeRequest())
    world.log.open.clear()
    writing = asyncio.create_task(coordinator.ask(GROUP, ProbeRequest()))
    await asyncio.sleep(0.01)
    take_away(world, GROUP)
    await coordinator.ownership_changed()
    world.log.open.set()
    assert await writing == Done()
    assert (await world.log.read(GROUP)).version == 2
    assert coordinator.loaded_groups() == []


async def test_two_coordinators_never_both_write(world: World) -> None:
    """The one that took the group over last writes, whatever the first still tries."""
    first, second = Coordinator(world.ports), Coordinator(world.ports)
    await first.ask(GROUP, ProbeRequest())
    await second.ask(GROUP, ProbeRequest())
    world.log.owner = "http://second"
    assert isinstance(await first.ask(GROUP, ProbeRequest()), NotOwner)
    assert await second.ask(GROUP, ProbeRequest()) == Done()
    assert (await world.log.read(GROUP)).version == 3


async def test_a_long_decision_holds_up_no_other_group() -> None:
    world = make_world()
    world.log.empty = {GROUP, OTHER}
    held = threading.Event()

    def decide(group: Group, soft: Soft, inputs: tuple[Input, ...], now_ms: int, policy: Policy) -> Decision:
        if group.id == GROUP and isinstance(inputs[0], PauseRequest):
            held.wait(10)
        decision = world.core.decide(group, soft, inputs, now_ms, policy)
        return decision._replace(after=replace(decision.after, tasks=ENDED)) if decision.records else decision

    coordinator = Coordinator(replace(world.ports, decide=decide))
    await coordinator.ask(GROUP, ProbeRequest())
    await coordinator.ask(OTHER, ProbeRequest())
    deciding = asyncio.create_task(coordinator.ask(GROUP, PauseRequest(reason=M2)))
    behind = asyncio.create_task(coordinator.ask(GROUP, Heartbeat(M1, 1, 1)))
    waiting = asyncio.create_task(coordinator.poll(GROUP, M2, after=0, wait_ms=5_000))
    await asyncio.sleep(0.05)
    assert await asyncio.wait_for(coordinator.ask(OTHER, Heartbeat(M1, 1, 1)), 1) == Done()
    assert not deciding.done()
    assert not behind.done()
    held.set()
    assert await deciding == Done()
    assert await behind == Done()
    assert isinstance(await waiting, Answer)


async def test_what_large_groups_and_declarations_cost_is_paid_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A declaration may hold megabytes of topics for few tasks. A heartbeat that writes nothing needs no thread.

    One of very many tasks does, whatever the group has.
    """
    world = make_world()
    append, are_large = world.log.append, list[bool]()

    async def noted(commit: Commit) -> None:
        are_large.append(commit.is_large)
        await append(commit)

    monkeypatch.setattr(world.log, "append", noted)
    loop_thread = threading.get_ident()
    beside: list[tuple[str, bool]] = []

    def decide(group: Group, soft: Soft, inputs: tuple[Input, ...], now_ms: int, policy: Policy) -> Decision:
        beside.append((type(inputs[0]).__name__, threading.get_ident() != loop_thread))
        decision = world.core.decide(group, soft, inputs, now_ms, policy)
        return decision._replace(after=replace(decision.after, tasks=ENDED)) if decision.records else decision

    def check(step: Transition) -> Sequence[Violation]:
        beside.append(("laws", threading.get_ident() != loop_thread))
        return world.ports.check_step(step)

    def read(group: Group, records: Sequence[Record]) -> Group:
        beside.append(("evolve", threading.get_ident() != loop_thread))
        return world.ports.evolve(group, records)

    coordinator = Coordinator(replace(world.ports, decide=decide, check_step=check, evolve=read))
    await coordinator.ask(GROUP, ProbeRequest())
    assert beside[0] == ("evolve", True)
    beside.clear()
    few = Topology(1, (Subtopology("0", partitions=1),))
    await coordinator.ask(OTHER, GroupDeclaration(OTHER, few, None, None))
    await coordinator.ask(GROUP, Heartbeat(M1, 1, 1))
    await coordinator.ask(GROUP, ProbeRequest())
    assert ("GroupDeclaration", True) in beside
    assert beside[-3:] == [("Heartbeat", False), ("ProbeRequest", True), ("laws", True)]
    beside.clear()
    world.log.empty |= {OTHER}
    for group_id in (GROUP, OTHER):
        await coordinator.ask(group_id, Heartbeat(M1, 2, 1, dict.fromkeys(ENDED, TaskReport("none"))))
    assert [one for one in beside if one[0] == "Heartbeat"] == [("Heartbeat", True)] * 2
    assert are_large == [False, True]


async def test_a_snapshot_is_kept_when_enough_has_been_added(world: World) -> None:
    kept: list[int] = []

    async def keep(group: Group) -> None:
        kept.append(group.version)
        if len(kept) == 1:
            raise StoreUnavailable("the store is away")

    world.log.keep_snapshot = keep  # type: ignore[method-assign]
    coordinator = Coordinator(world.ports)
    for _ in range(3):
        await coordinator.ask(GROUP, ProbeRequest())
    await coordinator.keep_snapshots(after_records=3)
    assert kept == []
    with pytest.raises(StoreUnavailable):
        await coordinator.keep_snapshots(after_records=2)
    await coordinator.keep_snapshots(after_records=2)
    await coordinator.keep_snapshots(after_records=2)
    assert kept == [3, 3]


async def test_a_snapshot_that_is_not_taken_keeps_no_other_group_from_its_own(world: World) -> None:
    """One may be too large for the time of a statement each time, or its rows locked."""
    kept: list[GroupId] = []

    async def keep(group: Group) -> None:
        if group.id == GROUP:
            raise StoreUnavailable("no answer in time")
        kept.append(group.id)

    world.log.keep_snapshot = keep  # type: ignore[method-assign]
    coordinator = Coordinator(world.ports)
    world.log.empty |= {OTHER}
    for group_id in (GROUP, OTHER):
        await coordinator.ask(group_id, ProbeRequest())
    with pytest.raises(StoreUnavailable, match="in time"):
        await coordinator.keep_snapshots(after_records=0)
    assert kept == [OTHER]


async def test_without_the_store_the_snapshots_of_the_others_are_not_tried(world: World) -> None:
    tried: list[GroupId] = []

    async def keep(group: Group) -> None:
        tried.append(group.id)
        raise StoreUnavailable("the store is away")

    async def away() -> list[GroupId]:
        raise StoreUnavailable("the store is away")

    world.log.keep_snapshot = keep  # type: ignore[method-assign]
    coordinator = Coordinator(world.ports)
    world.log.empty |= {OTHER}
    for group_id in (GROUP, OTHER):
        await coordinator.ask(group_id, ProbeRequest())
    world.log.group_ids = away  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await coordinator.keep_snapshots(after_records=0)
    assert tried == [GROUP]


async def test_the_audit_trail_says_what_was_meant_even_if_nothing_changed(world: World) -> None:
    coordinator = Coordinator(world.ports)
    asked = Asked(who="ops", command="unpin")
    await coordinator.ask(GROUP, PinRequest(TaskId("0_1"), None), asked)
    [row] = await world.log.commands(GROUP, before=None, limit=5)
    assert row.subject == {"task": "0_1"}
