"""L1 to L5 as checks: who may run what, who may be forgotten, what records say. Each law holds, and breaks."""

from dataclasses import replace

import pytest
from tests.invariants.laws import (
    CONFIG,
    M1,
    M2,
    M3,
    M4,
    NOW,
    SESSION,
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
    with_member,
    with_task,
)

from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import InstanceId, MemberId
from batonpass.core.state.inputs import (
    Eviction,
    GroupDeletion,
    Heartbeat,
    Input,
    Join,
    Leave,
    Started,
    StoreRecovered,
    Tick,
)
from batonpass.core.state.model import ActiveState, Cause, Group, Handover, KeptOut, Target
from batonpass.core.state.pmap import PMap
from batonpass.core.state.soft import MemberSoft, TaskReport
from batonpass.invariants import check_repeated, check_step
from batonpass.invariants.ledger import Ledger

REVOKED = (r.AssignmentChanged(M1, 3, NOW, revoked=(A,)), r.NextOwnerChosen(A, M2))
CONFIRMED = r.TaskReleased(A, M1)


def says(name: MemberId, epoch: int, **tasks: TaskReport) -> Heartbeat:
    """Return a heartbeat that reports these tasks; ``_0_0`` stands for 0_0."""
    return Heartbeat(name, 5, epoch, {task[1:]: report for task, report in tasks.items()})  # type: ignore[misc]


def revoked() -> Group:
    """Return the group after 0_0 was revoked from m1 for m2."""
    return group(*REVOKED)


def test_a_free_task_may_be_granted() -> None:
    assert broken(step([r.AssignmentChanged(M3, 2, NOW, {B: active(2, 1)})])) == []


@pytest.mark.parametrize(
    ("record", "law"),
    [
        (r.AssignmentChanged(M3, 2, NOW, {A: active(2, 2)}), "L1"),
        (r.AssignmentChanged(M3, 2, NOW, {B: active(2, 0)}), "L1"),
        (r.AssignmentChanged(M3, 3, NOW, {B: active(3, 1)}), "L2"),
        (r.AssignmentChanged(M3, 2, NOW, {B: active(1, 1)}), "L2"),
        (r.AssignmentChanged(MemberId("nobody"), 2, NOW, {B: active(2, 1)}), "L2"),
    ],
)
def test_a_grant_needs_a_free_task_a_new_token_and_the_next_epoch(record: r.Record, law: str) -> None:
    """Protocol 0.4 and protocol 8.1."""
    assert law in broken(step([record]))


def test_nothing_is_granted_while_somebody_may_still_run_it() -> None:
    grant = r.AssignmentChanged(M2, 3, NOW, {A: active(3, 2)})
    assert broken(step([grant], before=revoked())) == ["L1"]
    own = r.AssignmentChanged(M1, 4, NOW, {A: active(4, 2)})
    assert broken(step([own], before=revoked())) == []


def test_nothing_is_granted_before_its_time() -> None:
    held = group(r.GrantsHeld(NOW + 1, "recovery"))
    assert broken(step([r.AssignmentChanged(M3, 2, NOW, {B: active(2, 1)})], before=held)) == ["L3"]


def test_no_assignment_gives_up_and_grants_at_once() -> None:
    both = r.AssignmentChanged(M2, 3, NOW, {B: standby(3)}, revoked=(A,))
    assert "L1" in broken(step([both]))
    demotion = r.AssignmentChanged(M1, 3, NOW, {A: standby(3)}, demoted=(A,))
    assert broken(step([demotion, r.NextOwnerChosen(A, M2), r.TargetPlaced(2, 1, NOW, {A: Target(M2, (M1,))})])) == []


@pytest.mark.parametrize(
    ("item", "laws"),
    [
        (says(M1, 3), []),
        (says(M1, 3, _0_0=TaskReport("standby")), []),
        (None, []),
        (says(M1, 3, _0_0=TaskReport("active", ActiveState.RUNNING)), ["L1"]),
        (says(M1, 2), ["L1"]),
        (says(M2, 3), ["L1"]),
        (Heartbeat(M1, 5, 3, None), ["L1"]),
        (Tick(), ["L1"]),
    ],
)
def test_a_revocation_ends_by_a_confirmation_alone(item: Input | None, laws: list[str]) -> None:
    """A list of tasks at the epoch of the revocation or later, without the task, confirms it."""
    assert broken(step([CONFIRMED], before=revoked(), item=item)) == laws


