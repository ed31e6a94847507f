"""How much there is to restore of each task: among equal moves placement makes the one that restores least."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from batonpass.core.ids import MemberId, task_id
from batonpass.core.lag import Readiness, changelogs_of
from batonpass.core.model import Group, Task
from batonpass.core.soft import EndOffset, MeasuredReport, Soft
from batonpass.core.view import View

_Log = tuple[str, int]


def state_sizes(group: Group, soft: Soft) -> dict[int, int]:
    """Return, by the index of a task, about how many records a restore from nothing reads, where it is known.

    That is from the beginning to the end of its changelogs where the coordinator has read them. Where it has not, it is
    the farthest end that a member's report implies, its position and its lag: too much for a log that was cut, and
    too little where only a lag is reported.
    """
    return _reported(group, soft) | _read(group, soft)


def lag_at_start(view: View, task: Task, member_id: MemberId) -> int | None:
    """Return how many records a copy that begins now has to restore; None where nobody knows.

    Without any state that is all there is of the task, as for ``state_sizes``, but of the members only those that
    follow the task are asked how much that is.
    """
    member_soft = view.member_softs.get(member_id)
    if member_soft is None or not member_soft.full:
        return None
    copy = view.copy(task, member_id)
    if copy.readiness is not Readiness.COLD:
        return copy.lag
    logs = changelogs_of(view.group, task.id).items()
    if (read := _length(logs, view.soft.end_offsets, view.soft.begin_offsets)) is not None:
        return read
    softs = [view.member_softs.get(one) for one in (task.owner, *task.standbys, *task.warmups) if one is not None]
    reports = [one.reports.get(task.id) for one in softs if one is not None]
    return max([_implied(one) for one in reports if one is not None and _tells(one)], default=None)


def _reported(group: Group, soft: Soft) -> dict[int, int]:
    rank_of = group.table.index_of
    found: dict[int, int] = {}
    every = chain.from_iterable(member_soft.reports.items() for member_soft in soft.members.values())
    for task, measured in [(task, one) for task, one in every if _tells(one)]:
        size = _implied(measured)
        task_index = rank_of.get(task)
        if task_index is not None and size > found.get(task_index, 0):
            found[task_index] = size
    return found


def _tells(measured: MeasuredReport) -> bool:
    return bool(measured.lag or measured.report.positions)


def _implied(measured: MeasuredReport) -> int:
    return (measured.lag or 0) + sum(position for _, position in measured.report.positions)


def _read(group: Group, soft: Soft) -> dict[int, int]:
    ends, begins = soft.end_offsets.plain(), soft.begin_offsets.plain()
    found: dict[int, int] = {}
    for part in group.topology.subtopologies if ends else ():
        if not part.partitions or not part.changelog_topics:
            continue
        first = group.table.index_of[task_id(part.id, 0)]
        for partition in range(part.partitions):
            size = _length([(topic, partition) for topic in part.changelog_topics], ends, begins)
            if size is not None:
                found[first + partition] = size
    return found


def _length(logs: Iterable[_Log], ends: Mapping[_Log, EndOffset], begins: Mapping[_Log, int]) -> int | None:
    """Return how many records these changelogs hold; None where there are none, or one of them was not read."""
    size: int | None = None
    for log in logs:
        end = ends.get(log)
        if end is None:
            return None
        size = (size or 0) + max(0, end.offset - begins.get(log, 0))
    return size
