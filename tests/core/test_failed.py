"""Tasks that fail: another member tries, one that failed is not tried again at once, and what stays says why."""

import pytest
from tests.core.described import describe_group
from tests.core.scene import Scene, copy, failed, restoring, running, topology
from tests.dry_run.planning import held, member, plan_of

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, PauseRequest, PinRequest, ProbeRequest, ReleaseRequest
from batonpass.core.state.model import ActiveState, PauseScope, Role, Subtopology
from batonpass.core.state.reasons import Held
from batonpass.dry_run.snapshot import SnapshotCopy, SnapshotTask

WINDOW_MS = 600_000


def stateless_scene(members: int, partitions: int = 4) -> Scene:
    """Return a settled scene of some members with stateless tasks ``1_0`` and on."""
    scene = Scene()
    scene.declare(topology(0, stateless=partitions))
    for number in range(1, members + 1):
        scene.join(f"m{number}")
    scene.settle(60)
    return scene


def fail(scene: Scene, task: str) -> str:
    """Let the owner of a task report that it failed and its other tasks as they are; return who it was."""
    owner = scene.task(task).owner
    assert owner is not None
    assignment = scene.member(owner).assignment
    reports = {
        one: running() if grant.role is Role.ACTIVE else copy(grant.role) for one, grant in sorted(assignment.items())
    }
    scene.beat(owner, reports | {task: failed()})
    return owner


def held_back(scene: Scene) -> list[tuple[str, str | None, Held]]:
    """Return what a description of the group says is held back, and check that it then claims no rest."""
    status = describe_group(scene.view())
    assert not (status.held_back and status.at_rest)
    return [(entry.task, entry.to, entry.reason) for entry in status.held_back]


def test_a_failed_stateless_task_moves_to_another_member_and_stays_there() -> None:
    scene = stateless_scene(3, 4)
    before = scene.owners()
    loads = list(before.values())
    task = next(one for one, owner in before.items() if loads.count(owner) == 2)
    first = fail(scene, task)
    assert scene.last is not None
    assert {str(one.code) for one in scene.last.reasons if one.task == task} >= {"failed-on-owner"}
    scene.settle()
    after = scene.owners()
    assert after[task] not in (first, None)
    assert [one for one in before if before[one] != after[one]] == [task]
    for _ in range(5):
        scene.wait(10_000)
        scene.settle()
    assert scene.owners() == after
    assert held_back(scene) == []


def test_a_stateless_task_that_fails_everywhere_is_tried_once_on_each_until_it_is_parked() -> None:
    """Three members that fail it within ten minutes park it."""
    scene = stateless_scene(5)
    tried = [fail(scene, "1_0")]
    for _ in range(2):
        scene.settle()
        tried.append(fail(scene, "1_0"))
    assert len(set(tried)) == 3
    assert scene.task("1_0").marks.parked
    scene.settle()
    assert scene.task("1_0").owner is None
    assert held_back(scene) == [("1_0", scene.task("1_0").target.owner, Held.PARKED)]
    scene.do(ReleaseRequest(TaskId("1_0")))
    scene.settle()
    assert scene.task("1_0").state is ActiveState.RUNNING
    assert held_back(scene) == []


def test_where_everybody_failed_a_stateless_task_it_stays_and_says_so() -> None:
    scene = stateless_scene(2)
    first = fail(scene, "1_0")
    scene.settle()
    second = fail(scene, "1_0")
    assert first != second
    for _ in range(20):
        scene.tick(5_000)
        for name in ("m1", "m2"):
            if name == scene.task("1_0").owner:
                fail(scene, "1_0")
            else:
                scene.obey(name)
        assert scene.task("1_0").owner == second
    assert held_back(scene) == [("1_0", None, Held.FAILED)]
    scene.obey(second)
    scene.settle()
    assert held_back(scene) == []


def test_only_a_member_that_may_take_it_gets_a_failed_stateless_task() -> None:
    scene = Scene()
    scene.declare(topology(0, more=(Subtopology("1", 1, stateful=False),), epoch=2))
    scene.join("m1")
    scene.settle()
    scene.join("m2", max_tasks=0)
    scene.join("m3", topology_epoch=1)
    scene.join("m4")
    scene.do(DrainRequest(MemberId("m4")))
    scene.settle()
    fail(scene, "1_0")
    scene.tick(1_000)
    assert scene.task("1_0").owner == "m1"
    assert held_back(scene) == [("1_0", None, Held.FAILED)]
    scene.do(PinRequest(TaskId("1_0"), MemberId("m1")))
    scene.join("m5")
    scene.tick(1_000)
    assert scene.task("1_0").owner == "m1"
    scene.do(PinRequest(TaskId("1_0"), None))
    scene.settle()
    assert scene.task("1_0").owner == "m5"


