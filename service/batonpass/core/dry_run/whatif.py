"""What if two pods were added, or that node drained? A snapshot with the change in place, to plan like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from batonpass.core.dry_run.plan import Plan
from batonpass.core.dry_run.snapshot import Snapshot, SnapshotMember
from batonpass.core.errors import InvalidRequest, TooLarge
from batonpass.core.ids import MemberId
from batonpass.core.policy import parse_config


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Members that might join, all alike."""

    capacity: float = 1.0
    count: int = 1


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change to imagine."""

    join: tuple[Newcomers, ...] = ()
    leave: tuple[MemberId, ...] = ()
    drain: tuple[MemberId, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Balance:
    """The least and the greatest stateful active weight per capacity of any member."""

    least: float
    most: float


def imagine(snapshot: Snapshot, change: WhatIf, *, max_members: int) -> Snapshot:
    """Return the snapshot as it would be; newcomers are called ``join-1``, ``join-2`` and so on, where these are free.

    Raises:
        InvalidRequest: when somebody is to leave or drain who is not a member, or who is named twice.
        InvalidConfig: when the settings are refused.
        TooLarge: when the group would have too many members.
    """
    present = {one.id for one in snapshot.members}
    for name, named in (("leave", change.leave), ("drain", change.drain)):
        # Before the names are looked at: there may be a million of them.
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
    stay = [one for one in snapshot.members if one.id not in leaving]
    size = len(stay) + sum(one.count for one in change.join)
    if size > max_members:
        raise TooLarge(f"the group would have {size} members, the limit is {max_members}")
    members = [replace(one, draining=True) if one.id in draining else one for one in stay]
    members += _newcomers(change.join, present)
    here = {one.id for one in members}
    return replace(
        snapshot,
        members=tuple(members),
        config=parse_config(change.config, snapshot.config),
        tasks=tuple(replace(one, revoking=None) if one.revoking not in here else one for one in snapshot.tasks),
        pins={task: member_id for task, member_id in snapshot.pins.items() if member_id in here},
        target={
            task: (owner if owner in here else None, tuple(one for one in standbys if one in here))
            for task, (owner, standbys) in snapshot.target.items()
        },
    )


def _newcomers(wanted: tuple[Newcomers, ...], taken: set[MemberId]) -> Iterator[SnapshotMember]:
    free = (name for number in count(1) if (name := MemberId(f"join-{number}")) not in taken)
    for one in wanted:
        for _ in range(one.count):
            yield SnapshotMember(next(free), capacity=one.capacity)


def balance_now(snapshot: Snapshot) -> Balance:
    """Return how evenly the stateful actives lie now."""
    return _balance(
        snapshot,
        {
            member.id: [task for task, copy in member.tasks.items() if copy.role == "active"]
            for member in snapshot.members
        },
    )


def balance_then(snapshot: Snapshot, plan: Plan) -> Balance:
    """Return how evenly they would lie once the plan's target is reached; draining members are left out."""
    return _balance(snapshot, {member_id: list(roles["active"]) for member_id, roles in plan.target.items()})


def _balance(snapshot: Snapshot, actives: Mapping[MemberId, list[str]]) -> Balance:
    weights: Mapping[str, float] = {task.id: task.weight for task in snapshot.tasks if task.stateful}
    loads = [
        sum(weights.get(task, 0.0) for task in actives.get(member.id, ())) / member.capacity
        for member in snapshot.members
        if not member.draining
    ]
    return Balance(min(loads, default=0.0), max(loads, default=0.0))
