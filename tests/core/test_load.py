"""Load that members measure: how it becomes steady, when a member counts as too hot, and what moves then."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from random import Random
from typing import NoReturn, TypeVar

import pytest
from tests.core.scene import Scene, copy, running, topology

from batonpass.core.decide import decide
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    EndOffsets,
    Join,
    Leave,
    PauseRequest,
    PinRequest,
    ResumeRequest,
    Started,
    Tick,
)
from batonpass.core.state.loads import STEP, SmoothedLoad, begun, has_left, least_load, step_of, weight_of_new
from batonpass.core.state.model import Group, LoadMove, Role, Subtopology
from batonpass.core.state.policy import BalanceBy
from batonpass.core.state.reasons import NoChange, Why
from batonpass.core.state.records import (
    GroupDeleted,
    ImbalanceNoted,
    LoadsMeasured,
    MovedForLoad,
    Record,
    TargetPlaced,
    TaskParked,
    TasksEnded,
)
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.core.target.load import TRIES, _without, by_measured, due_ms, imbalance, loads_by_member
from batonpass.dry_run.load import load_status, moves_for_load
from batonpass.explain.group import explain_group
from batonpass.placement.flow import PlacementError, minimum_flow

T = TypeVar("T")
MINUTE = 60_000
HALF_LIFE = 100_000
PATIENCE = 300_000
BEAT = 10_000
NO_LAG: Mapping[str, int] = {}


def begin(members: int = 2, partitions: int = 6, **config: object) -> Scene:
    """Return a group at rest that is balanced by measured load, and has measured nothing yet."""
    scene = Scene()
    settings = {"balance_by": "measured", "load_half_life_ms": HALF_LIFE, "load_patience_ms": PATIENCE}
    settings |= {"heartbeat_interval_ms": BEAT} | config
    scene.declare(topology(partitions), **settings)
    for number in range(members):
        scene.join(f"m{number}")
    scene.settle()
    return scene


def beat(scene: Scene, loads: dict[str, float], *names: str, lags: Mapping[str, int] = NO_LAG) -> None:
    """Let members report what their assignments say, with the load of what they run. Copies read on."""
    for name in names or sorted(scene.group.members):
        reports: dict[str, TaskReport] = {}
        for task, grant in scene.member(name).assignment.items():
            if grant.role is Role.ACTIVE:
                reports[task] = running(load=loads.get(task))
            else:
                reports[task] = copy(grant.role, lags.get(task, 0), positions=(("", scene.now_ms),))
        scene.beat(name, reports)


def run(scene: Scene, loads: dict[str, float], ms: int, lags: Mapping[str, int] = NO_LAG) -> list[Record]:
    """Let members report for so long; return the records of this time."""
    before, end_ms = len(scene.log), scene.now_ms + ms
    while scene.now_ms < end_ms:
        scene.wait(min(BEAT, ms))
        beat(scene, loads, lags=lags)
    return scene.log[before:]


def hottest(scene: Scene, loads: dict[str, float]) -> float:
    """Return the highest load of a member over the average, by what the tasks really take."""
    of = [sum(loads[task] for task in scene.held(name, Role.ACTIVE)) for name in scene.group.members]
    return max(of) * len(of) / sum(of)


def skewed(scene: Scene) -> dict[str, float]:
    """Return loads that make each task of the first member three times as heavy as the others."""
    return {task: 0.3 if owner == "m0" else 0.1 for task, owner in scene.owners().items()}


def named(records: Iterable[Record], kind: type[T]) -> list[T]:
    return [record for record in records if isinstance(record, kind)]


def moved(scene: Scene) -> list[str]:
    """Return the tasks that rest because they were moved for load."""
    return [one.task for one in scene.group.load_moves]


# The arithmetic.


def test_what_was_said_counts_half_after_a_half_life() -> None:
    load = begun(None, 0, 1.0)
    assert load.average is None
    assert load.until(HALF_LIFE - 1_000, HALF_LIFE).average is None
    assert load.until(HALF_LIFE, HALF_LIFE).average == pytest.approx(1.0)
    changed = load.until(10 * HALF_LIFE, HALF_LIFE)._replace(last=3.0).until(11 * HALF_LIFE, HALF_LIFE)
    assert changed.average == pytest.approx(2.0, abs=0.01)
    assert changed.until(0, HALF_LIFE) == changed  # The clock has gone back.


def test_a_recorded_load_is_where_the_average_begins() -> None:
    assert begun(2.0, 0, 4.0).average == 2.0
    assert begun(2.0, 0, 4.0).until(HALF_LIFE, HALF_LIFE).average == pytest.approx(3.0)


def test_what_is_far_below_what_was_said_elsewhere_counts_only_if_it_is_nearer_to_the_median() -> None:
    def after(half_lives: int, load: float) -> SmoothedLoad:
        return begun(5.0, 0, load).until(half_lives * HALF_LIFE, HALF_LIFE)

    assert begun(None, 0, 0.05).counted(1.0) is None
    assert after(1, 0.05).counted(1.0) == pytest.approx(2.525)
    assert after(9, 0.05).counted(1.0) == 5.0, "it goes on being doubted"
    assert after(9, 0.05).counted(0.2) == pytest.approx(0.05, rel=0.3), "a hot spot that has gone"
    assert after(9, 2.0).counted(1.0) == pytest.approx(2.0, rel=0.1)


def test_a_member_that_was_believed_for_three_half_lives_is_believed_from_then_on() -> None:
    believed = begun(5.0, 0, 4.0).until(3 * HALF_LIFE, HALF_LIFE)
    later = believed._replace(last=0.05).until(12 * HALF_LIFE, HALF_LIFE)
    assert believed.before == 0.0
    assert later.counted(1.0) == pytest.approx(0.05, rel=0.3)
    doubted = begun(5.0, 0, 0.05).until(9 * HALF_LIFE, HALF_LIFE)._replace(last=4.0)
    assert doubted.until(12 * HALF_LIFE, HALF_LIFE).before == 0.0


def test_a_step_is_left_when_the_load_is_more_than_a_whole_one_away() -> None:
    first = step_of(0.52, 0.0001)
    assert 0.52 / STEP**0.5 <= first <= 0.52 * STEP**0.5
    assert has_left(None, first, 0.0001)
    assert not has_left(first, first * 1.099, 0.0001)
    assert not has_left(first, first / 1.099, 0.0001)
    assert has_left(first, first * 1.11, 0.0001)
    assert not has_left(step_of(first * 1.11, 0.0001), first * 1.02, 0.0001), "what comes back a little stays"
    steps = [step_of(STEP**power, 0.000_001) for power in range(-60, 60)]
    assert all(high / low == pytest.approx(STEP, rel=1e-4) for low, high in pairwise(steps))


def test_next_to_nothing_may_jump_as_it_likes() -> None:
    recorded = {TaskId("0_0"): 1.0, TaskId("0_1"): 1.0}
    least = least_load(recorded)
    assert least == 0.01
    step = step_of(0.0, least)
    assert not has_left(step, 0.009, least)
    assert least_load({}) > 0
    assert not has_left(0.01 * 1.1, 0.0, 0.0101)


def test_once_one_load_has_left_its_step_every_load_gets_the_nearest() -> None:
    scene = begin()
    loads = dict.fromkeys(scene.owners(), 0.5)
    run(scene, loads, 5 * HALF_LIFE)
    drifted = dict.fromkeys(loads, 0.54)
    assert named(run(scene, drifted, 10 * HALF_LIFE), LoadsMeasured) == []
    run(scene, drifted | {"0_0": 0.6}, 10 * HALF_LIFE)
    assert set(scene.group.loads.values()) == {step_of(0.54, 0.001)} != {step_of(0.5, 0.001)}


def test_a_new_task_weighs_the_median() -> None:
    assert weight_of_new({}) is None
    assert weight_of_new({TaskId(f"0_{n}"): load for n, load in enumerate((9.0, 1.0, 2.0))}) == 2.0


# What is said, and what is recorded of it.


def test_a_task_is_measured_once_it_was_observed_for_a_half_life() -> None:
    scene = begin()
    loads = dict.fromkeys(scene.owners(), 0.5)
    assert named(run(scene, loads, HALF_LIFE - 10_000), LoadsMeasured) == []
    measured = named(run(scene, loads, 30_000), LoadsMeasured)
    assert len(measured) == 1
    assert set(scene.group.loads) == set(scene.group.table.ids)
    assert set(scene.group.table.weight) == {step_of(0.5, 0.001)}


def test_a_steady_fleet_writes_nothing() -> None:
    scene = begin(load_half_life_ms=10 * MINUTE)
    loads = dict.fromkeys(scene.owners(), 0.5)
    run(scene, loads, 15 * MINUTE)
    version, luck = scene.group.version, Random(7)
    for _ in range(100):
        run(scene, {task: luck.uniform(0.35, 0.65) for task in loads}, BEAT)
    assert scene.group.version == version


def test_loads_are_read_together_ten_times_in_a_half_life() -> None:
    scene = begin()
    wave = dict.fromkeys(scene.owners(), 0.5)
    run(scene, wave, 2 * HALF_LIFE)
    records = run(scene, dict.fromkeys(wave, 50.0), HALF_LIFE)
    assert 2 <= len(named(records, LoadsMeasured)) <= 10
    assert all(len(record.loads) == 6 for record in named(records, LoadsMeasured))


def test_members_that_say_no_load_are_as_before() -> None:
    scene = begin()
    scene.settle()
    version = scene.group.version
    run(scene, {}, 5 * HALF_LIFE)
    assert scene.group.version == version
    assert all(known.loads == {} for known in scene.soft.members.values())


def test_declared_weights_know_nothing_of_loads() -> None:
    scene = begin(balance_by="declared")
    version = scene.group.version
    run(scene, skewed(scene), 5 * HALF_LIFE)
    assert scene.group.version == version
    assert all(known.loads == {} for known in scene.soft.members.values())


def test_a_heartbeat_without_tasks_lets_the_last_load_go_on() -> None:
    """Protocol 4.11."""
    scene = begin()
    beat(scene, dict.fromkeys(scene.owners(), 0.5))
    for _ in range(HALF_LIFE // 5_000 + 3):
        scene.wait(5_000)
        scene.beat("m0")
        scene.beat("m1")
    assert set(scene.group.loads) == set(scene.group.table.ids)


def test_one_sample_after_many_equal_ones_does_not_count_for_all_of_their_time() -> None:
    scene = begin()
    loads = dict.fromkeys(scene.owners(), 0.5)
    run(scene, loads, 10 * HALF_LIFE)
    run(scene, {task: 500.0 if task == "0_0" else 0.5 for task in loads}, 5_000)
    load = next(one.loads[TaskId("0_0")] for one in scene.soft.members.values() if TaskId("0_0") in one.loads)
    assert load.average is not None
    assert load.average < 50


def test_only_what_a_member_runs_by_its_own_assignment_is_measured() -> None:
    """Protocol 4.11."""
    scene = begin()
    mine, other = scene.held("m0", Role.ACTIVE), scene.held("m1", Role.ACTIVE)
    tasks = {task: running(load=0.5) for task in mine} | {other[0]: running(load=9.0)}
    tasks[mine[0]] = copy(Role.STANDBY, 0)._replace(load=9.0)
    scene.beat("m0", tasks)
    assert set(scene.soft.members[MemberId("m0")].loads) == set(mine[1:])


def test_a_load_that_is_not_said_any_more_is_forgotten_and_its_step_stays() -> None:
    scene = begin()
    run(scene, dict.fromkeys(scene.owners(), 0.5), 2 * HALF_LIFE)
    recorded = dict(scene.group.loads)
    run(scene, {}, 2 * HALF_LIFE)
    assert all(known.loads == {} for known in scene.soft.members.values())
    assert dict(scene.group.loads) == recorded


def test_loads_survive_a_restart_of_the_coordinator() -> None:
    scene = begin()
    loads = dict.fromkeys(scene.owners(), 0.5)
    run(scene, loads, 2 * HALF_LIFE)
    version, recorded = scene.group.version, dict(scene.group.loads)
    scene.soft = Soft()
    scene.do(Started())
    run(scene, loads, 3 * HALF_LIFE)
    assert dict(scene.group.loads) == recorded
    assert named(scene.log[version:], LoadsMeasured) == []


def test_loads_of_tasks_that_end_are_forgotten() -> None:
    scene = begin()
    run(scene, dict.fromkeys(scene.owners(), 0.5), 2 * HALF_LIFE)
    ended = evolve(scene.group, [TasksEnded((TaskId("0_1"),))])
    assert set(scene.group.loads) - set(ended.loads) == {"0_1"}
    scene.change(topology(0, epoch=2, more=(Subtopology("1", 2),)))
    assert dict(scene.group.loads) == {}
    gone = evolve(ended, [GroupDeleted(scene.now_ms, scene.now_ms)])
    assert (dict(gone.loads), gone.hot_since_ms, gone.load_moves) == ({}, None, ())


# When it acts.


def test_a_member_is_too_hot_above_the_threshold_and_only_then() -> None:
    scene = begin()
    loads = {task: 0.12 if owner == "m0" else 0.1 for task, owner in scene.owners().items()}
    assert named(run(scene, loads, 5 * HALF_LIFE), ImbalanceNoted) == []
    run(scene, skewed(scene), 5 * HALF_LIFE)
    assert scene.of(ImbalanceNoted) == [] or scene.group.hot_since_ms is not None
    assert named(scene.log, ImbalanceNoted)


def test_a_hot_member_is_relieved_after_the_patience_and_not_before() -> None:
    scene = begin()
    loads = skewed(scene)
    while scene.group.hot_since_ms is None:
        run(scene, loads, 5_000)
    since = scene.group.hot_since_ms
    assert scene.soft.wake_ms is not None
    assert scene.soft.wake_ms <= since + PATIENCE
    owners = scene.owners()
    while not moved(scene):
        assert scene.owners() == owners
        run(scene, loads, 1_000)
        assert scene.now_ms < since + PATIENCE + 10_000
    assert scene.now_ms >= since + PATIENCE
    scene.settle()
    assert hottest(scene, loads) <= 1.1
    assert scene.group.hot_since_ms is None


def test_it_is_said_that_a_task_moves_because_its_member_is_hot() -> None:
    scene = begin()
    loads, reasons = skewed(scene), []
    while not moved(scene):
        scene.wait(5_000)
        assert scene.last is not None
        reasons += [reason for reason in scene.last.reasons if reason.code == Why.HOT]
        beat(scene, loads)
    assert {reason.task for reason in reasons} == set(moved(scene))
    assert {reason.to for reason in reasons} == {"m1"}


def test_a_task_that_alone_is_too_hot_ends_alone_and_nothing_is_written_then() -> None:
    scene = begin(members=3, partitions=9)
    loads = dict.fromkeys(scene.owners(), 0.1) | {"0_0": 5.0}
    run(scene, loads, 5 * HALF_LIFE + 4 * PATIENCE)
    owner = scene.task("0_0").owner
    assert owner is not None
    assert scene.held(owner, Role.ACTIVE) == ["0_0"]
    assert {len(scene.held(name, Role.ACTIVE)) for name in ("m0", "m1", "m2") if name != owner} == {4}
    assert scene.group.hot_since_ms is not None
    assert f"{owner} runs nothing but 0_0, so nothing can leave it" in sentences(scene)[1]
    version = scene.group.version
    run(scene, loads, 3 * PATIENCE)
    assert scene.group.version == version
    assert due_ms(scene.group, scene.soft) is not None


@pytest.mark.no_cover
def test_no_task_is_moved_for_load_twice_in_its_cooldown() -> None:
    """A hot spot that wanders faster than that: each task moves once at most, however hot it is."""
    scene = begin(members=3, partitions=6)
    last: dict[TaskId, int] = {}
    for turn in range(6):
        hot = f"m{turn % 3}"
        loads = {task: 1.0 if owner == hot else 0.1 for task, owner in scene.owners().items()}
        for record in named(run(scene, loads, PATIENCE + 3 * HALF_LIFE), MovedForLoad):
            for task in record.tasks:
                assert record.at_ms - last.get(task, -(2**60)) >= 3_600_000
                last[task] = record.at_ms
    assert last


def test_tasks_that_have_rested_are_forgotten() -> None:
    group = evolve(Group(GroupId("g")), [MovedForLoad((TaskId("0_0"),), 1_000), MovedForLoad((TaskId("0_1"),), 2_000)])
    assert group.load_moves == (LoadMove(TaskId("0_0"), 1_000), LoadMove(TaskId("0_1"), 2_000))
    later = evolve(group, [MovedForLoad((TaskId("0_2"),), 3_601_500)])
    assert later.load_moves == (LoadMove(TaskId("0_1"), 2_000), LoadMove(TaskId("0_2"), 3_601_500))


def test_a_restore_that_is_not_repaid_is_not_made() -> None:
    scene = begin()
    loads = skewed(scene)
    scene.change(topology(0, epoch=1, more=(Subtopology("0", 6, changelog_topics=("log",)),)))
    scene.settle()
    scene.do(EndOffsets({("log", partition): 10**9 for partition in range(6)}, scene.now_ms))
    owners = scene.owners()
    run(scene, loads, 10 * HALF_LIFE + 3 * PATIENCE)
    assert scene.owners() == owners
    assert scene.group.hot_since_ms is not None
    scene.do(EndOffsets({("log", partition): 10**9 if partition else 10**6 for partition in range(6)}, scene.now_ms))
    small = [task for task, owner in owners.items() if owner == "m0" and task != "0_0"]
    run(scene, loads, 3 * PATIENCE)
    assert all(scene.task(task).owner == owners[task] for task in small)


def in_shadow(scene: Scene, loads: dict[str, float]) -> set[str]:
    said: set[str] = set()
    for _ in range((5 * HALF_LIFE + 2 * PATIENCE) // BEAT):
        scene.wait(BEAT)
        assert scene.last is not None
        said |= {str(reason.task) for reason in scene.last.reasons if reason.code == NoChange.SHADOW}
        beat(scene, loads)
    return said


def test_shadow_says_what_would_move_and_moves_nothing() -> None:
    scene = begin(balance_by="shadow")
    loads, owners = skewed(scene), scene.owners()
    said = in_shadow(scene, loads)
    assert said
    assert said <= {task for task, owner in owners.items() if owner == "m0"}
    assert scene.owners() == owners
    assert set(scene.group.table.weight) == {1.0}
    scene.change(None, balance_by="measured")
    scene.wait(1_000)
    assert scene.owners() == owners, "what was measured in shadow moves nothing at once"
    run(scene, loads, 2 * PATIENCE)
    assert set(moved(scene)) == said


def test_declared_again_ends_it() -> None:
    scene = begin()
    until_hot(scene, skewed(scene))
    scene.change(None, balance_by="declared")
    scene.settle()
    assert scene.group.hot_since_ms is None
    assert set(scene.group.table.weight) == {1.0}


def test_a_task_that_has_rested_may_move_again() -> None:
    scene = begin(load_cooldown_ms=10 * MINUTE)
    run(scene, skewed(scene), 5 * HALF_LIFE + PATIENCE)
    scene.settle()
    (first,) = moved(scene)
    # Now the member is hot that got it, and all else that it has is pinned there.
    for task in scene.held("m1", Role.ACTIVE):
        if task != first:
            scene.do(PinRequest(TaskId(task), MemberId("m1")))
    scene.settle()
    loads = {task: 0.3 if owner == "m1" else 0.1 for task, owner in scene.owners().items()}
    run(scene, loads, 25 * MINUTE)
    before_ms, at_ms = (one.at_ms for one in named(scene.log, MovedForLoad))
    assert [one.tasks for one in named(scene.log, MovedForLoad)] == [(first,), (first,)]
    assert at_ms - before_ms >= 10 * MINUTE


def test_a_member_that_keeps_what_it_was_to_give_away_gets_nothing() -> None:
    home = [0, 1, 2, 1]
    moves = {0: 1, 1: 2, 2: 0, 3: 3}
    assert _without(moves, set(), home) == moves
    # Task 1 stays where task 0 would go; so that stays where task 2 would go.
    assert _without(moves, {1}, home) == {3: 3}


@pytest.mark.parametrize("tries", [1, TRIES])
def test_a_restore_is_not_made_where_the_only_copy_of_its_task_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    monkeypatch.setattr("batonpass.core.target.load.TRIES", tries)
    scene = begin(members=3, num_standby_replicas=1)
    scene.change(topology(0, epoch=1, more=(Subtopology("0", 6, changelog_topics=("log",)),)))
    scene.settle()
    scene.do(EndOffsets({("log", partition): 10**9 for partition in range(6)}, scene.now_ms))
    assert scene.task("0_4").target.standbys == ("m2",)
    assert scene.task("0_5").target.standbys == ("m1",)
    scene.do(PinRequest(TaskId("0_4"), MemberId("m0")))
    scene.settle()
    heat = {"m0": 0.6, "m1": 0.35, "m2": 0.02}
    run(scene, {task: heat[str(owner)] for task, owner in scene.owners().items()}, 5 * HALF_LIFE + 3 * PATIENCE)
    assert scene.group.hot_since_ms is not None
    assert moved(scene) == [], "m2 would have to restore 0_5"


# What it waits for.


def until_hot(scene: Scene, loads: dict[str, float]) -> None:
    while scene.group.hot_since_ms is None:
        run(scene, loads, 5_000)


def test_it_waits_while_a_member_is_overdue() -> None:
    scene = begin(members=3, session_timeout_ms=3_600_000)
    loads = skewed(scene)
    until_hot(scene, loads)
    for _ in range(2 * PATIENCE // BEAT):
        scene.wait(BEAT)
        beat(scene, loads, "m0", "m1")
    assert moved(scene) == []
    run(scene, loads, 5_000)
    assert moved(scene)


def test_it_waits_during_a_pause_and_begins_with_its_end() -> None:
    scene = begin()
    loads = skewed(scene)
    until_hot(scene, loads)
    scene.do(PauseRequest())
    run(scene, loads, 2 * PATIENCE)
    assert moved(scene) == []
    scene.do(ResumeRequest())
    run(scene, loads, PATIENCE)
    assert hottest(scene, loads) < 1.2


def test_it_waits_while_a_member_is_away() -> None:
    scene = begin(members=3, rejoin_grace_ms=10 * PATIENCE)
    scene.join("m3", instance_id="i")
    scene.settle()
    loads = skewed(scene)
    until_hot(scene, loads)
    scene.do(Leave(MemberId("m3"), restart=True))
    for _ in range(2 * PATIENCE // BEAT):
        scene.wait(BEAT)
        beat(scene, loads, "m0", "m1", "m2")
    assert moved(scene) == []
    scene.join("m4", instance_id="i")
    scene.settle()
    assert not named(scene.log, MovedForLoad)


def test_it_waits_while_a_member_drains() -> None:
    scene = begin(members=3)
    last = scene.held("m2", Role.ACTIVE)
    scene.do(DrainRequest(MemberId("m2")))
    loads = skewed(scene)
    for lag in range(900_000, 100_000, -8_000):
        run(scene, loads, BEAT, dict.fromkeys(last, lag))
    assert scene.group.hot_since_ms is not None
    assert scene.held("m2", Role.ACTIVE)
    assert moved(scene) == []


def test_it_waits_while_a_copy_comes_closer_and_another_waits_for_its_slot() -> None:
    scene = begin(members=3, max_warmup_replicas=1, warmup_stall_timeout_ms=60_000)
    first, second = scene.held("m2", Role.ACTIVE)
    for task in (first, second):
        scene.do(PinRequest(TaskId(task), MemberId("m1")))
    loads = skewed(scene)
    for lag in range(900_000, 100_000, -8_000):
        run(scene, loads, BEAT, {first: lag, second: lag})
    assert scene.group.hot_since_ms is not None
    assert {first, second} <= {*scene.group.unsettled}
    assert moved(scene) == []
    run(scene, loads, 2 * PATIENCE)
    assert moved(scene)


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("how", ["pin", "drain", "nowhere", "parked"])
def test_what_cannot_end_holds_up_no_balance_by_load(how: str, standbys: int) -> None:
    """A copy that comes no closer, a drain that nobody can take over, and a task that nobody runs."""
    scene = begin(members=4, partitions=12, num_standby_replicas=standbys, warmup_stall_timeout_ms=60_000)
    last = scene.held("m3", Role.ACTIVE)
    first = last[0]
    to = next(name for name in ("m1", "m2") if name not in scene.task(first).standbys)
    if how == "pin":
        scene.do(PinRequest(TaskId(first), MemberId(to)))
    elif how == "parked":
        scene.do(PinRequest(TaskId(first), MemberId("m2")))
        scene.log += (records := [TaskParked(TaskId(first), (MemberId("m3"),))])
        scene.group = evolve(scene.group, records)
    elif how == "nowhere":
        scene.change(topology(12, epoch=2, more=(Subtopology("1", 1),)))
        scene.join("m4", topology_epoch=2)
        scene.settle()
        last = scene.held("m4", Role.ACTIVE)
        scene.do(DrainRequest(MemberId("m4")))
    else:
        scene.do(DrainRequest(MemberId("m3")))
    loads = skewed(scene)
    run(scene, loads, 4 * PATIENCE, dict.fromkeys(last, 50_000))
    assert moved(scene)
    # What is on its way goes on: only its end is not waited for.
    if how == "pin":
        assert scene.task(first).target.owner == to
    elif how == "drain":
        assert {scene.task(task).target.owner for task in last} <= {"m0", "m1", "m2"}
    if how in ("pin", "drain"):
        run(scene, loads, 2 * PATIENCE)
        assert "m3" not in {scene.task(task).owner for task in ([first] if how == "pin" else last)}


def test_it_waits_until_every_member_was_heard_in_full_after_a_restart() -> None:
    scene = begin(session_timeout_ms=3_600_000)
    loads = skewed(scene)
    until_hot(scene, loads)
    scene.now_ms += 2 * PATIENCE
    scene.soft = Soft()
    scene.do(Started())
    assert moved(scene) == []
    beat(scene, loads, "m0")
    scene.tick(1_000)
    assert moved(scene) == []
    beat(scene, loads, "m1")
    scene.tick(1_000)
    assert moved(scene)


def test_what_fails_in_placement_moves_nothing_and_is_tried_again() -> None:
    def broken(*_: object) -> object:
        raise ValueError("no answer")

    scene = begin()
    loads = skewed(scene)
    until_hot(scene, loads)
    at_ms = due_ms(scene.group, scene.soft)
    assert at_ms is not None
    scene.now_ms = at_ms - 1
    beat(scene, loads)
    decision = decide(scene.group, scene.soft, (Tick(),), at_ms, scene.policy, broken)  # type: ignore[arg-type]
    assert NoChange.PLACEMENT_FAILED in {reason.code for reason in decision.reasons}
    assert MovedForLoad not in {type(record) for record in decision.records}
    assert due_ms(decision.after, decision.soft) == at_ms + PATIENCE
    scene.now_ms = at_ms
    scene.tick()
    assert moved(scene)


# Joins and leaves.


def test_a_join_balances_at_once_by_what_was_measured() -> None:
    scene = begin(members=2, partitions=12)
    loads = {task: 0.5 if task in {"0_0", "0_1"} else 0.1 for task in scene.owners()}
    run(scene, loads, 10 * HALF_LIFE + 3 * PATIENCE)
    scene.join("m2")
    scene.settle()
    assert hottest(scene, loads) <= 1.15


def test_a_leave_moves_only_what_it_frees() -> None:
    scene = begin(members=3, partitions=9)
    loads = skewed(scene)
    run(scene, loads, 2 * HALF_LIFE)
    before = scene.owners()
    scene.do(Leave(MemberId("m2")))
    scene.settle()
    assert {task for task, owner in scene.owners().items() if owner != before[task]} == {
        task for task, owner in before.items() if owner == "m2"
    }
    by = loads_by_member(scene.group)
    assert by[MemberId("m1")] == pytest.approx(0.6, rel=0.1), "it went to the member with less load"


def test_a_probe_moves_nothing_for_load() -> None:
    scene = begin()
    loads = skewed(scene)
    until_hot(scene, loads)
    owners = scene.owners()
    scene.do(PinRequest(TaskId("0_0"), MemberId(owners["0_0"] or "")))
    scene.wait(1_000)
    assert scene.owners() == owners


def test_what_a_draining_member_still_has_is_nobodys_load() -> None:
    scene = begin()
    scene.do(DrainRequest(MemberId("m0")))
    assert list(loads_by_member(scene.group)) == ["m1"]
    scene.do(DrainRequest(MemberId("m1")))
    assert scene.held("m0", Role.ACTIVE)
    assert loads_by_member(scene.group) == {}
    assert imbalance(scene.group) == 0.0


def test_capacity_divides_the_load() -> None:
    scene = Scene()
    scene.declare(topology(6), balance_by="measured", load_half_life_ms=HALF_LIFE, load_patience_ms=PATIENCE)
    scene.join("m0", capacity=2.0)
    scene.join("m1")
    scene.settle()
    loads = dict.fromkeys(scene.owners(), 0.2)
    assert named(run(scene, loads, 5 * HALF_LIFE + PATIENCE), ImbalanceNoted) == []
    assert imbalance(scene.group) == pytest.approx(0.0, abs=0.01)


def test_a_pinned_task_stays_however_hot_its_member_is() -> None:
    scene = begin()
    loads = skewed(scene)
    for task in scene.held("m0", Role.ACTIVE):
        scene.do(PinRequest(TaskId(task), MemberId("m0")))
    scene.settle()
    run(scene, loads, 10 * HALF_LIFE + 2 * PATIENCE)
    assert moved(scene) == []


def test_standbys_take_over_and_nobody_has_two_copies() -> None:
    scene = begin(members=3, partitions=9, num_standby_replicas=1)
    loads = skewed(scene)
    run(scene, loads, 5 * HALF_LIFE + 3 * PATIENCE)
    scene.settle()
    assert moved(scene)
    assert scene.group.hot_since_ms is None


def test_nothing_is_too_hot_where_nobody_stays_or_nothing_weighs() -> None:
    assert imbalance(Group(GroupId("g"))) == 0.0
    scene = begin()
    assert imbalance(by_measured(scene.group)) == pytest.approx(0.0)
    assert scene.group.config.balance_by is BalanceBy.MEASURED


def test_a_member_that_lies_is_believed_and_the_group_stays_whole() -> None:
    """A hundred times what is so: its tasks leave it once, and rest."""
    scene = begin(members=3, partitions=9)
    version = scene.group.version
    for _ in range((5 * HALF_LIFE + 3 * PATIENCE) // BEAT):
        scene.wait(BEAT)
        owners = scene.owners()
        beat(scene, {task: 10.0 if owner == "m0" else 0.1 for task, owner in owners.items()})
    all_moved = [task for record in scene.log[version:] if isinstance(record, MovedForLoad) for task in record.tasks]
    assert len(all_moved) == len(set(all_moved))


def test_a_join_with_loads_says_nothing_yet() -> None:
    scene = begin()
    scene.do(Join(MemberId("m9"), tasks={TaskId("0_0"): copy(Role.STANDBY, 0)._replace(role="none", load=3.0)}))
    known = scene.soft.members[MemberId("m9")]
    assert known.loads == {}
    assert [record for record in scene.log if isinstance(record, TargetPlaced)]
    assert SmoothedLoad(0.0, 0.0, 0, 0.0).average is None


# What people are shown.


def sentences(scene: Scene) -> list[str]:
    """Return what the explanation of the group says of its load."""
    found = explain_group(scene.view(), limit=10)
    return [one for one in found.sentences if "load" in one or "alone" in one]


def would_move(scene: Scene) -> dict[TaskId, MemberId]:
    return moves_for_load(scene.view(), minimum_flow)


def test_load_is_shown_per_capacity_with_the_members_that_it_needs() -> None:
    scene = begin(members=1, balance_by="shadow")
    scene.join("m9", capacity=3.0)
    scene.settle()
    loads = {task: 0.3 if task == "0_0" else 0.1 for task in scene.owners()}
    run(scene, loads, 3 * HALF_LIFE)
    found = load_status(scene.group, scene.soft)
    assert found is not None
    of = {name: sum(loads[task] for task in scene.held(name, Role.ACTIVE)) for name in ("m0", "m9")}
    assert found.by_member == pytest.approx({"m0": of["m0"], "m9": of["m9"] / 3}, rel=0.1)
    assert found.members_needed == pytest.approx(0.8 / 2, rel=0.1)
    assert found.imbalance == pytest.approx(max(of["m0"], of["m9"] / 3) / (0.8 / 4) - 1, abs=0.1)
    assert found.hottest == "0_0"
    assert found.hottest_share == pytest.approx(0.1, rel=0.1)


def test_what_standbys_use_is_shown_and_counts_in_the_members_that_are_needed_and_moves_nothing() -> None:
    scene = begin(num_standby_replicas=1)
    loads = dict.fromkeys(scene.owners(), 0.1)
    run(scene, loads, 3 * HALF_LIFE)
    before, shown = load_status(scene.group, scene.soft), sentences(scene)
    assert before is not None
    assert (before.standbys, before.standbys_need) == ({}, 0)
    reports = {
        str(task): running(load=0.1)
        if grant.role is Role.ACTIVE
        else copy(grant.role, 0, positions=(("", scene.now_ms),))._replace(load=0.04)
        for task, grant in scene.member("m1").assignment.items()
    }
    scene.beat("m1", reports)
    found = load_status(scene.group, scene.soft)
    assert found is not None
    assert found.standbys == pytest.approx({"m1": 0.12})
    assert found.standbys_need == pytest.approx(0.12)
    assert found.members_needed == pytest.approx(before.members_needed + 0.12)
    assert (found.by_member, found.imbalance) == (before.by_member, before.imbalance)
    assert sentences(scene) != shown
    assert any("of which standbys 0.12" in sentence for sentence in sentences(scene))
    assert not any(isinstance(record, TargetPlaced) for record in run(scene, loads, 3 * PATIENCE))


def test_nothing_is_shown_while_no_load_is_measured_and_where_declared_weights_count() -> None:
    scene = begin()
    assert load_status(scene.group, scene.soft) is None
    assert sentences(scene) == []
    assert would_move(scene) == {}
    run(scene, skewed(scene), 3 * HALF_LIFE)
    assert load_status(scene.group, scene.soft) is not None
    scene.change(None, balance_by="declared")
    assert load_status(scene.group, scene.soft) is None


@pytest.mark.parametrize(
    ("balance_by", "what"),
    [("shadow", "in shadow nothing moves for it"), ("measured", "it is decided what moves for it")],
)
def test_what_is_too_hot_is_explained_and_a_plan_says_what_would_move(balance_by: str, what: str) -> None:
    scene = begin(balance_by=balance_by)
    loads = skewed(scene)
    until_hot(scene, loads)
    first, second = sentences(scene)
    assert "that of m0, " in first
    assert "members of average capacity" in first
    assert what in second
    expected = would_move(scene)
    assert set(expected.values()) == {"m1"}
    run(scene, loads, PATIENCE + HALF_LIFE)
    assert moved(scene) == (sorted(expected) if balance_by == "measured" else [])
    assert (would_move(scene) == {}) is (balance_by == "measured")


def test_a_plan_says_nothing_of_load_where_placement_finds_nothing() -> None:
    scene = begin(balance_by="shadow")
    until_hot(scene, skewed(scene))

    def broken(*_network: object) -> NoReturn:
        raise PlacementError("no answer")

    assert moves_for_load(scene.view(), broken) == {}


def test_a_task_that_no_member_is_large_enough_for_is_named() -> None:
    scene = begin(balance_by="shadow")
    loads = {task: 1.2 if task == "0_3" else 0.1 for task in scene.owners()}
    run(scene, loads, 5 * HALF_LIFE)
    assert any("0_3 alone takes 12" in one and "no placement helps" in one for one in sentences(scene))


def test_a_member_whose_word_is_doubted_is_named_until_it_is_believed() -> None:
    """It says a hundredth of what was measured where the task was before."""
    scene = begin(members=3, partitions=9)
    loads = dict.fromkeys(scene.owners(), 0.5)
    run(scene, loads, 4 * HALF_LIFE)
    task = scene.held("m0", Role.ACTIVE)[0]
    scene.do(PinRequest(TaskId(task), MemberId("m1")))
    while scene.owners()[task] != "m1":
        run(scene, loads, BEAT)
    assert not [one for one in sentences(scene) if "is wrong" in one]
    run(scene, loads | {task: 0.005}, 3 * HALF_LIFE)
    (doubt,) = [one for one in sentences(scene) if "is wrong" in one]
    assert doubt == (
        f"m1 says of 1 task ({task}) less than a quarter of the load measured elsewhere: "
        "one of the two is wrong, and what is nearer to the median counts."
    )
    run(scene, loads, 4 * HALF_LIFE)
    assert not [one for one in sentences(scene) if "is wrong" in one]


def test_where_everybody_drains_load_has_no_place_to_be_explained() -> None:
    scene = begin(members=1, balance_by="shadow")
    run(scene, dict.fromkeys(scene.owners(), 0.1), 3 * HALF_LIFE)
    assert [one for one in sentences(scene) if "0% above" in one] == sentences(scene) != []
    scene.do(DrainRequest(MemberId("m0")))
    assert sentences(scene) == []
