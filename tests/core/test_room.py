"""Room on disks: ``max_disk_bytes`` is hard as ``max_tasks`` is, for what a member has not on its disk yet."""

from collections.abc import Mapping

import pytest
from tests.core.scene import Scene, copy, replace_report, restoring, running, topology

from batonpass.core.handover.room import ANY_NUMBER, DiskRoom, room_on_disks
from batonpass.core.handover.step import plan_step
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Eviction, Leave, PinRequest, ProbeRequest, Started
from batonpass.core.state.model import Role
from batonpass.core.state.reasons import Held
from batonpass.core.state.replies import Done
from batonpass.core.state.soft import TaskReport

SIZE = 10


def obey(scene: Scene, *names: str, lag: int = 0, sizes: Mapping[str, int] | None = None) -> None:
    """Let members (default: all) report what their assignments say, and what each task takes on the disk."""
    for name in names or sorted(scene.group.members):
        reports: dict[str, TaskReport] = {}
        for task, grant in scene.member(name).assignment.items():
            report = running() if grant.role is Role.ACTIVE else copy(grant.role, lag)
            is_stateful = scene.group.table.stateful[scene.group.table.index_of[task]]
            reports[task] = replace_report(report, {"disk_bytes": (sizes or {}).get(task, SIZE)} if is_stateful else {})
        scene.beat(name, reports)


def settle(scene: Scene, sizes: Mapping[str, int] | None = None) -> None:
    """Let all members obey, a second apart, until nothing changes any more."""
    for _ in range(40):
        version = scene.group.version
        scene.tick(1_000)
        obey(scene, sizes=sizes)
        if scene.group.version == version:
            return
    raise AssertionError(f"no rest; unsettled: {dict(scene.group.unsettled)}")


def scene_of(partitions: int, *, stateless: int = 0, **config: object) -> Scene:
    """Return a group whose tasks run on m1, each of them with so many bytes of state."""
    scene = Scene()
    scene.declare(topology(partitions, stateless=stateless), **config)
    scene.join("m1")
    settle(scene)
    return scene


def room(scene: Scene, name: str) -> DiskRoom:
    """Return the room of one member."""
    return room_on_disks(scene.group, scene.soft)[MemberId(name)]


def test_a_member_takes_as_much_as_fits_on_its_disk() -> None:
    scene = scene_of(8)
    scene.join("m2", max_disk_bytes=2 * SIZE + 3)
    settle(scene)
    assert len(scene.held("m2", Role.ACTIVE)) == 2
    assert scene.group.unsettled == {}
    assert room(scene, "m2") == DiskRoom(frozenset(map(TaskId, scene.held("m2", Role.ACTIVE))), 0)
    generation = scene.group.generation
    scene.ok(ProbeRequest(), Done)
    assert scene.group.generation == generation


def test_what_fits_nowhere_waits() -> None:
    scene = scene_of(4)
    scene.join("m2", max_disk_bytes=SIZE)
    settle(scene)
    [kept] = scene.held("m2", Role.ACTIVE)
    scene.ok(Leave(MemberId("m1")), Done)
    scene.tick(1_000)
    assert "m1" not in scene.group.members
    assert scene.owners() == {task: "m2" if task == kept else None for task in scene.owners()}
    waiting = [scene.task(task) for task in scene.owners() if task != kept]
    assert {task.target.waiting_reason for task in waiting} == {Held.NO_CAPACITY.value}
    scene.join("m3")
    settle(scene)
    assert None not in scene.owners().values()


def test_tasks_without_state_take_no_room() -> None:
    scene = scene_of(4, stateless=4)
    scene.join("m2", max_disk_bytes=SIZE - 1)
    settle(scene)
    assert scene.held("m2", Role.ACTIVE) == ["1_0", "1_1", "1_2", "1_3"]
    assert scene.group.unsettled == {}


def test_standbys_take_room_like_actives() -> None:
    scene = scene_of(4, num_standby_replicas=1)
    scene.join("m2", max_disk_bytes=3 * SIZE)
    settle(scene)
    assert len(scene.member("m2").assignment) == 3
    assert scene.group.unsettled == {}


def test_state_that_is_there_takes_no_room_of_another() -> None:
    """A worker comes back to a disk that is full with its own state."""
    scene = scene_of(4)
    on_disk = {f"0_{number}": copy("none", 0, disk_bytes=SIZE) for number in range(2)}
    scene.join("m2", on_disk, max_disk_bytes=2 * SIZE)
    settle(scene)
    assert scene.held("m2", Role.ACTIVE) == ["0_0", "0_1"]
    assert scene.group.unsettled == {}


def test_what_grows_beyond_the_limit_stays() -> None:
    scene = scene_of(4)
    scene.join("m2", max_disk_bytes=5 * SIZE)
    settle(scene)
    owners = scene.owners()
    for _ in range(3):
        obey(scene, sizes=dict.fromkeys(owners, 9 * SIZE))
        scene.ok(ProbeRequest(), Done)
    assert scene.owners() == owners
    assert room(scene, "m2").more == 0


