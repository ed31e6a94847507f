"""What an operator says of an instance holds for each of its runs, until it is undone (protocol 9.6)."""

import pytest
from tests.core.scene import Scene, copy, topology

from batonpass.codec.views import kept_out_body
from batonpass.core.arrivals.kept_out import kept_out_of
from batonpass.core.state.errors import InstanceIdInUse, InvalidRequest, LimitExceeded, UnknownMember
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeletion,
    Input,
    Join,
    Leave,
    PinRequest,
    Started,
    StreamsProcess,
    StreamsRebalance,
)
from batonpass.core.state.model import ActiveState, Group, OnLeaseLost, Role, Subtopology, Topology
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import InstanceKeptOut, InstanceLetIn
from batonpass.core.state.replies import Answer, Done, DrainProgress, StreamsAdvice
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.explain.group import explain_group

M1, M2, POD1, POD2 = MemberId("m1"), MemberId("m2"), InstanceId("pod-1"), InstanceId("pod-2")
HOUR_MS = 3_600_000


def two(policy: Policy | None = None, *, fenced: bool = False, stateless: int = 1, **config: object) -> Scene:
    """Return four tasks at rest on two instances."""
    scene = Scene(policy=policy)
    scene.declare(topology(3, stateless=stateless), max_lost_share=1.0, session_timeout_ms=20_000, **config)
    lost = OnLeaseLost.CONTINUE if fenced else OnLeaseLost.STOP
    scene.join("m1", instance_id=POD1, on_lease_lost=lost)
    scene.join("m2", instance_id=POD2, on_lease_lost=lost)
    scene.settle()
    return scene


def has_nothing(scene: Scene, name: str) -> bool:
    return not scene.member(name).assignment and name not in scene.owners().values()


