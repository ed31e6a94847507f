"""A next owner that drains: while its task waits for a lease, somebody who stays may become the better choice."""

import pytest
from tests.core.scene import Scene, failed, topology

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Eviction, Started
from batonpass.core.state.model import Role
from batonpass.core.state.records import AssignmentChanged
from batonpass.core.state.soft import Soft

LEASE_MS = 45_000
STATEFUL, STATELESS = "0_0", "1_0"


def waiting(task: str = STATEFUL, *, deadline_ms: int | None = None) -> Scene:
    """Return a scene in which the only task waits for the lease of a, and then goes to b, which drains."""
    scene = Scene()
    shape = topology(1) if task == STATEFUL else topology(0, stateless=1)
    scene.declare(shape, acceptable_recovery_lag=100, num_standby_replicas=int(task == STATEFUL))
    scene.join("a")
    scene.join("b")
    scene.settle()
    assert scene.owners() == {task: "a"}
    scene.do(DrainRequest(MemberId("b"), deadline_ms=deadline_ms))
    scene.obey()
    scene.do(Eviction(MemberId("a")))
    assert scene.task(task).handover.next_owner == "b"
    return scene


def play(scene: Scene, ms: int, *, lag_of_c: int = 0) -> None:
    """Let members beat while time passes."""
    end_ms = scene.now_ms + ms
    while scene.now_ms < end_ms:
        scene.wait(1_000)
        for name in sorted(scene.group.members):
            scene.obey(name, lag=lag_of_c if name == "c" else 0)


def had(scene: Scene, task: str) -> list[str]:
    """Return the members to which a task was granted, in order."""
    told = [record for record in scene.log if isinstance(record, AssignmentChanged)]
    return [
        record.member_id
        for record in told
        if TaskId(task) in record.granted and record.granted[TaskId(task)].role is Role.ACTIVE
    ]


@pytest.mark.parametrize("join_after_ms", [0, 10_000, 30_000])
@pytest.mark.parametrize("deadline_ms", [None, 20_000])
@pytest.mark.parametrize("task", [STATEFUL, STATELESS])
def test_it_gives_way_to_who_stays_and_is_ready(task: str, deadline_ms: int | None, join_after_ms: int) -> None:
    scene = waiting(task, deadline_ms=deadline_ms)
    play(scene, join_after_ms)
    scene.join("c")
    play(scene, LEASE_MS + 5_000 - join_after_ms)
    assert (scene.owners()[task], scene.task(task).target.owner, had(scene, task)) == ("c", "c", ["a", "c"])


@pytest.mark.parametrize("join_after_ms", [0, 30_000])
def test_past_its_deadline_it_is_not_granted_what_it_would_have_to_give_up_at_once(join_after_ms: int) -> None:
    scene = waiting(deadline_ms=20_000)
    play(scene, join_after_ms)
    scene.join("c")
    play(scene, LEASE_MS + 5_000 - join_after_ms, lag_of_c=5_000)
    assert had(scene, STATEFUL) == ["a", "c"]


def test_before_that_it_runs_the_task_until_a_copy_elsewhere_is_ready() -> None:
    scene = waiting()
    scene.join("c")
    play(scene, LEASE_MS + 5_000, lag_of_c=5_000)
    assert (scene.owners()[STATEFUL], scene.task(STATEFUL).target.owner) == ("b", "c")
    play(scene, 10_000)
    assert had(scene, STATEFUL) == ["a", "b", "c"]


@pytest.mark.parametrize("others", ["", "c"])
def test_nobody_who_drains_is_better(others: str) -> None:
    scene = waiting(deadline_ms=20_000)
    for name in others:
        scene.join(name)
        scene.do(DrainRequest(MemberId(name)))
    play(scene, LEASE_MS + 5_000)
    assert had(scene, STATEFUL) == ["a", "b"]


def test_a_coordinator_that_starts_meanwhile_does_the_same() -> None:
    scene = waiting(deadline_ms=20_000)
    scene.join("c")
    play(scene, 5_000)
    scene.soft = Soft()
    scene.do(Started())
    play(scene, LEASE_MS + 50_000)
    assert had(scene, STATEFUL) == ["a", "c"]


def test_a_target_that_was_bound_to_a_member_that_drains_is_looked_at_again_before_the_group_rests() -> None:
    """The task failed, and the only ready copy is on a member that drains: that takes over, and hands it on."""
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100, num_standby_replicas=1)
    scene.join("a")
    scene.join("b")
    scene.settle()
    scene.do(DrainRequest(MemberId("b")))
    scene.join("c")
    scene.beat("a", {STATEFUL: failed()})
    play(scene, 20_000, lag_of_c=5_000)
    assert scene.owners() == {STATEFUL: "b"}
    play(scene, 20_000)
    assert had(scene, STATEFUL) == ["a", "b", "c"]