def test_a_release_of_nothing_changes_nothing() -> None:
    assert broken(step([r.TaskReleased(B, M3)], item=Tick())) == []
    assert broken(step([CONFIRMED, CONFIRMED], before=revoked(), item=says(M1, 3))) == []


def gone(*, lease_end_ms: int, cause: Cause = Cause.EVICTED, name: MemberId = M1) -> r.MemberGone:
    """Return the departure of a member."""
    return r.MemberGone(name, cause, NOW, lease_end_ms)


@pytest.mark.parametrize(
    ("item", "now_ms", "laws"),
    [
        (Tick(), NOW + SESSION, []),
        (Tick(), NOW + SESSION - 1, ["L1"]),
        (Join(MemberId("m9"), replaces=M1), NOW, []),
        (Join(MemberId("m9"), replaces=M2), NOW, ["L1"]),
        (Join(MemberId("m9"), instance_id=InstanceId("pod-1"), takeover=True), NOW, []),
        (Join(MemberId("m9"), instance_id=InstanceId("pod-1")), NOW, ["L1"]),
        (Eviction(M1, dead=True), NOW, []),
        (Eviction(M1), NOW, ["L1"]),
        (Leave(M1), NOW, []),
    ],
)
def test_a_claim_of_the_fenced_ends_with_its_lease_or_a_word_for_its_death(
    item: Input, now_ms: int, laws: list[str]
) -> None:
    before = group(gone(lease_end_ms=NOW + SESSION))
    assert broken(step([CONFIRMED], before=before, item=item, now_ms=now_ms)) == laws


def test_a_claim_is_waived_only_for_fenced_suspects() -> None:
    before = group(r.MemberSuspected(M1), *REVOKED)
    assert broken(step([r.ReleaseWaived(A, M1)], before=before)) == []
    assert broken(step([r.ReleaseWaived(A, M1)], before=revoked())) == ["L1"]
    cleared: list[r.Record] = [r.SuspicionCleared(M1), r.ReleaseWaived(A, M1)]
    assert broken(step(cleared, before=before)) == ["L1"]


def test_suspicion_needs_a_broken_poll_and_silence() -> None:
    wait = CONFIG.suspect_timeout_ms
    silent = soft(m1=replace(member_soft(), poll_broken_ms=NOW - wait))
    assert broken(step([r.MemberSuspected(M1)], known=silent)) == []
    assert broken(step([r.MemberSuspected(M1)])) == ["L1"]
    assert broken(step([r.MemberSuspected(M2)], known=silent)) == ["L1"]
    assert broken(step([r.MemberSuspected(M1)], known=silent._replace(judge_from_ms=NOW + 1))) == ["L3"]


@pytest.mark.parametrize(
    ("record", "item", "laws"),
    [
        (gone(cause=Cause.EXPIRED, lease_end_ms=NOW), Tick(), ["L1", "L5"]),
        (gone(cause=Cause.EVICTED, lease_end_ms=NOW), Eviction(M1, dead=True), []),
        (gone(cause=Cause.EVICTED, lease_end_ms=NOW + SESSION), Eviction(M1), []),
        (gone(cause=Cause.EVICTED, lease_end_ms=NOW), Eviction(M1), ["L1"]),
        (gone(cause=Cause.EVICTED, lease_end_ms=NOW + SESSION), Tick(), ["L5"]),
        (gone(cause=Cause.LEFT, lease_end_ms=NOW), Leave(M1), []),
        (gone(cause=Cause.LEFT, lease_end_ms=NOW), Leave(M2), ["L1", "L5"]),
        (gone(cause=Cause.REPLACED, lease_end_ms=NOW), Join(M3, replaces=M1), []),
        (gone(cause=Cause.TAKEN_OVER, lease_end_ms=NOW), Tick(), ["L1", "L5"]),
        (gone(cause=Cause.FENCED, lease_end_ms=NOW + SESSION), Tick(), ["L5"]),
        (gone(cause=Cause.RESTARTED, lease_end_ms=NOW + SESSION), Tick(), ["L5"]),
        (gone(cause=Cause.LEFT, lease_end_ms=NOW, name=MemberId("nobody")), None, ["L2"]),
    ],
)
def test_a_member_goes_for_a_reason_alone(record: r.Record, item: Input | None, laws: list[str]) -> None:
    assert broken(step([record], item=item)) == laws


