"""What a drain's deadline leaves, and limits on what grows by itself."""

from tests.core.described import describe_group
from tests.core.scene import Scene, copy, failed, restoring, running, topology

from batonpass.core.state.errors import TooLarge
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Leave, PartitionCounts, PauseRequest
from batonpass.core.state.model import PauseScope, Role, Subtopology, Topology
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import Held
from batonpass.core.state.replies import Answer, DrainProgress

M1, M2 = MemberId("m1"), MemberId("m2")


def draining_pair() -> Scene:
    """Return m1 with a task and m2 with its ready standby, both of them on their way out."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1)
    scene.join("m1")
    scene.join("m2")
    scene.settle()
    owner = scene.task("0_0").owner
    other = M2 if owner == M1 else M1
    assert owner is not None
    scene.do(DrainRequest(other))
    scene.do(DrainRequest(owner, deadline_ms=5_000))
    return scene


def test_a_deadline_prefers_a_cold_member_that_stays_to_a_ready_one_that_goes_too() -> None:
    scene = draining_pair()
    scene.join("m3")
    scene.tick(5_000)
    for name in ("m1", "m2", "m3"):
        scene.obey(name, lag=99_999 if name == "m3" else 0)
    scene.tick(1)
    scene.obey("m1", "m2")
    assert scene.task("0_0").owner == "m3" or scene.task("0_0").handover.next_owner == "m3"


def test_a_deadline_leaves_the_task_where_everybody_goes() -> None:
    scene = draining_pair()
    owner = scene.task("0_0").owner
    scene.tick(6_000)
    scene.obey()
    assert scene.task("0_0").owner == owner


def test_partitions_beyond_the_limit_are_not_taken() -> None:
    scene = Scene(policy=Policy(max_tasks=3))
    scene.declare(Topology(1, (Subtopology("0", 2, source_topics=("in",)),)))
    scene.do(PartitionCounts({"in": 3}))
    assert len(scene.group.table.ids) == 3
    before = scene.group
    scene.refused(PartitionCounts({"in": 4}), TooLarge)
    assert scene.group is before


def test_of_each_member_one_failure_of_a_task_is_remembered() -> None:
    """What is remembered of a task that fails again and again must not grow."""
    scene = Scene()
    scene.declare(topology(1))
    scene.join("m1")
    scene.settle()
    for _ in range(3):
        scene.beat("m1", {"0_0": failed()})
        scene.obey("m1")
    assert len(scene.task("0_0").marks.failures) == 1
    assert scene.held("m1", Role.ACTIVE) == ["0_0"]


def test_a_placement_set_before_the_clock_went_back_is_not_waited_for() -> None:
    """A due time beyond every delay was set by a clock that was ahead."""
    scene = Scene()
    scene.declare(topology(1), rebalance_batch_ms=1_000)
    scene.now_ms += 3_600_000
    scene.join("m1")
    scene.now_ms -= 3_600_000
    scene.tick()
    assert scene.group.placement_due_ms is None


def test_a_drain_with_nowhere_to_go_says_so_of_every_task() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1")
    scene.settle()
    progress = scene.ok(DrainRequest(M1), DrainProgress)
    assert progress.blocked == ((TaskId("0_0"), "no-eligible-member"), (TaskId("0_1"), "no-eligible-member"))
    answer = scene.beat("m1")
    assert isinstance(answer, Answer)
    assert "nowhere to go" in dict(answer.status)["drain-blocked"]


def test_a_restart_in_mid_move_waits_for_the_instance_and_not_for_a_cold_copy() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1", instance_id=InstanceId("i1"))
    scene.settle()
    scene.join("m2")
    moving = next(iter(scene.member("m2").assignment))
    scene.beat("m2", {moving: copy("warmup", 500_000)})
    scene.do(Leave(M1, restart=True))
    scene.obey("m2", lag=500_000)
    assert scene.owners() == {"0_0": None, "0_1": None}
    assert describe_group(scene.view()).held_back[0].reason is Held.REJOIN_GRACE
    scene.join("m3", {"0_0": copy("none", 0), "0_1": copy("none", 0)}, instance_id=InstanceId("i1"))
    assert set(scene.owners().values()) == {"m3"}


def test_a_parked_task_is_held_back_with_or_without_state() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=1), poison_members=1)
    scene.join("m1")
    scene.settle()
    scene.beat("m1", {"1_0": failed()})
    found = describe_group(scene.view())
    assert [(entry.task, entry.reason) for entry in found.held_back] == [("1_0", Held.PARKED)]


def test_a_deadline_ends_what_does_not_run_too() -> None:
    scene = Scene()
    scene.declare(topology(1, stateless=1))
    scene.join("m1")
    scene.beat("m1", {"0_0": restoring(9_000), "1_0": running()})
    scene.do(PauseRequest(PauseScope.ALL))
    scene.join("m2")
    scene.do(DrainRequest(M1, deadline_ms=5_000))
    scene.wait(4_000)
    assert scene.owners() == {"0_0": "m1", "1_0": "m1"}
    scene.wait(1_000)
    scene.beat("m1", {})
    assert scene.owners() == {"0_0": "m2", "1_0": "m2"}


def test_whoever_has_to_go_takes_nothing_back_from_a_member_that_stays() -> None:
    """Past its deadline m1 would have to give the task up again at once."""
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100, num_standby_replicas=1)
    scene.join("m1")
    scene.beat("m1", {"0_0": restoring(9_000)})
    scene.join("m2")
    scene.do(DrainRequest(M1, deadline_ms=5_000))
    scene.beat("m2", {"0_0": copy("standby", 50_000)})
    scene.wait(5_000)
    scene.obey("m1")
    assert scene.owners() == {"0_0": "m2"}
    assert scene.held("m1", Role.STANDBY) == ["0_0"]
    for lag in (9_000, 0, 0):
        scene.wait(4_000)
        scene.beat("m1", {"0_0": copy("standby", lag)})
        scene.beat("m2", {"0_0": restoring(40_000 + lag)})
    assert (scene.task("0_0").owner, scene.task("0_0").handover.next_owner) == ("m2", None)
