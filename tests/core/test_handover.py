"""Who has a task that runs when a step is complete: handovers, deadlines and pauses, row by row of its table."""

import pytest
from tests.core.scene import Scene, copy, failed, restoring, running, topology
from tests.core.scenes import TASK, guarded, pair, reasons

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    Leave,
    PauseRequest,
    PinRequest,
    ResumeRequest,
    Started,
)
from batonpass.core.state.model import PauseScope, Role
from batonpass.core.state.reasons import Why
from batonpass.core.state.records import AssignmentChanged, NextOwnerChosen
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import Soft


def to(scene: Scene, member: str, task: str = TASK) -> None:
    """Make a task belong to a member."""
    scene.do(PinRequest(TaskId(task), MemberId(member)))
    scene.tick()


def taken(scene: Scene, task: str = TASK) -> int:
    """Return how often a task was taken from its owner, by the records."""
    return sum(task in (*one.demoted, *one.revoked) for one in scene.log if isinstance(one, AssignmentChanged))


def test_a_running_owner_that_is_the_target_stays() -> None:
    scene = guarded()
    owner = scene.task(TASK).owner
    for _ in range(3):
        scene.tick(1_000)
        scene.obey()
    assert scene.task(TASK).owner == owner
    assert taken(scene) == 0


def test_a_caught_up_target_gets_the_task() -> None:
    scene = pair()
    to(scene, "b")
    assert scene.held("b", Role.WARMUP) == [TASK]
    scene.obey("b", lag=100)
    assert reasons(scene) >= {Why.HANDOVER}
    assert scene.of(NextOwnerChosen) == [NextOwnerChosen(TASK, MemberId("b"))]
    assert scene.grant("a", TASK) is not None
    assert scene.held("a", Role.STANDBY) == [TASK]
    scene.obey("a")
    assert scene.owners() == {TASK: "b"}
    assert scene.task(TASK).ready_grant


def test_an_owner_keeps_processing_while_its_target_is_not_caught_up() -> None:
    scene = guarded(members="abc")
    owner = scene.task(TASK).owner
    assert owner is not None
    (standby,) = scene.task(TASK).standbys
    (cold,) = {MemberId("a"), MemberId("b"), MemberId("c")} - {owner, standby}
    to(scene, cold)
    for _ in range(5):
        scene.tick(1_000)
        scene.obey(owner)
        scene.obey(standby)
        scene.obey(cold, lag=101)
    assert scene.task(TASK).owner == owner
    assert scene.task(TASK).warmups == (cold,)
    assert taken(scene) == 0


def test_state_on_disk_is_no_copy_while_the_owner_runs() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100)
    scene.join("a")
    scene.obey()
    scene.join("b", {TASK: copy("none", 0)})
    to(scene, "b")
    assert scene.owners() == {TASK: "a"}
    assert scene.held("b", Role.WARMUP) == [TASK]
    scene.obey("b")
    assert scene.task(TASK).handover.next_owner == "b"


def test_a_handover_is_not_taken_back_because_the_new_owner_is_a_little_behind() -> None:
    """The old owner wrote until it stopped."""
    scene = pair()
    to(scene, "b")
    scene.obey("b", lag=90)
    scene.obey("a")
    scene.beat("b", {TASK: restoring(400)})
    scene.obey("a")
    assert scene.owners() == {TASK: "b"}
    scene.beat("b", {TASK: running()})
    assert scene.task(TASK).handover.previous_owner is None


def test_an_undrain_does_not_take_a_handover_back() -> None:
    scene = pair()
    scene.do(DrainRequest(MemberId("a")))
    scene.obey("b")
    assert scene.task(TASK).handover.next_owner == "b"
    scene.do(DrainReversal(MemberId("a")))
    scene.tick()
    assert scene.task(TASK).handover.next_owner == "b"
    scene.obey("a")
    assert scene.owners() == {TASK: "b"}


def test_after_a_start_a_handover_is_not_taken_back_before_the_new_owner_has_spoken() -> None:
    """The coordinator counts the new owner as running, which is its own guess."""
    scene = pair()
    to(scene, "b")
    scene.obey("b")
    scene.obey("a")
    assert (scene.owners(), scene.task(TASK).handover.previous_owner) == ({TASK: "b"}, "a")
    scene.soft = Soft()
    scene.do(Started())
    scene.obey("a")
    to(scene, "a")
    assert scene.owners() == {TASK: "b"}
    scene.beat("b", {TASK: restoring(400)})
    assert scene.owners() == {TASK: "b"}
    scene.beat("b", {TASK: running()})
    assert scene.task(TASK).handover.next_owner == "a"


