"""The clock has gone back: a group's instants move back with it, so that nothing waits for longer than before.

Everybody judges instants by one clock, the database's. If another server with a clock behind takes over, instants from
before lie ahead: the end of a dead member's lease, the return of one that restarts, a deadline. Without this, each
would be waited for until that clock has caught up.
"""

from dataclasses import fields, is_dataclass, replace
from typing import Final, TypeVar, cast

from batonpass.core.state import model as m
from batonpass.core.state.pmap import PMap

T = TypeVar("T")

APART_MS: Final = 2_000
"""By how much the readings of one clock by two coordinators may differ. A group that is ahead by less is left alone."""

DURATIONS: Final = frozenset({"longest_session_ms", "ran_ms"})
"""The fields whose names end in ``_ms`` and that are no instants. Of an instant, None and 0 say that there is none."""
_ONE_BY_ONE: Final = frozenset({"members", "tasks", "table", "config", "topology"})
"""The fields of a group that are not moved with it: its members and tasks are moved one by one."""


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
    # When a hold on grants began is not kept, but none is for longer than this (``recovery``).
    at.append(group.grants_from_ms - 2 * group.longest_session_ms)
    ahead = max(at) - now_ms
    return ahead if ahead > APART_MS else 0


def moved_back(value: T, by_ms: int) -> T:
    """Return a part of a group, or a collection of such parts, with each of its instants earlier by ``by_ms``."""
    if isinstance(value, PMap):
        return cast("T", value.updated({key: moved_back(one, by_ms) for key, one in value.items()}))
    if type(value) is tuple:
        return cast("T", tuple([moved_back(one, by_ms) for one in cast("tuple[object, ...]", value)]))
    names = [one.name for one in fields(value)] if is_dataclass(value) else getattr(value, "_fields", ())
    changes: dict[str, object] = {}
    for name in names:
        part = getattr(value, name)
        if name.endswith("_ms"):
            changes[name] = part - by_ms if part and name not in DURATIONS else part
        elif name not in _ONE_BY_ONE and (moved := moved_back(part, by_ms)) != part:
            changes[name] = moved
    if not changes:
        return value
    return value._replace(**changes) if isinstance(value, tuple) else replace(value, **changes)  # type: ignore[attr-defined,type-var]
