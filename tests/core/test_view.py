"""One look at a group: who is here, what they have, how loaded they are, and what holds moves."""

import pytest
from tests.core.scene import Scene, copy, running, topology

from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import Leave, PauseRequest
from batonpass.core.state.model import PauseScope, Role, Stall, Subtopology
from batonpass.core.state.reasons import Held, Hold
from batonpass.core.state.soft import TaskReport
from batonpass.placement.types import Readiness

A, B = MemberId("a"), MemberId("b")


def two() -> Scene:
    """Return two members at rest, with standbys, a stateless subtopology, and a heavy one."""
    scene = Scene()
    parts = (Subtopology("2", 2, weight=3.0),)
    scene.declare(topology(2, stateless=2, more=parts), num_standby_replicas=1, acceptable_recovery_lag=100)
    scene.join("a", capacity=2.0, instance_id=InstanceId("i"))
    scene.join("b")
    scene.settle()
    return scene


def test_a_member_that_is_away_is_not_present() -> None:
    scene = two()
    assert scene.view().present_member(A) is scene.member("a")
    scene.do(Leave(A, restart=True))
    view = scene.view()
    assert view.present_member(A) is None
    assert view.present_member(None) is None
    assert view.present_member(MemberId("never")) is None
    assert view.present_member(B) is not None


def test_load_is_the_weight_of_stateful_actives_by_capacity() -> None:
    scene = two()
    view = scene.view()
    for name, capacity in (("a", 2.0), ("b", 1.0)):
        weights = [3.0 if task[0] == "2" else 1.0 for task in scene.held(name, Role.ACTIVE) if task[0] != "1"]
        assert view.load(MemberId(name)) == sum(weights) / capacity
        assert view.load(MemberId(name)) == view.load(MemberId(name))


def test_a_task_that_left_the_topology_is_no_load() -> None:
    scene = two()
    scene.change(topology(2, stateless=2, epoch=2))
    view = scene.view()
    assert view.load(A) * 2.0 + view.load(B) <= 2.0


def test_holders_are_the_copies_beside_the_active() -> None:
    scene = two()
    task = scene.task("0_0")
    assert task.holders == {task.standbys[0]: Role.STANDBY}
    assert task.owner not in task.holders


def test_state_on_disk_is_what_nobody_gave_a_member_to_tail() -> None:
    """Reported with role none, not lost, not in the assignment, by a member that is here."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=10)
    scene.join("a")
    scene.obey()
    scene.join("c", {"0_0": copy("none", 700)})
    scene.join("b", {"0_0": copy("none", 900), "0_1": copy("none", None, lost=True)}, instance_id=InstanceId("i"))
    tailed = {(task, name) for name in "bc" for task in scene.member(name).assignment}
    view = scene.view()
    expected = [name for name in ("b", "c") if ("0_0", name) not in tailed]
    assert list(view.on_disk(TaskId("0_0"))) == expected
    assert list(view.on_disk(TaskId("0_1"))) == []
    scene.do(Leave(B, restart=True))
    assert B not in scene.view().on_disk(TaskId("0_0"))


def test_a_copy_is_read_through_the_members_last_report() -> None:
    scene = two()
    task = scene.task("0_0")
    standby = task.standbys[0]
    reports: dict[str, TaskReport] = {}
    for one, grant in scene.member(standby).assignment.items():
        reports[one] = running() if grant.role is Role.ACTIVE else copy(grant.role, 5_000)
    scene.beat(standby, reports)
    found = scene.view().copy(task, standby)
    assert (found.readiness, found.lag) == (Readiness.BEHIND, 5_000)


def test_a_stall_lasts_until_its_instant() -> None:
    scene = two()
    view = scene.view()
    task = scene.task("0_0").with_marks(stalls=(Stall(B, scene.now_ms + 1),))
    assert view.is_stalled(task, B)
    assert not view.is_stalled(task, A)
    assert not view.is_stalled(task.with_marks(stalls=(Stall(B, scene.now_ms),)), B)


@pytest.mark.parametrize(
    ("scope", "draining", "held"),
    [
        (PauseScope.BALANCE, False, Held.PAUSED),
        (PauseScope.BALANCE, True, None),
        (PauseScope.ALL, False, Held.PAUSED),
        (PauseScope.ALL, True, Held.PAUSED),
    ],
)
def test_a_pause_holds_what_its_scope_says(scope: PauseScope, draining: bool, held: Held | None) -> None:  # noqa: FBT001
    scene = two()
    assert scene.view().why_moves_are_held(for_balance=not draining) is None
    scene.do(PauseRequest(scope))
    hold = scene.view().why_moves_are_held(for_balance=not draining)
    assert (None if hold is None else hold.reason) == held


def test_a_storm_holds_balance_and_lets_drains_go_on() -> None:
    scene = Scene()
    scene.declare(topology(4), max_lost_share=0.3)
    for name in ("a", "b", "c"):
        scene.join(name)
    scene.settle()
    for _ in range(50):
        scene.tick(1_000)
        scene.obey("c")
    assert scene.group.storm_since_ms is not None
    assert scene.view().why_moves_are_held(for_balance=True) == Hold(Held.STORM, scene.group.storm_over_ms)
    assert scene.view().why_moves_are_held(for_balance=False) is None
