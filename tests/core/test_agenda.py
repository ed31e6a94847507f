"""What was found out about open tasks is kept from step to step, and no decision is another for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.core import luck, scene
from tests.core.luck import Luck
from tests.core.scene import Scene, copy, restoring, running, topology
from tests.core.test_membership_random import Chaos

from batonpass.core import agenda, copies, step
from batonpass.core.agenda import Agenda
from batonpass.core.decide import Decision, decide
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.inputs import DrainRequest, Eviction, Input, Join, PauseRequest, ResumeRequest
from batonpass.core.model import Group, Task
from batonpass.core.policy import Policy
from batonpass.core.soft import Soft, TaskReport

NEVER = 1 << 60


class Both:
    """Decides with what is known, without it, and as if nothing were ever kept; all of it has to come out the same.

    ``limited`` of False takes the limits on their copies from whoever joins, since groups with limits keep nothing.
    """

    def __init__(self, *, limited: bool) -> None:
        self.limited = limited
        self.known = 0

    def __call__(self, group: Group, soft: Soft, item: Input, now_ms: int, policy: Policy) -> Decision:
        """Return the decision."""
        if isinstance(item, Join) and not self.limited:
            item = replace(item, max_tasks=None)
        found = decide(group, soft, item, now_ms, policy)
        bare = replace(soft, agenda=None, rest=None)
        if soft.agenda is not None:
            self.known += 1
            assert decide(group, bare, item, now_ms, policy) == found, f"with an agenda {item} comes out otherwise"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(agenda, "FEWEST", NEVER)
            assert decide(group, bare, item, now_ms, policy) == found, f"looked at whole, {item} comes out otherwise"
        return found


@pytest.fixture
def _kept_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep an agenda in groups of any size."""
    monkeypatch.setattr(agenda, "FEWEST", 0)


def _compared(monkeypatch: pytest.MonkeyPatch, *, limited: bool) -> Both:
    both = Both(limited=limited)
    for module in (luck, scene):
        monkeypatch.setattr(module, "decide", both)
    return both


@pytest.mark.usefixtures("_kept_always")
@pytest.mark.parametrize("seed", [*range(6), 21, 64])
def test_honest_workers_with_bad_luck_are_told_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of inputs in the middle of warmups, handovers and drains, each decided in three ways."""
    both = _compared(monkeypatch, limited=seed % 3 == 0)
    one = Luck(seed)
    for _ in range(250):
        one.step()
    assert both.known > 50


@pytest.mark.usefixtures("_kept_always")
@pytest.mark.parametrize("seed", range(40))
def test_whoever_says_whatever_at_any_time_is_told_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late, lying and lost words, commands, clocks that jump, coordinators that start anew."""
    both = _compared(monkeypatch, limited=seed % 4 == 0)
    one = Chaos(seed)
    for _ in range(80):
        one.step()
    assert both.known or one.scene.group.members == {} or both.limited


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TaskId]]:
    """Collect the tasks that are staged, in whatever way."""
    found: list[TaskId] = []
    real = copies.stage

    def noted(view: object, task: Task) -> object:
        found.append(task.id)
        return real(view, task)  # type: ignore[arg-type]

    for module in (copies, step, agenda):
        monkeypatch.setattr(module, "stage", noted)
    return iter([found])


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
    assert len(one.group.open_tasks()) >= tasks // 2
    return one


def agenda_of(one: Scene) -> Agenda:
    """Return what is kept."""
    assert isinstance(one.soft.agenda, Agenda)
    return one.soft.agenda


def warming(one: Scene) -> list[tuple[TaskId, MemberId]]:
    """Return every warmup."""
    found = [(task_id, one.group.tasks[task_id]) for task_id in one.group.open_tasks()]
    return [(task_id, member_id) for task_id, task in found for member_id in task.warmups]


def test_a_word_has_only_its_own_tasks_looked_at(looked_at: Iterator[list[TaskId]]) -> None:
    """A joiner concerns no task, and the word of a member with one warmup that one; two hundred others wait."""
    [found] = looked_at
    one = growing()
    one.join("later")
    found.clear()
    one.join("latest")
    assert found == []
    [(task_id, member_id), *_] = warming(one)
    one.beat(member_id, {task_id: copy("warmup", 5_000)})
    found.clear()
    one.beat(member_id, {task_id: copy("warmup", None)})
    assert set(found) <= {task for task, who in warming(one) if who == member_id}
    assert found


