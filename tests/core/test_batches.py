"""Several inputs are decided on together: as if they had come one after another, with one placement and one step."""

from dataclasses import replace
from random import Random

import pytest
from tests.core.scene import Scene, copy, running, topology

from batonpass.core.decide import Decision, decide
from batonpass.core.state.errors import Fenced, FencedInstanceId, Gone, ProtocolError, StaleMemberEpoch, UnknownMember
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    Eviction,
    Heartbeat,
    Input,
    Join,
    Leave,
    ProbeRequest,
    ResumeRequest,
    StreamsProcess,
    StreamsRebalance,
    Tick,
)
from batonpass.core.state.model import Group, Role
from batonpass.core.state.records import MemberJoined, TargetPlaced
from batonpass.core.state.replies import Answer, DrainProgress, StreamsAdvice
from batonpass.invariants import Transition, check_group, check_step

A, B, C = MemberId("a"), MemberId("b"), MemberId("c")


def together(scene: Scene, *inputs: Input) -> Decision:
    """Let several inputs happen at once, and hold what follows to the laws."""
    before, soft = scene.group, scene.soft
    decision = decide(before, soft, inputs, scene.now_ms, scene.policy)
    assert decide(before, soft, inputs, scene.now_ms, scene.policy) == decision
    assert evolve(before, decision.records) == decision.after
    assert len(decision.replies) == len(inputs)
    transition = Transition(before, decision.after, decision.records, soft, decision.soft, scene.now_ms, inputs)
    assert check_step(transition) == []
    assert check_group(decision.after) == []
    scene.group, scene.soft, scene.last = decision.after, decision.soft, decision
    return decision


def word(scene: Scene, name: str, seq: int = 50_000, **fields: object) -> Heartbeat:
    """Return a heartbeat in which a member says that it does what its assignment says."""
    member = scene.member(name)
    reports = {
        task: running() if grant.role is Role.ACTIVE else copy(grant.role) for task, grant in member.assignment.items()
    }
    return replace(Heartbeat(member.id, seq, member.epoch, reports), **fields)  # type: ignore[arg-type]


def at_rest(*names: str, tasks: int = 6, **config: object) -> Scene:
    """Return a group that rests."""
    scene = Scene()
    scene.declare(topology(tasks), **config)
    for name in names:
        scene.join(name)
    scene.settle()
    return scene


def test_a_resume_that_ends_nothing_hurries_nothing() -> None:
    """The placement that the join brings waits for the batch."""
    scene = at_rest("a", rebalance_batch_ms=500)
    decision = together(scene, Join(B), ResumeRequest())
    assert decision.after.placement_due_ms == scene.now_ms + 500


@pytest.mark.parametrize("is_here", [False, True])
def test_a_run_may_come_and_be_taken_over_at_once(*, is_here: bool) -> None:
    """Its container ended again while the database was slow to take its join."""
    scene = at_rest("a")
    pod = InstanceId("pod")
    if is_here:
        scene.join("z", instance_id=pod)
        scene.settle()
    decision = together(scene, Join(B, pod, takeover=True), word(scene, "a"), Join(C, pod, takeover=True))
    assert decision.after.instances[pod] == C
    assert isinstance(decision.replies[0], FencedInstanceId)


def test_a_process_may_come_and_go_at_once() -> None:
    """The leader of a Kafka Streams application asked again, while the database was slow to take the first question."""
    scene, processes = Scene(), tuple(StreamsProcess(InstanceId(name)) for name in "abc")
    scene.ok(StreamsRebalance(topology(4), {}, processes[:1]), StreamsAdvice)
    decision = together(
        scene, *(StreamsRebalance(topology(4), {}, some) for some in (processes, processes[:1], processes[:2]))
    )
    assert sorted(decision.after.instances) == ["a", "b"]


def test_joins_that_arrive_together_make_one_placement() -> None:
    scene = Scene()
    scene.declare(topology(6))
    decision = together(scene, Join(A), Join(B), Join(C))
    assert [type(one) for one in decision.records].count(MemberJoined) == 3
    assert [type(one) for one in decision.records].count(TargetPlaced) == 1
    for reply in decision.replies:
        assert isinstance(reply, Answer)
        assert reply.created
        assert len(reply.assignment or ()) == 2
    assert [reply.member_id for reply in decision.replies if isinstance(reply, Answer)] == [A, B, C]


def test_nothing_at_all_is_decided_on_too() -> None:
    scene = at_rest("a")
    assert together(scene).replies == ()
    assert scene.last is not None
    assert scene.last.records == ()


