"""A whole group to versioned JSON and back, so that a load need not begin with the first record ever.

A snapshot is a convenience: the records are the truth, and whoever cannot read a snapshot begins with an older one, or
with the records. Hence it is read strictly. It names the fields that it was written with, because many of them have
no names of their own in it; unless they are the present ones, but for new ones at the end, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, get_args, get_type_hints

import msgspec

from batonpass.core.model import Group
from batonpass.core.pmap import PMap
from batonpass.core.topology import build_table

GROUP_VERSION: Final = 1
"""The version in which groups are written."""

UPCASTS: Final[dict[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {}
"""By version: how a stored group of that version becomes one of the next."""

DERIVED: Final = "table"
"""What follows from the topology and is not stored."""


class UnreadableGroup(Exception):
    """A stored group is of a version, or has fields, that this program does not know, or is damaged."""


def encode_group(group: Group) -> bytes:
    """Return a group as a JSON object in UTF-8."""
    return _encoder.encode({"fields": FIELDS, "group": {name: getattr(group, name) for name in _KEPT}})


def decode_group(version: int, payload: bytes) -> Group:
    """Return the group that was stored.

    Raises:
        UnreadableGroup: when that cannot be done without doubt.
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
        found = _decoder.decode(payload).group
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableGroup(str(error)) from error
    return replace(found, table=build_table(found.topology))


def _plain(value: object) -> object:
    if isinstance(value, PMap):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in a stored group")


def _rich(wanted: Any, value: object) -> object:
    return PMap(msgspec.convert(value, dict[get_args(wanted)], dec_hook=_rich))  # type: ignore[misc]


def _tuples_within(kind: Any, found: dict[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    """Return the fields of every named tuple that a type is made of; in JSON they are told apart by place alone."""
    if isinstance(kind, type) and hasattr(kind, "_fields") and kind.__name__ not in found:
        found[kind.__name__] = kind._fields
    if isinstance(kind, type) and (hasattr(kind, "_fields") or is_dataclass(kind)):
        for part in get_type_hints(kind).values():
            if part is not kind:
                _tuples_within(part, found)
    for part in get_args(kind):
        _tuples_within(part, found)
    return found


_KEPT: Final = tuple(field.name for field in fields(Group) if field.name != DERIVED)
FIELDS: Final[Mapping[str, tuple[str, ...]]] = dict(sorted(_tuples_within(Group, {}).items()))
"""The fields of the named tuples in a group, by the names of their types."""


class _Written(msgspec.Struct):
    fields: dict[str, tuple[str, ...]]


class _Whole(msgspec.Struct):
    group: Group


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)
_decoder: Final = msgspec.json.Decoder(_Whole, dec_hook=_rich)
