"""What records about members and tasks mean, each by itself."""

from dataclasses import replace

from tests.core.scene import topology

from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve, without_ended
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.model import (
    ActiveState,
    Cause,
    GoneMember,
    Grant,
    Group,
    Handover,
    Marks,
    Member,
    Pause,
    PauseScope,
    Revocation,
    Role,
    Subtopology,
    Target,
    Task,
    Topology,
    Unreleased,
    pending,
)
from batonpass.core.state.policy import GroupConfig

M1, M2 = MemberId("m1"), MemberId("m2")
T0, T1 = TaskId("0_0"), TaskId("0_1")


def small(*records: r.Record) -> Group:
    """Return a group of two stateful tasks and two members to which ``records`` have happened."""
    start: list[r.Record] = [
        r.GroupDeclared(topology(), GroupConfig(), 1),
        r.MemberJoined(Member(M1, 1, InstanceId("i1"), epoch=1)),
        r.MemberJoined(Member(M2, 1, epoch=1)),
    ]
    return evolve(Group(GroupId("g")), [*start, *records])


def active(member: MemberId, epoch: int = 2, token: int = 1) -> r.AssignmentChanged:
    """Return the record that grants 0_0 to a member as active."""
    return r.AssignmentChanged(member, epoch, 10, {T0: Grant(Role.ACTIVE, epoch, 10, token)})


def test_an_active_taken_away_is_claimed_until_it_is_confirmed() -> None:
    group = small(active(M1), r.AssignmentChanged(M1, 3, 20, revoked=(T0,)))
    assert group.tasks[T0] == Task(T0, since_ms=20, token=1, handover=Handover(unreleased=(Unreleased(M1, None),)))
    assert group.members[M1].revoking == {T0: Revocation(3, 20, active=True)}
    assert not group.members[M1].assignment
    after = evolve(group, [r.TaskReleased(T0, M1, (("", 905),))])
    assert after.tasks[T0] == Task(T0, since_ms=20, token=1, handover=Handover(final_position=(("", 905),)))
    assert not after.members[M1].revoking


def test_a_demoted_active_keeps_its_copy_and_is_claimed() -> None:
    group = small(
        active(M1),
        r.ActiveReported(T0, M1, ActiveState.RUNNING, 12),
        r.AssignmentChanged(M1, 3, 20, {T0: Grant(Role.STANDBY, 3, 20)}, demoted=(T0,)),
    )
    task = group.tasks[T0]
    assert (task.owner, task.standbys, task.handover.previous_owner, task.handover.unreleased) == (
        None,
        (M1,),
        M1,
        (Unreleased(M1, None),),
    )
    assert group.members[M1].revoking == {T0: Revocation(3, 20, active=True)}
    # The previous owner is needed until the next owner runs, and no longer.
    group = evolve(group, [r.TaskReleased(T0, M1, (("", 7),)), active(M2, token=2)])
    assert group.tasks[T0].handover.previous_owner == M1
    group = evolve(group, [r.ActiveReported(T0, M2, ActiveState.RUNNING, 30)])
    assert (group.tasks[T0].handover.previous_owner, group.tasks[T0].handover.final_position) == (None, ())


def test_a_member_gone_with_a_running_lease_claims_what_it_ran() -> None:
    group = small(
        active(M1),
        r.TargetPlaced(1, 1, 5, {T0: Target(M1, (M2,)), T1: Target(M2, (M1,))}),
        r.TaskPinned(T0, M1),
        r.MemberGone(M1, Cause.EVICTED, 20, 50),
    )
    assert group.tasks[T0] == Task(
        T0, since_ms=20, token=1, target=Target(standbys=(M2,)), handover=Handover(unreleased=(Unreleased(M1, 50),))
    )
    assert group.tasks[T1] == Task(T1, target=Target(M2))
    assert M1 not in group.members
    assert not group.instances
    assert group.gone[M1]._replace(since_ms=None) == GoneMember(20, Cause.EVICTED, 50, InstanceId("i1"))


def test_a_member_gone_without_a_lease_claims_nothing() -> None:
    group = small(active(M1), r.MemberGone(M1, Cause.LEFT, 20, 20))
    assert group.tasks[T0] == Task(T0, since_ms=20, token=1)


