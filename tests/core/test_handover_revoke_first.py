"""A handover waits for the member that is to have the task, as long as that member would be granted nothing anyway."""

import pytest
from tests.core.scene import Scene, copy, running, topology
from tests.core.scenes import held_back, reasons

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Eviction, Leave, PinRequest
from batonpass.core.state.model import Role
from batonpass.core.state.reasons import Held, WaitsFor
from batonpass.explain.task import explain_task

FIRST, SECOND, THIRD = TaskId("0_0"), TaskId("0_1"), TaskId("0_2")
M2 = MemberId("m2")


def pin(scene: Scene, task: TaskId, member: str) -> None:
    """Make a task belong to a member."""
    scene.do(PinRequest(task, MemberId(member)))
    scene.tick(scene.group.config.rebalance_batch_ms)


def slow_to_stop(max_tasks: int | None = None, *, more: int = 0, **config: object) -> Scene:
    """Return a group in which m2 is to have 0_0 of m1, and has yet to stop 0_1, which m3 is to have."""
    scene = Scene()
    scene.declare(topology(2 + more), **({"acceptable_recovery_lag": 100} | config))
    for name in ("m1", "m2", "m3"):
        scene.join(name, max_tasks=max_tasks)
    pin(scene, FIRST, "m1")
    pin(scene, SECOND, "m2")
    scene.settle()
    pin(scene, FIRST, "m2")
    scene.obey("m2", lag=5_000)
    pin(scene, SECOND, "m3")
    scene.obey("m3")
    assert (scene.held("m2", Role.WARMUP), list(scene.member("m2").revoking)) == (["0_0"], ["0_1"])
    return scene


def stops_not(scene: Scene) -> None:
    """Let m2 say that it still runs 0_1, and is caught up on 0_0."""
    scene.beat("m2", {"0_1": running(), "0_0": copy("warmup", 0)}, epoch=scene.member("m2").epoch - 1)


def test_the_owner_goes_on_until_the_target_has_confirmed_what_it_gives_up() -> None:
    """Stopped earlier, the task would stand still for as long as the target takes to confirm."""
    scene = slow_to_stop()
    stops_not(scene)
    assert scene.task(FIRST).owner == "m1"
    assert held_back(scene) == [("0_0", "m2", Held.REVOKE_FIRST)]
    scene.obey("m2")
    assert scene.task(FIRST).handover.next_owner == "m2"
    assert held_back(scene) == []
    scene.obey("m1")
    assert scene.task(FIRST).owner == "m2"


def test_it_is_explained_who_is_waited_for_and_until_when() -> None:
    scene = slow_to_stop(rebalance_timeout_ms=60_000)
    stops_not(scene)
    told_ms = scene.member("m2").revoking[SECOND].since_ms
    found = explain_task(scene.view(), FIRST)
    (wait,) = found.waits
    assert (wait.what, wait.member_id, wait.until_ms) == (WaitsFor.CONFIRMATION, "m2", told_ms + 60_000)
    assert any("has to confirm first that it gave up other tasks" in sentence for sentence in found.sentences)


def test_a_task_without_state_waits_as_well() -> None:
    """A stateless task needs no copy, but would stand still for just as long."""
    scene = Scene()
    scene.declare(topology(2, stateless=1), acceptable_recovery_lag=100)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    pin(scene, SECOND, "m2")
    pin(scene, TaskId("1_0"), "m1")
    scene.settle()
    pin(scene, SECOND, "m3")
    scene.obey("m3")
    pin(scene, TaskId("1_0"), "m2")
    assert scene.owners()["1_0"] == "m1"
    assert held_back(scene) == [("1_0", "m2", Held.REVOKE_FIRST)]
    scene.obey("m2")
    assert scene.task("1_0").handover.next_owner == "m2"


