"""Coming back: an instance that restarts with its disk, without it, too late, and what happens meanwhile."""

from tests.core.scene import Scene, copy, restoring, running, topology

from batonpass.core.handover.lag import copy_as_reported
from batonpass.core.state.errors import Gone, InvalidRequest
from batonpass.core.state.ids import InstanceId, MemberId
from batonpass.core.state.inputs import DrainRequest, Eviction, Heartbeat, Leave, Started, Tick
from batonpass.core.state.model import ActiveState, Cause, Role
from batonpass.core.state.reasons import Held
from batonpass.core.state.records import MemberAway, MemberGone, TargetPlaced
from batonpass.placement.types import Readiness

M2 = MemberId("m2")
GRACE_MS = 300_000


def pods(count: int = 2, partitions: int = 4, **config: object) -> Scene:
    """Return a settled scene of members that are instances of the same name as themselves."""
    scene = Scene()
    scene.declare(topology(partitions), max_warmup_replicas=20, max_warmups_per_member=20, **config)
    for number in range(1, count + 1):
        scene.join(f"m{number}", instance_id=InstanceId(f"m{number}"))
    scene.settle(60)
    return scene


def disk(scene: Scene, name: str, lag: int = 0) -> dict[str, int]:
    """Return the lag of everything that a member has a copy of, as it will find it on its disk."""
    return dict.fromkeys(scene.member(name).assignment, lag)


def back(scene: Scene, name: str, state: dict[str, int], *, as_instance: str) -> None:
    """Let an instance return under a new member id with this state."""
    scene.join(name, {task: copy("none", lag) for task, lag in state.items()}, instance_id=InstanceId(as_instance))


def test_cold_tasks_wait_for_the_instance_to_return() -> None:
    scene = pods()
    mine = scene.held("m2", Role.ACTIVE)
    generation = scene.group.generation
    scene.do(Leave(M2, restart=True))
    assert scene.of(MemberAway) == [MemberAway(M2, scene.now_ms + GRACE_MS, scene.now_ms)]
    for _ in range(50):
        scene.wait(3_000)
        scene.obey("m1")
    assert {task: scene.task(task).owner for task in mine} == dict.fromkeys(mine, None)
    assert not set(mine) & set(scene.member("m1").assignment)
    assert scene.group.generation == generation
    assert Held.REJOIN_GRACE in {reason.code for reason in scene.tick().reasons}


def test_an_instance_that_returns_in_time_moves_nothing() -> None:
    scene = pods(3, 9)
    mine, state = scene.held("m2", Role.ACTIVE), disk(scene, "m2")
    others = {name: scene.member(name).assignment for name in ("m1", "m3")}
    generation = scene.group.generation
    scene.do(Leave(M2, restart=True))
    scene.wait(20_000)
    scene.obey("m1", "m3")
    back(scene, "m2b", state, as_instance="m2")
    assert scene.held("m2b", Role.ACTIVE) == mine
    assert {name: scene.member(name).assignment for name in ("m1", "m3")} == others
    scene.settle()
    assert scene.group.generation == generation
    assert not [record for record in scene.log if isinstance(record, TargetPlaced)][generation:]
    scene.refused(Heartbeat(M2, 99, 9), Gone)


def test_a_ready_standby_serves_meanwhile_and_the_task_returns() -> None:
    scene = pods(2, 2, num_standby_replicas=1)
    (task,) = scene.held("m2", Role.ACTIVE)
    state = disk(scene, "m2", 5)
    scene.do(Leave(M2, restart=True))
    assert scene.task(task).owner == "m1"
    assert scene.task(task).ready_grant
    scene.obey("m1")
    scene.wait(10_000)
    scene.obey("m1")
    assert scene.task(task).target.owner == "m2"
    back(scene, "m2b", state, as_instance="m2")
    # State on disk beside a running owner is a copy like any other: ready with its first heartbeat as such.
    assert scene.task(task).owner == "m1"
    assert scene.task(task).target.owner == "m2b"
    scene.obey("m2b")
    scene.obey("m1")
    assert scene.task(task).owner == "m2b"
    scene.settle()
    assert scene.owners()[task] == "m2b"
    assert not [record for record in scene.log if getattr(record, "state", None) is ActiveState.RESTORING]


def test_an_instance_without_its_disk_is_a_member_like_any_other() -> None:
    scene = pods(2, 2, num_standby_replicas=1)
    (task,) = scene.held("m2", Role.ACTIVE)
    scene.do(Leave(M2, restart=True))
    scene.obey("m1")
    epoch = scene.group.group_epoch
    back(scene, "m2b", {}, as_instance="m2")
    assert scene.group.group_epoch == epoch + 1
    assert scene.task(task).owner == "m1"
    scene.settle(60)
    assert sorted(map(str, scene.owners().values())) == ["m1", "m2b"]


