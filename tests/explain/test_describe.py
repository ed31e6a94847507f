"""What people and scripts are shown of a group."""

import pytest
from tests.core.described import describe_group
from tests.core.scene import Scene, copy, restoring, running, topology

from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Leave, PauseRequest, PinRequest, PollBroken
from batonpass.core.state.model import ActiveState, OnLeaseLost, PauseScope, Role, Subtopology, Topology
from batonpass.dry_run.plan import plan_snapshot
from batonpass.dry_run.snapshot import contradictions
from batonpass.explain.status import GroupState, GroupStatus, describe_assignments, snapshot_of

M1, M2 = MemberId("m1"), MemberId("m2")


def status(scene: Scene) -> GroupStatus:
    """Return where the scene's group stands."""
    return describe_group(scene.view())


def moving() -> Scene:
    """Return m1 with four tasks, of which two are to go to m2, which has joined and warms them up."""
    scene = Scene()
    scene.declare(topology(4), acceptable_recovery_lag=100)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    return scene


def test_a_group_is_empty_not_ready_balancing_or_at_rest() -> None:
    """Protocol 2.4."""
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", source_topics=("in",)),)))
    found = status(scene)
    assert (found.state, found.detail) == (
        GroupState.NOT_READY,
        "partition counts are not known yet of subtopology 0 (in)",
    )
    assert not found.at_rest
    scene = Scene()
    scene.declare(topology(2))
    assert (status(scene).state, status(scene).held_back) == (GroupState.EMPTY, ())
    scene.join("m1")
    assert status(scene).state is GroupState.BALANCING
    scene.settle()
    found = status(scene)
    assert (found.state, found.at_rest) == (GroupState.AT_REST, True)
    assert found.next_probe_ms is None


def test_a_paused_group_says_why() -> None:
    scene = moving()
    scene.do(PauseRequest(PauseScope.BALANCE, "the disks are full"))
    assert (status(scene).state, status(scene).detail) == (GroupState.PAUSED, "the disks are full")


def test_warmups_have_an_eta_once_their_rate_is_known() -> None:
    scene = moving()
    tasks = sorted(scene.member("m2").assignment)
    scene.beat("m2", {task: copy("warmup", 9_000) for task in tasks})
    found = status(scene)
    assert (found.warmups, found.moves_pending, found.eta_ms) == (2, 2, None)
    scene.now_ms += 1_000
    scene.beat("m2", {task: copy("warmup", 8_000) for task in tasks})
    assert status(scene).eta_ms == 7_900
    assert status(scene).next_probe_ms is not None


def test_an_eta_ends_where_the_catch_up_time_is_acceptable() -> None:
    scene = moving()
    scene.change(acceptable_catchup_ms=5_000)
    tasks = sorted(scene.member("m2").assignment)
    for lag in (9_000, 8_000):
        scene.beat("m2", {task: copy("warmup", lag) for task in tasks})
        scene.tick(1_000)
    assert status(scene).eta_ms == 3_000
    scene.change(acceptable_catchup_ms=50)
    assert status(scene).eta_ms == 7_900


def test_what_is_held_back_says_why() -> None:
    scene = Scene()
    scene.declare(topology(4), max_warmup_replicas=1)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    assert [(entry.to, entry.reason.value) for entry in status(scene).held_back] == [("m2", "warmup-budget")]


def test_the_three_assignments_tell_a_handover() -> None:
    scene = moving()
    tasks = tuple(sorted(scene.member("m2").assignment))
    scene.beat("m2", {task: copy("warmup", 0) for task in tasks})
    found = describe_assignments(scene.view())
    assert found.target[M2]["active"] == tasks
    assert found.intermediate[M2]["active"] == tasks
    assert found.current[M2]["warmup"] == tasks
    assert found.current[M1]["revoking"] == tasks
    scene.settle()
    found = describe_assignments(scene.view())
    assert {role: found.current[M1][role] for role in ("active", "standby", "warmup")} == found.intermediate[M1]
    assert found.target[M1]["active"] == found.current[M1]["active"]


def test_a_departed_member_stands_in_no_assignment() -> None:
    scene = Scene()
    scene.declare(topology(2), num_standby_replicas=1, rebalance_batch_ms=5_000)
    scene.wait(5_000)
    scene.join("m1")
    scene.join("m2")
    scene.wait(6_000)
    scene.obey()
    found = describe_assignments(scene.view())
    assert sorted(found.target) == ["m1", "m2"]
    assert found.target[M1]["standby"] == found.target[M2]["active"]