def test_what_the_last_owner_wrote_is_unknown_once_it_dies_holding_the_task() -> None:
    """The final position of one owner is no floor for what the next one wrote before it was lost."""
    confirmed: list[r.Record] = [
        active(M1),
        r.AssignmentChanged(M1, 3, 20, revoked=(T0,)),
        r.TaskReleased(T0, M1, (("", 905),)),
    ]
    ways: list[r.Record] = [r.MemberGone(M2, Cause.EXPIRED, 40, 40), r.MemberAway(M2, 90, 40)]
    for lost in ways:
        group = small(*confirmed, active(M2, token=2), lost)
        assert group.tasks[T0].handover.final_position == ()


def test_only_a_running_active_at_an_expired_lease_is_a_failure() -> None:
    run = r.ActiveReported(T0, M1, ActiveState.RUNNING, 12)
    expired = small(active(M1), run, r.MemberGone(M1, Cause.EXPIRED, 20, 20))
    assert [(one.member_id, one.at_ms) for one in expired.tasks[T0].marks.failures] == [(M1, 20)]
    assert small(active(M1), r.MemberGone(M1, Cause.EXPIRED, 20, 20)).tasks[T0].marks.failures == ()
    for cause in set(Cause) - {Cause.EXPIRED}:
        assert small(active(M1), run, r.MemberGone(M1, cause, 20, 20)).tasks[T0].marks.failures == ()


def test_a_member_away_keeps_its_place_and_nothing_else() -> None:
    group = small(
        active(M1),
        r.DrainStarted(M1, 11, None, 99),
        r.MemberSuspected(M1),
        r.TargetPlaced(1, 1, 5, {T0: Target(M1, (M2,)), T1: Target(M2, (M1,))}),
        r.MemberAway(M1, 90, 20),
    )
    assert group.members[M1] == Member(M1, 1, InstanceId("i1"), epoch=2, away_until_ms=90)
    assert group.tasks[T0] == Task(T0, since_ms=20, token=1, target=Target(M1, (M2,)), handover=Handover(away_owner=M1))
    assert group.tasks[T1] == Task(T1, target=Target(M2, (M1,)))
    assert group.instances == {"i1": M1}


def test_an_heir_has_every_target_and_pin_of_the_one_before() -> None:
    placed = r.TargetPlaced(1, 1, 5, {T0: Target(M1, (M2,)), T1: Target(M2, (M1,))})
    next_owner = MemberId("m3")
    group = small(
        placed,
        r.TaskPinned(T0, M1),
        r.MemberJoined(Member(next_owner, 8)),
        r.PlaceInherited(M1, next_owner),
        r.TaskPinned(T1, M2),
    )
    assert group.tasks[T0] == Task(T0, target=Target(next_owner, (M2,)), marks=Marks(pin=next_owner))
    assert group.tasks[T1] == Task(T1, target=Target(M2, (next_owner,)), marks=Marks(pin=M2))


def test_an_heir_of_two_members_has_one_place_in_each_target() -> None:
    next_owner = MemberId("m3")
    for first, second in ((M1, M2), (M2, M1)):
        group = small(
            r.TargetPlaced(1, 1, 5, {T0: Target(M1, (M2,))}),
            r.MemberJoined(Member(next_owner, 8)),
            r.PlaceInherited(first, next_owner),
            r.PlaceInherited(second, next_owner),
        )
        assert group.tasks[T0] == Task(T0, target=Target(next_owner))


def test_an_heir_of_two_standbys_is_one() -> None:
    next_owner = MemberId("m3")
    group = small(
        r.TargetPlaced(1, 1, 5, {T0: Target(None, (M1, M2))}),
        r.MemberJoined(Member(next_owner, 8)),
        r.PlaceInherited(M1, next_owner),
        r.PlaceInherited(M2, next_owner),
    )
    assert group.tasks[T0].target.standbys == (next_owner,)


def test_a_deleted_group_leaves_epochs_tokens_and_ids() -> None:
    group = small(
        active(M1),
        r.RebalanceScheduled(9, "join"),
        r.TargetPlaced(4, 1, 5, {T0: Target(M1)}),
        r.Paused(Pause(PauseScope.ALL, "x", 1, None)),
        r.StormBegan(3),
    )
    after = evolve(group, [r.GroupDeleted(30, 70)])
    assert not after.declared
    assert (after.group_epoch, after.generation, after.grants_from_ms) == (group.group_epoch, 4, 70)
    assert (dict(after.tasks), after.tokens_from) == ({}, 1)
    assert set(after.gone) == {M1, M2}
    assert not after.members
    assert not after.instances
    assert (after.pause, after.storm_since_ms, after.placement_due_ms) == (None, None, None)
    again = evolve(after, [r.GroupDeclared(topology(), GroupConfig(), 31)])
    assert (again.tasks[T0], again.tokens_from) == (Task(T0), 1)
    assert again.revision > group.revision


