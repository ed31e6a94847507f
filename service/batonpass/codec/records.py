"""Records to versioned JSON and back, for the record log and for everything that reads it later.

A stored record is its kind, the version of its payload, and the payload. What was written once is read for ever: a
change of a record's fields gets a new version and an entry in ``UPCASTS`` that turns the old payload into the new one.
A field that is added at the end with a default needs neither.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, cast, get_args

import msgspec

from batonpass.core.state import records as r
from batonpass.core.state.pmap import PMap
from batonpass.core.state.records import Record


class StoredRecord(NamedTuple):
    """One record as a log keeps it. ``payload`` is a JSON object in UTF-8."""

    kind: str
    version: int
    payload: bytes


class UnreadableRecord(Exception):
    """A stored record cannot be read: its kind or version is unknown to this program, or its payload is damaged.

    A group with such a record must not be loaded: state that leaves out a fact would break laws.
    """


class UnwritableRecord(Exception):
    """A record holds a value that JSON cannot carry back unchanged."""


RECORD_TYPES: Final[Mapping[str, type[Record]]] = {
    "group-declared": r.GroupDeclared,
    "topology-changed": r.TopologyChanged,
    "tasks-ended": r.TasksEnded,
    "config-changed": r.ConfigChanged,
    "group-deleted": r.GroupDeleted,
    "member-joined": r.MemberJoined,
    "member-gone": r.MemberGone,
    "member-away": r.MemberAway,
    "member-changed": r.MemberChanged,
    "place-inherited": r.PlaceInherited,
    "drain-started": r.DrainStarted,
    "drain-cancelled": r.DrainCancelled,
    "instance-kept-out": r.InstanceKeptOut,
    "instance-let-in": r.InstanceLetIn,
    "member-suspected": r.MemberSuspected,
    "suspicion-cleared": r.SuspicionCleared,
    "member-trusted": r.MemberTrusted,
    "rebalance-scheduled": r.RebalanceScheduled,
    "target-placed": r.TargetPlaced,
    "picture-changed": r.AssignmentChanged,
    "task-released": r.TaskReleased,
    "claims-waived": r.ReleaseWaived,
    "heir-chosen": r.NextOwnerChosen,
    "active-reported": r.ActiveReported,
    "warmup-stalled": r.WarmupStalled,
    "state-doubted": r.StateDoubted,
    "state-trusted": r.StateTrusted,
    "task-parked": r.TaskParked,
    "task-unparked": r.TaskUnparked,
    "task-pinned": r.TaskPinned,
    "paused": r.Paused,
    "resumed": r.Resumed,
    "storm-began": r.StormBegan,
    "storm-ended": r.StormEnded,
    "grants-held": r.GrantsHeld,
    "epochs-raised": r.EpochsRaised,
    "tasks-adopted": r.TasksAdopted,
    "probe-scheduled": r.ProbeScheduled,
    "loads-measured": r.LoadsMeasured,
    "imbalance-noted": r.ImbalanceNoted,
    "moved-for-load": r.MovedForLoad,
    "gone-forgotten": r.GoneForgotten,
}
"""The record type of every kind that this program can read. A class may be renamed, a kind never."""

VERSIONS: Final[dict[str, int]] = dict.fromkeys(RECORD_TYPES, 1)
"""The version in which each kind is written."""

UPCASTS: Final[dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]]] = {}
"""By kind and version: how a payload of that version becomes one of the next."""

DOWNCASTS: Final[dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]]] = {}
"""By kind and version: how a payload of that version becomes one of the version before, for programs that read no more.

