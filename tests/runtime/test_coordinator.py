"""Long-polls, deadlines and stalls: who is woken, when, and what the core hears of it."""

import asyncio

import pytest
from tests.runtime.fakes import GROUP, M1, M2, SetClock, World, make_world

from batonpass.core.state.errors import UnknownGroup
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import (
    GroupDeclaration,
    Heartbeat,
    PauseRequest,
    PollBroken,
    PollOpened,
    ProbeRequest,
    Started,
    Tick,
)
from batonpass.core.state.model import Cause
from batonpass.core.state.records import (
    AssignmentChanged,
    DrainCancelled,
    EpochsRaised,
    GroupDeleted,
    MemberAway,
    MemberGone,
    ProbeScheduled,
    Record,
    TaskReleased,
)
from batonpass.core.state.replies import Answer, Done
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.group_runtime import Deadline
from batonpass.runtime.ports import Commit, CoordinatorLoading, StoreUnavailable
from batonpass.runtime.pulse import STALL_MS, Pulse
from batonpass.runtime.watchers import Watchers


@pytest.fixture
def world() -> World:
    """Return a world without laws."""
    return make_world()


def change_of(member: str) -> PauseRequest:
    """Return the input upon which the small core changes a member's assignment."""
    return PauseRequest(reason=member)


async def parked(coordinator: Coordinator, member: str, *, after: int = 0) -> asyncio.Task[object]:
    """Return a long-poll that has begun to wait."""
    waiting = asyncio.create_task(coordinator.poll(GROUP, MemberId(member), after=after, wait_ms=5_000))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    return waiting


async def test_a_change_wakes_the_polls_that_it_concerns_and_no_others(world: World) -> None:
    """The core is not even asked about m2."""
    coordinator = Coordinator(world.ports)
    await coordinator.ask(GROUP, ProbeRequest())
    first, second = await parked(coordinator, M1), await parked(coordinator, M2)
    await coordinator.ask(GROUP, ProbeRequest())
    await asyncio.sleep(0.01)
    assert not first.done()
    world.core.polled.clear()
    await coordinator.ask(GROUP, change_of(M1))
    answer = await asyncio.wait_for(first, 1)
    assert isinstance(answer, Answer)
    assert (answer.member_id, answer.member_epoch) == (M1, 1)
    assert world.core.polled == [M1]
    assert not second.done()
    second.cancel()


async def test_a_change_between_two_polls_is_not_missed(world: World) -> None:
    coordinator = Coordinator(world.ports)
    await coordinator.ask(GROUP, change_of(M1))
    answer = await asyncio.wait_for(coordinator.poll(GROUP, M1, after=0, wait_ms=5_000), 1)
    assert isinstance(answer, Answer)


async def test_a_poll_without_news_ends_after_its_wait(world: World) -> None:
    coordinator = Coordinator(world.ports)
    await coordinator.ask(GROUP, ProbeRequest())
    assert await asyncio.wait_for(coordinator.poll(GROUP, M1, after=0, wait_ms=20), 1) is None


async def test_stopping_ends_every_poll_and_suspects_nobody(world: World) -> None:
    coordinator = Coordinator(world.ports)
    await coordinator.ask(GROUP, ProbeRequest())
    waiting, broken = await parked(coordinator, M1), await parked(coordinator, M1)
    await coordinator.ask(GROUP, Heartbeat(M1, 1, 1))
    coordinator.end_waits()
    broken.cancel()
    assert await asyncio.wait_for(waiting, 1) is None
    await coordinator.stop()
    assert not [item for item in world.seen.asked if isinstance(item, PollBroken | PollOpened)]


async def test_nothing_ticks_after_the_stop(world: World) -> None:
    """An input that is still carried out while the coordinator stops leaves no deadline behind."""
    coordinator = Coordinator(world.ports)
    world.core.wake_at_ms = world.clock.at_ms + 5
    world.log.open.clear()
    late = asyncio.create_task(coordinator.ask(GROUP, ProbeRequest()))
    await asyncio.sleep(0.01)
    stopping = asyncio.create_task(coordinator.stop())
    await asyncio.sleep(0.01)
    world.log.open.set()
    await stopping
    assert await late == Done()
    world.seen.asked.clear()
    await asyncio.sleep(0.03)
    assert world.seen.asked == []
    assert coordinator._runtimes[GROUP].deadline.wake_at_ms is None


