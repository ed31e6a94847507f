"""How many tasks each member should have: whole numbers, by capacity, within what it must and may have.

Which tasks these are is not decided here. If only some of several members get one more, it is left open which of them.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import floor, lcm
from typing import Final, NamedTuple

import numpy as np

from batonpass.placement.flow import Floats, Ints

PLACES: Final = 8
"""Loads per capacity that agree to so many places count as equal. They differ only by rounding."""


class Quotas(NamedTuple):
    """What each member gets: its floor, and one more for some of the ``fractional`` members.

    If members are divided into parts, the parts with the lower ``levels`` get the ceilings first.
    """

    floors: list[int]
    fractional: list[bool]
    levels: Sequence[float]


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
    """Return whole numbers in the proportion of the capacities, which are read as decimals."""
    exact = {capacity: Fraction(repr(float(capacity))) for capacity in {*capacities}}
    scale = lcm(*(part.denominator for part in exact.values()))
    whole = {capacity: int(part * scale) for capacity, part in exact.items()}
    return [whole[capacity] for capacity in capacities]


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
    return Quotas(floors, fractional, [0.0] * len(floors))


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
            return Quotas(floors, [member in open_to for member in range(len(floors))], load)
        for member in equal:
            floors[member] += 1
            if floors[member] < most[member]:
                heappush(heap, height(member))
        rest -= len(equal)
    return Quotas(floors, [False] * len(floors), load)


def in_parts(
    parts: Sequence[Ints],
    have: Ints,
    load: Ints,
    shares: Sequence[float],
    divide: Callable[[Sequence[int], int], Quotas],
) -> Quotas:
    """Return the quotas of members in parts, if each part divides among its members what they have.

    Args:
        parts: the members of each part.
        have: per member, how many tasks it has.
        load: per member, how many other copies it has.
        shares: per member, its share.
        divide: divides a number of tasks among some members, as far as these must and may have them.
    """
    floors, fractional, levels = [0] * len(shares), [False] * len(shares), [0.0] * len(shares)
    for part in parts:
        some = part.tolist()
        divided = divide(some, int(have[part].sum()))
        # Members that take nothing, or no more, say nothing of how high the others are.
        heights = [
            (int(load[member]) + low) / shares[member] for member, low in zip(some, divided.floors, strict=True) if low
        ]
        level = max(heights, default=0.0)
        for place, member in enumerate(some):
            floors[member], fractional[member] = divided.floors[place], divided.fractional[place]
            levels[member] = level
    return Quotas(floors, fractional, levels)


def ranks(values: Sequence[float] | Floats) -> Ints:
    """Return the rank of each value, or row of values, among the distinct ones."""
    return np.unique(np.round(values, PLACES), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
