"""A scene: one group, its soft state and a clock, to which a test says what happens, one input at a time.

Every input is held to the laws that need no story: its records fold to the group that the decision says (L2), and the
invariants find nothing wrong with the step or with the whole group. A decision is the same when it is made twice (L10).
"""

import sys
from collections.abc import Mapping
from typing import TypeVar

from tests.core.in_vain import done_in_vain

from batonpass.core.decide import Decision, decide
from batonpass.core.handover.step import plan_step
from batonpass.core.handover.view import View
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import GroupDeclaration, Heartbeat, Input, Join, Tick
from batonpass.core.state.model import ActiveState, Grant, Group, Member, Role, Subtopology, Task, Topology
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import WaitsFor
from batonpass.core.state.records import Record
from batonpass.core.state.replies import Answer, Reply
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.invariants import Transition, check_group, check_repeated, check_step

T = TypeVar("T")
TWICE_UP_TO = 50
TWICE_EVERY = 10
"""Each of a scene's first inputs is decided twice, and of the hundreds that some scenes go on for every tenth."""
START_MS = 1_000_000
"""When every scene begins; far from zero, so that a test may look back."""


def topology(
    partitions: int = 2, *, epoch: int = 1, stateless: int = 0, more: tuple[Subtopology, ...] = ()
) -> Topology:
    """Return subtopology ``0`` with state, ``1`` without where ``stateless`` gives it partitions, and ``more``."""
    parts = [Subtopology("0", partitions)] if partitions else []
    if stateless:
        parts.append(Subtopology("1", stateless, stateful=False))
    return Topology(epoch, (*parts, *more))