async def test_a_group_that_cannot_be_read_refuses_polls_and_looks(world: World) -> None:
    """Before a group has been read nothing is said of it, not even that it is unknown."""
    coordinator = Coordinator(world.ports)
    world.log.refuse_reads = True
    with pytest.raises(CoordinatorLoading):
        await coordinator.poll(GROUP, M1, after=0, wait_ms=10)
    with pytest.raises(CoordinatorLoading):
        await coordinator.look(GROUP)
    world.log.refuse_reads = False
    with pytest.raises(UnknownGroup):
        await coordinator.look(GROUP)


async def test_a_group_that_there_never_was_is_not_taken_over(world: World) -> None:
    """To take a group over writes. A declaration does it, for it makes the group."""
    taken: list[GroupId] = []
    take_over = world.log.take_over

    async def note(group_id: GroupId) -> int:
        taken.append(group_id)
        return await take_over(group_id)

    world.log.take_over = note  # type: ignore[method-assign]
    coordinator = Coordinator(world.ports)
    await coordinator.start()
    ghost = GroupId("ghost")
    for item in (Heartbeat(M1, 1, 1), ProbeRequest(), PauseRequest()):
        assert isinstance(await coordinator.ask(ghost, item), UnknownGroup)
    for asking in (coordinator.look(ghost), coordinator.poll(ghost, M1, after=0, wait_ms=5_000)):
        with pytest.raises(UnknownGroup):
            await asking
    assert taken == [GROUP]
    await coordinator.ask(ghost, GroupDeclaration(ghost, None, None, None))
    assert taken == [GROUP, ghost]


