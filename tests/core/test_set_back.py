"""A clock that has gone back, by far more than a lease: what waited for an instant waits no longer for that."""

from dataclasses import fields, is_dataclass

import pytest
from tests.core.scene import Scene
from tests.core.scenes import running_scene
from tests.core.test_membership_restart import GRACE_MS, pods
from tests.core.test_newcomers import thrashed

from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Eviction, GroupDeletion, Leave, PauseRequest, Started, Tick
from batonpass.core.state.model import (
    NOWHERE,
    Failure,
    Fault,
    Handover,
    HostFaults,
    KeptOut,
    LoadMove,
    Marks,
    PauseScope,
    Role,
    Stall,
    Stop,
    Unreleased,
)
from batonpass.core.state.pmap import PMap
from batonpass.core.state.records import GrantsHeld
from batonpass.core.state.set_back import APART_MS, ahead_ms, moved_back
from batonpass.core.state.soft import Soft

BACK_MS = 900_000
SESSION_MS = 45_000


def set_back(scene: Scene, by_ms: int = BACK_MS, *, is_noticed: bool = True) -> None:
    """Set the clock back; a coordinator that runs notices that, one that starts afterwards knows of nothing."""
    scene.now_ms -= by_ms
    if not is_noticed:
        scene.soft = Soft()
    scene.do(Started(clock_moved=is_noticed))


def beat_for(scene: Scene, ms: int, *names: str) -> None:
    """Let members beat while time passes."""
    end_ms = scene.now_ms + ms
    while scene.now_ms < end_ms:
        scene.obey(*names)
        scene.wait(5_000)


def instants_in(value: object) -> list[int]:
    """Return every instant in a part of a group, at any depth: what its fields say that end in ``_ms``."""
    if isinstance(value, PMap):
        return [at_ms for one in value.values() for at_ms in instants_in(one)]
    if type(value) is tuple:
        return [at_ms for one in value for at_ms in instants_in(one)]
    names = [one.name for one in fields(value)] if is_dataclass(value) else getattr(value, "_fields", ())
    found: list[int] = []
    for name in names:
        part = getattr(value, name)
        if name.endswith("_ms"):
            found += [part] if part and name not in {"longest_session_ms", "ran_ms"} else []
        elif name != "config":
            found += instants_in(part)
    return found


def test_every_instant_of_a_group_goes_back_and_no_duration() -> None:
    scene = thrashed()
    scene.join("x", instance_id="x")
    scene.do(DrainRequest(MemberId("x"), deadline_ms=60_000, until_undone=True))
    scene.do(PauseRequest(PauseScope.BALANCE, expires_ms=scene.now_ms + 60_000))
    before = scene.group
    after = evolve(before, [GrantsHeld(0, "the clock", set_back_ms=BACK_MS)])
    assert len(instants_in(before)) > 20
    assert instants_in(after) == [at_ms - BACK_MS for at_ms in instants_in(before)]
    assert (after.longest_session_ms, after.config) == (before.longest_session_ms, before.config)
    assert [task.target for task in after.tasks.values()] == [task.target for task in before.tasks.values()]


@pytest.mark.parametrize(
    "part",
    [
        Failure(MemberId("a"), 5_000, ran_ms=3_000, joined_ms=2_000),
        HostFaults((Fault(None, 5_000),), 4_000, 2),
        Marks(stalls=(Stall(MemberId("a"), 5_000),), failures=(Failure(MemberId("a"), 6_000),)),
        Handover(unreleased=(Unreleased(MemberId("a"), 5_000),), stop=Stop(MemberId("a"), 6_000, "left", 5_500)),
        LoadMove(TaskId("0_0"), 5_000),
        KeptOut(5_000, None),
    ],
)
def test_the_instants_of_a_part_go_back(part: object) -> None:
    moved = moved_back(part, 1_000)
    assert instants_in(moved) == [at_ms - 1_000 for at_ms in instants_in(part)]
    assert moved != part
    assert moved_back(NOWHERE, 1_000) is NOWHERE


def test_what_lasts_for_a_time_does_not_go_back() -> None:
    assert moved_back(Failure(MemberId("a"), 5_000, ran_ms=3_000), 1_000).ran_ms == 3_000