def test_a_snapshot_plans_as_the_group_would() -> None:
    scene = moving()
    scene.do(PinRequest(TaskId("0_3"), M1))
    tasks = sorted(scene.member("m2").assignment)
    scene.beat("m1", {task: running() for task in scene.member("m1").assignment})
    scene.beat("m2", {tasks[0]: copy("warmup", 50), tasks[1]: copy("warmup", 9_000), "0_9": copy("none")})
    snapshot = snapshot_of(scene.view())
    assert snapshot.pins == {TaskId("0_3"): M1}
    revoked = [task.id for task in snapshot.tasks if task.revoking == "m1"]
    assert revoked == [tasks[0]]
    plan = plan_snapshot(snapshot)
    found = describe_assignments(scene.view())
    assert plan.target == found.target


def test_a_snapshot_keeps_lost_states_drains_pauses_and_what_restores() -> None:
    scene = Scene()
    scene.declare(topology(2), num_standby_replicas=1)
    scene.join("m1")
    scene.join("m2")
    scene.obey()
    own = {task: name for task, name in scene.owners().items() if name is not None}
    mine = next(task for task, name in own.items() if name == "m1")
    scene.beat("m1", {mine: restoring(7)})
    scene.do(DrainRequest(M2))
    scene.do(PauseRequest(PauseScope.ALL))
    snapshot = snapshot_of(scene.view())
    assert snapshot.paused is PauseScope.ALL
    by_id = {member.id: member for member in snapshot.members}
    assert by_id[M2].draining
    restored = by_id[M1].tasks[TaskId(mine)]
    assert (restored.role, restored.state, restored.lag) == ("active", ActiveState.RESTORING, 7)
    scene.beat("m1", {mine: restoring(lost=True)})
    lost = {member.id: member for member in snapshot_of(scene.view()).members}[M1]
    assert lost.tasks[TaskId(mine)].lost
    scene.soft = type(scene.soft)()
    unheard = snapshot_of(scene.view())
    assert all(found.lag is None for member in unheard.members for found in member.tasks.values())


@pytest.mark.parametrize("how", ["silent", "away"])
def test_a_snapshot_says_who_is_missing(how: str) -> None:
    """So a plan gives it nothing that it does not have."""
    scene = Scene()
    scene.declare(topology(4))
    for name in ("m1", "m2"):
        scene.join(name, instance_id=InstanceId(name))
    scene.settle()
    kept = scene.held("m2", Role.ACTIVE)
    if how == "away":
        scene.do(Leave(M2, restart=True))
    else:
        for _ in range(3):
            scene.now_ms += scene.group.overdue_ms
            scene.beat("m1")
    snapshot = snapshot_of(scene.view())
    assert [(one.id, one.missing) for one in snapshot.members] == [(M1, False), (M2, True)]
    assert plan_snapshot(snapshot).target[M2]["active"] == tuple(kept)


def test_a_snapshot_names_one_holder_of_a_task_that_was_taken_from_a_suspected_member() -> None:
    """The suspected member has yet to confirm, but is no second active: such a file could not be read."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1)
    for name in ("m1", "m2"):
        scene.join(name, on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle()
    owner = scene.task("0_0").owner
    assert owner is not None
    scene.do(PollBroken(owner))
    scene.wait(2_500)
    other = M2 if owner == M1 else M1
    assert scene.task("0_0").owner == other
    assert scene.member(owner).revoking[TaskId("0_0")].active
    written = snapshot_of(scene.view())
    assert contradictions(written) == []
    assert [one.id for one in written.members if one.tasks[TaskId("0_0")].role == "active"] == [other]
    assert written.tasks[0].revoking is None


def test_what_a_topology_has_dropped_is_shown_until_it_is_given_up() -> None:
    scene = Scene()
    scene.declare(topology(2, more=(Subtopology("2", 1),)))
    scene.join("m1")
    scene.settle()
    scene.change(topology(0, epoch=2, more=(Subtopology("2", 1),)))
    found = describe_assignments(scene.view())
    assert found.current[M1]["active"] == ("2_0",)
    assert found.current[M1]["revoking"] == ("0_0", "0_1")


def test_what_a_topology_has_dropped_is_in_no_snapshot() -> None:
    scene = Scene()
    scene.declare(topology(1, more=(Subtopology("9", 1),)))
    scene.join("m1")
    scene.settle()
    scene.do(PinRequest(TaskId("9_0"), M1))
    scene.change(topology(1, epoch=2), rebalance_batch_ms=60_000)
    assert "9_0" in scene.member("m1").assignment or "9_0" in scene.member("m1").revoking
    snapshot = snapshot_of(scene.view())
    assert [task.id for task in snapshot.tasks] == ["0_0"]
    assert list(snapshot.members[0].tasks) == ["0_0"]
    assert dict(scene.group.pins) == {}


def test_what_waits_for_room_stands_in_no_assignment() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1", max_tasks=1)
    scene.obey()
    found = describe_assignments(scene.view())
    assert len(found.target[M1]["active"]) == len(found.intermediate[M1]["active"]) == 1
