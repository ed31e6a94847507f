"""Serdes: how keys and values of topics and tables become bytes, and bytes become keys and values again.

A record may lack its key or its value; only `optional` takes that, as None. A pair of functions of one's own is a serde
too: ``Serde(encode, decode)``.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from operator import index
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Serde(Generic[T]):
    """Two functions: ``encode`` makes bytes of a value, ``decode`` makes the same value of these bytes."""

    def __init__(self, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self._encode = encode
        self._decode = decode

    def dump(self, value: T) -> bytes | None:
        """Return a value as bytes.

        Raises:
            TypeError: when it is no such value.
        """
        try:
            return self._encode(value)
        except (TypeError, ValueError, AttributeError) as error:
            raise TypeError(
                f"{value!r:.100} cannot be written: {error}; its serde takes another type, and None only as optional(...)"
            ) from error

    def load(self, data: bytes | None) -> T:
        """Return the value that the bytes are.

        Raises:
            ValueError: when there are none, or they are no such value.
        """
        if data is None:
            raise ValueError("there is none: if that may be, its serde is optional(...)")
        return self._decode(data)


class _Optional(Serde[T | None]):
    """A serde that takes what is not there for None."""

    def __init__(self, inner: Serde[T]) -> None:
        self._inner = inner

    def dump(self, value: T | None) -> bytes | None:
        return None if value is None else self._inner.dump(value)

    def load(self, data: bytes | None) -> T | None:
        return None if data is None else self._inner.load(data)


def optional(inner: Serde[T]) -> Serde[T | None]:
    """Return a serde for keys that may be left out, and for values that say that their key is deleted."""
    return _Optional(inner)


def json_of(kind: type[T]) -> Serde[T]:
    """Return a serde for JSON of a type that msgspec knows: a Struct, a dataclass, ``dict[str, int]``, and so on."""
    return Serde(_checked(kind, msgspec.json.encode), msgspec.json.Decoder(kind).decode)


def msgpack_of(kind: type[T]) -> Serde[T]:
    """Return a serde for MessagePack of a type that msgspec knows; it is shorter than JSON, and not for people."""
    return Serde(_checked(kind, msgspec.msgpack.encode), msgspec.msgpack.Decoder(kind).decode)


def _checked(kind: Any, encode: Callable[[T], bytes]) -> Callable[[T], bytes]:
    """Return an encoder that refuses another type, which would be written, and not be read again."""
    if not (isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or is_dataclass(kind))):
        return encode

    def checked(value: T) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r:.100} is no {kind.__name__}")
        return encode(value)

    return checked


def _as_it_is(data: bytes) -> bytes:
    return data


BYTES = Serde[bytes](_as_it_is, _as_it_is)
"""Bytes as they are."""

TEXT = Serde[str](str.encode, bytes.decode)
"""Text in UTF-8."""

INT = Serde[int](lambda number: b"%d" % index(number), int)
"""A whole number in decimal digits."""

JSON = Serde[Any](msgspec.json.encode, msgspec.json.decode)
"""Whatever JSON is; `json_of` checks it."""
