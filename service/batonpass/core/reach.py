"""What of a target can be reached: moves that wait for room which nothing will ever make.

A member that has as many copies as it takes (``max_tasks``) gets another one only once one of its own has gone, and a
copy goes only once its successor is caught up elsewhere. Where full members wait for one another in a ring, each for
the room that the next one has still to make, nobody moves, however long the group waits. Nothing healthy is given up to
break such a ring: what waits in it stays where it is.

Whether a group has come to that is not foreseen but found out: the files that decide are asked what they would do about
the target. As long as they would do anything at all, or anything is under way, room may yet be made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from batonpass.core.copies import Staged, stage
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import ActiveState, Group, Member, Task, with_target
from batonpass.core.reasons import Held
from batonpass.core.room import Room
from batonpass.core.targets import Change
from batonpass.core.view import View


class Outlook(NamedTuple):
    """What becomes of a target.

    ``stuck`` are the tasks that wait for room in vain, in order. ``waits`` says that some wait for room that may yet be
    made: the group has to be looked at again once nothing else goes on.
    """

    stuck: tuple[Staged, ...] = ()
    waits: bool = False


_LASTING: Final = (None, Held.NO_CAPACITY, Held.STALE_TOPOLOGY, Held.NO_ELIGIBLE_MEMBER, Held.PARKED)
"""What keeps a task where it is for as long as nobody joins and no operator speaks."""


def has_limits(group: Group) -> bool:
    """Say whether any member has a limit on its copies."""
    return any(member.max_tasks is not None for member in group.members.values())


def is_quiet(group: Group) -> bool:
    """Say whether nothing is under way: nobody warms up, gives up or takes over anything, whatever is still to move."""
    return all(_is_quiet(group.tasks[task_id]) for task_id in group.open_tasks())


def _is_quiet(task: Task) -> bool:
    if task.claims or task.warmups or task.keeper is not None or task.heir is not None:
        return False
    return task.owner is None or task.state is ActiveState.RUNNING


def look_ahead(view: View, changes: Mapping[TaskId, Change]) -> Outlook:
    """Return what would become of the target that ``changes`` lead to. Costs a pass over members without limits.

    Where moves are held for the whole group nothing is judged: it is placed anew once they go on.
    """
    if not has_limits(view.group) or view.moves_held(draining=False) is not None:
        return Outlook()
    view = _with_targets(view, changes)
    group, rank = view.group, view.group.table.rank
    concerned = sorted({one for one in (*group.unsettled, *changes) if one in rank}, key=rank.__getitem__)
    staged = [stage(view, group.tasks[task_id]) for task_id in concerned]
    room = Room(view, staged)
    asked = Counter([ask.member_id for one in staged for ask in one.asks])
    refused = tuple([one for one in staged if _is_refused(one, room)])
    if not refused and not any(room.lacks(member_id, copies) for member_id, copies in asked.items()):
        return Outlook()
    if any(map(room.allows, asked)) or any(_is_under_way(view, one) for one in staged):
        return Outlook(waits=True)
    return Outlook(refused)


def _with_targets(view: View, changes: Mapping[TaskId, Change]) -> View:
    group = view.group
    tasks = {task_id: with_target(group.tasks[task_id], change) for task_id, change in changes.items()}
    then = replace(group, tasks=group.tasks.updated(tasks))
    return View(then, view.soft, view.now_ms, view.policy, complete=view.complete)


def _is_refused(one: Staged, room: Room) -> bool:
    """Say whether a task finds no room where it is to go; what has no target waits for somebody else's leave."""
    if one.task.target is not None and one.choice.held is Held.NO_CAPACITY:
        return True
    return any(not room.allows(ask.member_id) for ask in one.asks)


def _is_under_way(view: View, one: Staged) -> bool:
    """Say whether something about a task is still to come by itself, so that room may yet be made."""
    task, choice = one.task, one.choice
    if not _is_quiet(task) or choice.held not in _LASTING or choice.active != task.owner:
        return True
    if any(stall.until_ms > view.now_ms for stall in task.stalls):
        return True
    if task.owner is None:
        return False
    holders = view.holders(task)
    return one.copies != holders or not all(view.copy(task, holder).is_caught_up for holder in holders)


def is_open(member: Member) -> bool:
    """Say whether a member may be the target of anything."""
    return member.drain is None and not member.suspected and member.away_until_ms is None


def wanted_at(one: Staged, room_for: Mapping[MemberId, Member]) -> MemberId | None:
    """Return the full member that a stuck task waits for."""
    asked = [ask.member_id for ask in one.asks if room_for[ask.member_id].max_tasks is not None]
    return asked[0] if asked else one.task.target


def as_it_is(view: View, one: Staged) -> Change | None:
    """Return the target with which a stuck task stays where it is; None where it cannot stay for good.

    It keeps its owner, and of its standbys as many as are wanted; whoever is on its way out is the target of nothing.
    What nobody runs, or what a leaving member runs, is no part of such a ring: it gives nobody room, so that where it
    is to go there is some.
    """
    task, owner = one.task, one.task.owner
    if owner is None or not is_open(view.group.members[owner]):
        return None
    wanted = view.config.num_standby_replicas if view.is_stateful(task.id) else 0
    held = [member_id for member_id in view.holders(task) if is_open(view.group.members[member_id])]
    held.sort(key=lambda member_id: (member_id not in task.target_standbys, member_id))
    return owner, tuple(sorted(held[:wanted])), ""
