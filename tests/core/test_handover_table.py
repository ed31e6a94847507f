"""The tables at the top of ``owner``: a case for each row, in their order, and no row without one.

In every case a owns 0_0 and runs it, b is its target, and c has a copy, unless the case says otherwise.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from batonpass.core.handover import owner
from batonpass.core.handover.owner import choose_active
from batonpass.core.handover.view import View
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import (
    ActiveState,
    Drain,
    Failure,
    Grant,
    Group,
    Handover,
    Marks,
    Member,
    Pause,
    PauseScope,
    Pending,
    Revocation,
    Role,
    Subtopology,
    Target,
    Task,
    Topology,
)
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.reasons import Held, Why
from batonpass.core.state.soft import OPEN_TRANSACTION_MS, EndOffset, MeasuredReport, MemberSoft, Soft, TaskReport
from batonpass.core.state.topology import build_table

NOW = 1_000_000
A, B, C = (MemberId(name) for name in "abc")
TASK, OTHER = TaskId("0_0"), TaskId("0_1")
LEAVING = Drain(NOW - 9, None, NOW + 9)
DUE = Drain(NOW - 9, NOW, NOW + 9)
READY, BEHIND, UNKNOWN = 0, 5_000, None


class World(NamedTuple):
    """What is to be decided on: the task and its owner, the copies of the others, and what is wrong with anybody.

    ``own_lag`` is what the owner reports of a task that it does not run; ``silent`` members have reported nothing.
    """

    owner: MemberId | None = A
    state: ActiveState = ActiveState.RUNNING
    copies: Mapping[MemberId, int | None] = {B: READY, C: READY}
    on_disk: Mapping[MemberId, int | None] = {}
    stateful: bool = True
    own_lag: int = BEHIND
    progress_ms: int = NOW
    silent: tuple[MemberId, ...] = ()
    task: Mapping[str, object] = {}
    group: Mapping[str, object] = {}
    a: Mapping[str, object] = {}
    b: Mapping[str, object] = {}
    ends: Mapping[tuple[str, int], EndOffset] = {}
    c: Mapping[str, object] = {}


def choice(world: World) -> owner.Choice:
    """Return who has the task."""
    parts = (Subtopology("0", 2, stateful=world.stateful, changelog_topics=("log",) if world.stateful else ()),)
    owner = {} if world.owner is None else {TASK: Grant(Role.ACTIVE, 1, NOW)}
    fields = {A: world.a, B: world.b, C: world.c}
    members, softs = {}, {}
    for member_id in (A, B, C):
        copy = {TASK: Grant(Role.STANDBY, 1, NOW)} if member_id in world.copies else {}
        assignment = PMap(owner if member_id == world.owner else copy)
        members[member_id] = replace(Member(member_id, NOW, assignment=assignment), **fields[member_id])  # type: ignore[arg-type]
        if member_id == world.owner:
            report = TaskReport("active", world.state, world.own_lag, lost=world.state is ActiveState.LOST)
        else:
            role = "standby" if member_id in world.copies else "none"
            report = TaskReport(role, lag=world.copies.get(member_id, world.on_disk.get(member_id)))
        is_there = member_id in {world.owner, *world.copies, *world.on_disk}
        progress_ms = world.progress_ms
        measured = MeasuredReport(report, NOW, report.lag, progress_ms=progress_ms, closer_ms=progress_ms)
        softs[member_id] = MemberSoft(NOW, full=True, reports={TASK: measured} if is_there else {})
    task = Task(TASK, world.owner, world.state, since_ms=NOW - 60_000, standbys=tuple(world.copies), target=Target(B))
    task = task._replace(**world.task)  # type: ignore[arg-type]
    group = Group(
        GroupId("g"),
        topology=Topology(1, parts),
        config=GroupConfig(acceptable_recovery_lag=100),
        table=build_table(Topology(1, parts)),
        members=PMap(members),
        tasks=PMap({TASK: task, OTHER: Task(OTHER, handover=Handover(next_owner=A))}),
    )
    group = replace(group, **world.group)  # type: ignore[arg-type]
    heard = {member_id: soft for member_id, soft in softs.items() if member_id not in world.silent}
    soft = Soft(members=PMap(heard), end_offsets=PMap(world.ends))
    return choose_active(View(group, soft, NOW), task)


FAILED, LOST, GRANTED, RESTORING = ActiveState.FAILED, ActiveState.LOST, ActiveState.GRANTED, ActiveState.RESTORING
FAILED_ON_B = (Failure(B, NOW - 1),)
PAUSED, PAUSED_BALANCE = (Pause(scope, "", NOW, None) for scope in (PauseScope.ALL, PauseScope.BALANCE))
NO_ANSWER = {"placement_failed": "no answer"}
LONG_AGO = NOW - 3_600_000
LATE = {"joined_ms": NOW - 3_600_000}
MUST_REVOKE = {"revoking": PMap({OTHER: Revocation(1, NOW, active=True)})}
AWAY = {"away_until_ms": NOW + 9}
DOUBTED = {"doubts": PMap({TASK: (("log", 9),)})}
NOT_READY = {B: BEHIND, C: READY}
HELD_UP = {("log", 0): EndOffset(9, NOW, unstable=5, open_since_ms=NOW - OPEN_TRANSACTION_MS)}

OF_AN_OWNER: dict[str, list[tuple[World, MemberId | None, Why | Held]]] = {
    "any, and the topology has dropped the task, or it is parked": [
        (World(task={"id": TaskId("7_0"), "marks": Marks(parked=True)}), None, Why.TASK_DROPPED),
        (World(task={"marks": Marks(parked=True)}, a={"drain": DUE}), None, Held.PARKED),
    ],
    "drains, its deadline is over, and a member that stays may have the task": [
        (World(a={"drain": DUE}), B, Why.DEADLINE),
        (World(a={"drain": DUE}, copies={B: 9_000, C: 5_000}), C, Why.DEADLINE),
        (World(a={"drain": DUE}, copies={C: READY}, c={"drain": LEAVING}), B, Why.DEADLINE),
        (World(a={"drain": DUE}, copies={}, group={"pause": PAUSED, "storm_since_ms": 1}), B, Why.DEADLINE),
        (World(a={"drain": DUE}, stateful=False, copies={}, group={"pause": PAUSED}), B, Why.DEADLINE),
        (World(a={"drain": DUE}, state=LOST, copies={}, group={"storm_since_ms": 1}), B, Why.DEADLINE),
        (World(a={"drain": DUE, "suspected": True}, copies={}), B, Why.DEADLINE),
        (World(a={"drain": DUE}, state=RESTORING, own_lag=READY, copies={}), B, Why.DEADLINE),
        (World(a={"drain": DUE}, state=GRANTED, copies={}, task={"since_ms": NOW}), B, Why.DEADLINE),
        (World(a={"drain": DUE}, state=FAILED, copies={}), B, Why.DEADLINE),
    ],
    "any, and the task has no state": [
        (World(stateful=False, copies={}), B, Why.STATELESS),
        (World(stateful=False, copies={}, state=FAILED, group={"pause": PAUSED_BALANCE}), B, Why.STATELESS),
        (World(stateful=False, copies={}, group={"pause": PAUSED_BALANCE}), A, Held.PAUSED),
        (World(stateful=False, copies={}, b=AWAY), A, Why.STAYS),
        (World(stateful=False, copies={}, b={"drain": DUE}), A, Why.STAYS),
        (World(stateful=False, copies={}, a={"suspected": True}, group={"pause": PAUSED}), B, Why.TAKEOVER),
        (World(stateful=False, copies={}, a={"suspected": True}, b=MUST_REVOKE), B, Why.TAKEOVER),
    ],
    "lost its state": [
        (World(state=LOST, a={"suspected": True}, copies={C: READY}), C, Why.FAILOVER),
        (World(state=LOST, copies={B: 9_000, C: 5_000}), C, Why.FAILOVER),
        (World(state=LOST, copies={}), B, Why.LOST_STATE),
        (World(state=LOST, copies={}, task={"target": Target(A)}), A, Why.STAYS),
        (World(state=LOST, copies={}, b=DOUBTED), A, Why.STAYS),
        (World(state=LOST, copies={}, group={"storm_since_ms": 1}), A, Why.STAYS),
    ],
    "is suspected to be dead": [
        (World(a={"suspected": True}, copies={C: READY}, group={"pause": PAUSED}, ends=HELD_UP), C, Why.TAKEOVER),
        (World(a={"suspected": True}, copies={B: BEHIND}, on_disk={C: READY}), A, Why.STAYS),
    ],
    "has not reported since a start, and the task is to go back to the previous owner": [
        (World(state=GRANTED, silent=(A,), task={"handover": Handover(previous_owner=B)}), A, Why.STAYS),
    ],
    "runs, and the deadline of its drain is over": [
        (World(a={"drain": DUE}, task={"target": Target(A)}, copies={}), A, Held.NO_ELIGIBLE_MEMBER),
        (World(a={"drain": DUE}, task={"target": Target(A)}, copies={}, group=NO_ANSWER), A, Held.PLACEMENT_FAILED),
        (World(a={"drain": DUE}, b={"drain": LEAVING}, c={"drain": LEAVING}), A, Held.NO_ELIGIBLE_MEMBER),
        (World(a={"drain": DUE}, copies={}, b=DOUBTED), A, Held.NO_ELIGIBLE_MEMBER),
    ],
    "runs, is the target, or the target is away, gone or past the deadline of its drain": [
        (World(b={"drain": DUE}), A, Why.STAYS),
        (World(task={"target": Target(A)}), A, Why.STAYS),
        (World(b=AWAY), A, Why.STAYS),
        (World(task={"target": Target()}), A, Why.STAYS),
    ],
    "runs, the target is not ready": [
        (World(copies=NOT_READY, group={"pause": PAUSED}), A, Why.STAYS),
        (World(copies={C: READY}, on_disk={B: READY}), A, Why.STAYS),
    ],
    "runs, the target is ready, and the move is held": [
        (World(group={"pause": PAUSED_BALANCE}), A, Held.PAUSED),
        (World(group={"pause": PAUSED}, a={"drain": LEAVING}), A, Held.PAUSED),
        (World(group={"storm_since_ms": 1}), A, Held.STORM),
        (World(silent=(C,), c=LATE), A, Held.MEMBER_OVERDUE),
        (World(task={"marks": Marks(failures=FAILED_ON_B)}), A, Held.FAILED_THERE),
        (World(a={"drain": LEAVING}, task={"marks": Marks(failures=FAILED_ON_B)}), A, Held.FAILED_THERE),
        (World(ends=HELD_UP, a={"drain": LEAVING}), A, Held.OPEN_TRANSACTION),
        (World(group={"grants_from_ms": NOW + 1}, a={"drain": LEAVING}), A, Held.GRANTS_HELD),
        (World(b=MUST_REVOKE, a={"drain": LEAVING}), A, Held.REVOKE_FIRST),
        (World(group={"unsettled": PMap({OTHER: Pending.MOVING})}, a={"drain": LEAVING}), A, Held.TAKE_OVER_FIRST),
    ],
    "runs, the target is ready": [
        (World(), B, Why.HANDOVER),
        (World(state=GRANTED, silent=(A,)), B, Why.HANDOVER),
        (World(a={"drain": LEAVING}, group={"pause": PAUSED_BALANCE, "storm_since_ms": 1}), B, Why.HANDOVER),
        (World(a={"drain": LEAVING}, silent=(C,), c=LATE), B, Why.HANDOVER),
    ],
    "restores, is ready or will be by its next heartbeat, and makes progress": [
        (World(state=RESTORING, own_lag=READY), A, Why.STAYS),
    ],
    "took the task over, or has not reported it yet, and was granted it less than a heartbeat interval ago": [
        (
            World(
                state=RESTORING,
                own_lag=BEHIND,
                copies={C: READY},
                task={"since_ms": NOW, "handover": Handover(previous_owner=B)},
            ),
            A,
            Why.STAYS,
        ),
        (World(state=GRANTED, task={"since_ms": NOW - 1}), A, Why.STAYS),
    ],
    "restores, and a copy is ready; the previous owner's counts only if the owner is stuck": [
        (
            World(
                state=RESTORING,
                own_lag=BEHIND,
                copies={C: READY},
                progress_ms=LONG_AGO,
                task={"since_ms": LONG_AGO, "handover": Handover(previous_owner=C)},
            ),
            C,
            Why.STUCK,
        ),
        (World(state=RESTORING), B, Why.FAILOVER),
        (World(state=RESTORING, copies={B: BEHIND, C: READY}), C, Why.FAILOVER),
        (World(state=RESTORING, task={"marks": Marks(failures=FAILED_ON_B)}), C, Why.FAILOVER),
        (World(state=RESTORING, own_lag=READY, progress_ms=0, task={"since_ms": 0}), B, Why.STUCK),
        (
            World(
                state=RESTORING,
                task={"since_ms": LONG_AGO, "ready_grant": True, "handover": Handover(previous_owner=B)},
            ),
            B,
            Why.STUCK,
        ),
    ],
    "failed, and another copy is ready": [
        (World(state=FAILED, task={"marks": Marks(failures=FAILED_ON_B)}), C, Why.FAILOVER),
    ],
    "restores or failed": [
        (
            World(state=RESTORING, own_lag=BEHIND, copies={C: READY}, task={"handover": Handover(previous_owner=C)}),
            A,
            Why.STAYS,
        ),
        (World(state=RESTORING, copies={B: BEHIND, C: UNKNOWN}), A, Why.STAYS),
        (World(state=RESTORING, copies={C: READY}, c={"drain": DUE}), A, Why.STAYS),
        (
            World(state=FAILED, copies={B: READY, C: BEHIND}, task={"marks": Marks(failures=FAILED_ON_B)}),
            A,
            Held.FAILED,
        ),
    ],
}
FREE = World(owner=None, state=GRANTED)
NOWHERE = FREE._replace(task={"target": Target()}, group=NO_ANSWER)
TO_C = FREE._replace(task={"handover": Handover(next_owner=C)})
LIMITED = {"max_tasks": 9}
OF_NOBODY: dict[str, list[tuple[World, MemberId | None, Why | Held]]] = {
    "a next owner is chosen and drains, and a ready copy is on a member that stays and did not fail it": [
        (TO_C._replace(c={"drain": LEAVING}), B, Why.FAILOVER),
        (TO_C._replace(c={"drain": DUE}), B, Why.FAILOVER),
        (TO_C._replace(c={"drain": LEAVING}, stateful=False, copies={}), B, Why.STATELESS),
    ],
    "a next owner is chosen, the deadline of its drain is over, and the task is free": [
        (TO_C._replace(copies={B: BEHIND, C: READY}, c={"drain": DUE}), B, Why.DEADLINE),
        (TO_C._replace(copies={C: READY}, c={"drain": DUE}), B, Why.DEADLINE),
    ],
    "a next owner is chosen, and has room": [
        (TO_C._replace(copies={B: BEHIND, C: READY}, c={"drain": LEAVING}), C, Why.HANDOVER_UNDER_WAY),
        (TO_C._replace(c={"drain": DUE}, b={"drain": LEAVING}), C, Why.HANDOVER_UNDER_WAY),
        (
            TO_C._replace(
                task={"handover": Handover(next_owner=C), "marks": Marks(failures=FAILED_ON_B)}, c={"drain": LEAVING}
            ),
            C,
            Why.HANDOVER_UNDER_WAY,
        ),
        (FREE._replace(task={"handover": Handover(next_owner=C)}), C, Why.HANDOVER_UNDER_WAY),
        (FREE._replace(task={"handover": Handover(next_owner=C)}, c={**AWAY}), B, Why.FAILOVER),
    ],
    "the task has no state": [
        (FREE._replace(stateful=False, copies={}, group={"storm_since_ms": 1}), B, Why.STATELESS),
        (FREE._replace(stateful=False, copies={}, b=AWAY), None, Held.REJOIN_GRACE),
    ],
    "a copy is ready, tailed or, once a target is placed, on disk": [
        (FREE._replace(copies={C: READY}, group={"storm_since_ms": 1}), C, Why.FAILOVER),
        (FREE._replace(copies={B: 9, C: READY}, task={"handover": Handover(previous_owner=C)}), B, Why.FAILOVER),
        (FREE._replace(copies={C: READY}, task={"target": Target()}), C, Why.FAILOVER),
        (FREE._replace(copies={}, on_disk={C: READY}), C, Why.FAILOVER),
        (FREE._replace(a={"drain": LEAVING}, copies={A: READY, C: READY}), C, Why.FAILOVER),
    ],
    "a storm is on, or there is no target yet": [
        (FREE._replace(copies={C: BEHIND}, group={"storm_since_ms": 1}), None, Held.STORM),
        (FREE._replace(copies={C: BEHIND}, task={"target": Target()}), None, Held.INITIAL_DELAY),
        (FREE._replace(copies={}, on_disk={C: READY}, task={"target": Target()}), None, Held.INITIAL_DELAY),
    ],
    "the target, or the last owner, is away to restart": [
        (FREE._replace(copies={C: BEHIND}, b=AWAY), None, Held.REJOIN_GRACE),
        (FREE._replace(copies={C: BEHIND}, task={"handover": Handover(away_owner=A)}, a=AWAY), None, Held.REJOIN_GRACE),
    ],
    "a copy is behind": [
        (FREE._replace(copies={B: 9_000, C: 5_000}), C, Why.FAILOVER),
        (FREE._replace(copies={B: 9_000, C: READY}, c={"drain": DUE}), B, Why.FAILOVER),
        (NOWHERE._replace(copies={C: BEHIND}), C, Why.FAILOVER),
    ],
    "the target reports its copy without a lag, and another member may have it": [
        (FREE._replace(copies={B: UNKNOWN}), A, Why.COLD_START),
        (FREE._replace(copies={B: UNKNOWN}, a={"topology_epoch": -1}), C, Why.COLD_START),
    ],
    "a copy of unknown lag may turn out to be better": [
        (FREE._replace(copies={B: UNKNOWN}, a={"drain": LEAVING}, c={"drain": LEAVING}), None, Held.STATE_UNKNOWN),
        (FREE._replace(copies={C: UNKNOWN}, silent=(C,), task={"since_ms": NOW}), None, Held.STATE_UNKNOWN),
    ],
    "the target's state is doubted (``doubts``)": [
        (FREE._replace(copies={}, on_disk={B: UNKNOWN}, b=DOUBTED), A, Why.COLD_START),
        (FREE._replace(copies={B: UNKNOWN}, silent=(B,), task={"since_ms": 0}, b=DOUBTED), A, Why.COLD_START),
        (FREE._replace(copies={}, a=DOUBTED, b=DOUBTED, c={"drain": LEAVING}), None, Held.STATE_UNKNOWN),
    ],
    "no copy is of use": [
        (FREE._replace(copies={}), B, Why.COLD_START),
        (FREE._replace(copies={C: UNKNOWN}), B, Why.COLD_START),
        (FREE._replace(copies={C: READY}, c={"drain": DUE}), B, Why.COLD_START),
    ],
    "no copy is of use, and there is no target because placement failed": [
        (NOWHERE._replace(copies={}), A, Why.COLD_START),
        (NOWHERE._replace(copies={}, a={"topology_epoch": -1}), B, Why.COLD_START),
        (NOWHERE._replace(copies={}, a={"drain": LEAVING}, b=AWAY), C, Why.COLD_START),
        (NOWHERE._replace(copies={B: 9_000}), B, Why.FAILOVER),
        (NOWHERE._replace(stateful=False, copies={}), A, Why.STATELESS),
        (NOWHERE._replace(copies={}, a=LIMITED, b=LIMITED, c={"suspected": True}), None, Held.PLACEMENT_FAILED),
    ],
}
CASES = [(row, *case) for rows in (OF_AN_OWNER, OF_NOBODY) for row, cases in rows.items() for case in cases]


@pytest.mark.parametrize(
    ("row", "world", "active", "code"), CASES, ids=[f"{row}-{n}" for n, (row, *_) in enumerate(CASES)]
)
def test_each_row_is_what_is_decided(row: str, world: World, active: MemberId | None, code: Why | Held) -> None:
    """Most cases fit a later row as well, which would decide otherwise."""
    found = choice(world)
    assert (found.active, found.held or found.why) == (active, code), row


def test_each_row_has_a_case() -> None:
    lines = [line for line in (owner.__doc__ or "").splitlines() if line.startswith("| ")]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in lines]
    heads = ["the present owner", "there is no owner"]
    assert [row for row in rows if row not in heads] == [*OF_AN_OWNER, *OF_NOBODY]
