"""What gets nowhere: poison tasks, slow revocations, stalled warmups, and when the group looks again."""

from tests.core.scene import Scene, copy, failed, restoring, running, topology
from tests.core.scenes import reasons, running_scene

from batonpass.core.state.errors import Fenced, UnknownMember
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    Eviction,
    Heartbeat,
    Leave,
    PinRequest,
    ReleaseRequest,
    Started,
    StoreRecovered,
    Tick,
)
from batonpass.core.state.model import Cause, Role
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import Held
from batonpass.core.state.records import MemberGone, TaskParked, WarmupStalled
from batonpass.core.state.soft import Soft
from batonpass.explain.task import explain_task

M1, M2 = MemberId("m1"), MemberId("m2")
SESSION_MS = 45_000


def test_a_task_that_fails_on_three_members_is_parked() -> None:
    """Three failures within ten minutes count."""
    scene = running_scene(4, 1, max_warmup_replicas=5)
    for count in range(1, 4):
        owner = scene.task("0_0").owner
        assert owner is not None
        scene.beat(owner, {"0_0": failed("poison pill")})
        assert scene.task("0_0").marks.parked is (count == 3)
        if count < 3:
            scene.do(Eviction(MemberId(owner), dead=True))
            for name in sorted(scene.group.members):
                scene.obey(name)
    assert [record.members for record in scene.of(TaskParked)] == [("m1", "m2", "m3")]
    scene.beat("m3", {})
    assert scene.owners() == {"0_0": None}
    scene.tick(1_000)
    assert Held.PARKED in reasons(scene)
    scene.do(ReleaseRequest(TaskId("0_0")))
    assert scene.task("0_0").marks.failures == ()
    assert scene.task("0_0").owner is not None


def test_a_task_that_is_parked_and_fails_once_more_is_parked_once() -> None:
    scene = running_scene(4, 8, max_warmup_replicas=5)
    owner = MemberId("m1")
    for count in range(1, 4):
        owner = scene.member(scene.task("0_0").owner or "nobody").id
        scene.beat(owner, {"0_0": failed("poison pill")})
        if count < 3:
            scene.do(Eviction(owner, dead=True))
            for name in sorted(scene.group.members):
                scene.obey(name)
    assert scene.task("0_0").marks.parked
    # It has not given the task up yet, and says in one word that this failed, and another one.
    also = next(task for task, grant in scene.member(owner).assignment.items() if grant.role is Role.ACTIVE)
    scene.beat(owner, {"0_0": failed("poison pill"), also: failed("another one")})
    assert (scene.task("0_0").marks.parked, scene.of(TaskParked)) == (True, [])


def test_a_task_that_takes_its_members_down_is_parked() -> None:
    scene = running_scene(4, 1)
    for expected in ("m1", "m2", "m3"):
        assert scene.task("0_0").owner == expected
        scene.obey()
        others = [name for name in sorted(scene.group.members) if name != expected]
        for _ in range(15):
            scene.wait(3_000)
            scene.obey(*others)
        scene.obey()
    assert scene.task("0_0").marks.parked
    assert scene.task("0_0").owner is None


def test_failures_long_ago_or_of_one_member_park_nothing() -> None:
    """Ten minutes forgive a failure; those of three members are five minutes apart here."""
    scene = running_scene(1, 1)
    for _ in range(5):
        scene.beat("m1", {"0_0": failed()})
        scene.beat("m1", {"0_0": running()})
    assert len(scene.task("0_0").marks.failures) == 1
    assert not scene.task("0_0").marks.parked
    scene = running_scene(4, 1)
    for name in ("m1", "m2", "m3"):
        assert scene.task("0_0").owner == name
        scene.beat(name, {"0_0": failed()})
        scene.do(Eviction(MemberId(name), dead=True))
        for _ in range(100):
            scene.now_ms += 3_000
            scene.obey()
            scene.tick()
    assert not scene.task("0_0").marks.parked


