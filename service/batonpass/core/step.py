"""One step towards the target: every unsettled task staged, funded, and turned into what each member is told next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from batonpass.core.budget import HeldBack, Slots, fund, held_back
from batonpass.core.copies import Staged, stage, stage_queued
from batonpass.core.decision_draft import DecisionDraft
from batonpass.core.ids import TaskId
from batonpass.core.model import Group, Pending, Task
from batonpass.core.reasons import Reason, Why
from batonpass.core.reconcile import reconcile
from batonpass.core.records import ClaimsWaived, HeirChosen, PictureChanged, Record
from batonpass.core.view import View


def plan_step(view: View) -> tuple[list[Staged], list[HeldBack]]:
    """Return where every unsettled task is heading in this step, and what is held back. Reads only."""
    staged = [stage(view, task) for task in view.tasks.pick(_in_order(view.group, view.group.unsettled))]
    slots = fund(view, staged)
    return staged, held_back(view, slots, staged)


class _Step(NamedTuple):
    """What one step came to: what it looked at, the tasks staged, the slots that are left, and the records."""

    view: View
    staged: list[Staged]
    slots: Slots
    records: list[Record]


def advance(draft: DecisionDraft, concerned: Collection[TaskId] | None = None, *, tells_all: bool = True) -> None:
    """Take every member one step further, as far as budgets, confirmations and leases allow.

    ``concerned`` are the tasks that the inputs have news of; None: possibly all. Reasons are given for these and for
    those that go somewhere by this step; with ``tells_all``, for all that are unsettled.
    """
    if not draft.group.unsettled:
        return
    step = _take_step(draft, concerned)
    waived = {record.task for record in step.records if isinstance(record, ClaimsWaived)}
    if waived:
        # Nobody's word has to be waited for: what was taken from a suspected member is granted in the same decision.
        taken_over = {one.task.id: one for one in step.staged if one.task.id in waived}
        step = _take_step(draft, concerned)
        # Why such a task goes where it goes, the first of the two steps knows.
        step = step._replace(staged=[taken_over.get(one.task.id, one) for one in step.staged])
    told = None if concerned is None or tells_all else {*concerned, *_named(step.records)}
    _tell(draft, step, told)
    _wake_for_confirmations(draft, step.records)


def _take_step(draft: DecisionDraft, concerned: Collection[TaskId] | None) -> _Step:
    view, group = draft.view(), draft.group
    staged = [stage(view, task) for task in view.tasks.pick(_in_order(group, _looked_at(view, concerned)))]
    slots = fund(view, staged, _queue(view))
    staged.sort(key=lambda one: group.table.rank.get(one.task.id, len(group.table.rank)))
    records = reconcile(view, staged)
    if view.has_waited:
        # A word that says nothing new is no reason to look, so the group is looked at until the member is heard.
        draft.retry_ms = draft.now_ms + group.config.heartbeat_interval_ms
        draft.wake(draft.retry_ms)
    if records:
        draft.record(*records)
    return _Step(view, staged, slots, records)


def _looked_at(view: View, concerned: Collection[TaskId] | None) -> list[TaskId]:
    """Return the tasks that this step may move by itself: those that are open, and of those that wait what has news.

    Where a member has a limit on its copies, tasks share room, and none can be left out.
    """
    unsettled, waiting = view.group.unsettled, Pending.WAITING
    if view.limited:
        return [task_id for task_id in unsettled if unsettled[task_id] is not waiting or _is_named(task_id, concerned)]
    marks = unsettled.items() if concerned is None else [(one, unsettled.get(one)) for one in concerned]
    return view.group.open_tasks() + [task_id for task_id, pending in marks if pending is waiting]


def _is_named(task_id: TaskId, concerned: Collection[TaskId] | None) -> bool:
    return concerned is None or task_id in concerned


def _queue(view: View, among: Collection[TaskId] | None = None) -> Iterator[Task]:
    """Yield the tasks that wait for a slot, of those named if any are; nothing is looked up before it is asked for."""
    unsettled, queued = view.group.unsettled, Pending.QUEUED
    marks = unsettled.items() if among is None else [(one, unsettled.get(one)) for one in among]
    yield from view.tasks.pick([task_id for task_id, pending in marks if pending is queued and not view.limited])


def _in_order(group: Group, task_ids: Collection[TaskId]) -> list[TaskId]:
    """Return the tasks in the order of the topology; what it has dropped comes last."""
    rank = group.table.rank
    dropped = sorted([one for one in task_ids if one not in rank])
    return sorted([one for one in task_ids if one in rank], key=rank.__getitem__) + dropped


def _named(records: Iterable[Record]) -> Iterable[TaskId]:
    """Return the tasks that the records of a step name."""
    pictures = [one for one in records if isinstance(one, PictureChanged)]
    told = chain.from_iterable((*one.granted, *one.revoked) for one in pictures)
    return [*told, *(one.task for one in records if isinstance(one, HeirChosen | ClaimsWaived))]


def _tell(draft: DecisionDraft, step: _Step, told: Collection[TaskId] | None) -> None:
    """Add the reasons of a step, those of tasks that wait for a slot included; with ``told``, of these tasks alone."""
    served = {one.task.id for one in step.staged}
    staged = [one for one in step.staged if told is None or one.task.id in told]
    staged += [stage_queued(step.view, task) for task in _queue(step.view, told) if task.id not in served]
    explain(draft, staged, held_back(step.view, step.slots, staged))


def explain(draft: DecisionDraft, staged: list[Staged], held: list[HeldBack]) -> None:
    """Add a reason for each task that goes somewhere, one for all that stay, and one for each that is held back."""
    going = [one for one in staged if one.choice.why is not Why.STAYS]
    draft.reasons += [Reason(one.choice.why, one.task.id, one.choice.active) for one in going]
    if len(staged) > len(going):
        draft.explain(Why.STAYS, tasks=len(staged) - len(going))
    draft.reasons += [Reason(entry.reason, entry.task, entry.to) for entry in held]


def _wake_for_confirmations(draft: DecisionDraft, records: list[Record]) -> None:
    if records:
        config = draft.group.config
        draft.wake(draft.now_ms + min(config.rebalance_timeout_ms, config.warmup_stall_timeout_ms))
    if draft.group.grants_from_ms > draft.now_ms:
        draft.wake(draft.group.grants_from_ms)
