"""How much there is to restore of each task: among equal moves placement makes the one that restores least."""

from __future__ import annotations

from itertools import chain

from batonpass.core.ids import task_id
from batonpass.core.model import Group
from batonpass.core.soft import Soft


def state_sizes(group: Group, soft: Soft) -> dict[int, int]:
    """Return, by the index of a task, about how many records a restore from nothing reads, where it is known.

    That is from the beginning to the end of its changelogs where the coordinator has read them. Where it has not, it is
    the farthest end that a member's report implies, its position and its lag: too much for a log that was cut, and
    too little where only a lag is reported.
    """
    return _reported(group, soft) | _read(group, soft)


def _reported(group: Group, soft: Soft) -> dict[int, int]:
    rank_of = group.table.index_of
    found: dict[int, int] = {}
    every = chain.from_iterable(member_soft.reports.items() for member_soft in soft.members.values())
    for task, measured in [(task, one) for task, one in every if one.lag or one.report.positions]:
        size = (measured.lag or 0) + sum(position for _, position in measured.report.positions)
        task_index = rank_of.get(task)
        if task_index is not None and size > found.get(task_index, 0):
            found[task_index] = size
    return found


def _read(group: Group, soft: Soft) -> dict[int, int]:
    ends, begins = soft.end_offsets.plain(), soft.begin_offsets.plain()
    found: dict[int, int] = {}
    for part in group.topology.subtopologies if ends else ():
        if not part.partitions or not part.changelog_topics:
            continue
        first = group.table.index_of[task_id(part.id, 0)]
        for partition in range(part.partitions):
            size = 0
            for topic in part.changelog_topics:
                log = (topic, partition)
                end = ends.get(log)
                if end is None:
                    break
                size += max(0, end.offset - begins.get(log, 0))
            else:
                found[first + partition] = size
    return found
