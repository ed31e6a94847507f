"""One step towards the target: every unsettled task staged, funded, and turned into what each member is told next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from batonpass.core.agenda import Agenda, Look, look
from batonpass.core.budget import HeldBack, Slots, entries_of, fund, fund_some, fund_whole
from batonpass.core.copies import Staged, stage, stage_all, stager
from batonpass.core.ids import TaskId
from batonpass.core.model import Group
from batonpass.core.reasons import Why, reason_of
from batonpass.core.reconcile import reconcile
from batonpass.core.records import ClaimsWaived, HeirChosen, PictureChanged, Record
from batonpass.core.room import Room
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
        looked_at = [*group.open_tasks(), *_waiting_among(group, concerned)]
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


def advance(work: Work, concerned: Collection[TaskId] | None = None, *, tells_all: bool = True) -> None:
    """Take every member one step further, as far as budgets, confirmations and leases allow.

    ``concerned`` are the tasks that the input has news of; None: possibly all. Reasons are given for these and for
    those that go somewhere by this step; with ``tells_all``, for all that are open.
    """
    if not work.group.unsettled:
        _keep(work, None)
        return
    step = _one_step(work, concerned, tells_all=tells_all)
    if any(isinstance(record, ClaimsWaived) for record in step.records):
        # Nobody's word has to be waited for: what was taken from a suspected member is granted in the same decision.
        step = _one_step(work, concerned, tells_all=tells_all)
    told = None if concerned is None or tells_all else {*concerned, *_named(step.records)}
    explain(work, step.staged, step.held, told)
    _wake_for_confirmations(work, step.records)


class _Step(NamedTuple):
    """What one step came to: the tasks that were looked at, what of them is held back, and the records."""

    staged: list[Staged]
    held: list[HeldBack]
    records: list[Record]


def _one_step(work: Work, concerned: Collection[TaskId] | None, *, tells_all: bool) -> _Step:
    view = work.view()
    known = work.soft.agenda
    found = look(view, known if isinstance(known, Agenda) else None, concerned or ())
    if found is None:
        staged, held = plan_step(view, concerned)
        after = None
    elif concerned is None or tells_all:
        staged, held, after = _plan_all(view, found, concerned)
    else:
        staged, held, after = _plan_some(view, found, concerned)
    if view.has_waited:
        # A word that says nothing new is no reason to look, so the group is looked at until the member is heard.
        work.retry_ms = work.now_ms + work.group.config.heartbeat_interval_ms
        work.wake(work.retry_ms)
    records = reconcile(view, staged)
    _keep(work, after)
    if records:
        work.record(*records)
    return _Step(staged, held, records)


def _keep(work: Work, agenda: Agenda | None) -> None:
    if work.soft.agenda is not agenda:
        work.soft = replace(work.soft, agenda=agenda)


def _plan_all(
    view: View, found: Look, concerned: Collection[TaskId] | None
) -> tuple[list[Staged], list[HeldBack], Agenda]:
    """Do what ``plan_step`` does with what is known of the open tasks, and return also what the next step may know."""
    stances, asking = found.agenda.stances.plain(), found.agenda.asking
    # The copies of those that ask are added to as slots are given; what is kept was said before that.
    known = {
        task_id: one.staged._replace(copies=dict(one.staged.copies)) if one.entries else one.staged
        for task_id, one in stances.items()
    }
    waiting = _waiting_among(view.group, concerned)
    view.expect(len(known) + len(waiting))
    staged = stager(view)
    for task_id in waiting:
        known[task_id] = staged(view.tasks[task_id])
    all_staged = list(map(known.__getitem__, _in_order(view.group, known)))
    held, are_gone = fund_whole(view, all_staged)
    given = {
        task_id: known[task_id].copies.keys() - stances[task_id].staged.copies.keys()
        for task_id in asking
        if len(known[task_id].copies) > len(stances[task_id].staged.copies)
    }
    return all_staged, held, found.complete(view, given, are_gone)


def _plan_some(view: View, found: Look, concerned: Collection[TaskId]) -> tuple[list[Staged], list[HeldBack], Agenda]:
    """Plan the step for the tasks with news, and for those that get a copy by it: nothing changes about the others."""
    waiting = list(map(partial(stage, view), map(view.tasks.__getitem__, _waiting_among(view.group, concerned))))
    fresh = [*found.fresh, *waiting]
    slots = Slots(view, fresh, Room(view, []), found.agenda.tally)
    balance_gone, drain_gone = slots.are_gone
    asking = found.asking(slots_left=(not balance_gone, not drain_gone))
    asking += [entry for one in waiting if one.asks for entry in entries_of(view, one)]
    given, held = fund_some(view, fresh, asking, slots)
    known = {one.task.id: one for one in fresh}
    for task_id, copies in given.items():
        one = known[task_id] if task_id in known else found.agenda.stances[task_id].staged
        known[task_id] = one._replace(copies={**one.copies, **copies})
    staged = list(map(known.__getitem__, _in_order(view.group, known)))
    return staged, held, found.complete(view, given, slots.are_gone)


def _waiting_among(group: Group, concerned: Collection[TaskId] | None) -> list[TaskId]:
    """Return the tasks that only wait, as far as they are concerned."""
    if concerned is None:
        return [task_id for task_id, is_open in group.unsettled.items() if not is_open]
    return [task_id for task_id in concerned if group.unsettled.get(task_id) is False]


def _named(records: Iterable[Record]) -> Iterable[TaskId]:
    """Return the tasks that the records of a step name."""
    pictures = [one for one in records if isinstance(one, PictureChanged)]
    told = chain.from_iterable((*one.granted, *one.revoked) for one in pictures)
    return [*told, *(one.task for one in records if isinstance(one, HeirChosen | ClaimsWaived))]


def explain(work: Work, staged: list[Staged], held: list[HeldBack], told: Collection[TaskId] | None = None) -> None:
    """Add the reasons of a step: one for each task that goes somewhere or is held back, one for all that stay.

    With ``told``, of these tasks alone.
    """
    if told is not None:
        staged = [one for one in staged if one.task.id in told]
        held = [one for one in held if one.task in told]
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
