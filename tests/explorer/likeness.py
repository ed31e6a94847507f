"""When two worlds are alike: they differ only in counters that grow, and in moments within one unit of time.

Instants count as units before or after now, and those farther away than any timeout as equally far. The ``seq`` of a
member counts from its last heartbeat. Whatever else a world holds is compared as it is, but for what ``LEFT_OUT``
names.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from tests.explorer.world import UNIT_MS, Message, World

from batonpass.core.state.model import Member, Task
from batonpass.core.state.soft import MemberSoft, Soft
from batonpass.worker.protocol import MemberProtocol, MemberSettings

FAR = 6
"""Units: more than the longest timeout of a scenario."""

LONG_AGO = -8
"""Heartbeats: more than can be under way at once."""

LEFT_OUT = frozenset(
    {
        # Only grow, and are compared by nothing but their equality with the log's own, which is looked at by itself.
        "version", "generation", "revision",
        # Stay the same throughout a scenario.
        "topology", "config", "table", "settings", "_settings", "jitter_seed", "_new_member_id", "name", "timeout_ms",
        "wait_ms", "session_timeout_ms", "heartbeat_interval_ms", "longest_session_ms", "triggers",
        "retry_after_ms", "stop_early_ms",
        # How fast a copy was: sets when the next look is due, and no rule here waits for a look.
        "rate",
        # Only for people.
        "detail", "title", "_shown",
    }
)  # fmt: skip
SEQS = frozenset(
    {"seq", "since_seq", "lost_since_seq", "listed_seq", "full_after_seq", "_answered_seq", "_barred_seq", "barred"}
)
TRIES = frozenset({"failures", "attempt", "_short_runs"})
"""How often something was tried: beyond the third time, it decides only how long the next try waits, moments."""

KEPT = frozenset({Task, Member, MemberSoft, Message, MemberProtocol})
"""What worlds share, and is never changed once a world is whole: their keys are found once."""

Known = dict[tuple[int, int, int], tuple[int, object]]
"""Keys that were found, each with its value, so that no other value gets its id meanwhile."""


class Likeness:
    """Finds the keys of worlds. ``known`` may be cleared at any time."""

    def __init__(self) -> None:
        self.known: Known = {}
        self._now_unit = 0
        # What the seqs count from, for each member, and for the member that is being read.
        self._seqs: dict[str, int] = {}
        self._seq_from = 0

    def key(self, world: World) -> int:
        """Return a number that two worlds share if they are alike, but for what may still go wrong in them."""
        self._now_unit = world.now_ms // UNIT_MS
        self._seqs = {member: soft.seq for one in world.coordinators for member, soft in one.soft.members.items()}
        for worker in world.workers.values():
            if worker.machine is not None and worker.machine.member_id:
                self._seqs[worker.machine.member_id] = worker.machine.seq
        coordinators = tuple([(self._of(one), one.group is world.store) for one in world.coordinators])
        wire = tuple(sorted([self._of(message) for message in world.wire]))
        return hash((coordinators, tuple([self._of(worker) for worker in world.workers.values()]), wire))

    def _of(self, value: Any) -> Any:
        """Return the key of a value, by its type."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is Message:
            self._seq_from = self._seqs.get(value.request.member_id, 0)
        elif kind is MemberProtocol:
            self._seq_from = value.seq
        if kind in KEPT:
            return self._kept(value)
        return self._anew(value)

    def _kept(self, value: Any) -> int:
        place = (id(value), self._now_unit, self._seq_from)
        found = self.known.get(place)
        if found is None:
            found = self.known[place] = (hash(self._anew(value)), value)
        return found[0]

    def _anew(self, value: Any) -> Any:
        kind = type(value)
        parts = PARTS.get(kind)
        if parts is None:
            parts = PARTS[kind] = _parts_of(kind)
        return parts(self, value)


Parts = Callable[[Likeness, Any], Any]
PLAIN = {type(None), str, int, bool, float}
UNLIKE = {"members", "restless"}
"""Fields of soft state: one that is read otherwise, and one that says only where to look first."""
PARTS: dict[type, Parts] = {}
FIELDS: dict[str, Parts] = {}


def _soft(like: Likeness, soft: Soft) -> Any:
    members = []
    for member, known in sorted(soft.members.items()):
        like._seq_from = like._seqs[member]
        members.append((member, like._of(known)))
    return tuple(members), tuple(
        [_field(name)(like, each) for name, each in zip(soft._fields, soft, strict=True) if name not in UNLIKE]
    )


def _parts_of(kind: type) -> Parts:
    if kind is Soft:
        return _soft
    if issubclass(kind, Enum):
        return lambda _like, value: value
    if issubclass(kind, Mapping):
        return lambda like, value: tuple(sorted([(name, _field(name)(like, each)) for name, each in value.items()]))
    if kind in (list, tuple):
        return lambda like, value: tuple([like._of(each) for each in value])
    if kind in (set, frozenset):
        return lambda like, value: frozenset([like._of(each) for each in value])
    names = [name for name in _names(kind) if name not in LEFT_OUT]
    readers = [(name, _field(name)) for name in names]
    return lambda like, value: tuple([read(like, getattr(value, name)) for name, read in readers])


def _names(kind: type) -> Iterator[str]:
    if kind is MemberProtocol:
        yield from sorted(MemberProtocol(MemberSettings(), str).__dict__)
    elif hasattr(kind, "_fields"):
        yield from kind._fields
    elif is_dataclass(kind):
        yield from (each.name for each in fields(kind))
    else:
        raise TypeError(f"it is not known when two values of {kind} are alike")


def _field(name: str) -> Parts:
    """Return what reads a field, or an entry of a mapping, of this name."""
    found = FIELDS.get(name)
    if found is None:
        found = FIELDS[name] = (
            (lambda _like, _value: None)
            if name in LEFT_OUT
            else _seq
            if name in SEQS
            else _tries
            if name in TRIES
            else _instant
            if name.endswith("_ms")
            else Likeness._of
        )
    return found


def _instant(like: Likeness, value: Any) -> Any:
    return value if value is None else max(-FAR, min(FAR, value // UNIT_MS - like._now_unit))


def _seq(like: Likeness, value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted([(name, _seq(like, each)) for name, each in value.items()]))
    if value is None or value <= 0:
        # What is no heartbeat's, or was before the first.
        return value
    return max(LONG_AGO, value - like._seq_from) + LONG_AGO


def _tries(like: Likeness, value: Any) -> Any:
    return min(value, 3) if isinstance(value, int) else like._of(value)
