"""A heartbeat that repeats the last one is answered without a look at any copy, and that changes no decision."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.scene import Scene, copy, restoring, running, topology

from batonpass.core import decide as deciding
from batonpass.core.decide import decide
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.inputs import EndOffsets, Heartbeat, Input, PauseRequest, PollBroken
from batonpass.core.model import Subtopology, Topology
from batonpass.core.replies import Answer, Done, Reply
from batonpass.core.soft import Report, TaskReport
from batonpass.core.steady import is_steady
from batonpass.core.work import Work

M1 = MemberId("m1")
WORDS = {"0_0": running(), "0_1": running(input_lag=3)}


def at_rest(**fields: object) -> Scene:
    """Return a group whose one member has said the same twice."""
    scene = Scene()
    scene.declare(topology(2), **fields)
    scene.join("m1")
    scene.settle()
    for _ in range(2):
        scene.beat("m1", dict(WORDS))
    return scene


def heartbeat(scene: Scene, tasks: dict[str, TaskReport] | None = None, **fields: object) -> Heartbeat:
    """Return the next heartbeat of m1, which by default says the same again."""
    said = {TaskId(task): report for task, report in (WORDS if tasks is None else tasks).items()}
    return replace(Heartbeat(M1, 10_000, scene.member("m1").epoch, said), **fields)  # type: ignore[arg-type]


def looked_into(scene: Scene, item: Heartbeat, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Say whether deciding on the heartbeat looks at its reports."""
    calls: list[Work] = []
    take = deciding._take

    def noted(work: Work, given: Input) -> Reply:
        calls.append(work)
        return take(work, given)

    monkeypatch.setattr(deciding, "_take", noted)
    decide(scene.group, scene.soft, item, scene.now_ms, scene.policy)
    return bool(calls)


def test_the_same_words_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the ordinary one, the lease is renewed, and the reports stay the very same."""
    scene = at_rest()
    before = scene.soft.members[M1]
    scene.wait(3_000)
    item = heartbeat(scene)
    assert not looked_into(scene, item, monkeypatch)
    reply = scene.ok(item, Answer)
    after = scene.soft.members[M1]
    assert (reply.seq, reply.assignment, reply.report, reply.status) == (10_000, None, None, ())
    assert (after.heard_ms, after.seq) == (scene.now_ms, 10_000)
    assert after.reports is before.reports
    assert scene.last is not None
    assert scene.last.records == ()


@pytest.mark.parametrize(
    "said",
    [
        {"0_0": running(), "0_1": running(input_lag=4)},
        {"0_0": running()},
        {"0_0": running(), "0_1": running(input_lag=3), "0_9": running()},
        {"0_0": running(), "0_2": running(input_lag=3)},
        {"0_0": running(), "0_1": restoring(5)},
        None,
    ],
)
def test_other_words_are_looked_into(said: dict[str, TaskReport] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number, another task, one task less, another state, no report at all."""
    scene = at_rest()
    item = heartbeat(scene, said) if said is not None else replace(heartbeat(scene), tasks=None)
    assert looked_into(scene, item, monkeypatch)


