"""What stands in the way of a group without being an error is said in a sentence that names what to change."""

from tests.core.scene import Scene, copy, running, topology
from tests.core.scenes import guarded, pair

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Leave, PollBroken
from batonpass.core.state.model import OnLeaseLost, Role, Subtopology
from batonpass.core.state.policy import LAG_UNBOUNDED
from batonpass.explain.advice import advice_on


def advice(scene: Scene) -> tuple[str, ...]:
    """Return the warnings about a group now."""
    return advice_on(scene.view(), scene.policy)


def test_a_sound_group_is_given_no_advice() -> None:
    assert advice(guarded()) == ()
    empty = Scene()
    empty.declare(topology(2), num_standby_replicas=3)
    assert advice(empty) == ()


def test_settings_that_switch_a_guard_off_are_named() -> None:
    scene = Scene()
    scene.declare(
        topology(1),
        acceptable_recovery_lag=LAG_UNBOUNDED,
        max_lost_share=1.0,
        session_timeout_ms=4_500,
        heartbeat_interval_ms=1_000,
    )
    found = advice(scene)
    assert [text.partition(" ")[0] for text in found] == [
        "session_timeout_ms",
        "acceptable_recovery_lag",
        "max_lost_share",
    ]


def test_more_standbys_than_members_are_named() -> None:
    """A draining member takes no copies, so that it does not count."""
    scene = guarded()
    scene.do(DrainRequest(MemberId("b")))
    assert advice(scene) == (
        "num_standby_replicas is 1, and members that can take copies are 1: a task has 0 standbys at most until more join",
    )


def test_fewer_racks_than_copies_are_named() -> None:
    """With a zone its spare copies are gone as well, and once they are rebuilt, the group is at rest as before."""
    scene = Scene()
    scene.declare(topology(2), num_standby_replicas=1, rack_aware_tags=["zone"])
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        scene.join(name, client_tags={"zone": zone})
    assert advice(scene) == ()
    scene.do(Leave(MemberId("b1")))
    (text,) = advice(scene)
    assert text.startswith(
        "rack_aware_tags names zone, of which members that can take copies have 1 (a): some of the 2"
    )


def test_members_without_a_rack_or_a_topology_are_named() -> None:
    scene = Scene()
    scene.declare(topology(1, epoch=3), rack_aware_tags=["zone"])
    for number in range(7):
        scene.join(f"m{number}", client_tags={} if number else {"zone": "a"}, topology_epoch=2 if number == 1 else 3)
    racks, epochs = advice(scene)
    assert racks.startswith("rack_aware_tags names zone")
    assert racks.endswith("m1, m2, m3, m4, m5 and 1 more")
    assert epochs == "tasks that are new in topology epoch 3 do not go to members that know an older one: m1"


def test_a_rack_tag_that_every_member_has_needs_no_advice() -> None:
    scene = Scene()
    scene.declare(topology(1), rack_aware_tags=["zone", "rack"])
    scene.join("a", client_tags={"zone": "x", "rack": "1"})
    scene.join("b", client_tags={"zone": "y"})
    (text,) = advice(scene)
    assert text == "rack_aware_tags names rack, which counts as one more rack for those without it: b"


def test_copies_of_tasks_that_are_no_more_are_not_counted() -> None:
    """A dropped task is unsettled until its owner gives it up, but its copies are taken back at once."""
    scene = Scene()
    scene.declare(topology(1, more=(Subtopology("9", 1),)), num_standby_replicas=1)
    scene.join("a")
    scene.join("b")
    scene.settle()
    (holder,) = scene.task("9_0").standbys
    reports = {task: running() for task in scene.held(holder, Role.ACTIVE)}
    reports |= {task: copy("standby") for task in scene.held(holder, Role.STANDBY)}
    scene.beat(holder, reports | {"9_0": copy("standby", None)})
    scene.change(topology(1, epoch=2), rebalance_batch_ms=60_000)
    assert TaskId("9_0") in scene.group.unsettled
    assert advice(scene) == ()


def test_copies_that_nobody_can_read_are_counted() -> None:
    """A warmup whose lag is not known is never promoted."""
    scene = pair(2)
    (task,) = scene.member("b").assignment
    assert advice(scene) == ()
    scene.beat("b", {task: copy("warmup", None)})
    (text,) = advice(scene)
    assert text.endswith("there are 1")
    scene.beat("b", {task: copy("warmup", 9_000)})
    assert advice(scene) == ()


def test_the_copies_of_a_member_that_may_be_dead_are_not_blamed_on_its_reports() -> None:
    """Nothing is known of them any more, but they were reported with a lag."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=100)
    scene.join("a")
    scene.obey()
    scene.join("b", on_lease_lost=OnLeaseLost.CONTINUE)
    (task,) = scene.member("b").assignment
    scene.beat("b", {task: copy("warmup", 9_000)})
    scene.do(PollBroken(MemberId("b")))
    scene.tick(scene.group.config.suspect_timeout_ms)
    assert scene.member("b").suspected
    assert advice(scene) == ()
