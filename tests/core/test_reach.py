"""Full members that wait for one another: what cannot be reached is not aimed at, and the group rests."""

from dataclasses import replace

from tests.core.described import describe_group
from tests.core.relay import Relay
from tests.core.scene import Scene, topology
from tests.dry_run.planning import member, runs, tasks

from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, PauseRequest, PinRequest, ProbeRequest, ResumeRequest
from batonpass.core.state.model import ActiveState, Marks, PauseScope, Pending, Role, Stall, Target
from batonpass.core.state.reasons import Held
from batonpass.core.target.reach import (
    Reachability,
    find_unreachable,
    is_nothing_under_way,
    target_where_it_is,
)
from batonpass.dry_run.plan import plan_snapshot
from batonpass.dry_run.snapshot import Snapshot

A, B, C = MemberId("a"), MemberId("b"), MemberId("c")
FIRST, SECOND = TaskId("0_0"), TaskId("0_1")


def full_pair(partitions: int = 2) -> Scene:
    """Return two members that take a single copy each, and run a task each."""
    scene = Scene()
    scene.declare(topology(partitions))
    scene.join("a", max_tasks=1)
    scene.join("b", max_tasks=1)
    scene.settle()
    assert {owner for owner in scene.owners().values() if owner is not None} == {"a", "b"}
    return scene


def exchange(scene: Scene) -> dict[str, str | None]:
    """Have an operator pin each of the two tasks to the member that runs the other; return who ran what."""
    owners = scene.owners()
    for task, owner in owners.items():
        scene.do(PinRequest(TaskId(task), B if owner == A else A))
    return owners


def is_resting(scene: Scene) -> bool:
    """Say whether the group's status is that it rests."""
    return describe_group(scene.view()).at_rest


def test_full_members_whose_tasks_are_to_change_places_keep_them() -> None:
    scene = full_pair()
    owners = exchange(scene)
    reasons = [one for one in (scene.last.reasons if scene.last else ()) if one.code == Held.NO_CAPACITY]
    assert {(one.task, one.to) for one in reasons} == {(task, B if owner == A else A) for task, owner in owners.items()}
    assert all("no room" in one.detail for one in reasons)
    scene.settle()
    assert scene.owners() == owners
    assert is_resting(scene)


def test_what_cannot_be_reached_is_not_tried_again_and_again() -> None:
    scene = full_pair()
    exchange(scene)
    scene.settle()
    before = scene.group
    scene.do(ProbeRequest())
    assert scene.group is before
    assert scene.last is not None
    assert sum(one.code == Held.NO_CAPACITY for one in scene.last.reasons) == 2


def test_room_that_is_still_to_be_made_is_waited_for() -> None:
    """One side has room for one copy more."""
    relay = Relay(topology(3))
    relay.scene.join("a", max_tasks=2)
    relay.scene.join("b", max_tasks=2)
    relay.play()
    owners = relay.owners()
    (alone,) = [name for name in ("a", "b") if list(owners.values()).count(MemberId(name)) == 1]
    other = "b" if alone == "a" else "a"
    (goes,) = [task for task, owner in owners.items() if owner == alone]
    comes = min(task for task, owner in owners.items() if owner == other)
    relay.scene.do(PinRequest(TaskId(goes), MemberId(other)))
    relay.scene.do(PinRequest(TaskId(comes), MemberId(alone)))
    relay.play()
    assert relay.owners()[goes] == other
    assert relay.owners()[comes] == alone


def test_a_new_member_may_open_the_ring() -> None:
    scene = full_pair()
    exchange(scene)
    scene.do(PinRequest(FIRST, None))
    scene.join("c")
    scene.do(PinRequest(FIRST, C))
    scene.settle(60)
    assert scene.owners()["0_0"] == "c"
    assert scene.owners()["0_1"] == scene.task("0_1").marks.pin


def test_nothing_is_judged_while_moves_are_held() -> None:
    scene = full_pair()
    scene.do(PauseRequest(PauseScope.ALL))
    owners = exchange(scene)
    assert {scene.task(task).target.owner for task in owners} == {A, B}
    assert all(scene.task(task).target.owner != owner for task, owner in owners.items())
    scene.do(ResumeRequest())
    scene.settle()
    assert is_resting(scene)


def swapped(scene: Scene) -> tuple[View, dict[TaskId, Target]]:
    """Return the group as it stands, and a target in which its two tasks change places."""
    view = scene.view()
    owners = {task: scene.group.tasks[task].owner for task in (FIRST, SECOND)}
    return view, {task: Target(B if owner == A else A) for task, owner in owners.items()}


def with_first(scene: Scene, **fields: object) -> Scene:
    """Change fields of the first task, and return the scene."""
    task = scene.group.tasks[FIRST]._replace(**fields)  # type: ignore[arg-type]
    scene.group = replace(scene.group, tasks=scene.group.tasks.having(FIRST, task))
    return scene


def test_a_ring_is_one_only_when_nothing_else_goes_on() -> None:
    """A stall that ends, or an owner that failed, may yet make room."""
    scene = full_pair()
    found, owners = find_unreachable(*swapped(scene)), {task: scene.group.tasks[task].owner for task in (FIRST, SECOND)}
    assert {task: target.owner for task, target in found.kept.items()} == owners
    assert found.full == {task: B if owner == A else A for task, owner in owners.items()}
    stalled = with_first(full_pair(), marks=Marks(stalls=(Stall(C, 2_000_000),)))
    failed = with_first(full_pair(), state=ActiveState.FAILED)
    for scene in (stalled, failed):
        assert find_unreachable(*swapped(scene)) == Reachability({}, {}, may_free_up=True)


