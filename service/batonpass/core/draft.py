"""The group under construction while records are folded into it. Private to ``evolve``."""

from __future__ import annotations

from dataclasses import replace

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import ActiveState, Claim, Failure, Group, Member, Pending, Stop, Task


class Draft:
    """The group under construction: its plain fields, and the tasks and members that differ from before."""

    __slots__ = ("before", "group", "members", "tasks")

    def __init__(self, before: Group) -> None:
        self.before = before
        self.group = before
        self.tasks: dict[TaskId, Task] = {}
        self.members: dict[MemberId, Member | None] = {}

    def task(self, task_id: TaskId) -> Task:
        """Return the task as it stands; a task never heard of is free and has no target."""
        return self.tasks.get(task_id) or self.before.tasks.get(task_id) or Task(task_id)

    def member(self, member_id: MemberId) -> Member | None:
        """Return the member as it stands; None when it is gone or was never there."""
        if member_id in self.members:
            return self.members[member_id]
        return self.before.members.get(member_id)

    def every_task(self) -> list[TaskId]:
        """Return the ids of all tasks as things stand."""
        return list(dict.fromkeys([*self.before.tasks, *self.tasks]))

    def every_member(self) -> list[tuple[MemberId, Member]]:
        """Return all members as things stand."""
        ids = dict.fromkeys([*self.before.members, *self.members])
        found = [(member_id, self.member(member_id)) for member_id in ids]
        return [(member_id, member) for member_id, member in found if member is not None]

    def change_member(self, member_id: MemberId, **fields: object) -> None:
        """Change fields of a member; nothing happens when it is gone."""
        member = self.member(member_id)
        if member is not None:
            self.members[member_id] = replace(member, **fields)  # type: ignore[arg-type]

    def change(self, **fields: object) -> None:
        """Change plain fields of the group."""
        self.group = replace(self.group, **fields)  # type: ignore[arg-type]

    def finish(self, version: int) -> Group:
        """Return the group with everything folded in, at ``version``."""
        before, group = self.before, self.group
        fields: dict[str, object] = {"version": version}
        if self.tasks:
            fields["tasks"] = before.tasks.updated(self.tasks)
        if self.members:
            fields["members"] = before.members.updated(self.members)
        fields["unsettled"] = before.unsettled.updated(self._unsettled())
        return replace(group, **fields)  # type: ignore[arg-type]

    def _unsettled(self) -> dict[TaskId, Pending | None]:
        """Return what changes about which tasks are unsettled, and how far."""
        table, replicas = self.group.table, self.group.config.num_standby_replicas
        rank, stateful, known = table.rank, table.stateful, self.before.unsettled
        tasks = self.tasks
        if replicas != self.before.config.num_standby_replicas:
            tasks = {task_id: self.task(task_id) for task_id in (*known, *tasks)}
        owners = {task.owner: self.member(task.owner) for task in tasks.values() if task.owner is not None}
        suspects = {owner for owner, member in owners.items() if member is not None and member.suspected}
        leaving = {owner for owner, member in owners.items() if member is not None and _goes_at_an_instant(member)}
        changes: dict[TaskId, Pending | None] = {}
        for task_id, task in tasks.items():
            place = rank.get(task_id)
            if place is None:
                found = Pending.OPEN if _held(task) else None
            else:
                found = pending(task, replicas=replicas if stateful[place] else None)
                if task.owner in suspects or (found is Pending.QUEUED and task.owner in leaving):
                    found = Pending.OPEN
            if found is not known.get(task_id):
                changes[task_id] = found
        return changes


def _goes_at_an_instant(member: Member) -> bool:
    """Say whether a member gives up what it runs at the deadline of its drain, ready copies or not."""
    return member.drain is not None and member.drain.deadline_ms is not None


