"""L6 to L8 as checks: whom a move may interrupt, who may take over, what copies cost. Each law holds, and breaks."""

from dataclasses import replace

import pytest
from tests.invariants.laws import (
    CONFIG,
    M1,
    M2,
    M3,
    M4,
    NOW,
    TOPOLOGY,
    A,
    B,
    C,
    active,
    broken,
    details,
    group,
    member,
    member_soft,
    soft,
    standby,
    step,
    warmup,
    with_member,
    with_task,
)

from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import (
    ActiveState,
    Cause,
    Drain,
    Group,
    Handover,
    Revocation,
    Subtopology,
    Target,
    Topology,
)
from batonpass.core.state.pmap import PMap
from batonpass.core.state.soft import OPEN_TRANSACTION_MS, EndOffset, MeasuredReport, MemberSoft, Soft, TaskReport
from batonpass.invariants import check_step
from batonpass.invariants.moves import is_caught_up_copy, recomputed_lags, slots_used

TO_M2 = r.TargetPlaced(2, 1, NOW, {A: Target(M2, (M1,))})
DEMOTED = r.AssignmentChanged(M1, 3, NOW, {A: standby(3)}, demoted=(A,))


def taken(*, next_owner: MemberId | None = M2, target: MemberId = M2) -> list[r.Record]:
    """Return the records that take 0_0 from m1 for ``next_owner`` while it belongs to ``target``."""
    placed = r.TargetPlaced(2, 1, NOW, {A: Target(target)})
    return [placed, DEMOTED] if next_owner is None else [placed, DEMOTED, r.NextOwnerChosen(A, next_owner)]


def test_a_caught_up_target_takes_over() -> None:
    assert broken(step(taken())) == []


@pytest.mark.parametrize(
    ("known", "laws"),
    [
        (soft(m2=member_soft(_0_0=TaskReport("standby", lag=11))), ["L7"]),
        (soft(m2=member_soft(_0_0=TaskReport("standby"))), ["L7"]),
        (soft(m2=member_soft(_0_0=TaskReport("standby", lag=0, lost=True))), ["L7"]),
        (soft(m2=member_soft()), ["L7"]),
        (soft(m1=member_soft(_0_0=TaskReport("active", ActiveState.RESTORING, lost=True)), m2=member_soft()), []),
        (soft(m1=member_soft(_0_0=TaskReport("active", ActiveState.FAILED)), m2=member_soft()), ["L7"]),
    ],
)
def test_only_a_caught_up_copy_takes_over_from_a_willing_owner(known: Soft, laws: list[str]) -> None:
    assert broken(step(taken(), known=known)) == laws


def test_an_active_is_taken_only_if_another_member_is_to_have_it() -> None:
    assert "L6" in broken(step(taken(next_owner=None)))
    assert "L6" in broken(step(taken(next_owner=M1)))


def test_a_running_task_goes_to_its_target_and_no_third_member() -> None:
    assert broken(step(taken(target=M3))) == ["L8"]
    failed = soft(m1=member_soft(_0_0=TaskReport("active", ActiveState.FAILED)))
    assert broken(step(taken(target=M3), known=failed)) == []


def test_the_state_on_a_disk_counts_where_nobody_runs_the_task() -> None:
    known = soft(m3=member_soft(_0_0=TaskReport("none", lag=0)))
    assert broken(step(taken(next_owner=M3, target=M3), known=known)) == ["L7"]
    failed = soft(
        m1=member_soft(_0_0=TaskReport("active", ActiveState.FAILED)), m3=member_soft(_0_0=TaskReport("none", lag=0))
    )
    assert broken(step(taken(next_owner=M3, target=M3), known=failed)) == []


def test_a_lost_state_is_given_up_at_once() -> None:
    before = group(r.ActiveReported(A, M1, ActiveState.LOST, NOW))
    silent = soft(m1=replace(member_soft(), reports={}), m2=member_soft())
    assert broken(step(taken(), before=before, known=silent)) == []


def test_a_deadline_takes_what_is_not_ready() -> None:
    unready = soft(m2=member_soft())
    drained = r.DrainStarted(M1, NOW, NOW + 10, NOW + 10)
    for now_ms, laws in ((NOW + 10, []), (NOW + 9, ["L7"])):
        assert broken(step(taken(), before=group(drained), known=unready, now_ms=now_ms)) == laws
    at_once = r.DrainStarted(M1, NOW, NOW, NOW)
    assert broken(step([at_once, *taken()], known=unready)) == []
    endless = with_member(group(), M1, drain=Drain(NOW, None, NOW))
    assert broken(step(taken(), before=endless, known=unready)) == ["L7"]


