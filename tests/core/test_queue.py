"""Tasks that only wait for a slot are a queue: no step looks at them, and no decision is another for it."""

from dataclasses import replace

import pytest
from tests.core import luck, scene
from tests.core.luck import Luck
from tests.core.scene import Scene, copy, topology
from tests.core.test_membership_random import Chaos
from tests.often import cases

from batonpass.core.decide import Decision, decide
from batonpass.core.handover import copies, step
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, DrainReversal, Input, Join
from batonpass.core.state.model import Group, Pending, Role, Task
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import Soft, TaskReport


class Both:
    """Decides with the queue, and as if every unsettled task were open; both have to come to the same.

    ``limited`` of False takes the limits on their copies from whoever joins.
    """

    def __init__(self, *, limited: bool) -> None:
        self.limited = limited
        self.queued = 0

    def __call__(self, group: Group, soft: Soft, inputs: tuple[Input, ...], now_ms: int, policy: Policy) -> Decision:
        """Return the decision."""
        if not self.limited:
            inputs = tuple(replace(item, max_tasks=None) if isinstance(item, Join) else item for item in inputs)
        found = decide(group, soft, inputs, now_ms, policy)
        if Pending.QUEUED in group.unsettled.values():
            self.queued += 1
            again = decide(opened(group), soft, inputs, now_ms, policy)
            assert again.records == found.records
            assert (again.replies, again.soft, again.wake_at_ms) == (found.replies, found.soft, found.wake_at_ms)
            assert sorted(again.reasons, key=repr) == sorted(found.reasons, key=repr)
        return found


def opened(group: Group) -> Group:
    """Return the group with everything that waits for a slot looked at in each step."""
    marks = {task_id: Pending.MOVING if mark is Pending.QUEUED else mark for task_id, mark in group.unsettled.items()}
    return replace(group, unsettled=PMap(marks))


def _compared(monkeypatch: pytest.MonkeyPatch, *, limited: bool) -> Both:
    both = Both(limited=limited)
    for module in (luck, scene):
        monkeypatch.setattr(module, "decide", both)
    return both


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", [3, 4, 5, 7, 8, 10, 18])
def test_honest_workers_with_bad_luck_are_told_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of inputs in the middle of warmups, handovers and drains."""
    both = _compared(monkeypatch, limited=seed % 3 == 0)
    one = Luck(seed)
    for _ in range(250):
        one.step()
    assert both.queued


@pytest.mark.parametrize("seed", range(cases(20)))
def test_whoever_says_whatever_at_any_time_is_told_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late, lying and lost words, commands, clocks that jump, coordinators that start anew."""
    _compared(monkeypatch, limited=seed % 4 == 0)
    one = Chaos(seed)
    for _ in range(80):
        one.step()


def growing(members: int = 10, tasks: int = 200, **config: object) -> Scene:
    """Return a group whose first member runs everything, and waits for slots to give most of it to the others."""
    one = Scene(whole=False)
    one.declare(topology(tasks), **({"max_warmup_replicas": 3, "acceptable_recovery_lag": 10} | config))
    one.join("m00")
    one.obey("m00")
    one.obey("m00")
    for number in range(1, members):
        one.join(f"m{number:02}")
    one.tick(1_000)
    return one


def queue_of(one: Scene) -> set[TaskId]:
    """Return what waits for a slot."""
    return {task_id for task_id, pending in one.group.unsettled.items() if pending is Pending.QUEUED}


def warming(one: Scene) -> dict[TaskId, MemberId]:
    """Return every warmup."""
    return {task_id: warmup for task_id in one.group.moving_tasks() for warmup in one.group.tasks[task_id].warmups}


