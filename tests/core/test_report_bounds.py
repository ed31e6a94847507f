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