async def test_what_cannot_be_known_to_exist_is_not_said_to_be_missing(world: World) -> None:
    async def away(_: GroupId) -> bool:
        raise StoreUnavailable("the store is away")

    world.log.knows = away  # type: ignore[method-assign, assignment]
    coordinator = Coordinator(world.ports)
    assert isinstance(await coordinator.ask(GROUP, ProbeRequest()), StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        await coordinator.look(GROUP)


async def test_who_asks_for_an_unknown_group_has_not_the_names_of_all_read(world: World) -> None:
    """There are as many as there ever were groups: 10,000 took 40 ms, for each such call."""

    async def all_names() -> list[GroupId]:
        raise AssertionError("all names were read")

    world.log.group_ids = all_names  # type: ignore[method-assign]
    coordinator = Coordinator(world.ports)
    ghost = GroupId("ghost")
    assert not await coordinator.knows(ghost)
    assert isinstance(await coordinator.ask(ghost, ProbeRequest()), UnknownGroup)
    assert isinstance(await coordinator.ask(GROUP, ProbeRequest()), Done)


async def test_groups_in_the_log_are_read_at_the_start(world: World) -> None:
    """So that deadlines are kept."""
    await world.log.append(Commit(GROUP, 1, 0, [ProbeScheduled(1)]))
    coordinator = Coordinator(world.ports)
    before = coordinator.is_ready
    await coordinator.start()
    assert (before, coordinator.is_ready) == (False, True)
    assert world.seen.asked == [Started(), Tick()]
    assert await coordinator.declared(after="", limit=10) == [GROUP]
    group, _ = await coordinator.look(GROUP)
    assert group.version == 1


async def test_groups_are_listed_by_name_in_pages(world: World) -> None:
    world.log.empty = {GroupId(name) for name in "abc"}
    coordinator = Coordinator(world.ports)
    await coordinator.start()
    for name in ("c", "a", "b"):
        await coordinator.ask(GroupId(name), ProbeRequest())
    assert await coordinator.declared(after="", limit=2) == ["a", "b"]
    assert await coordinator.declared(after="b", limit=2) == ["c"]


async def test_a_due_deadline_posts_a_tick_and_nothing_else(world: World) -> None:
    coordinator = Coordinator(world.ports)
    world.core.wake_at_ms = world.clock.at_ms + 20
    await coordinator.ask(GROUP, ProbeRequest())
    world.core.wake_at_ms = None
    world.seen.asked.clear()
    await asyncio.sleep(0.08)
    assert world.seen.asked == [Tick()]


async def test_a_tick_that_finds_no_room_comes_again(world: World) -> None:
    coordinator = Coordinator(world.ports, requests_waiting_max=1)
    await coordinator.ask(GROUP, ProbeRequest())
    world.log.open.clear()
    waiting = []
    for _ in range(2):
        waiting.append(asyncio.create_task(coordinator.ask(GROUP, ProbeRequest())))
        await asyncio.sleep(0.005)
    runtime = coordinator._runtimes[GROUP]
    runtime.deadline.set(world.clock.at_ms)
    await asyncio.sleep(0.05)
    assert Tick() not in world.seen.asked
    world.log.open.set()
    assert await asyncio.gather(*waiting) == [Done(), Done()]
    runtime.deadline.set(world.clock.at_ms + 1)
    async with asyncio.timeout(10):
        while world.seen.asked[-1] != Tick():
            await asyncio.sleep(0.01)


async def test_a_deadline_is_replaced_by_a_later_one_and_taken_back_by_none() -> None:
    clock, ticks = SetClock(0), list[int]()
    deadline = Deadline(clock, lambda: ticks.append(clock.at_ms))
    deadline.set(10)
    deadline.set(60_000)
    await asyncio.sleep(0.03)
    assert ticks == []
    deadline.set(10)
    deadline.set(None)
    await asyncio.sleep(0.03)
    assert (ticks, deadline.wake_at_ms) == ([], None)
    deadline.set(-5)
    await asyncio.sleep(0.03)
    assert ticks == [0]


async def test_a_deleted_group_wakes_everybody() -> None:
    watchers = Watchers()
    waits = [asyncio.create_task(watchers.wait(member, 1)) for member in (M1, M2)]
    await asyncio.sleep(0)
    watchers.wake([AssignmentChanged(MemberId("m3"), 1, 1)])
    await asyncio.sleep(0.01)
    assert not any(wait.done() for wait in waits)
    watchers.wake([GroupDeleted(1, 1)])
    assert await asyncio.gather(*waits) == [True, True]
    assert len(watchers) == 0


@pytest.mark.parametrize(
    "record",
    [
        AssignmentChanged(M1, 1, 1),
        MemberGone(M1, Cause.EVICTED, 1, 1),
        MemberAway(M1, 1, 1),
        EpochsRaised({M1: 9}, 1),
        TaskReleased(TaskId("0_0"), M1),
        DrainCancelled(M1),
    ],
    ids=lambda record: type(record).__name__,
)
async def test_a_record_wakes_the_member_that_it_is_about(record: Record) -> None:
    watchers = Watchers()
    concerned, other = (asyncio.create_task(watchers.wait(member, 5)) for member in (M1, M2))
    await asyncio.sleep(0)
    watchers.wake([ProbeScheduled(1), record])
    assert await asyncio.wait_for(concerned, 1)
    await asyncio.sleep(0)
    assert not other.done()
    other.cancel()


def test_a_gap_in_the_pulse_is_a_stall() -> None:
    """A process that stood still longer than the limit has stalled once, however often that is asked."""
    now, gaps = [0.0], list[float]()
    pulse = Pulse(gaps.append, boot=lambda: now[0] * 1_000)
    now[0] += STALL_MS / 1_000
    assert pulse.stalls() == 0
    now[0] += STALL_MS / 1_000 + 1
    assert pulse.age_ms() == STALL_MS + 1_000
    assert (pulse.stalls(), pulse.stalls()) == (1, 1)
    assert gaps == [STALL_MS + 1_000]


async def test_a_beating_pulse_does_not_stall() -> None:
    gaps: list[float] = []
    pulse = Pulse(gaps.append)
    beating = asyncio.create_task(pulse.run())
    await asyncio.sleep(0.3)
    beating.cancel()
    assert (pulse.stalls(), gaps) == (0, [])
    assert pulse.age_ms() < STALL_MS


async def test_groups_whose_deadlines_fall_together_let_others_go_on_in_between(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a turn holds one decision, there is no round of the loop with two of them."""
    monkeypatch.setattr("batonpass.loop_turns.TURN_S", 0)
    coordinator = Coordinator(world.ports)
    mailboxes = [coordinator._runtime(GroupId(f"group-{number}")).mailbox for number in range(20)]
    for mailbox in mailboxes:
        await mailbox.ask(Tick())
    world.seen.effects.clear()
    for mailbox in mailboxes:
        mailbox.post(Tick())
    most = before = 0
    async with asyncio.timeout(10):
        while (done := len(world.seen.effects)) < len(mailboxes):
            most, before = max(most, done - before), done
            await asyncio.sleep(0)
    assert most == 1
