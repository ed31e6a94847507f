"""Whose turn it is: a copy that comes no closer gives what it holds to the moves that wait for it.

A warmup holds a slot of the group, a slot of its member, room on members with a limit, and its member's share of the
load. It may hold them as long as its lag reaches a new least value within each ``warmup_stall_timeout_ms``. After that
it goes on only if nobody waits for any of these. Reading on is not enough: a changelog may be written as fast as it is
read. An unknown lag comes no closer, nor does a copy that is caught up and whose handover is held. A copy beyond the
wanted number that the target does not want as a standby holds a slot too. It is kept for those that are to replace it,
the task's owner or other copies, so it may hold the slot as long as any of these comes closer.

Nothing is lost by giving way: the state stays on the member's disk, and a copy that is still wanted is tried again from
there, after the tasks that were not tried yet (``budget``). Meanwhile balance moves other tasks instead (``targets``).
"""

from typing import Final

from batonpass.core.handover.budget import Slots
from batonpass.core.handover.copies import HeldBack, is_for_drain
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.step import plan_step
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import RUNNING, Group, Member, Task
from batonpass.core.state.reasons import Held
from batonpass.core.state.soft import Soft

_SHARED: Final = (Held.WARMUP_BUDGET, Held.MEMBER_WARMUP_BUDGET, Held.DRAIN_BUDGET, Held.NO_CAPACITY)
"""The reasons of waits that end when another move lets go of what it holds."""


def last_came_on(soft: Soft, task_id: TaskId, member: Member) -> tuple[int, int]:
    """Return when a warmup last came closer, and last read on. Both count from its grant and from a start at least."""
    measured = soft.report_of(member.id, task_id)
    since_ms = max(member.assignment[task_id].since_ms, soft.started_ms)
    if measured is None:
        return since_ms, since_ms
    return max(since_ms, measured.closer_ms), max(since_ms, measured.progress_ms)


def last_closer(group: Group, soft: Soft, task: Task) -> dict[MemberId, int]:
    """Return the members whose copy of the task takes a slot, and when it, or what it is kept for, last came closer."""
    if not task.warmups and len(task.standbys) <= group.config.num_standby_replicas:
        return {}
    names = task.holders if task.owner is None else {task.owner, *task.holders}
    closer_ms = {name: last_came_on(soft, task.id, group.members[name])[0] for name in names}
    taking = {member_id: closer_ms[member_id] for member_id in task.warmups}
    if task.owner is not None and len(task.standbys) > group.config.num_standby_replicas:
        surplus = [member_id for member_id in task.standbys if member_id not in task.target.standbys]
        taking |= dict.fromkeys(surplus, max(closer_ms.values()))
    return taking


def give_way(draft: DecisionDraft) -> bool:
    """Record that copies give way to moves that wait for what they hold. Return whether any does."""
    view = draft.view()
    timeout_ms = view.config.warmup_stall_timeout_ms
    idle = [
        (task, member_id)
        for task in view.tasks.pick(view.group.table.in_order(view.group.moving_tasks()))
        for member_id, closer_ms in last_closer(view.group, view.soft, task).items()
        if view.now_ms - closer_ms >= timeout_ms
        and member_id != task.handover.next_owner
        and not view.is_stalled(task, member_id)
    ]
    if not idle:
        return False
    task_plans, slots = plan_step(view)
    refused = [
        HeldBack(plan.task.id, request.member_id, *hold)
        for plan in task_plans
        for request in plan.requests
        if request.member_id not in plan.copies and (hold := slots.why_not(request)) and hold.reason in _SHARED
    ]
    refused += [
        HeldBack(plan.task.id, plan.task.target.owner, Held.NO_CAPACITY)
        for plan in task_plans
        if Held.NO_CAPACITY in (plan.choice.held, plan.task.target.waiting_reason)
    ]
    giving = [
        (task, member_id)
        for task, member_id in idle
        if _is_in_the_way(view, slots, task, member_id, refused) or _may_another_move_instead(view, task, member_id)
    ]
    for task, member_id in giving:
        draft.record(r.WarmupStalled(task.id, member_id, draft.now_ms + 2 * timeout_ms, gave_way=True))
        draft.explain(Held.STALLED, task.id, member_id, "it comes no closer, and gives way to others")
    if giving:
        draft.schedule("warmup-stalled")
    return bool(giving)


def _is_in_the_way(view: View, slots: Slots, task: Task, member_id: MemberId, refused: list[HeldBack]) -> bool:
    """Say whether a task that waits would come further without this copy."""
    for_drain = is_for_drain(view, task, task.owner, task.holders)
    holders = {member_id, task.owner, *task.standbys}

    def holds_up(waiting: HeldBack) -> bool:
        if waiting.reason is Held.NO_CAPACITY:
            return waiting.to is None or waiting.to in holders
        if waiting.reason is Held.MEMBER_WARMUP_BUDGET:
            return waiting.to == member_id and member_id in task.warmups
        return for_drain == (waiting.reason is Held.DRAIN_BUDGET) or slots.are_overdrawn

    return any(holds_up(waiting) for waiting in refused if waiting.task != task.id)


def _may_another_move_instead(view: View, task: Task, member_id: MemberId) -> bool:
    """Say whether the owner has another task that may give the member its share, if this one moves for balance.

    That task waits for no slot: it has no reason to move as long as this one is on its way. While balance is paused,
    neither moves, and a copy that is caught up moves soon, unless a transaction stays open.
    """
    is_about_to_move = view.copy(task, member_id).is_caught_up and not view.is_held_up(task)
    if is_about_to_move or view.why_moves_are_held(for_balance=True) is not None:
        return False
    owner = view.members.get(task.owner) if task.owner is not None else None
    if owner is None or owner.drain is not None or task.target.owner != member_id or task.marks.pin is not None:
        return False
    epoch = view.members[member_id].topology_epoch
    return any(
        other.target.owner == owner.id
        and other.state is RUNNING
        and other.marks.pin is None
        and not view.is_stalled(other, member_id)
        and view.knows(other.id, epoch)
        and view.is_stateful(other.id)
        for other in view.tasks.pick(owner.actives)
        if other.id in view.group.table.index_of
    )
