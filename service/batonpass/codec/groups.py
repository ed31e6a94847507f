"""A whole group to versioned JSON and back, so that a load need not begin with the first record.

The records are the truth, and a snapshot only saves time: a program that cannot read one begins with an older one, or
with the records. So a snapshot is read strictly. It lists the fields with which it was written, because named tuples
are stored without the names of their fields. If these are not the present fields, except for new ones at the end, the
snapshot is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, cast, get_args, get_origin, get_type_hints

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
        written = msgspec.json.decode(payload, type=_Written).fields
        for name, known in FIELDS.items():
            if written.get(name, known) != known[: len(written.get(name, known))]:
                raise UnreadableGroup(f"{name} was written with the fields {', '.join(written[name])}")
        return _group(_decoder.decode(payload).group)  # type: ignore[attr-defined]
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise UnreadableGroup(str(error)) from error


def is_current(version: int, payload: bytes) -> bool:
    """Return whether a stored group that can be decoded has all the fields with which this program writes it."""
    if version != GROUP_VERSION:
        return False
    written = msgspec.json.decode(payload, type=_Written)
    group = msgspec.json.decode(written.group)
    groups = [(_GROUP, group), *((_MEMBER, one) for one in group.get("members", {}).values())]
    return written.fields == FIELDS and all(set(kind.__struct_encode_fields__) <= set(one) for kind, one in groups)


def _by_stored_names(value: Group | Member) -> dict[str, object]:
    names = STORED_FIELDS[type(value)]
    kept = [field.name for field in fields(value) if field.name != DERIVED]
    return {names.get(name, name): getattr(value, name) for name in kept}


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


def _mirror(kind: type[Any], mirrored: Mapping[Any, Any]) -> type[msgspec.Struct]:
    """Return a type with the fields of a dataclass, and plain mappings, so that msgspec decodes it in one go.

    A field that was not written is ``UNSET``.
    """
    hints = get_type_hints(kind)
    parts: list[tuple[str, Any, Any]] = []
    for field in fields(kind):
        hint = hints[field.name]
        if get_origin(hint) is PMap:
            key, value = get_args(hint)
            hint = dict[key, mirrored.get(value, value)]  # type: ignore[misc, valid-type]
        parts.append((field.name, hint | msgspec.UnsetType, msgspec.UNSET))
    kept = [part for part in parts if part[0] != DERIVED]
    return msgspec.defstruct(kind.__name__, kept, rename=STORED_FIELDS[kind])


_MEMBER: Final = _mirror(Member, {})
_GROUP: Final = _mirror(Group, {Member: _MEMBER, Task: StoredTask})
_WHOLE: Final = msgspec.defstruct("Whole", [("group", _GROUP)])


def _fields_of(mirror: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(mirror, name) for name in mirror.__struct_fields__}
    return {name: said for name, said in fields.items() if said is not msgspec.UNSET}


def _member(mirror: msgspec.Struct) -> Member:
    fields, make = _fields_of(mirror), cast("Callable[..., Member]", Member)
    return make(**{name: PMap(said) if name in _MEMBER_MAPS else said for name, said in fields.items()})


def _group(mirror: msgspec.Struct) -> Group:
    fields, make = _fields_of(mirror), cast("Callable[..., Group]", Group)
    fields["members"] = {name: _member(one) for name, one in fields.get("members", {}).items()}
    known: dict[tuple[Any, ...], Any] = {NO_HANDOVER: NO_HANDOVER, UNMARKED: UNMARKED}
    fields["tasks"] = {name: _task(one, known) for name, one in fields.get("tasks", {}).items()}
    whole = make(**{name: PMap(said) if name in _GROUP_MAPS else said for name, said in fields.items()})
    return without_ended(replace(whole, table=table_of(whole)))


def _maps(kind: type[Any]) -> frozenset[str]:
    return frozenset(name for name, hint in get_type_hints(kind).items() if get_origin(hint) is PMap)


_MEMBER_MAPS: Final = _maps(Member)
_GROUP_MAPS: Final = _maps(Group)


class _Written(msgspec.Struct):
    fields: dict[str, tuple[str, ...]]
    group: msgspec.Raw = msgspec.Raw(b"{}")


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)
_decoder: Final = msgspec.json.Decoder(_WHOLE)
