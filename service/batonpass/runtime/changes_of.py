"""What a decision changed, one line per task and member: the rows that an audit rebuilds ownership from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from batonpass.core import records as r
from batonpass.core.model import Cause, Grant, Group, Member, Role
from batonpass.runtime.history import Change

if TYPE_CHECKING:
    from batonpass.core.ids import MemberId, TaskId

NO_ROLE = "none"


def changes_of(
    before: Group, records: Iterable[r.Record], after: Group, why: Mapping[TaskId, str], at_ms: int
) -> tuple[Change, ...]:
    """Return the changes that the records made, in their order. ``why`` names the reason of each task that has one.

    Costs a pass over what the records name, whatever the size of the group.
    """
    return tuple(_Reader(before, after, why, at_ms).read(records))


class _Reader:
    """Follows what each member holds from record to record."""

    def __init__(self, before: Group, after: Group, why: Mapping[TaskId, str], at_ms: int) -> None:
        self._before = before
        self._generation = after.generation
        self._why = why
        self._at_ms = at_ms
        self._held: dict[tuple[MemberId, TaskId], Grant | None] = {}
        self._fresh: set[MemberId] = set()

    def read(self, records: Iterable[r.Record]) -> Iterator[Change]:
        """Yield the changes that the records make."""
        for record in records:
            match record:
                case r.AssignmentChanged():
                    yield from self._assignment_changed(record)
                case r.MemberJoined(member=member):
                    self._fresh.add(member.id)
                case r.MemberGone(member_id=member_id, cause=cause):
                    yield from self._gone(member_id, cause)
                case r.MemberAway(member_id=member_id):
                    yield from self._gone(member_id, Cause.RESTARTED)
                case r.GroupDeleted():
                    for member_id in self._before.members:
                        yield from self._gone(member_id, Cause.EVICTED)
                case r.TaskReleased(task=task, member_id=member_id):
                    yield self._line(task, member_id, "released")
                case r.ActiveReported(task=task, member_id=member_id, state=state):
                    yield self._line(task, member_id, "reported")._replace(state=state)
                case r.TasksAdopted():
                    yield from self._adopted(record)
                case _:
                    pass

    def _assignment_changed(self, record: r.AssignmentChanged) -> Iterator[Change]:
        member_id, epoch = record.member_id, record.epoch
        ready = frozenset(record.ready)
        for task, grant in record.granted.items():
            warm = task in ready if grant.role is Role.ACTIVE else None
            why = self._why.get(task, "")
            was = self._role(member_id, task)
            self._held[member_id, task] = grant
            yield Change(
                task,
                member_id,
                "granted",
                was,
                grant.role,
                self._at_ms,
                self._generation,
                epoch,
                grant.token,
                warm=warm,
                why=why,
            )
        for task in record.revoked:
            line = self._line(task, member_id, "revoked")
            self._held[member_id, task] = None
            yield line._replace(role=NO_ROLE, member_epoch=epoch)

    def _adopted(self, record: r.TasksAdopted) -> Iterator[Change]:
        for task, token in record.tokens.items():
            yield self._line(task, record.member_id, "adopted")._replace(role=Role.ACTIVE, token=token)
        for task in record.dropped:
            yield self._line(task, record.member_id, "revoked")._replace(role=NO_ROLE)

    def _gone(self, member_id: MemberId, cause: Cause) -> Iterator[Change]:
        member = self._before.members.get(member_id)
        if member is None:
            return
        for task in _everything_of(member):
            yield self._line(task, member_id, "gone")._replace(role=NO_ROLE, why=cause)
            self._held[member_id, task] = None

    def _line(self, task: TaskId, member_id: MemberId, kind: str) -> Change:
        """Return a change that leaves the role as it is."""
        role = self._role(member_id, task)
        why = self._why.get(task, "")
        return Change(task, member_id, kind, role, role, self._at_ms, self._generation, why=why)

    def _role(self, member_id: MemberId, task: TaskId) -> str:
        key = member_id, task
        if key in self._held:
            grant = self._held[key]
        elif member_id in self._fresh:
            grant = None
        else:
            member = self._before.members.get(member_id)
            grant = member.assignment.get(task) if member is not None else None
        return grant.role if grant is not None else NO_ROLE


def _everything_of(member: Member) -> Iterator[TaskId]:
    yield from member.assignment
    for task in member.revoking:
        if task not in member.assignment:
            yield task