def test_a_copy_that_fits_no_more_is_not_begun() -> None:
    """The state has grown since the target was placed."""
    scene = scene_of(6, max_warmup_replicas=1)
    scene.join("m2", max_disk_bytes=3 * SIZE)
    scene.tick(1_000)
    [first] = scene.held("m2", Role.WARMUP)
    assert len([task for task in scene.group.tasks.values() if task.target.owner == "m2"]) == 3
    settle(scene, sizes=dict.fromkeys(scene.owners(), 2 * SIZE))
    assert scene.held("m2", Role.ACTIVE) == [first]
    assert {entry.reason for entry in plan_step(scene.view()).held} == {Held.NO_CAPACITY}
    assert scene.group.next_probe_ms is not None
    scene.ok(ProbeRequest(), Done)
    assert scene.group.unsettled == {}
    assert scene.held("m2", Role.ACTIVE) == [first]


def test_what_is_promised_drives_out_nothing() -> None:
    """The disk of the next owner has become full meanwhile."""
    scene = scene_of(3)
    scene.join("m2", max_disk_bytes=2 * SIZE)
    settle(scene)
    [kept] = scene.held("m2", Role.ACTIVE)
    scene.ok(Eviction(MemberId("m1")), Done)
    scene.tick(1_000)
    [promised] = [task.id for task in scene.group.tasks.values() if task.handover.next_owner == "m2"]
    obey(scene, "m2", sizes={kept: 2 * SIZE})
    scene.join("m3")
    scene.ok(ProbeRequest(), Done)
    assert (scene.task(kept).target.owner, scene.task(promised).handover.next_owner) == ("m2", "m3")
    for _ in range(60):
        scene.tick(1_000)
        obey(scene, sizes={kept: 2 * SIZE})
    scene.ok(ProbeRequest(), Done)
    settle(scene, sizes={kept: 2 * SIZE})
    assert {task: owner for task, owner in scene.owners().items() if owner == "m2"} == {kept: "m2"}
    assert scene.group.unsettled == {}


def test_the_largest_state_is_what_counts() -> None:
    """A flow counts tasks: as many go to a member as fit if each were as large as the largest."""
    scene = scene_of(4)
    obey(scene, sizes={"0_3": 5 * SIZE})
    scene.join("m2", max_disk_bytes=9 * SIZE)
    assert len(scene.member("m2").assignment) == 1


@pytest.mark.parametrize(("limit", "more"), [(0, 0), (1, ANY_NUMBER)])
def test_as_long_as_nobody_says_what_state_takes_any_number_fits(limit: int, more: int) -> None:
    scene = Scene()
    scene.declare(topology(4))
    scene.join("m1", max_disk_bytes=limit)
    assert room(scene, "m1").more == more
    scene.settle()
    assert set(scene.owners().values()) == ({"m1"} if more else {None})


def test_after_a_start_nothing_more_is_given_before_a_member_has_spoken() -> None:
    """What a member has on its disk is soft: until it says so again, its disk counts as full."""
    scene = scene_of(4)
    scene.join("m2", max_disk_bytes=9 * SIZE)
    settle(scene)
    scene.soft = type(scene.soft)()
    scene.ok(Started(), Done)
    assert room(scene, "m2").more == 0
    obey(scene)
    assert room(scene, "m2").more == 7


def test_state_that_is_lost_is_not_there() -> None:
    """The bytes of a lost copy count for as long as they are reported."""
    scene = scene_of(2)
    scene.join("m2", {"0_0": copy("none", None, lost=True, disk_bytes=3)}, max_disk_bytes=SIZE)
    assert room(scene, "m2") == DiskRoom(frozenset(), 0)


def test_a_pin_finds_no_room_on_a_full_disk() -> None:
    scene = scene_of(2)
    scene.join("m2", max_disk_bytes=SIZE - 1)
    scene.ok(PinRequest(TaskId("0_0"), MemberId("m2")), Done)
    settle(scene)
    assert set(scene.owners().values()) == {"m1"}
    scene.ok(ProbeRequest(), Done)
    assert scene.last is not None
    assert (Held.NO_CAPACITY, "0_0") in {(reason.code, reason.task) for reason in scene.last.reasons}


def test_limits_of_both_kinds_are_limits() -> None:
    scene = scene_of(2)
    assert not scene.view().limited
    scene.join("m2", max_disk_bytes=1)
    assert scene.view().limited
    assert restoring(3).disk_bytes is None


def test_what_was_granted_and_has_no_size_yet_takes_its_room() -> None:
    """Tasks that never ran: each further look found the room again that it had just given."""
    scene = scene_of(2)
    scene.join("m2", max_disk_bytes=5 * SIZE)
    settle(scene)
    had = len(scene.member("m2").assignment)
    scene.ok(Leave(MemberId("m1")), Done)
    scene.tick(1_000)
    for partitions in range(20, 26):
        scene.change(topology(partitions))
        scene.tick(1)
    assert had
    assert len(scene.member("m2").assignment) == 5
    assert room(scene, "m2").more == 0