def keep_out(by: str, **how: object) -> Input:
    return (DrainRequest if by == "drain" else Eviction)(M2, until_undone=True, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("goes", ["leaves", "restarts", "crashes", "is taken over", "is replaced"])
@pytest.mark.parametrize("by", ["drain", "evict"])
def test_no_run_of_the_instance_gets_a_task_until_it_is_undone(
    by: str, goes: str, standbys: int, *, fenced: bool
) -> None:
    scene = two(fenced=fenced, num_standby_replicas=standbys)
    had = {task: copy("none") for task in scene.held("m2", Role.ACTIVE)}
    scene.do(keep_out(by))
    how: dict[str, object] = {}
    if by == "drain":
        match goes:
            case "leaves" | "restarts":
                scene.settle()
                scene.do(Leave(M2, restart=goes == "restarts"))
            case "crashes":
                for _ in range(30):
                    scene.obey("m1")
                    scene.tick(1_000)
            case "is taken over":
                how = {"takeover": True}
            case _:
                how = {"replaces": M2}
    answer = scene.join("m2b", had, instance_id=POD2, **how)
    assert "kept out" in dict(answer.status)["drained"]
    for _ in range(40):
        scene.obey("m1")
        scene.beat("m2b", had)
        scene.tick(1_000)
        assert has_nothing(scene, "m2b")
    assert set(scene.owners().values()) == {"m1"}
    scene.ok(DrainReversal(MemberId("m2b")), Done)
    assert scene.of(InstanceLetIn) == [InstanceLetIn(POD2)]
    scene.settle()
    assert set(scene.owners().values()) == {"m1", "m2b"}


def test_a_run_that_takes_over_the_instance_of_the_only_member_gets_nothing() -> None:
    """Nor what is pinned to it."""
    scene = two()
    scene.do(Leave(M1))
    scene.settle()
    scene.do(PinRequest(TaskId("0_0"), M2))
    scene.do(keep_out("drain"))
    scene.join("m2b", instance_id=POD2, takeover=True)
    scene.settle()
    assert has_nothing(scene, "m2b")
    assert not scene.group.pins


@pytest.mark.parametrize("by", ["drain", "evict"])
def test_it_gets_nothing_even_if_nobody_else_is_there(by: str) -> None:
    """A plain drain would make it the last choice. Protocol 9.6."""
    scene = two(num_standby_replicas=1)
    scene.do(keep_out(by))
    scene.join("m2b", {"0_0": copy("none")}, instance_id=POD2, replaces=M2)
    scene.do(Eviction(M1, dead=True))
    for _ in range(400):
        scene.beat("m2b", {"0_0": copy("none")})
        scene.tick(1_000)
    assert has_nothing(scene, "m2b")
    scene.ok(DrainReversal(MemberId("m2b")), Done)
    scene.settle()
    assert set(scene.owners().values()) == {"m2b"}


@pytest.mark.parametrize("by", ["drain", "evict"])
def test_it_ends_by_itself(by: str) -> None:
    scene = two()
    scene.do(keep_out(by, for_ms=HOUR_MS))
    until_ms = scene.now_ms + HOUR_MS
    assert scene.group.kept_out[POD2].until_ms == until_ms
    scene.join("m2b", instance_id=POD2, replaces=M2)
    while scene.now_ms < until_ms - 1_000:
        scene.obey("m1")
        scene.beat("m2b", {})
        scene.wait(10_000 if scene.now_ms < until_ms - 11_000 else until_ms - 1_000 - scene.now_ms)
    assert has_nothing(scene, "m2b")
    scene.wait(1_000)
    assert POD2 not in scene.group.kept_out
    scene.settle()
    assert set(scene.owners().values()) == {"m1", "m2b"}


def test_its_end_is_due_without_any_member() -> None:
    scene = two()
    scene.do(keep_out("evict", for_ms=HOUR_MS, dead=True))
    scene.do(Leave(M1))
    scene.soft = Soft()
    scene.do(Started())
    assert scene.soft.wake_ms is not None
    assert scene.soft.wake_ms <= scene.now_ms + HOUR_MS
    scene.wait(HOUR_MS)
    assert not scene.group.kept_out


def test_it_survives_a_coordinator() -> None:
    scene = two()
    scene.do(keep_out("evict"))
    scene.group, scene.soft = evolve(Group(GroupId("g")), scene.log), Soft()
    scene.do(Started())
    scene.join("m2b", instance_id=POD2)
    assert has_nothing(scene, "m2b")
    scene.settle()
    assert has_nothing(scene, "m2b")


@pytest.mark.parametrize("name", ["m2", "pod-2"])
def test_an_instance_without_a_member_can_be_let_in_and_kept_out(name: str) -> None:
    scene = two()
    scene.do(Eviction(M2, dead=True))
    named = MemberId(name)
    assert scene.ok(DrainRequest(named, until_undone=True), DrainProgress) == DrainProgress((), ())
    scene.ok(DrainReversal(named), Done)
    assert not scene.group.kept_out
    scene.ok(Eviction(named, until_undone=True), Done)
    assert POD2 in scene.group.kept_out
    scene.join("m2b", instance_id=POD2)
    assert has_nothing(scene, "m2b")
    scene.ok(DrainReversal(named), Done)
    scene.settle()
    assert not has_nothing(scene, "m2b")


@pytest.mark.parametrize("by", ["drain", "evict"])
@pytest.mark.parametrize("name", ["m2", "pod-2"])
def test_the_word_on_an_instance_or_on_a_past_run_holds_for_the_present_run(by: str, name: str) -> None:
    scene = two()
    scene.join("m2b", instance_id=POD2, takeover=True)
    scene.settle()
    tasks = scene.held("m2b", Role.ACTIVE)
    assert tasks
    kind = DrainRequest if by == "drain" else Eviction
    reply = scene.do(kind(MemberId(name), until_undone=True))
    if by == "drain":
        assert isinstance(reply, DrainProgress)
        assert list(reply.remaining) == tasks
        scene.settle()
        assert has_nothing(scene, "m2b")
    else:
        assert "m2b" not in scene.group.members
    assert POD2 in scene.group.kept_out


def test_who_vouches_for_a_past_run_does_not_vouch_for_the_present_one() -> None:
    scene = two()
    scene.join("m2b", instance_id=POD2, takeover=True)
    scene.settle()
    (task, *_) = scene.held("m2b", Role.ACTIVE)
    scene.ok(Eviction(M2, dead=True, until_undone=True), Done)
    assert [entry.member_id for entry in scene.task(task).handover.unreleased] == ["m2b"]


def test_a_dead_run_can_be_vouched_for_and_its_instance_kept_out_at_once() -> None:
    scene = two()
    tasks = scene.held("m2", Role.ACTIVE)
    scene.do(Eviction(M2))
    assert any(scene.task(task).handover.unreleased for task in tasks)
    scene.ok(Eviction(M2, dead=True, until_undone=True), Done)
    assert POD2 in scene.group.kept_out
    scene.tick(1_000)
    assert not any(scene.task(task).handover.unreleased for task in tasks)


def test_the_place_of_an_instance_that_is_away_is_free() -> None:
    scene = two()
    scene.do(Leave(M2, restart=True))
    scene.ok(DrainRequest(M2, until_undone=True), DrainProgress)
    for _ in range(5):
        scene.obey("m1")
        scene.tick(1_000)
    assert set(scene.owners().values()) == {"m1"}
    scene.join("m2b", instance_id=POD2)
    assert has_nothing(scene, "m2b")


def test_a_drain_that_lasts_is_a_drain_like_any_other_for_the_run_that_is_there() -> None:
    scene = two()
    scene.ok(DrainRequest(M2, 30_000, until_undone=True), DrainProgress)
    drain = scene.member("m2").drain
    assert drain is not None
    assert (drain.deadline_ms, drain.kept_out) == (scene.now_ms + 30_000, False)
    scene.settle()
    assert has_nothing(scene, "m2")
    scene.ok(DrainReversal(M2), Done)
    assert scene.member("m2").drain is None
    assert not scene.group.kept_out


def test_another_word_changes_how_long_and_not_since_when() -> None:
    scene = two()
    scene.do(keep_out("drain"))
    since_ms = scene.now_ms
    scene.now_ms += 5
    scene.do(keep_out("drain", for_ms=HOUR_MS))
    assert scene.of(InstanceKeptOut) == [InstanceKeptOut(POD2, since_ms, scene.now_ms + HOUR_MS)]
    scene.join("m2b", instance_id=POD2, takeover=True)
    scene.do(DrainRequest(MemberId("m2b"), 7_000))
    drain = scene.member("m2b").drain
    assert drain is not None
    assert drain.kept_out


@pytest.mark.parametrize("by", ["drain", "evict"])
def test_a_member_without_an_instance_id_cannot_be_kept_out(by: str) -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("m2")
    refused = scene.refused(keep_out(by), InvalidRequest)
    assert [path for path, _ in refused.errors] == ["query.until_undone"]
    assert "instance_id" in refused.detail
    assert scene.member("m2").drain is None
    named = DrainRequest(MemberId("stranger"), until_undone=True)
    scene.refused(named, UnknownMember)
    scene.refused(Eviction(MemberId("stranger"), until_undone=True), UnknownMember)
    late = scene.refused(DrainRequest(M2, for_ms=5), InvalidRequest)
    assert [path for path, _ in late.errors] == ["query.for_ms"]


def test_there_may_be_as_many_as_members() -> None:
    scene = two(Policy(max_members=2))
    scene.do(keep_out("evict", dead=True))
    scene.join("m3", instance_id=InstanceId("pod-3"))
    scene.do(Eviction(MemberId("m3"), dead=True, until_undone=True))
    assert len(scene.group.kept_out) == 2
    scene.refused(DrainRequest(M1, until_undone=True), LimitExceeded)
    scene.ok(DrainRequest(M1), DrainProgress)


def test_an_instance_that_is_kept_out_has_one_holder_like_any_other() -> None:
    scene = two()
    scene.do(keep_out("evict", dead=True))
    scene.join("m2b", instance_id=POD2)
    scene.refused(Join(MemberId("m2c"), instance_id=POD2), InstanceIdInUse)


def test_what_was_said_of_an_instance_is_found_by_its_member() -> None:
    scene = two()
    scene.join("nameless")
    scene.do(keep_out("drain"))
    assert kept_out_of(scene.group, scene.member("m2")) == scene.group.kept_out[POD2]
    assert kept_out_of(scene.group, scene.member("m1")) is None
    assert kept_out_of(scene.group, scene.member("nameless")) is None


def test_it_goes_with_the_group() -> None:
    scene = two()
    scene.do(keep_out("evict", dead=True))
    scene.do(GroupDeletion(force=True))
    assert not scene.group.kept_out


def test_a_process_of_kafka_streams_stays_out_with_other_threads_and_after_an_eviction() -> None:
    scene = Scene()
    shape = Topology(1, (Subtopology("0", 4),))
    a, b = InstanceId("a"), InstanceId("b")
    tasks = [TaskId(f"0_{number}") for number in range(4)]
    level = dict.fromkeys(tasks, TaskReport("none", lag=0))
    runs = dict.fromkeys(tasks, TaskReport("active", ActiveState.RUNNING))

    def rebalance(threads: float, on_a: dict[TaskId, TaskReport], on_b: dict[TaskId, TaskReport]) -> StreamsAdvice:
        processes = (StreamsProcess(a, 1.0, tasks=on_a), StreamsProcess(b, threads, tasks=on_b))
        scene.now_ms += 60_000
        return scene.ok(StreamsRebalance(shape, {"max_warmup_replicas": 4}, processes), StreamsAdvice)

    rebalance(1.0, {}, runs)
    scene.do(DrainRequest(scene.group.instances[b], until_undone=True))
    for threads in (1.0, 2.0):
        rebalance(threads, level, runs)
    for threads in (3.0, 1.0):
        assert not any(rebalance(threads, runs, {}).assignment[b].values())
    scene.do(Eviction(scene.group.instances[b], until_undone=True, for_ms=10 * HOUR_MS))
    for threads in (1.0, 3.0):
        assert not any(rebalance(threads, runs, {}).assignment[b].values())
    scene.now_ms += 10 * HOUR_MS
    assert rebalance(3.0, runs, {}).assignment[b]["warmup"]


def test_answers_say_that_the_instance_is_kept_out() -> None:
    scene = two()
    scene.do(keep_out("evict", dead=True))
    scene.join("m2b", instance_id=POD2)
    answer = scene.beat("m2b", {})
    assert isinstance(answer, Answer)
    assert answer.status == (
        ("drained", "this instance is kept out: none of its runs gets a task until an operator lets it in"),
    )


@pytest.mark.parametrize(("for_ms", "until"), [(None, "until that is undone"), (HOUR_MS, "for another 1 h")])
def test_an_explanation_of_the_group_names_it(for_ms: int | None, until: str) -> None:
    scene = two()
    scene.do(Eviction(M1, until_undone=True, for_ms=for_ms))
    found = explain_group(scene.view(), limit=1)
    assert f"Instance pod-1 is kept out: none of its runs gets a task, {until}." in found.sentences


def test_an_explanation_names_a_process_of_kafka_streams_as_people_do() -> None:
    """Its instance id is a process id. It is called as its present run is, or else as its last one was."""
    scene, shape = Scene(), Topology(1, (Subtopology("0", 2),))
    ids = [InstanceId(f"c731eb0f-8a3b-4d6b-9a55-0f4d1c3b2a1{number}") for number in range(3)]
    a, b = (StreamsProcess(one, name=name) for one, name in zip(ids, "ab", strict=False))

    def said() -> str:
        return " ".join(explain_group(scene.view(), limit=1).sentences)

    scene.ok(StreamsRebalance(shape, {}, (a, b)), StreamsAdvice)
    scene.do(DrainRequest(MemberId("b"), until_undone=True))
    assert "Instance b is kept out: " in said()
    for processes, name in (((a,), "b"), ((a, b), "b.2"), ((a,), "b.2")):
        scene.now_ms += 60_000
        scene.ok(StreamsRebalance(shape, {}, processes), StreamsAdvice)
        assert f"Instance {name} is kept out: " in said()
    assert "c731eb0f" not in said()
    (entry,) = kept_out_body(scene.group)
    assert (entry["instance_id"], entry["name"], entry["member_id"]) == (ids[1], "b.2", None)
