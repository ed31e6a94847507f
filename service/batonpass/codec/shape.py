"""Find every fault of a body, by path and reason, with the same description that decodes it.

A well-formed body takes the quick way: one pass of msgspec. Only a body that msgspec refuses is walked field by field,
to name all its faults and unknown fields at once. For a strict caller (operators' calls) these are faults. A lenient
one (join, heartbeat) gets unknown fields named beside the value, and the faults of numbers that may be left out
(``optional_numbers``): such a number counts as absent, because to refuse the body would cost a member its lease.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct, inspect

from batonpass.codec.bodies import PATTERNS
from batonpass.core.state.errors import InvalidRequest

T = TypeVar("T", bound=Struct)

FAULTS_MAX: Final = 50
"""How many faults an error lists at most."""

WALKED_FAULTS_MAX: Final = 50_000
"""How many faults are looked for at most, those that a caller is spared included; then the body is refused."""

UNKNOWN_MAX: Final = 20
"""How many unknown fields a status names at most."""

DIGITS_MAX: Final = 100

_PLACE: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`$")


class AtOnce(bytes):
    """A body that is read at once, or not at all: to look for its faults takes up to a microsecond for each byte."""


class HasFaults(Exception):
    """A body ``AtOnce`` may have faults, which are to be looked for where that holds nobody up."""


class Parsed(NamedTuple, Generic[T]):
    """A body, the names of its unknown fields, sorted, and the path and reason of each fault that it was spared."""

    value: T
    unknown_fields: tuple[str, ...]
    spared: tuple[tuple[str, str], ...] = ()


class Shape(Generic[T]):
    """What a body must look like, from its struct type (which must forbid unknown fields)."""

    def __init__(self, struct: type[T], *, lenient: bool = False) -> None:
        self.struct = struct
        self._lenient = lenient
        self._decoder = msgspec.json.Decoder(struct)

    def parse(self, body: bytes) -> Parsed[T]:
        """Return the value of a JSON body; an empty body is an empty object.

        Raises:
            InvalidRequest: naming every fault by path and reason.
            HasFaults: instead, of a body ``AtOnce``.
        """
        body = body or b"{}"
        try:
            return Parsed(self._decoder.decode(body), ())
        except (ValueError, RecursionError):
            if isinstance(body, AtOnce):
                raise HasFaults from None
            return self._explain(body)

    def read(self, values: Mapping[str, str], *, prefix: str) -> T:
        """Return the value of some texts, such as a query. Numbers and booleans are read from their text.

        Raises:
            InvalidRequest: naming every fault by path (under ``prefix``) and reason.
        """
        try:
            return msgspec.convert(dict(values), self.struct, strict=False)
        except msgspec.ValidationError:
            walk = _Walk(strict=False)
            walk.struct(dict(values), self.struct, prefix)
            raise refusal(walk.faults + walk.unknown_faults()) from None

    def _explain(self, body: bytes) -> Parsed[T]:
        try:
            value = decode_json(body)
        except (ValueError, RecursionError) as error:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise refusal([("body", f"JSON is malformed: {reason}")]) from None
        walk = _Walk(strict=True, lenient=self._lenient)
        clean = walk.struct(value, self.struct, "")
        faults = walk.faults if self._lenient else walk.faults + walk.unknown_faults()
        if faults:
            raise refusal(faults)
        unknown = tuple(sorted(walk.unknown)[:UNKNOWN_MAX])
        return Parsed(msgspec.convert(clean, self.struct), unknown, tuple(walk.spared))


def refusal(faults: list[tuple[str, str]]) -> InvalidRequest:
    """Return the error that lists these faults, the first ``FAULTS_MAX`` of them."""
    shown = faults[:FAULTS_MAX]
    text = "; ".join(f"{path}: {reason}" for path, reason in shown[:3])
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return InvalidRequest(f"the request cannot be understood: {text}{more}", errors=shown)


def decode_json(body: bytes) -> Any:
    """Return a JSON value, with numbers of any size, so that those which are too large can be named.

    Raises:
        ValueError: if it is no JSON.
        RecursionError: if it is nested too deeply.
    """
    try:
        return msgspec.json.decode(body)
    except msgspec.ValidationError:
        return json.loads(body, parse_int=_whole)


def _whole(digits: str) -> int | float:
    """Return a whole number. One of hundreds of digits is out of every range, and Python is slow to read it."""
    return int(digits) if len(digits) <= DIGITS_MAX else float(digits)


class _Walk:
    """One walk through a refused body: collects its faults and unknown fields, and returns the known fields."""

    def __init__(self, *, strict: bool, lenient: bool = False) -> None:
        self.faults: list[tuple[str, str]] = []
        self.spared: list[tuple[str, str]] = []
        self._lenient = lenient
        # The paths of unknown fields, by the name under which they are reported. A name has ``*`` for each key of a
        # mapping, so an unknown field is reported once, however many tasks have it.
        self.unknown: dict[str, list[str]] = {}
        self._strict = strict
        self._found = 0

    def _fault(self, path: str, reason: str) -> None:
        self.faults.append((path, reason))
        self._found += 1
        if self._found > WALKED_FAULTS_MAX:
            raise refusal(self.faults)

    def unknown_faults(self) -> list[tuple[str, str]]:
        return [(path, "is not a known field") for paths in self.unknown.values() for path in paths]

    def struct(self, value: object, struct: type[Struct], path: str, name: str | None = None) -> object:
        if not isinstance(value, dict):
            self._fault(path or "body", f"Expected `object`, got `{_json_type(value)}`")
            return value
        name = path if name is None else name
        fields = _fields(struct)
        for field in fields.values():
            if field.required and field.encode_name not in value:
                self._fault(_under(path, field.encode_name), "is required")
        clean: dict[str, object] = {}
        for key, item in value.items():
            below, named = _under(path, key), _under(name, key)
            if key in fields:
                before = len(self.faults)
                clean[key] = self.field(item, fields[key].type, below, named)
                if len(self.faults) > before and self._lenient and key in optional_numbers(struct):
                    self.spared += self.faults[before:]
                    del self.faults[before:], clean[key]
            else:
                self.unknown.setdefault(named, []).append(below)
        return clean

    def field(self, value: object, wanted: Any, path: str, name: str) -> object:
        inner = _inner(wanted)
        before = len(self.faults)
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, Struct):
            return self.struct(value, inner, path, name)
        clean: Any = value
        if isinstance(value, dict) and get_origin(inner) is dict:
            clean = self.mapping(value, inner, path, name)
        elif isinstance(value, list) and get_origin(inner) is tuple:
            item_type, name = get_args(inner)[0], _under(name, "*")
            clean = [self.field(item, item_type, f"{path}[{n}]", name) for n, item in enumerate(value)]
        # Check the whole too, because it may have limits of its own, such as how many entries it may have.
        return clean if len(self.faults) > before else self.leaf(clean, wanted, path)

    def mapping(self, value: dict[str, object], wanted: Any, path: str, name: str) -> dict[str, object]:
        key_type, item_type = get_args(wanted)
        name = _under(name, "*")
        clean = {}
        for key, item in value.items():
            below = _under(path, key)
            self.leaf(key, key_type, below)
            clean[key] = self.field(item, item_type, below, name)
        return clean

    def leaf(self, value: Any, wanted: Any, path: str) -> Any:
        try:
            msgspec.convert(value, wanted, strict=self._strict)
        except msgspec.ValidationError as error:
            if isinstance(value, float) and value.is_integer():
                # JSON has one kind of number: 812.0 is as whole as 812.
                return self.leaf(int(value), wanted, path)
            self._fault(*_fault(path, str(error)))
        return value


@cache
def _fields(struct: type[Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


@cache
def optional_numbers(struct: type[Struct]) -> frozenset[str]:
    """Return the fields of a body that are numbers, or mappings to numbers, and ``UNSET`` where they are left out."""
    described = cast("inspect.StructType", inspect.type_info(struct)).fields
    optional = [field for field in described if not field.required and field.default is NODEFAULT]
    return frozenset(field.encode_name for field in optional if _is_number(field.type))


def _is_number(wanted: inspect.Type) -> bool:
    numbers = wanted.value_type if isinstance(wanted, inspect.DictType) else wanted
    return isinstance(numbers, inspect.IntType | inspect.FloatType)


def _inner(wanted: Any) -> Any:
    """Return the struct, mapping or list of structs that may stand at this place; None for a plain value."""
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        return wanted
    origin = get_origin(wanted)
    if origin is dict:
        return wanted
    if origin is tuple:
        return wanted if _inner(get_args(wanted)[0]) is not None else None
    return next((inner for choice in get_args(wanted) if (inner := _inner(choice)) is not None), None)


def _under(path: str, key: str) -> str:
    key = key or '""'
    return f"{path}.{key}" if path else key


def _fault(path: str, message: str) -> tuple[str, str]:
    """Return path and reason of a message of msgspec, which names the place below ``path`` at its end."""
    for pattern, reason in PATTERNS.items():
        if pattern in message:
            return path, reason
    found = _PLACE.search(message)
    if found is None:
        return path, message
    return f"{path}{found['path']}", message[: found.start()]


def _json_type(value: object) -> str:
    names = {dict: "object", list: "array", str: "str", bool: "bool", int: "int", float: "float"}
    return names.get(type(value), "null")