@pytest.mark.parametrize("is_noticed", [True, False])
def test_the_tasks_of_an_evicted_member_are_granted_after_one_session(is_noticed: bool) -> None:  # noqa: FBT001
    """Not before: its lease was 45 s when it was evicted, and another part of the group says no more than that."""
    scene = running_scene()
    scene.do(Eviction(MemberId("m1")))
    set_back(scene, is_noticed=is_noticed)
    beat_for(scene, SESSION_MS - 5_000, "m2")
    assert None in scene.owners().values()
    beat_for(scene, 10_000, "m2")
    assert set(scene.owners().values()) == {"m2"}


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_group_at_rest_whose_clock_goes_forward_and_then_back_grants_within_two_sessions(is_noticed: bool) -> None:  # noqa: FBT001
    """Nothing has happened since the clock went forward, but that nothing is granted for a while."""
    scene = running_scene()
    scene.now_ms += 4 * BACK_MS
    scene.do(Started(clock_moved=True))
    assert scene.group.grants_from_ms == scene.now_ms + SESSION_MS
    set_back(scene, is_noticed=is_noticed)
    assert scene.now_ms < scene.group.grants_from_ms <= scene.now_ms + 2 * SESSION_MS


def test_a_hold_on_grants_for_two_sessions_is_no_sign_of_a_clock_that_went_back() -> None:
    """So long it lasts at most: until a lease is over, and a session after that (``recovery``)."""
    scene = running_scene()
    held = evolve(scene.group, [GrantsHeld(scene.now_ms + 2 * SESSION_MS, "commits were lost", adopting=True)])
    assert ahead_ms(held, scene.now_ms) == 0


def test_a_member_that_never_returns_is_away_for_no_longer() -> None:
    scene = pods()
    scene.do(Leave(MemberId("m2"), restart=True))
    set_back(scene)
    beat_for(scene, GRACE_MS + 60_000, "m1")
    assert "m2" not in scene.group.members
    assert set(scene.owners().values()) == {"m1"}


def test_a_drain_reaches_its_deadline() -> None:
    scene = pods()
    scene.do(DrainRequest(MemberId("m2"), deadline_ms=60_000))
    set_back(scene)
    drain = scene.member("m2").drain
    assert drain is not None
    assert drain.deadline_ms == scene.now_ms + 60_000


def test_a_pause_ends() -> None:
    scene = running_scene()
    scene.do(PauseRequest(PauseScope.BALANCE, "an audit", scene.now_ms + 60_000))
    set_back(scene)
    beat_for(scene, 65_000, "m1", "m2")
    assert scene.group.pause is None


def test_a_member_that_confirms_nothing_is_fenced_in_time() -> None:
    scene = running_scene(partitions=6, rebalance_timeout_ms=60_000)
    scene.join("m3")
    for _ in range(10):
        scene.obey("m3")
        scene.tick(1_000)
    assert any(scene.member(name).revoking for name in scene.group.members)
    set_back(scene)
    for _ in range(30):
        scene.beat("m1")
        scene.beat("m2")
        scene.obey("m3")
        scene.wait(5_000)
    assert scene.held("m3", Role.ACTIVE)


def test_a_silent_member_expires_within_a_session_and_not_before() -> None:
    scene = running_scene()
    set_back(scene)
    scene.wait(SESSION_MS - 1)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert not scene.group.members


def test_a_placement_that_was_due_is_due_no_later() -> None:
    scene = running_scene()
    scene.change(rebalance_batch_ms=1_000)
    scene.join("m3")
    due_ms = scene.group.placement_due_ms
    assert due_ms is not None
    set_back(scene)
    assert scene.group.placement_due_ms == due_ms - BACK_MS


def test_nobody_is_new_for_longer() -> None:
    scene = thrashed()
    scene.join("m3")
    (until_ms,) = scene.view().newcomers.values()
    set_back(scene, 50_000)
    assert list(scene.view().newcomers.values()) == [until_ms - 50_000]


def test_a_deleted_group_holds_grants_for_one_session() -> None:
    scene = running_scene()
    scene.do(GroupDeletion(force=True))
    set_back(scene)
    assert scene.group.grants_from_ms == scene.now_ms + SESSION_MS


def test_clocks_that_differ_by_little_set_nothing_back() -> None:
    scene = running_scene()
    at_ms = max(task.ran_since_ms for task in scene.group.tasks.values())
    assert ahead_ms(scene.group, at_ms - APART_MS) == 0
    assert ahead_ms(scene.group, at_ms - APART_MS - 1) == APART_MS + 1
    scene.now_ms = at_ms - APART_MS
    scene.soft = Soft()
    scene.do(Started())
    assert not scene.of(GrantsHeld)


def test_what_happened_before_happened_as_long_ago_as_before() -> None:
    scene = running_scene()
    scene.do(Eviction(MemberId("m1")))
    before = scene.group
    set_back(scene)
    assert {task.since_ms + BACK_MS for task in scene.group.tasks.values()} == {
        task.since_ms for task in before.tasks.values()
    }
    assert scene.group.gone[MemberId("m1")].at_ms + BACK_MS == before.gone[MemberId("m1")].at_ms
    scene.do(Tick())
