"""Which members may be running what, added up from the records alone. Part of ``invariants``.

The ledger folds the records of one decision, over the few tasks and members that they name. It follows the meaning that
``records`` gives them, and does not use ``evolve``. The group afterwards must agree with it. Each record that gives or
ends a right to run a task must be licensed (``invariants.rights``).
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import ACTIVE, Grant, Group, Member, Revocation, Task
from batonpass.core.state.soft import Soft


class Violation(NamedTuple):
    """A broken law, and what shows it."""

    law: str
    detail: str
    task: TaskId | None = None
    member: MemberId | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """One decision, as it is about to be appended.

    ``soft`` is the soft state before the decision, ``soft_after`` that after it. ``inputs`` is None if they are no
    longer known (the audit of an old log); then every vouching is assumed to be true.
    """

    before: Group
    after: Group
    records: tuple[r.Record, ...]
    soft: Soft
    soft_after: Soft
    now_ms: int
    inputs: tuple[Input, ...] | None = None


class Ledger:
    """The rights of the tasks and members that the records name, after each record."""

    __slots__ = ("adopted", "before", "grants", "members", "owners", "revoking", "tasks", "unreleased")

    def __init__(self, before: Group, reads: int = 0) -> None:
        """Begin with a group, of whose tasks as many as ``reads`` will be looked at."""
        self.before = before
        self.tasks = before.tasks.for_reads(reads)
        self.owners: dict[TaskId, MemberId | None] = {}
        self.unreleased: dict[TaskId, dict[MemberId, int | None]] = {}
        self.grants: defaultdict[MemberId, dict[TaskId, Grant | None]] = defaultdict(dict)
        self.revoking: defaultdict[MemberId, dict[TaskId, Revocation | None]] = defaultdict(dict)
        self.members: dict[MemberId, Member | None] = {}
        self.adopted: dict[TaskId, MemberId] = {}

    def member(self, member_id: MemberId) -> Member | None:
        """Return the member: its epoch and whether it is suspected are as the records say. None once it is gone."""
        return self.members[member_id] if member_id in self.members else self.before.members.get(member_id)

    def rights(self, task_id: TaskId) -> tuple[Task | None, MemberId | None, Mapping[MemberId, int | None]]:
        """Return a task as it was before, the member that holds its grant, and those that may be running it without.

        With each of these stands when that ends, if it is known.
        """
        task = self.tasks.get(task_id)
        owner = task.owner if task is not None else None
        unreleased = dict(task.handover.unreleased) if task is not None and task.handover.unreleased else {}
        return task, self.owners.get(task_id, owner), self.unreleased.get(task_id, unreleased)

    def owner(self, task_id: TaskId) -> MemberId | None:
        """Return the member that holds the grant of the task."""
        return self.rights(task_id)[1]

    def unreleased_of(self, task_id: TaskId) -> Mapping[MemberId, int | None]:
        """Return the members that may be running the task without a grant, and when that ends, if known."""
        return self.rights(task_id)[2]

    def _unreleased(self, task_id: TaskId) -> dict[MemberId, int | None]:
        return self.unreleased.setdefault(task_id, dict(self.unreleased_of(task_id)))

    def grant(self, member_id: MemberId, task_id: TaskId) -> Grant | None:
        grants = self.grants[member_id]
        if task_id not in grants:
            member = self.member(member_id)
            grants[task_id] = member.assignment.get(task_id) if member is not None else None
        return grants[task_id]

    def revocation(self, member_id: MemberId, task_id: TaskId) -> Revocation | None:
        """Return what the member has to give up of the task and has not confirmed."""
        revoking = self.revoking[member_id]
        if task_id not in revoking:
            member = self.member(member_id)
            revoking[task_id] = member.revoking.get(task_id) if member is not None else None
        return revoking[task_id]

    def held_by(self, member_id: MemberId) -> list[TaskId]:
        """Return every task that the member holds, has to give up, or may still be running."""
        member = self.member(member_id)
        held = (*member.assignment, *member.revoking) if member is not None else ()
        may_run = (task for task, unreleased in self.unreleased.items() if member_id in unreleased)
        return list(dict.fromkeys((*held, *self.grants[member_id], *self.revoking[member_id], *may_run)))

    def fold(self, record: r.Record) -> None:
        """Add one record. A record that touches no rights adds nothing."""
        match record:
            case r.MemberJoined(member=member):
                self.members[member.id] = member
            case r.MemberGone(member_id=member_id, at_ms=at_ms, lease_end_ms=lease_end_ms):
                self._strip(member_id, lease_end_ms if lease_end_ms > at_ms else None)
                self.members[member_id] = None
            case r.MemberAway(member_id=member_id):
                self._strip(member_id, None)
                self._change(member_id, suspected=False)
            case r.AssignmentChanged():
                self._assignment_changed(record)
            case r.TaskReleased(task=task_id, member_id=member_id):
                self._unreleased(task_id).pop(member_id, None)
                self.revoking[member_id][task_id] = None
            case r.ReleaseWaived(task=task_id, member_id=member_id):
                self._unreleased(task_id).pop(member_id, None)
            case r.MemberSuspected(member_id=member_id):
                self._change(member_id, suspected=True)
            case r.SuspicionCleared(member_id=member_id):
                self._change(member_id, suspected=False)
            case r.EpochsRaised(epochs=epochs):
                for member_id, least in sorted(epochs.items()):
                    self._change(member_id, epoch=max(self._epoch(member_id), least))
            case r.GrantsHeld(set_back_ms=set_back_ms) if set_back_ms:
                for task_id in self.before.tasks:
                    ends = self._unreleased(task_id)
                    ends |= {one: at_ms - set_back_ms for one, at_ms in ends.items() if at_ms is not None}
            case r.TasksAdopted():
                self._adopted(record)
            case _:
                pass

    def _strip(self, member_id: MemberId, free_at: int | None) -> None:
        """Take everything from a member. If ``free_at`` is given, what it may be running is unreleased until then."""
        for task_id in self.held_by(member_id):
            unreleased = self._unreleased(task_id)
            ran = self.owner(task_id) == member_id
            claimed = unreleased.pop(member_id, self) is not self
            if ran:
                self.owners[task_id] = None
            if free_at is not None and (ran or claimed):
                unreleased[member_id] = free_at
            self.grants[member_id][task_id] = self.revoking[member_id][task_id] = None

    def _assignment_changed(self, record: r.AssignmentChanged) -> None:
        member_id = record.member_id
        for task_id in (*record.revoked, *record.demoted):
            ran = self.owner(task_id) == member_id
            self._take_away(member_id, task_id, Revocation(record.epoch, record.at_ms, ran))
        self.grants[member_id].update(record.granted)
        self.owners |= {task_id: member_id for task_id, grant in record.granted.items() if grant.role is ACTIVE}
        self._change(member_id, epoch=record.epoch)

    def _adopted(self, record: r.TasksAdopted) -> None:
        member_id, epoch, at_ms = record.member_id, self._epoch(record.member_id), record.at_ms
        for task_id in record.dropped:
            self._take_away(member_id, task_id, Revocation(epoch, at_ms, active=True))
        for task_id, token in sorted(record.tokens.items()):
            holder = self.owner(task_id)
            if holder is not None and holder != member_id:
                self._change(holder, epoch=self._epoch(holder) + 1)
                self._take_away(holder, task_id, Revocation(self._epoch(holder), at_ms, active=True))
            self._unreleased(task_id).pop(member_id, None)
            self.owners[task_id] = self.adopted[task_id] = member_id
            self.revoking[member_id][task_id] = None
            self.grants[member_id][task_id] = Grant(ACTIVE, epoch, at_ms, token)

    def _take_away(self, member_id: MemberId, task_id: TaskId, revocation: Revocation) -> None:
        if revocation.active:
            self.owners[task_id] = None
            self._unreleased(task_id)[member_id] = None
        self.grants[member_id][task_id] = None
        self.revoking[member_id][task_id] = revocation

    def _epoch(self, member_id: MemberId) -> int:
        member = self.member(member_id)
        return 0 if member is None else member.epoch

    def _change(self, member_id: MemberId, **fields: object) -> None:
        member = self.member(member_id)
        if member is not None:
            self.members[member_id] = replace(member, **fields)  # type: ignore[arg-type]
