"""What one member's report may hold is bounded by the tasks and changelogs of the topology; the rest is named."""

import pytest
from tests.core.scene import Scene, copy, running

from batonpass.core.arrivals.report_bounds import NAMED_MAX
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Heartbeat, Join
from batonpass.core.state.model import Subtopology, Topology
from batonpass.core.state.policy import Policy
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import Positions, TaskReport

M1, T0 = MemberId("m1"), TaskId("0_0")
INVENTED: Positions = tuple((f"made-up-{number:05}", number) for number in range(5_000))
STORE: Positions = (("store", 7),)


def scene_of(*changelogs: str, policy: Policy | None = None) -> Scene:
    """Return a group of two tasks, each with these changelogs, that m1 has."""
    scene = Scene(policy=policy)
    scene.declare(Topology(1, (Subtopology("0", 2, changelog_topics=changelogs),)))
    scene.join("m1")
    scene.settle()
    return scene


def kept(scene: Scene) -> TaskReport:
    """Return what is kept of m1's report of the first task."""
    return scene.soft.members[M1].reports[T0].report


def status(scene: Scene, report: TaskReport) -> list[tuple[str, str]]:
    """Let m1 report this of its first task; return the statuses that its answer has beside the assignment."""
    reply = scene.beat("m1", {"0_0": report, "0_1": running()})
    assert isinstance(reply, Answer)
    return list(reply.status)


@pytest.mark.parametrize("field", ["positions", "end_offsets", "final_position"])
def test_invented_changelogs_are_not_kept_and_are_named(field: str) -> None:
    scene = scene_of("store")
    statuses = status(scene, running(**{field: (*INVENTED, *STORE)}))
    assert kept(scene) == running(**{field: STORE})
    assert [code for code, _ in statuses] == ["unknown-field"] * (NAMED_MAX + 1)
    assert statuses[0][1] == "made-up-00000 is no changelog of task 0_0; its offsets were ignored"
    assert statuses[-1][1] == f"and {5_000 - NAMED_MAX} more of this kind"
    assert status(scene, running(**{field: STORE})) == []


def test_a_repeated_report_gets_the_same_status_again() -> None:
    scene = scene_of("store")
    report = running(positions=(("old-store", 3), ("store", 7)))
    first = status(scene, report)
    assert [code for code, _ in first] == ["unknown-field"]
    assert status(scene, report) == first
    assert kept(scene).positions == STORE


def test_a_join_holds_no_more_than_a_heartbeat() -> None:
    scene = scene_of("store")
    on_disk = copy("none", None, positions=(*INVENTED, *STORE))
    unknown = {TaskId(f"9_{number}"): on_disk for number in range(1_000)}
    reply = scene.ok(Join(MemberId("m2"), tasks={T0: on_disk, **unknown}), Answer)
    assert {task: one.report.positions for task, one in scene.soft.members[MemberId("m2")].reports.items()} == {
        T0: STORE
    }
    assert [code for code, _ in reply.status].count("unknown-task") == NAMED_MAX + 1
    assert ("unknown-task", f"and {1_000 - NAMED_MAX} more of this kind") in reply.status
    assert len(reply.status) == 2 * (NAMED_MAX + 1)


def test_a_final_position_is_passed_on_without_invented_changelogs() -> None:
    scene = scene_of("store")
    scene.join("m2")
    scene.obey("m2")
    [task] = scene.member("m1").revoking
    others = {one: running() for one in ("0_0", "0_1") if one != task}
    scene.beat("m1", others | {task: TaskReport("none", final_position=(*INVENTED, *STORE))})
    grant = scene.grant("m2", task)
    assert grant is not None
    assert grant.restore_to == STORE


def test_a_changelog_without_a_name_is_the_only_one() -> None:
    for changelogs in ((), ("store",), ("left", "right")):
        scene = scene_of(*changelogs)
        assert status(scene, running(positions=(("", 5),))) == []
        assert kept(scene).positions == (("", 5),)


def test_changelogs_that_the_topology_does_not_name_are_few() -> None:
    """Of more than those none counts: their lag would be too little (protocol 4.8)."""
    scene = scene_of(policy=Policy(max_unnamed_changelogs=2))
    two: Positions = (("left", 1), ("right", 2))
    assert status(scene, running(positions=two, end_offsets=two)) == []
    assert kept(scene).positions == two
    three = (*two, ("third", 3))
    [(code, detail)] = status(scene, running(lag=4, positions=three, end_offsets=two))
    assert (code, kept(scene)) == ("unknown-field", running(lag=4))
    assert "a report may name 2 such; name them in its changelog_topics" in detail