@pytest.mark.parametrize(("scope", "moves"), [(PauseScope.BALANCE, True), (PauseScope.ALL, False)])
def test_a_pause_of_balance_does_not_hold_what_failed(scope: PauseScope, *, moves: bool) -> None:
    """Going on elsewhere after a failure is recovery, which only a pause of everything holds."""
    scene = stateless_scene(2)
    scene.do(PauseRequest(scope))
    owner = fail(scene, "1_0")
    scene.tick(1_000)
    scene.obey(owner)
    assert (scene.task("1_0").owner != owner) is moves


def stateful_scene(members: int, **config: object) -> Scene:
    """Return a settled scene of some members with one stateful task."""
    scene = Scene()
    scene.declare(topology(1), **config)
    for number in range(1, members + 1):
        scene.join(f"m{number}")
    scene.settle(60)
    return scene


def test_a_failed_stateful_task_without_a_copy_warms_up_elsewhere_and_goes_there() -> None:
    """Nothing is lost by a warmup: the owner keeps what there is of the state, and tries on."""
    scene = stateful_scene(2)
    owner = fail(scene, "0_0")
    other = "m2" if owner == "m1" else "m1"
    assert scene.task("0_0").warmups == (other,)
    scene.tick(5_000)
    scene.beat(other, {"0_0": copy(Role.WARMUP, 90_000)})
    assert scene.task("0_0").owner == owner
    scene.beat(other, {"0_0": copy(Role.WARMUP)})
    scene.settle()
    assert (scene.task("0_0").owner, scene.task("0_0").state) == (other, ActiveState.RUNNING)
    assert held_back(scene) == []


def test_a_failed_stateful_task_that_no_other_member_may_have_stays_and_says_so() -> None:
    scene = stateful_scene(1)
    scene.join("m2", max_tasks=0)
    owner = fail(scene, "0_0")
    assert scene.last is not None
    assert Held.FAILED in {reason.code for reason in scene.last.reasons}
    scene.tick(5_000)
    assert scene.task("0_0").owner == owner
    assert held_back(scene) == [("0_0", None, Held.FAILED)]
    scene.settle()
    assert held_back(scene) == []


def test_what_failed_does_not_return_to_the_member_on_which_it_failed() -> None:
    """The member is no destination of the task for ten minutes, however warm its copy."""
    scene = stateful_scene(2, num_standby_replicas=1)
    first = fail(scene, "0_0")
    scene.settle()
    second = scene.task("0_0").owner
    assert second not in (first, None)
    for _ in range(10):
        scene.tick(20_000)
        scene.settle()
        assert scene.task("0_0").owner == second
    assert held_back(scene) == []


def test_balance_does_not_take_a_task_back_to_the_member_on_which_it_failed() -> None:
    scene = Scene()
    scene.declare(topology(4), num_standby_replicas=1, acceptable_recovery_lag=100)
    for name in ("m1", "m2"):
        scene.join(name)
    scene.settle()
    owner = fail(scene, "0_0")
    other = "m2" if owner == "m1" else "m1"
    scene.settle()
    assert scene.task("0_0").owner == other
    assert [list(scene.owners().values()).count(name) for name in ("m1", "m2")] == [2, 2]
    scene.join("m3")
    for _ in range(3):
        scene.tick(1_000)
        scene.obey("m1", "m2")
    assert scene.task("0_0").target.owner != owner


def test_where_a_copy_that_caught_up_later_takes_over_the_task_is_to_stay() -> None:
    """No copy was ready when the task failed, so that it was to go where its copy was warmest."""
    scene = stateful_scene(2, num_standby_replicas=1)
    first = scene.task("0_0").owner
    second = "m2" if first == "m1" else "m1"
    scene.beat(second, {"0_0": copy(Role.STANDBY, 50_000)})
    assert fail(scene, "0_0") == first
    scene.tick(5_000)
    scene.beat(first, {"0_0": restoring(90_000)})
    assert (scene.task("0_0").owner, scene.task("0_0").target.owner) == (first, second)
    scene.beat(second, {"0_0": copy(Role.STANDBY)})
    scene.settle()
    assert scene.task("0_0").owner == scene.task("0_0").target.owner == second
    assert held_back(scene) == []
    assert describe_group(scene.view()).at_rest


