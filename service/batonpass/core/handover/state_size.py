"""How much there is to restore of each task. Among equal moves, placement chooses the one that restores least."""

from collections.abc import Iterable, Mapping

from batonpass.core.handover.lag import changelogs_of
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, task_id
from batonpass.core.state.model import Group, Task
from batonpass.core.state.numbers import bounded_sum
from batonpass.core.state.soft import EndOffset, Log, MeasuredReport, Soft
from batonpass.placement.types import Readiness


def state_sizes(group: Group, soft: Soft) -> dict[int, int]:
    """Return, by task index, about how many records a restore from nothing reads, where known.

    If the coordinator has read the task's changelogs, this is from their beginnings to their ends. If not, it is the
    farthest end that a member's report implies: position plus lag. That is too much for a truncated log, and too little
    if only a lag is reported.
    """
    return _reported(group, soft) | _read(group, soft)


def lag_at_start(view: View, task: Task, member_id: MemberId) -> int | None:
    """Return how many records a copy that begins now has to restore; None if unknown.

    Without state, that is the size of the whole task, as in ``state_sizes``, except that only the reports of members
    with a copy of the task count.
    """
    member_soft = view.member_softs.get(member_id)
    if member_soft is None or not member_soft.full:
        return None
    copy = view.copy(task, member_id)
    if copy.readiness is not Readiness.COLD:
        return copy.lag
    logs = changelogs_of(view.group, task.id)
    if (read := _length(logs, view.soft.end_offsets, view.soft.begin_offsets)) is not None:
        return read
    holders = [member_id for member_id in (task.owner, *task.standbys, *task.warmups) if member_id is not None]
    reports = [view.soft.report_of(holder, task.id) for holder in holders]
    known = [measured for measured in reports if measured is not None and (measured.lag or measured.report.positions)]
    return max(map(_implied, known), default=None)


def _reported(group: Group, soft: Soft) -> dict[int, int]:
    index_of = group.table.index_of
    sizes: dict[int, int] = {}
    for member_soft in soft.members.values():
        for task, measured in member_soft.reports.items():
            if measured.lag or measured.report.positions:
                task_index, size = index_of.get(task), _implied(measured)
                if task_index is not None and size > sizes.get(task_index, 0):
                    sizes[task_index] = size
    return sizes


def _implied(measured: MeasuredReport) -> int:
    return bounded_sum([measured.lag or 0, *(position for _, position in measured.report.positions)])


def _read(group: Group, soft: Soft) -> dict[int, int]:
    ends, begins = soft.end_offsets.plain(), soft.begin_offsets.plain()
    sizes: dict[int, int] = {}
    for part in group.topology.subtopologies if ends else ():
        if not part.partitions or not part.changelog_topics:
            continue
        first = group.table.index_of[task_id(part.id, 0)]
        for partition in range(part.partitions):
            size = _length([(topic, partition) for topic in part.changelog_topics], ends, begins)
            if size is not None:
                sizes[first + partition] = size
    return sizes


def _length(logs: Iterable[Log], ends: Mapping[Log, EndOffset], begins: Mapping[Log, int]) -> int | None:
    """Return how many records these changelogs hold; None if there are none, or one of them was not read."""
    size: int | None = None
    for log in logs:
        end = ends.get(log)
        if end is None:
            return None
        size = bounded_sum([size or 0, max(0, end.level_at - begins.get(log, 0))])
    return size
