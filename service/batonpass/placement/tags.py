"""Which members keep the copies of a task apart, by tags: racks, zones, clusters (KIP-708).

Members with the same values are of one *kind*. Everything here works on kinds, of which there are few. The next copy of
a task belongs on a kind with a new value of the most important key, then of the next key, and so on. A key whose values
are all used no longer distinguishes kinds.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement
from math import comb
from typing import Final

from batonpass.placement.types import PlacementMember

Tiers = tuple[tuple[int, ...], ...]

_WAYS: Final = 100
"""How many ways to spread the copies of a task over kinds are compared at most: if there are more, none."""


class Tags:
    """The kinds of members, and which of them should hold the next copy of a task.

    Attributes:
        kind: per member, its kind.
        kinds: the number of kinds. With one kind, tags decide nothing.
    """

    def __init__(self, members: Sequence[PlacementMember], opened: Sequence[int], keys: Sequence[str]) -> None:
        telling = [key for key in keys if 1 < len({members[index].tags.get(key) for index in opened}) < len(opened)]
        number: dict[tuple[str | None, ...], int] = {}
        values = [tuple(member.tags.get(key) for key in telling) for member in members]
        self.kind = [number.setdefault(member_values, len(number)) for member_values in values]
        self.kinds = len(number)
        self._values = list(number)
        self._size = Counter(self.kind[index] for index in opened)
        self._tiers: dict[tuple[int, ...], Tiers] = {}
        self._ways: dict[tuple[tuple[int, ...], int], list[tuple[int, ...]]] = {}

    def tiers(self, copies: tuple[int, ...]) -> Tiers:
        """Return the kinds that can hold one more copy, best first, beside copies on the kinds ``copies`` (sorted)."""
        known = self._tiers.get(copies)
        if known is None:
            used = [set(values) for values in zip(*(self._values[kind] for kind in copies), strict=True)]
            taken = Counter(copies)
            by_score: dict[tuple[bool, ...], list[int]] = {}
            for kind, values in enumerate(self._values):
                if self._size[kind] > taken[kind]:
                    score = tuple(value in seen for value, seen in zip(values, used, strict=False))
                    by_score.setdefault(score, []).append(kind)
            known = tuple(tuple(by_score[score]) for score in sorted(by_score))
            self._tiers[copies] = known
        return known

    def ways(self, copies: Sequence[int], count: int) -> list[tuple[int, ...]]:
        """Return the kinds that the next copies may take together to be as far apart as possible.

        There are none if tags no longer matter for the next copy, or if there would be too many to compare.
        """
        on = tuple(sorted(copies))
        known = self._ways.get((on, count))
        if known is None:
            is_free = len(self.tiers(on)) <= 1 or comb(self.kinds + count - 1, count) > _WAYS
            every = () if is_free else combinations_with_replacement(range(self.kinds), count)
            known = self._ways[on, count] = [way for way in every if self.are_apart(on, way)]
        return known

    def are_apart(self, copies: tuple[int, ...], rest: tuple[int, ...]) -> bool:
        """Say whether the rest, beside copies of these kinds (sorted), are as far from each other as possible.

        That is so if they can be added one by one so that each is among the best at its turn.
        """
        if not rest:
            return True
        if len({*copies}) == self.kinds:
            # Every kind has a copy, so tags no longer matter. Any order works if there is room.
            taken = Counter((*copies, *rest))
            return all(taken[kind] <= self._size[kind] for kind in rest)
        for kind in {kind for tier in self.tiers(copies)[:1] for kind in tier}.intersection(rest):
            place = rest.index(kind)
            if self.are_apart(tuple(sorted((*copies, kind))), rest[:place] + rest[place + 1 :]):
                return True
        return False
