"""The engine keeps one order, persist, change memory, answer, whatever the store does."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.contracts.memory_store import MemoryLog
from tests.runtime.fakes import GROUP, M1, World, make_world

from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import Heartbeat, Input, Join, PauseRequest, ProbeRequest, ResumeRequest, Started, Tick
from batonpass.core.state.records import ProbeScheduled, Record
from batonpass.core.state.replies import Done, Reply
from batonpass.invariants import Transition, Violation
from batonpass.runtime.engine import ATTEMPTS_MAX, Attempt, Engine
from batonpass.runtime.history import NOBODY_ASKED, Asked
from batonpass.runtime.ports import Commit, CoordinatorLoading, Defect, Loaded, NotOwner, StoreUnavailable

BEAT = Heartbeat(M1, 1, 1)


class Bench:
    """An engine, and the changes and wake-ups that it announced."""

    def __init__(self, world: World) -> None:
        self.changes: list[Sequence[Record] | None] = []
        self.wakes: list[int | None] = []
        self.engine = Engine(GROUP, world.ports, changed=self.changes.append, wake_at=self.wakes.append)

    async def carry_out(self, item: Input, asked: Asked = NOBODY_ASKED) -> Reply:
        """Carry out one input."""
        [reply] = await self.engine.carry_out((item,), asked)
        return reply


@pytest.fixture
def world() -> World:
    """Return a world without laws."""
    return make_world()


async def test_what_is_answered_is_in_the_log(world: World) -> None:
    bench = Bench(world)
    assert await bench.carry_out(ProbeRequest()) == Done()
    assert await world.log.read(GROUP) == Loaded(1, (ProbeScheduled(1_000),))
    assert (bench.engine.group.version, bench.engine.group.next_probe_ms) == (1, 1_000)
    assert bench.changes == [None, (ProbeScheduled(1_000),)]


async def test_memory_follows_the_log_and_never_leads_it(world: World) -> None:
    """While an append is under way the group is as it was."""
    bench = Bench(world)
    seen: list[int] = []

    async def append(*_args: object, **_names: object) -> None:
        seen.append(bench.engine.group.version)

    world.log.append = append  # type: ignore[method-assign]
    await bench.carry_out(ProbeRequest())
    assert (seen, bench.engine.group.version) == ([0], 1)


async def test_an_input_without_records_writes_nothing(world: World) -> None:
    bench = Bench(world)
    assert bench.engine.try_at_once(BEAT) is None
    await bench.carry_out(BEAT)
    assert bench.engine.try_at_once(BEAT) == Done()
    assert world.log.appends == 0


async def test_an_input_with_records_is_decided_once(world: World) -> None:
    bench = Bench(world)
    await bench.carry_out(BEAT)
    item = ProbeRequest()
    attempt = bench.engine.try_at_once(item)
    assert isinstance(attempt, Attempt)
    assert await bench.engine.carry_out((item,), attempt=attempt) == (Done(),)
    assert world.seen.asked.count(item) == 1


async def test_a_decision_made_ahead_is_dropped_when_the_group_has_moved_on(world: World) -> None:
    bench = Bench(world)
    await bench.carry_out(BEAT)
    item = ProbeRequest()
    attempt = bench.engine.try_at_once(item)
    assert isinstance(attempt, Attempt)
    await bench.carry_out(Heartbeat(M1, 2, 1))
    await bench.engine.carry_out((item,), attempt=attempt)
    assert world.seen.asked.count(item) == 2
    assert (bench.engine.group.version, await world.log.read(GROUP)) == (1, Loaded(1, (ProbeScheduled(1_000),)))


async def test_a_refused_append_changes_nothing_but_what_was_heard(world: World) -> None:
    """The heartbeat is answered 503, and counts as heard (L5)."""
    bench = Bench(world)
    await bench.carry_out(BEAT)
    world.log.refuse = world.log.refuse_reads = True
    assert isinstance(await bench.carry_out(ProbeRequest()), StoreUnavailable)
    world.clock.at_ms = 9_000
    reply = await bench.carry_out(Heartbeat(M1, 8, 1))
    assert isinstance(reply, StoreUnavailable)
    assert reply.retry_after_ms is not None
    assert bench.engine.group.version == 0
    member_soft = bench.engine.soft.members[M1]
    assert (member_soft.heard_ms, member_soft.seq) == (9_000, BEAT.seq)
    assert bench.wakes[-1] == 10_000


async def test_nothing_is_kept_of_made_up_members_while_the_store_is_away(world: World) -> None:
    """Who may send heartbeats may make up names, and joins have as many tasks as a body holds."""
    bench = Bench(world)
    await bench.carry_out(BEAT)
    world.log.refuse = world.log.refuse_reads = True
    await bench.carry_out(ProbeRequest())
    for number in range(9):
        assert isinstance(await bench.carry_out(Join(MemberId(f"made-up-{number}"))), StoreUnavailable)
    await bench.carry_out(Heartbeat(M1, 8, 1))
    assert list(bench.engine._missed) == [M1]


async def test_service_goes_on_when_the_store_is_back(world: World) -> None:
    bench = Bench(world)
    world.log.refuse = True
    await bench.carry_out(ProbeRequest())
    world.log.refuse = False
    assert await bench.carry_out(ProbeRequest()) == Done()
    assert bench.engine.group.version == 1
    assert world.seen.asked.count(Started()) == 1


async def test_an_append_whose_reply_was_lost_is_found_in_the_log(world: World) -> None:
    """No member is judged anew for it."""
    bench = Bench(world)
    await bench.carry_out(BEAT)
    world.log.lose_reply = True
    assert isinstance(await bench.carry_out(ProbeRequest()), StoreUnavailable)
    assert bench.engine.group.version == 0
    world.log.refuse_reads, world.clock.at_ms = True, 7_000
    assert isinstance(await bench.carry_out(BEAT), StoreUnavailable)
    world.log.refuse_reads = False
    assert await bench.carry_out(Tick()) == Done()
    assert bench.engine.group.version == 1
    assert bench.engine.soft.members[M1].heard_ms == 7_000
    assert bench.changes[-1] == (ProbeScheduled(1_000),)
    assert world.seen.asked.count(Started()) == 1


async def test_a_conflict_reads_the_group_anew_and_decides_again(world: World) -> None:
    """Judging begins afresh (L3)."""
    bench = Bench(world)
    await bench.carry_out(ProbeRequest())
    await MemoryLog.append(world.log, Commit(GROUP, 1, 1, [ProbeScheduled(5)]))
    world.seen.asked.clear()
    assert await bench.carry_out(ProbeRequest()) == Done()
    assert bench.engine.group.version == 3
    assert world.seen.asked == [ProbeRequest(), Started(), ProbeRequest()]
    assert None in bench.changes


async def test_a_group_that_was_taken_over_is_let_go(world: World) -> None:
    """Its caller is sent to the owner (L4)."""
    bench = Bench(world)
    await bench.carry_out(ProbeRequest())
    await world.log.take_over(GROUP)
    world.log.owner = "http://other"
    assert isinstance(await bench.carry_out(ProbeRequest()), NotOwner)
    assert not bench.engine.is_loaded
    assert await world.log.read(GROUP) == Loaded(1, (ProbeScheduled(1_000),))
    world.log.owner = None
    assert await bench.carry_out(ProbeRequest()) == Done()


async def test_a_command_that_changes_nothing_is_in_the_audit_trail(world: World) -> None:
    bench = Bench(world)
    asked = Asked(who="ops", reason="a look", cause="c1", command="resume")
    assert await bench.carry_out(ResumeRequest(), asked) == Done()
    [row] = await world.log.commands(GROUP, before=None, limit=10)
    assert (row.asked, bench.engine.group.version) == (asked, 0)


async def test_a_command_that_changes_nothing_breaks_no_chain_of_traces(world: World) -> None:
    """It has no trace: the next one still names those heard before it, or no replay would know them (L10)."""
    bench = Bench(world)
    await bench.carry_out(ProbeRequest())
    await bench.carry_out(BEAT)
    await bench.carry_out(ResumeRequest(), Asked(who="ops", reason="a look", cause="c1", command="resume"))
    await bench.carry_out(ProbeRequest())
    first, last = (one.trace for one in world.log._histories[GROUP] if one.trace is not None)
    assert (first.soft.from_empty, last.soft.from_empty) == (True, False)
    assert set(last.soft.members) == {M1}


async def test_conflicts_without_end_are_given_up(world: World) -> None:
    bench = Bench(world)
    append = world.log.append

    async def beaten(commit: Commit) -> None:
        await MemoryLog.append(world.log, replace(commit, records=[ProbeScheduled(5)]))
        await append(commit)

    world.log.append = beaten  # type: ignore[method-assign]
    assert isinstance(await bench.carry_out(ProbeRequest()), StoreUnavailable)
    assert world.log.appends == ATTEMPTS_MAX


async def test_a_store_that_lost_commits_is_believed(world: World) -> None:
    """The log is the truth, also where it holds less than memory."""
    bench = Bench(world)
    for _ in range(3):
        await bench.carry_out(ProbeRequest())
    world.log.forget(GROUP, 2)
    assert await bench.carry_out(ProbeRequest()) == Done()
    assert bench.engine.group.version == 2
    assert world.seen.asked.count(Started()) == 2


async def test_a_decision_that_breaks_a_law_is_dropped() -> None:
    world = make_world(check=lambda transition: [Violation("L1", "two owners")] if transition.records else [])
    bench = Bench(world)
    reply = await bench.carry_out(ProbeRequest())
    assert isinstance(reply, Defect)
    assert "L1" in reply.detail
    assert (world.log.appends, bench.engine.group.version) == (0, 0)
    assert [violation.law for violation in world.seen.broken] == ["L1"]
    assert bench.wakes[-1] == 2_000


async def test_a_stall_restarts_judging_before_anything_else(world: World) -> None:
    """The process stood still, and L5 forbids to judge members by that."""
    bench = Bench(world)
    await bench.carry_out(BEAT)
    world.seen.asked.clear()
    world.stalls[0] = 1
    assert bench.engine.try_at_once(BEAT) is None
    await bench.carry_out(BEAT)
    assert world.seen.asked == [Started(), BEAT]
    assert bench.engine.try_at_once(BEAT) == Done()


async def test_a_clock_that_has_moved_is_told_before_anything_else(world: World) -> None:
    """Instants in the group were written by the clock as it was before (L1)."""
    bench = Bench(world)
    await bench.carry_out(BEAT)
    world.seen.asked.clear()
    world.clock.moved_ms = world.clock.at_ms = 1_000_000
    assert bench.engine.try_at_once(BEAT) is None
    await bench.carry_out(BEAT)
    assert world.seen.asked == [Started(clock_moved=True), BEAT]
    assert bench.engine.try_at_once(BEAT) == Done()


@pytest.mark.parametrize(("since_ms", "is_told"), [(44_999, True), (45_000, False)])
async def test_a_group_that_is_taken_over_soon_after_the_clock_has_moved_is_told_too(
    world: World, since_ms: int, *, is_told: bool
) -> None:
    """Its last owner may not have told it. A session timeout later no lease from before is left."""
    world.ports = replace(world.ports, evolve=lambda group, _records: replace(group, longest_session_ms=45_000))
    world.clock.moved_ms = world.clock.at_ms - since_ms
    world.clock.ran_until_ms = 77
    bench = Bench(world)
    await bench.carry_out(BEAT)
    assert world.seen.asked[0] == Started(clock_moved=is_told, ran_until_ms=77 if is_told else 0)
    assert world.seen.asked[1:] == [BEAT]


async def test_a_group_that_was_never_read_says_so(world: World) -> None:
    bench = Bench(world)
    world.log.refuse_reads = True
    assert isinstance(await bench.carry_out(BEAT), CoordinatorLoading)
    assert not bench.engine.is_loaded
    world.log.refuse_reads = False
    assert await bench.carry_out(BEAT) == Done()
    asked: list[Input] = [Started(), BEAT]
    assert world.seen.asked == asked


async def test_what_arrived_together_is_one_commit(world: World) -> None:
    bench = Bench(world)
    inputs = (ProbeRequest(), BEAT, ProbeRequest())
    assert await bench.engine.carry_out(inputs) == (Done(), Done(), Done())
    assert world.seen.batches == [(Started(),), inputs]
    assert (world.log.appends, bench.engine.group.version) == (1, 2)
    [history] = world.log._histories[GROUP]
    assert history.trace is not None
    assert history.trace.inputs == inputs


async def test_only_the_culprit_of_a_batch_fails(world: World) -> None:
    bench = Bench(world)
    world.core.raises, world.core.raises_for = ValueError("boom"), Tick()
    probed, failed, heard = await bench.engine.carry_out((ProbeRequest(), Tick(), BEAT))
    assert (probed, heard) == (Done(), Done())
    assert isinstance(failed, Defect)
    assert [str(error) for error in world.seen.defects] == ["boom"]
    assert bench.engine.group.version == 1
    assert M1 in bench.engine.soft.members


async def test_only_the_culprit_of_a_batch_is_dropped_for_a_law() -> None:
    def check(transition: Transition) -> Sequence[Violation]:
        return [Violation("L1", "two owners")] if PauseRequest(reason="m1") in (transition.inputs or ()) else []

    world = make_world(check=check)
    bench = Bench(world)
    probed, dropped = await bench.engine.carry_out((ProbeRequest(), PauseRequest(reason="m1")))
    assert probed == Done()
    assert isinstance(dropped, Defect)
    assert [violation.law for violation in world.seen.broken] == ["L1", "L1"]
    assert await world.log.read(GROUP) == Loaded(1, (ProbeScheduled(1_000),))


async def test_each_member_of_a_batch_is_heard_when_the_store_is_away(world: World) -> None:
    """Each is answered 503, and counts as heard (L5)."""
    bench = Bench(world)
    await bench.carry_out(BEAT)
    world.log.refuse, world.clock.at_ms = True, 9_000
    replies = await bench.engine.carry_out((ProbeRequest(), Heartbeat(M1, 2, 1)))
    assert all(isinstance(reply, StoreUnavailable) for reply in replies)
    assert bench.engine.soft.members[M1].heard_ms == 9_000
