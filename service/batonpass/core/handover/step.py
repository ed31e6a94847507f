"""One step towards the target: plan the unsettled tasks, give out slots, and tell members what to do next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from batonpass.core.handover.budget import HeldBack, Slots, give_slots, held_back
from batonpass.core.handover.copies import TaskPlan, plan_queued_task, plan_task
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.reconcile import reconcile
from batonpass.core.handover.view import View
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import Pending, Role, Task
from batonpass.core.state.reasons import Reason, Why
from batonpass.core.state.records import AssignmentChanged, NextOwnerChosen, Record, ReleaseWaived


def plan_step(view: View) -> tuple[list[TaskPlan], list[HeldBack], Slots]:
    """Return where every task that may move goes in this step, which are held back, and the slots that are left.

    Changes nothing.
    """
    task_ids = [*view.group.unsettled, *_left_at_deadline(view)]
    task_plans = [plan_task(view, task) for task in view.tasks.pick(view.group.table.in_order(task_ids))]
    slots = give_slots(view, task_plans)
    return task_plans, held_back(view, slots, task_plans), slots


class _StepResult(NamedTuple):
    """The outcome of one step: the view it read, the plans of tasks, the slots that are left, and the records."""

    view: View
    task_plans: list[TaskPlan]
    slots: Slots
    records: list[Record]


def take_step(draft: DecisionDraft, concerned: Collection[TaskId] | None = None, *, explains_all: bool = True) -> None:
    """Take every member one step further, as far as budgets, confirmations and leases allow.

    ``concerned`` are the tasks that the inputs may bring news of. None means all tasks, here and below. The step
    explains these tasks and those that it moves. With ``explains_all`` it explains all unsettled tasks.
    """
    if not draft.group.unsettled and not _left_at_deadline(draft.view()):
        return
    result = _take_one_step(draft, concerned)
    waived = {record.task for record in result.records if isinstance(record, ReleaseWaived)}
    if waived:
        # A suspected member does not have to confirm, so its tasks can be granted in this same decision.
        taken_over = {plan.task.id: plan for plan in result.task_plans if plan.task.id in waived}
        result = _take_one_step(draft, concerned)
        # The first of the two steps has the reason why such a task moves.
        result = result._replace(task_plans=[taken_over.get(plan.task.id, plan) for plan in result.task_plans])
    explained = None if concerned is None or explains_all else {*concerned, *_tasks_in(result.records)}
    _explain_step(draft, result, explained)
    _wake_for_confirmations(draft, result.records)


def _take_one_step(draft: DecisionDraft, concerned: Collection[TaskId] | None) -> _StepResult:
    view, group = draft.view(), draft.group
    task_ids = [*_looked_at(view, concerned), *_left_at_deadline(view)]
    task_plans = [plan_task(view, task) for task in view.tasks.pick(group.table.in_order(task_ids))]
    slots = give_slots(view, task_plans, _queue(view))
    task_plans.sort(key=lambda plan: group.table.index_of.get(plan.task.id, len(group.table.index_of)))
    records = reconcile(view, task_plans)
    if records:
        draft.record(*records)
    return _StepResult(view, task_plans, slots, records)


def _looked_at(view: View, concerned: Collection[TaskId] | None) -> list[TaskId]:
    """Return the tasks that this step may move: all moving ones, and those that await news and have it.

    The queue is separate (``_queue``). If any member has a limit, tasks compete for room, so none can be left out.
    """
    unsettled, awaits = view.group.unsettled, Pending.AWAITING_NEWS
    if view.limited:
        return [
            task_id for task_id in unsettled if unsettled[task_id] is not awaits or _is_concerned(task_id, concerned)
        ]
    marks = unsettled.items() if concerned is None else [(task_id, unsettled.get(task_id)) for task_id in concerned]
    return view.group.moving_tasks() + [task_id for task_id, pending in marks if pending is awaits]


def _left_at_deadline(view: View) -> list[TaskId]:
    """Return the settled tasks of members whose drain is past its deadline.

    Such a task is where its target says, because placement found no other member for it, or failed. A copy on a member
    that stays may take it over all the same.
    """
    leaving = [member for member in view.members.values() if view.is_past_deadline(member)]
    return [
        task_id
        for member in leaving
        for task_id, grant in member.assignment.items()
        if grant.role is Role.ACTIVE and task_id not in view.group.unsettled
    ]


def _is_concerned(task_id: TaskId, concerned: Collection[TaskId] | None) -> bool:
    return concerned is None or task_id in concerned


def _queue(view: View, among: Collection[TaskId] | None = None) -> Iterator[Task]:
    """Yield the queued tasks among these (None: all). The queue is not read before the first one is asked for."""
    unsettled, queued = view.group.unsettled, Pending.QUEUED
    marks = unsettled.items() if among is None else [(task_id, unsettled.get(task_id)) for task_id in among]
    yield from view.tasks.pick([task_id for task_id, pending in marks if pending is queued and not view.limited])


def _tasks_in(records: Iterable[Record]) -> Iterable[TaskId]:
    assignments = [record for record in records if isinstance(record, AssignmentChanged)]
    held = chain.from_iterable((*record.granted, *record.revoked) for record in assignments)
    return [*held, *(record.task for record in records if isinstance(record, NextOwnerChosen | ReleaseWaived))]


def _explain_step(draft: DecisionDraft, result: _StepResult, explained: Collection[TaskId] | None) -> None:
    """Add the reasons for these tasks (None: all), including those that wait for a slot."""
    served = {plan.task.id for plan in result.task_plans}
    task_plans = [plan for plan in result.task_plans if explained is None or plan.task.id in explained]
    task_plans += [
        plan_queued_task(result.view, task) for task in _queue(result.view, explained) if task.id not in served
    ]
    explain(draft, task_plans, held_back(result.view, result.slots, task_plans))


def explain(draft: DecisionDraft, task_plans: list[TaskPlan], held: list[HeldBack]) -> None:
    """Add one reason for each task that moves, one for all that stay, and one for each that is held back."""
    going = [plan for plan in task_plans if plan.choice.why is not Why.STAYS]
    draft.reasons += [Reason(plan.choice.why, plan.task.id, plan.choice.active) for plan in going]
    if len(task_plans) > len(going):
        draft.explain(Why.STAYS, tasks=len(task_plans) - len(going))
    draft.reasons += [Reason(entry.reason, entry.task, entry.to) for entry in held]


def _wake_for_confirmations(draft: DecisionDraft, records: list[Record]) -> None:
    if records:
        config = draft.group.config
        draft.wake(draft.now_ms + min(config.rebalance_timeout_ms, config.warmup_stall_timeout_ms))
    if draft.group.grants_from_ms > draft.now_ms:
        draft.wake(draft.group.grants_from_ms)