def test_a_refused_input_harms_no_other() -> None:
    scene = at_rest("a", "b")
    stranger = Heartbeat(MemberId("nobody"), 1, 1, {})
    late = word(scene, "a", seq=0)
    decision = together(scene, stranger, late, Join(C), Leave(B, restart=True), word(scene, "b"))
    refused, doubled, joined, no_instance, heard = decision.replies
    assert isinstance(refused, UnknownMember)
    assert isinstance(doubled, Answer)
    assert isinstance(joined, Answer)
    assert isinstance(no_instance, ProtocolError)
    assert isinstance(heard, Answer)
    assert set(scene.group.members) == {A, B, C}
    assert scene.soft.members[B].seq == 50_000


def test_who_is_removed_by_a_later_input_is_answered_as_a_gone_member_is() -> None:
    scene = at_rest("a", "b", "c")
    decision = together(
        scene, word(scene, "a"), DrainRequest(B), Join(MemberId("d")), Leave(A), Eviction(B), Leave(MemberId("d"))
    )
    kinds = [type(reply) for reply in decision.replies[:3]]
    assert kinds == [Gone, Fenced, Gone]
    assert set(scene.group.members) == {C}


def test_the_remaining_tasks_of_a_drain_are_those_after_the_whole_decision() -> None:
    scene = at_rest("a", "b", tasks=2)
    decision = together(scene, DrainRequest(A), word(scene, "b"))
    progress = decision.replies[0]
    assert isinstance(progress, DrainProgress)
    assert len(progress.remaining) == 1


def test_a_stale_epoch_is_refused_with_the_assignment_as_it_is_in_the_end() -> None:
    scene = at_rest("a", "b", tasks=4)
    scene.ok(word(scene, "a"), Answer)
    stale = word(scene, "a", seq=50_001, member_epoch=scene.member("a").epoch - 1)
    decision = together(scene, stale, Leave(B))
    refused = decision.replies[0]
    assert isinstance(refused, StaleMemberEpoch)
    assert isinstance(refused.answer, Answer)
    assert refused.answer.member_epoch == scene.member("a").epoch
    assert len(refused.answer.assignment or ()) == 4


def test_a_heartbeat_that_arrives_with_the_look_at_its_lease_counts() -> None:
    """A heartbeat before the look counts; one behind the look is late."""
    scene = at_rest("a", "b")
    words = word(scene, "a"), word(scene, "b")
    scene.now_ms += 46_000
    scene.soft = scene.soft._replace(wake_ms=scene.now_ms - 1_000)
    first, _, last = together(scene, words[0], Tick(), words[1]).replies
    assert isinstance(first, Answer)
    assert isinstance(last, Fenced)


def test_the_same_member_may_speak_twice() -> None:
    scene = at_rest("a", "b", tasks=2)
    scene.join("c")
    decision = together(scene, word(scene, "a", seq=60_000), word(scene, "a", seq=60_001), ProbeRequest())
    assert [reply.seq for reply in decision.replies if isinstance(reply, Answer)] == [60_001, 60_001]


def shaped(group: Group) -> object:
    """Return what a group is, but for how often its log was written to."""
    return replace(group, version=0)


@pytest.mark.parametrize("seed", range(12))
def test_what_concerns_different_members_comes_to_the_same_one_after_another(seed: int) -> None:
    """Words about the same move, or about slots, are left out: together they make one assignment instead of several."""
    chance = Random(seed)
    names = [f"m{number}" for number in range(chance.choice([3, 5, 8]))]
    scene = Scene()
    standbys = chance.choice([0, 1])
    scene.declare(topology(chance.choice([6, 12])), num_standby_replicas=standbys, initial_rebalance_delay_ms=1_000)
    for name in names:
        scene.join(name)
    for number in range(6):
        scene.tick(1_000)
        inputs: list[Input] = []
        for name in chance.sample(names, chance.randrange(1, len(names) + 1) if number else len(names)):
            reports = dict(word(scene, name).tasks or {})
            copies = [task for task, report in reports.items() if report.role != "active"]
            reports |= {task: copy("standby", 20_000) for task in copies if not number or chance.random() < 0.3}
            inputs.append(word(scene, name, seq=100_000 + scene.now_ms, tasks=reports))
        apart = replace_scene(scene)
        for item in inputs:
            apart.do(item)
        together(scene, *inputs)
        assert shaped(scene.group) == shaped(apart.group)
        assert scene.soft == apart.soft


def replace_scene(scene: Scene) -> Scene:
    """Return another scene at the same point."""
    other = Scene()
    other.group, other.soft, other.now_ms, other.policy = scene.group, scene.soft, scene.now_ms, scene.policy
    return other


def test_copies_that_catch_up_in_one_batch_are_handed_over_by_its_one_step() -> None:
    scene = Scene()
    scene.declare(topology(4), acceptable_recovery_lag=10, max_warmup_replicas=4, max_warmups_per_member=2)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.join("c")
    warming = {name: scene.held(name, Role.WARMUP) for name in ("b", "c")}
    assert all(warming.values())
    together(scene, *[word(scene, name) for name in warming])
    for name, tasks in warming.items():
        for task in tasks:
            assert scene.task(TaskId(task)).handover.next_owner == name
