"""Where two values differ: which field, as it is and as it should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

TOLD_MOST: Final = 3
WORD_MOST: Final = 60
NOTHING: Final = "nothing"


class Difference(NamedTuple):
    """One field, by its path, that is one thing here and another there."""

    path: str
    here: object
    there: object


def differences(here: object, there: object, path: str = "") -> Iterator[Difference]:
    """Yield the innermost fields in which two values differ, in their order."""
    if here == there:
        return
    if type(here) is type(there) and is_dataclass(here):
        for field in fields(here):
            yield from differences(getattr(here, field.name), getattr(there, field.name), _within(path, field.name))
    elif isinstance(here, tuple) and isinstance(there, tuple) and len(here) == len(there):
        names = getattr(here, "_fields", range(len(here)))
        for name, one, other in zip(names, here, there, strict=True):
            yield from differences(one, other, _within(path, name))
    elif isinstance(here, Mapping) and isinstance(there, Mapping):
        for name in dict.fromkeys([*here, *there]):
            yield from differences(here.get(name, NOTHING), there.get(name, NOTHING), _within(path, name))
    else:
        yield Difference(path, here, there)


def _within(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def in_words(found: Iterator[Difference], here: str, there: str) -> str:
    """Return differences in words, the first few: ``here`` and ``there`` name whose values they are."""
    told = list(found)
    words = [f"{one.path} {_word(one.here)} {here}, {_word(one.there)} {there}" for one in told[:TOLD_MOST]]
    more = len(told) - TOLD_MOST
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def _word(value: Any) -> str:
    said = str(value) if isinstance(value, str | int | float | None) else repr(value)
    said = said or "empty"
    return said if len(said) <= WORD_MOST else f"{said[:WORD_MOST]}…"
