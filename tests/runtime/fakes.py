"""A clock that is set, a log that can be held and broken, and a core small enough to see the runtime through it."""

# ruff: noqa: ARG002 - a stand-in has the parameters of what it stands in for

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tests.contracts.memory_store import MemoryLog

from batonpass.core.decide import Decision
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import Heartbeat, Input, PauseRequest, ProbeRequest
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import AssignmentChanged, ProbeScheduled, Record
from batonpass.core.state.replies import Answer, Done
from batonpass.core.state.soft import MemberSoft, Soft
from batonpass.invariants import Transition, Violation
from batonpass.runtime.ports import Commit, Loaded, NotOwner, Observer, Ownership, Ports, StoreUnavailable

GROUP = GroupId("orders")
M1, M2 = MemberId("m1"), MemberId("m2")


class SetClock:
    """A clock that shows what it was set to."""

    def __init__(self, now_ms: int = 1_000) -> None:
        self.at_ms = now_ms
        self.moved_ms: int | None = None
        self.ran_until_ms = 0

    def now_ms(self) -> int:
        """Return what it was set to."""
        return self.at_ms


class SetOwnership(Ownership):
    """An ownership that is what the test sets: ``lost`` groups are not this coordinator's, and fall to ``url``."""

    def __init__(self) -> None:
        self.lost: set[GroupId] = set()
        self.url: str | None = None

    def holds(self, group_id: GroupId) -> bool:
        """Whether the test has not taken the group away."""
        return group_id not in self.lost

    def owner_url(self, group_id: GroupId) -> str | None:
        """Return where the test says that a lost group went."""
        return self.url if group_id in self.lost else None

    def to_forget(self) -> Sequence[GroupId]:
        """Return the groups that went somewhere."""
        return sorted(self.lost) if self.url else ()

    def forgotten(self, group_id: GroupId) -> None:
        """Take note of nothing."""


