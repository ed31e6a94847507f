"""A new version of a group's target, and what led to it: the row that is stored beside the records of its decision.

It follows from the records, the group and the reasons of the decision, so those who write it and those who compare it
use the same code.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Group
from batonpass.core.state.reasons import Reason
from batonpass.core.state.records import RebalanceScheduled, Record, TargetPlaced

PROBE: Final = "probe"
"""The trigger of a target that no change had scheduled: a look at the group found it better."""


class Moved(NamedTuple):
    """One line of the difference between two generations: a task whose target changed."""

    task: TaskId
    owner_before: MemberId | None
    owner: MemberId | None
    standbys_before: tuple[MemberId, ...]
    standbys: tuple[MemberId, ...]
    why: str


class Generation(NamedTuple):
    """A committed version of the target assignment, and what led to it.

    ``score`` is the difference between the highest and the lowest active stateful load per capacity, before and after.
    ``moves`` counts the moves still to come, also those that an earlier generation asked for. ``warmups`` is how many
    warmups run after the decision. Durations are milliseconds.
    """

    number: int
    group_epoch: int
    at_ms: int
    triggers: tuple[str, ...]
    members: int
    tasks: int
    moves: int
    lower_bound: int
    warmups: int
    score_before: float
    score: float
    decide_ms: float
    moved: tuple[Moved, ...]
    reasons: tuple[Reason, ...]


def why_of(reasons: Iterable[Reason]) -> dict[TaskId, str]:
    """Return the first reason of each task that has any."""
    why: dict[TaskId, str] = {}
    for reason in reasons:
        if reason.task is not None:
            why.setdefault(reason.task, reason.code)
    return why


def generation_of(
    before: Group, records: Sequence[Record], after: Group, reasons: Sequence[Reason], *, at: tuple[int, float]
) -> Generation | None:
    """Return the generation that a decision's records began; None if they began none.

    ``at`` is the instant of the decision, and how many milliseconds it took.
    """
    placed = next((one for one in records if isinstance(one, TargetPlaced)), None)
    if placed is None or after.generation == before.generation:
        return None
    why, moved = why_of(reasons), []
    for task_id, (owner, standbys, _) in placed.changes.items():
        owner_before, standbys_before, _ = before.task(task_id).target
        moved.append(Moved(task_id, owner_before, owner, standbys_before, standbys, why.get(task_id, "")))
    return Generation(
        number=placed.generation,
        group_epoch=placed.group_epoch,
        at_ms=at[0],
        triggers=triggers_of(before, records),
        members=len(after.members),
        tasks=len(after.table.ids),
        moves=placed.moves,
        lower_bound=placed.lower_bound,
        warmups=sum(len(after.tasks[task].warmups) for task in after.moving_tasks()),
        score_before=_score(before, after),
        score=_score(after, after),
        decide_ms=at[1],
        moved=tuple(moved),
        reasons=tuple(one for one in reasons if one.task is None or one.tasks > 1),
    )


def new_moves(before: Group, made: Generation, after: Group) -> int:
    """Return how many of a generation's moves of stateful tasks no earlier one has asked for."""
    index_of, stateful = after.table.index_of, after.table.stateful
    new = [
        one.owner not in (None, one.owner_before, before.task(one.task).owner)
        for one in made.moved
        if (index := index_of.get(one.task)) is not None and stateful[index]
    ]
    return min(sum(new), made.moves)


def triggers_of(before: Group, records: Iterable[Record]) -> tuple[str, ...]:
    """Return the triggers that had scheduled a target, or ``PROBE`` if there were none."""
    new = [one.trigger for one in records if isinstance(one, RebalanceScheduled)]
    return tuple(dict.fromkeys((*before.triggers, *new))) or (PROBE,)


def _score(group: Group, present: Group) -> float:
    """Return the difference between the highest and the lowest target load per capacity of ``present``'s members.

    The load is the weight of the stateful tasks whose target in ``group`` is that member. Draining members are left
    out.
    """
    load: dict[MemberId | None, float] = dict.fromkeys(present.members, 0.0)
    table = group.table
    for task_index, task_id in enumerate(table.ids):
        if table.stateful[task_index]:
            target = group.tasks[task_id].target.owner
            if target in load:
                load[target] += table.weight[task_index]
    shares = [load[one] / member.capacity for one, member in present.members.items() if member.drain is None]
    return round(max(shares) - min(shares), 6) if shares else 0.0
