"""A persistent mapping: an update returns a new mapping and does not change the old one.

Group and soft state are values, yet a heartbeat must cost the same in a group of ten members and of ten thousand. A
``PMap`` is a large shared ``base`` and a small private ``top`` with the changes since. An update copies only ``top``.
When ``top`` outgrows the square root of the whole, both are folded into a new base. So an update costs some
microseconds on average, whatever the size, and a read at most two dictionary look-ups.

The order of iteration depends on the history of updates. Sort before you choose by it.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from math import isqrt
from typing import Final, Generic, Self, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final = object()
# An update copies top and pays its share of the next fold. Their sum is least if top grows to the square root of base.
_TOP_MIN: Final = 32
_COPIES_A_READ: Final = 4
"""How many entries are copied in the time that a read of both parts takes more than one of a dictionary."""


class PMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping with cheap updates."""

    __slots__ = ("_base", "_era", "_folded", "_length", "_plain", "_top")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(items) if items is not None else {}
        self._top: dict[K, object] = {}
        self._length = len(self._base)
        # ``_era`` identifies the base. The changes of the last fold, and the base before it, are kept as well, so that
        # ``changed_since`` can compare with a mapping from before that fold without a pass over everything.
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
        """Return the pairs of key and value as a dictionary's view, for a pass over all of them."""
        return self.plain().items()

    def values(self) -> ValuesView[V]:
        """Return the values as a dictionary's view."""
        return self.plain().values()

    def pick(self, keys: Iterable[K]) -> list[V]:
        """Return the values of several keys, all of which must be present."""
        base, top = self._base, cast("dict[K, V]", self._top)
        return [top[key] if key in top else base[key] for key in keys] if top else [base[key] for key in keys]

    def plain(self) -> dict[K, V]:
        """Return the content as a dictionary, which must not be changed. Use it for many reads: each is much faster.

        After changes the first call costs one pass over everything. Further calls cost nothing.
        """
        if self._plain is None:
            self._plain = self._merged()
        return self._plain

    def for_reads(self, count: int) -> Mapping[K, V]:
        """Return what ``count`` reads are fastest from: this mapping, or its content as a dictionary."""
        return self.plain() if self._plain is not None or count * _COPIES_A_READ > self._length else self

    def _merged(self) -> dict[K, V]:
        """Return a new dictionary of the content. Copying is cheaper than a pass over both parts."""
        merged = dict(self._base)
        for key, change in self._top.items():
            if change is _ABSENT:
                merged.pop(key, None)
            else:
                merged[key] = cast("V", change)
        return merged

    def updated(self, changes: Mapping[K, V | None]) -> "PMap[K, V]":
        """Return this mapping with ``changes`` applied. A value of None removes its key."""
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

    def having(self, key: K, value: V) -> "PMap[K, V]":
        return self.updated({key: value})

    def without(self, key: K) -> "PMap[K, V]":
        """Return this mapping without ``key``; the same mapping if the key is not present."""
        return self.updated({key: None}) if key in self else self

    def changed_since(self, older: Self) -> dict[K, V | None]:
        """Return the changes that turn ``older`` into this mapping when they are given to ``updated``.

        Values are compared by identity. The cost is that of the changes if one mapping was made from the other with at
        most one fold between them, else a pass over everything.
        """
        if self is older:
            return {}
        keys: Iterable[K] = self._top.keys() | older._top.keys()
        if self._era is not older._era:
            if self._folded is None or self._folded[0] is not older._era:
                present, before = self.plain(), older.plain()
                changes: dict[K, V | None] = {
                    key: value for key, value in present.items() if before.get(key) is not value
                }
                return changes | dict.fromkeys(key for key in before if key not in present)
            keys = {*keys, *self._folded[1]}
        changed: dict[K, V | None] = {}
        for key in keys:
            value = self.get(key)
            if value is not older.get(key):
                changed[key] = value
        return changed

    def __repr__(self) -> str:
        return f"PMap({dict(self)!r})"
