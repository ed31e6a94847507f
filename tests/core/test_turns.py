"""A move that cannot end delays no other for ever: whatever it holds goes to those who wait, and it has its turn again.

Copies of *hot* tasks are read on without end and come no closer; every other copy is level a heartbeat after it began.
"""

from random import Random

import pytest
from tests.core.scene import Scene, copy, restoring, running, topology
from tests.often import cases

from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, DrainReversal, EndOffsets, PauseRequest, PinRequest, Started
from batonpass.core.state.model import ActiveState, OnLeaseLost, PauseScope, Role, Subtopology, Topology
from batonpass.core.state.reasons import Held
from batonpass.core.state.records import WarmupStalled
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.core.wakeups import hold_ends_ms
from batonpass.explain.task import explain_task

STALL_MS = 60_000
M1, M2, M3 = MemberId("m1"), MemberId("m2"), MemberId("m3")


class Restores:
    """A scene whose members do as they are told, ten seconds apart. Copies of ``hot`` tasks come no closer."""

    def __init__(self, tasks: int = 12, *, standbys: int = 0, shape: Topology | None = None, **config: object) -> None:
        self.scene = Scene(whole=False)
        self.hot: set[str] = set()
        self.restoring: set[str] = set()
        """Hot tasks whose owners restore as well."""
        self.lag_now = 2_000_000
        self.says_lag = True
        self.scene.declare(
            shape or topology(tasks),
            acceptable_recovery_lag=1_000,
            num_standby_replicas=standbys,
            **({"warmup_stall_timeout_ms": STALL_MS, "heartbeat_interval_ms": 10_000} | config),
        )

    def report(self, role: Role, task: str) -> TaskReport:
        state = None
        if role is Role.ACTIVE:
            if task not in self.restoring:
                return running()
            state = ActiveState.RESTORING
        if task not in self.hot:
            return copy(role)
        read = self.scene.now_ms
        ends = (("", read + self.lag_now),) if self.says_lag else ()
        return TaskReport(str(role), state, positions=(("", read),), end_offsets=ends)

    def play(self, minutes: float) -> None:
        for _ in range(int(6 * minutes)):
            self.scene.wait(10_000)
            for name, member in sorted(self.scene.group.members.items()):
                if member.away_until_ms is None:
                    assignment = self.scene.member(name).assignment
                    self.scene.beat(name, {task: self.report(grant.role, task) for task, grant in assignment.items()})

    def stalls(self) -> list[tuple[str, str]]:
        return [(one.task, one.member_id) for one in self.scene.log if isinstance(one, WarmupStalled)]


def joined(*, hot: tuple[str, ...] = ("0_0", "0_1"), **config: object) -> Restores:
    """Return a group in which m2 has just joined m1, which has all tasks, and warms up two hot ones first."""
    restores = Restores(**config)  # type: ignore[arg-type]
    restores.scene.join("m1")
    restores.play(1)
    restores.hot |= {*hot}
    restores.scene.join("m2")
    restores.scene.tick()
    return restores


@pytest.mark.parametrize("budget", [2, 10])
def test_a_joiner_gets_its_share_although_two_copies_come_no_closer(budget: int) -> None:
    """Both slots, the group's or the member's, are taken by tasks that are written as fast as they are restored."""
    restores = joined(max_warmup_replicas=budget)
    assert restores.scene.held("m2", Role.WARMUP) == ["0_0", "0_1"]
    restores.play(5)
    assert len(restores.scene.held("m2", Role.ACTIVE)) == 6
    assert {*restores.hot} <= {*restores.scene.held("m1", Role.ACTIVE)}
    # Balance no longer needs the hot tasks, so they are left alone.
    assert restores.stalls() == [("0_0", "m2"), ("0_1", "m2")]
    version = restores.scene.group.version
    restores.play(30)
    assert restores.scene.group.version == version