def test_a_task_dropped_from_the_topology_is_meant_for_nobody() -> None:
    group = small(
        active(M1),
        r.TargetPlaced(1, 1, 5, {T0: Target(M1, (M2,))}),
        r.TopologyChanged(Topology(2, (Subtopology("1", 1),))),
    )
    assert group.tasks[T0] == Task(T0, owner=M1, since_ms=10, token=1)
    assert T0 in group.unsettled
    assert group.table.ids == ("1_0",)


def test_a_task_that_has_ended_leaves_nothing_but_its_token_to_the_group() -> None:
    """T1 had no holder when the topology lost it, and T0 has none since it was released."""
    records: list[r.Record] = [
        active(M1, token=7),
        r.TopologyChanged(Topology(2, (Subtopology("1", 1),))),
        r.AssignmentChanged(M1, 3, 20, revoked=(T0,)),
        r.TaskReleased(T0, M1, (("", 905),)),
    ]
    group = small(*records)
    assert (list(group.tasks), group.tokens_from) == (["1_0"], 7)
    assert set(small(*records[:3]).tasks) == {T0, "1_0"}
    assert small(*records[:3]).tokens_from == 0


def test_what_was_kept_once_of_tasks_that_have_ended_is_left_out() -> None:
    """Those that somebody holds stay."""
    group = small(active(M1, token=7), r.TopologyChanged(Topology(2, (Subtopology("1", 1),))))
    assert without_ended(small()) == small()
    assert without_ended(group) == group
    kept = replace(group, tasks=group.tasks.having(T1, Task(T1, token=9)))
    assert without_ended(kept) == replace(group, tokens_from=9)


def test_a_task_that_comes_back_is_new_whether_its_records_come_together_or_not() -> None:
    smaller = r.TopologyChanged(Topology(2, (Subtopology("1", 1),)))
    back = r.TopologyChanged(topology(epoch=3))
    records: list[r.Record] = [
        active(M1, token=7),
        r.ActiveReported(T0, M1, ActiveState.FAILED, 12),
        smaller,
        r.AssignmentChanged(M1, 3, 20, revoked=(T0,)),
        r.TaskReleased(T0, M1),
        back,
    ]
    together = small(*records)
    group = small()
    for record in records:
        group = evolve(group, [record])
    assert together == group
    assert (group.tasks[T0], group.tokens_from) == (Task(T0), 7)


def test_the_earliest_due_time_counts() -> None:
    group = small(r.RebalanceScheduled(50, "join"), r.RebalanceScheduled(40, "leave"), r.RebalanceScheduled(60, "join"))
    assert (group.placement_due_ms, group.triggers, group.group_epoch) == (40, ("join", "leave"), 3)


def test_a_hold_on_grants_never_gets_shorter() -> None:
    group = small(
        r.GrantsHeld(90, "a", adopting=True),
        r.GrantsHeld(50, "b"),
        r.EpochsRaised({M1: 7}, 1000),
        r.EpochsRaised({M1: 5, M2: 3}, 10),
    )
    assert (group.grants_from_ms, group.recovering_until_ms, group.tokens_from) == (90, 90, 1000)
    assert (group.members[M1].epoch, group.members[M2].epoch) == (7, 3)


def test_a_report_of_somebody_else_says_nothing_of_the_owner() -> None:
    group = small(active(M1))
    assert evolve(group, [r.ActiveReported(T0, M2, ActiveState.RUNNING, 12)]).tasks == group.tasks


def test_a_settled_task_is_where_it_belongs_and_nobody_else_is_involved() -> None:
    task = Task(T0, owner=M1, state=ActiveState.RUNNING, standbys=(M2,), target=Target(M1, (M2,)))
    assert pending(task, replicas=1) is None
    for change in (
        {"owner": None, "target": Target(standbys=(M2,))},
        {"target": Target(M2, (M2,))},
        {"state": ActiveState.RESTORING},
        {"handover": Handover(unreleased=(Unreleased(M2, None),))},
        {"warmups": (M2,)},
        {"handover": Handover(previous_owner=M2)},
        {"standbys": ()},
    ):
        assert pending(task._replace(**change), replicas=1) is not None, change