def test_what_a_suspect_ran_goes_to_a_ready_copy_wherever_that_is() -> None:
    before = group(r.MemberSuspected(M1))
    assert broken(step([*taken(target=M3), r.ReleaseWaived(A, M1)], before=before)) == []


def test_a_suspect_takes_over_from_nobody() -> None:
    """A member that may be dead is no better than a copy that is behind."""
    suspect = with_member(group(), M2, suspected=True)
    assert broken(step(taken(), before=suspect)) == ["L7"]


def test_a_handover_is_not_taken_back() -> None:
    before = group(TO_M2, DEMOTED, r.NextOwnerChosen(A, M2), r.TaskReleased(A, M1), granted_to_m2())
    known = soft(
        m1=member_soft(_0_0=TaskReport("standby", lag=0)),
        m2=member_soft(_0_0=TaskReport("active", ActiveState.RESTORING)),
    )
    back: list[r.Record] = [r.AssignmentChanged(M2, 4, NOW, {A: standby(4)}, demoted=(A,)), r.NextOwnerChosen(A, M1)]
    assert broken(step(back, before=before, known=known)) == ["L8"]
    late = NOW + CONFIG.warmup_stall_timeout_ms
    assert broken(step(back, before=before, known=known, now_ms=late)) == []


@pytest.mark.parametrize(
    ("keeper", "laws"),
    [
        (replace(member_soft(), reports={}), []),
        (member_soft(_0_0=TaskReport("standby")), []),
        (member_soft(_0_0=TaskReport("standby", lag=99)), ["L7"]),
        (member_soft(_0_0=TaskReport("standby", lost=True)), ["L7"]),
        (replace(member_soft(), reports={}, full=False), ["L7"]),
    ],
)
def test_the_last_owner_has_everything_until_it_says_otherwise(keeper: MemberSoft, laws: list[str]) -> None:
    before = group(TO_M2, DEMOTED, r.NextOwnerChosen(A, M2), r.TaskReleased(A, M1), granted_to_m2())
    known = soft(m1=keeper, m2=member_soft(_0_0=TaskReport("active", ActiveState.FAILED)))
    back: list[r.Record] = [r.AssignmentChanged(M2, 4, NOW, {A: standby(4)}, demoted=(A,)), r.NextOwnerChosen(A, M1)]
    assert broken(step(back, before=before, known=known)) == laws
    suspect = with_member(before, M1, suspected=True)
    assert broken(step(back, before=suspect, known=known)) == ["L7"]


def granted_to_m2() -> r.Record:
    """Return the grant that completes the handover to m2."""
    return r.AssignmentChanged(M2, 3, NOW, {A: active(3, 2)}, ready=(A,))


def test_a_stateless_task_goes_to_its_target_at_once() -> None:
    given_up = r.AssignmentChanged(M1, 3, NOW, revoked=(C,))
    placed = r.TargetPlaced(2, 1, NOW, {C: Target(M3)})
    assert broken(step([placed, given_up, r.NextOwnerChosen(C, M3)])) == []
    assert broken(step([placed, given_up, r.NextOwnerChosen(C, M2)])) == ["L8"]


def test_a_copy_that_is_meant_stays() -> None:
    dropped = r.AssignmentChanged(M2, 3, NOW, revoked=(A,))
    assert broken(step([dropped])) == ["L6"]
    assert broken(step([r.TargetPlaced(2, 1, NOW, {A: Target(M1)}), dropped])) == []
    assert broken(step([r.WarmupStalled(A, M2, NOW + 1), dropped])) == []
    assert broken(step([r.WarmupStalled(A, M2, NOW), dropped])) == ["L6"]
    lost = soft(m2=member_soft(_0_0=TaskReport("standby", lost=True)))
    assert broken(step([dropped], known=lost)) == []
    unknown = soft()._replace(members=soft().members.without(M2))
    assert broken(step([dropped], known=unknown)) == ["L6"]


def test_what_is_not_held_is_not_revoked() -> None:
    assert broken(step([r.AssignmentChanged(M3, 2, NOW, revoked=(B,))])) == ["L6"]


def test_parked_and_vanished_tasks_are_taken_without_an_heir() -> None:
    parked: list[r.Record] = [r.TaskParked(A, (M1,)), r.AssignmentChanged(M1, 3, NOW, revoked=(A,))]
    assert broken(step(parked)) == []
    smaller = Topology(2, (Subtopology("1", 1, stateful=False, epoch=1),))
    before = group(r.TopologyChanged(smaller))
    assert broken(step([r.AssignmentChanged(M1, 3, NOW, revoked=(A,))], before=before)) == []


