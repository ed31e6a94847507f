"""State of a changelog that was deleted and made again is never promoted until it is thrown away (protocol 5.6)."""

from dataclasses import replace

import pytest
from tests.core.scene import Scene, copy, restoring, running

from batonpass.core.arrivals.doubts import is_to_be_doubted
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import EndOffsets, Eviction, Leave, Started
from batonpass.core.state.model import Cause, GoneMember, Role, Subtopology, Topology
from batonpass.core.state.pmap import PMap
from batonpass.core.state.reasons import Held
from batonpass.core.state.records import StateDoubted, StateTrusted
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import EndOffset, MeasuredReport, Soft, TaskReport
from batonpass.placement.types import Readiness

T0, M1, M2, POD = TaskId("0_0"), MemberId("m1"), MemberId("m2"), InstanceId("pod-2")
SHAPE = Topology(1, (Subtopology("0", 1, changelog_topics=("log",)),))


def at(offset: int, role: str = "standby") -> TaskReport:
    return TaskReport(role, positions=(("log", offset),))


def begin(position: int | None = 900, end: int | None = 950, topic_id: str = "") -> Scene:
    """Return a group in which m1 runs the only task, and m2 has a standby at this position."""
    scene = Scene()
    scene.declare(SHAPE, num_standby_replicas=1, acceptable_recovery_lag=100, rejoin_grace_ms=60_000)
    scene.join("m1")
    scene.join("m2", instance_id=POD)
    scene.tick(100)
    for _ in range(3):
        scene.beat("m1", {"0_0": running()} if scene.held("m1", Role.ACTIVE) else {})
        scene.beat("m2", {"0_0": copy("standby", None)} if scene.held("m2", Role.STANDBY) else {})
        scene.tick(100)
    assert (scene.owners(), scene.held("m2", Role.STANDBY)) == ({"0_0": "m1"}, ["0_0"])
    # What m2 has was there before this coordinator started.
    scene.soft = Soft()
    scene.do(Started())
    if end is not None:
        read(scene, end, topic_id)
    scene.beat("m1", {"0_0": running()})
    if position is not None:
        scene.beat("m2", {"0_0": at(position)})
    return scene


def read(scene: Scene, end: int, topic_id: str = "") -> None:
    scene.now_ms += 1_000
    scene.do(EndOffsets({("log", 0): end}, scene.now_ms, topic_ids={"log": topic_id} if topic_id else {}))


def readiness(scene: Scene, member: str = "m2") -> Readiness:
    return scene.view().copy(scene.task("0_0"), MemberId(member)).readiness


def is_doubted(scene: Scene, member: str = "m2") -> bool:
    """Say whether the copy is doubted; if it is, its member is told so."""
    scene.now_ms += 1
    known, is_one = scene.soft.members[MemberId(member)].reports.get(T0), T0 in scene.member(member).doubts
    assert known is None or known.other_incarnation or not is_one
    return is_one


