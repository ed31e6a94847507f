"""How many tasks each seat should run: quotas in whole numbers, and the fewest moves that reach them.

A seat's quota is its part, by capacity, of all tasks. Tasks do not divide, so a seat gets the floor or the ceiling of
its quota; who gets the ceiling is decided elsewhere, and nothing here depends on it. Limits bend quotas as little as
they can: a seat that may not have its quota gets its limit, and the others share the rest by capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import floor, lcm
from typing import Final, NamedTuple

PLACES: Final = 8
"""Loads per capacity that agree to so many places are equal: they differ only in how their parts were added up."""


class Quotas(NamedTuple):
    """What each seat gets: its floor, and one more for as many of the ``fractional`` seats as ``ceilings`` says."""

    floors: list[int]
    fractional: list[bool]
    ceilings: int


def whole_shares(capacities: Sequence[float]) -> list[int]:
    """Return whole numbers in exactly the proportion of the capacities, read as the decimals that people wrote."""
    if all(capacity == int(capacity) for capacity in capacities):
        return [int(capacity) for capacity in capacities]
    exact = {capacity: Fraction(repr(float(capacity))) for capacity in sorted(set(capacities))}
    scale = lcm(*(part.denominator for part in exact.values()))
    whole = {capacity: int(part * scale) for capacity, part in exact.items()}
    return [whole[capacity] for capacity in capacities]


def quotas(shares: Sequence[int], least: Sequence[int], most: Sequence[int], count: int) -> Quotas:
    """Divide ``count`` tasks over seats by share, giving each at least ``least`` and at most ``most``.

    The caller sees to it that the sum of ``least`` is not above ``count``, nor that of ``most`` below it.
    """
    floors = list(least)
    fractional = [False] * len(shares)
    free = list(range(len(shares)))
    rest, total = count, sum(shares)
    while True:
        # A seat below its least or above its most is out of proportion for good once the side that weighs more is
        # settled: the level of the others can then only move towards the other side.
        low = [seat for seat in free if rest * shares[seat] < least[seat] * total]
        high = [seat for seat in free if rest * shares[seat] > most[seat] * total]
        if not low and not high:
            break
        missing = sum(least[seat] * total - rest * shares[seat] for seat in low)
        beyond = sum(rest * shares[seat] - most[seat] * total for seat in high)
        settled = low if missing >= beyond else high
        bound = least if missing >= beyond else most
        for seat in settled:
            floors[seat] = bound[seat]
        gone = set(settled)
        free = [seat for seat in free if seat not in gone]
        rest -= sum(bound[seat] for seat in settled)
        total -= sum(shares[seat] for seat in settled)
    for seat in free:
        floors[seat], part = divmod(rest * shares[seat], total)
        fractional[seat] = part > 0
    return Quotas(floors, fractional, count - sum(floors))


def most_kept(quota: Quotas, have: Sequence[int]) -> int:
    """Return how many tasks can stay where they are, at most, if every seat ends within its quota.

    A seat that has more than its floor keeps one more with a ceiling; one that has less gains nothing by it.
    """
    kept = sum(min(count, floor) for count, floor in zip(have, quota.floors, strict=True))
    above = sum(part and count > floor for count, floor, part in zip(have, quota.floors, quota.fractional, strict=True))
    return kept + min(above, quota.ceilings)


def level_counts(
    load: Sequence[float], capacity: Sequence[float], bounds: tuple[list[int], list[int], list[int]], count: int
) -> list[int]:
    """Return how many tasks of weight 1 each seat gets on top of its load, the lowest load per capacity first.

    Of equally low seats, those that have the task already come first, which is what makes the moves fewest.
    """
    least, most, have = bounds
    level = water_level(load, capacity, least, most, count)
    counts = [
        min(max(floor(level * share - base + 1e-9), low), high)
        for base, share, low, high in zip(load, capacity, least, most, strict=True)
    ]

    def entry(seat: int) -> tuple[float, bool, int]:
        height = (load[seat] + counts[seat] + 1) / capacity[seat]
        return round(height, PLACES), have[seat] <= counts[seat], seat

    heap = [entry(seat) for seat in range(len(load)) if counts[seat] < most[seat]]
    heapify(heap)
    for _ in range(count - sum(counts)):
        _, _, seat = heappop(heap)
        counts[seat] += 1
        if counts[seat] < most[seat]:
            heappush(heap, entry(seat))
    return counts


def water_level(
    load: Sequence[float], capacity: Sequence[float], least: Sequence[float], most: Sequence[float], count: float
) -> float:
    """Return the load per capacity that all seats would reach if tasks could be divided."""
    free = list(range(len(load)))
    rest = count
    level = 0.0
    while free:
        level = (rest + sum(load[seat] for seat in free)) / sum(capacity[seat] for seat in free)
        wanted = {seat: level * capacity[seat] - load[seat] for seat in free}
        low = [seat for seat in free if wanted[seat] < least[seat]]
        high = [seat for seat in free if wanted[seat] > most[seat]]
        if not low and not high:
            break
        missing = sum(least[seat] - wanted[seat] for seat in low)
        beyond = sum(wanted[seat] - most[seat] for seat in high)
        settled, bound = (low, least) if missing >= beyond else (high, most)
        rest -= sum(bound[seat] for seat in settled)
        gone = set(settled)
        free = [seat for seat in free if seat not in gone]
    return level