@pytest.mark.parametrize("how", ["dies", "leaves", "fails"])
def test_the_last_owner_gets_the_task_back_when_the_new_one_cannot(how: str) -> None:
    scene = pair()
    scene.join("c")
    to(scene, "b")
    scene.obey("b")
    scene.obey("a")
    assert scene.owners() == {TASK: "b"}
    if how == "dies":
        scene.do(Eviction(MemberId("b"), dead=True))
    elif how == "leaves":
        scene.do(Leave(MemberId("b")))
    else:
        scene.beat("b", {TASK: failed()})
        assert scene.task(TASK).handover.next_owner == "a"
        scene.beat("b", {TASK: copy("none", None)})
    assert scene.owners() == {TASK: "a"}


def test_the_last_owner_gets_the_task_back_when_the_heir_dies_before_the_grant() -> None:
    scene = pair()
    to(scene, "b")
    scene.obey("b")
    token = scene.task(TASK).token
    scene.do(Eviction(MemberId("b"), dead=True))
    scene.obey("a")
    assert scene.owners() == {TASK: "a"}
    assert scene.task(TASK).token == token + 1


def test_at_a_drain_deadline_the_rest_goes_to_its_best_copy() -> None:
    scene = pair(2, max_warmups_per_member=5)
    scene.do(DrainRequest(MemberId("a"), 10_000))
    scene.beat("b", {"0_0": copy("warmup", 5_000), "0_1": copy("warmup", 9_000)})
    assert scene.owners() == {"0_0": "a", "0_1": "a"}
    scene.now_ms += 9_999
    scene.beat("b")
    scene.tick(1)
    assert Why.DEADLINE in reasons(scene)
    assert [scene.task(task).handover.next_owner for task in scene.owners()] == ["b", "b"]
    scene.obey("a")
    assert scene.owners() == {"0_0": "b", "0_1": "b"}
    assert not scene.task(TASK).ready_grant


def test_at_a_drain_deadline_a_task_without_a_copy_goes_to_its_target_cold() -> None:
    """A task that never got a slot is not left on a machine that goes."""
    scene = pair(3, max_drain_warmups=1)
    scene.do(DrainRequest(MemberId("a"), 1_000))
    assert len(scene.held("b", Role.WARMUP)) == 1
    scene.beat("b", {})
    scene.tick(2_000)
    scene.obey("a")
    assert scene.owners() == {"0_0": "b", "0_1": "b", "0_2": "b"}


def test_at_a_drain_deadline_with_nowhere_to_go_the_tasks_stay() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    scene.obey()
    scene.do(DrainRequest(MemberId("a"), 1_000))
    scene.tick(2_000)
    assert scene.owners() == {TASK: "a"}
    reply = scene.beat("a", {TASK: running()})
    assert isinstance(reply, Answer)
    assert [code for code, _ in reply.status] == ["drain-blocked"]


def test_at_a_drain_deadline_a_member_that_goes_as_well_is_no_place_to_go() -> None:
    scene = pair(rebalance_batch_ms=500)
    scene.do(DrainRequest(MemberId("a"), 2_000))
    scene.tick(500)
    scene.beat("b", {TASK: copy("warmup", 5_000)})
    scene.tick(1_400)
    scene.do(DrainRequest(MemberId("b")))
    decision = scene.tick(100)
    assert scene.owners() == {TASK: "a"}
    assert scene.task(TASK).handover.next_owner is None
    assert Why.DEADLINE not in {reason.code for reason in decision.reasons}


@pytest.mark.parametrize("scope", list(PauseScope))
def test_a_pause_holds_a_handover_that_has_not_begun(scope: PauseScope) -> None:
    scene = pair(2)
    scene.do(PauseRequest(scope))
    scene.obey("b")
    assert set(scene.owners().values()) == {"a"}
    scene.do(ResumeRequest())
    scene.settle()
    assert sorted(map(str, scene.owners().values())) == ["a", "b"]


def test_a_pause_of_everything_holds_drains_too_and_one_of_balance_does_not() -> None:
    for scope, goes in ((PauseScope.BALANCE, True), (PauseScope.ALL, False)):
        scene = pair()
        scene.do(PauseRequest(scope))
        scene.do(DrainRequest(MemberId("a")))
        scene.obey("b")
        scene.obey("b")
        assert (scene.task(TASK).handover.next_owner == "b") is goes, scope


def test_a_pause_holds_stateless_moves_for_balance() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=2))
    scene.join("a")
    scene.obey()
    scene.do(PauseRequest(PauseScope.BALANCE))
    scene.join("b")
    scene.tick(1_000)
    assert set(scene.owners().values()) == {"a"}
    scene.do(ResumeRequest())
    scene.settle()
    assert sorted(map(str, scene.owners().values())) == ["a", "b"]


def test_a_task_that_is_no_longer_in_the_topology_is_given_up() -> None:
    scene = Scene()
    scene.declare(topology(1, stateless=1), num_standby_replicas=1)
    scene.join("a")
    scene.join("b")
    scene.settle()
    scene.change(topology(0, stateless=1, epoch=2))
    for _ in range(3):
        scene.tick(1_000)
        scene.obey()
    assert list(scene.owners()) == ["1_0"]
    assert all(TASK not in scene.member(name).assignment for name in ("a", "b"))
