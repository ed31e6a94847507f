"""What-ifs: a snapshot after an imagined change (members join, leave or drain), which can be planned like any other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from batonpass.core.state.errors import InvalidRequest, TooLarge
from batonpass.core.state.ids import MemberId
from batonpass.core.state.policy import parse_config
from batonpass.dry_run.plan import Plan
from batonpass.dry_run.snapshot import Snapshot, SnapshotMember


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Members that might join, all with the same capacity."""

    capacity: float = 1.0
    count: int = 1


@dataclass(frozen=True, slots=True)
class WhatIf:
    """An imagined change."""

    join: tuple[Newcomers, ...] = ()
    leave: tuple[MemberId, ...] = ()
    drain: tuple[MemberId, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Balance:
    """The lowest and the highest stateful active weight per capacity of any member."""

    least: float
    most: float


def imagine(snapshot: Snapshot, change: WhatIf, *, max_members: int) -> Snapshot:
    """Return the snapshot after the change. Newcomers are called ``join-1``, ``join-2`` and so on, if these are free.

    Raises:
        InvalidRequest: an id that should leave or drain is not a member, or is named twice.
        InvalidConfig: the settings are refused.
        TooLarge: the group would have too many members.
    """
    present = {member.id for member in snapshot.members}
    for name, named in (("leave", change.leave), ("drain", change.drain)):
        # This comes before the names are compared: there may be a million of them.
        if len(named) > len(present):
            reason = f"names {len(named)} members, the group has {len(present)}; name each of them once"
            raise InvalidRequest(f"{name}: {reason}", errors=[(name, reason)])
        if len(set(named)) < len(named):
            reason = "names a member twice; name each of them once"
            raise InvalidRequest(f"{name}: {reason}", errors=[(name, reason)])
    faults = [
        (f"{name}[{number}]", f"{member_id} is not a member")
        for name, wanted in (("leave", change.leave), ("drain", change.drain))
        for number, member_id in enumerate(wanted)
        if member_id not in present
    ]
    if faults:
        raise InvalidRequest("; ".join(f"{path}: {reason}" for path, reason in faults), errors=faults)
    leaving, draining = set(change.leave), set(change.drain)
    stay = [member for member in snapshot.members if member.id not in leaving]
    size = len(stay) + sum(newcomers.count for newcomers in change.join)
    if size > max_members:
        raise TooLarge(f"the group would have {size} members, the limit is {max_members}")
    members = [replace(member, draining=True) if member.id in draining else member for member in stay]
    members += _newcomers(change.join, present)
    here = {member.id for member in members}
    return replace(
        snapshot,
        members=tuple(members),
        config=parse_config(change.config, snapshot.config),
        tasks=tuple(replace(task, revoking=None) if task.revoking not in here else task for task in snapshot.tasks),
        pins={task: member_id for task, member_id in snapshot.pins.items() if member_id in here},
        target={
            task: (owner if owner in here else None, tuple(standby for standby in standbys if standby in here))
            for task, (owner, standbys) in snapshot.target.items()
        },
    )


def _newcomers(wanted: tuple[Newcomers, ...], taken: set[MemberId]) -> Iterator[SnapshotMember]:
    free = (name for number in count(1) if (name := MemberId(f"join-{number}")) not in taken)
    for newcomers in wanted:
        for _ in range(newcomers.count):
            yield SnapshotMember(next(free), capacity=newcomers.capacity)


def balance_now(snapshot: Snapshot) -> Balance:
    """Return how even the stateful actives are now."""
    return _balance(
        snapshot,
        {
            member.id: [task for task, copy in member.tasks.items() if copy.role == "active"]
            for member in snapshot.members
        },
    )


def balance_then(snapshot: Snapshot, plan: Plan) -> Balance:
    """Return how even the stateful actives would be at the plan's target. Draining members are left out."""
    return _balance(snapshot, {member_id: list(roles["active"]) for member_id, roles in plan.target.items()})


def _balance(snapshot: Snapshot, actives: Mapping[MemberId, list[str]]) -> Balance:
    weights: Mapping[str, float] = {task.id: task.weight for task in snapshot.tasks if task.stateful}
    loads = [
        sum(weights.get(task, 0.0) for task in actives.get(member.id, ())) / member.capacity
        for member in snapshot.members
        if not member.draining
    ]
    return Balance(min(loads, default=0.0), max(loads, default=0.0))