def test_no_step_stages_what_waits_for_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat frees no slot, so that only its own tasks are staged."""
    one = growing()
    assert len(queue_of(one)) > 100
    staged: list[TaskId] = []
    real = copies.plan_task

    def noted(view: object, task: Task) -> object:
        staged.append(task.id)
        return real(view, task)  # type: ignore[arg-type]

    monkeypatch.setattr(step, "plan_task", noted)
    task_id, member_id = min(warming(one).items())
    one.beat(member_id, {task_id: copy("warmup", 5_000)})
    assert staged
    assert set(staged) <= {*warming(one)}


def test_a_slot_that_comes_free_goes_to_whoever_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot goes to one of all that wait, not of those that the heartbeat is about."""
    _compared(monkeypatch, limited=True)
    one = growing()
    before, waited = warming(one), queue_of(one)
    assert len(before) == 3
    task_id, member_id = min(before.items())
    one.beat(member_id, {task: copy("warmup", 0) for task, who in before.items() if who == member_id})
    one.obey("m00")
    one.obey(member_id)
    after = warming(one)
    assert one.task(task_id).owner == member_id
    assert len(after) == 3
    assert after.keys() - before.keys() <= waited


def test_who_may_warm_up_no_more_is_asked_again_once_it_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are slots enough; the limit is what one member restores at a time."""
    _compared(monkeypatch, limited=True)
    one = growing(members=3, max_warmup_replicas=50, max_warmups_per_member=2)
    before = warming(one)
    assert len(before) == 4
    one.beat("m01", {task: copy("warmup", 0) for task, who in before.items() if who == "m01"})
    one.obey("m00")
    one.obey("m01")
    assert {who for task, who in warming(one).items() if task not in before} == {"m01"}


def test_a_deadline_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of a member that goes at an instant go to their targets cold at that instant."""
    _compared(monkeypatch, limited=True)
    one = growing(members=3, tasks=20)
    assert queue_of(one)
    one.do(DrainRequest(MemberId("m00"), 60_000))
    assert not queue_of(one)
    one.do(DrainReversal(MemberId("m00")))
    one.tick(1_000)
    assert queue_of(one)
    one.do(DrainRequest(MemberId("m00"), 30_000))
    words: dict[str, TaskReport] = {task: copy("warmup", 9_000) for task in one.held("m01", Role.WARMUP)}
    for _ in range(12):
        one.wait(3_000)
        one.obey("m00")
        one.beat("m01", words)
        one.obey("m02")
    assert one.held("m00", Role.ACTIVE) == []


def test_the_queue_follows_the_number_of_standbys() -> None:
    """The copy of a wanted standby takes no slot."""
    one = growing(members=3, tasks=20)
    assert queue_of(one)
    one.change(num_standby_replicas=1)
    assert not queue_of(one)


def test_a_task_may_wait_for_two_slots_and_get_both_at_once() -> None:
    stage = Scene()
    stage.declare(topology(8), num_standby_replicas=1, max_warmup_replicas=1, max_warmups_per_member=1)
    for name in "abc":
        stage.join(name)
    stage.settle()
    for name in "def":
        stage.join(name)
    for _ in range(3):
        stage.tick(100)
    both = [
        task
        for task in map(stage.task, stage.group.table.ids)
        if stage.group.unsettled.get(task.id) is Pending.QUEUED
        if len({task.target.owner, *task.target.standbys} - {task.owner, *task.standbys}) == 2
    ]
    assert both
    stage.change(max_warmup_replicas=20, max_warmups_per_member=20)
    stage.tick(100)
    for task in both:
        wanted = {task.target.owner, *task.target.standbys} - {task.owner, *task.standbys}
        assert set(stage.task(task.id).warmups) == wanted


@pytest.mark.parametrize("reads", [True, False])
def test_who_waits_for_a_member_where_copies_come_no_closer_comes_after_all_others(reads: bool) -> None:  # noqa: FBT001
    """Also when the tasks of those copies stay where they are for now, so that no step looks at them."""
    one = growing(members=3, tasks=20, max_warmup_replicas=2, max_warmups_per_member=2, warmup_stall_timeout_ms=60_000)
    for _ in range(13):
        one.wait(10_000)
        one.obey("m00", "m02")
        read = one.now_ms if reads else 0
        slow = copy("warmup", None, positions=(("", read),), end_offsets=(("", read + 5_000),))
        one.beat("m01", dict.fromkeys(one.held("m01", Role.WARMUP), slow))
    assert {stall.member_id for task in one.group.tasks.values() for stall in task.marks.stalls} == {"m01"}
    assert len(one.held("m02", Role.ACTIVE)) == 6
