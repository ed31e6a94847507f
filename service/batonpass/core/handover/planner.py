"""One step, planned: where each task goes, which copies are given, and why the rest waits.

Whoever wants to know what a step does asks here: the step itself, placement (``reach``), explanations and dry runs.
Nothing is changed by a plan.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from batonpass.core.handover.budget import Slots, give_slots
from batonpass.core.handover.copies import HeldBack, TaskPlan, plan_task
from batonpass.core.handover.copy_capacity import CopyCapacity
from batonpass.core.handover.reconcile import hold_ungranted
from batonpass.core.handover.view import View
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import Task


class StepPlan(NamedTuple):
    """The plans of tasks in one step, in the tasks' order, and the slots that are left."""

    task_plans: list[TaskPlan]
    slots: Slots

    @property
    def held(self) -> list[HeldBack]:
        """The moves that are held back, one entry per task."""
        return [plan.held for plan in self.task_plans if plan.held is not None]


def plan_step(view: View, task_ids: Collection[TaskId] | None = None, queue: Iterable[Task] = ()) -> StepPlan:
    """Plan these tasks (None: all that may move) together, for they share slots and room.

    ``queue`` are tasks that wait for a slot. They are read only while slots are left, and those that get one are
    planned too.
    """
    if task_ids is None:
        task_ids = [*view.group.unsettled, *left_at_deadline(view)]
    task_plans, copy_capacity = plan_without_slots(view, task_ids)
    slots = give_slots(view, task_plans, copy_capacity, queue)
    hold_ungranted(view, task_plans)
    return StepPlan(in_order(view, task_plans), slots)


def in_order(view: View, task_plans: list[TaskPlan]) -> list[TaskPlan]:
    index_of = view.group.table.index_of
    return sorted(task_plans, key=lambda plan: index_of.get(plan.task.id, len(index_of)))


def plan_without_slots(view: View, task_ids: Collection[TaskId]) -> tuple[list[TaskPlan], CopyCapacity]:
    """Plan tasks before slots are given, within the room of members with a limit. Return that room too."""
    task_plans = [plan_task(view, task) for task in view.tasks.pick(view.group.table.in_order(task_ids))]
    return task_plans, hold_moves(view, task_plans)


def hold_moves(view: View, task_plans: list[TaskPlan]) -> CopyCapacity:
    """Hold, in place, the moves that exceed a limit on what all tasks of a step do together. Return the room left."""
    copy_capacity = CopyCapacity(view, task_plans)
    copy_capacity.give_up_unwanted(task_plans)
    for number, plan in enumerate(task_plans) if view.limited else ():
        hold = copy_capacity.why_not_moved(plan)
        if hold is not None:
            task_plans[number] = held = plan_task(view, plan.task, hold)
            copy_capacity.count(plan, -1)
            copy_capacity.count(held)
            copy_capacity.give_up_unwanted([held])
    return copy_capacity


def left_at_deadline(view: View) -> list[TaskId]:
    """Return the settled tasks of members whose drain is past its deadline.

    Such a task is where its target says, because placement found no other member for it, or failed. A copy on a member
    that stays may take it over all the same.
    """
    leaving = [member for member in view.draining.values() if view.is_past_deadline(member)]
    return [task_id for member in leaving for task_id in member.actives if task_id not in view.group.unsettled]
