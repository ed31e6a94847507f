"""How much a member takes: the one place for its limits, on copies (``max_tasks``) and on bytes (``max_disk_bytes``).

Copies are counted. Bytes are not: placement deals tasks by number, and a flow of numbers has no sizes. So they are
turned into a number first: a member with a limit on its disk keeps what it has there, whatever that takes, and of
further tasks with state it takes as many as fit into what is free if each of them is as large as the largest of the
group. A task of which it has state already, in any role, takes no room of another.

What is left of all that in one step is in ``copy_capacity``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final, NamedTuple

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import Group, Member
from batonpass.core.soft import MemberSoft, Soft

ANY_NUMBER: Final = 1 << 30
"""Room for as many tasks as there may be: nobody knows yet what a task takes on a disk."""


def has_limit(member: Member) -> bool:
    """Say whether the member takes only so much."""
    return member.max_tasks is not None or member.max_disk_bytes is not None


def has_limits(group: Group) -> bool:
    """Say whether any member takes only so much."""
    return any(map(has_limit, group.members.values()))


class DiskRoom(NamedTuple):
    """What a member with a limit on its disk takes: the state that it has, and ``more`` that it has nothing of yet."""

    has: frozenset[TaskId]
    more: int


def room_on_disks(group: Group, soft: Soft) -> dict[MemberId, DiskRoom]:
    """Return the room of every member with a limit on its disk. Costs a pass over all reports, if there are any such.

    A member of which nobody knows what it has, since the coordinator started, takes nothing more until it has spoken.
    """
    limited = [member for member in group.members.values() if member.max_disk_bytes is not None]
    if not limited:
        return {}
    sizes: dict[TaskId, int] = {}
    for task_id, measured in chain.from_iterable(one.reports.items() for one in soft.members.values()):
        if (measured.report.disk_bytes or 0) > sizes.get(task_id, 0):
            sizes[task_id] = measured.report.disk_bytes or 0
    largest = max(sizes.values(), default=0)
    return {member.id: _room_of(group, member, soft.members.get(member.id), sizes, largest) for member in limited}


def _room_of(
    group: Group, member: Member, member_soft: MemberSoft | None, sizes: Mapping[TaskId, int], largest: int
) -> DiskRoom:
    table = group.table
    reports = member_soft.reports if member_soft is not None else {}
    held = {*member.assignment, *member.revoking}
    is_there = {task_id for task_id, measured in reports.items() if not measured.report.lost}
    stateful = [table.index_of[one] for one in held | is_there if one in table.index_of]
    has = frozenset([table.ids[one] for one in stateful if table.stateful[one]])
    if member_soft is None or not member_soft.full:
        return DiskRoom(has, 0)
    there = {task_id: measured.report.disk_bytes or 0 for task_id, measured in reports.items()}
    # What is followed will be as large here as it is elsewhere, and so will be what it may be told to follow again.
    expected = sum(there.values()) + sum([max(0, sizes.get(one, 0) - there.get(one, 0)) for one in has])
    free = max(0, (member.max_disk_bytes or 0) - expected)
    return DiskRoom(has, free // largest if largest and free else ANY_NUMBER if free else 0)
