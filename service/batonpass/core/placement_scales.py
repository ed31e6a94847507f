"""The scales on which tasks of different weights are put: loads, bands around quotas, and what covers a low seat."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from batonpass.core.placement_actives import Held
from batonpass.core.placement_bounds import water_level
from batonpass.core.placement_draft import Draft

TOLERANCE: Final = 1e-9


class Scales:
    """Loads of the open seats with every task at home, and how far they may be from the quotas.

    Attributes:
        draft: what is being placed.
        held: who has what.
        weight: per rank.
        load: per seat, the weight of its tasks at home.
        quota: per seat, its part of all weight by capacity.
        low: per seat, the least load within its band.
        high: per seat, the greatest load within its band.
        slots: per seat, how many more tasks its limit lets in.
        tasks: per open seat, the tasks that may leave it, heaviest first.
    """

    __slots__ = ("draft", "held", "high", "load", "low", "quota", "slots", "tasks", "weight")

    def __init__(self, draft: Draft, held: Held) -> None:
        request = draft.request
        self.draft = draft
        self.held = held
        self.weight = request.table.weight
        seats = len(draft.capacity)
        self.load = [0.0] * seats
        self.tasks: dict[int, list[int]] = {seat: [] for seat in draft.open}
        bound = [0.0] * seats
        counts = [0] * seats
        for rank in held.ranks:
            seat = draft.owner[rank]
            if seat in self.tasks:
                self.load[seat] += self.weight[rank]
                counts[seat] += 1
                if rank in request.bound:
                    bound[seat] += self.weight[rank]
                else:
                    self.tasks[seat].append(rank)
        for tasks in self.tasks.values():
            tasks.sort(key=lambda rank: (-self.weight[rank], rank))
        self.slots = [limit - count for limit, count in zip(draft.limit, counts, strict=True)]
        self._set_bands(list(self.load) if request.balance_held else bound)

    def _set_bands(self, least: Sequence[float]) -> None:
        draft, weight = self.draft, self.weight
        placed = [rank for rank in self.held.ranks if rank not in draft.waiting]
        total = sum(self.load[seat] for seat in draft.open) + sum(weight[rank] for rank in self.held.homeless)
        heaviest = max((weight[rank] for rank in placed), default=0.0)
        level = water_level(
            [0.0] * len(draft.open),
            [draft.capacity[seat] for seat in draft.open],
            [least[seat] for seat in draft.open],
            [total] * len(draft.open),
            total,
        )
        slack = heaviest + TOLERANCE * max(1.0, total)
        self.quota = [max(least[seat], level * capacity) for seat, capacity in enumerate(draft.capacity)]
        self.low = [quota - slack for quota in self.quota]
        self.high = [max(quota + slack, floor) for quota, floor in zip(self.quota, least, strict=True)]

    def loads_without(self, leaving: Collection[int]) -> list[float]:
        """Return the loads if these tasks left their homes."""
        loads = list(self.load)
        for rank in leaving:
            loads[self.draft.owner[rank]] -= self.weight[rank]
        return loads

    def slots_without(self, leaving: Collection[int]) -> list[int]:
        """Return how many tasks the limits would let in if these tasks left their homes."""
        slots = list(self.slots)
        for rank in leaving:
            slots[self.draft.owner[rank]] += 1
        return slots

    def cover(self, loads: list[float], items: Sequence[int], slots: Sequence[int]) -> dict[int, int] | None:
        """Put some of the items (heaviest first) on the seats below their band so that none is left below.

        Returns:
            The seat of each item that it took; None, if neither way that is tried gets there. The loads are changed.
        """
        lows = [seat for seat in self.draft.open if loads[seat] < self.low[seat]]
        if not lows:
            return {}
        first = list(loads)
        found = self._cover_deepest(first, items, {seat: slots[seat] for seat in lows})
        if any(first[seat] < self.low[seat] for seat in lows):
            first = list(loads)
            found = self._cover_snugly(first, items, {seat: slots[seat] for seat in lows})
        loads[:] = first
        return None if any(first[seat] < self.low[seat] for seat in lows) else found

    def _cover_deepest(self, loads: list[float], items: Sequence[int], lows: dict[int, int]) -> dict[int, int]:
        """Give the heaviest item to the seat that lacks most, again and again."""
        heap = [(loads[seat] - self.low[seat], seat) for seat, slots in lows.items() if slots > 0]
        heapify(heap)
        taken: dict[int, int] = {}
        for rank in items:
            if not heap:
                break
            _, seat = heappop(heap)
            taken[rank] = seat
            loads[seat] += self.weight[rank]
            lows[seat] -= 1
            if loads[seat] < self.low[seat] and lows[seat] > 0:
                heappush(heap, (loads[seat] - self.low[seat], seat))
        return taken

    def _cover_snugly(self, loads: list[float], items: Sequence[int], lows: dict[int, int]) -> dict[int, int]:
        """Give each seat, the lowest first, the lightest item that is enough, or else the heaviest that there is."""
        left = list(items)
        taken: dict[int, int] = {}
        for seat in sorted(lows, key=lambda seat: (loads[seat] - self.low[seat], seat)):
            while left and loads[seat] < self.low[seat] and lows[seat] > 0:
                lows[seat] -= 1
                lack = self.low[seat] - loads[seat]
                enough = [rank for rank in left if self.weight[rank] >= lack]
                rank = enough[-1] if enough else left[0]
                left.remove(rank)
                taken[rank] = seat
                loads[seat] += self.weight[rank]
        return taken

    def least_moves(self) -> int:
        """Return how many tasks that have an owner must move at least, whatever is done with the homeless ones.

        Every seat above its band sheds no fewer than its heaviest tasks take; every seat below it needs no fewer than
        the heaviest tasks of all take, and what comes to these seats is homeless or has moved.
        """
        weight = self.weight
        shed = 0
        for seat, tasks in self.tasks.items():
            excess = self.load[seat] - self.high[seat]
            for rank in tasks:
                if excess <= 0:
                    break
                excess -= weight[rank]
                shed += 1
        lacks = [lack for seat in self.tasks if (lack := self.low[seat] - self.load[seat]) > 0]
        if not lacks:
            return shed
        homeless = sorted((weight[rank] for rank in self.held.homeless), reverse=True)
        movable = sorted((weight[rank] for tasks in self.tasks.values() for rank in tasks), reverse=True)
        everything = sorted([*homeless, *movable], reverse=True)
        needed = sum(_how_many(everything, lack) for lack in lacks) - len(homeless)
        by_weight = _how_many(movable, sum(lacks) - sum(homeless))
        return max(shed, needed, by_weight)


def _how_many(weights: Sequence[float], lack: float) -> int:
    """Return how many of the weights, heaviest first, it takes to make up for what lacks."""
    count = 0
    for weight in weights:
        if lack <= 0:
            break
        lack -= weight
        count += 1
    return count