@pytest.mark.parametrize("deadline_ms", [None, 1_800_000])
@pytest.mark.parametrize("takers", [1, 2, 3])
def test_a_drain_hands_over_whatever_can_be_handed_over(takers: int, deadline_ms: int | None) -> None:
    restores = Restores()
    restores.scene.join("m1")
    restores.play(1)
    restores.hot |= {"0_0", "0_1"}
    for number in range(takers):
        restores.scene.join(f"m{number + 2}")
    restores.scene.do(DrainRequest(M1, deadline_ms))
    restores.play(6)
    assert restores.scene.held("m1", Role.ACTIVE) == ["0_0", "0_1"]
    # They are tried for as long as the member drains.
    before = len(restores.stalls())
    restores.hot.clear()
    restores.play(5)
    assert restores.scene.held("m1", Role.ACTIVE) == []
    assert len(restores.stalls()) == before


def test_each_copy_that_comes_no_closer_has_its_turn() -> None:
    """One slot, nine hot tasks on the member with the highest load, and three others: those get there all the same."""
    restores = joined(hot=tuple(f"0_{number}" for number in range(9)), max_warmup_replicas=1)
    restores.play(20)
    assert {*restores.scene.held("m2", Role.ACTIVE)} == {"0_9", "0_10", "0_11"}
    tried = [task for task, _ in restores.stalls()]
    assert {*tried[:9]} == {*restores.hot}, "none is tried twice before all have been tried"
    again = tried[9:]
    assert again[:3] == tried[: len(again[:3])], "the one whose try is the longest ago comes first"


def test_a_task_that_was_left_is_tried_again_although_the_group_rests() -> None:
    """Balance lacks three tasks. Once the copies may be tried again, the group is placed anew, by itself."""
    restores = joined(hot=tuple(f"0_{number}" for number in range(9)), max_warmup_replicas=9, max_warmups_per_member=3)
    restores.play(20)
    assert len(restores.scene.held("m2", Role.ACTIVE)) == 3
    restores.hot.clear()
    restores.play(6)
    assert len(restores.scene.held("m2", Role.ACTIVE)) == 6


def test_a_group_at_rest_is_looked_at_once_what_gave_way_may_be_tried_again() -> None:
    hot = tuple(f"0_{number}" for number in range(6))
    restores = joined(tasks=9, hot=hot, max_warmup_replicas=3, max_warmups_per_member=3)
    scene = restores.scene
    restores.play(3)
    assert not scene.group.unsettled
    ends = {stall.until_ms for task in scene.group.tasks.values() for stall in task.marks.stalls}
    ahead = {until_ms for until_ms in ends if until_ms > scene.now_ms}
    assert len(ahead) == 2
    assert ahead <= {*hold_ends_ms(DecisionDraft(scene.group, scene.soft, scene.now_ms, scene.policy))}


def test_another_task_moves_in_its_place_although_slots_are_left() -> None:
    """All that the joiner is to get comes no closer, and what could come has no reason to move."""
    restores = joined(tasks=4)
    assert restores.scene.held("m2", Role.WARMUP) == ["0_0", "0_1"]
    restores.play(3)
    assert restores.scene.held("m2", Role.ACTIVE) == ["0_2", "0_3"]


def test_a_copy_goes_on_while_nobody_waits_for_what_it_holds() -> None:
    restores = joined(tasks=2, hot=())
    (hot,) = restores.scene.held("m2", Role.WARMUP)
    (other,) = {"0_0", "0_1"} - {hot}
    restores.hot = {hot}
    restores.scene.do(PinRequest(TaskId(other), M1))
    restores.play(30)
    assert restores.scene.held("m2", Role.WARMUP) == [hot]
    assert restores.stalls() == []


def test_copies_that_are_ready_stay_ready_through_a_pause() -> None:
    restores = joined(tasks=4)
    restores.scene.do(PauseRequest(PauseScope.BALANCE, "", restores.scene.now_ms + 600_000))
    restores.hot.clear()
    restores.play(9)
    assert restores.scene.held("m2", Role.WARMUP) == ["0_0", "0_1"]
    restores.play(2)
    assert restores.scene.held("m2", Role.ACTIVE) == ["0_0", "0_1"]
    assert restores.stalls() == []


