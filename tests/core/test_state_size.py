"""How much there is to restore: what is known of it, and that little state moves first."""

import pytest
from tests.core.scene import Scene, copy, restoring, running

from batonpass.codec.answers import to_json
from batonpass.codec.snapshots import read_snapshot, write_snapshot
from batonpass.core.handover.state_size import lag_at_start, state_sizes
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import EndOffsets
from batonpass.core.state.model import Role, Subtopology, Topology
from batonpass.core.state.pmap import PMap
from batonpass.core.state.records import AssignmentChanged
from batonpass.core.state.replies import Done
from batonpass.core.state.soft import TaskReport
from batonpass.dry_run.plan import plan_snapshot
from batonpass.dry_run.whatif import Newcomers, WhatIf, imagine
from batonpass.explain.status import snapshot_of

M2 = MemberId("m2")
Offsets = dict[tuple[str, int], int]


def stage(partitions: int = 2, logs: tuple[str, ...] = ("log",)) -> Scene:
    """Return a group whose tasks all run on m1."""
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", partitions, changelog_topics=logs),)))
    scene.join("m1")
    scene.settle()
    return scene


def read(scene: Scene, ends: Offsets, begins: Offsets | None = None) -> None:
    """Let the coordinator have read where changelogs end and begin."""
    scene.ok(EndOffsets(ends, scene.now_ms, begins or {}), Done)


def say(scene: Scene, **reports: TaskReport) -> None:
    """Let m1 report its actives: as running, or as given by ``_0_1`` and the like."""
    given = {task.removeprefix("_"): report for task, report in reports.items()}
    scene.beat("m1", {task: running() for task in scene.held("m1", Role.ACTIVE)} | given)


def sizes(scene: Scene) -> list[int]:
    """Return what is known of each task, by rank."""
    size = state_sizes(scene.group, scene.soft)
    return [size.get(task_index, 0) for task_index in range(len(scene.group.table.ids))]


def goes(scene: Scene) -> list[str]:
    """Let m2 join; return the tasks that are to go to it."""
    scene.join("m2")
    scene.tick()
    return [task for task in scene.group.table.ids if scene.task(task).target.owner == M2]


def test_what_was_read_counts_from_the_beginning_to_the_end_of_all_changelogs() -> None:
    """Without a beginning the whole counts; 0 is a size that is not known."""
    scene = stage(3, ("left", "right"))
    assert sizes(scene) == [0, 0, 0]
    read(
        scene,
        {("left", 0): 900, ("right", 0): 50, ("left", 1): 70, ("right", 1): 5, ("left", 2): 9},
        {("left", 0): 880, ("right", 0): 50},
    )
    assert sizes(scene) == [20, 75, 0]
    read(scene, {("left", 0): 910}, {("left", 0): 905})
    assert sizes(scene) == [5, 75, 0]


def test_what_members_report_counts_where_nothing_was_read() -> None:
    """The farthest end that a report implies: position and lag, or the lag alone."""
    scene = stage(4)
    positions = (("", 300),)
    say(scene, _0_0=restoring(positions=positions, end_offsets=(("", 450),)), _0_1=restoring(70))
    scene.join("m2", {"0_0": copy("none", lag=None, positions=positions), "0_2": copy("none", 8)})
    assert sizes(scene) == [450, 70, 8, 0]
    read(scene, {("log", 0): 500, ("log", 3): 30})
    assert sizes(scene) == [500, 70, 8, 30]


@pytest.mark.parametrize("small", ["0_0", "0_1"])
def test_of_two_tasks_that_are_otherwise_equal_the_one_with_little_state_moves(small: str) -> None:
    scene = stage()
    large = {"0_0": "0_1", "0_1": "0_0"}[small]
    ends = {("log", int(task[-1])): end for task, end in ((small, 900_000), (large, 800_000))}
    read(scene, ends, {("log", int(small[-1])): 899_000})
    assert goes(scene) == [small]


@pytest.mark.parametrize("small", ["0_0", "0_1"])
def test_without_kafka_what_members_report_decides_alike(small: str) -> None:
    scene = stage()
    ends = dict.fromkeys(("0_0", "0_1"), 500000) | {small: 400_000}
    say(scene, **{f"_{task}": running(positions=(("", end),), end_offsets=(("", end),)) for task, end in ends.items()})
    assert goes(scene) == [small]


