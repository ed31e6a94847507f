"""Moves for balance wait while a member may be about to expire: what is balanced now would be balanced again."""

from dataclasses import replace
from typing import cast

import pytest
from tests.core.described import describe_group
from tests.core.scene import Scene, topology

from batonpass.core.handover.view import Availability, View
from batonpass.core.state.errors import TooLarge
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Heartbeat, PinRequest, Started
from batonpass.core.state.model import Member, OnLeaseLost, Role
from batonpass.core.state.reasons import Held
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import TaskReport

HEARTBEAT_MS, SESSION_MS = 3_000, 45_000


def overdue_scene(**config: object) -> Scene:
    """Return a group of four with standbys in which m4 joined last, and then m3 fell silent for three heartbeats."""
    scene = Scene()
    scene.declare(topology(6, stateless=2), num_standby_replicas=1, max_warmup_replicas=20, **config)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle(60)
    for _ in range(3):
        scene.now_ms += HEARTBEAT_MS
        scene.obey("m1", "m2")
    scene.join("m4")
    return scene


def live(scene: Scene, *names: str, ms: int) -> None:
    """Let time pass while these members heartbeat and obey."""
    end_ms = scene.now_ms + ms
    while scene.now_ms < end_ms:
        scene.wait(HEARTBEAT_MS)
        scene.obey(*[name for name in names if MemberId(name) in scene.group.members])


def reasons(scene: Scene) -> set[Held]:
    """Return why what is held back is."""
    status = describe_group(scene.view())
    return {entry.reason for entry in status.held_back}


def actives(member: Member) -> list[str]:
    """Return the actives of a member."""
    return [task for task, grant in member.assignment.items() if grant.role is Role.ACTIVE]


def test_nothing_is_handed_over_for_balance_while_a_member_is_overdue() -> None:
    scene = overdue_scene()
    live(scene, "m1", "m2", "m4", ms=12_000)
    assert actives(scene.member("m4")) == []
    assert scene.held("m4", Role.WARMUP) or scene.held("m4", Role.STANDBY)
    assert reasons(scene) == {Held.MEMBER_OVERDUE}
    scene.obey("m3")
    live(scene, "m1", "m2", "m3", "m4", ms=4 * HEARTBEAT_MS)
    assert len(actives(scene.member("m4"))) >= 1
    assert reasons(scene) == set()


@pytest.mark.parametrize("interval_ms", [1, 100])
def test_a_group_is_not_looked_at_as_often_as_its_members_choose_to_speak(interval_ms: int) -> None:
    """An earlier version let a group have an interval of a millisecond; such a group is still read."""
    scene = overdue_scene()
    scene.group = replace(scene.group, config=replace(scene.group.config, heartbeat_interval_ms=interval_ms))
    scene.obey("m1", "m2", "m4")
    assert scene.soft.wake_ms is not None
    scene.tick(scene.soft.wake_ms - scene.now_ms)
    scene.obey("m1", "m2", "m4")
    assert reasons(scene) == {Held.MEMBER_OVERDUE}
    # The word of the silent member lets go on what waits for it, so that no timer has to ask.
    assert scene.soft.wake_ms - scene.now_ms >= 1_000


def test_a_pin_that_a_drain_suspends_makes_a_move_for_balance_no_other() -> None:
    """A task that goes elsewhere than to its pin moves for balance."""
    scene = overdue_scene()
    scene.join("m5")
    scene.do(DrainRequest(MemberId("m5")))
    for task in scene.group.table.ids:
        scene.do(PinRequest(task, MemberId("m5")))
    live(scene, "m1", "m2", "m4", "m5", ms=12_000)
    assert actives(scene.member("m4")) == []
    assert reasons(scene) == {Held.MEMBER_OVERDUE}


def test_nobody_waits_for_a_silent_member_that_drains() -> None:
    """It has no share of the balance, so that nothing is balanced anew when it expires."""
    scene = overdue_scene()
    scene.obey("m3")
    scene.do(DrainRequest(MemberId("m3")))
    live(scene, "m1", "m2", "m3", "m4", ms=60_000)
    assert actives(scene.member("m3")) == []
    live(scene, "m1", "m2", "m4", ms=3 * HEARTBEAT_MS)
    scene.join("m5")
    live(scene, "m1", "m2", "m4", "m5", ms=12_000)
    assert MemberId("m3") in scene.group.members
    assert len(actives(scene.member("m5"))) >= 1
    assert reasons(scene) == set()


def test_when_the_overdue_member_expires_everything_is_balanced_once() -> None:
    scene = overdue_scene()
    before = scene.owners()
    tokens = {task: scene.task(task).token for task in before}
    live(scene, "m1", "m2", "m4", ms=SESSION_MS + 12_000)
    assert MemberId("m3") not in scene.group.members
    scene.settle()
    after = scene.owners()
    counts = [list(after.values()).count(name) for name in ("m1", "m2", "m4")]
    assert max(counts) - min(counts) <= 1
    moves = {task: scene.task(task).token - tokens[task] for task in before if task.startswith("0_")}
    assert all(moves[task] == 0 for task in moves if before[task] != "m3")
    assert all(moves[task] <= 2 for task in moves if before[task] == "m3")