def test_a_slot_that_comes_free_goes_to_whoever_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that wait, not of those that the word is about; the same as if everything had been looked at."""
    _compared(monkeypatch, limited=True)
    one = growing()
    before = dict(warming(one))
    assert len(before) == 3
    task_id, member_id = min(before.items())
    one.beat(member_id, {task: copy("warmup", 0) for task, who in before.items() if who == member_id})
    one.obey("m00")
    one.obey(member_id)
    after = dict(warming(one))
    assert one.task(task_id).owner == member_id
    assert len(after) == 3
    assert set(after) - set(before)


def test_who_may_warm_up_no_more_is_asked_again_once_it_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are slots enough; what bounds is what one member restores at a time."""
    _compared(monkeypatch, limited=True)
    one = growing(members=3, max_warmup_replicas=50, max_warmups_per_member=2)
    before = dict(warming(one))
    assert len(before) == 4
    one.beat("m01", {task: copy("warmup", 0) for task, who in before.items() if who == "m01"})
    one.obey("m00")
    one.obey("m01")
    assert {who for task, who in warming(one) if task not in before} == {"m01"}


def test_what_a_member_had_on_disk_is_forgotten_with_its_next_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """State on disk is known by task, as long as its member says that it is there."""
    _compared(monkeypatch, limited=True)
    one = growing()
    one.join("disk", {"0_7": copy("none", 5), "0_8": copy("none", 5)})
    one.join("other")
    assert agenda_of(one).disk[TaskId("0_7")] == {"disk"}
    one.beat("disk", {"0_8": copy("none", 5)})
    one.join("another", {"0_8": copy("none", 7)})
    one.join("last")
    assert TaskId("0_7") not in agenda_of(one).disk
    assert agenda_of(one).disk[TaskId("0_8")] == {"another", "disk"}


def test_nothing_is_kept_where_little_is_open_or_everything_hangs_together() -> None:
    """Few open tasks, a pause, a member with a limit: the group is looked at whole."""
    one = growing(tasks=300)
    seen = [one.soft.agenda is not None]
    for item in (PauseRequest(), ResumeRequest(), Join(MemberId("limited"), max_tasks=3)):
        one.do(item)
        seen.append(one.soft.agenda is not None)
    assert seen == [True, False, True, False]
    assert growing(members=2, tasks=agenda.FEWEST - 2).soft.agenda is None


@pytest.mark.parametrize("who", [DrainRequest(MemberId("m03")), Eviction(MemberId("m03"), dead=True)])
def test_who_goes_has_everything_looked_at(who: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member on its way out may concern any task: who may keep a copy hangs on who else is there."""
    _compared(monkeypatch, limited=True)
    one = growing()
    one.do(who)
    one.join("m99")
    one.tick(1_000)
    assert one.soft.agenda is not None


@pytest.mark.no_cover
def test_an_owner_that_gets_nowhere_is_looked_at_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds up to an instant is staged anew from then on, though nobody said anything about it."""
    _compared(monkeypatch, limited=True)
    one = growing(warmup_stall_timeout_ms=60_000, max_warmup_replicas=100, max_warmups_per_member=100)
    [(task_id, member_id), *_] = warming(one)
    one.beat(member_id, {task: copy("warmup", 0) for task, who in warming(one) if who == member_id})
    one.obey("m00")
    words: dict[str, TaskReport] = {task: restoring(9_000) for task in one.member(member_id).picture}
    one.beat(member_id, words)
    assert one.task(task_id).owner == member_id
    one.join("soon")
    until_ms = agenda_of(one).until_ms
    assert until_ms is not None
    for _ in range(30):
        one.wait(3_000)
        one.beat(member_id, words)
        one.beat(
            "m00",
            {
                task: running() if grant.role == "active" else copy(grant.role)
                for task, grant in one.member("m00").picture.items()
            },
        )
        one.obey("m02")
    assert one.now_ms > until_ms


@pytest.mark.no_cover
def test_who_was_heard_last_is_known_without_a_look_at_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nobody can be overdue, nobody is asked; once somebody may be, everybody is."""
    _compared(monkeypatch, limited=True)
    one = growing(max_warmup_replicas=100, max_warmups_per_member=1)
    for _ in range(3):
        one.now_ms += 1_000
        for name in sorted(one.group.members):
            one.obey(name)
    since_ms = agenda_of(one).silent_since_ms
    assert since_ms is not None
    assert since_ms <= min(heard.heard_ms for heard in one.soft.members.values())
    one.now_ms += 10_000
    for name in sorted(one.group.members)[1:]:
        one.obey(name)
    assert one.soft.agenda is not None
