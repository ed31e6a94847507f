"""A heartbeat that repeats the last one changes nothing but when its member was heard."""

from dataclasses import replace

import pytest
from tests.core.scene import Scene, copy, failed, restoring, running, topology

from batonpass.core.decide import decide
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import EndOffsets, Heartbeat, PauseRequest, PollBroken
from batonpass.core.state.model import Role, Subtopology, Topology
from batonpass.core.state.replies import Answer, Done
from batonpass.core.state.soft import MeasuredReport, TaskReport

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
    reports = {TaskId(task): report for task, report in (WORDS if tasks is None else tasks).items()}
    return replace(Heartbeat(M1, 10_000, scene.member("m1").epoch, reports), **fields)  # type: ignore[arg-type]


def reports_after(scene: Scene, item: Heartbeat) -> dict[TaskId, MeasuredReport]:
    """Return the reports of the sender as a heartbeat would leave them."""
    decision = decide(scene.group, scene.soft, (item,), scene.now_ms, scene.policy)
    return dict(decision.soft.members[item.member_id].reports)


def test_the_same_words_change_nothing_but_when_the_member_was_heard() -> None:
    scene = at_rest()
    before = scene.soft
    scene.wait(3_000)
    item = heartbeat(scene)
    reply = scene.ok(item, Answer)
    known = before.members[M1]
    assert (reply.seq, reply.assignment, reply.report, reply.status) == (10_000, None, None, ())
    assert scene.soft.members[M1] == replace(known, heard_ms=scene.now_ms, seq=10_000, rhythm_ms=3_000)
    assert scene.soft.members[M1].reports is known.reports
    assert scene.last is not None
    assert scene.last.records == ()


@pytest.mark.parametrize(
    "reports",
    [
        {"0_0": running(), "0_1": running(input_lag=4)},
        {"0_0": running()},
        {"0_0": running(), "0_2": running(input_lag=3)},
        {"0_0": running(), "0_1": restoring(5)},
        {"0_0": running(lost=True), "0_1": running(input_lag=3)},
    ],
)
def test_other_words_are_looked_into(reports: dict[str, TaskReport]) -> None:
    scene = at_rest()
    scene.now_ms += 3_000
    found = reports_after(scene, heartbeat(scene, reports))
    known = {task for task in reports if task in scene.group.table.index_of}
    assert {task: measured.report for task, measured in found.items()} == {task: reports[task] for task in known}
    examined = {task for task, measured in found.items() if measured.at_ms == scene.now_ms}
    assert examined == {task for task in known if reports[task] != WORDS[task]}


def test_no_report_leaves_the_last_one_standing() -> None:
    scene = at_rest()
    before = dict(scene.soft.members[M1].reports)
    assert reports_after(scene, replace(heartbeat(scene), tasks=None)) == before


@pytest.mark.parametrize("report", [restoring(5), restoring(0), failed(), copy("standby", 11), copy("standby", None)])
def test_what_time_decides_about_is_looked_into_each_time(report: TaskReport) -> None:
    """A task that restores, failed or is behind may get on or not: the same words later are news."""
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=10)
    scene.join("m1")
    for seq in (1, 2):
        scene.now_ms += 1_000
        scene.ok(Heartbeat(M1, seq, scene.member("m1").epoch, {TaskId("0_0"): report}), Answer)
        assert scene.soft.members[M1].reports[TaskId("0_0")].at_ms == scene.now_ms


def test_what_else_the_same_words_say_is_heard() -> None:
    scene = at_rest()
    scene.ok(PauseRequest(), Done)
    named = scene.ok(heartbeat(scene, unknown_fields=("x",)), Answer).status
    assert [code for code, _ in named] == ["group-paused", "unknown-field"]
    assert [code for code, _ in scene.ok(heartbeat(scene, seq=10_001), Answer).status] == ["group-paused"]
    scene.policy = replace(scene.policy, max_tasks_per_heartbeat=1)
    assert not isinstance(scene.do(heartbeat(scene, seq=10_002)), Answer)


def test_the_same_words_under_a_new_epoch_confirm_what_was_revoked() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    [task] = scene.held("m2", Role.WARMUP)
    [kept] = [one for one in ("0_0", "0_1") if one != task]
    epoch = scene.member("m1").epoch
    scene.beat("m1", {kept: running()}, epoch=epoch)
    scene.beat("m2", {task: copy("warmup", 0)})
    assert scene.member("m1").revoking
    scene.beat("m1", {kept: running()}, epoch=epoch)
    assert scene.member("m1").revoking
    scene.beat("m1", {kept: running()})
    assert not scene.member("m1").revoking
    assert scene.task(task).owner == "m2"


def test_a_broken_poll_is_forgotten_by_any_word() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1", on_lease_lost="continue")
    scene.settle()
    for _ in range(2):
        scene.beat("m1", dict(WORDS))
    scene.ok(PollBroken(M1), Done)
    scene.ok(heartbeat(scene), Answer)
    assert scene.soft.members[M1].poll_broken_ms is None


def test_an_end_that_was_read_makes_the_same_words_news() -> None:
    """A copy's position then means another lag."""
    scene = Scene()
    shape = Topology(1, (Subtopology("0", 1, changelog_topics=("store",)),))
    scene.declare(shape, num_standby_replicas=1, acceptable_recovery_lag=10)
    scene.join("m1")
    scene.join("m2")
    scene.settle()
    [standby] = scene.group.tasks[TaskId("0_0")].standbys
    reports = {TaskId("0_0"): copy("standby", None, positions=(("", 7),), end_offsets=(("", 7),))}
    epoch = scene.group.members[standby].epoch
    scene.ok(Heartbeat(standby, 10_001, epoch, reports), Answer)
    scene.now_ms += scene.group.position_age_max_ms + 1
    scene.ok(EndOffsets({("store", 0): 900}, read_ms=scene.now_ms), Done)
    assert scene.soft.members[standby].reports[TaskId("0_0")].lag == 893
    scene.now_ms += 1_000
    assert reports_after(scene, Heartbeat(standby, 10_002, epoch, reports))[TaskId("0_0")].at_ms == scene.now_ms