def test_a_stall_replaces_an_older_one_of_the_same_member() -> None:
    group = small(r.WarmupStalled(T0, M1, 50), r.WarmupStalled(T0, M2, 60), r.WarmupStalled(T0, M1, 70))
    assert [(one.member_id, one.until_ms) for one in group.tasks[T0].marks.stalls] == [(M2, 60), (M1, 70)]


def test_losses_count_for_one_session_timeout_and_for_a_whole_storm() -> None:
    names = [MemberId(f"x{n}") for n in range(4)]
    join = [r.MemberJoined(Member(name, 1)) for name in names]
    has = [r.AssignmentChanged(name, 2, 1, {T0: Grant(Role.STANDBY, 2, 1)}) for name in names]
    gone = [r.MemberGone(name, Cause.EXPIRED, 1 + n * 40_000, 1 + n * 40_000) for n, name in enumerate(names)]
    assert small(*join, *gone).losses == ()
    assert [loss.member_id for loss in small(*join, *has, *gone).losses] == ["x2", "x3"]
    storm = small(*join, *has, *gone[:2], r.StormBegan(5), *gone[2:])
    assert [loss.member_id for loss in storm.losses] == names
    back = MemberId("back")
    again = [
        r.MemberJoined(Member(back, 6)),
        r.AssignmentChanged(back, 2, 6, {T0: Grant(Role.STANDBY, 2, 6)}),
        r.MemberGone(back, Cause.EXPIRED, 7, 7),
    ]
    assert evolve(storm, again).losses == storm.losses  # It was counted when it was lost first.
    assert evolve(storm, [r.StormEnded()]).losses == ()


def test_adopted_tasks_are_taken_from_whoever_the_log_gives_them() -> None:
    group = small(active(M1), r.TasksAdopted(M2, {T0: 9}, (), 40))
    assert group.tasks[T0].owner == M2
    assert group.tasks[T0].token == 9
    assert group.tasks[T0].state is ActiveState.RUNNING
    assert group.members[M1].revoking == {T0: Revocation(3, 40, active=True)}
    assert group.members[M1].epoch == 3
    assert T0 not in group.members[M1].assignment


def test_adopting_a_task_of_somebody_who_is_not_there_takes_it_from_nobody() -> None:
    group = replace(small(), tasks=small().tasks.having(T0, Task(T0, owner=MemberId("ghost"))))
    after = evolve(group, [r.TasksAdopted(M2, {T0: 9}, (), 40)])
    assert (after.tasks[T0].owner, after.tasks[T0].handover.unreleased) == (M2, ())


def test_an_adopted_task_that_a_member_has_given_up_is_claimed_until_confirmed() -> None:
    group = small(active(M1), r.TasksAdopted(M1, {}, (T0,), 40))
    assert group.tasks[T0].owner is None
    assert group.tasks[T0].handover.unreleased == (Unreleased(M1, None),)
    assert T0 in group.members[M1].revoking
    assert T0 not in group.members[M1].assignment


def test_waived_claims_hold_nobody_back() -> None:
    group = small(
        active(M1), r.AssignmentChanged(M1, 3, 20, revoked=(T0,)), r.NextOwnerChosen(T0, M2), r.ReleaseWaived(T0, M1)
    )
    assert group.tasks[T0] == Task(T0, since_ms=20, token=1, handover=Handover(next_owner=M2))
    assert T0 in group.members[M1].revoking


def test_a_released_task_starts_with_a_clean_slate() -> None:
    group = small(active(M1), r.ActiveReported(T0, M1, ActiveState.FAILED, 12), r.TaskParked(T0, (M1,)))
    assert group.tasks[T0].marks.parked
    assert group.tasks[T0].marks.failures
    after = evolve(group, [r.TaskUnparked(T0)])
    assert (after.tasks[T0].marks.parked, after.tasks[T0].marks.failures) == (False, ())


def test_used_ids_are_forgotten_by_record_only() -> None:
    group = small(r.MemberGone(M1, Cause.LEFT, 5, 5))
    assert M1 in group.gone
    assert M1 not in evolve(group, [r.GoneForgotten((M1,))]).gone
