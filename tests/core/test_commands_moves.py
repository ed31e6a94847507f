"""Pausing, pinning, releasing, probing: what operators ask of a group that runs."""

import pytest
from tests.core.scene import START_MS, Scene, copy, running, topology
from tests.core.scenes import reasons, settled

from batonpass.core.state.errors import (
    InvalidRequest,
    UnknownGroup,
    UnknownMember,
)
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    EndOffsets,
    GroupDeletion,
    Heartbeat,
    Input,
    Join,
    Leave,
    PartitionCounts,
    PauseRequest,
    PinRequest,
    ProbeRequest,
    ReleaseRequest,
    ResumeRequest,
    Started,
)
from batonpass.core.state.model import Pause, PauseScope, Role
from batonpass.core.state.records import Resumed, TargetPlaced
from batonpass.core.state.replies import Answer, Done

M1, M2 = MemberId("m1"), MemberId("m2")
T0 = TaskId("0_0")


def test_a_pause_of_balance_holds_moves_made_for_balance_only() -> None:
    """Protocol 12.3."""
    scene = settled(2, 4)
    scene.ok(PauseRequest(reason="release day"), Done)
    assert scene.group.pause == Pause(PauseScope.BALANCE, "release day", scene.now_ms, None)
    owners = scene.owners()
    scene.join("m3")
    for _ in range(5):
        scene.tick(1_000)
        scene.obey()
    assert scene.owners() == owners
    assert scene.ok(Heartbeat(M1, 999, scene.member("m1").epoch), Answer).status == (("group-paused", "release day"),)
    scene.do(Leave(M2))
    for _ in range(5):
        scene.tick(1_000)
        scene.obey()
    assert None not in scene.owners().values()
    assert M2 not in scene.owners().values()


def test_a_pause_of_balance_lets_drains_go_on() -> None:
    """A drain is an operator's wish of its own."""
    scene = settled(2, 4)
    scene.do(PauseRequest())
    scene.do(DrainRequest(M2))
    scene.settle(60)
    assert set(scene.owners().values()) == {"m1"}


def test_a_pause_of_all_holds_drains_too() -> None:
    scene = settled(2, 4)
    owners = scene.owners()
    scene.do(PauseRequest(PauseScope.ALL))
    scene.do(DrainRequest(M2))
    for _ in range(5):
        scene.tick(1_000)
        scene.obey()
    assert scene.owners() == owners
    scene.do(ResumeRequest())
    scene.settle(60)
    assert set(scene.owners().values()) == {"m1"}


@pytest.mark.parametrize("ends_by_itself", [False, True])
def test_what_was_held_is_placed_anew_before_slots_are_given(*, ends_by_itself: bool) -> None:
    """Else standbys that the target of the pause wants would take the slots from actives that are to move."""
    scene = Scene()
    settings = {"num_standby_replicas": 1, "max_warmup_replicas": 2, "rebalance_batch_ms": 50}
    scene.declare(topology(12), **settings)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle(60)
    scene.do(PauseRequest(expires_ms=scene.now_ms + 60_000 if ends_by_itself else None))
    scene.join("m4")
    scene.tick(50)
    scene.obey()
    assert scene.held("m4", Role.WARMUP) == []
    if ends_by_itself:
        for _ in range(19):
            scene.wait(3_000)
            scene.obey()
        scene.wait(3_000)
        assert scene.group.pause is None
    else:
        scene.do(ResumeRequest())
    moving = [task.id for task in scene.group.tasks.values() if task.target.owner == "m4"]
    warming = scene.held("m4", Role.WARMUP)
    assert len(moving) == 3
    assert len(warming) == 2
    assert set(warming) <= set(moving)


def test_a_pause_ends_by_itself() -> None:
    """Protocol 12.5."""
    scene = settled(1, 4)
    scene.do(PauseRequest(expires_ms=scene.now_ms + 60_000))
    scene.join("m2")
    for _ in range(19):
        scene.wait(3_000)
        scene.obey()
    assert scene.held("m2", Role.ACTIVE) == []
    assert [type(record) for record in scene.log if isinstance(record, Resumed)] == []
    scene.wait(3_000)
    assert scene.group.pause is None
    scene.settle(60)
    assert len(scene.held("m2", Role.ACTIVE)) == 2


def test_a_pause_for_a_time_ends_by_the_clock_that_judges_it() -> None:
    """Protocol 12.5."""
    scene = settled(1, 4)
    scene.do(PauseRequest(for_ms=60_000))
    assert scene.group.pause is not None
    assert scene.group.pause.expires_ms == scene.now_ms + 60_000


