"""What no decision does for nothing: stop a task, and leave one where it has to go from.

No running owner gives way to a member that would be granted nothing yet, and none keeps at the deadline of its drain
what another member is ready for. Worked out from the records, the copies and their lags alone, for every decision of
every scene and of workers with bad luck.
"""

from __future__ import annotations

from batonpass.core import records as r
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.invariants import Transition
from batonpass.core.invariants.moves import is_caught_up_copy
from batonpass.core.model import ActiveState, Role, Task
from batonpass.core.room import has_limit


def stopped_in_vain(transition: Transition) -> list[str]:
    """Return the tasks that a willing owner was told to stop although its taker, or itself, had others to see to first.

    What one decision sends to several members is sent at once, and counts for none of them. A member with a limit on
    its copies may need the room of what it stops, and counts as in need of it.
    """
    before, after = transition.before, transition.after
    has_to_confirm = {member_id: set(member.revoking) for member_id, member in before.members.items()}
    is_to_get = {
        task_id: task.next_owner
        for task_id, task in before.tasks.items()
        if task.owner is None and task.next_owner is not None and not _has_a_limit(transition, task.next_owner)
    }
    found: list[str] = []
    for record in transition.records:
        match record:
            case r.TaskReleased():
                has_to_confirm.get(record.member_id, set()).discard(record.task)
            case r.TasksAdopted():
                has_to_confirm.get(record.member_id, set()).difference_update(record.tokens)
            case r.MemberGone() | r.MemberAway():
                has_to_confirm.pop(record.member_id, None)
                is_to_get = {task: one for task, one in is_to_get.items() if one != record.member_id}
            case r.AssignmentChanged():
                for task_id in (*record.revoked, *record.demoted):
                    if not _is_willing(transition, record.member_id, task_id):
                        continue
                    taker = after.tasks[task_id].next_owner
                    if taker is not None and transition.now_ms < after.grants_from_ms:
                        found.append(f"{task_id} for {taker}, while nothing is granted until {after.grants_from_ms}")
                    if taker is not None and has_to_confirm.get(taker):
                        found.append(f"{task_id} for {taker}, which has to confirm {sorted(has_to_confirm[taker])}")
                    if record.member_id in [is_to_get[one] for one in is_to_get if _nobody_has(after.tasks[one])]:
                        found.append(f"{task_id} on {record.member_id}, which is to get another first")
            case _:
                pass
    return found


def left_at_deadline(transition: Transition) -> list[str]:
    """Return the tasks of a drain that ends blocked at its deadline, although a member that stays has a ready copy."""
    found: list[str] = []
    after, soft = transition.after, transition.soft_after
    ended = [one for one in transition.records if isinstance(one, r.DrainStarted) and one.blocked == "drain-deadline"]
    for owner in [after.members[one.member_id] for one in ended]:
        left = [task_id for task_id, grant in owner.assignment.items() if grant.role is Role.ACTIVE]
        for task in after.tasks.pick([task_id for task_id in left if task_id in after.table.index_of]):
            stay = [after.members[one] for one in task.standbys if after.members[one].drain is None]
            ready = [one.id for one in stay if is_caught_up_copy(after, soft, one.id, task.id, on_disk=True)]
            found += [f"{task.id} on {owner.id}, although {one} is ready" for one in ready if not task.parked]
    return found


def _has_a_limit(transition: Transition, member_id: MemberId) -> bool:
    member = transition.after.members.get(member_id)
    return member is not None and has_limit(member)


def _nobody_has(task: Task) -> bool:
    return task.owner is None and task.next_owner is not None


def _is_willing(transition: Transition, member_id: MemberId, task_id: TaskId) -> bool:
    """Say whether a member runs a task of the group, is not taken for dead, and has time."""
    task, member = transition.after.tasks[task_id], transition.after.members.get(member_id)
    was = transition.before.tasks.get(task_id)
    if member is None or was is None or was.owner != member_id or task.parked:
        return False
    if member.suspected or task.state is not ActiveState.RUNNING or task_id not in transition.after.table.index_of:
        return False
    drain = member.drain
    return drain is None or drain.deadline_ms is None or drain.deadline_ms > transition.now_ms