def test_a_next_owner_that_is_full_by_now_is_not_waited_for() -> None:
    """The member that was to make its room has gone."""
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a", max_tasks=1)
    scene.settle()
    (waits,) = [task for task, owner in scene.owners().items() if owner is None]
    (runs_on,) = [task for task, owner in scene.owners().items() if owner is not None]
    task = (
        scene.group.tasks[TaskId(waits)]
        ._replace(target=scene.group.tasks[TaskId(waits)].target._replace(owner=A, waiting_reason=""))
        .with_handover(next_owner=A)
    )
    scene.group = replace(scene.group, tasks=scene.group.tasks.having(task.id, task))
    scene.do(ProbeRequest())
    scene.settle()
    assert scene.task(runs_on).target.owner == scene.task(runs_on).owner == A
    assert (scene.task(waits).target.owner, scene.task(waits).target.waiting_reason) == (None, Held.NO_CAPACITY)
    assert dict(scene.group.unsettled) == {waits: Pending.AWAITING_NEWS}
    before = scene.group
    scene.do(ProbeRequest())
    assert scene.group is before
    scene.join("b")
    scene.settle()
    assert set(scene.owners().values()) == {"a", "b"}


def test_what_nobody_runs_and_what_a_leaving_member_runs_cannot_stay_where_it_is() -> None:
    """Such tasks go on waiting for room at their targets."""
    scene = full_pair()
    scene.do(DrainRequest(A, 60_000))
    stays = {task for task in (FIRST, SECOND) if scene.group.tasks[task].owner != A}
    found = find_unreachable(*swapped(scene))
    assert found.kept.keys() == found.full.keys() == stays != set()
    without = with_first(full_pair(), owner=None)
    assert FIRST not in find_unreachable(*swapped(without)).kept


def test_what_waits_for_another_member_keeps_nobody_waiting() -> None:
    """A task for which there is no room at all is no reason to think that room will come free."""
    scene = full_pair(3)
    (waiting,) = [task for task, owner in scene.owners().items() if owner is None]
    view = scene.view()
    owners = {TaskId(task): owner for task, owner in scene.owners().items() if owner is not None}
    changes: dict[TaskId, Target] = {task: Target(B if owner == A else A) for task, owner in owners.items()}
    assert find_unreachable(view, changes).full.keys() == owners.keys()
    assert scene.task(waiting).target.waiting_reason == "no-capacity"
    parked = scene.task(waiting).with_marks(parked=True)
    scene.group = replace(scene.group, tasks=scene.group.tasks.having(parked.id, parked))
    view = scene.view()
    assert find_unreachable(view, changes).full.keys() == owners.keys()


def test_what_runs_is_not_stopped_where_there_is_no_room_for_all() -> None:
    scene = Scene()
    scene.declare(topology(2, stateless=1), rejoin_grace_ms=0)
    scene.join("a", max_tasks=2)
    scene.settle()
    (waiting,) = [task for task, owner in scene.owners().items() if owner is None]
    owners = scene.owners()
    scene.do(PinRequest(TaskId(waiting), A))
    scene.settle()
    assert scene.owners() == owners
    assert dict(scene.group.unsettled) == {waiting: Pending.AWAITING_NEWS}
    assert scene.task(waiting).target.waiting_reason == Held.NO_CAPACITY
    before = scene.group
    scene.do(ProbeRequest())
    assert scene.group is before
    scene.join("c")
    scene.settle()
    assert scene.owners()[waiting] == "a"
    assert is_resting(scene)


def test_standbys_that_stay_are_no_more_than_are_wanted() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=2)
    for name in ("a", "b", "c", "d"):
        scene.join(name)
    scene.settle()
    task = scene.task("0_0")
    view = scene.view()
    first, second = task.standbys
    assert target_where_it_is(view, task) == (task.owner, (first, second), "")
    scene.change(num_standby_replicas=1)
    view = scene.view()
    task = task._replace(target=task.target._replace(standbys=(second,)))
    assert target_where_it_is(view, task) == (task.owner, (second,), "")
    scene.do(DrainRequest(second))
    view = scene.view()
    assert target_where_it_is(view, task) == (task.owner, (first,), "")


def test_stateless_tasks_stay_without_copies() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=2))
    scene.join("a", max_tasks=1)
    scene.join("b", max_tasks=1)
    scene.settle()
    owners = scene.owners()
    for task, owner in owners.items():
        scene.do(PinRequest(TaskId(task), B if owner == A else A))
    scene.settle()
    assert scene.owners() == owners
    assert is_resting(scene)


def test_a_group_is_quiet_when_nothing_is_under_way() -> None:
    scene = full_pair()
    assert is_nothing_under_way(scene.group)
    scene.join("c")
    scene.do(PinRequest(FIRST, C))
    assert scene.held("c", Role.WARMUP) == ["0_0"]
    assert not is_nothing_under_way(scene.group)


def test_a_plan_says_what_the_service_does() -> None:
    members = (member("a", runs("0_0"), max_tasks=1), member("b", runs("0_1"), max_tasks=1))
    plan = plan_snapshot(Snapshot(tasks=tasks(2), members=members, pins={FIRST: B, SECOND: A}))
    assert plan.at_rest
    assert not plan.held_back
    assert plan.target == {A: {"active": (FIRST,), "standby": ()}, B: {"active": (SECOND,), "standby": ()}}


def test_two_pins_to_a_member_with_one_place_move_one_task_and_come_to_rest() -> None:
    scene = full_pair()
    scene.join("c", max_tasks=1)
    for task, pin in ((FIRST, C), (SECOND, C)):
        scene.do(PinRequest(task, pin))
    scene.settle(60)
    assert sorted(scene.owners().values(), key=str) in (["a", "c"], ["b", "c"])
    assert is_resting(scene)