def test_a_silent_member_expires_when_it_may_be_judged() -> None:
    late = NOW + SESSION
    expiry = r.MemberGone(M1, Cause.EXPIRED, late, late)
    assert broken(step([expiry], item=Tick(), now_ms=late)) == []
    early = soft()._replace(judge_from_ms=late + 1)
    assert broken(step([expiry], item=Tick(), now_ms=late, known=early)) == ["L5"]


def test_the_lease_of_the_unheard_counts_from_the_start() -> None:
    """Another coordinator may have heard the member just before this one started."""
    unheard = soft()._replace(started_ms=NOW, judge_from_ms=0, members=soft().members.without(M1))
    late = NOW + SESSION
    assert broken(step([r.MemberGone(M1, Cause.EXPIRED, late, late)], item=Tick(), now_ms=late, known=unheard)) == []
    soon = late - 1
    early = step([r.MemberGone(M1, Cause.EXPIRED, soon, soon)], item=Tick(), now_ms=soon, known=unheard)
    assert broken(early) == ["L1", "L5"]


def test_a_timeout_declared_since_the_start_binds_nobody_unheard() -> None:
    """A member that was not heard since the start has not been answered the new timeout."""
    early = SESSION - 100
    unheard = soft()._replace(started_ms=NOW, judge_from_ms=NOW + early, members=soft().members.without(M1))
    at_ms = NOW + early
    assert broken(step([r.MemberGone(M1, Cause.EXPIRED, at_ms, at_ms)], item=Tick(), now_ms=at_ms, known=unheard)) == []


