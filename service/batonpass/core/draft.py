"""The group under construction while records are folded into it. Private to ``evolve``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import ActiveState, Claim, Failure, Group, Member, Stop, Task, altered

_READS_A_TASK: Final = 8
_MANY: Final = 100


class Draft:
    """The group under construction: its plain fields, and the tasks and members that differ from before.

    ``known`` are the tasks as they were, as the fewest steps read them.
    """

    __slots__ = ("before", "group", "known", "members", "tasks")

    def __init__(self, before: Group) -> None:
        self.before = before
        self.group = before
        self.tasks: dict[TaskId, Task] = {}
        self.members: dict[MemberId, Member | None] = {}
        self.known: Mapping[TaskId, Task] = before.tasks

    def expect(self, tasks: int) -> None:
        """Make ready to read so many tasks: where that pays, they are read from a plain dictionary."""
        if tasks * _READS_A_TASK > len(self.before.tasks):
            self.known = self.before.tasks.plain()

    def task(self, task_id: TaskId) -> Task:
        """Return the task as it stands; a task never heard of is free and has no target."""
        return self.tasks.get(task_id) or self.known.get(task_id) or Task(task_id)

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
            fields["unsettled"] = before.unsettled.updated(self._unsettled())
        if self.members:
            fields["members"] = before.members.updated(self.members)
        return replace(group, **fields)  # type: ignore[arg-type]

    def _unsettled(self) -> dict[TaskId, bool | None]:
        rank = self.group.table.rank
        known = self.before.unsettled.plain() if len(self.tasks) > _MANY else self.before.unsettled
        suspects = self._suspects()
        changes: dict[TaskId, bool | None] = {}
        for task_id, task in self.tasks.items():
            if task_id not in rank:
                mark = True if _held(task) else None
            else:
                mark = True if suspects and task.owner in suspects else mark_of(task)
            if mark is not known.get(task_id):
                changes[task_id] = mark
        return changes

    def _suspects(self) -> set[MemberId | None]:
        """Return the suspected among the owners of the tasks that changed."""
        owners = {task.owner for task in self.tasks.values()}
        return {one for one in owners if self._is_suspected(one)}

    def _is_suspected(self, member_id: MemberId | None) -> bool:
        member = None if member_id is None else self.member(member_id)
        return member is not None and member.suspected


def mark_of(task: Task) -> bool | None:
    """Return how the index of unsettled tasks marks a task of the topology: None where it is settled.

    Settled is what runs where its target says, with the standbys that are wanted and nobody else involved. False: there
    is nothing to do for it but to wait, for a target, while nobody has anything of it, or for the word of its owner,
    which is where it belongs and has yet to say that it runs.
    """
    if task.standbys != task.target_standbys or task.claims or task.warmups or task.keeper is not None:
        return True
    owner, state = task.owner, task.state
    if owner is None:
        return task.target is not None or task.heir is not None or bool(task.standbys)
    if owner != task.target:
        return True
    return None if state is ActiveState.RUNNING else state not in _STARTING


_STARTING: Final = (ActiveState.GRANTED, ActiveState.RESTORING)


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
    return altered(task, changes) if changes else task


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