class Scene:
    """One group on a stage.

    Attributes:
        log: every record so far; the group is what they add up to.
        last: the decision on the last input.
        whole: whether the whole group is checked after every input, not only what the records name.
    """

    def __init__(self, name: str = "g", *, policy: Policy | None = None, whole: bool = True) -> None:
        self.group = Group(GroupId(name))
        self.soft = Soft()
        self.now_ms = START_MS
        self.policy = policy or Policy()
        self.whole = whole
        self.log: list[Record] = []
        self.last: Decision | None = None
        self._seqs: dict[MemberId, int] = {}
        self._inputs = 0

    def do(self, item: Input) -> Reply:
        """Let ``item`` happen now; return what its sender is answered, a refusal included."""
        decision = decide(self.group, self.soft, (item,), self.now_ms, self.policy)
        # Branches are counted where something is decided. To count them in all that checks it takes three times as long
        # and finds no other ones.
        counting = sys.gettrace()
        sys.settrace(None)
        try:
            self._hold_to_laws(item, decision)
        finally:
            sys.settrace(counting)
        return self._answered(decision)

    def _answered(self, decision: Decision) -> Reply:
        """Return the answer. A call, since a tracer that was set anew sees no frame end before it saw one begin."""
        return decision.replies[0]

    def _hold_to_laws(self, item: Input, decision: Decision) -> None:
        """Check a decision by all laws that need no story, and go on from what it led to."""
        before, soft = self.group, self.soft
        self._inputs += 1
        if self._inputs <= TWICE_UP_TO or self._inputs % TWICE_EVERY == 0:
            again = decide(before, soft, (item,), self.now_ms, self.policy)
            assert decision == again
            outcome = (decision.records, decision.replies, decision.wake_at_ms, decision.reasons)
            assert check_repeated(outcome, (again.records, again.replies, again.wake_at_ms, again.reasons)) == []
        assert evolve(before, decision.records) == decision.after
        assert decision.records or decision.after is before
        transition = Transition(before, decision.after, decision.records, soft, decision.soft, self.now_ms, (item,))
        found = check_step(transition)
        assert found == [], f"{found} by {item} at {self.now_ms}: {decision.records}"
        in_vain = done_in_vain(transition)
        assert in_vain == [], f"{in_vain} by {item} at {self.now_ms}: {decision.records}"
        if self.whole and decision.records:
            found = check_group(decision.after)
            assert found == [], f"{found} by {item} at {self.now_ms}: {decision.records}"
        self.log.extend(decision.records)
        self.group, self.soft, self.last = decision.after, decision.soft, decision
        if self.whole and not self.group.config.kafka_streams:
            self._check_wake_up(item)

    def _check_wake_up(self, item: Input) -> None:
        """Whatever is held until an instant is looked at then (``wakeups``)."""
        for held in plan_step(self.view()).held if self.group.members else ():
            lasts = held.reason.waits_for is not WaitsFor.TIME or held.until_ms is not None
            assert lasts, f"{held}: whoever makes this Hold has to say until when"
            if held.until_ms is not None and held.until_ms > self.now_ms:
                assert (self.soft.wake_ms or 2**62) <= held.until_ms, f"{held} has no wake-up, after {item}"

    def ok(self, item: Input, kind: type[T]) -> T:
        """Let ``item`` happen; its answer must be of this kind."""
        reply = self.do(item)
        assert isinstance(reply, kind), reply
        return reply

    def refused(self, item: Input, kind: type[ProtocolError]) -> ProtocolError:
        """Let ``item`` happen; it must be refused with exactly this error."""
        reply = self.do(item)
        assert type(reply) is kind, reply
        return reply

    def declare(self, shape: Topology | None = None, **config: object) -> None:
        """Declare the group; by default without any delay before or between placements."""
        settings = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0} | config
        self.do(GroupDeclaration(self.group.id, shape or topology(), settings))
        assert self.group.declared

    def change(self, shape: Topology | None = None, **config: object) -> Reply:
        """Change topology or config under the present revision."""
        return self.do(GroupDeclaration(self.group.id, shape, config or None, self.group.revision))

    def join(self, name: str, tasks: dict[str, TaskReport] | None = None, **fields: object) -> Answer:
        """Let a member join; it must be let in."""
        found = {TaskId(task): report for task, report in (tasks or {}).items()}
        return self.ok(Join(MemberId(name), tasks=found, **fields), Answer)  # type: ignore[arg-type]

    def beat(
        self,
        name: str,
        tasks: dict[str, TaskReport] | None = None,
        *,
        epoch: int | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> Reply:
        """Let a member heartbeat with its next ``seq``, at its present epoch unless another is given."""
        member_id = MemberId(name)
        self._seqs[member_id] = self._seqs.get(member_id, 0) + 1
        if epoch is None:
            member = self.group.members.get(member_id)
            epoch = member.epoch if member is not None else 1
        found = None if tasks is None else {TaskId(task): report for task, report in tasks.items()}
        return self.do(Heartbeat(member_id, self._seqs[member_id], epoch, found, numbers=numbers or {}))

    def obey(self, *names: str, lag: int = 0) -> None:
        """Let members (default: all) report what their assignments say: actives run, copies are ``lag`` behind."""
        for name in names or sorted(self.group.members):
            assignment = self.member(name).assignment
            self.beat(
                name,
                {
                    task: running() if grant.role is Role.ACTIVE else copy(grant.role, lag)
                    for task, grant in assignment.items()
                },
            )

    def settle(self, rounds: int = 30) -> None:
        """Let all members obey, a second apart, until nothing changes any more."""
        for _ in range(rounds):
            version = self.group.version
            self.tick(1_000)
            for name in sorted(self.group.members):
                if self.member(name).away_until_ms is None:
                    self.obey(name)
            if self.group.version == version:
                return
        raise AssertionError(f"no rest after {rounds} rounds; unsettled: {dict(self.group.unsettled)}")

    def tick(self, after_ms: int = 0) -> Decision:
        """Let time pass, and the group be looked at."""
        self.now_ms += after_ms
        self.do(Tick())
        assert self.last is not None
        return self.last

    def wait(self, ms: int) -> None:
        """Let time pass, with a look whenever one is due, as a coordinator does that is never late."""
        end_ms = self.now_ms + ms
        while True:
            due_ms = self.soft.wake_ms
            self.now_ms = end_ms if due_ms is None else min(end_ms, max(self.now_ms, due_ms))
            self.do(Tick())
            if self.now_ms >= end_ms:
                return

    def member(self, name: str) -> Member:
        """Return a member, which must be there."""
        return self.group.members[MemberId(name)]

    def task(self, name: str) -> Task:
        """Return a task."""
        return self.group.tasks[TaskId(name)]

    def grant(self, member: str, task: str) -> Grant | None:
        """Return what the member may hold of the task."""
        return self.member(member).assignment.get(TaskId(task))

    def owners(self) -> dict[str, str | None]:
        """Return who has each task as active."""
        return {task: self.task(task).owner for task in self.group.table.ids}

    def held(self, name: str, role: Role) -> list[str]:
        """Return the tasks that a member has in a role, in order."""
        return sorted(task for task, grant in self.member(name).assignment.items() if grant.role is role)

    def view(self) -> View:
        """Return what a decision would see now."""
        return View(self.group, self.soft, self.now_ms)

    def of(self, kind: type[T]) -> list[T]:
        """Return the records of one kind in the last decision."""
        assert self.last is not None
        return [record for record in self.last.records if isinstance(record, kind)]


def running(**fields: object) -> TaskReport:
    """Return the report of an active that processes."""
    return replace_report(TaskReport("active", ActiveState.RUNNING), fields)


def restoring(lag: int | None = None, **fields: object) -> TaskReport:
    """Return the report of an active that restores."""
    return replace_report(TaskReport("active", ActiveState.RESTORING, lag), fields)


def failed(detail: str = "broken") -> TaskReport:
    """Return the report of an active that cannot go on."""
    return TaskReport("active", ActiveState.FAILED, detail=detail)


def copy(role: str, lag: int | None = 0, **fields: object) -> TaskReport:
    """Return the report of a standby, a warmup, or (``none``) of state on disk; a lag of None is unknown."""
    return replace_report(TaskReport(str(role), lag=lag), fields)


def replace_report(report: TaskReport, fields: dict[str, object]) -> TaskReport:
    """Return the report with other fields."""
    return report._replace(**fields)  # type: ignore[arg-type]
