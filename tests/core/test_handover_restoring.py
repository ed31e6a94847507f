"""A task that is being restored on its owner and on a standby at once."""

from tests.core.scene import Scene, copy, restoring, topology

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import PinRequest


def test_an_owner_that_has_restored_by_its_next_heartbeat_keeps_the_task() -> None:
    """A takeover that gains less than a heartbeat is not made."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=0, heartbeat_interval_ms=3_000)
    scene.join("m1")
    scene.join("m2")
    owner = scene.task("0_0").owner
    assert owner is not None
    other = "m2" if owner == "m1" else "m1"
    for lag, standby_lag in ((9_000, 9_500), (6_000, 6_500), (2_900, 3_500)):
        scene.beat(owner, {"0_0": restoring(lag)})
        scene.beat(other, {"0_0": copy("standby", standby_lag)})
        scene.wait(3_000)
    scene.beat(other, {"0_0": copy("standby", 0)})
    assert (scene.task("0_0").owner, scene.task("0_0").handover.next_owner) == (owner, None)
    # It did not come closer after all.
    scene.beat(owner, {"0_0": restoring(2_900)})
    assert scene.task("0_0").handover.next_owner == other


def test_a_new_owner_whose_first_word_is_behind_keeps_what_was_just_handed_over() -> None:
    """The new owner was caught up when the handover was decided."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100, heartbeat_interval_ms=3_000)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle()
    old = scene.task("0_0").owner
    assert old is not None
    standby, other = sorted({"m1", "m2", "m3"} - {old}, key=lambda name: name not in scene.task("0_0").standbys)
    scene.do(PinRequest(TaskId("0_0"), MemberId(other)))
    scene.obey(old, standby, other)
    scene.beat(other, {"0_0": copy("warmup", 90)})
    assert scene.task("0_0").handover.next_owner == other
    scene.beat(old, {"0_0": copy("standby", 0)})
    scene.beat(other, {})
    assert scene.task("0_0").owner == other
    scene.beat(standby, {"0_0": copy("standby", 0)})
    scene.beat(other, {"0_0": restoring(120)})
    assert (scene.task("0_0").owner, scene.task("0_0").handover.next_owner) == (other, None)
    # That it comes no closer is another matter.
    scene.wait(3_000)
    scene.beat(standby, {"0_0": copy("standby", 0)})
    scene.beat(other, {"0_0": restoring(500)})
    assert scene.task("0_0").handover.next_owner == standby


def test_an_owner_that_ran_and_says_that_it_does_not_any_more_has_its_time_from_then_on() -> None:
    """It is as far as it was, as a worker that the cluster does not answer: perhaps it answers nobody."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, warmup_stall_timeout_ms=60_000, session_timeout_ms=45_000)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle()
    old = scene.task("0_0").owner
    assert old is not None
    new = next(name for name in ("m1", "m2", "m3") if name not in (old, *scene.task("0_0").standbys))
    scene.do(PinRequest(TaskId("0_0"), MemberId(new)))
    scene.settle()
    assert scene.task("0_0").owner == new
    others = [name for name in ("m1", "m2", "m3") if name != new]
    # As far as can be, for a moment.
    scene.beat(new, {"0_0": restoring(0)})
    for _ in range(10):
        scene.wait(10_000)
        scene.obey()
    scene.beat(new, {"0_0": restoring(0)})
    for _ in range(5):
        assert scene.task("0_0").owner == new
        assert scene.task("0_0").handover.next_owner is None
        scene.wait(10_000)
        scene.obey(*others)
        scene.beat(new, {"0_0": restoring(0)})
    scene.wait(9_999)
    assert scene.task("0_0").handover.next_owner is None
    scene.wait(1)
    assert scene.task("0_0").handover.next_owner in scene.task("0_0").standbys
