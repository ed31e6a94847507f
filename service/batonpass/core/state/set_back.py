"""The clock has gone back: a group's instants move back with it, so that nothing waits for longer than before.

Everybody judges instants by one clock, the database's. If another server with a clock behind takes over, instants from
before lie ahead: the end of a dead member's lease, the return of one that restarts, a deadline. Without this, each
would be waited for until that clock has caught up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar, cast

from batonpass.core.state import model as m
from batonpass.core.state.pmap import PMap

T = TypeVar("T")

APART_MS: Final = 2_000
"""By how much the readings of one clock by two coordinators may differ. A group that is ahead by less is left alone."""

INSTANTS: Final[Mapping[type, tuple[str, ...]]] = {
    m.Group: (
        *("placement_due_ms", "next_probe_ms", "storm_since_ms", "grants_from_ms"),
        *("recovering_until_ms", "placed_ms", "hot_since_ms"),
    ),
    m.Member: ("joined_ms", "away_until_ms", "place_since_ms"),
    m.Grant: ("since_ms",),
    m.Revocation: ("since_ms",),
    m.Drain: ("since_ms", "deadline_ms", "gives_up_ms"),
    m.KeptOut: ("since_ms", "until_ms"),
    m.GoneMember: ("at_ms", "lease_end_ms", "since_ms"),
    m.Pause: ("since_ms", "expires_ms"),
    m.Loss: ("at_ms",),
    m.LoadMove: ("at_ms",),
    m.Task: ("since_ms", "ran_since_ms", "well_ms"),
    m.Handover: (),
    m.Marks: (),
    m.Unreleased: ("free_at_ms",),
    m.Failure: ("at_ms", "joined_ms"),
    m.Stall: ("until_ms",),
    m.Stop: ("at_ms", "heard_ms"),
    m.HostFaults: ("distrusted_ms",),
    m.Fault: ("at_ms",),
}
"""The fields that are instants. None and 0 say that there is none."""

WITHIN: Final[Mapping[type, tuple[str, ...]]] = {
    m.Group: ("pause", "losses", "gone", "kept_out", "hosts", "load_moves"),
    m.Member: ("assignment", "revoking", "drain"),
    m.Task: ("handover", "marks"),
    m.Handover: ("unreleased", "stop"),
    m.Marks: ("failures", "stalls"),
    m.HostFaults: ("faults",),
}
"""The fields that have instants in them. A group's members and tasks are moved one by one."""


def ahead_ms(group: m.Group, now_ms: int) -> int:
    """Return by how much the latest fact of a group is ahead of the present; 0 if by no more than clocks may differ.

    That is at most by how much the clock has gone back, and less by the time in which nothing happened before.
    """
    members, gone = group.members.values(), group.gone.values()
    at = [group.placed_ms, group.storm_since_ms or 0, group.pause.since_ms if group.pause else 0]
    at += [max(task.since_ms, task.ran_since_ms) for task in group.tasks.values()]
    at += [max(member.joined_ms, member.drain.since_ms if member.drain else 0) for member in members]
    at += [revocation.since_ms for member in members for revocation in member.revoking.values()]
    at += [one.at_ms for one in gone] + [one.at_ms for one in group.losses]
    at += [one.since_ms for one in group.kept_out.values()]
    ahead = max(at) - now_ms
    return ahead if ahead > APART_MS else 0


def moved_back(value: T, by_ms: int) -> T:
    """Return a part of a group, or a collection of such parts, with each of its instants earlier by ``by_ms``."""
    if isinstance(value, PMap):
        return cast("T", value.updated({key: moved_back(one, by_ms) for key, one in value.items()}))
    kind = type(value)
    if kind is tuple:
        return cast("T", tuple([moved_back(one, by_ms) for one in cast("tuple[object, ...]", value)]))
    if kind not in INSTANTS:
        return value
    fields = {name: moved_back(getattr(value, name), by_ms) for name in WITHIN.get(kind, ())}
    at = {name: getattr(value, name) for name in INSTANTS[kind]}
    fields |= {name: instant - by_ms for name, instant in at.items() if instant}
    return value._replace(**fields) if isinstance(value, tuple) else replace(value, **fields)  # type: ignore[attr-defined,type-var]
