"""A whole group to versioned JSON and back, so that a load need not begin with the first record.

The records are the truth, and a snapshot only saves time: a program that cannot read one begins with an older one, or
with the records. So a snapshot is read strictly. It lists the fields with which it was written, because named tuples
are stored without the names of their fields. If these are not the present fields, except for new ones at the end, the
snapshot is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from batonpass.core.state.evolve import without_ended
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import (
    NO_HANDOVER,
    UNMARKED,
    ActiveState,
    Failure,
    Group,
    Handover,
    Marks,
    Member,
    Stall,
    Stop,
    Target,
    Task,
    Unreleased,
)
from batonpass.core.state.pmap import PMap
from batonpass.core.state.topology import table_of

T = TypeVar("T", Group, Member)

GROUP_VERSION: Final = 2
"""The version in which groups are written."""


def _with_pending(stored: dict[str, Any]) -> dict[str, Any]:
    """Upcast version 1, which has of an unsettled task only whether it is open.

    An open task becomes ``MOVING``. Whether it is queued is found out when it changes (``evolve``).
    """
    marks = stored["group"].get("unsettled", {})
    return stored | {"group": stored["group"] | {"unsettled": {task: int(is_open) for task, is_open in marks.items()}}}


UPCASTS: Final[dict[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {1: _with_pending}
"""By version: how a stored group of that version becomes one of the next."""

STORED_FIELDS: Final[Mapping[type[Any], Mapping[str, str]]] = {
    Group: {"placement_due_ms": "due_ms"},
    Member: {"assignment": "picture"},
}
"""By type: the stored names of fields that have other names here. Stored names never change."""


class StoredTask(NamedTuple):
    """A ``Task`` as it is stored: every field beside the others, in this order, under these names."""

    id: TaskId
    owner: MemberId | None = None
    state: ActiveState = ActiveState.GRANTED
    ready_grant: bool = False
    since_ms: int = 0
    token: int = 0
    standbys: tuple[MemberId, ...] = ()
    warmups: tuple[MemberId, ...] = ()
    claims: tuple[Unreleased, ...] = ()
    heir: MemberId | None = None
    keeper: MemberId | None = None
    target: MemberId | None = None
    target_standbys: tuple[MemberId, ...] = ()
    waiting: str = ""
    final: tuple[tuple[str, int], ...] = ()
    pin: MemberId | None = None
    parked: bool = False
    failures: tuple[Failure, ...] = ()
    stalls: tuple[Stall, ...] = ()
    awaits: MemberId | None = None
    stop: Stop | None = None
    ran_since_ms: int = 0
    well_ms: int = 0


DERIVED: Final = "table"
"""The field that follows from the topology and the loads, and is not stored."""


class UnreadableGroup(Exception):
    """A stored group is damaged, or of a version or with fields that this program does not know."""


def encode_group(group: Group) -> bytes:
    return _encoder.encode({"fields": FIELDS, "group": _by_stored_names(group)})


def decode_group(version: int, payload: bytes) -> Group:
    """Return the group that was stored.

    Raises:
        UnreadableGroup: if the group is damaged, or its version or fields are unknown.
    """
    if not 1 <= version <= GROUP_VERSION:
        raise UnreadableGroup(f"a group of version {version}; this program reads up to {GROUP_VERSION}")
    try:
        if version < GROUP_VERSION:
            stored = msgspec.json.decode(payload)
            for step in range(version, GROUP_VERSION):
                stored = UPCASTS[step](stored)
            payload = msgspec.json.encode(stored)
        written = msgspec.json.decode(payload, type=_Written)
        for name, known in FIELDS.items():
            found = written.fields.get(name, known)
            if found != known[: len(found)]:
                raise UnreadableGroup(f"{name} was written with the fields {', '.join(found)}")
        group = _read(Group, written.group)
        return without_ended(replace(group, table=table_of(group)))
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise UnreadableGroup(str(error)) from error


def is_current(version: int, payload: bytes) -> bool:
    """Return whether a stored group that can be decoded has all the fields with which this program writes it."""
    if version != GROUP_VERSION:
        return False
    written = msgspec.json.decode(payload, type=_Written)
    members = _decoder(dict[str, _Stored]).decode(written.group.get("members", b"{}"))
    groups = [(Group, written.group), *((Member, one) for one in members.values())]
    return written.fields == FIELDS and all(one.keys() >= set(_NAMES[kind].values()) for kind, one in groups)


def _by_stored_names(value: Group | Member) -> dict[str, object]:
    return {stored: getattr(value, name) for name, stored in _NAMES[type(value)].items()}


STORED_TYPES: Final[Mapping[type[Any], str]] = {Unreleased: "Claim", StoredTask: "Task"}
"""By type: its stored name, if it has another one here."""


def _stored(value: object) -> object:
    if isinstance(value, Member):
        return _by_stored_names(value)
    return _stored_task(value) if isinstance(value, Task) else value


PARTS: Final[Mapping[type[Any], tuple[str, ...]]] = {
    Target: ("target", "target_standbys", "waiting"),
    Handover: ("claims", "heir", "keeper", "final", "awaits", "stop"),
    Marks: ("pin", "parked", "failures", "stalls"),
}
"""The last fields of a ``Task``, which are values of their own: the stored names of the fields of each, in order."""

_PLACES: Final = {
    stored: f"{kind.__name__.lower()}.{name}"
    for kind, names in PARTS.items()
    for stored, name in zip(names, kind._fields, strict=True)
}
_stored_task: Final = attrgetter(*(_PLACES.get(name, name) for name in StoredTask._fields))


def _picked(names: Iterable[str]) -> Callable[[StoredTask], tuple[Any, ...]]:
    return itemgetter(*map(StoredTask._fields.index, names))


_RUN: Final = _picked(Task._fields[: -len(PARTS)])
_PARTS: Final = tuple((kind, _picked(names)) for kind, names in PARTS.items())


def _task(stored: StoredTask, known: dict[tuple[Any, ...], Any]) -> Task:
    """Return a task that shares its parts with those ``known`` of other tasks, where they are alike."""
    parts = []
    for kind, picked in _PARTS:
        fields = picked(stored)
        part = known.get(fields)
        if part is None:
            part = known[fields] = kind._make(fields)
        parts.append(part)
    return Task._make((*_RUN(stored), *parts))


def _plain(value: object) -> object:
    if isinstance(value, PMap):
        return {key: _stored(one) for key, one in value.items()}
    raise TypeError(f"{type(value).__name__} has no form in a stored group")


def _tuples_within(kind: Any, found: dict[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    """Return the fields of every named tuple within a type. In JSON only their order tells the fields apart."""
    kind = StoredTask if kind is Task else kind
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        found[STORED_TYPES.get(kind, kind.__name__)] = kind._fields
    if isinstance(kind, type) and (hasattr(kind, "_fields") or is_dataclass(kind)):
        for part in get_type_hints(kind).values():
            if part is not kind:
                _tuples_within(part, found)
    for part in get_args(kind):
        _tuples_within(part, found)
    return found


FIELDS: Final[Mapping[str, tuple[str, ...]]] = dict(sorted(_tuples_within(Group, {}).items()))
"""The fields of the named tuples in a group, by the names of their types, all as they are stored."""


_Stored = dict[str, msgspec.Raw]
"""The fields of a group or a member under their stored names, none of them read yet."""


class _Written(msgspec.Struct):
    fields: dict[str, tuple[str, ...]]
    group: _Stored = {}


_NAMES: Final[Mapping[type[Any], Mapping[str, str]]] = {
    kind: {field.name: names.get(field.name, field.name) for field in fields(kind) if field.name != DERIVED}
    for kind, names in STORED_FIELDS.items()
}
"""The stored name of each field that is stored."""

_HINTS: Final = {kind: get_type_hints(kind) for kind in STORED_FIELDS}
_AS_STORED: Final[Mapping[Any, Any]] = {Member: _Stored, Task: StoredTask}
_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)
_decoder: Final = cache(msgspec.json.Decoder)


def _read(kind: type[T], stored: _Stored) -> T:
    """Return a group or a member from its stored fields; one that was not written has its default."""
    known = {name: stored[written] for name, written in _NAMES[kind].items() if written in stored}
    return kind(**{name: _value(_HINTS[kind][name], written) for name, written in known.items()})


def _value(wanted: Any, stored: msgspec.Raw) -> Any:
    if get_origin(wanted) is not PMap:
        return _decoder(wanted).decode(stored)
    key, kind = get_args(wanted)
    found = _decoder(dict[key, _AS_STORED.get(kind, kind)]).decode(stored)  # type: ignore[misc, valid-type]
    if kind is Member:
        return PMap({name: _read(Member, one) for name, one in found.items()})
    if kind is Task:
        parts: dict[tuple[Any, ...], Any] = {NO_HANDOVER: NO_HANDOVER, UNMARKED: UNMARKED}
        return PMap({name: _task(one, parts) for name, one in found.items()})
    return PMap(found)