def test_going_in_good_order_is_no_failure() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("m1", instance_id=InstanceId("i"))
    scene.join("z")
    for number in range(2, 7):
        scene.settle()
        owner = scene.task("0_0").owner
        assert owner is not None
        scene.join(f"m{number}", instance_id=InstanceId("i"), takeover=True)
    scene.settle()
    scene.do(Leave(MemberId("m6")))
    scene.do(Eviction(MemberId("z"), dead=True))
    assert scene.task("0_0").marks.failures == ()


def half_revoked() -> Scene:
    """Return a scene in which m1 was told to give up a task, which m2 is to have, and has not confirmed it."""
    scene = Scene()
    scene.declare(rebalance_timeout_ms=20_000)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    scene.obey("m2")
    assert scene.member("m1").revoking
    return scene


def test_a_revocation_not_confirmed_in_time_fences_the_member() -> None:
    """Protocol 4.7."""
    scene = half_revoked()
    (task,) = scene.member("m1").revoking
    told_ms = scene.now_ms
    report = {name: running() for name in ("0_0", "0_1")}
    for _ in range(6):
        scene.wait(3_000)
        scene.beat("m1", report, epoch=2)
        scene.obey("m2")
    assert "m1" in scene.group.members
    heard_ms = scene.soft.members[M1].heard_ms
    scene.wait(told_ms + 20_000 - scene.now_ms)
    assert scene.group.gone[M1].cause is Cause.FENCED
    scene.refused(Heartbeat(M1, 999, 3), Fenced)
    # To fence is to refuse: what it may still be running is free at the end of its lease, and not before.
    scene.obey("m2")
    scene.wait(heard_ms + SESSION_MS - 1 - scene.now_ms)
    assert scene.task(task).owner is None
    scene.obey("m2")
    scene.wait(1)
    assert set(scene.owners().values()) == {"m2"}


def test_a_slow_confirmation_in_time_fences_nobody() -> None:
    scene = half_revoked()
    scene.wait(19_999)
    scene.obey("m1")
    assert not scene.member("m1").revoking
    scene.wait(5_000)
    assert "m1" in scene.group.members


def test_nobody_is_fenced_while_nobody_is_judged() -> None:
    """The confirmation may have been missed while the coordinator was away."""
    scene = half_revoked()
    scene.soft = Soft()
    scene.now_ms += 100_000
    scene.do(Started())
    scene.wait(SESSION_MS - 1)
    assert "m1" in scene.group.members


def warming_up() -> tuple[Scene, str]:
    """Return a group in which one task warms up on m2, and that task; a copy without progress stalls after a minute."""
    scene = Scene()
    scene.declare(topology(2), warmup_stall_timeout_ms=60_000)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    (task,) = scene.held("m2", Role.WARMUP)
    return scene, task


def only_this_may_move(scene: Scene, task: str) -> None:
    """Pin the other task to where it is, so that it does not move in this one's place."""
    (other,) = {"0_0", "0_1"} - {task}
    scene.do(PinRequest(TaskId(other), M1))


def test_a_warmup_without_progress_is_stalled() -> None:
    scene, task = warming_up()
    for _ in range(21):
        scene.wait(3_000)
        scene.obey("m1")
        scene.beat("m2", {task: copy("warmup", 50_000)})
    stalls = [record for record in scene.log if isinstance(record, WarmupStalled)]
    assert [(record.task, record.member_id) for record in stalls] == [(task, "m2")]
    assert task not in scene.held("m2", Role.WARMUP)
    for _ in range(30):
        scene.wait(3_000)
        scene.obey("m1")
        scene.beat("m2", {one: copy("warmup", 50_000) for one in scene.held("m2", Role.WARMUP)})
        assert task not in scene.held("m2", Role.WARMUP)