def test_an_assignment_for_nobody_interrupts_nobody() -> None:
    """An id that is no member holds nothing that could be taken; the assignment itself breaks L2."""
    assert broken(step([r.AssignmentChanged(MemberId("nobody"), 1, NOW, revoked=(A,))])) == ["L2"]


def copies(*names: MemberId) -> list[r.Record]:
    """Return the grants of a warmup of 0_0 to each of these members, which join first where they are not there."""
    records: list[r.Record] = [r.MemberJoined(member(one)) for one in names if one not in (M1, M2, M3, M4)]
    return [*records, *(r.AssignmentChanged(one, 2, NOW, {A: warmup(2)}) for one in names)]


def test_extra_copies_stay_within_the_budget() -> None:
    """Copies that were begun before the budget became smaller may stay."""
    assert broken(step(copies(M3))) == []
    assert broken(step(copies(M3, MemberId("m5")))) == ["L8"]
    over = group(*copies(M3, MemberId("m5")))
    assert broken(step([r.ProbeScheduled(NOW)], before=over)) == []
    renamed = r.AssignmentChanged(M3, 3, NOW, {A: standby(3)})
    assert broken(step([renamed], before=over)) == []


def test_copies_up_to_the_wanted_number_are_free() -> None:
    before = group(*copies(M3), r.TargetPlaced(2, 1, NOW, {B: Target(M1, (M2,))}))
    records = [r.AssignmentChanged(M1, 3, NOW, {B: active(3, 1)}), r.AssignmentChanged(M2, 3, NOW, {B: standby(3)})]
    assert broken(step(records, before=before)) == []


def test_a_drain_has_a_budget_of_its_own() -> None:
    draining = group(r.DrainStarted(M1, NOW, None, NOW))
    names = (M3, MemberId("m5"), MemberId("m6"))
    assert broken(step(copies(*names), before=draining)) == []
    assert broken(step(copies(*names, MemberId("m7")), before=draining)) == ["L8"]


def test_a_member_warms_only_so_many() -> None:
    before = group(*copies(M3))
    one_more = r.AssignmentChanged(M3, 3, NOW, {B: warmup(3)})
    found = check_step(step([one_more], before=before))
    assert "max_warmups_per_member" in details(found)
    heir: list[r.Record] = [TO_M2, r.NextOwnerChosen(A, M3)]
    assert "max_warmups_per_member" not in details(check_step(step([one_more], before=group(*copies(M3), *heir))))


def test_a_member_that_is_gone_holds_no_warmup() -> None:
    m5 = MemberId("m5")
    assert "L8" not in broken(step([*copies(M3, m5), r.MemberGone(m5, Cause.LEFT, NOW, NOW)]))


def test_a_member_takes_no_more_than_it_said() -> None:
    """What was too much before may stay, but not grow."""
    limited = r.MemberJoined(member(MemberId("m5"), max_tasks=1))
    one = r.AssignmentChanged(MemberId("m5"), 2, NOW, {B: active(2, 1)})
    two = r.AssignmentChanged(MemberId("m5"), 2, NOW, {B: active(2, 1), A: standby(2)})
    assert broken(step([limited, one])) == []
    assert "max_tasks" in details(check_step(step([limited, two])))
    over = with_member(group(), M1, max_tasks=1)
    assert broken(step([r.AssignmentChanged(M1, 3, NOW, {B: active(3, 1)})], before=over)) == ["L8"]
    assert broken(step([r.AssignmentChanged(M1, 3, NOW, {A: active(3, 2)})], before=over)) == ["L1"]


def test_a_member_takes_no_more_state_than_fits_on_its_disk() -> None:
    """State that is there stays, however large; new state must fit beside all that is there."""
    m5 = MemberId("m5")
    two = r.AssignmentChanged(m5, 2, NOW, {A: standby(2), B: standby(2)})
    sizes = {A: 30, B: 20}
    elsewhere = {one: MeasuredReport(TaskReport("standby", disk_bytes=size), NOW) for one, size in sizes.items()}

    def found(limit: int, there: dict[TaskId, TaskReport], *, is_leaving: bool = False) -> str:
        mine = {one: MeasuredReport(report, NOW) for one, report in there.items()}
        soft_then = Soft(members=PMap({M1: MemberSoft(NOW, reports=elsewhere), m5: MemberSoft(NOW, reports=mine)}))
        leaving = PMap({one: Revocation(1, NOW, active=False) for one in (A, B) if is_leaving})
        newcomer = r.MemberJoined(member(m5, max_disk_bytes=limit, revoking=leaving))
        return details(check_step(step([two], before=group(newcomer), known=soft_then)))

    too_small = "its state would take 50 bytes; its max_disk_bytes is 49"
    assert too_small in found(49, {})
    assert "max_disk_bytes" not in found(50, {})
    assert too_small in found(49, {A: TaskReport("none", disk_bytes=5)})
    assert "its state would take 57 bytes" in found(50, {TaskId("1_0"): TaskReport("none", disk_bytes=7)})
    assert "max_disk_bytes" not in found(
        1, {A: TaskReport("none", disk_bytes=30), B: TaskReport("none", disk_bytes=20)}
    )
    assert "max_disk_bytes" not in found(1, {}, is_leaving=True)