def pending(task: Task, *, replicas: int | None) -> Pending | None:
    """Return what a task of the topology waits for; None where it is settled.

    Settled is what runs where its target says, with the standbys that are wanted and nobody else involved. ``replicas``
    is how many standbys a task should have, None for one without state.
    """
    owner, state, target, standbys = task.owner, task.state, task.target, task.standbys
    if task.claims or task.warmups or task.heir is not None or task.keeper is not None:
        return Pending.OPEN
    if owner is None:
        is_to_go = target is not None or standbys or task.target_standbys
        return Pending.OPEN if is_to_go else Pending.WAITING
    if owner == target and standbys == task.target_standbys:
        if state is ActiveState.RUNNING:
            return None
        return Pending.WAITING if state in (ActiveState.GRANTED, ActiveState.RESTORING) else Pending.OPEN
    runs_on = state is ActiveState.RUNNING and target is not None and not task.parked and not task.stalls
    is_complete = len(standbys) == len(task.target_standbys) == replicas
    is_queued = runs_on and is_complete and target not in standbys and owner not in standbys
    return Pending.QUEUED if is_queued else Pending.OPEN


def _held(task: Task) -> bool:
    return bool(task.owner or task.claims or task.standbys or task.warmups)


def involved(draft: Draft, member: Member) -> list[TaskId]:
    """Return every task that the member may have to do with: what it holds or held, its pins, what is unsettled."""
    ids = dict.fromkeys(member.picture)
    ids.update(dict.fromkeys(member.revoking))
    ids.update(dict.fromkeys(draft.before.unsettled))
    ids.update(dict.fromkeys(draft.tasks))
    ids.update({task_id: None for task_id, pin in draft.group.pins.items() if pin == member.id})
    return list(ids)


def without(task: Task, member_id: MemberId, claims: tuple[Claim, ...]) -> Task:
    """Return the task as it is when the member holds nothing of it any more, but for ``claims``."""
    changes = changes_without(task, member_id, claims)
    return task._replace(**changes) if changes else task  # type: ignore[arg-type]


def changes_without(task: Task, member_id: MemberId, claims: tuple[Claim, ...]) -> dict[str, object]:
    """Return what is other than before when the member holds nothing of a task any more, by the names of fields.

    A member that leaves may have to do with thousands of tasks: only what changes is named.
    """
    changes: dict[str, object] = {}
    if task.owner == member_id:
        changes["owner"] = None
    if member_id in task.standbys:
        changes["standbys"] = minus(task.standbys, member_id)
    if member_id in task.warmups:
        changes["warmups"] = minus(task.warmups, member_id)
    if claims != task.claims:
        changes["claims"] = claims
    if task.heir == member_id:
        changes["heir"] = None
    if task.keeper == member_id:
        changes["keeper"] = None
    return changes


def stopped(task: Task, claims: tuple[Claim, ...], member_id: MemberId, at_ms: int, cause: str) -> Stop | None:
    """Return how the last run of a task ended, now that ``member_id`` went and these claims are left."""
    stop = task.stop
    if task.owner == member_id and task.state is ActiveState.RUNNING:
        stop = Stop(member_id, None, cause)
    elif stop is not None and stop.member_id == member_id and stop.at_ms is None:
        stop = stop._replace(cause=cause)
    return ended(stop, claims, at_ms)


def ended(stop: Stop | None, claims: tuple[Claim, ...], at_ms: int) -> Stop | None:
    """Return ``stop`` with the instant since when nobody can be running the task, if no claim on it is left.

    An instant of 0 was not recorded: then nothing is known of the stop.
    """
    if stop is None or stop.at_ms is not None or claims:
        return stop
    return stop._replace(at_ms=at_ms) if at_ms else None


def failed(task: Task, failure: Failure) -> tuple[Failure, ...]:
    """Return the failures of the task with one more; of each member the last counts."""
    return (*(one for one in task.failures if one.member_id != failure.member_id), failure)


def minus(members: tuple[MemberId, ...], member_id: MemberId) -> tuple[MemberId, ...]:
    """Return ``members`` without ``member_id``."""
    if member_id not in members:
        return members
    return tuple([one for one in members if one != member_id]) if len(members) > 1 else ()


def plus(members: tuple[MemberId, ...], member_id: MemberId) -> tuple[MemberId, ...]:
    """Return ``members`` with ``member_id``, in order."""
    if not members:
        return (member_id,)
    if member_id > members[-1]:
        return (*members, member_id)
    return members if member_id in members else tuple(sorted((*members, member_id)))
