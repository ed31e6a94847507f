"""How many tasks each member should have: whole numbers, by capacity, within what it must and may have.

Nobody's tasks are chosen here, and where several members may take one more it is left open which of them does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import floor, lcm
from typing import Final, NamedTuple

import numpy as np
from ortools.graph.python.max_flow import SimpleMaxFlow

from batonpass.core.placement.flow import PlacementError

PLACES: Final = 8
"""Loads per capacity that agree to so many places are equal: they differ only in how their parts were added up."""


class Quotas(NamedTuple):
    """What each member gets: its floor, and one more for as many of the ``fractional`` ones as ``ceilings`` says.

    Where members are divided into parts, one more belongs to the parts with the lower ``levels``, as far as may be.
    """

    floors: list[int]
    fractional: list[bool]
    ceilings: int
    levels: Sequence[float] = ()


class Water(NamedTuple):
    """Vessels after something was poured into them: those that ended at their least or most, and the level of others.

    ``rest`` is what the others hold together, ``width`` how wide they are together.
    """

    settled: dict[int, float]
    rest: float
    width: float


def pour(
    load: Sequence[float], shares: Sequence[float], least: Sequence[float], most: Sequence[float], count: float
) -> Water:
    """Pour ``count`` into vessels as wide as their shares, which hold a load already."""
    settled: dict[int, float] = {}
    free = list(range(len(shares)))
    rest = count + sum(load)
    width: float = sum(shares)
    while free:
        # One below its least or above its most is out of proportion for good once the side that weighs more is
        # settled: the level of the others can then only move towards the other side.
        low = [one for one in free if rest * shares[one] < (load[one] + least[one]) * width]
        high = [one for one in free if rest * shares[one] > (load[one] + most[one]) * width]
        if not low and not high:
            break
        missing = sum((load[one] + least[one]) * width - rest * shares[one] for one in low)
        beyond = sum(rest * shares[one] - (load[one] + most[one]) * width for one in high)
        bound, leaving = (least, low) if missing >= beyond else (most, high)
        settled |= {one: bound[one] for one in leaving}
        rest -= sum(load[one] + bound[one] for one in leaving)
        width -= sum(shares[one] for one in leaving)
        free = [one for one in free if one not in settled]
    return Water(settled, rest, width)


def whole_shares(capacities: Sequence[float]) -> list[int]:
    """Return whole numbers in exactly the proportion of the capacities, read as the decimals that people wrote."""
    if all(capacity == int(capacity) for capacity in capacities):
        return [int(capacity) for capacity in capacities]
    exact = {capacity: Fraction(repr(float(capacity))) for capacity in sorted(set(capacities))}
    scale = lcm(*(part.denominator for part in exact.values()))
    whole = {capacity: int(part * scale) for capacity, part in exact.items()}
    return [whole[capacity] for capacity in capacities]


def quotas(shares: Sequence[int], least: Sequence[int], most: Sequence[int], count: int) -> Quotas:
    """Divide ``count`` tasks by share, giving each member at least ``least`` and at most ``most``: floor or ceiling.

    The caller sees to it that the sum of ``least`` is not above ``count``, nor that of ``most`` below it.
    """
    water = pour([0] * len(shares), shares, least, most, count)
    floors, fractional = [0] * len(shares), [False] * len(shares)
    for one, share in enumerate(shares):
        if one in water.settled:
            floors[one] = int(water.settled[one])
        else:
            floors[one], part = divmod(int(water.rest) * share, int(water.width))
            fractional[one] = part > 0
    return Quotas(floors, fractional, count - sum(floors))


def level_quotas(
    load: Sequence[float], capacity: Sequence[float], least: Sequence[int], most: Sequence[int], count: int
) -> Quotas:
    """Put ``count`` tasks of weight 1 on top of loads, each on whoever it leaves lowest per capacity.

    All that is left open is who takes one more of those whom it would leave equally high.
    """
    water = pour(load, capacity, least, most, count)
    level = water.rest / water.width if water.width else 0.0
    floors = [
        int(water.settled[one])
        if one in water.settled
        else min(max(floor(level * share - load[one] + 1e-9), low), high)
        for one, (share, low, high) in enumerate(zip(capacity, least, most, strict=True))
    ]
    rest = count - sum(floors)

    def height(one: int) -> tuple[float, int]:
        return round((load[one] + floors[one] + 1) / capacity[one], PLACES), one

    heap = [height(one) for one in range(len(floors)) if floors[one] < most[one]] if rest > 0 else []
    heapify(heap)
    while rest > 0 and heap:
        lowest = heap[0][0]
        equal: list[int] = []
        while heap and heap[0][0] == lowest:
            equal.append(heappop(heap)[1])
        if len(equal) > rest:
            open_to = set(equal)
            return Quotas(floors, [one in open_to for one in range(len(floors))], rest)
        for one in equal:
            floors[one] += 1
            if floors[one] < most[one]:
                heappush(heap, height(one))
        rest -= len(equal)
    return Quotas(floors, [False] * len(floors), 0)


@dataclass(frozen=True, slots=True)
class Cohort:
    """Tasks that may be on the same members: those of some blocks, and their home."""

    count: int
    blocks: tuple[int, ...]
    home: int


@dataclass(frozen=True, slots=True)
class Division:
    """Tasks to be divided over members of which not every one may have every task.

    Attributes:
        cohorts: the tasks.
        blocks: members that may have the same tasks; each member is in one of them at most.
        shares: per member, its part.
        least: per member, what it must have.
        most: per member, what it may have.
        final: divides a count over members that share it evenly.
    """

    cohorts: Sequence[Cohort]
    blocks: Sequence[Sequence[int]]
    shares: Sequence[int]
    least: Sequence[int]
    most: Sequence[int]
    final: Callable[[Sequence[int], int], Quotas]

    def solve(self, members: Sequence[int]) -> Quotas:
        """Return what each member gets, as even per share as cohorts let it be."""
        floors, fractional = [0] * len(self.shares), [False] * len(self.shares)
        levels = [0.0] * len(self.shares)
        ceilings = 0
        pending = [(list(members), list(range(len(self.cohorts))))]
        while pending:
            some, cohorts = pending.pop()
            count = sum(self.cohorts[one].count for one in cohorts)
            least, most = [self.least[one] for one in some], [self.most[one] for one in some]
            count = min(max(count, sum(least)), sum(most))
            split = self._split(some, cohorts, count)
            if split is not None:
                pending += split
                continue
            found = self.final(some, count)
            level = count / sum(self.shares[one] for one in some)
            for place, one in enumerate(some):
                levels[one] = level
                floors[one], fractional[one] = found.floors[place], found.fractional[place]
            ceilings += found.ceilings
        return Quotas(floors, fractional, ceilings, levels)

    def _split(
        self, members: Sequence[int], cohorts: Sequence[int], count: int
    ) -> list[tuple[list[int], list[int]]] | None:
        """Return members that have to have more than their part, with the tasks that only they may have; and the rest.

        A maximum flow from cohorts to members who may have exactly their part: what it cuts off is too much for them.
        """
        if len(members) <= 1 or not cohorts:
            return None
        shares = [self.shares[one] for one in members]
        least, most = [self.least[one] for one in members], [self.most[one] for one in members]
        water = pour([0] * len(members), shares, least, most, count)
        scale = max(1, int(water.width))
        node = {one: 1 + len(cohorts) + len(self.blocks) + place for place, one in enumerate(members)}
        sink = 1 + len(cohorts) + len(self.blocks) + len(members)
        arcs: list[tuple[int, int, int]] = []
        for place, one in enumerate(members):
            part = int(water.settled[place]) * scale if place in water.settled else int(water.rest) * shares[place]
            arcs.append((node[one], sink, part))
        for place, index in enumerate(cohorts):
            cohort = self.cohorts[index]
            arcs.append((0, 1 + place, cohort.count * scale))
            arcs += [(1 + place, 1 + len(cohorts) + block, count * scale) for block in cohort.blocks]
            if cohort.home in node:
                arcs.append((1 + place, node[cohort.home], count * scale))
        for block, some in enumerate(self.blocks):
            arcs += [(1 + len(cohorts) + block, node[one], count * scale) for one in some if one in node]
        solver = SimpleMaxFlow()
        table = np.array(arcs, np.int64)
        solver.add_arcs_with_capacity(table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2])
        try:
            status = solver.solve(0, sink)
        except Exception as problem:
            raise PlacementError(f"the solver of placement failed: {problem}") from problem
        if status != solver.OPTIMAL:
            raise PlacementError("the solver of placement could not divide the tasks over the members")
        cut = set(solver.get_source_side_min_cut())
        inside = [one for one in members if node[one] in cut]
        if not inside or len(inside) == len(members):
            return None
        within = [index for place, index in enumerate(cohorts) if 1 + place in cut]
        outside = [one for one in members if node[one] not in cut]
        return [(inside, within), (outside, [index for index in cohorts if index not in set(within)])]