def swapping(*, together: bool) -> Scene:
    """Return a group in which m1 and m2 are to have a task of each other; m1 was told to stop, m2 is ready to be."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=100)
    scene.join("m1")
    scene.join("m2")
    pin(scene, FIRST, "m1")
    pin(scene, SECOND, "m2")
    scene.settle()
    pin(scene, FIRST, "m2")
    pin(scene, SECOND, "m1")
    scene.obey("m2")
    assert list(scene.member("m1").revoking) == [FIRST]
    if not together:
        scene.beat("m1", {"0_0": running(), "0_1": copy("warmup", 0)}, epoch=scene.member("m1").epoch - 1)
        assert held_back(scene) == [("0_1", "m1", Held.REVOKE_FIRST)]
    return scene


@pytest.mark.parametrize("together", [False, True], ids=["m1 is caught up before", "m1 is caught up as it stops"])
def test_two_members_that_are_to_have_a_task_of_each_other_go_one_after_the_other(*, together: bool) -> None:
    scene = swapping(together=together)
    assert scene.task(SECOND).owner == "m2"
    scene.obey("m1")
    assert scene.owners() == {"0_0": "m2", "0_1": "m2"}, "granted at once, and nothing is taken from m2 before that"
    assert Held.TAKE_OVER_FIRST in reasons(scene)
    scene.obey("m2")
    assert scene.task(SECOND).handover.next_owner == "m1"
    scene.obey("m2")
    scene.obey("m1")
    assert scene.owners() == {"0_0": "m2", "0_1": "m1"}
    scene.settle()
    assert held_back(scene) == []


def test_who_has_no_room_for_what_it_is_about_to_take_over_makes_it_by_a_handover_of_its_own() -> None:
    """Otherwise each would wait for the other: a full member is granted nothing."""
    scene = Scene()
    scene.declare(topology(3), acceptable_recovery_lag=100)
    for name, max_tasks in (("m1", None), ("m2", 2), ("m3", None), ("m4", None)):
        scene.join(name, max_tasks=max_tasks)
    for task, name in ((FIRST, "m1"), (SECOND, "m2"), (THIRD, "m4")):
        pin(scene, task, name)
    scene.settle()
    pin(scene, SECOND, "m3")
    scene.do(Eviction(MemberId("m1")))
    pin(scene, FIRST, "m2")
    scene.do(PinRequest(THIRD, M2))
    scene.do(Leave(MemberId("m4")))
    scene.tick()
    assert (scene.task(FIRST).handover.next_owner, list(scene.member("m2").assignment)) == ("m2", [SECOND, THIRD])
    for _ in range(6):
        scene.now_ms += 10_000
        scene.settle()
    assert scene.owners() == {"0_0": "m2", "0_1": "m3", "0_2": "m2"}


@pytest.mark.parametrize("max_tasks", [None, 5], ids=["without limit", "with a limit on copies"])
def test_who_is_about_to_take_over_is_not_told_to_drop_a_copy_before(max_tasks: int | None) -> None:
    """The task would stand still until that is confirmed; only a member with a limit may need the room."""
    scene = slow_to_stop(max_tasks)
    scene.obey("m2")
    scene.obey("m3")
    assert (scene.task(SECOND).owner, scene.task(FIRST).handover.next_owner) == ("m3", "m2")
    assert (SECOND in scene.member("m2").assignment) is (max_tasks is None)
    scene.obey("m1")
    assert (scene.task(FIRST).owner == "m2") is (max_tasks is None)
    scene.obey("m2")
    scene.obey("m2")
    assert scene.owners() == {"0_0": "m2", "0_1": "m3"}
    assert SECOND not in scene.member("m2").assignment


def test_at_the_deadline_of_a_drain_nobody_is_waited_for() -> None:
    """The owner goes at that instant anyway."""
    scene = slow_to_stop()
    scene.do(DrainRequest(MemberId("m1"), 10_000))
    stops_not(scene)
    assert scene.task(FIRST).owner == "m1"
    scene.now_ms += 9_999
    stops_not(scene)
    scene.tick(1)
    assert scene.task(FIRST).handover.next_owner == "m2"


def test_whoever_never_confirms_is_fenced_and_another_is_tried() -> None:
    scene = slow_to_stop(rebalance_timeout_ms=30_000)
    stops_not(scene)
    for _ in range(11):
        scene.wait(3_000)
        if M2 in scene.group.members:
            stops_not(scene)
        for name in ("m1", "m3"):
            scene.obey(name)
    assert M2 not in scene.group.members
    assert scene.task(FIRST).owner == "m1"
    assert FIRST not in [task for task, _, _ in held_back(scene)]
    scene.settle()


def test_what_nobody_runs_goes_to_a_ready_copy_that_can_begin_at_once() -> None:
    """The member of a closer copy would first have to confirm what it gives up."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=100, num_standby_replicas=2, rebalance_batch_ms=1_000)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle()
    for task, name in ((FIRST, "m1"), (SECOND, "m2")):
        pin(scene, task, name)
    scene.settle()
    pin(scene, SECOND, "m3")
    assert list(scene.member("m2").revoking) == [SECOND]
    scene.beat("m3", {"0_0": copy("standby", 50), "0_1": copy("standby", 0)})
    scene.do(Eviction(MemberId("m1"), dead=True))
    assert scene.task(FIRST).owner == "m3"


def test_what_nobody_runs_waits_for_a_confirmation_rather_than_start_cold() -> None:
    scene = slow_to_stop(rebalance_batch_ms=1_000)
    stops_not(scene)
    scene.do(Eviction(MemberId("m1"), dead=True))
    assert scene.task(FIRST).owner is None
    scene.obey("m2")
    assert scene.task(FIRST).owner == "m2"
    assert scene.task(FIRST).ready_grant