def test_a_lowered_timeout_is_not_judged_by_before_it_was_echoed() -> None:
    """The largest timeout answered since the echoed epoch counts."""
    known = soft(m1=replace(member_soft(), echoed=1, timeouts=((0, 99 * SESSION), (1, SESSION), (2, SESSION // 2))))
    soon = NOW + SESSION // 2
    early = step([r.MemberGone(M1, Cause.EXPIRED, soon, soon)], item=Tick(), now_ms=soon, known=known)
    assert broken(early) == ["L1", "L5"]
    late = NOW + SESSION
    expiry = step([r.MemberGone(M1, Cause.EXPIRED, late, late)], item=Tick(), now_ms=late, known=known)
    assert broken(expiry) == []


def test_a_revocation_left_unconfirmed_fences() -> None:
    before = group(*REVOKED)
    fresh = soft(m1=member_soft(NOW + 4_000))
    for wait, laws in ((CONFIG.rebalance_timeout_ms, []), (CONFIG.rebalance_timeout_ms - 1, ["L5"])):
        at_ms = NOW + wait
        fenced = r.MemberGone(M1, Cause.FENCED, at_ms, at_ms + SESSION)
        assert broken(step([fenced], before=before, item=Tick(), now_ms=at_ms, known=fresh)) == laws


def test_the_place_of_an_instance_is_kept_for_its_grace() -> None:
    away = group(r.MemberAway(M1, NOW + 100, NOW))
    over = r.MemberGone(M1, Cause.GRACE_OVER, NOW, NOW)
    assert broken(step([over], before=away, item=Tick(), now_ms=NOW + 100)) == []
    assert broken(step([over], before=away, item=Tick())) == ["L5"]
    back = r.MemberGone(M1, Cause.RESTARTED, NOW, NOW)
    assert broken(step([back], before=away, item=Join(M3))) == []


def test_only_its_own_word_sends_a_member_away() -> None:
    """The tasks of a member that goes away are free at once: it must have said that it stopped."""
    away = r.MemberAway(M1, NOW + 100, NOW)
    assert broken(step([away], item=Leave(M1, restart=True))) == []
    assert broken(step([away], item=Tick())) == ["L1"]


def test_a_deleted_group_waits_for_the_last_lease() -> None:
    busy = group(*REVOKED, gone(lease_end_ms=NOW + 3 * SESSION), r.MemberAway(M3, NOW, NOW))
    until = NOW + 3 * SESSION
    item = GroupDeletion(force=True)
    assert broken(step([r.GroupDeleted(NOW, until)], before=busy, item=item)) == []
    assert broken(step([r.GroupDeleted(NOW, until - 1)], before=busy, item=item)) == ["L1"]
    assert broken(step([r.GroupDeleted(NOW, NOW)], item=item)) == ["L1"]
    assert broken(step([r.GroupDeleted(NOW, NOW)], before=group(r.GroupDeleted(NOW, NOW)), item=item)) == []


def test_a_deleted_group_of_kafka_streams_waits_for_nobody() -> None:
    """Kafka hands out its tasks, so none is under a lease."""
    busy = replace(group(), config=replace(CONFIG, kafka_streams=True))
    assert broken(step([r.GroupDeleted(NOW, NOW)], before=busy, item=GroupDeletion(force=True))) == []


def test_a_start_judges_nobody_for_a_session_timeout() -> None:
    calm = soft()._replace(judge_from_ms=NOW + SESSION)
    assert broken(step([], item=Started(), known=calm)) == []
    assert broken(step([], item=Started(), known=calm._replace(judge_from_ms=NOW + SESSION - 1))) == ["L3"]
    expired = r.MemberGone(M1, Cause.EXPIRED, NOW, NOW + SESSION)
    assert "L3" in broken(step([expired], item=Started(), known=calm))
    away = group(r.MemberAway(M1, NOW - 1, NOW - 5))
    over = r.MemberGone(M1, Cause.GRACE_OVER, NOW, NOW)
    assert broken(step([over], before=away, item=Started(), known=calm)) == []


def test_a_start_after_a_gap_holds_grants_if_a_lease_was_open_before_it() -> None:
    calm = soft()._replace(judge_from_ms=NOW + SESSION)
    end_ms = NOW + 5
    hold = r.GrantsHeld(NOW + SESSION, "the clock")
    for waits in (group(gone(lease_end_ms=end_ms)), group(r.GrantsHeld(end_ms, "deleted"))):
        for ran_until_ms, expected in ((0, ["L3"]), (end_ms - 1, ["L3"]), (end_ms, [])):
            item = Started(clock_moved=True, ran_until_ms=ran_until_ms)
            assert broken(step([], before=waits, item=item, known=calm)) == expected
            assert broken(step([hold], before=waits, item=item, known=calm)) == []


def test_instants_are_set_back_by_a_start_alone_and_with_a_hold() -> None:
    back = r.GrantsHeld(NOW + SESSION, "the clock", set_back_ms=5)
    calm = soft()._replace(judge_from_ms=NOW + SESSION)
    assert broken(step([back], item=Started(), known=calm)) == []
    assert broken(step([back], item=Tick())) == ["L1"]
    short = r.GrantsHeld(NOW + 1, "the clock", set_back_ms=5)
    assert broken(step([short], item=Started(), known=calm)) == ["L3"]


def test_after_lost_commits_nothing_is_granted_for_a_session_timeout() -> None:
    hold = r.GrantsHeld(NOW + SESSION, "recovery", adopting=True)
    assert broken(step([hold], item=StoreRecovered())) == []
    assert broken(step([r.GrantsHeld(NOW + 1, "recovery")], item=StoreRecovered())) == ["L3"]
    adoption = r.TasksAdopted(M3, {B: 7}, (), NOW)
    raised = r.EpochsRaised({M3: 5, MemberId("nobody"): 1}, 40)
    assert broken(step([hold, raised, adoption])) == []
    assert broken(step([adoption])) == ["L3"]
    held = group(hold)
    assert broken(step([adoption], before=held)) == []
    assert "L3" in broken(step([r.TasksAdopted(MemberId("nobody"), {B: 7}, (), NOW)], before=held))


def test_what_is_adopted_is_taken_from_whoever_the_log_says() -> None:
    hold = r.GrantsHeld(NOW + SESSION, "recovery", adopting=True)
    raised = r.EpochsRaised({M3: 5}, 40)
    assert broken(step([hold, raised, r.TasksAdopted(M3, {A: 7}, (), NOW)])) == []
    assert broken(step([hold, r.TasksAdopted(M1, {C: 7}, (A,), NOW)])) == []


def test_an_owner_is_adopted_again_under_its_own_token() -> None:
    """Another member may still have to release the task under an older token."""
    last = revoked().tasks[A].token
    hold, raised = r.GrantsHeld(NOW + SESSION, "recovery", adopting=True), r.EpochsRaised({M3: 5}, 40)
    held = evolve(revoked(), [hold, raised, r.TasksAdopted(M3, {A: last + 1}, (), NOW)])
    assert held.tasks[A].handover.unreleased
    silent = soft(m1=replace(member_soft(), reports={}))
    assert broken(step([r.TasksAdopted(M3, {A: last + 1, B: 7}, (), NOW)], before=held, known=silent)) == []


@pytest.mark.parametrize("before", [group(), revoked()], ids=["its owner", "not released"])
def test_no_word_takes_a_task_from_who_runs_it(before: Group) -> None:
    held = evolve(before, [r.GrantsHeld(NOW + SESSION, "recovery", adopting=True), r.EpochsRaised({M3: 5}, 40)])
    last = held.tasks[A].token
    says_so = soft(
        m1=replace(member_soft(_0_0=TaskReport("active", ActiveState.RUNNING)), echoed=held.members[M1].epoch)
    )
    silent = soft(m1=replace(says_so.members[M1], reports={}))
    taken = r.TasksAdopted(M3, {A: last + 1}, (), NOW)
    moment = {"before": held, "item": Heartbeat(M3, 5, 5, {})}
    assert broken(step([taken], known=silent, **moment)) == []  # type: ignore[arg-type]
    assert broken(step([taken], known=says_so, **moment)) == ["L3"]  # type: ignore[arg-type]
    assert broken(step([replace(taken, tokens={A: last})], known=silent, **moment)) == ["L3"]  # type: ignore[arg-type]
    # A word counts while the lease runs, and what it says in the same batch is newer.
    over = soft(m1=replace(says_so.members[M1], heard_ms=NOW - SESSION))
    assert broken(step([taken], known=over, **moment)) == []  # type: ignore[arg-type]
    released = step([taken], before=held, known=says_so, item=Heartbeat(M1, 5, held.members[M1].epoch, {}))
    assert "L3" not in broken(released)


def test_counts_only_grow() -> None:
    one = step([r.RebalanceScheduled(NOW, "join")])
    assert broken(one) == []
    assert "L4" in broken(replace(one, after=replace(one.after, version=99)))
    assert "L2" in broken(replace(one, after=replace(one.after, generation=9)))
    assert "L2" in broken(replace(one, after=replace(one.after, group_epoch=-1)))
    fell = details(check_step(replace(one, after=replace(one.after, revision=0, longest_session_ms=0))))
    assert "revision" in fell
    assert "longest session timeout" in fell


def test_a_group_changes_by_records_alone() -> None:
    one = step([])
    assert broken(one) == []
    assert broken(replace(one, after=group(r.ProbeScheduled(5)))) == ["L2"]


def test_a_changed_topology_is_looked_at_whole() -> None:
    one = step([r.TopologyChanged(TOPOLOGY)])
    assert broken(one) == []
    planted = with_member(one.after, M3, assignment=one.after.members[M1].assignment)
    assert broken(replace(one, after=planted)) == ["L2"]


def test_records_say_everything_that_happens() -> None:
    one = step([*REVOKED, r.TargetPlaced(2, 1, NOW, {A: Target(M2)})])
    assert broken(one) == []
    for planted, law in (
        (with_task(one.after, A, owner=M3), "L2"),
        (with_task(one.after, A, handover=Handover()), "L1"),
        (with_task(one.after, A, token=0), "L1"),
        (with_member(one.after, M1, assignment=one.before.members[M1].assignment), "L2"),
        (with_member(one.after, M1, revoking=one.before.members[M1].revoking), "L2"),
        (with_member(one.after, M1, epoch=9), "L2"),
        (replace(one.after, tasks=one.after.tasks.without(A)), "L2"),
        (replace(one.after, members=one.after.members.without(M1)), "L2"),
    ):
        assert law in broken(replace(one, after=planted))


def test_members_that_join_and_go_in_one_decision_are_followed() -> None:
    m9 = MemberId("m9")
    joined = r.MemberJoined(member(m9))
    grant = r.AssignmentChanged(m9, 2, NOW, {B: active(2, 1)})
    left = r.MemberGone(m9, Cause.LEFT, NOW, NOW)
    known = soft(m9=MemberSoft(NOW))
    assert broken(step([joined, grant], known=known)) == []
    assert broken(step([joined, grant, left], known=known, item=Leave(m9))) == []
    again: list[r.Record] = [gone(lease_end_ms=NOW, name=M4, cause=Cause.LEFT), r.MemberJoined(member(M4))]
    assert broken(step(again, item=Leave(M4))) == ["L1"]


def test_a_member_that_is_gone_gets_no_assignment() -> None:
    left = r.MemberGone(M3, Cause.LEFT, NOW, NOW)
    assert "L2" in broken(step([left, r.AssignmentChanged(M3, 2, NOW, {B: active(2, 1)})], item=Leave(M3)))


def test_assignments_of_one_decision_build_on_one_another() -> None:
    raised = r.EpochsRaised({M3: 7}, 0)
    assert broken(step([raised, r.AssignmentChanged(M3, 8, NOW, {B: active(8, 1)})])) == []
    assert "L2" in broken(step([raised, r.AssignmentChanged(M3, 2, NOW, {B: active(2, 1)})]))
    twice = [r.AssignmentChanged(M3, 2, NOW, {B: standby(2)}), r.AssignmentChanged(M3, 3, NOW, {B: active(3, 1)})]
    assert broken(step(twice)) == []


def test_the_same_input_comes_out_the_same() -> None:
    assert check_repeated((1, 2), (1, 2)) == []
    found = check_repeated("abcd", "abXd")
    assert [one.law for one in found] == ["L10"]
    assert check_repeated([1], [1, 2])[0].law == "L10"


def test_a_run_of_an_instance_that_is_kept_out_is_granted_nothing() -> None:
    pod = InstanceId("pod")
    one = replace(with_member(group(), M3, instance_id=pod), kept_out=PMap({pod: KeptOut(-1, None)}))
    assert broken(step([r.AssignmentChanged(M3, 2, NOW, {B: active(2, 1)})], before=one)) == ["L8"]


def test_what_a_member_holds_is_looked_up_once() -> None:
    ledger = Ledger(group())
    assert ledger.grant(M1, A) is ledger.grant(M1, A) is not None


def test_what_has_ended_is_forgotten_and_its_token_is_not() -> None:
    smaller = replace(TOPOLOGY, epoch=2, subtopologies=TOPOLOGY.subtopologies[1:])
    before = group(r.TopologyChanged(smaller), r.AssignmentChanged(M1, 3, NOW, revoked=(A,)))
    before = evolve(before, [r.AssignmentChanged(M2, 3, NOW, revoked=(A,))])
    ended = step([CONFIRMED], before=before, item=says(M1, 3))
    assert A not in ended.after.tasks
    assert broken(ended) == []
    assert broken(replace(ended, after=replace(ended.after, tokens_from=0))) == ["L1"]
    dropped = step([r.TopologyChanged(smaller)], before=with_task(group(), B, token=5))
    assert broken(dropped) == []
    assert "L1" in broken(replace(dropped, after=replace(dropped.after, tokens_from=4)))


@pytest.mark.parametrize("before", [group(), revoked()])
def test_a_task_of_the_topology_or_one_that_may_be_running_does_not_vanish(before: Group) -> None:
    one = step([r.NextOwnerChosen(A, M2)], before=before)
    assert "a task vanished" in details(
        check_step(replace(one, after=replace(one.after, tasks=one.after.tasks.without(A))))
    )
