"""What must not grow with the group: a heartbeat that changes nothing, and the handover of one caught-up task."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from tests.benchmarks.groups import (
    Moment,
    Shape,
    declared,
    due,
    everybody_joined,
    join_of,
    member_name,
    prepare,
    reported_by,
)
from tests.benchmarks.operations import clocked, time_quiet_heartbeats

from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Heartbeat, PinRequest, Tick
from batonpass.core.state.model import ActiveState, Role
from batonpass.core.state.soft import TaskReport
from batonpass.dry_run.plan import plan_snapshot
from batonpass.explain.group import explain_group
from batonpass.explain.health import describe
from batonpass.explain.status import describe_assignments, snapshot_of

SIZES = (Shape(100, 10, 1), Shape(1_000, 100, 1), Shape(10_000, 1_000, 1), Shape(100_000, 10_000, 1))
"""Ten actives and ten standbys a member, whatever the size, so that nothing but the group differs."""

DESCRIBED = Shape(20_000, 200, 1)
"""The group that is described while much of it is still to come."""

REPEATED = "repeated heartbeat"
QUIET = "quiet heartbeat"
CAUGHT_UP = "caught-up heartbeat"
CONFIRMED = "confirmation"
RUNS = "new owner runs"
SETTLED = "old owner done"
ROWS = (REPEATED, QUIET, CAUGHT_UP, CONFIRMED, RUNS, SETTLED)

REPEATS = 100


def time_sizes(shape: Shape, beats: int = 2_000) -> dict[str, float]:
    """Return the mean milliseconds of each decision that must not grow with the group."""
    at_rest = prepare(shape).at_rest
    quiet, repeated = time_quiet_heartbeats(at_rest, beats)
    found = {REPEATED: repeated, QUIET: quiet}
    # One task more than the members share evenly, and no standbys: the pin of one task moves that task alone.
    uneven = prepare(replace(shape, tasks=shape.tasks + 1, standbys=0)).at_rest
    for name, (moment, item) in hand_over(uneven).items():
        found[name] = clocked(partial(_repeat, moment, item)) / REPEATS
    return found


def _repeat(moment: Moment, item: Heartbeat) -> None:
    for _ in range(REPEATS):
        moment.decide(item)


def hand_over(at_rest: Moment) -> dict[str, tuple[Moment, Heartbeat]]:
    """Return the heartbeats of one warm handover, each with the moment at which it arrives.

    An operator's pin begins it, since that moves one task in a group of any size.

    Raises:
        AssertionError: when one of them does not have its effect.
    """
    old, task = _most_laden(at_rest)
    new = next(name for name in sorted(at_rest.group.members) if name != old)
    warming = at_rest.then(PinRequest(task, new), 1_000)
    assert warming.group.placement_due_ms is not None, "the pin moves nothing"
    warming = warming.then(Tick(), warming.group.placement_due_ms - warming.now_ms)
    assert list(warming.group.unsettled) == [task], "the pin moves other tasks too"
    assert warming.group.tasks[task].warmups == (new,), "no warmup began"

    behind = warming.then(_says(warming, new, task, TaskReport("warmup", lag=50_000)), 1_000)
    level = _says(behind, new, task, TaskReport("warmup", lag=0))
    demoted = behind.then(level, 1_000)
    assert demoted.group.tasks[task].handover.next_owner == new, "nothing was handed over"
    confirms = _says(demoted, old, task, TaskReport("standby", lag=0, final_position=(("", 905),)))
    granted = demoted.then(confirms, 1_000)
    assert granted.group.tasks[task].owner == new, "nothing was granted"
    runs = _says(granted, new, task, TaskReport("active", ActiveState.RUNNING))
    done = granted.then(runs, 1_000)
    assert done.group.tasks[task].state is ActiveState.RUNNING, "the new owner does not run"
    gave_up = _says(done, old, task, None)
    assert not done.then(gave_up, 1_000).group.unsettled, "the group is not at rest"
    return {CAUGHT_UP: (behind, level), CONFIRMED: (demoted, confirms), RUNS: (granted, runs), SETTLED: (done, gave_up)}


def _most_laden(at_rest: Moment) -> tuple[MemberId, TaskId]:
    """Return the member that has one task more than the others, and that task."""
    members = at_rest.group.members
    most = max(sorted(members), key=lambda name: len(members[name].assignment))
    return most, min(members[most].assignment)


def _says(moment: Moment, member_id: MemberId, task: TaskId, of_task: TaskReport | None) -> Heartbeat:
    """Return a member's next heartbeat: everything that it holds, and this report of the task."""
    member, soft = moment.group.members[member_id], moment.soft.members[member_id]
    tasks = reported_by(member)
    if of_task is None:
        tasks.pop(task, None)
    else:
        tasks[task] = of_task
    return Heartbeat(member_id, soft.seq + 1, member.epoch, tasks)


def time_beginning(shape: Shape) -> tuple[float, float]:
    """Return the mean milliseconds of a join before the first placement, and of a member's first word after it.

    The one may not grow with the tasks, the other not with the square of the group.
    """
    members = range(shape.members)
    moment = declared(shape)

    def everybody_joins() -> None:
        nonlocal moment
        for number in members:
            moment = moment.then(join_of(shape, number))

    joins = clocked(everybody_joins)
    due_ms = moment.group.placement_due_ms
    assert due_ms is not None, "nothing is to be placed"
    moment = moment.then(Tick(), due_ms - moment.now_ms)
    words = first_words(moment, [member_name(number) for number in members])

    def everybody_speaks() -> None:
        nonlocal moment
        for word in words:
            moment = moment.then(word, 1)

    spoken = clocked(everybody_speaks)
    assert not moment.group.unsettled, "the group is not at rest"
    return joins / shape.members, spoken / shape.members


def time_describing(shape: Shape) -> dict[str, dict[str, float]]:
    """Return the milliseconds of what the API asks of a group that has just begun, and of one that has just doubled."""
    grows = prepare(shape).before
    for number in range(shape.members, 2 * shape.members):
        grows = grows.then(join_of(shape, number))
    begins = everybody_joined(shape).then(Tick())
    return {"it begins": _described(begins), "it doubles": _described(due(grows).then(Tick()))}


def _described(moment: Moment) -> dict[str, float]:
    def view() -> View:
        return View(moment.group, moment.soft, moment.now_ms)

    calls: dict[str, Callable[[], object]] = {
        "tasks not settled": lambda: None,
        "status": lambda: describe(view()),
        "why it is not at rest": lambda: explain_group(view(), limit=100),
        "assignments": lambda: describe_assignments(view()),
        "dry run": lambda: plan_snapshot(snapshot_of(view())),
    }
    found = {name: median(clocked(call) for _ in range(3)) for name, call in calls.items()}
    return found | {"tasks not settled": len(moment.group.unsettled)}


def first_words(moment: Moment, names: Sequence[MemberId]) -> list[Heartbeat]:
    """Return the heartbeats in which every member says that it runs its actives and is that its copies are behind."""
    members = [moment.group.members[name] for name in names]
    assert all(any(grant.role is Role.ACTIVE for grant in one.assignment.values()) for one in members), (
        "one has nothing"
    )
    behind = TaskReport("standby", lag=50_000)
    return [
        Heartbeat(
            member.id,
            1,
            member.epoch,
            {task: behind if report.role == "standby" else report for task, report in reported_by(member).items()},
        )
        for member in members
    ]