def test_what_else_is_going_on_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late seq, another epoch, a field that nobody knows, a broken poll, a pause, a changed group, own silence."""
    scene = at_rest()
    assert looked_into(scene, heartbeat(scene, seq=0), monkeypatch)
    assert looked_into(scene, heartbeat(scene, member_epoch=scene.member("m1").epoch + 1), monkeypatch)
    assert looked_into(scene, heartbeat(scene, unknown_fields=("x",)), monkeypatch)
    assert looked_into(scene, heartbeat(scene, member_id=MemberId("m2")), monkeypatch)
    scene.now_ms += 60_000
    assert looked_into(scene, heartbeat(scene), monkeypatch)
    scene = at_rest()
    scene.soft = replace(
        scene.soft, members=scene.soft.members.having(M1, replace(scene.soft.members[M1], poll_broken_ms=1))
    )
    assert looked_into(scene, heartbeat(scene), monkeypatch)
    scene = at_rest()
    scene.ok(PauseRequest(), Done)
    assert looked_into(scene, heartbeat(scene), monkeypatch)
    scene = at_rest()
    scene.policy = replace(scene.policy, max_tasks_per_heartbeat=1)
    assert looked_into(scene, heartbeat(scene), monkeypatch)
    scene = at_rest()
    scene.change(None, num_standby_replicas=1)
    assert looked_into(scene, heartbeat(scene), monkeypatch)


def test_a_broken_poll_is_forgotten_by_any_word() -> None:
    """A suspicion ends with a heartbeat that repeats the last one as with any other."""
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1", on_lease_lost="continue")
    scene.settle()
    for _ in range(2):
        scene.beat("m1", dict(WORDS))
    scene.ok(PollBroken(M1), Done)
    scene.ok(heartbeat(scene), Answer)
    assert scene.soft.members[M1].poll_broken_ms is None


def test_an_end_that_was_read_makes_the_same_words_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the coordinator read another end of a changelog, a copy's position means another lag."""
    scene = Scene()
    shape = Topology(1, (Subtopology("0", 1, changelog_topics=("store",)),))
    scene.declare(shape, num_standby_replicas=1, acceptable_recovery_lag=10)
    scene.join("m1")
    scene.join("m2")
    scene.settle()
    [standby] = scene.group.tasks[TaskId("0_0")].standbys
    said = {TaskId("0_0"): copy("standby", None, positions=(("", 7),), end_offsets=(("", 7),))}
    epoch = scene.group.members[standby].epoch
    for seq in (10_001, 10_002):
        scene.ok(Heartbeat(standby, seq, epoch, said), Answer)
    again = Heartbeat(standby, 10_003, epoch, said)
    assert not looked_into(scene, again, monkeypatch)
    scene.ok(EndOffsets({("store", 0): 900}, read_ms=scene.now_ms), Done)
    assert scene.soft.members[standby].reports[TaskId("0_0")].lag == 893
    assert looked_into(scene, again, monkeypatch)


REPORTS = st.sampled_from(
    [
        running(),
        running(input_lag=1),
        restoring(5),
        copy("standby", 0),
        copy("standby", 11),
        copy("warmup", 3),
        copy("none", 0),
        copy("none", None),
    ]
)


@given(st.dictionaries(st.sampled_from([TaskId("0_0"), TaskId("0_1"), TaskId("0_2")]), REPORTS))
def test_only_level_copies_and_running_actives_are_steady(tasks: dict[TaskId, TaskReport]) -> None:
    """Steady is what could be said for ever without anything following from it."""
    scene = Scene()
    scene.declare(topology(3), acceptable_recovery_lag=10)
    reports = {task: Report(said, 0, said.lag) for task, said in tasks.items()}
    expected = all(
        said.state == "running" if said.role == "active" else said.lag is not None and said.lag <= 10
        for said in tasks.values()
    )
    assert is_steady(reports, scene.group.config) == expected
    lost = {task: report._replace(said=report.said._replace(lost=True)) for task, report in reports.items()}
    doubted = {task: report._replace(other_incarnation=True) for task, report in reports.items()}
    assert is_steady(lost, scene.group.config) == is_steady(doubted, scene.group.config) == (not tasks)


def test_the_mapping_that_it_came_in_is_no_part_of_the_value() -> None:
    """Equal words are the same words, whatever object they came in, so that a decision made again is the same."""
    scene = at_rest()
    heard = scene.soft.members[M1]
    bare = replace(scene.soft, members=scene.soft.members.having(M1, replace(heard, said=None)))
    assert bare == scene.soft
    item = heartbeat(scene)
    one = decide(scene.group, scene.soft, item, scene.now_ms, scene.policy)
    other = decide(scene.group, bare, item, scene.now_ms, scene.policy)
    assert one == other


def test_soft_state_keeps_every_field_but_what_was_heard() -> None:
    """What is spelled out is whole: the soft state afterwards differs in ``heard_ms`` and ``seq`` alone."""
    scene = at_rest()
    scene.soft = replace(scene.soft, bound_target=False, judge_from_ms=7)
    before = scene.soft
    scene.wait(3_000)
    item = heartbeat(scene)
    after = decide(scene.group, before, item, scene.now_ms, scene.policy).soft
    kept = replace(before.members[M1], heard_ms=scene.now_ms, seq=item.seq)
    assert after == replace(before, members=before.members.having(M1, kept))
    assert after.members[M1].said is before.members[M1].said
