"""Whether a group is consistent: tasks with assignments, indexes with what they index, the target with its rules.

Part of ``invariants``. It also checks rest (L9): a group looks again as long as there is something left to do, and no
longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import ActiveState, Group, Member, Role, Task
from batonpass.invariants.ledger import Violation


def check_task(group: Group, task: Task) -> list[Violation]:
    """Return where a task contradicts the assignments, counts a member twice, or has a target that breaks the rules."""
    violations: list[Violation] = []
    holders = [*([task.owner] if task.owner is not None else []), *task.standbys, *task.warmups]
    if len(set(holders)) != len(holders):
        violations += [
            Violation("L8", "holds two copies of the task", task.id, member_id)
            for member_id, count in Counter(holders).items()
            if count > 1
        ]
    for role, members in _holders_by_role(task):
        for member_id in members:
            member = group.members.get(member_id)
            held = member.assignment.get(task.id) if member is not None else None
            if held is None or held.role is not role:
                violations.append(
                    Violation("L2", f"the task names it as {role}, its assignment does not", task.id, member_id)
                )
            elif role is Role.ACTIVE and held.token != task.token:
                detail = f"its token is {held.token}, the task's highest {task.token}"
                violations.append(Violation("L1", detail, task.id, member_id))
    for entry in task.handover.unreleased:
        member = group.members.get(entry.member_id)
        if entry.free_at_ms is None and (member is None or task.id not in member.revoking):
            violations.append(Violation("L1", "nobody can release it", task.id, entry.member_id))
        if entry.free_at_ms is not None and member is not None:
            violations.append(
                Violation("L1", "it is released with a lease that its member renews", task.id, entry.member_id)
            )
    return violations + _check_target(group, task)


def _holders_by_role(task: Task) -> tuple[tuple[Role, Iterable[MemberId]], ...]:
    owners = (task.owner,) if task.owner is not None else ()
    return ((Role.ACTIVE, owners), (Role.STANDBY, task.standbys), (Role.WARMUP, task.warmups))


def _check_target(group: Group, task: Task) -> list[Violation]:
    violations: list[Violation] = []
    wanted = [*([task.target.owner] if task.target.owner is not None else []), *task.target.standbys]
    if len(wanted) > 1 and len(set(wanted)) != len(wanted):
        violations.append(Violation("L8", "its target names a member twice", task.id))
    members = group.members
    violations += [
        Violation("L2", "its target is not a member", task.id, member_id)
        for member_id in wanted
        if member_id not in members
    ]
    is_placed = group.placement_due_ms is None and not group.placement_failed
    if task.target.standbys and task.target.owner is None and is_placed:
        violations.append(Violation("L8", "standbys of a task that has no target owner", task.id))
    if task.id in group.table.index_of and group.placement_due_ms is None:
        limit = group.config.num_standby_replicas if group.table.stateful[group.table.index_of[task.id]] else 0
        if len(task.target.standbys) > limit:
            violations.append(
                Violation("L8", f"{len(task.target.standbys)} target standbys; {limit} are wanted", task.id)
            )
    return violations


def check_member(group: Group, member: Member, tasks: Collection[TaskId] | None = None) -> list[Violation]:
    """Return where a member's assignment names a task that does not name the member. ``tasks`` of None: all tasks."""
    violations: list[Violation] = []
    for task_id in sorted(member.assignment if tasks is None else _both(member.assignment, tasks)):
        grant, task = member.assignment[task_id], group.tasks.get(task_id)
        known: tuple[MemberId | None, ...] = ()
        if task is not None:
            known = {Role.ACTIVE: (task.owner,), Role.STANDBY: task.standbys, Role.WARMUP: task.warmups}[grant.role]
        if member.id not in known:
            violations.append(
                Violation("L2", f"its assignment says {grant.role}, the task does not", task_id, member.id)
            )
        if grant.epoch > member.epoch:
            violations.append(Violation("L2", "an entry from a future epoch", task_id, member.id))
    if member.away_until_ms is not None and (member.assignment or member.revoking):
        violations.append(Violation("L1", "it is away, and holds tasks", None, member.id))
    if member.id in group.gone:
        violations.append(Violation("L1", "it is a member and gone at once", None, member.id))
    return violations


def _both(assignment: Collection[TaskId], tasks: Collection[TaskId]) -> list[TaskId]:
    """Return the tasks in both. It passes over the shorter one, because a step may touch every task and member."""
    if len(tasks) < len(assignment):
        return [task_id for task_id in tasks if task_id in assignment]
    return [task_id for task_id in assignment if task_id in tasks]


def check_indexes(group: Group) -> list[Violation]:
    """Return where the indexes of instances, of unsettled tasks, or of the task table are wrong."""
    violations = [
        Violation("L2", f"instance {instance_id} names another member", None, member_id)
        for instance_id, member_id in sorted(group.instances.items())
        if member_id not in group.members or group.members[member_id].instance_id != instance_id
    ]
    for member_id, member in sorted(group.members.items()):
        if member.instance_id is not None and group.instances.get(member.instance_id) != member_id:
            violations.append(Violation("L2", "its instance id leads to another member", None, member_id))
    for task_id, task in sorted(group.tasks.items()):
        if (task_id in group.unsettled) is is_settled(group, task):
            violations.append(Violation("L9", "the index of unsettled tasks is wrong about it", task_id))
    violations += [
        Violation("L2", "in the topology, but no task", task_id)
        for task_id in group.table.ids
        if task_id not in group.tasks
    ]
    return violations


def is_settled(group: Group, task: Task) -> bool:
    """Say whether a task has nothing left to do: it runs at its target, with exactly the wanted copies."""
    if task.id not in group.table.index_of:
        return not (task.owner or task.handover.unreleased or task.standbys or task.warmups)
    runs = task.owner is not None and task.owner == task.target.owner and task.state is ActiveState.RUNNING
    owner = group.members.get(task.owner) if task.owner is not None else None
    others = bool(
        task.handover.unreleased
        or task.warmups
        or task.handover.previous_owner
        or (owner is not None and owner.suspected)
    )
    return runs and not others and set(task.standbys) == set(task.target.standbys)


def check_rest(group: Group) -> list[Violation]:
    """Return whether the group has stopped looking although something is left to do (L9).

    A task that waits, is parked, or has no target changes only by an input that wakes the group anyway. Whether looking
    stops at rest depends on the lag of copies, so the simulator checks that.
    """
    if not group.declared or not group.members:
        return []
    moving = [task_id for task_id in sorted(group.unsettled) if _is_moving(group, group.tasks[task_id])]
    if moving and group.next_probe_ms is None and group.placement_due_ms is None:
        return [Violation("L9", "something is left to do, and no look is due", moving[0])]
    return []


def _is_moving(group: Group, task: Task) -> bool:
    if task.id not in group.table.index_of or task.marks.parked:
        return False
    return bool(
        task.warmups
        or task.handover.next_owner
        or (task.target.owner is not None and task.owner not in (None, task.target.owner))
    )
