"""What a decision changed, one row per task and member. Ownership is rebuilt from these rows.

They follow from the records and the group alone, so those who write them and those who compare them use the same code.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Cause, Grant, Group, Role

NO_ROLE = "none"


class Change(NamedTuple):
    """One task of one member changed: its role (``active``, ``standby``, ``warmup``, ``none``) or its state.

    ``kind`` is ``granted``, ``revoked`` (told to give it up), ``released`` (known not to run it), ``reported``
    (state of an active), ``adopted`` (after lost commits), ``waived`` (silent and fenced, so nobody waits for it) or
    ``gone`` (lost with its member). ``warm`` says of a granted active whether its copy was ready. ``heard_ms`` is when
    a member that was given up was last heard.
    """

    task: TaskId
    member: MemberId
    kind: str
    role_before: str
    role: str
    at_ms: int
    generation: int
    member_epoch: int = 0
    token: int = 0
    state: str = ""
    warm: bool | None = None
    why: str = ""
    heard_ms: int | None = None


def changes_of(
    before: Group, records: Iterable[r.Record], after: Group, why: Mapping[TaskId, str], at_ms: int
) -> tuple[Change, ...]:
    """Return the changes that the records made, in their order. ``why`` names the reason of each task that has one.

    Each change is the same however many records are read at once, except for its generation, which is that of
    ``after``. The cost depends on what the records name, not on the size of the group.
    """
    return tuple(_Reader(before, after, why, at_ms).read(records))


class _Reader:
    """Follows what each member holds, and what it has to give up, from record to record."""

    def __init__(self, before: Group, after: Group, why: Mapping[TaskId, str], at_ms: int) -> None:
        self._before = before
        self._generation = after.generation
        self._why = why
        self._at_ms = at_ms
        # By member, the tasks that differ from before. For a member that has joined since, these are all its tasks.
        self._held: dict[MemberId, dict[TaskId, Grant | None]] = {}
        self._revoking: dict[MemberId, dict[TaskId, bool]] = {}
        self._fresh: set[MemberId] = set()

    def read(self, records: Iterable[r.Record]) -> Iterator[Change]:
        for record in records:
            match record:
                case r.AssignmentChanged():
                    yield from self._assignment_changed(record)
                case r.MemberJoined(member=member):
                    self._fresh.add(member.id)
                case r.MemberGone(member_id=member_id, cause=cause, heard_ms=heard_ms):
                    yield from self._gone(member_id, cause, heard_ms)
                case r.MemberAway(member_id=member_id):
                    yield from self._gone(member_id, Cause.RESTARTED)
                case r.GroupDeleted():
                    for member_id in dict.fromkeys([*self._before.members, *self._held]):
                        yield from self._gone(member_id, Cause.EVICTED)
                case r.TaskReleased(task=task, member_id=member_id):
                    yield self._line(task, member_id, "released")
                    self._revoking.setdefault(member_id, {})[task] = False
                case r.ReleaseWaived(task=task, member_id=member_id, heard_ms=heard_ms):
                    yield self._line(task, member_id, "waived")._replace(heard_ms=heard_ms)
                case r.ActiveReported(task=task, member_id=member_id, state=state):
                    yield self._line(task, member_id, "reported")._replace(state=state)
                case r.TasksAdopted():
                    yield from self._adopted(record)
                case _:
                    pass

    def _assignment_changed(self, record: r.AssignmentChanged) -> Iterator[Change]:
        member_id, epoch = record.member_id, record.epoch
        ready = frozenset(record.ready)
        held = self._held.setdefault(member_id, {})
        for task, grant in record.granted.items():
            warm = task in ready if grant.role is Role.ACTIVE else None
            why = self._why.get(task, "")
            was = self._role(member_id, task)
            held[task] = grant
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
            held[task] = None
            yield line._replace(role=NO_ROLE, member_epoch=epoch)
        if record.revoked or record.demoted:
            self._revoking.setdefault(member_id, {}).update(dict.fromkeys((*record.revoked, *record.demoted), True))

    def _adopted(self, record: r.TasksAdopted) -> Iterator[Change]:
        member_id = record.member_id
        for task, token in record.tokens.items():
            yield self._line(task, member_id, "adopted")._replace(role=Role.ACTIVE, token=token)
            owner = self._before.task(task).owner
            if owner is not None and owner != member_id:
                self._give_up(owner, task)
            self._held.setdefault(member_id, {})[task] = Grant(Role.ACTIVE, 0, record.at_ms, token)
            self._revoking.setdefault(member_id, {})[task] = False
        for task in record.dropped:
            yield self._line(task, member_id, "revoked")._replace(role=NO_ROLE)
            self._give_up(member_id, task)

    def _give_up(self, member_id: MemberId, task: TaskId) -> None:
        self._held.setdefault(member_id, {})[task] = None
        self._revoking.setdefault(member_id, {})[task] = True

    def _gone(self, member_id: MemberId, cause: Cause, heard_ms: int | None = None) -> Iterator[Change]:
        held, revoking = self._held.setdefault(member_id, {}), self._revoking.setdefault(member_id, {})
        member = None if member_id in self._fresh else self._before.members.get(member_id)
        before = member.revoking if member is not None else {}
        for task in dict.fromkeys([*(member.assignment if member is not None else ()), *before, *held, *revoking]):
            if self._role(member_id, task) != NO_ROLE or revoking.get(task, task in before):
                yield self._line(task, member_id, "gone")._replace(role=NO_ROLE, why=cause, heard_ms=heard_ms)
                held[task], revoking[task] = None, False

    def _line(self, task: TaskId, member_id: MemberId, kind: str) -> Change:
        """Return a change that leaves the role as it is."""
        role = self._role(member_id, task)
        why = self._why.get(task, "")
        return Change(task, member_id, kind, role, role, self._at_ms, self._generation, why=why)

    def _role(self, member_id: MemberId, task: TaskId) -> str:
        held = self._held.get(member_id)
        if held is not None and task in held:
            grant = held[task]
        elif member_id in self._fresh:
            grant = None
        else:
            member = self._before.members.get(member_id)
            grant = member.assignment.get(task) if member is not None else None
        return grant.role if grant is not None else NO_ROLE
