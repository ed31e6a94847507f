"""One step towards the target: plan the unsettled tasks, give out slots, and tell members what to do next.

Whoever wants to know what a step does asks ``plan_step``, which changes nothing: the step itself, placement
(``reach``), explanations and dry runs.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from batonpass.core.handover.budget import Slots, give_slots
from batonpass.core.handover.copies import HeldBack, TaskPlan, plan_task
from batonpass.core.handover.copy_capacity import CopyCapacity
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.reconcile import hold_ungranted, reconcile
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import AWAITING_NEWS, QUEUED, Task
from batonpass.core.state.reasons import Reason, Why


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


def take_step(draft: DecisionDraft, concerned: Collection[TaskId] | None = None, *, explains_all: bool = True) -> None:
    """Take every member one step further, as far as budgets, confirmations and leases allow.

    ``concerned`` are the tasks that the inputs may bring news of. None means all tasks, here and below. The step
    explains these tasks and those that it moves. With ``explains_all`` it explains all unsettled tasks.
    """
    if not draft.group.unsettled and not left_at_deadline(draft.view()):
        return
    view, step, records = _take_one_step(draft, concerned)
    waived = {record.task for record in records if isinstance(record, r.ReleaseWaived)}
    if waived:
        # A suspected member does not have to confirm, so its tasks can be granted in this same decision.
        taken_over = {plan.task.id: plan for plan in step.task_plans if plan.task.id in waived}
        view, step, records = _take_one_step(draft, concerned)
        # The first of the two steps has the reason why such a task moves.
        step = step._replace(task_plans=[taken_over.get(plan.task.id, plan) for plan in step.task_plans])
    explained = None if concerned is None or explains_all else {*concerned, *_tasks_in(records)}
    if explained is not None:
        draft.look_again_for(step.held)
    explain(draft, _explained(view, step, explained))


def _take_one_step(draft: DecisionDraft, concerned: Collection[TaskId] | None) -> tuple[View, StepPlan, list[r.Record]]:
    view = draft.view()
    step = plan_step(view, [*_looked_at(view, concerned), *left_at_deadline(view)], _queue(view))
    records = reconcile(view, step.task_plans)
    if records:
        draft.record(*records)
    return view, step, records


def _looked_at(view: View, concerned: Collection[TaskId] | None) -> list[TaskId]:
    """Return the tasks that this step may move: all moving ones, and those that await news and have it.

    The queue is separate (``_queue``). If any member has a limit, tasks compete for room, so none can be left out.
    """
    unsettled = view.group.unsettled
    if view.limited:
        return [
            task_id
            for task_id, pending in unsettled.items()
            if pending is not AWAITING_NEWS or concerned is None or task_id in concerned
        ]
    marks = unsettled.items() if concerned is None else [(task_id, unsettled.get(task_id)) for task_id in concerned]
    return view.group.moving_tasks() + [task_id for task_id, pending in marks if pending is AWAITING_NEWS]


def _queue(view: View, among: Collection[TaskId] | None = None) -> Iterator[Task]:
    """Yield the queued tasks among these (None: all). The queue is not read before the first one is asked for."""
    unsettled = view.group.unsettled
    marks = unsettled.items() if among is None else [(task_id, unsettled.get(task_id)) for task_id in among]
    yield from view.tasks.pick([task_id for task_id, pending in marks if pending is QUEUED and not view.limited])


def _tasks_in(records: Iterable[r.Record]) -> Iterable[TaskId]:
    assignments = [record for record in records if isinstance(record, r.AssignmentChanged)]
    held = chain.from_iterable((*record.granted, *record.revoked) for record in assignments)
    return [*held, *(record.task for record in records if isinstance(record, r.NextOwnerChosen | r.ReleaseWaived))]


def _explained(view: View, step: StepPlan, explained: Collection[TaskId] | None) -> StepPlan:
    """Return the plans of these tasks (None: all), including those that wait for a slot."""
    served = {plan.task.id for plan in step.task_plans}
    waiting = [plan_task(view, task) for task in _queue(view, explained) if task.id not in served]
    step.slots.hold_refused(waiting)
    planned = [plan for plan in step.task_plans if explained is None or plan.task.id in explained]
    return StepPlan(in_order(view, planned + waiting), step.slots)


def explain(draft: DecisionDraft, step: StepPlan) -> None:
    """Add one reason for each task that moves, one for all that stay, and one for each that is held back."""
    going = [plan for plan in step.task_plans if plan.choice.why is not Why.STAYS]
    draft.reasons += [Reason(plan.choice.why, plan.task.id, plan.choice.active) for plan in going]
    if len(step.task_plans) > len(going):
        draft.explain(Why.STAYS, tasks=len(step.task_plans) - len(going))
    held = step.held
    draft.reasons += [Reason(entry.reason, entry.task, entry.to) for entry in held]
    draft.look_again_for(held)
