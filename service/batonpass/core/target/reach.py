"""Which moves of a target wait for room that will never come free.

A full member (``room``) gets another copy only once one of its own has gone, and a copy goes only once its successor is
caught up elsewhere. If full members wait for each other in a ring, each for room that the next one has to make, none of
them ever moves. No healthy copy is given up to break such a ring: the tasks in it stay where they are.

Rings are found by trial, not predicted. Before a target is recorded, ``copies`` and ``handover`` are asked what they
would do about it. As long as they would do anything, or anything is under way, room may still come free.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from batonpass.core.handover.copies import TaskPlan
from batonpass.core.handover.copy_capacity import CopyCapacity
from batonpass.core.handover.step import plan_without_slots
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import RUNNING, Group, Member, Target, Task
from batonpass.core.state.reasons import Held


class Reachability(NamedTuple):
    """Which part of a target the group cannot reach, or not yet.

    ``kept`` has the targets with which tasks stay as they are, because no room will come free for them. ``full`` has
    the member that each of them waits for in vain. ``may_free_up``: some tasks wait for room that may still come free,
    so the group has to be examined again when nothing else is under way.
    """

    kept: Mapping[TaskId, Target]
    full: Mapping[TaskId, MemberId]
    may_free_up: bool = False


_LASTING: Final = (None, Held.NO_CAPACITY, Held.STALE_TOPOLOGY, Held.NO_ELIGIBLE_MEMBER, Held.PARKED)
"""Reasons that keep a task where it is until a member joins or an operator acts."""


def is_nothing_under_way(group: Group) -> bool:
    """Say whether nothing is under way: no member warms up or gives up anything, whatever still has to move."""
    return all(_is_nothing_under_way_for(group.tasks[task_id]) for task_id in group.moving_tasks())


def is_to_rest(view: View) -> bool:
    """Say whether the group would rest now: only copies are missing, or full members block all that is left."""
    unsettled = view.tasks.pick(view.group.unsettled)
    if all(task.owner == task.target.owner and task.state is RUNNING for task in unsettled):
        return True
    return is_nothing_under_way(view.group) and bool(view.limited)


def _is_nothing_under_way_for(task: Task) -> bool:
    if task.handover.unreleased or task.warmups or task.handover.previous_owner is not None:
        return False
    # By the time that the task is free, its next owner may be full too, and wait for room like any other member.
    return task.owner is None or task.state is RUNNING


def find_unreachable(view: View, changes: Mapping[TaskId, Target]) -> Reachability:
    """Return what of the target after ``changes`` can be reached. Without limits it costs a pass over the members.

    While moves are held in the whole group, nothing is judged: the group is placed anew once they go on.
    """
    if not view.limited or view.why_moves_are_held(for_balance=True) is not None:
        return Reachability({}, {})
    view = with_targets(view, changes)
    concerned = {task_id for task_id in (*view.group.unsettled, *changes) if task_id in view.group.table.index_of}
    task_plans, copy_capacity = plan_without_slots(view, concerned)
    asked = [request for plan in task_plans for request in plan.requests]
    full = {plan.task.id: member_id for plan in task_plans if (member_id := _full_for(plan, copy_capacity))}
    if not full and copy_capacity.allows_all(asked):
        return Reachability({}, {})
    is_any_allowed = any(copy_capacity.allows(request.member_id, request.task.id) for request in asked)
    if is_any_allowed or any(_is_under_way(view, plan) for plan in task_plans):
        return Reachability({}, {}, may_free_up=True)
    tasks = [plan.task for plan in task_plans]
    in_their_way = {task.id for task in tasks if task.target.owner is None and _has_lasting_owner(view, task)}
    kept: dict[TaskId, Target] = {}
    for task in tasks:
        if task.id not in full and task.id not in in_their_way:
            continue
        # A task without an owner, or on a leaving member, is not part of a ring: its move makes no room for others, and
        # there is room where it should go, unless a task that runs without a target takes that room.
        if _has_lasting_owner(view, task):
            kept[task.id] = target_where_it_is(view, task)
        elif task.owner is None and in_their_way:
            kept[task.id] = Target(waiting_reason=Held.NO_CAPACITY.value)
    return Reachability(kept, {task_id: member_id for task_id, member_id in full.items() if task_id in kept})


def with_targets(view: View, changes: Mapping[TaskId, Target]) -> View:
    group = view.group
    tasks = {task_id: group.tasks[task_id].with_target(change) for task_id, change in changes.items()}
    then = replace(group, tasks=group.tasks.updated(tasks))
    return View(then, view.soft, view.now_ms, as_if_complete=view.as_if_complete)


def _full_for(plan: TaskPlan, copy_capacity: CopyCapacity) -> MemberId | None:
    """Return the full member that a task waits for. Without a target it waits for another member to leave."""
    if plan.task.target.owner is not None and plan.choice.held is Held.NO_CAPACITY:
        return plan.task.target.owner
    refused = [one.member_id for one in plan.requests if not copy_capacity.allows(one.member_id, one.task.id)]
    return refused[0] if refused else None


def _is_under_way(view: View, plan: TaskPlan) -> bool:
    """Say whether something about a task will still change by itself, so that room may come free."""
    task, choice = plan.task, plan.choice
    if not _is_nothing_under_way_for(task) or choice.held not in _LASTING or choice.active != task.owner:
        return True
    if any(stall.until_ms > view.now_ms for stall in task.marks.stalls):
        return True
    if task.owner is None:
        return False
    holders = task.holders
    return plan.copies != holders or not all(view.copy(task, holder).is_caught_up for holder in holders)


def _has_lasting_owner(view: View, task: Task) -> bool:
    return task.owner is not None and _stays(view.group.members[task.owner])


def _stays(member: Member) -> bool:
    """Say whether a member that has a task, so it is not away, neither drains nor is suspected."""
    return member.drain is None and not member.suspected


def target_where_it_is(view: View, task: Task) -> Target:
    """Return the target with which a task keeps its owner, and as many of its standbys as are wanted."""
    wanted = view.config.num_standby_replicas if view.is_stateful(task.id) else 0
    held = [member_id for member_id in task.holders if _stays(view.group.members[member_id])]
    held.sort(key=lambda member_id: (member_id not in task.target.standbys, member_id))
    return Target(task.owner, tuple(sorted(held[:wanted])))