def test_the_smaller_half_moves_and_another_size_later_moves_nothing() -> None:
    """Sizes choose among moves that are needed; they are no reason for one."""
    scene = stage(6)
    read(scene, {("log", partition): 1_000 * (6 - partition) for partition in range(6)})
    assert goes(scene) == ["0_3", "0_4", "0_5"]
    scene.settle(60)
    generation = scene.group.generation
    read(scene, {("log", partition): 10_000 * (partition + 1) for partition in range(6)})
    scene.wait(1_300_000)
    assert scene.group.generation == generation


def test_a_snapshot_carries_sizes_so_that_its_plan_is_the_groups() -> None:
    scene = stage(4)
    read(scene, {("log", partition): 1_000 * (4 - partition) for partition in range(4)})
    snapshot = snapshot_of(scene.view())
    m1 = next(member for member in snapshot.members if member.id == "m1")
    assert [m1.tasks[TaskId(f"0_{partition}")].end_offset for partition in range(4)] == [4_000, 3_000, 2_000, 1_000]
    read_again = read_snapshot(to_json(write_snapshot(snapshot)))
    assert read_again == snapshot
    plan = plan_snapshot(imagine(read_again, WhatIf(join=(Newcomers(),)), max_members=9))
    assert list(plan.target[MemberId("join-1")]["active"]) == goes(scene) == ["0_2", "0_3"]


def lags(scene: Scene) -> dict[str, int]:
    """Let m2 join; return what the warmups have to restore, as their grants tell."""
    goes(scene)
    scene.settle()
    granted = [one for one in scene.log if isinstance(one, AssignmentChanged) and one.member_id == M2]
    assert any(grant.role is Role.WARMUP for one in granted for grant in one.granted.values())
    return {str(task): lag for one in granted for task, lag in one.lags.items()}


def test_the_grant_of_a_warmup_tells_what_there_is_to_restore() -> None:
    scene = stage(4)
    read(scene, {("log", partition): 1_000 * (4 - partition) for partition in range(4)}, {("log", 3): 600})
    assert lags(scene) == {"0_2": 2_000, "0_3": 400}


def test_where_nothing_was_read_the_grant_tells_what_the_owner_reports() -> None:
    """The position of a running owner is where the changelog ends."""
    scene = stage(4)
    ends = {f"_0_{partition}": 1_000 * (4 - partition) for partition in range(3)}
    say(scene, **{name: running(positions=(("", end),), end_offsets=(("", end),)) for name, end in ends.items()})
    assert lags(scene) == {"0_2": 2_000}


def test_of_state_on_disk_the_grant_tells_how_far_it_is_behind() -> None:
    """The whole changelog, as it was read, is more than there is left to do."""
    scene = stage(2)
    read(scene, {("log", 0): 50_000, ("log", 1): 50_000})
    scene.change(acceptable_recovery_lag=10)
    scene.join("m2", {"0_1": copy("none", positions=(("", 49_300),), lag=None)})
    scene.tick()
    (changed,) = [one for one in scene.log if isinstance(one, AssignmentChanged) and one.member_id == M2]
    assert list(changed.granted) == ["0_1"]
    assert changed.lags == {TaskId("0_1"): 700}


def test_the_lag_of_a_member_that_has_not_reported_yet_is_unknown() -> None:
    """The member may have all of it on its disk."""
    scene = stage(2)
    read(scene, {("log", 0): 50_000, ("log", 1): 50_000})
    scene.join("m2")
    view = scene.view()
    assert lag_at_start(view, scene.task("0_1"), M2) == 50_000
    unheard = scene.soft._replace(members=PMap())
    view = View(scene.group, unheard, scene.now_ms)
    assert lag_at_start(view, scene.task("0_1"), M2) is None


def test_a_part_whose_partitions_are_not_known_yet_has_no_tasks_to_measure() -> None:
    scene = stage(2)
    unknown = Subtopology("1", None, source_topics=("new",), changelog_topics=("more",))
    scene.change(Topology(1, (*scene.group.topology.subtopologies, unknown)))
    read(scene, {("log", 0): 70, ("more", 0): 9})
    assert sizes(scene) == [70, 0]