def test_what_is_kept_of_a_member_does_not_grow_with_what_it_invents() -> None:
    scene = scene_of("left", "right")
    honest = running(positions=(("left", 1), ("right", 2)))
    reports = {T0: honest._replace(positions=(*honest.positions, *INVENTED)), TaskId("0_1"): running()}
    reports |= {TaskId(f"8_{number}"): running(detail="x" * 2_000) for number in range(1_000)}
    scene.ok(Heartbeat(M1, 9_000, scene.member("m1").epoch, reports), Answer)
    held = scene.soft.members[M1].reports
    assert {task: one.report for task, one in held.items()} == {T0: honest, TaskId("0_1"): running()}


def large_scene(tasks: int, most: int) -> Scene:
    """Return a group of so many tasks that m1 has, in which so much may be kept on tasks that members do not have."""
    scene = Scene(policy=Policy(max_unassigned_reported=most))
    scene.declare(Topology(1, (Subtopology("0", tasks, changelog_topics=("store",)),)))
    scene.join("m1")
    scene.settle()
    return scene


def on_disk(tasks: int) -> dict[TaskId, TaskReport]:
    """Return what a disk has of the first tasks; each report counts two."""
    return {TaskId(f"0_{number}"): copy("none", None, positions=STORE) for number in range(tasks)}


def kept_of(scene: Scene, name: str) -> int:
    """Return of how many tasks something is kept that a member reported."""
    return len(scene.soft.members[MemberId(name)].reports)


def test_what_members_report_of_tasks_that_they_do_not_have_does_not_grow_with_their_number() -> None:
    """The answer says that the rest is not kept."""
    scene = large_scene(20, 100)
    scene.change(rebalance_batch_ms=60_000)
    for number in range(2, 12):
        said = dict(scene.ok(Join(MemberId(f"n{number}"), tasks=on_disk(20)), Answer).status)
        assert ("BATONPASS_UNASSIGNED_REPORTED_MAX" in said.get("too-many-reported", "")) == (number > 3)
    assert [kept_of(scene, f"n{number}") for number in range(2, 12)] == [20, 20, 10, *[0] * 7]
    for number in range(2, 12):
        name = f"n{number}"
        scene.ok(Heartbeat(MemberId(name), 9_000, scene.member(name).epoch, on_disk(20)), Answer)
    assert sum(kept_of(scene, f"n{number}") for number in range(2, 12)) * 2 <= 100


def test_what_a_member_has_is_kept_whatever_others_report_and_so_is_first_what_it_says_that_it_runs() -> None:
    scene = large_scene(20, 10)
    scene.change(rebalance_batch_ms=60_000)
    owner = {f"0_{number}": running(positions=STORE) for number in range(20)}
    scene.join("m2")
    scene.beat("m1", owner)
    assert kept_of(scene, "m1") == 20
    runs = on_disk(19) | {TaskId("0_19"): running(positions=STORE)}
    reply = scene.ok(Heartbeat(MemberId("m2"), 9_000, scene.member("m2").epoch, runs), Answer)
    assert "reports on 15 tasks" in dict(reply.status)["too-many-reported"]
    assert sorted(scene.soft.members[MemberId("m2")].reports) == ["0_0", "0_1", "0_10", "0_11", "0_19"]
    again = scene.ok(Heartbeat(MemberId("m2"), 9_001, scene.member("m2").epoch, runs), Answer)
    assert again.status == reply.status


def test_room_that_a_member_leaves_is_there_for_others() -> None:
    scene = large_scene(20, 60)
    scene.change(rebalance_batch_ms=60_000)
    scene.ok(Join(MemberId("m2"), tasks=on_disk(20)), Answer)
    scene.ok(Join(MemberId("m3"), tasks=on_disk(20)), Answer)
    assert kept_of(scene, "m3") == 10
    scene.ok(Heartbeat(MemberId("m2"), 9_000, scene.member("m2").epoch, {}), Answer)
    scene.ok(Heartbeat(MemberId("m3"), 9_000, scene.member("m3").epoch, on_disk(20)), Answer)
    assert kept_of(scene, "m3") == 20


def test_a_task_that_the_group_has_no_more_is_given_up_once_its_member_no_longer_runs_it() -> None:
    """Nothing else is kept of such a report. The heartbeats meanwhile count, and the task may come back."""
    old = Topology(1, (Subtopology("0", 2), Subtopology("1", 1)))
    scene = Scene()
    scene.declare(old)
    scene.join("m1")
    scene.settle()
    scene.change(Topology(1, old.subtopologies[:1]))
    still = {"0_0": running(), "0_1": running(), "1_0": running(final_position=STORE)}
    for _ in range(2):
        reply = scene.beat("m1", still)
        assert isinstance(reply, Answer)
        assert ("unknown-task", "1_0 is not a task of this group") in reply.status
    scene.change(old)
    scene.join("m2")
    scene.wait(3_000)
    scene.beat("m2", {})
    assert "m1" in {entry.member_id for entry in scene.task("1_0").handover.unreleased}
    scene.beat("m1", {"0_0": running(), "0_1": running()})
    assert not scene.task("1_0").handover.unreleased