A version is written only once every live coordinator can read it, so programs of both versions can run together.
"""

_KINDS: Final = {record_type: kind for kind, record_type in RECORD_TYPES.items()}


class _StoredNames(NamedTuple):
    """Fields that are stored under older names than they have here. ``within`` is the field that contains them."""

    names: Mapping[str, str]
    within: str | None = None


STORED_NAMES: Final[Mapping[str, _StoredNames]] = {
    "member-joined": _StoredNames({"assignment": "picture"}, within="member"),
    "place-inherited": _StoredNames({"successor": "heir"}),
    "task-released": _StoredNames({"final_position": "final"}),
    "heir-chosen": _StoredNames({"next_owner": "heir"}),
}
"""By kind: the stored names of fields that have other names here. A field may be renamed, its stored name never."""
_NAMES_HERE: Final = {
    kind: _StoredNames({stored: here for here, stored in known.names.items()}, known.within)
    for kind, known in STORED_NAMES.items()
}


def _renamed(payload: dict[str, Any], known: _StoredNames) -> dict[str, Any]:
    """Return a payload with its fields renamed, in the same order. The decoder refuses a part that is no object."""
    if known.within is None:
        return {known.names.get(name, name): value for name, value in payload.items()}
    part = payload.get(known.within)
    return payload | {known.within: _renamed(part, _StoredNames(known.names))} if isinstance(part, dict) else payload


def _plain(value: object) -> object:
    if isinstance(value, PMap):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in a stored record")


def _rich(wanted: Any, value: object) -> object:
    # msgspec knows every type that records hold, except the persistent mapping.
    return PMap(msgspec.convert(value, dict[get_args(wanted)], dec_hook=_rich))  # type: ignore[misc]


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)
_decoders: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(record_type, dec_hook=_rich) for kind, record_type in RECORD_TYPES.items()
}


def encode_record(record: Record, up_to: Mapping[str, int] = VERSIONS) -> StoredRecord:
    """Return the stored form of a record, in no newer version than ``up_to`` allows for its kind.

    Raises:
        UnwritableRecord: if the record has a value without a JSON form, or a coordinator cannot read its kind yet.
    """
    kind = _KINDS.get(type(record))
    if kind is None:
        raise UnwritableRecord(f"{type(record).__name__} is not a record")
    try:
        stored: object = record
        if kind in STORED_NAMES:
            stored = _renamed(msgspec.to_builtins(record, enc_hook=_plain), STORED_NAMES[kind])
        payload = _encoder.encode(stored)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnwritableRecord(f"{kind}: {error}") from error
    version = min(VERSIONS[kind], up_to.get(kind, 0))
    if version == VERSIONS[kind]:
        return StoredRecord(kind, version, payload)
    if not version:
        raise UnwritableRecord(f"{kind}: there is a coordinator that cannot read records of this kind")
    older = msgspec.json.decode(payload)
    for step in range(VERSIONS[kind], version, -1):
        older = DOWNCASTS[kind, step](older)
    return StoredRecord(kind, version, msgspec.json.encode(older))


def decode_record(stored: StoredRecord) -> Record:
    """Return the record that was stored, brought to the present version.

    Raises:
        UnreadableRecord: when the kind or the version is unknown, or the payload does not fit.
    """
    kind, version, payload = stored
    if kind not in RECORD_TYPES:
        raise UnreadableRecord(f"no record kind {kind!r} is known; a newer program may have written it")
    if not 1 <= version <= VERSIONS[kind]:
        raise UnreadableRecord(f"{kind}: version {version} is not known; this program reads up to {VERSIONS[kind]}")
    try:
        if version < VERSIONS[kind]:
            payload = msgspec.json.encode(_upcast(kind, version, msgspec.json.decode(payload)))
        if kind in _NAMES_HERE:
            named = msgspec.json.decode(payload, type=dict[str, Any])
            payload = msgspec.json.encode(_renamed(named, _NAMES_HERE[kind]))
        return cast("Record", _decoders[kind].decode(payload))
    except msgspec.MsgspecError as error:
        raise UnreadableRecord(f"{kind}, version {version}: {error}") from error


def _upcast(kind: str, version: int, payload: dict[str, Any]) -> dict[str, Any]:
    for step in range(version, VERSIONS[kind]):
        payload = UPCASTS[kind, step](payload)
    return payload


def encode_records(records: Iterable[Record], up_to: Mapping[str, int] = VERSIONS) -> tuple[StoredRecord, ...]:
    """Return the stored forms of some records, in their order, in no newer versions than ``up_to`` allows."""
    return tuple(encode_record(record, up_to) for record in records)


def decode_records(stored: Iterable[StoredRecord]) -> tuple[Record, ...]:
    return tuple(decode_record(one) for one in stored)


def json_text(value: object) -> str:
    """Return a value as JSON, for a column of text."""
    return msgspec.json.encode(value).decode()
