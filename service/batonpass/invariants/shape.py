"""Whether a group is consistent: tasks with assignments, indexes with what they index, the target with its rules.

Part of ``invariants``. It also checks rest (L9): a group looks again as long as there is something left to do, and no
longer.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import ACTIVE, RUNNING, STANDBY, WARMUP, Group, Role, Task
from batonpass.invariants.ledger import Violation


def check_tasks(group: Group, task_ids: Collection[TaskId], member_ids: Iterable[MemberId]) -> Iterator[Violation]:
    """Yield where tasks contradict the assignments, count a member twice, or have a target that breaks the rules.

    Of what the members hold, only these tasks are looked at.
    """
    known = group.tasks.for_reads(len(task_ids))
    tasks = {task_id: known.get(task_id) for task_id in task_ids}
    there = [task for task in tasks.values() if task is not None]
    yield from _check_holders(group, tasks, there, member_ids)
    yield from _check_releases(group, there)
    yield from _check_targets(group, there)


def _check_holders(
    group: Group, tasks: Mapping[TaskId, Task | None], there: Collection[Task], member_ids: Iterable[MemberId]
) -> Iterator[Violation]:
    """Yield where these tasks and assignments do not name each other, both ways.

    It goes member by member, because what one of them holds lies together in memory. Each entry whose task names it
    answers to a name of its own. So if there are as many of these entries as names, every name has its entry.
    """
    names = [task.owner for task in there if task.owner is not None]
    names += chain.from_iterable(task.standbys for task in there)
    names += chain.from_iterable(task.warmups for task in there)
    answered = 0
    for member_id in dict.fromkeys(chain(names, member_ids)):
        member = group.members.get(member_id)
        if member is None:
            continue
        held = member.assignment.for_reads(len(tasks))
        # The shorter of the two is passed over.
        entries = held.items() if len(held) < len(tasks) else [(one, held[one]) for one in tasks if one in held]
        for task_id, grant in entries:
            task = tasks.get(task_id)
            if task is None and task_id not in tasks:
                continue
            role = grant.role
            if task is not None and (task.owner == member_id if role is ACTIVE else member_id in _copies(task, role)):
                answered += 1
            else:
                detail = f"its assignment has it as {role}, the task itself does not name it"
                yield Violation("L2", detail, task_id, member_id)
            if role is ACTIVE and task is not None and grant.token != task.token:
                detail = f"its token is {grant.token}, the task's highest {task.token}"
                yield Violation("L1", detail, task_id, member_id)
            if grant.epoch > member.epoch:
                yield Violation("L2", "an entry from a future epoch", task_id, member_id)
        if member.away_until_ms is not None and (member.assignment or member.revoking):
            yield Violation("L1", "it is away, and holds tasks", None, member_id)
        if member_id in group.gone:
            yield Violation("L1", "it is a member and gone at once", None, member_id)
    if answered != len(names):
        for task in there:
            yield from _check_names(group, task)


def _copies(task: Task, role: Role) -> tuple[MemberId, ...]:
    """Return the members that a task names in the role of a copy."""
    return task.standbys if role is STANDBY else task.warmups


def _check_names(group: Group, task: Task) -> Iterator[Violation]:
    """Yield where a task names a member twice, or one whose assignment has something else."""
    names = [(one, role) for role in (STANDBY, WARMUP) for one in _copies(task, role)]
    names += [] if task.owner is None else [(task.owner, ACTIVE)]
    for member_id, role in names:
        member = group.members.get(member_id)
        grant = None if member is None else member.assignment.get(task.id)
        if grant is None or grant.role is not role:
            yield Violation("L2", f"the task names it as {role}, its assignment does not", task.id, member_id)
    for member_id, count in Counter([one for one, _ in names]).items():
        if count > 1:
            yield Violation("L8", "holds two copies of the task", task.id, member_id)


def _check_releases(group: Group, tasks: Iterable[Task]) -> Iterator[Violation]:
    for task in tasks:
        for entry in task.handover.unreleased:
            member = group.members.get(entry.member_id)
            if entry.free_at_ms is None and (member is None or task.id not in member.revoking):
                yield Violation("L1", "nobody can release it", task.id, entry.member_id)
            if entry.free_at_ms is not None and member is not None:
                yield Violation("L1", "it is released with a lease that its member renews", task.id, entry.member_id)


def _check_targets(group: Group, tasks: Collection[Task]) -> Iterator[Violation]:
    replicas, is_placed = group.config.num_standby_replicas, group.placement_due_ms is None
    members, targets = group.members.plain(), {task.target: task.id for task in tasks}
    for target, task_id in targets.items():
        standbys = target.standbys
        if target.owner in standbys or (len(standbys) > 1 and len({*standbys}) < len(standbys)):
            yield Violation("L8", "its target names a member twice", task_id)
        for member_id in standbys if target.owner is None else (target.owner, *standbys):
            if member_id not in members:
                yield Violation("L2", "its target is not a member", task_id, member_id)
        if is_placed and standbys and target.owner is None and not group.placement_failed:
            yield Violation("L8", "standbys of a task that has no target owner", task_id)
    table, are_many = group.table, any(len(target.standbys) > replicas for target in targets)
    if is_placed and (are_many or len(table.stateful_indexes) < len(table.ids)):
        for task in tasks:
            index, count = table.index_of.get(task.id), len(task.target.standbys)
            limit = replicas if index is not None and table.stateful[index] else 0
            if index is not None and count > limit:
                yield Violation("L8", f"{count} target standbys; {limit} are wanted", task.id)


def check_indexes(group: Group) -> Iterator[Violation]:
    """Yield where the indexes of instances, of unsettled tasks, or of the task table are wrong."""
    for instance_id, member_id in sorted(group.instances.items()):
        if member_id not in group.members or group.members[member_id].instance_id != instance_id:
            yield Violation("L2", f"instance {instance_id} names another member", None, member_id)
    for member_id, member in sorted(group.members.items()):
        if member.instance_id is not None and group.instances.get(member.instance_id) != member_id:
            yield Violation("L2", "its instance id leads to another member", None, member_id)
    for task_id, task in sorted(group.tasks.items()):
        if (task_id in group.unsettled) is is_settled(group, task):
            yield Violation("L9", "the index of unsettled tasks is wrong about it", task_id)
        if task_id not in group.unsettled and task_id not in group.table.index_of:
            yield Violation("L2", "it has ended, and is still kept", task_id)
    for task_id in group.table.ids:
        if task_id not in group.tasks:
            yield Violation("L2", "in the topology, but no task", task_id)


def is_settled(group: Group, task: Task) -> bool:
    """Say whether a task has nothing left to do: it runs at its target, with exactly the wanted copies."""
    if task.id not in group.table.index_of:
        return not (task.owner or task.handover.unreleased or task.standbys or task.warmups)
    runs = task.owner is not None and task.owner == task.target.owner and task.state is RUNNING
    owner = group.members.get(task.owner) if task.owner is not None else None
    others = bool(
        task.handover.unreleased
        or task.warmups
        or task.handover.previous_owner
        or (owner is not None and owner.suspected)
    )
    return runs and not others and set(task.standbys) == set(task.target.standbys)


def check_rest(group: Group) -> Iterator[Violation]:
    """Yield a task that is left when the group has stopped looking (L9).

    A task that waits, is parked, or has no target changes only by an input that wakes the group anyway. Whether looking
    stops at rest depends on the lag of copies, so the simulator checks that.
    """
    if not group.declared or not group.members:
        return
    moving = [task_id for task_id in sorted(group.unsettled) if _is_moving(group, group.tasks[task_id])]
    if moving and group.next_probe_ms is None and group.placement_due_ms is None:
        yield Violation("L9", "something is left to do, and nothing is set to look at the group again", moving[0])


def _is_moving(group: Group, task: Task) -> bool:
    if task.id not in group.table.index_of or task.marks.parked:
        return False
    return bool(
        task.warmups
        or task.handover.next_owner
        or (task.target.owner is not None and task.owner not in (None, task.target.owner))
    )
