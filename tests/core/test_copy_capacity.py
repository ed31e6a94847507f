"""Room on members with a limit on their copies."""

from tests.core.scene import Scene, topology
from tests.dry_run.planning import member, runs, tasks

from batonpass.core.handover.copies import TaskPlan
from batonpass.core.handover.owner import Choice
from batonpass.core.handover.step import hold_moves
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, PinRequest
from batonpass.core.state.model import Role
from batonpass.core.state.reasons import Held, Why
from batonpass.dry_run.snapshot import Snapshot, SnapshotCopy, to_group

M1, M2 = MemberId("m1"), MemberId("m2")


def test_a_full_member_keeps_what_is_wanted_of_it_and_gives_up_the_rest() -> None:
    copies = {"0_0": SnapshotCopy("standby", lag=0), "0_1": SnapshotCopy("standby", lag=0)}
    members = (member("m1", copies, max_tasks=1), member("m2", runs("0_0", "0_1")))
    group, soft = to_group(Snapshot(tasks=tasks(2), members=members))
    view = View(group, soft, 0, as_if_complete=True)
    wanted = group.tasks[TaskId("0_0")]._replace(target=group.tasks[TaskId("0_0")].target._replace(standbys=(M1,)))
    other = group.tasks[TaskId("0_1")]
    choice = Choice(M2, Why.STAYS)
    task_plans = [TaskPlan(wanted, choice, {M1: Role.STANDBY}), TaskPlan(other, choice, {M1: Role.STANDBY})]
    copy_capacity = hold_moves(view, task_plans)
    assert [plan.copies for plan in task_plans] == [{M1: Role.STANDBY}, {}]
    assert not copy_capacity.allows(M1, other.id)
    assert copy_capacity.allows(M2, other.id)


def test_what_cannot_go_takes_up_room_where_it_stays() -> None:
    members = (member("m1", runs("0_0"), max_tasks=1), member("m2", runs("0_1"), max_tasks=1))
    group, soft = to_group(Snapshot(tasks=tasks(2), members=members))
    view = View(group, soft, 0)
    to_m2 = TaskPlan(group.tasks[TaskId("0_0")], Choice(M2, Why.STATELESS, ready=True), {})
    stays = TaskPlan(group.tasks[TaskId("0_1")], Choice(M2, Why.STAYS, ready=True), {})
    task_plans = [to_m2, stays]
    copy_capacity = hold_moves(view, task_plans)
    assert [(plan.choice.active, plan.choice.held) for plan in task_plans] == [(M1, Held.NO_CAPACITY), (M2, None)]
    assert not copy_capacity.allows(M1, TaskId("0_1"))
    assert not copy_capacity.allows(M2, TaskId("0_0"))


def test_at_its_deadline_a_task_stays_where_it_is_while_its_target_is_full() -> None:
    """B is to have it, and has no room before its own task is at c."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=10)
    scene.join("a")
    scene.join("b", max_tasks=1)
    scene.settle()
    (mine,), (other,) = scene.held("a", Role.ACTIVE), scene.held("b", Role.ACTIVE)
    scene.join("c")
    scene.do(PinRequest(TaskId(other), MemberId("c")))
    scene.do(PinRequest(TaskId(mine), MemberId("b")))
    scene.tick(1_000)
    scene.do(DrainRequest(MemberId("a"), 0))
    scene.tick(1_000)
    assert scene.task(mine).target.owner == "b"
    assert scene.owners() == {mine: "a", other: "b"}