def test_drains_pins_and_takeovers_do_not_wait_for_an_overdue_member() -> None:
    scene = overdue_scene()
    scene.do(DrainRequest(MemberId("m1")))
    live(scene, "m1", "m2", "m4", ms=12_000)
    assert actives(scene.member("m1")) == []
    task = next(one for one in actives(scene.member("m2")) if one.startswith("0_"))
    scene.do(PinRequest(TaskId(task), MemberId("m4")))
    live(scene, "m1", "m2", "m4", ms=12_000)
    assert scene.task(task).owner == "m4"
    assert MemberId("m3") in scene.group.members


@pytest.mark.parametrize("late", [True, False])
def test_a_late_heartbeat_is_a_word_as_well(late: bool) -> None:  # noqa: FBT001
    scene = overdue_scene()
    live(scene, "m1", "m2", "m4", ms=6_000)
    member_soft = scene.soft.members[MemberId("m3")]
    scene.do(
        Heartbeat(MemberId("m3"), member_soft.seq if late else member_soft.seq + 1, scene.member("m3").epoch, None)
    )
    live(scene, "m1", "m2", "m4", ms=HEARTBEAT_MS)
    assert reasons(scene) == set()


def test_a_heartbeat_that_is_refused_is_no_word() -> None:
    """One with more tasks than it may name renews nothing: its member is as overdue as before."""
    scene = overdue_scene()
    scene.wait(2 * HEARTBEAT_MS)
    many = {TaskId(f"0_{number}"): TaskReport("none") for number in range(scene.policy.max_tasks_per_heartbeat + 1)}
    seq = scene.soft.members[MemberId("m3")].seq + 1
    refused = scene.do(Heartbeat(MemberId("m3"), seq, scene.member("m3").epoch, many))
    assert isinstance(refused, TooLarge)
    assert scene.view().availability(MemberId("m3")) is Availability.OVERDUE


def test_a_member_unheard_since_a_start_is_overdue_after_as_long() -> None:
    scene = Scene()
    scene.declare(topology(6), num_standby_replicas=1, max_warmup_replicas=20, suspect_timeout_ms=1_000)
    for name in ("m1", "m2", "m3"):
        scene.join(name, on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle(60)
    scene.now_ms += 1_000
    scene.soft = type(scene.soft)()
    scene.do(Started())
    assert not scene.view().is_any_member_overdue
    scene.now_ms += 2 * HEARTBEAT_MS + 1
    assert scene.view().is_any_member_overdue
    scene.obey("m1", "m2")
    assert scene.view().is_any_member_overdue
    scene.obey("m3")
    assert not scene.view().is_any_member_overdue


def test_a_member_that_always_speaks_more_slowly_is_not_overdue_in_between() -> None:
    """It is late by its own rhythm, and by the interval of the group if that is longer."""
    scene = overdue_scene()
    for _ in range(4):
        scene.wait(10_000)
        scene.obey("m1", "m2", "m3", "m4")
    scene.wait(15_000)
    assert not scene.view().is_any_member_overdue
    scene.wait(6_000)
    assert scene.view().is_any_member_overdue
    # Once it is on time again, so is what is expected of it.
    live(scene, "m1", "m2", "m3", "m4", ms=6 * HEARTBEAT_MS)
    scene.wait(7_000)
    assert scene.view().is_any_member_overdue


def crowd(members: int, **config: object) -> Scene:
    """Return a group of so many members at rest that may say one heartbeat a second together."""
    scene = Scene()
    scene.declare(topology(4), max_heartbeats_per_s=1, **config)
    for number in range(members):
        scene.join(f"m{number}")
    scene.settle(60)
    return scene


@pytest.mark.parametrize(("members", "told_ms"), [(2, 3_000), (3, 3_000), (8, 8_000), (20, (SESSION_MS - 1_000) // 3)])
def test_members_are_told_to_heartbeat_less_often_where_there_are_many(members: int, told_ms: int) -> None:
    scene = crowd(members)
    answer = cast("Answer", scene.beat("m0"))
    assert answer.heartbeat_interval_ms == told_ms
    assert answer.report_interval_ms == 10_000 * told_ms // 3_000
    heard_ms = scene.now_ms
    assert not View(scene.group, scene.soft, heard_ms + 2 * told_ms).is_overdue(scene.member("m0"))
    assert View(scene.group, scene.soft, heard_ms + 2 * told_ms + 1).is_overdue(scene.member("m0"))
    assert scene.group.position_age_max_ms == answer.report_interval_ms + told_ms
    assert scene.group.look_again_ms == told_ms
