"""How many extra copies a group has at once, added up for the law of budgets (L8). Part of ``invariants``.

A group that grows may have thousands of tasks on their way, and every decision that begins a copy is held to the
budget. What was added up last for a group is remembered here, with the very group for which it was: the next sum looks
at what has changed since. It is only ever a shorter way to the same number, and nothing else reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from batonpass.core.ids import GroupId, TaskId
from batonpass.core.model import Group, Task

REMEMBERED: Final = 64
"""So many groups are remembered at once; the one that was remembered first is forgotten first."""


class Spent(NamedTuple):
    """Slots in use: for moves of tasks that no drain has to do with, and for those of drains."""

    normal: int
    drains: int


_lately: dict[GroupId, tuple[Group, Spent]] = {}


def spent(group: Group) -> Spent:
    """Return the slots in use. Costs what has changed since the last time, else a pass over what is unsettled."""
    before, sums = _lately.pop(group.id, (None, Spent(0, 0)))
    if before is None or not _is_like(before, group):
        found = _add_up(group, group.unsettled, Spent(0, 0), 1)
    else:
        changed = {
            *group.tasks.changed_since(before.tasks),
            *group.unsettled.changed_since(before.unsettled),
        }
        without = _add_up(before, (one for one in changed if one in before.unsettled), sums, -1)
        found = _add_up(group, (one for one in changed if one in group.unsettled), without, 1)
    if len(_lately) >= REMEMBERED:
        oldest, *_ = _lately.copy()
        _lately.pop(oldest, None)  # Others may add up at the same time.
    _lately[group.id] = group, found
    return found


def _is_like(before: Group, group: Group) -> bool:
    """Say whether nothing has changed that may make another sum of tasks that are the same."""
    if before.config is not group.config:
        return False
    for member_id, member in group.members.changed_since(before.members).items():
        was = before.members.get(member_id)
        if (was is not None and was.drain is not None) is not (member is not None and member.drain is not None):
            return False
    return True


def _add_up(group: Group, tasks: Iterable[TaskId], sums: Spent, sign: int) -> Spent:
    normal, drains = sums
    for task_id in tasks:
        task = group.tasks[task_id]
        extra = sign * extra_copies(group, task)
        if extra and is_of_a_drain(group, task):
            drains += extra
        else:
            normal += extra
    return Spent(normal, drains)


def extra_copies(group: Group, task: Task) -> int:
    """Return how many copies of the task the budgets count: its warmups, or what lies above the wanted number.

    A warmup that has been chosen as the next owner has nothing left to restore: it counts as the active to be.
    """
    copies = len(task.standbys) + len(task.warmups) + (task.owner is not None)
    return max(len(task.warmups) - (task.heir in task.warmups), copies - 1 - group.config.num_standby_replicas)


def is_of_a_drain(group: Group, task: Task) -> bool:
    """Say whether a member on its way out has a copy of the task, so that the drain's budget may pay."""
    holders = (task.owner, task.keeper, *task.standbys, *task.warmups)
    members = [group.members.get(one) for one in holders if one is not None]
    return any(member is not None and member.drain is not None for member in members)