def test_a_warmup_that_reads_keeps_its_slot_although_its_lag_does_not_fall() -> None:
    """The changelog is written as fast as it is read, and nobody else waits (``test_turns``)."""
    scene, task = warming_up()
    only_this_may_move(scene, task)
    for read in range(30):
        scene.wait(3_000)
        scene.obey("m1")
        scene.beat("m2", {task: copy("warmup", 50_000, positions=(("log", 1_000 * read),))})
    assert not [record for record in scene.log if isinstance(record, WarmupStalled)]
    assert scene.held("m2", Role.WARMUP) == [task]
    explanation = explain_task(scene.view(), TaskId(task))
    assert [wait.detail for wait in explanation.waits] == ["50000 records behind, and comes no closer"]


def test_a_warmup_that_comes_closer_is_never_stalled() -> None:
    scene, task = warming_up()
    for step in range(60):
        scene.wait(3_000)
        scene.obey("m1")
        scene.beat("m2", {task: copy("warmup", 50_000 - step // 10)})
    assert scene.held("m2", Role.WARMUP) == [task]


def test_an_unreadable_warmup_is_not_judged() -> None:
    """A copy of unknown lag may be as good as done, and nobody else waits (``test_turns``)."""
    scene, task = warming_up()
    only_this_may_move(scene, task)
    for _ in range(60):
        scene.wait(3_000)
        scene.obey("m1")
        scene.beat("m2", {task: copy("warmup", None)})
    assert scene.held("m2", Role.WARMUP) == [task]


def test_looking_too_often_changes_nothing() -> None:
    scene = running_scene(num_standby_replicas=1)
    scene.obey()
    group = scene.group
    for _ in range(20):
        scene.tick(50)
    assert scene.group is group


def test_the_next_look_is_no_later_than_what_is_due() -> None:
    scene = running_scene()
    scene.wait(1)
    assert scene.last is not None
    first = min(one.heard_ms for _, one in scene.soft.members.items()) + SESSION_MS
    assert scene.last.wake_at_ms is not None
    assert scene.now_ms < scene.last.wake_at_ms <= first
    empty = Scene()
    empty.declare()
    assert empty.tick().wake_at_ms is None


def test_deadlines_of_a_drain_wake_the_group() -> None:
    scene = running_scene(drain_timeout_ms=30_000)
    scene.do(DrainRequest(M2, 9_000))
    scene.obey()
    scene.do(Tick())
    assert scene.last is not None
    assert scene.last.wake_at_ms is not None
    assert scene.last.wake_at_ms <= scene.now_ms + 9_000
    scene.wait(9_000)
    scene.do(Tick())
    assert scene.last.wake_at_ms is not None


def test_a_hold_on_grants_is_looked_at_when_it_ends() -> None:
    scene = running_scene(1)
    scene.do(StoreRecovered())
    scene.do(Tick())
    assert scene.last is not None
    assert scene.last.wake_at_ms == scene.group.grants_from_ms


def test_expiry_in_a_group_of_one_leaves_an_empty_group() -> None:
    scene = running_scene(1)
    scene.wait(SESSION_MS)
    assert set(scene.owners().values()) == {None}
    assert [record.cause for record in scene.log if isinstance(record, MemberGone)] == [Cause.EXPIRED]
    scene.refused(Heartbeat(M2, 1, 1), UnknownMember)
    assert scene.join("m2").created


def test_a_member_unheard_since_the_start_is_judged_with_the_others() -> None:
    scene = running_scene()
    scene.soft = Soft()
    scene.do(Started())
    for _ in range(14):
        scene.wait(3_000)
        scene.obey("m1")
    assert "m2" in scene.group.members
    assert set(scene.owners().values()) == {"m1", "m2"}
    scene.wait(3_000)
    assert "m2" not in scene.group.members


def test_policy_sets_when_a_silence_is_our_own() -> None:
    for late_ms, gone in ((5_000, True), (5_001, False)):
        scene = Scene(policy=Policy(coordinator_lease_ms=5_000))
        scene.declare(topology(1))
        scene.join("m1")
        scene.beat("m1", {"0_0": restoring(3)})
        scene.wait(10)
        assert scene.soft.wake_ms is not None
        scene.now_ms = scene.soft.wake_ms + late_ms
        scene.do(Tick())
        assert ("m1" not in scene.group.members) is gone, late_ms
