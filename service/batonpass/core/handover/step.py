"""One step towards the target: plan the unsettled tasks, give out slots, and tell members what to do next."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from batonpass.core.handover.copies import plan_task
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.planner import StepPlan, in_order, left_at_deadline, plan_step
from batonpass.core.handover.reconcile import reconcile
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import AWAITING_NEWS, QUEUED, Task
from batonpass.core.state.reasons import Reason, Why


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
