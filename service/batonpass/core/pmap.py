"""A persistent mapping: an update returns a new mapping and leaves the old one as it was.

Group and soft state are values, yet a heartbeat must cost the same in a group of ten members and of ten thousand. A
``PMap`` is a large shared ``base`` and a small private ``top`` with what has changed since. An update copies ``top``
alone; when ``top`` outgrows the square root of the whole, both are folded into a new base. One update therefore costs
some microseconds on average, whatever the size, and a read two dictionary look-ups at most.

The order of iteration depends on the history of updates: whoever chooses by it sorts first.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from math import isqrt
from typing import Final, Generic, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final = object()
# An update copies top and pays its share of the next fold; both are least when top may grow to the square root of base.
_TOP_MIN: Final = 32


class PMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping with cheap updates."""

    __slots__ = ("_base", "_era", "_folded", "_length", "_plain", "_top")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(items) if items is not None else {}
        self._top: dict[K, object] = {}
        self._length = len(self._base)
        # What tells bases apart, and what the last fold put into this one, with the base that it was made of: whoever
        # looked before that fold learns what has changed without a pass over everything.
        self._era = object()
        self._folded: tuple[object, tuple[K, ...]] | None = None
        self._plain: dict[K, V] | None = self._base

    def __getitem__(self, key: K) -> V:
        if self._top:
            value = self._top.get(key, self)
            if value is not self:
                if value is _ABSENT:
                    raise KeyError(key)
                return value  # type: ignore[return-value]
        return self._base[key]

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]
        """Return the value of ``key``, or ``default`` when there is none."""
        if self._top:
            value = self._top.get(key, self)
            if value is not self:
                return default if value is _ABSENT else value  # type: ignore[return-value]
        return self._base.get(key, default)

    def __contains__(self, key: object) -> bool:
        if self._top:
            value = self._top.get(cast("K", key), self)
            if value is not self:
                return value is not _ABSENT
        return key in self._base

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return iter(self.plain())

    def items(self) -> ItemsView[K, V]:
        """Return the pairs of key and value, as a dictionary gives them: a pass over all of them is what is meant."""
        return self.plain().items()

    def values(self) -> ValuesView[V]:
        """Return the values, as a dictionary gives them."""
        return self.plain().values()

    def pick(self, keys: Iterable[K]) -> list[V]:
        """Return the values of several keys, all of which must be there."""
        base, top = self._base, cast("dict[K, V]", self._top)
        return [top[key] if key in top else base[key] for key in keys] if top else [base[key] for key in keys]

    def plain(self) -> dict[K, V]:
        """Return a dictionary of what is held, to read and not to change: for many reads, each is several times faster.

        It costs one pass over everything where there were changes since the last fold, and nothing the next time.
        """
        if self._plain is None:
            self._plain = self._merged()
        return self._plain

    def _merged(self) -> dict[K, V]:
        """Return a dictionary of its own of what is held now. Copying costs less than passing over both parts."""
        merged = dict(self._base)
        for key, change in self._top.items():
            if change is _ABSENT:
                merged.pop(key, None)
            else:
                merged[key] = cast("V", change)
        return merged

    def updated(self, changes: Mapping[K, V | None]) -> PMap[K, V]:
        """Return this mapping with ``changes`` applied; a value of None takes its key out."""
        if not changes:
            return self
        result: PMap[K, V] = PMap.__new__(PMap)
        if len(self._top) + len(changes) > max(_TOP_MIN, isqrt(len(self._base))):
            merged = self._merged()
            if None in changes.values():
                for key, value in changes.items():
                    if value is None:
                        merged.pop(key, None)
                    else:
                        merged[key] = value
            else:
                merged.update(cast("Mapping[K, V]", changes))
            result._base, result._top, result._length = merged, {}, len(merged)
            result._era, result._folded = object(), (self._era, (*self._top, *changes))
            result._plain = merged
            return result
        top = dict(self._top)
        length = self._length
        for key, value in changes.items():
            present = key in self if key not in top else top[key] is not _ABSENT
            if value is None:
                if present:
                    length -= 1
                    top[key] = _ABSENT
            else:
                if not present:
                    length += 1
                top[key] = value
        result._base, result._top, result._length = self._base, top, length
        result._era, result._folded = self._era, self._folded
        result._plain = None
        return result

    def having(self, key: K, value: V) -> PMap[K, V]:
        """Return this mapping with ``value`` under ``key``."""
        return self.updated({key: value})

    def without(self, key: K) -> PMap[K, V]:
        """Return this mapping without ``key``; the same mapping when it is not there."""
        return self.updated({key: None}) if key in self else self

    def changed_since(self, older: PMap[K, V]) -> dict[K, V | None]:
        """Return what turns ``older`` into this mapping when it is given to ``updated``.

        Values are compared by identity. Costs a look at what has changed where the one came from the other not long
        ago, with one fold between them at most, else a pass over all.
        """
        if self is older:
            return {}
        keys: Iterable[K] = self._top.keys() | older._top.keys()
        if self._era is not older._era:
            if self._folded is None or self._folded[0] is not older._era:
                mine, others = self.plain(), older.plain()
                found: dict[K, V | None] = {key: one for key, one in mine.items() if others.get(key) is not one}
                return found | dict.fromkeys(key for key in others if key not in mine)
            keys = {*keys, *self._folded[1]}
        changed: dict[K, V | None] = {}
        for key in keys:
            value = self.get(key)
            if value is not older.get(key):
                changed[key] = value
        return changed

    def __repr__(self) -> str:
        return f"PMap({dict(self)!r})"