class BreakableLog(MemoryLog):
    """A log in memory whose appends can be held back, refused, or carried out without the caller being told."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.refuse = self.lose_reply = self.refuse_reads = False
        self.appends = 0
        self.owner: str | None = None
        self.empty: set[GroupId] = set()

    async def group_ids(self) -> list[GroupId]:
        """Return every group that holds records, and those of which the test says that they exist without any."""
        return sorted({*await super().group_ids(), *self.empty})

    async def knows(self, group_id: GroupId) -> bool:
        """Whether it is one of these."""
        return group_id in self.empty or await super().knows(group_id)

    async def take_over(self, group_id: GroupId) -> int:
        """Take the group over, unless the test says that another one owns it."""
        if self.owner is not None:
            raise NotOwner(f"{self.owner} owns the group")
        return await super().take_over(group_id)

    async def append(self, commit: Commit) -> None:
        """Append, as far as the test lets it."""
        self.appends += 1
        await self.open.wait()
        if self.refuse:
            raise StoreUnavailable("the store is away")
        await super().append(commit)
        if self.lose_reply:
            self.lose_reply = False
            raise StoreUnavailable("the connection broke")

    async def read(self, group_id: GroupId, *, after_version: int | None = None) -> Loaded:
        """Read, as far as the test lets it."""
        if self.refuse_reads:
            raise StoreUnavailable("the store is away")
        return await super().read(group_id, after_version=after_version)

    def forget(self, group_id: GroupId, count: int) -> None:
        """Lose the last records of a group."""
        del self._stored[group_id][-count:]


@dataclass
class Seen(Observer):
    """What an observer was called with, and what the core was asked, in order."""

    asked: list[Input] = field(default_factory=list)
    batches: list[tuple[Input, ...]] = field(default_factory=list)
    effects: list[Input] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    broken: list[Violation] = field(default_factory=list)
    defects: list[Exception] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)

    def decided(self, inputs: Sequence[Input], decision: Decision, decide_ms: float) -> None:
        """Note what took effect."""
        assert decide_ms >= 0
        self.effects += inputs

    def store_failed(self, group_id: GroupId, reason: str) -> None:
        """Note a failure of the store."""
        self.failures.append(reason)

    def law_broken(self, group_id: GroupId, item: Input, violations: Sequence[Violation]) -> None:
        """Note a broken law."""
        self.broken += violations

    def defect(self, group_id: GroupId, item: Input, error: Exception) -> None:
        """Note a defect."""
        self.defects.append(error)

    def stalled(self, gap_ms: float) -> None:
        """Note a stall."""
        self.stalls.append(gap_ms)


def fold(group: Group, records: Sequence[Record]) -> Group:
    """Count the records, and keep when the next look is due."""
    for record in records:
        group = replace(group, version=group.version + 1, declared=True)
        if isinstance(record, ProbeScheduled):
            group = replace(group, next_probe_ms=record.at_ms)
    return group


class SmallCore:
    """Decides as simply as can be.

    A probe request writes when it came, a pause a new assignment of the member that its reason names; a heartbeat is
    heard and writes nothing; everything else does nothing. ``wake_at_ms`` is what every decision answers.
    """

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.wake_at_ms: int | None = None
        self.raises: Exception | None = None
        self.raises_for: Input | None = None
        self.assignments: dict[MemberId, int] = {}
        self.polled: list[MemberId] = []

    def decide(self, group: Group, soft: Soft, inputs: tuple[Input, ...], now_ms: int, policy: Policy) -> Decision:
        """Decide on inputs."""
        self.seen.batches.append(inputs)
        self.seen.asked += inputs
        if self.raises is not None and (self.raises_for is None or self.raises_for in inputs):
            error = self.raises
            if self.raises_for is None:
                self.raises = None
            raise error
        records: list[Record] = []
        for item in inputs:
            match item:
                case ProbeRequest():
                    records.append(ProbeScheduled(now_ms))
                case PauseRequest(reason=member):
                    self.assignments[MemberId(member)] = self.assignments.get(MemberId(member), 0) + 1
                    records.append(AssignmentChanged(MemberId(member), self.assignments[MemberId(member)], now_ms))
                case Heartbeat():
                    soft = soft._replace(members=soft.members.having(item.member_id, MemberSoft(now_ms, item.seq)))
                case _:
                    pass
        replies = tuple(Done() for _ in inputs)
        return Decision(tuple(records), fold(group, records), soft, replies, self.wake_at_ms, ())

    def poll(self, group: Group, soft: Soft, member_id: MemberId, after: int) -> Answer | ProtocolError | None:
        """Answer when the member's assignment is another than ``after``."""
        self.polled.append(member_id)
        epoch = self.assignments.get(member_id, 0)
        if epoch == after:
            return None
        return Answer(
            member_id=member_id,
            seq=0,
            member_epoch=epoch,
            generation=0,
            heartbeat_interval_ms=3_000,
            session_timeout_ms=45_000,
            acceptable_recovery_lag=0,
            acceptable_catchup_ms=None,
            report=None,
            assignment={},
        )


@dataclass
class World:
    """Ports with everything that a test wants to get at."""

    clock: SetClock
    log: BreakableLog
    seen: Seen
    core: SmallCore
    ports: Ports
    stalls: list[int]
    ownership: SetOwnership


def make_world(check: Callable[[Transition], Sequence[Violation]] = lambda _step: ()) -> World:
    """Return a fresh world whose laws are those of ``check``."""
    ownership = SetOwnership()
    clock, log, seen, stalls = SetClock(), BreakableLog(), Seen(), [0]
    log.empty = {GROUP}
    core = SmallCore(seen)
    ports = Ports(
        log=log,
        archive=log,
        ownership=ownership,
        clock=clock,
        observer=seen,
        decide=core.decide,
        evolve=fold,
        poll=core.poll,
        check_step=check,
        stalls=lambda: stalls[0],
        policy=Policy(),
    )
    return World(clock, log, seen, core, ports, stalls, ownership)