def test_after_the_grace_the_tasks_go_elsewhere() -> None:
    scene = pods()
    mine, state = scene.held("m2", Role.ACTIVE), disk(scene, "m2")
    scene.do(Leave(M2, restart=True))
    for _ in range(99):
        scene.wait(3_000)
        scene.obey("m1")
    assert "m2" in scene.group.members
    scene.wait(3_000)
    assert scene.group.gone[M2].cause is Cause.GRACE_OVER
    assert all(scene.task(task).owner == "m1" for task in mine)
    back(scene, "m2b", state, as_instance="m2")
    scene.obey("m1")
    scene.settle(60)
    assert len(scene.held("m2b", Role.ACTIVE)) == 2


def test_an_instance_keeps_its_place_while_no_coordinator_was_there_to_come_back_to() -> None:
    """It may come back in the time for which members are not judged either (L5)."""
    scene = pods()
    mine, state = scene.held("m2", Role.ACTIVE), disk(scene, "m2")
    scene.do(Leave(M2, restart=True))
    scene.now_ms += GRACE_MS + 60_000
    scene.do(Started())
    scene.tick()
    scene.obey("m1")
    assert "m2" in scene.group.members
    back(scene, "m2b", state, as_instance="m2")
    scene.obey("m1")
    assert scene.held("m2b", Role.ACTIVE) == mine


def test_who_does_not_come_back_after_that_either_loses_its_place() -> None:
    scene = pods()
    scene.do(Leave(M2, restart=True))
    scene.now_ms += GRACE_MS + 60_000
    scene.do(Started())
    scene.wait(scene.group.longest_session_ms - 1)
    assert "m2" in scene.group.members
    scene.wait(1)
    assert scene.group.gone[M2].cause is Cause.GRACE_OVER


def test_state_that_comes_back_while_a_cold_restore_runs_takes_over_at_once() -> None:
    scene = pods()
    mine, state = scene.held("m2", Role.ACTIVE), disk(scene, "m2")
    scene.do(Leave(M2))
    scene.beat("m1", {task: running() for task in scene.held("m1", Role.ACTIVE)} | {t: restoring(90_000) for t in mine})
    assert all(scene.task(task).owner == "m1" for task in mine)
    back(scene, "m2b", state, as_instance="m2")
    scene.beat("m1", {task: running() for task in scene.held("m1", Role.ACTIVE)})
    scene.settle(60)
    assert scene.held("m2b", Role.ACTIVE) == mine


def test_a_restart_needs_an_instance_id() -> None:
    """A member without an instance id cannot come back as itself."""
    scene = Scene()
    scene.declare()
    scene.join("m1")
    group = scene.group
    refused = scene.refused(Leave(MemberId("m1"), restart=True), InvalidRequest)
    assert [path for path, _ in refused.errors] == ["mode"]
    assert scene.group is group


def test_without_a_grace_a_restart_is_a_leave() -> None:
    scene = pods(rejoin_grace_ms=0)
    scene.do(Leave(M2, restart=True))
    assert "m2" not in scene.group.members
    assert set(scene.owners().values()) == {"m1"}


def test_a_member_that_drains_and_restarts_has_left() -> None:
    scene = pods()
    scene.do(DrainRequest(M2))
    scene.do(Leave(M2, restart=True))
    assert "m2" not in scene.group.members


def test_a_place_that_is_kept_can_be_given_up_by_an_operator() -> None:
    """An instance that restarts runs nothing that could be waited for."""
    scene = pods()
    scene.do(Leave(M2, restart=True))
    scene.do(Eviction(M2))
    assert scene.of(MemberGone) == [MemberGone(M2, Cause.EVICTED, scene.now_ms, scene.now_ms, scene.now_ms)]
    assert set(scene.owners().values()) == {"m1"}


def test_a_member_away_is_not_expired_and_holds_nothing() -> None:
    scene = pods(1)
    scene.do(Leave(MemberId("m1"), restart=True))
    scene.wait(200_000)
    assert scene.member("m1").away_until_ms is not None
    assert not scene.member("m1").assignment
    assert set(scene.owners().values()) == {None}
    scene.refused(Leave(MemberId("m1")), Gone)


def test_a_rolling_restart_with_disks_moves_nothing_for_good() -> None:
    scene = pods(5, 20, num_standby_replicas=1)
    before = {name: scene.held(name, Role.ACTIVE) for name in sorted(scene.group.members)}
    for name in before:
        state = disk(scene, name)
        scene.do(Leave(MemberId(name), restart=True))
        scene.settle(60)
        back(scene, name + "b", state, as_instance=name)
        scene.settle(60)
    assert {name: scene.held(name + "b", Role.ACTIVE) for name in before} == before


def test_the_state_of_a_returning_instance_counts_as_what_it_is() -> None:
    scene = pods()
    mine, state = scene.held("m2", Role.ACTIVE), disk(scene, "m2", 50_000)
    scene.do(Leave(M2, restart=True))
    back(scene, "m2b", state, as_instance="m2")
    assert scene.held("m2b", Role.ACTIVE) == mine
    scene.beat("m2b", {task: restoring(50_000) for task in mine})
    found = copy_as_reported(scene.group, scene.soft.members[MemberId("m2b")], scene.task(mine[0]), scene.member("m2b"))
    assert found.readiness is Readiness.BEHIND
    scene.do(Tick())
    assert scene.held("m2b", Role.ACTIVE) == mine
