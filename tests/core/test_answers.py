"""What members are answered: long-polls, full reports, and the status codes."""

from tests.core.scene import Scene, copy, running, topology

from batonpass.core.arrivals.answers import answer_to_poll
from batonpass.core.state.errors import Fenced, FencedInstanceId, Gone, UnknownGroup, UnknownMember
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import EndOffsets, Eviction, Heartbeat, Join, Leave, PauseRequest
from batonpass.core.state.model import PauseScope, Subtopology, Topology
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import Soft, TaskReport

M1, M2 = MemberId("m1"), MemberId("m2")


def settled(**config: object) -> Scene:
    """Return a settled scene of one member."""
    scene = Scene()
    scene.declare(topology(2), **config)
    scene.join("m1", instance_id=InstanceId("i1"))
    scene.settle()
    return scene


def poll(scene: Scene, after: int, member: str = "m1") -> object:
    """Return what a long-poll of a member is answered as things stand."""
    return answer_to_poll(scene.group, scene.soft, MemberId(member), after)


def test_a_poll_waits_while_the_assignment_is_the_one_that_is_known() -> None:
    scene = settled()
    assert poll(scene, scene.member("m1").epoch) is None


def test_a_poll_is_answered_when_the_assignment_changes() -> None:
    scene = settled()
    epoch = scene.member("m1").epoch
    scene.join("m2")
    scene.obey("m2")
    reply = poll(scene, epoch)
    assert isinstance(reply, Answer)
    assert (reply.member_epoch, reply.assignment) == (epoch + 1, scene.member("m1").assignment)


def test_a_poll_after_an_epoch_above_ours_is_answered_at_once() -> None:
    """The member has to hear that something is wrong."""
    scene = settled()
    reply = poll(scene, scene.member("m1").epoch + 5)
    assert isinstance(reply, Answer)
    assert reply.member_epoch == scene.member("m1").epoch


def test_a_poll_of_somebody_who_is_no_member_is_refused() -> None:
    scene = settled()
    assert isinstance(poll(scene, 2, "m9"), UnknownMember)
    scene.do(Join(M2, instance_id=InstanceId("i1"), takeover=True))
    assert isinstance(poll(scene, 2), FencedInstanceId)
    scene.do(Leave(M2, restart=True))
    assert isinstance(poll(scene, 2, "m2"), Gone)
    scene.join("m3")
    scene.do(Eviction(MemberId("m3")))
    assert isinstance(poll(scene, 2, "m3"), Fenced)
    assert isinstance(poll(Scene(), 2), UnknownGroup)


def test_an_answer_is_in_the_order_of_tasks() -> None:
    scene = Scene()
    scene.declare(topology(12, more=(Subtopology("10", 1), Subtopology("2", 1))))
    reply = scene.join("m1")
    assert reply.assignment is not None
    assert list(reply.assignment) == [*(f"0_{n}" for n in range(12)), "2_0", "10_0"]


def test_the_answer_tells_the_settings_of_now() -> None:
    scene = settled()
    scene.change(
        heartbeat_interval_ms=1_000,
        session_timeout_ms=9_000,
        acceptable_recovery_lag=7,
        acceptable_catchup_ms=500,
    )
    reply = scene.ok(Heartbeat(M1, 90, scene.member("m1").epoch), Answer)
    assert (reply.heartbeat_interval_ms, reply.session_timeout_ms) == (1_000, 9_000)
    assert (reply.acceptable_recovery_lag, reply.acceptable_catchup_ms) == (7, 500)
    assert reply.generation == scene.group.generation


def test_a_full_report_is_asked_for_until_there_is_one() -> None:
    scene = settled()
    scene.soft = Soft()
    assert poll(scene, 0).report == "full"  # type: ignore[attr-defined]
    assert scene.beat("m1").report == "full"  # type: ignore[union-attr]
    assert scene.beat("m1", {"0_0": running(), "0_1": running()}).report is None  # type: ignore[union-attr]
    assert scene.beat("m1").report is None  # type: ignore[union-attr]


def test_a_pause_without_a_reason_says_its_scope() -> None:
    scene = settled()
    scene.do(PauseRequest(PauseScope.ALL))
    assert scene.beat("m1").status == (("group-paused", "moves are held (all)"),)  # type: ignore[union-attr]


def test_state_of_another_incarnation_is_said_to_its_member() -> None:
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", 1, changelog_topics=("log",)),)), num_standby_replicas=1)
    scene.join("m1")
    scene.tick()
    scene.obey()
    scene.join("m2")
    scene.beat("m2", {"0_0": TaskReport("standby", positions=(("log", 900),))})
    scene.now_ms += 1
    scene.do(EndOffsets({("log", 0): 100}, scene.now_ms))
    reply = scene.ok(Heartbeat(M2, 90, scene.member("m2").epoch), Answer)
    assert [code for code, _ in reply.status] == ["state-unknown"]
    assert "0_0" in reply.status[0][1]
    rebuilt = {TaskId("0_0"): TaskReport("standby", positions=(("log", 90),))}
    assert scene.ok(Heartbeat(M2, 91, scene.member("m2").epoch, rebuilt), Answer).status == ()


def test_a_copy_on_disk_is_no_part_of_the_assignment() -> None:
    scene = settled()
    reply = scene.join("m2", {"0_0": copy("none", 50_000)}, max_tasks=0)
    assert reply.assignment == {}
