"""One step towards the target: every unsettled task staged, funded, and turned into what each member is told next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final

from batonpass.core.budget import HeldBack, fund
from batonpass.core.copies import Staged, stage, stage_all
from batonpass.core.ids import TaskId
from batonpass.core.model import Group
from batonpass.core.reasons import Why, reason_of
from batonpass.core.reconcile import reconcile
from batonpass.core.records import ClaimsWaived, Record
from batonpass.core.view import View
from batonpass.core.work import Work

_READS_A_TASK: Final = 4


def plan_step(view: View, concerned: Collection[TaskId] | None = None) -> tuple[list[Staged], list[HeldBack]]:
    """Return where every unsettled task is heading in this step, and what is held back. Reads only.

    With ``concerned``, the tasks of which there is news, tasks that only wait are looked at if they are among those:
    nothing else can have moved them, and a group that begins has as many of them as it has tasks.
    """
    group = view.group
    looked_at: Iterable[TaskId] = group.unsettled
    if concerned is not None:
        waiting = [task_id for task_id in concerned if group.unsettled.get(task_id) is False]
        looked_at = [*group.open_tasks(), *waiting]
    order = _in_order(group, looked_at)
    view.expect(len(order))
    tasks = map(view.tasks.__getitem__, order)
    # What many tasks have in common is worth a look at the members.
    are_many = len(order) * _READS_A_TASK > len(group.members)
    staged = stage_all(view, tasks) if are_many else list(map(partial(stage, view), tasks))
    return staged, fund(view, staged)


def _in_order(group: Group, looked_at: Iterable[TaskId]) -> Sequence[TaskId]:
    """Return the tasks in the order of the topology; what it has dropped comes last."""
    rank, found = group.table.rank, tuple(looked_at)
    if found == group.table.ids:
        # So it is where a group begins: they are in order already.
        return found
    order = sorted([task_id for task_id in found if task_id in rank], key=rank.__getitem__)
    if len(order) < len(found):
        order += sorted([task_id for task_id in found if task_id not in rank])
    return order


def advance(work: Work, concerned: Collection[TaskId] | None = None) -> None:
    """Take every member one step further, as far as budgets, confirmations and leases allow.

    ``concerned`` are the tasks that the input has news of; None: possibly all.
    """
    if not work.group.unsettled:
        return
    staged, held, records = _one_step(work, concerned)
    if any(isinstance(record, ClaimsWaived) for record in records):
        # Nobody's word has to be waited for: what was taken from a suspected member is granted in the same decision.
        staged, held, records = _one_step(work, concerned)
    explain(work, staged, held)
    _wake_for_confirmations(work, records)


def _one_step(work: Work, concerned: Collection[TaskId] | None) -> tuple[list[Staged], list[HeldBack], list[Record]]:
    view = work.view()
    staged, held = plan_step(view, concerned)
    if view.has_waited:
        # A word that says nothing new is no reason to look, so the group is looked at until the member is heard.
        work.retry_ms = work.now_ms + work.group.config.heartbeat_interval_ms
        work.wake(work.retry_ms)
    records = reconcile(view, staged)
    if records:
        work.record(*records)
    return staged, held, records


def explain(work: Work, staged: list[Staged], held: list[HeldBack]) -> None:
    """Add the reasons of a step: one for each task that goes somewhere or is held back, one for all that stay."""
    stays = Why.STAYS
    going = [one for one in staged if one.choice.why is not stays]
    work.reasons.extend([reason_of(choice.why, task.id, choice.active) for task, choice, _, _ in going])
    staying = len(staged) - len(going)
    if staying:
        work.explain(Why.STAYS, tasks=staying)
    work.reasons.extend([reason_of(reason, task, to) for task, to, reason in held])


def _wake_for_confirmations(work: Work, records: list[Record]) -> None:
    if records:
        config = work.group.config
        work.wake(work.now_ms + min(config.rebalance_timeout_ms, config.warmup_stall_timeout_ms))
    if work.group.grants_from_ms > work.now_ms:
        work.wake(work.group.grants_from_ms)