def test_a_task_that_failed_stays_though_no_other_could_be_moved_for_balance() -> None:
    scene = Scene()
    scene.declare(topology(3), num_standby_replicas=2)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle()
    (task, pinned, other), (first, second, third) = zip(*scene.owners().items(), strict=True)
    scene.do(PinRequest(TaskId(pinned), MemberId(str(second))))
    scene.do(PinRequest(TaskId(other), MemberId(str(third))))
    lagging = {one: copy(Role.STANDBY, 50_000) for one in (task, pinned, other)}
    scene.beat(str(second), lagging | {pinned: running()})
    scene.beat(str(third), lagging | {other: running()})
    assert fail(scene, task) == first
    scene.tick(5_000)
    scene.beat(str(first), lagging | {task: restoring(90_000)})
    scene.beat(str(second), lagging | {task: copy(Role.STANDBY), pinned: running()})
    assert scene.task(task).handover.next_owner == second
    scene.settle()
    assert scene.owners() == {task: second, pinned: second, other: third}
    assert held_back(scene) == []


def test_a_pin_is_one_more_try_on_the_member_that_it_names() -> None:
    scene = stateful_scene(2, num_standby_replicas=1)
    first = fail(scene, "0_0")
    scene.settle()
    second = scene.task("0_0").owner
    scene.do(PinRequest(TaskId("0_0"), MemberId(first)))
    scene.settle()
    assert scene.task("0_0").owner == first
    fail(scene, "0_0")
    for _ in range(10):
        scene.tick(5_000)
        scene.obey()
    assert scene.task("0_0").owner == second
    scene.do(ProbeRequest())
    assert held_back(scene) == [("0_0", first, Held.FAILED_THERE)]
    scene.do(ReleaseRequest(TaskId("0_0")))
    scene.settle()
    assert scene.task("0_0").owner == first


def test_two_members_do_not_pass_a_failing_stateful_task_back_and_forth() -> None:
    scene = stateful_scene(2, num_standby_replicas=1)
    first = fail(scene, "0_0")
    scene.settle()
    second = fail(scene, "0_0")
    other = "m1" if second == "m2" else "m2"
    assert other == first
    for _ in range(20):
        scene.tick(5_000)
        scene.obey(first)
        fail(scene, "0_0")
        assert scene.task("0_0").owner == second
    assert held_back(scene) == [("0_0", None, Held.FAILED)]
    scene.now_ms += WINDOW_MS
    fail(scene, "0_0")
    scene.obey(first)
    scene.settle()
    assert scene.task("0_0").owner == first


def test_a_task_without_an_owner_prefers_a_copy_where_it_did_not_fail() -> None:
    scene = stateful_scene(3, num_standby_replicas=2)
    first = fail(scene, "0_0")
    scene.settle()
    second = scene.task("0_0").owner
    third = ({"m1", "m2", "m3"} - {first, second}).pop()
    assert second is not None
    scene.do(DrainRequest(MemberId(third)))
    scene.settle()
    assert scene.task("0_0").owner == second
    scene.do(DrainRequest(MemberId(second), deadline_ms=1_000))
    scene.wait(2_000)
    scene.settle()
    assert scene.task("0_0").owner == first


def test_a_plan_moves_a_failed_stateless_task_and_gives_reasons() -> None:
    broken = SnapshotCopy("active", ActiveState.FAILED)
    one = (SnapshotTask(TaskId("0_0"), stateful=False),)
    plan = plan_of(member("a", {"0_0": broken}), member("b"), tasks=one)
    assert plan.assignment[MemberId("b")]["active"] == ("0_0",)
    assert not plan.at_rest
    alone = plan_of(member("a", {"0_0": broken}), tasks=one)
    assert alone.assignment[MemberId("a")]["active"] == ("0_0",)
    assert [(reason.code, reason.task) for reason in alone.reasons] == [("failed", "0_0")]
    assert not alone.at_rest
    assert alone.probing_needed
    assert held(alone) == {}


def test_a_plan_says_of_a_failed_stateful_task_that_it_failed() -> None:
    broken = SnapshotCopy("active", ActiveState.FAILED, 0)
    stays = plan_of(member("a", {"0_0": broken}), count=1)
    assert [reason.code for reason in stays.reasons] == ["failed"]
    assert held(stays) == {}
    assert not stays.at_rest
    leaves = plan_of(member("a", {"0_0": broken}, draining=True), member("b"), count=1)
    assert leaves.assignment[MemberId("b")]["warmup"] == ("0_0",)
    assert held(leaves) == {}