def test_a_copy_that_comes_closer_keeps_its_slot_however_slowly() -> None:
    restores = joined()
    first = restores.scene.held("m2", Role.WARMUP)
    for step in range(60):
        restores.scene.wait(10_000)
        restores.scene.obey("m1")
        restores.scene.beat("m2", {task: copy("warmup", 50_000 - step // 5) for task in first})
    assert restores.scene.held("m2", Role.WARMUP) == first
    assert restores.stalls() == []


def test_a_copy_whose_lag_is_not_known_gives_way() -> None:
    restores = joined()
    restores.says_lag = False
    restores.play(5)
    assert len(restores.scene.held("m2", Role.ACTIVE)) == 6


def test_a_new_coordinator_gives_every_copy_the_whole_time_again() -> None:
    restores = joined()
    restores.play(0.9)
    restores.scene.soft = Soft()
    restores.scene.do(Started())
    restores.play(0.8)
    assert restores.stalls() == []
    restores.play(4)
    assert len(restores.scene.held("m2", Role.ACTIVE)) == 6


def test_a_copy_that_is_caught_up_and_must_wait_gives_way_to_a_drain() -> None:
    """Balance is paused without an end, and its copies hold both slots of the member that a drain needs."""
    restores = Restores()
    for name in ("m1", "m3"):
        restores.scene.join(name)
    restores.play(1)
    restores.hot |= {*restores.scene.held("m1", Role.ACTIVE)}
    restores.scene.join("m2")
    restores.play(0.5)
    waiting = restores.scene.held("m2", Role.WARMUP)
    assert len(waiting) == 2
    restores.scene.do(PauseRequest(PauseScope.BALANCE, "", None))
    restores.scene.do(DrainRequest(M3))
    restores.hot.clear()
    restores.play(5)
    assert restores.scene.held("m3", Role.ACTIVE) == []


@pytest.mark.parametrize("tasks", [4, 12])
def test_a_transaction_that_stays_open_holds_up_no_other_task(tasks: int) -> None:
    """The copies are level, and their handover waits for the end of a transaction that never comes."""
    part = Subtopology("0", tasks, changelog_topics=("log",))
    restores = Restores(shape=Topology(1, (part,)))
    scene = restores.scene
    scene.join("m1")
    restores.play(1)
    for round_number in range(30):
        ends = {("log", number): 5_000 for number in range(tasks)}
        later = {("log", number): 5_500 for number in (0, 1)}
        scene.do(EndOffsets(ends, scene.now_ms, high_watermarks=ends | later))
        if round_number == 2:
            scene.join("m2")
        restores.play(1 / 6)
    assert {"0_0", "0_1"} <= {*scene.held("m1", Role.ACTIVE)}
    assert len(scene.held("m2", Role.ACTIVE)) == tasks // 2


def test_a_copy_of_one_pair_of_members_gives_its_slot_to_another_pair() -> None:
    """Only the group's budget is used up: neither the members nor the tasks have anything to do with each other."""
    restores = Restores(4, max_warmup_replicas=1)
    scene = restores.scene
    for name in ("m1", "m2", "m3", "m4"):
        scene.join(name)
    restores.play(1)
    (slow,), (other,) = scene.held("m1", Role.ACTIVE), scene.held("m3", Role.ACTIVE)
    restores.hot |= {slow}
    scene.do(PinRequest(TaskId(slow), M2))
    restores.play(0.5)
    scene.do(PinRequest(TaskId(other), MemberId("m4")))
    restores.play(2)
    assert scene.task(other).owner == "m4"
    assert restores.stalls() == [(slow, "m2")]
    assert scene.task(slow).target.owner == "m2", "where an operator pins it"


def test_copies_for_balance_that_use_up_both_budgets_give_way_to_a_drain() -> None:
    """They were begun for a drain that was taken back, and the budget for drains is smaller by now."""
    restores = Restores(10, max_drain_warmups=4, max_warmups_per_member=10)
    scene = restores.scene
    for name in ("m1", "m3"):
        scene.join(name)
    restores.play(1)
    slow = scene.held("m1", Role.ACTIVE)[:4]
    restores.hot |= {*slow}
    scene.join("m2")
    for task in slow:
        scene.do(PinRequest(TaskId(task), M2))
    scene.do(DrainRequest(M1))
    restores.play(0.3)
    scene.do(DrainReversal(M1))
    scene.change(max_drain_warmups=2)
    assert scene.held("m2", Role.WARMUP) == slow
    scene.do(DrainRequest(M3))
    restores.play(5)
    assert scene.held("m3", Role.ACTIVE) == []


def test_a_copy_for_balance_gives_nothing_to_drains_that_its_slot_is_not_for() -> None:
    restores = Restores(6, max_drain_warmups=1, max_warmups_per_member=10)
    scene = restores.scene
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    restores.play(1)
    slow, leaving = scene.held("m1", Role.ACTIVE)[0], scene.held("m3", Role.ACTIVE)
    restores.hot |= {slow, *leaving}
    scene.do(PinRequest(TaskId(slow), M2))
    restores.play(0.3)
    scene.do(DrainRequest(M3))
    restores.play(10)
    assert {task for task, _ in restores.stalls()} == {*leaving}


def test_a_copy_that_is_ready_stays_ready_while_a_member_is_overdue() -> None:
    restores = Restores(6, session_timeout_ms=3_600_000)
    scene = restores.scene
    for name in ("m1", "m3"):
        scene.join(name)
    restores.play(1)
    scene.wait(21_000)
    scene.obey("m1")
    scene.join("m2")
    scene.tick()
    (ready,) = scene.held("m2", Role.WARMUP)
    for _ in range(12):
        scene.wait(10_000)
        scene.obey("m1", "m2")
    assert scene.held("m2", Role.WARMUP) == [ready]
    assert restores.stalls() == []
    restores.play(0.5)
    assert ready in scene.held("m2", Role.ACTIVE)


def test_a_standby_that_comes_no_closer_gives_its_slot_to_the_next() -> None:
    """Standbys that move take slots as well, and keep the old copy until the new one is ready."""
    restores = Restores(standbys=1)
    for name in ("m1", "m2"):
        restores.scene.join(name)
    restores.play(2)
    restores.scene.join("m3")
    restores.scene.tick()
    restores.hot |= {*restores.scene.held("m3", Role.WARMUP)}
    assert len(restores.hot) == 2
    restores.play(10)
    held = [*restores.scene.held("m3", Role.ACTIVE), *restores.scene.held("m3", Role.STANDBY)]
    assert len(held) >= 6
    for task in restores.scene.group.tasks.values():
        assert len(task.standbys) == 1


def with_standbys(number: int, slow: int = 2) -> Restores:
    """Return three members at rest with six tasks and standbys, of which some of m1's tasks become hot."""
    restores = Restores(6, standbys=number)
    for name in ("m1", "m2", "m3"):
        restores.scene.join(name)
    restores.play(3)
    restores.hot |= {*restores.scene.held("m1", Role.ACTIVE)[:slow]}
    return restores


def test_a_standby_too_many_whose_owner_never_runs_gives_its_slot_to_a_joiner() -> None:
    """Each copy with state is kept while nobody is ready to run the task: beyond the number, it takes a slot."""
    restores = with_standbys(1)
    restores.restoring |= restores.hot
    restores.play(1)
    restores.scene.change(num_standby_replicas=0)
    restores.play(1)
    kept = [(task, member_id) for task in restores.hot for member_id in restores.scene.task(task).standbys]
    assert len(kept) == 2
    restores.play(5)
    assert restores.stalls() == [], "nobody waits for their slots"
    restores.scene.join("m4")
    restores.play(5)
    assert len(restores.scene.held("m4", Role.ACTIVE)) == 1
    assert sorted(restores.stalls()) == sorted(kept)
    restores.play(5)
    assert len(restores.stalls()) == 2, "they are not tried again: nobody wants them"


def test_a_standby_too_many_is_kept_while_its_owner_comes_closer() -> None:
    restores = with_standbys(1)
    restores.restoring |= restores.hot
    restores.play(1)
    restores.scene.change(num_standby_replicas=0)
    restores.scene.join("m4")
    for _ in range(40):
        restores.lag_now -= 100
        restores.play(1 / 6)
    assert restores.stalls() == []
    restores.restoring.clear()
    restores.play(1)
    assert len(restores.scene.held("m4", Role.ACTIVE)) == 1


def test_a_standby_too_many_beside_one_that_comes_no_closer_gives_its_slot_to_another_move() -> None:
    restores = with_standbys(2)
    scene = restores.scene
    restores.play(1)
    scene.change(num_standby_replicas=1)
    restores.play(1)
    assert all(len(scene.task(task).standbys) == 2 for task in restores.hot)
    moving = next(task for task in scene.group.tasks.values() if task.id not in restores.hot)
    (to,) = {*scene.group.members} - {moving.owner, *moving.standbys}
    scene.do(PinRequest(moving.id, to))
    restores.play(3)
    assert scene.task(moving.id).owner == to
    assert any(scene.task(task).standbys == scene.task(task).target.standbys for task in restores.hot)


def test_a_standby_that_becomes_the_target_gives_way_as_a_warmup_does() -> None:
    """It has a slot once no standbys are wanted: it is tried again, in turn."""
    restores = with_standbys(1)
    scene = restores.scene
    for task in restores.hot:
        scene.do(PinRequest(TaskId(task), scene.task(task).standbys[0]))
    restores.play(0.2)
    scene.change(num_standby_replicas=0)
    scene.join("m4")
    restores.play(5)
    assert len(scene.held("m4", Role.ACTIVE)) == 1
    assert {task for task, _ in restores.stalls()} & restores.hot
    restores.hot.clear()
    restores.play(5)
    for one in scene.group.tasks.values():
        assert one.owner == one.target.owner == (one.marks.pin or one.owner)


def test_a_standby_too_many_gives_nothing_to_moves_that_wait_for_its_member_alone() -> None:
    """Each member may begin one copy. A standby is none of them, so its member gets no further without it."""
    restores = with_standbys(1, slow=1)
    scene = restores.scene
    scene.change(max_warmup_replicas=10, max_warmups_per_member=1)
    (task,) = restores.restoring = {*restores.hot}
    restores.play(1)
    (holder,) = scene.task(task).standbys
    scene.change(num_standby_replicas=0)
    others = [one.id for one in scene.group.tasks.values() if one.owner not in (holder, None) and one.id != task]
    for other in others[:2]:
        scene.do(PinRequest(other, holder))
    restores.hot |= {*others[:2]}
    restores.play(4)
    assert {one for one, _ in restores.stalls()} == {*others[:2]}
    assert scene.task(task).standbys == (holder,)


def test_room_that_a_slow_move_would_make_is_found_elsewhere() -> None:
    """m2 is full: it gets another task only when one of its own is at m3, and that one comes no closer."""
    restores = Restores(3)
    scene = restores.scene
    scene.join("m1")
    scene.join("m2", max_tasks=2)
    for task in ("0_0", "0_1"):
        scene.do(PinRequest(TaskId(task), M2))
    scene.do(PinRequest(TaskId("0_2"), M1))
    restores.play(2)
    assert scene.held("m2", Role.ACTIVE) == ["0_0", "0_1"]
    restores.hot |= {"0_0"}
    scene.join("m3", max_tasks=1)
    scene.do(PinRequest(TaskId("0_0"), M3))
    scene.do(DrainRequest(M1))
    restores.play(2)
    assert restores.stalls() == [("0_0", "m3")]
    # Without the pin it stays where it is, and what waited goes to m3.
    scene.do(PinRequest(TaskId("0_0"), None))
    restores.play(2)
    assert scene.owners() == {"0_0": "m2", "0_1": "m2", "0_2": "m3"}


def test_it_is_shown_that_a_copy_gave_way() -> None:
    restores = joined()
    restores.play(1.5)
    scene = restores.scene
    found = explain_task(scene.view(), TaskId("0_0"))
    assert any("came no closer" in sentence and "others waited" in sentence for sentence in found.sentences)


def test_a_drained_task_whose_copy_gave_way_says_so_until_it_is_tried_again() -> None:
    restores = joined()
    restores.scene.do(DrainRequest(M1))
    restores.play(1.5)
    scene = restores.scene
    found = explain_task(scene.view(), TaskId("0_0"))
    assert found.held is not None
    assert found.held.reason is Held.STALLED


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(cases(20)))
def test_whatever_can_move_gets_there(seed: int) -> None:
    """L9, with some moves that cannot end: all others end, in a time that only the hot ones' turns add to."""
    chance = Random(seed)
    restores = Restores(
        chance.choice([6, 12, 20]),
        standbys=chance.choice([0, 0, 1, 2]),
        max_warmup_replicas=chance.choice([1, 2, 4]),
        max_warmups_per_member=chance.choice([1, 2, 3]),
        max_drain_warmups=chance.choice(["10%", 1, 3]),
        warmup_stall_timeout_ms=30_000,
        probing_rebalance_interval_ms=chance.choice([60_000, 600_000]),
    )
    scene = restores.scene
    on_lease_lost = chance.choice([*OnLeaseLost])
    for number in range(chance.choice([2, 3, 4])):
        instance = InstanceId(f"i{number}") if chance.random() < 0.5 else None
        scene.join(f"m{number + 1}", instance_id=instance, on_lease_lost=on_lease_lost)
    restores.play(4)
    restores.hot |= {task for task in scene.group.table.ids if chance.random() < 0.3}
    restores.says_lag = chance.random() < 0.8
    for number in range(chance.choice([1, 2])):
        scene.join(f"n{number}", on_lease_lost=on_lease_lost)
    if drains := chance.random() < 0.6:
        scene.do(DrainRequest(M1, chance.choice([None, 3_600_000])))
    if chance.random() < 0.2:
        restores.play(0.7)
        scene.soft = Soft()
        scene.do(Started())
    restores.play(30)
    for task in scene.group.tasks.values():
        if task.id not in restores.hot:
            assert task.owner == task.target.owner, (task, restores.hot)
    if drains:
        assert {*scene.held("m1", Role.ACTIVE)} <= restores.hot
    if not drains:
        loads = [len(scene.held(name, Role.ACTIVE)) for name in scene.group.members]
        slow = max(len({*scene.held(name, Role.ACTIVE)} & restores.hot) for name in scene.group.members)
        assert max(loads) <= max(min(loads) + 1, slow), (loads, restores.hot)


def test_a_new_owner_that_is_level_and_never_runs_gives_the_task_back() -> None:
    """Until it runs, the last owner keeps its copy, which takes a slot: no handover may be under way for ever."""
    scene = Scene()
    scene.declare(topology(2), warmup_stall_timeout_ms=STALL_MS, acceptable_recovery_lag=10)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    scene.obey("m2")
    (task,) = [one.id for one in scene.group.tasks.values() if one.target.owner == "m2"]
    scene.obey("m1")
    scene.beat("m2", {task: restoring(0)})
    assert (scene.task(task).owner, scene.task(task).handover.previous_owner) == ("m2", "m1")
    for _ in range(7):
        scene.wait(10_000)
        scene.beat("m2", {task: restoring(0)} if scene.task(task).owner == "m2" else {})
        scene.obey("m1")
    assert scene.task(task).owner == "m1"
