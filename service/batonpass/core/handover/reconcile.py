"""What each member does next: one assignment from what it may hold now towards what it should hold.

This follows the state machine of KIP-848. The states are derived, not stored: a member is *unrevoked* while
``revoking`` has unconfirmed tasks, *unreleased* while it is the next owner of a task that another member still holds,
and *stable* otherwise. The rules, in this order:

1. What a member should no longer hold is revoked at once, in an assignment with an epoch of its own.
2. No assignment both revokes and grants. A member is granted nothing until it has confirmed every revocation
   (protocol 5.3).
3. An active is granted only when no other member can be running it: the last owner confirmed, left, was vouched for as
   dead, its lease ran out, or it is suspected and its outputs are fenced (L1). Its fencing token is higher than every
   token before.
4. There is no barrier: each member converges alone.

In sets, for one member: revoked = may hold minus should hold; granted = should hold minus may hold, if nothing is or
was just revoked.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

from batonpass.core.handover.copies import TaskPlan
from batonpass.core.handover.copy_capacity import RoomLeft
from batonpass.core.handover.state_size import lag_at_start
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import ACTIVE, STANDBY, WARMUP, Grant, Member, Role, Task
from batonpass.core.state.reasons import Held, Hold, Why
from batonpass.core.state.soft import Positions


def hold_ungranted(view: View, task_plans: Iterable[TaskPlan]) -> None:
    """Say why tasks are not granted yet to the member that they go to, nor a copy to the target that is to have one.

    That a task's last owner has not confirmed is a reason only after a heartbeat interval: most members do at once.
    """
    for plan in task_plans:
        task, to = plan.task, plan.choice.active if plan.task.owner is None else None
        target = task.target.owner
        if to is None and target in plan.copies and target not in task.holders:
            to = target
        if to is not None and (hold := _why_not_released(view, task) or view.why_not_granted(to)) is not None:
            plan.hold(to, hold)


def _why_not_released(view: View, task: Task) -> Hold | None:
    if task.owner is not None or not task.handover.unreleased:
        return None
    ends = [entry.free_at_ms for entry in task.handover.unreleased if entry.free_at_ms is not None]
    if ends:
        return Hold(Held.LEASE, max(ends))
    return Hold(Held.REVOKING) if view.now_ms - task.since_ms >= view.group.heartbeat_interval_ms else None


@dataclass(slots=True)
class _MemberChanges:
    """What changes for one member: tasks to give up, tasks to take up, and roles to change."""

    revoked: list[TaskId] = field(default_factory=list)
    demoted: dict[TaskId, Role] = field(default_factory=dict)
    role_changes: dict[TaskId, Role] = field(default_factory=dict)
    new_entries: dict[TaskId, Role] = field(default_factory=dict)
    ready: list[TaskId] = field(default_factory=list)
    stuck: list[TaskId] = field(default_factory=list)


def reconcile(view: View, task_plans: Iterable[TaskPlan]) -> list[r.Record]:
    """Return the records that take every member one step towards what ``task_plans`` says it should hold."""
    members: defaultdict[MemberId, _MemberChanges] = defaultdict(_MemberChanges)
    records: list[r.Record] = []
    for plan in task_plans:
        records.extend(_compare(view, plan, members))
    assignments = [_next_assignment(view, view.members[member_id], members[member_id]) for member_id in sorted(members)]
    waived = [record for record in records if isinstance(record, r.ReleaseWaived)]
    next_owners = [record for record in records if isinstance(record, r.NextOwnerChosen)]
    return [*(assignment for assignment in assignments if assignment is not None), *next_owners, *waived]


def _compare(view: View, plan: TaskPlan, members: defaultdict[MemberId, _MemberChanges]) -> Iterable[r.Record]:
    """Note for each member what changes about one task. Return the records about the task itself."""
    task, active = plan.task, plan.choice.active
    if task.owner is not None and task.owner != active:
        changes, wanted = members[task.owner], plan.copies.get(task.owner)
        if wanted is None:
            changes.revoked.append(task.id)
        else:
            changes.demoted[task.id] = wanted
        if plan.choice.why is Why.STUCK:
            changes.stuck.append(task.id)
    holders = task.holders
    for member_id, role in holders.items():
        if member_id == active:
            continue
        wanted = plan.copies.get(member_id)
        if wanted is None:
            members[member_id].revoked.append(task.id)
        elif wanted is not role:
            members[member_id].role_changes[task.id] = wanted
    for member_id, role in plan.copies.items():
        if member_id not in holders and member_id != task.owner:
            members[member_id].new_entries[task.id] = role
    if active is None or active == task.owner:
        return ()
    if task.owner is None and not task.handover.unreleased:
        members[active].new_entries[task.id] = ACTIVE
        if plan.choice.ready:
            members[active].ready.append(task.id)
        return ()
    return _choose_next_owner(view, task, active)


def _choose_next_owner(view: View, task: Task, active: MemberId) -> list[r.Record]:
    records: list[r.Record] = []
    if task.handover.next_owner != active:
        records.append(r.NextOwnerChosen(task.id, active))
    for member_id in (*filter(None, [task.owner]), *(entry.member_id for entry in task.handover.unreleased)):
        member = view.members.get(member_id)
        if member is not None and member.suspected:
            # The next owner's token fences its outputs (``OnLeaseLost.CONTINUE``), so there is no need to wait.
            member_soft = view.soft.members.get(member_id)
            heard_ms = None if member_soft is None else member_soft.heard_ms
            records.append(r.ReleaseWaived(task.id, member_id, heard_ms))
    return records


def _next_assignment(view: View, member: Member, changes: _MemberChanges) -> r.AssignmentChanged | None:
    """Return the member's next assignment; None if there is nothing to change, or it has to wait."""
    now_ms, epoch = view.now_ms, member.epoch + 1
    entries = {task: Grant(role, epoch, now_ms) for task, role in changes.role_changes.items()}
    if changes.revoked or changes.demoted:
        entries.update({task: Grant(role, epoch, now_ms) for task, role in changes.demoted.items()})
    elif changes.new_entries and not member.revoking and now_ms >= view.group.grants_from_ms:
        entries.update(_new_grants(view, member, changes, epoch))
    if not entries and not changes.revoked:
        return None
    ready = tuple(task for task in changes.ready if task in entries)
    lags = _lags(view, member.id, entries)
    revoked, demoted, stuck = tuple(changes.revoked), tuple(changes.demoted), tuple(changes.stuck)
    return r.AssignmentChanged(
        member.id, epoch, now_ms, _in_order(view, entries), revoked, demoted, ready=ready, lags=lags, stuck=stuck
    )