def test_a_pause_cannot_end_in_the_past() -> None:
    """Protocol 12.5."""
    scene = settled(2, 4)
    refused = scene.refused(PauseRequest(expires_ms=scene.now_ms), InvalidRequest)
    assert [path for path, _ in refused.errors] == ["expires_at"]
    assert scene.group.pause is None


def test_resuming_what_is_not_paused_is_nothing() -> None:
    scene = settled(2, 4)
    group = scene.group
    scene.ok(ResumeRequest(), Done)
    assert scene.group is group


def test_a_second_pause_replaces_the_first() -> None:
    """Protocol 12.5."""
    scene = settled(2, 4)
    scene.do(PauseRequest(PauseScope.ALL, "a", scene.now_ms + 5_000))
    scene.do(PauseRequest(PauseScope.BALANCE, "b"))
    assert scene.group.pause == Pause(PauseScope.BALANCE, "b", scene.now_ms, None)


def test_a_pinned_task_moves_warm_to_its_member_and_stays() -> None:
    """Protocol 12.3."""
    scene = settled(2, 4)
    task = TaskId(scene.held("m1", Role.ACTIVE)[0])
    scene.ok(PinRequest(task, M2), Done)
    assert scene.task(task).owner == "m1"
    assert task in scene.held("m2", Role.WARMUP)
    scene.settle(60)
    assert scene.task(task).owner == "m2"
    scene.join("m3")
    scene.settle(60)
    assert scene.task(task).owner == "m2"
    scene.ok(PinRequest(task, None), Done)
    assert scene.task(task).marks.pin is None


def test_the_same_pin_again_is_nothing() -> None:
    scene = settled(2, 4)
    scene.do(PinRequest(T0, M1))
    scene.settle(60)
    group = scene.group
    scene.do(PinRequest(T0, M1))
    scene.do(PinRequest(TaskId("0_3"), None))
    assert scene.group is group


def test_a_pin_goes_with_its_member() -> None:
    scene = settled(2, 4)
    scene.do(PinRequest(T0, M2))
    scene.settle(60)
    scene.join("m3", replaces=M2)
    assert scene.task("0_0").marks.pin == "m3"
    scene.do(Leave(MemberId("m3")))
    assert scene.task("0_0").marks.pin is None


def test_pins_and_releases_name_what_exists() -> None:
    scene = settled(2, 4)
    for item in (PinRequest(TaskId("9_9"), M1), ReleaseRequest(TaskId("9_9"))):
        refused = scene.refused(item, InvalidRequest)
        assert (refused.status, [path for path, _ in refused.errors]) == (422, ["task"])
    scene.refused(PinRequest(T0, MemberId("m9")), UnknownMember)


def test_releasing_a_task_that_is_not_parked_is_nothing() -> None:
    scene = settled(2, 4)
    group = scene.group
    scene.ok(ReleaseRequest(T0), Done)
    assert scene.group is group


def test_a_probe_of_a_group_at_rest_makes_no_generation() -> None:
    scene = settled(2, 4)
    group = scene.group
    scene.ok(ProbeRequest(), Done)
    assert scene.group is group
    assert "same-target" in reasons(scene)
    assert "at-rest" in reasons(scene)


def test_a_probe_looks_at_once() -> None:
    scene = settled(1, 4, rebalance_batch_ms=10_000)
    scene.join("m2")
    assert not scene.of(TargetPlaced)
    scene.do(ProbeRequest())
    assert scene.of(TargetPlaced)
    assert scene.held("m2", Role.WARMUP)


ASKED: list[Input] = [
    ProbeRequest(),
    PauseRequest(),
    ResumeRequest(),
    PinRequest(T0, M1),
    ReleaseRequest(T0),
    GroupDeletion(),
    GroupDeletion(force=True),
]


@pytest.mark.parametrize("item", ASKED, ids=lambda one: type(one).__name__)
def test_a_group_that_is_not_declared_is_unknown(item: Input) -> None:
    scene = Scene()
    scene.refused(item, UnknownGroup)
    assert scene.log == []


def test_a_group_that_is_not_declared_may_be_started_and_told_of_kafka() -> None:
    scene = Scene()
    for item in (Started(), PartitionCounts({"a": 1}), EndOffsets({("a", 0): 5}, START_MS)):
        scene.do(item)
    scene.tick(1_000)
    assert scene.log == []


def test_a_group_without_members_places_nothing_and_waits_for_one() -> None:
    scene = Scene()
    scene.declare()
    scene.change(num_standby_replicas=1)
    scene.tick(1_000)
    assert scene.group.generation == 0
    assert scene.ok(Join(M1, tasks={T0: copy("none", 1)}), Answer).assignment
    scene.beat("m1", {"0_0": running(), "0_1": running()})
    assert set(scene.owners().values()) == {"m1"}
