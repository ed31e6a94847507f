"""How much a member takes: the one place for its limits, on copies (``max_tasks``) and on bytes (``max_disk_bytes``).

Copies are counted. Bytes are first turned into a count, because placement gives out tasks by number, and a flow has no
sizes. A member with a limit on its disk keeps what it has there, whatever its size. Of further stateful tasks it takes
as many as fit into the free space if each is as large as the largest task of the group. A task of which it already has
state, in any role, needs no further room.

``copy_capacity`` tracks what is left of this in one step.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Final, NamedTuple

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Group, Member
from batonpass.core.state.soft import MemberSoft, Soft

ANY_NUMBER: Final = 1 << 30
"""Room for any number of tasks, used while the size of a task is unknown."""


def has_limit(member: Member) -> bool:
    return member.max_tasks is not None or member.max_disk_bytes is not None


class DiskRoom(NamedTuple):
    """What a member with a limit on its disk takes: the state that it has, and ``more`` tasks that are new to it."""

    has: frozenset[TaskId]
    more: int


def room_on_disks(group: Group, soft: Soft) -> dict[MemberId, DiskRoom]:
    """Return the room of every member with a limit on its disk. If there are any, it costs a pass over all reports.

    A member that has not reported since the coordinator started takes nothing more until it has.
    """
    limited = [member for member in group.members.values() if member.max_disk_bytes is not None]
    if not limited:
        return {}
    sizes: dict[TaskId, int] = {}
    for task_id, measured in chain.from_iterable(member_soft.reports.items() for member_soft in soft.members.values()):
        if measured.report.disk_bytes is not None:
            sizes[task_id] = max(measured.report.disk_bytes, sizes.get(task_id, 0))
    largest = max(sizes.values(), default=0)
    return {member.id: _room_of(group, member, soft.of(member.id), sizes, largest) for member in limited}


def _room_of(
    group: Group, member: Member, member_soft: MemberSoft, sizes: Mapping[TaskId, int], largest: int
) -> DiskRoom:
    table, reports = group.table, member_soft.reports
    held = {*member.assignment, *member.revoking}
    is_there = {task_id for task_id, measured in reports.items() if not measured.report.lost}
    stateful = [table.index_of[task_id] for task_id in held | is_there if task_id in table.index_of]
    has = frozenset([table.ids[task_index] for task_index in stateful if table.stateful[task_index]])
    if not member_soft.full:
        return DiskRoom(has, 0)
    there = {task_id: measured.report.disk_bytes or 0 for task_id, measured in reports.items()}
    # A copy will become as large here as it is elsewhere, and so will state that may become a copy again. What nobody
    # said the size of, as of a task that has just been granted for the first time, takes the room that it was given.
    to_come = [max(0, sizes.get(task_id, largest) - there.get(task_id, 0)) for task_id in has]
    expected = sum(there.values()) + sum(to_come)
    free = max(0, (member.max_disk_bytes or 0) - expected)
    return DiskRoom(has, free // largest if largest and free else ANY_NUMBER if free else 0)