def _lags(view: View, member_id: MemberId, entries: Mapping[TaskId, Grant]) -> dict[TaskId, int]:
    """Return how many records each warmup among these grants has to restore, where known."""
    warmups = [task for task, grant in entries.items() if grant.role is WARMUP]
    lags = [(task, lag_at_start(view, view.tasks[task], member_id)) for task in sorted(warmups)]
    return {task: lag for task, lag in lags if lag is not None}


def _new_grants(view: View, member: Member, changes: _MemberChanges, epoch: int) -> dict[TaskId, Grant]:
    """Return the grants for which the member has room: actives first, then standbys, then warmups."""
    copies = {} if member.max_tasks is None else {member.id: member.max_tasks - len(member.assignment)}
    left = RoomLeft(view, copies) if member.id in view.limited else None
    grants: dict[TaskId, Grant] = {}
    # In a new group many tasks have equal grants; they share one object.
    made: dict[tuple[Role, int, Positions], Grant] = {}
    order = {ACTIVE: 0, STANDBY: 1, WARMUP: 2}
    tasks, floor, entries = view.tasks, view.group.tokens_from, changes.new_entries.items()
    for task_id, role in entries if left is None else sorted(entries, key=lambda item: order[item[1]]):
        if left is not None and task_id not in member.assignment:
            if not left.allows(member.id, task_id):
                continue
            left.take(member.id, task_id)
        alike: tuple[Role, int, Positions] = (role, 0, ())
        if role is ACTIVE:
            task = tasks[task_id]
            # The token is above every earlier one.
            alike = (role, max(task.token, floor) + 1, task.handover.final_position)
        grant = made.get(alike)
        if grant is None:
            grant = made[alike] = Grant(role, epoch, view.now_ms, *alike[1:])
        grants[task_id] = grant
    return grants


def _in_order(view: View, grants: dict[TaskId, Grant]) -> dict[TaskId, Grant]:
    index_of = view.group.table.index_of
    task_indexes = list(map(index_of.get, grants, repeat(len(index_of))))
    if task_indexes == sorted(task_indexes):
        return grants
    return {task: grants[task] for task in sorted(grants, key=lambda task: index_of.get(task, len(index_of)))}
