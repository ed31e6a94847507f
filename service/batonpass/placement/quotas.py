"""How many tasks each member should have: whole numbers, by capacity, within what it must and may have.

Which tasks these are is not decided here. If only some of several members get one more, it is left open which of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import floor, gcd, lcm
from typing import Final, NamedTuple

import numpy as np
from ortools.graph.python.max_flow import SimpleMaxFlow

from batonpass.placement.flow import solve

PLACES: Final = 8
"""Loads per capacity that agree to so many places count as equal. They differ only by rounding."""

SHARES_MAX: Final = 1 << 38
"""About what all shares add up to at most. A flow multiplies their sum by up to ten million tasks, within 64 bits."""


class Quotas(NamedTuple):
    """What each member gets: its floor, and one more for some of the ``fractional`` members.

    If members are divided into parts, the parts with the lower ``levels`` get the ceilings first.
    """

    floors: list[int]
    fractional: list[bool]
    levels: Sequence[float] = ()


class WaterFilling(NamedTuple):
    """Vessels after water was poured into them: those that ended at their least or most, and the level of the others.

    ``rest`` is how much the others hold together, and ``width`` how wide they are together.
    """

    settled: dict[int, float]
    rest: float
    width: float


def pour(
    load: Sequence[float], shares: Sequence[float], least: Sequence[float], most: Sequence[float], count: float
) -> WaterFilling:
    """Pour ``count`` into vessels that are as wide as their shares and hold ``load`` already."""
    settled: dict[int, float] = {}
    free = list(range(len(shares)))
    rest = count + sum(load)
    width: float = sum(shares)
    while free:
        # Settle the side, below least or above most, that is further out of proportion. The level of the others can
        # then only move towards the other side, so the settled vessels stay out of proportion.
        low = [vessel for vessel in free if rest * shares[vessel] < (load[vessel] + least[vessel]) * width]
        high = [vessel for vessel in free if rest * shares[vessel] > (load[vessel] + most[vessel]) * width]
        if not low and not high:
            break
        missing = sum((load[vessel] + least[vessel]) * width - rest * shares[vessel] for vessel in low)
        beyond = sum(rest * shares[vessel] - (load[vessel] + most[vessel]) * width for vessel in high)
        bound, leaving = (least, low) if missing >= beyond else (most, high)
        settled |= {vessel: bound[vessel] for vessel in leaving}
        rest -= sum(load[vessel] + bound[vessel] for vessel in leaving)
        width -= sum(shares[vessel] for vessel in leaving)
        free = [vessel for vessel in free if vessel not in settled]
    return WaterFilling(settled, rest, width)


def whole_shares(capacities: Sequence[float]) -> list[int]:
    """Return whole numbers in the proportion of the capacities, as decimals, that add up to about SHARES_MAX at most.

    Where the exact proportion needs larger numbers, each is rounded, and is at least 1.
    """
    exact = {capacity: Fraction(repr(float(capacity))) for capacity in sorted(set(capacities))}
    scale = lcm(*(part.denominator for part in exact.values()))
    whole = {capacity: int(part * scale) for capacity, part in exact.items()}
    common = gcd(*whole.values()) or 1
    total = sum([whole[capacity] for capacity in capacities]) // common
    if total <= SHARES_MAX:
        return [whole[capacity] // common for capacity in capacities]
    rounded = {capacity: max(1, share * SHARES_MAX // (common * total)) for capacity, share in whole.items()}
    return [rounded[capacity] for capacity in capacities]


def quotas(shares: Sequence[int], least: Sequence[int], most: Sequence[int], count: int) -> Quotas:
    """Divide ``count`` tasks by share: each member gets its floor or ceiling, within ``least`` and ``most``.

    The sum of ``least`` must not exceed ``count``, and the sum of ``most`` must not be below it.
    """
    water = pour([0] * len(shares), shares, least, most, count)
    floors, fractional = [0] * len(shares), [False] * len(shares)
    for member, share in enumerate(shares):
        if member in water.settled:
            floors[member] = int(water.settled[member])
        else:
            floors[member], part = divmod(int(water.rest) * share, int(water.width))
            fractional[member] = part > 0
    return Quotas(floors, fractional)


def level_quotas(
    load: Sequence[float], capacity: Sequence[float], least: Sequence[int], most: Sequence[int], count: int
) -> Quotas:
    """Put ``count`` tasks of weight 1 on top of loads, each on the member whose load per capacity it leaves lowest.

    If members would be equally high, it is left open which of them takes one more.
    """
    water = pour(load, capacity, least, most, count)
    level = water.rest / water.width if water.width else 0.0
    floors = [
        int(water.settled[member])
        if member in water.settled
        else min(max(floor(level * share - load[member] + 1e-9), low), high)
        for member, (share, low, high) in enumerate(zip(capacity, least, most, strict=True))
    ]
    rest = count - sum(floors)

    def height(member: int) -> tuple[float, int]:
        return round((load[member] + floors[member] + 1) / capacity[member], PLACES), member

    heap = [height(member) for member in range(len(floors)) if floors[member] < most[member]] if rest > 0 else []
    heapify(heap)
    while rest > 0 and heap:
        lowest = heap[0][0]
        equal: list[int] = []
        while heap and heap[0][0] == lowest:
            equal.append(heappop(heap)[1])
        if len(equal) > rest:
            open_to = set(equal)
            return Quotas(floors, [member in open_to for member in range(len(floors))])
        for member in equal:
            floors[member] += 1
            if floors[member] < most[member]:
                heappush(heap, height(member))
        rest -= len(equal)
    return Quotas(floors, [False] * len(floors))


@dataclass(frozen=True, slots=True)
class Cohort:
    """Tasks that may be on the same members: those of some blocks, and their home."""

    count: int
    blocks: tuple[int, ...]
    home: int


@dataclass(frozen=True, slots=True)
class Division:
    """Tasks to be divided among members that may not all have every task.

    Attributes:
        cohorts: the tasks.
        blocks: members that may have the same tasks. Each member is in at most one block. None: all may have all tasks.
        shares: per member, its share.
        least: per member, what it must have.
        most: per member, what it may have.
        final: divides a count among members that may all have the same tasks.
        load: per member, how many other copies it has.
    """

    cohorts: Sequence[Cohort]
    blocks: Sequence[Sequence[int]]
    shares: Sequence[int]
    least: Sequence[int]
    most: Sequence[int]
    final: Callable[[Sequence[int], int], Quotas]
    load: Sequence[int]

    def solve(self, members: Sequence[int]) -> Quotas:
        """Return what each member gets, as even per share as the cohorts allow."""
        floors, fractional = [0] * len(self.shares), [False] * len(self.shares)
        levels = [0.0] * len(self.shares)
        pending = [(list(members), list(range(len(self.cohorts))))]
        while pending:
            some, cohorts = pending.pop()
            count = sum(self.cohorts[cohort].count for cohort in cohorts)
            least, most = [self.least[member] for member in some], [self.most[member] for member in some]
            count = min(max(count, sum(least)), sum(most))
            split = self._split(some, cohorts, count)
            if split is not None:
                pending += split
                continue
            divided = self.final(some, count)
            level = (count + sum(self.load[member] for member in some)) / sum(self.shares[member] for member in some)
            for place, member in enumerate(some):
                levels[member] = level
                floors[member], fractional[member] = divided.floors[place], divided.fractional[place]
        return Quotas(floors, fractional, levels)

    def _split(
        self, members: Sequence[int], cohorts: Sequence[int], count: int
    ) -> list[tuple[list[int], list[int]]] | None:
        """Return the members that must exceed their share, with the tasks that only they may have; and the rest.

        A maximum flow goes from cohorts to members whose capacity is exactly their share. Its minimum cut separates the
        members that have too many tasks.
        """
        if len(members) <= 1 or not cohorts or not self.blocks:
            return None
        shares = [self.shares[member] for member in members]
        least, most = [self.least[member] for member in members], [self.most[member] for member in members]
        load = [self.load[member] for member in members]
        water = pour(load, shares, least, most, count)
        scale = max(1, int(water.width))
        node = {member: 1 + len(cohorts) + len(self.blocks) + place for place, member in enumerate(members)}
        sink = 1 + len(cohorts) + len(self.blocks) + len(members)
        arcs: list[tuple[int, int, int]] = []
        for place, member in enumerate(members):
            part = (
                int(water.settled[place]) * scale
                if place in water.settled
                else int(water.rest) * shares[place] - load[place] * scale
            )
            arcs.append((node[member], sink, part))
        for place, index in enumerate(cohorts):
            cohort = self.cohorts[index]
            arcs.append((0, 1 + place, cohort.count * scale))
            arcs += [(1 + place, 1 + len(cohorts) + block, count * scale) for block in cohort.blocks]
            if cohort.home in node:
                arcs.append((1 + place, node[cohort.home], count * scale))
        for block, some in enumerate(self.blocks):
            arcs += [(1 + len(cohorts) + block, node[member], count * scale) for member in some if member in node]
        solver = SimpleMaxFlow()
        table = np.array(arcs, np.int64)
        solver.add_arcs_with_capacity(table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2])
        solve(solver, 0, sink)
        cut = set(solver.get_source_side_min_cut())
        inside = [member for member in members if node[member] in cut]
        if not inside or len(inside) == len(members):
            return None
        within = [index for place, index in enumerate(cohorts) if 1 + place in cut]
        outside = [member for member in members if node[member] not in cut]
        return [(inside, within), (outside, [index for index in cohorts if index not in set(within)])]
