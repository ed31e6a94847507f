"""Whether a member can be stopped now without a task standing still for longer than a handover takes.

It can if every stateful task that it runs, or may still be running, has a caught-up copy on another member, which would
take over at once. A stateless task can start anywhere.
"""

from batonpass.core.handover.view import View
from batonpass.core.state.ids import TaskId, task_sort_key
from batonpass.core.state.model import Member


def reasons_to_stay(view: View, member: Member) -> tuple[tuple[TaskId, str], ...]:
    """Return, by task, what stopping ``member`` now would interrupt and why; nothing if it is safe to stop."""
    others = [other for other in view.group.members if other != member.id and view.is_heard(other)]
    reasons: list[tuple[TaskId, str]] = []
    for task_id in sorted(member.may_run, key=task_sort_key):
        if task_id in member.revoking:
            # A task that no longer waits for a suspected member is another's already.
            if any(entry.member_id == member.id for entry in view.tasks[task_id].handover.unreleased):
                reasons.append((task_id, "it was told to give this task up and has not confirmed it yet"))
        elif not view.is_stateful(task_id):
            if not others:
                reasons.append((task_id, "there is no other member to take it"))
        elif not any(
            holder != member.id and view.is_heard(holder) and view.copy(view.tasks[task_id], holder).is_caught_up
            for holder in view.tasks[task_id].holders
        ):
            reasons.append((task_id, "no other member has a caught-up copy of it"))
    return tuple(reasons)