def test_an_heir_is_no_extra_copy() -> None:
    """The budgets count warmups, or copies above the wanted number; the next owner is neither."""
    one = group(*copies(M3))
    assert slots_used(one, one.tasks[A]) == 1
    chosen = with_task(one, A, handover=Handover(next_owner=M3), owner=None)
    assert slots_used(chosen, chosen.tasks[A]) == 0


def of_m2(measured: MeasuredReport, known: Soft | None = None) -> Soft:
    """Return soft state in which this is the last report of m2 on 0_0."""
    base = known or soft()
    return base._replace(members=base.members.having(M2, replace(member_soft(), reports={A: measured})))


@pytest.mark.parametrize(
    ("report", "lags"),
    [
        (TaskReport("standby", lag=3), [3]),
        (TaskReport("standby"), []),
        (TaskReport("standby", positions=(("", 90),)), [10]),
        (TaskReport("standby", positions=(("store", 120),)), [0]),
        (TaskReport("standby", positions=(("", 90),), end_offsets=(("", 95),)), [5, 10]),
        (TaskReport("standby", positions=(("other", 90),)), []),
    ],
)
def test_a_lag_is_computed_from_what_was_said_and_what_was_read(report: TaskReport, lags: list[int]) -> None:
    known = of_m2(MeasuredReport(report, NOW))
    assert recomputed_lags(group(), known, MeasuredReport(report, NOW), A) == lags


def test_behind_a_transaction_that_stays_open_the_lag_is_up_to_the_end_of_the_log() -> None:
    report = MeasuredReport(TaskReport("standby", positions=(("", 90),)), NOW)
    for open_ms, lag in ((OPEN_TRANSACTION_MS - 1, 10), (OPEN_TRANSACTION_MS, 60)):
        end = EndOffset(100, NOW, unstable=50, open_since_ms=NOW - open_ms)
        known = soft()._replace(end_offsets=PMap({("store", 0): end}))
        assert recomputed_lags(group(), known, report, A) == [lag]


def two_changelogs() -> Group:
    """Return the group with a second changelog for its stateful tasks."""
    first, second = TOPOLOGY.subtopologies
    return group(r.TopologyChanged(Topology(2, (replace(first, changelog_topics=("store", "more")), second))))


def test_ends_that_fell_or_are_missing_tell_nothing() -> None:
    """An end that shrank belongs to another changelog; with several, a position without a topic fits none."""
    report = MeasuredReport(TaskReport("standby", positions=(("", 90),)), NOW)
    shrunk = soft()._replace(end_offsets=PMap({("store", 0): EndOffset(50, NOW, shrunk=True)}))
    assert recomputed_lags(group(), shrunk, report, A) == []
    assert recomputed_lags(two_changelogs(), soft(), report, A) == []


def test_being_caught_up_is_a_matter_of_records_or_time() -> None:
    one = group()
    timed = replace(one, config=replace(CONFIG, acceptable_catchup_ms=1_000))
    behind = MeasuredReport(TaskReport("standby", lag=50), NOW, 50)

    def ready(on: Group, measured: MeasuredReport) -> bool:
        return is_caught_up_copy(on, of_m2(measured), M2, A, on_disk=False)

    assert not ready(one, behind)
    assert not ready(timed, behind)
    assert ready(timed, behind._replace(rate=50.0))
    assert not ready(timed, behind._replace(rate=49.0))
    assert not ready(timed, behind._replace(rate=0.0))
    assert not ready(one, MeasuredReport(TaskReport("standby", lag=0), NOW, 0, other_incarnation=True))
    assert not is_caught_up_copy(one, soft(), M1, A, on_disk=False)
    assert not is_caught_up_copy(one, soft(), MemberId("nobody"), A, on_disk=True)


def test_doubted_state_is_not_caught_up() -> None:
    one = with_member(group(*copies(M2)), M2, doubts=PMap({A: ()}))
    level = of_m2(MeasuredReport(TaskReport("standby", lag=0), NOW, 0))
    assert is_caught_up_copy(group(*copies(M2)), level, M2, A, on_disk=False)
    assert not is_caught_up_copy(one, level, M2, A, on_disk=False)
