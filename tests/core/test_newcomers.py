"""While members keep joining and leaving again soon, balance copies nothing to a new one before it stays longer.

Nothing else waits: takeovers, drains, pins, restarts, the first scale-out that is taken back, and crashes.
"""

from dataclasses import replace

import pytest
from tests.core.scene import Scene, copy, topology
from tests.core.scenes import held_back

from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Eviction, GroupDeclaration, Leave, PinRequest
from batonpass.core.state.model import Group, Role
from batonpass.core.state.newcomers import newcomer_age_ms, stay_began_ms
from batonpass.core.state.reasons import Held, WaitsFor
from batonpass.core.state.records import MemberJoined
from batonpass.explain.task import explain_task

STAY_MS = 120_000
WAIT_MS = STAY_MS * 5 // 4


def play(scene: Scene, ms: int) -> None:
    """Let time pass, with a report of every member each five seconds."""
    for _ in range(ms // 5_000):
        scene.wait(5_000)
        for name in sorted(scene.group.members):
            if name in scene.group.members and scene.member(name).away_until_ms is None:
                scene.obey(name)


def come_and_go(scene: Scene, *names: str, stay_ms: int = STAY_MS) -> None:
    for name in names:
        scene.join(name)
    play(scene, stay_ms)
    for name in names:
        scene.do(Leave(MemberId(name)))
    play(scene, 30_000)


def thrashed(rounds: int = 2, *, tasks: int = 8, **config: object) -> Scene:
    """Return a group of m1 and m2 to which two members came ``rounds`` times, and left again after two minutes."""
    scene = Scene(whole=False)
    scene.declare(topology(tasks), **config)
    scene.join("m1")
    scene.join("m2")
    scene.settle()
    for number in range(rounds):
        come_and_go(scene, f"x{number}", f"y{number}")
    return scene


def test_the_third_time_nothing_is_copied_to_members_that_leave_again() -> None:
    scene = thrashed()
    before = scene.owners()
    epoch = scene.member("m1").epoch
    come_and_go(scene, "x9", "y9")
    assert scene.owners() == before
    assert scene.member("m1").epoch == epoch


def test_a_member_that_stays_gets_its_share_by_itself() -> None:
    scene = thrashed()
    scene.join("m3")
    play(scene, WAIT_MS - 5_000)
    assert scene.held("m3", Role.ACTIVE) == scene.held("m3", Role.WARMUP) == []
    assert {reason for _, to, reason in held_back(scene) if to == "m3"} == {Held.NEW_MEMBER}
    play(scene, 60_000)
    assert len(scene.held("m3", Role.ACTIVE)) == 2


def test_it_says_until_when_it_waits() -> None:
    scene = thrashed()
    joined_ms = scene.now_ms
    scene.join("m3")
    play(scene, 10_000)
    task = next(task for task, to, _ in held_back(scene) if to == "m3")
    found = explain_task(scene.view(), TaskId(task))
    assert [wait.until_ms for wait in found.waits if wait.member_id == "m3"] == [joined_ms + WAIT_MS]
    assert scene.soft.wake_ms is not None
    assert scene.soft.wake_ms <= joined_ms + WAIT_MS


def test_of_a_standby_it_says_so_too() -> None:
    scene = thrashed(num_standby_replicas=1)
    scene.join("m3")
    play(scene, 10_000)
    wanted = [task_id for task_id, task in scene.group.tasks.items() if "m3" in task.target.standbys]
    waits = [wait for task_id in wanted for wait in explain_task(scene.view(), task_id).waits]
    assert {wait.what for wait in waits} == {WaitsFor.TIME}
    assert {wait.until_ms for wait in waits} == {scene.view().newcomers[MemberId("m3")]}


@pytest.mark.parametrize("rounds", [0, 1])
def test_one_scale_out_that_is_taken_back_holds_nothing(rounds: int) -> None:
    """However many members came and went together."""
    scene = thrashed(rounds)
    scene.join("m3")
    play(scene, 40_000)
    assert len(scene.held("m3", Role.ACTIVE)) == 2


def test_a_setting_of_0_holds_nothing() -> None:
    scene = thrashed(newcomer_wait_ms=0)
    scene.join("m3")
    play(scene, 40_000)
    assert len(scene.held("m3", Role.ACTIVE)) == 2


def test_stays_that_are_longer_than_the_setting_or_long_ago_hold_nothing() -> None:
    scene = thrashed(newcomer_wait_ms=60_000)
    assert newcomer_age_ms(scene.group, scene.now_ms) == 0
    scene = thrashed(newcomer_wait_ms=STAY_MS)
    assert newcomer_age_ms(scene.group, scene.now_ms) == STAY_MS
    assert newcomer_age_ms(scene.group, scene.now_ms + 6 * STAY_MS) == 0


def test_a_task_without_an_owner_goes_to_a_new_member_at_once() -> None:
    scene = thrashed(tasks=2)
    scene.join("m3")
    scene.do(Eviction(MemberId("m1"), dead=True))
    scene.do(Eviction(MemberId("m2"), dead=True))
    play(scene, 10_000)
    assert scene.held("m3", Role.ACTIVE) == ["0_0", "0_1"]


def test_a_drain_hands_over_to_a_new_member_at_once() -> None:
    """As in a rolling deploy that adds a member before it drains one."""
    scene = thrashed()
    scene.join("m3")
    scene.do(DrainRequest(MemberId("m1")))
    play(scene, 60_000)
    assert scene.held("m1", Role.ACTIVE) == []
    assert scene.held("m3", Role.ACTIVE) != []


def test_a_pin_moves_a_task_to_a_new_member_at_once() -> None:
    scene = thrashed()
    scene.join("m3")
    scene.do(PinRequest(TaskId("0_0"), MemberId("m3")))
    play(scene, 20_000)
    assert scene.held("m3", Role.ACTIVE) == ["0_0"]


def test_a_run_that_takes_a_place_is_as_old_as_the_place() -> None:
    """A restart brings back no newcomer, and its end is no short stay."""
    scene = thrashed(0, num_standby_replicas=1)
    scene.join("a1", instance_id=InstanceId("i"))
    play(scene, 60_000)
    since_ms = stay_began_ms(scene.member("a1"))
    for number in range(2):
        come_and_go(scene, f"x{number}")
    mine = scene.held("a1", Role.ACTIVE)
    scene.do(Leave(MemberId("a1"), restart=True))
    play(scene, 20_000)
    scene.join("a2", {task: copy("none", 50) for task in mine}, instance_id=InstanceId("i"))
    assert newcomer_age_ms(scene.group, scene.now_ms) > 0
    assert stay_began_ms(scene.member("a2")) == since_ms
    assert "a2" not in scene.view().newcomers
    play(scene, 40_000)
    assert scene.held("a2", Role.ACTIVE) == mine


def test_a_restart_from_which_nobody_comes_back_ends_a_stay() -> None:
    """As when an autoscaler removes the pods of a StatefulSet, whose workers say that they come back."""
    scene = thrashed(0, rejoin_grace_ms=30_000)
    for number in range(2):
        scene.join(f"x{number}", instance_id=InstanceId("i"))
        play(scene, 60_000)
        scene.do(Leave(MemberId(f"x{number}"), restart=True))
        play(scene, 60_000)
    assert newcomer_age_ms(scene.group, scene.now_ms) == 90_000 * 5 // 4


def test_crashes_are_no_short_stays() -> None:
    scene = thrashed(0)
    for number in range(4):
        scene.join(f"x{number}")
        play(scene, 60_000)
        scene.do(Eviction(MemberId(f"x{number}"), dead=True))
        play(scene, 20_000)
    assert newcomer_age_ms(scene.group, scene.now_ms) == 0


def test_a_rolling_replacement_of_members_that_stayed_long_holds_nothing() -> None:
    scene = thrashed(0)
    play(scene, 700_000)
    for number in range(2):
        scene.join(f"n{number}")
        scene.do(DrainRequest(MemberId(f"m{number + 1}")))
        play(scene, 120_000)
        scene.do(Leave(MemberId(f"m{number + 1}")))
        play(scene, 20_000)
    assert newcomer_age_ms(scene.group, scene.now_ms) == 0


def test_a_member_of_an_old_log_has_the_place_that_it_joined_with() -> None:
    scene = thrashed(0)
    (record,) = [one for one in scene.log if isinstance(one, MemberJoined) and one.member.id == "m1"]
    again = evolve(Group(GroupId("g")), [replace(record, member=replace(record.member, place_since_ms=None))])
    assert stay_began_ms(again.members[MemberId("m1")]) == record.member.joined_ms


def test_a_kafka_streams_group_holds_nothing() -> None:
    """There a closed instance is not told from one that restarts."""
    scene = thrashed()
    streams = replace(scene.group, config=replace(scene.group.config, kafka_streams=True))
    assert newcomer_age_ms(scene.group, scene.now_ms) > 0
    assert newcomer_age_ms(streams, scene.now_ms) == 0


def test_the_wait_changes_with_the_setting() -> None:
    scene = thrashed()
    scene.join("m3")
    play(scene, 20_000)
    scene.do(GroupDeclaration(scene.group.id, None, {"newcomer_wait_ms": 0}, scene.group.revision))
    play(scene, 40_000)
    assert len(scene.held("m3", Role.ACTIVE)) == 2
