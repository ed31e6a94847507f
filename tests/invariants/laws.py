"""A small group in full motion, and decisions about it to hold against the laws.

m1 runs 0_0 and 1_0, m2 stands by for 0_0 and is caught up, m3 is empty, m4 drains and owns nothing. 0_0 and 0_1 have
state, 1_0 has none; nobody has 0_1.
"""

from collections.abc import Iterable
from dataclasses import replace

from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import (
    ActiveState,
    Grant,
    Group,
    Member,
    OnLeaseLost,
    Role,
    Subtopology,
    Target,
    Task,
    Topology,
)
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.soft import EndOffset, MeasuredReport, MemberSoft, Soft, TaskReport
from batonpass.invariants import Transition, Violation, check_step

NOW = 1_000_000
SESSION = 10_000
A, B, C = TaskId("0_0"), TaskId("0_1"), TaskId("1_0")
M1, M2, M3, M4 = (MemberId(name) for name in ("m1", "m2", "m3", "m4"))

TOPOLOGY = Topology(
    1,
    (
        Subtopology("0", 2, changelog_topics=("store",), epoch=1),
        Subtopology("1", 1, stateful=False, epoch=1),
    ),
)
CONFIG = GroupConfig(
    session_timeout_ms=SESSION,
    acceptable_recovery_lag=10,
    num_standby_replicas=1,
    max_warmup_replicas=1,
    max_warmups_per_member=1,
    rebalance_timeout_ms=5_000,
)


def active(epoch: int, token: int) -> Grant:
    """Return the entry of a task that is to be run."""
    return Grant(Role.ACTIVE, epoch, NOW, token)


def standby(epoch: int) -> Grant:
    """Return the entry of a standby."""
    return Grant(Role.STANDBY, epoch, NOW)


def warmup(epoch: int) -> Grant:
    """Return the entry of a warmup."""
    return Grant(Role.WARMUP, epoch, NOW)


def member(name: MemberId, **fields: object) -> Member:
    """Return the profile of a member that joins."""
    return replace(Member(name, NOW, epoch=1), **fields)  # type: ignore[arg-type]


def group(*more: r.Record) -> Group:
    """Return the small group, with whatever else was recorded."""
    fenced = {"on_lease_lost": OnLeaseLost.CONTINUE}
    records: tuple[r.Record, ...] = (
        r.GroupDeclared(TOPOLOGY, CONFIG, NOW),
        r.MemberJoined(member(M1, instance_id=InstanceId("pod-1"), **fenced)),
        r.MemberJoined(member(M2)),
        r.MemberJoined(member(M3)),
        r.MemberJoined(member(M4)),
        r.DrainStarted(M4, NOW, None, NOW + 60_000),
        r.TargetPlaced(1, 1, NOW, {A: Target(M1, (M2,)), C: Target(M1)}),
        r.AssignmentChanged(M1, 2, NOW, {A: active(2, 1), C: active(2, 1)}),
        r.AssignmentChanged(M2, 2, NOW, {A: standby(2)}),
        r.ActiveReported(A, M1, ActiveState.RUNNING, NOW),
        r.ActiveReported(C, M1, ActiveState.RUNNING, NOW),
        *_and_after(more),
    )
    return evolve(Group(GroupId("g")), records)


def _and_after(records: Iterable[r.Record]) -> tuple[r.Record, ...]:
    """Return the records with what every departure brings: a new target is due."""
    facts = tuple(records)
    is_departure = any(isinstance(record, r.MemberGone) for record in facts)
    return (*facts, r.RebalanceScheduled(NOW, "departure")) if is_departure else facts


def member_soft(at_ms: int = NOW, **tasks: TaskReport) -> MemberSoft:
    """Return what is known of a member that was heard then and said this of its tasks; ``_0_0`` stands for 0_0."""
    reports = {TaskId(name[1:]): MeasuredReport(report, at_ms, report.lag) for name, report in tasks.items()}
    return MemberSoft(at_ms, seq=1, echoed=1, full=True, timeouts=((1, SESSION),), reports=reports)


def soft(**members: MemberSoft) -> Soft:
    """Return soft state in which m1 runs 0_0 and m2 is level with it, unless it says something else of them."""
    known = {
        "m1": member_soft(
            _0_0=TaskReport("active", ActiveState.RUNNING), _1_0=TaskReport("active", ActiveState.RUNNING)
        ),
        "m2": member_soft(_0_0=TaskReport("standby", lag=0)),
        "m3": member_soft(),
        "m4": member_soft(),
    }
    known |= members
    ends = {("store", 0): EndOffset(100, NOW), ("store", 1): EndOffset(100, NOW)}
    by_id = {MemberId(name): one for name, one in known.items()}
    return Soft(started_ms=0, judge_from_ms=SESSION, members=PMap(by_id), end_offsets=PMap(ends))


def step(
    records: Iterable[r.Record],
    *,
    before: Group | None = None,
    item: Input | None = None,
    known: Soft | None = None,
    now_ms: int = NOW,
) -> Transition:
    """Return a decision that records this about the small group."""
    start = before if before is not None else group()
    facts = _and_after(records)
    state = known if known is not None else soft()
    return Transition(start, evolve(start, facts), facts, state, state, now_ms, None if item is None else (item,))


def broken(one: Transition) -> list[str]:
    """Return the laws that a decision breaks, each once."""
    return sorted({violation.law for violation in check_step(one)})


def details(violations: list[Violation]) -> str:
    """Return everything that was found as one text."""
    return "; ".join(violation.detail for violation in violations)


def with_task(one: Group, task: TaskId, **fields: object) -> Group:
    """Return the group with one task planted otherwise, past ``evolve``."""
    changed: Task = one.tasks[task]._replace(**fields)  # type: ignore[arg-type]
    return replace(one, tasks=one.tasks.having(task, changed))


def with_member(one: Group, name: MemberId, **fields: object) -> Group:
    """Return the group with one member planted otherwise, past ``evolve``."""
    changed = replace(one.members[name], **fields)  # type: ignore[arg-type]
    return replace(one, members=one.members.having(name, changed))
