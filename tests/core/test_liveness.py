"""What only time brings: leases that run out, and silences and clocks that were our own."""

import pytest
from tests.core.scene import Scene
from tests.core.scenes import reasons, running_scene

from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import (
    Eviction,
    GroupDeletion,
    Heartbeat,
    Join,
    Started,
    Tick,
)
from batonpass.core.state.model import Cause
from batonpass.core.state.records import GrantsHeld
from batonpass.core.state.soft import Soft

M1, M2 = MemberId("m1"), MemberId("m2")
SESSION_MS = 45_000
HOUR_MS = 3_600_000


def test_a_silent_member_expires_with_its_lease_and_not_before() -> None:
    scene = running_scene()
    scene.obey("m2")
    scene.wait(SESSION_MS - 1_000)
    scene.obey("m1")
    scene.wait(999)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert set(scene.group.members) == {"m1"}
    assert scene.group.gone[M2].cause is Cause.EXPIRED
    assert set(scene.owners().values()) == {"m1"}
    assert "expired" in reasons(scene)


def test_every_heartbeat_renews_the_lease() -> None:
    """Protocol 4.2."""
    scene = running_scene()
    for item in (
        Heartbeat(M1, 0, scene.member("m1").epoch),
        Heartbeat(M1, 10_000, scene.member("m1").epoch, {}),
        Heartbeat(M1, 10_000, scene.member("m1").epoch),
        Heartbeat(M1, 10_001, 0),
        Join(M1),
    ):
        scene.wait(SESSION_MS - 1_000)
        scene.do(item)
        scene.beat("m2")
        assert "m1" in scene.group.members, item
    scene.wait(SESSION_MS)
    assert "m1" not in scene.group.members


def test_a_lowered_session_timeout_counts_once_the_member_has_echoed_the_epoch_that_came_with_it() -> None:
    """A member is judged by the largest timeout answered since the epoch it last echoed (protocol 7.5)."""
    scene = running_scene()
    before = scene.member("m1").epoch
    scene.change(session_timeout_ms=10_000)
    scene.beat("m1", epoch=before)
    scene.beat("m2")
    scene.wait(10_000)
    assert set(scene.group.members) == {"m1"}
    scene.beat("m1")
    scene.wait(10_000)
    assert not scene.group.members


def test_a_raised_session_timeout_counts_at_once() -> None:
    """The member may have been answered it on any channel, the long-poll's too."""
    scene = running_scene(session_timeout_ms=10_000)
    scene.change(session_timeout_ms=30_000)
    heard_ms = scene.soft.members[M1].heard_ms
    scene.wait(heard_ms + 29_999 - scene.now_ms)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert not scene.group.members


def test_nobody_is_judged_for_a_silence_that_was_our_own() -> None:
    """A look that comes much later than it was due shows that the coordinator was away (L5) (protocol 7.6)."""
    scene = running_scene()
    scene.tick(10 * SESSION_MS)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(SESSION_MS - 1)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert not scene.group.members


def test_our_own_silence_is_noticed_by_whatever_comes_first() -> None:
    scene = running_scene()
    scene.now_ms += 10 * SESSION_MS
    scene.beat("m2")
    scene.do(Tick())
    assert set(scene.group.members) == {"m1", "m2"}


def test_after_a_start_nobody_is_judged_for_the_largest_session_timeout() -> None:
    """Protocol 7.6."""
    scene = running_scene(session_timeout_ms=60_000)
    scene.change(session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
    scene.soft = Soft()
    scene.now_ms += 1_000_000
    scene.do(Started())
    scene.beat("m1")
    scene.wait(59_999)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert not scene.group.members


def test_a_started_coordinator_asks_for_full_reports() -> None:
    """A heartbeat without tasks is no report."""
    scene = running_scene()
    scene.soft = Soft()
    scene.do(Started())
    assert scene.beat("m1").report == "full"  # type: ignore[union-attr]
    assert scene.beat("m1", {}).report is None  # type: ignore[union-attr]


def test_a_join_after_a_start_is_judged_like_everybody() -> None:
    scene = running_scene()
    scene.do(Started())
    scene.wait(10_000)
    scene.join("m3")
    scene.wait(SESSION_MS - 1)
    assert "m3" in scene.group.members
    scene.wait(1)
    assert "m3" not in scene.group.members


def test_after_the_clock_has_moved_nothing_is_granted_for_the_largest_session_timeout() -> None:
    """The end of an evicted member's lease is stored, and may be over by the new clock while the lease runs on."""
    scene = running_scene()
    scene.do(Eviction(MemberId("m1")))
    scene.now_ms += 3_600_000
    scene.do(Started(clock_moved=True))
    held = {task.id for task in scene.group.tasks.values() if task.owner is None}
    assert held
    scene.beat("m2")
    scene.wait(SESSION_MS - 1)
    assert held == {task.id for task in scene.group.tasks.values() if task.owner is None}
    scene.beat("m2")
    scene.wait(1)
    assert not {task.id for task in scene.group.tasks.values() if task.owner is None}


def test_a_clock_that_has_moved_holds_a_group_that_was_deleted_too() -> None:
    scene = running_scene()
    scene.do(GroupDeletion(force=True))
    scene.now_ms += 3_600_000
    scene.do(Started(clock_moved=True))
    assert scene.group.grants_from_ms == scene.now_ms + scene.group.longest_session_ms


@pytest.mark.parametrize("ends_by_ms", [0, 1])
def test_a_start_after_a_gap_holds_grants_only_if_a_lease_was_open_when_the_clock_was_last_read(
    ends_by_ms: int,
) -> None:
    """Whether an hour has passed or the clock has jumped, nobody knows; what had ended before has ended either way."""
    scene = running_scene()
    scene.do(Eviction(MemberId("m1")))
    [free_at_ms] = {one.free_at_ms for task in scene.group.tasks.values() for one in task.handover.unreleased}
    assert free_at_ms is not None
    scene.now_ms, scene.soft = scene.now_ms + HOUR_MS, Soft()
    scene.do(Started(clock_moved=True, ran_until_ms=free_at_ms - ends_by_ms))
    assert scene.group.grants_from_ms == (scene.now_ms + SESSION_MS if ends_by_ms else 0)


def test_a_hold_on_grants_that_was_open_begins_anew_after_a_gap() -> None:
    scene = running_scene()
    scene.do(GroupDeletion(force=True))
    held_until_ms = scene.group.grants_from_ms
    scene.now_ms, scene.soft = scene.now_ms + HOUR_MS, Soft()
    scene.do(Started(clock_moved=True, ran_until_ms=held_until_ms))
    assert scene.group.grants_from_ms == held_until_ms
    scene.do(Started(clock_moved=True, ran_until_ms=held_until_ms - 1))
    assert scene.group.grants_from_ms == scene.now_ms + scene.group.longest_session_ms


def test_a_group_of_whom_nobody_had_to_wait_is_not_held_after_a_gap() -> None:
    scene = running_scene()
    at_ms = scene.now_ms
    scene.now_ms, scene.soft = scene.now_ms + HOUR_MS, Soft()
    scene.do(Started(clock_moved=True, ran_until_ms=at_ms))
    assert not scene.of(GrantsHeld)


def test_a_group_that_never_was_has_nothing_to_hold() -> None:
    scene = Scene()
    scene.do(Started(clock_moved=True))
    assert scene.log == []