def test_a_doubt_outlasts_the_growth_of_the_new_changelog() -> None:
    scene = begin()
    assert readiness(scene) is Readiness.CAUGHT_UP
    for end in (10, 500, 950, 5_000):
        read(scene, end)
        assert readiness(scene) is Readiness.UNKNOWN
        answer = scene.beat("m2", {"0_0": at(900)})
        assert isinstance(answer, Answer)
        assert [code for code, _ in answer.status] == ["state-unknown"]
        assert readiness(scene) is Readiness.UNKNOWN
    scene.do(Eviction(M1, dead=True))
    scene.wait(3_600_000 // 4)
    assert scene.task("0_0").owner is None


@pytest.mark.parametrize("begins", [at(3), TaskReport("standby", lost=True), None], ids=["falls", "lost", "absent"])
def test_a_copy_that_begins_anew_is_trusted_again(begins: TaskReport | None) -> None:
    scene = begin()
    read(scene, 10)
    assert is_doubted(scene)
    scene.beat("m2", {"0_0": at(901)})
    assert is_doubted(scene)
    scene.beat("m2", {} if begins is None else {"0_0": begins})
    assert scene.of(StateTrusted) == [StateTrusted(M2, (T0,))]
    read(scene, 30)
    scene.beat("m2", {"0_0": at(20)})
    assert readiness(scene) is Readiness.CAUGHT_UP


def test_each_changelog_of_a_task_is_judged_by_its_own_reads() -> None:
    measured = MeasuredReport(TaskReport("standby", positions=(("a", 5), ("b", 900))), 1)
    before = {("a", 0): EndOffset(5, 2), ("b", 0): EndOffset(950, 2)}
    assert not is_to_be_doubted(measured, [("a", 0), ("b", 0)], before, {("a", 0): EndOffset(6, 3)})
    assert is_to_be_doubted(measured, [("a", 0), ("b", 0)], before, {("b", 0): EndOffset(10, 3, shrunk=True)})


def test_a_doubt_survives_a_coordinator() -> None:
    scene = begin()
    read(scene, 10)
    scene.soft = Soft()
    scene.do(Started())
    read(scene, 950)
    assert readiness(scene) is Readiness.UNKNOWN
    scene.beat("m2", {"0_0": at(900)})
    assert is_doubted(scene)
    assert readiness(scene) is Readiness.UNKNOWN


@pytest.mark.parametrize("end", [940, 950, 2_000])
def test_the_id_of_a_topic_tells_what_its_end_does_not(end: int) -> None:
    scene = begin(topic_id="first")
    read(scene, end, "second")
    assert is_doubted(scene)
    assert readiness(scene) is Readiness.UNKNOWN


def test_an_id_that_was_not_read_says_nothing() -> None:
    scene = begin(topic_id="first")
    read(scene, 960)
    assert not is_doubted(scene)
    read(scene, 960, "second")
    assert is_doubted(scene)


@pytest.mark.parametrize(("position", "doubted"), [(900, False), (945, True)])
def test_of_a_topic_that_lost_its_last_records_only_what_lies_beyond_is_doubted(
    position: int, *, doubted: bool
) -> None:
    """After an unclean election its id is the same."""
    scene = begin(position, topic_id="only")
    read(scene, 940, "only")
    assert is_doubted(scene) is doubted
    read(scene, 1_000, "only")
    scene.beat("m2", {"0_0": at(position)})
    assert readiness(scene) is (Readiness.UNKNOWN if doubted else Readiness.CAUGHT_UP)


@pytest.mark.parametrize("begins", [at(3), TaskReport("standby", lost=True)], ids=["falls", "lost"])
def test_a_copy_that_began_anew_since_the_read_before_is_of_the_new_changelog(begins: TaskReport) -> None:
    """Its member noticed sooner than the coordinator."""
    scene = begin()
    scene.now_ms += 10
    scene.beat("m2", {"0_0": begins})
    scene.now_ms += 10
    scene.beat("m2", {"0_0": at(4)})
    read(scene, 10)
    read(scene, 11)
    assert not is_doubted(scene)
    assert readiness(scene) is Readiness.CAUGHT_UP


def test_a_copy_that_was_not_there_at_the_read_before_is_of_the_new_changelog() -> None:
    scene = begin(position=None)
    scene.beat("m2", {})
    scene.now_ms += 10
    scene.beat("m2", {"0_0": at(5)})
    read(scene, 10)
    read(scene, 11)
    assert not is_doubted(scene)


def test_a_copy_that_is_first_reported_after_the_changelog_was_made_anew_is_doubted() -> None:
    scene = begin(position=None, end=10)
    scene.beat("m2", {"0_0": at(900)})
    read(scene, 12)
    assert readiness(scene) is Readiness.UNKNOWN
    assert not scene.of(StateDoubted)  # this read may have been the older one
    scene.beat("m2", {"0_0": at(900)})
    read(scene, 500)
    assert is_doubted(scene)
    read(scene, 950)
    assert readiness(scene) is Readiness.UNKNOWN


def test_one_read_below_a_position_that_the_next_read_reaches_raises_no_doubt() -> None:
    scene = begin(position=None)
    scene.beat("m2", {"0_0": at(960)})
    read(scene, 955)
    assert readiness(scene) is Readiness.UNKNOWN
    read(scene, 961)
    assert readiness(scene) is Readiness.CAUGHT_UP
    assert not scene.member("m2").doubts


@pytest.mark.parametrize("goes", ["restarts", "crashes", "is taken over", "is replaced", "was evicted"])
@pytest.mark.parametrize(("position", "doubted"), [(900, True), (3, False), (None, False)])
def test_the_next_run_of_an_instance_inherits_the_doubts(goes: str, position: int | None, *, doubted: bool) -> None:
    scene = begin()
    read(scene, 10)
    match goes:
        case "restarts":
            scene.do(Leave(M2, restart=True))
        case "crashes":
            for _ in range(50):
                scene.beat("m1", {"0_0": running()})
                scene.tick(1_000)
            assert M2 not in scene.group.members
        case "was evicted":
            scene.do(Eviction(M2, dead=True))
        case _:
            pass
    read(scene, 950)
    found = {} if position is None else {"0_0": at(position, "none")}
    hows: dict[str, dict[str, object]] = {"is taken over": {"takeover": True}, "is replaced": {"replaces": M2}}
    how = hows.get(goes, {})
    scene.join("m2b", found, instance_id=POD, **how)
    assert is_doubted(scene, "m2b") is doubted
    scene.beat("m2b", {"0_0": at(position)} if position is not None else {})
    assert is_doubted(scene, "m2b") is doubted


def test_doubts_of_another_instance_are_not_inherited() -> None:
    scene = begin()
    read(scene, 10)
    scene.do(Eviction(M2, dead=True))
    read(scene, 950)
    scene.join("m3", {"0_0": at(900, "none")}, instance_id=InstanceId("pod-3"))
    scene.join("m4", {"0_0": at(900, "none")})
    assert not is_doubted(scene, "m3")
    assert not is_doubted(scene, "m4")


def test_a_join_puts_nobody_in_order_who_left_without_a_doubt() -> None:
    """Ids are kept for two days: of a large group that is deployed often they are tens of thousands, for each join."""
    looks = []

    class Looked(GoneMember):
        @property
        def at_ms(self) -> int:
            looks.append(self)
            return 1

    scene = Scene()
    scene.declare(SHAPE)
    left = {MemberId(f"old-{number}"): Looked(1, Cause.LEFT, 1, POD) for number in range(100)}
    scene.group = replace(scene.group, gone=PMap(left))
    scene.join("m1", {"0_0": at(900, "none")}, instance_id=POD)
    assert looks == []


def test_a_task_goes_past_a_doubted_copy_to_another_member() -> None:
    scene = begin()
    read(scene, 10)
    scene.join("m3")
    scene.do(Eviction(M1, dead=True))
    for _ in range(5):
        scene.tick(1_000)
        scene.beat("m2", {"0_0": at(900)})
        scene.beat("m3", {"0_0": restoring(5)} if scene.held("m3", Role.ACTIVE) else {})
    assert scene.task("0_0").owner == "m3"


def test_a_task_waits_for_its_only_copy_to_begin_anew() -> None:
    scene = begin()
    read(scene, 10)
    scene.do(Eviction(M1, dead=True))
    for _ in range(400):
        scene.beat("m2", {"0_0": at(900)})
        scene.tick(1_000)
    assert scene.task("0_0").owner is None
    assert scene.last is not None
    assert Held.STATE_UNKNOWN in {reason.code for reason in scene.last.reasons}
    scene.beat("m2", {"0_0": TaskReport("standby", lost=True)})
    scene.tick(1_000)
    assert scene.task("0_0").owner == "m2"


def test_a_doubt_about_a_member_that_is_gone_changes_nothing() -> None:
    group, nobody, task = begin().group, MemberId("nobody"), TaskId("0_0")
    after = evolve(group, [StateDoubted(nobody, {task: ()}), StateTrusted(nobody, (task,))])
    assert after.members == group.members


def test_a_copy_whose_member_says_its_lag_is_not_doubted() -> None:
    """Whoever knows how far it is behind reads the changelog itself."""
    scene = begin(900, 950)
    scene.beat("m2", {"0_0": at(900)._replace(lag=0)})
    read(scene, 100)
    read(scene, 100)
    assert not is_doubted(scene)
    assert readiness(scene) is Readiness.CAUGHT_UP
