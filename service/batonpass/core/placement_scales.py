"""The scales on which tasks of different weights are put: loads, bands around quotas, and what covers a low seat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Final

from batonpass.core.placement_actives import Held, fill_pools
from batonpass.core.placement_bounds import water_level
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_types import NOBODY

TOLERANCE: Final = 1e-9
Lots = list[tuple[float, list[int]]]


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
    """

    __slots__ = ("_lots", "_tasks", "draft", "held", "high", "load", "low", "quota", "slots", "weight")

    def __init__(self, draft: Draft, held: Held) -> None:
        request = draft.request
        self.draft = draft
        self.held = held
        self.weight = request.table.weight
        self.load = draft.weigh(held.homes)
        bound = [0.0] * len(self.load)
        for rank, seat in request.bound.items():
            home = request.home[rank]
            if request.table.stateful[rank]:
                bound[seat] += self.weight[rank]
                self.load[seat] += self.weight[rank]
                self.load[home] -= self.weight[rank] if home != NOBODY else 0.0
        self.slots = [
            limit - free - fixed for limit, free, fixed in zip(draft.stateful_limit, held.free, held.bound, strict=True)
        ]
        self._tasks: dict[int, list[int]] | None = None
        self._lots: dict[int, Lots] = {}
        self._set_bands(list(self.load) if request.balance_held else bound)

    def _set_bands(self, least: Sequence[float]) -> None:
        draft, weight = self.draft, self.weight
        total = sum(self.load[seat] for seat in draft.open) + sum(weight[rank] for rank in self.held.homeless)
        level = water_level(
            [0.0] * len(draft.open),
            [draft.capacity[seat] for seat in draft.open],
            [least[seat] for seat in draft.open],
            [total] * len(draft.open),
            total,
        )
        slack = max(draft.request.table.stateful_weights) + TOLERANCE * max(1.0, total)
        self.quota = [max(least[seat], level * capacity) for seat, capacity in enumerate(draft.capacity)]
        self.low = [quota - slack for quota in self.quota]
        self.high = [max(quota + slack, floor) for quota, floor in zip(self.quota, least, strict=True)]

    def lots(self, seat: int) -> Lots:
        """Return the tasks that may leave an open seat, heaviest first, those of one weight together.

        Within a weight, tasks under way come first, then those with little state.
        """
        lots = self._lots.get(seat)
        if lots is None:
            if self._tasks is None:
                self._tasks = {one: [] for one in self.draft.open}
                fill_pools(self._tasks, self.held, self.draft.request.bound)
            request, by_weight = self.draft.request, dict[float, list[int]]()
            for rank in self._tasks[seat]:
                by_weight.setdefault(self.weight[rank], []).append(rank)

            def order(rank: int) -> tuple[bool, bool, int, int]:
                return rank not in request.warming, rank not in request.previous, request.state_size(rank), rank

            lots = [(weight, sorted(by_weight[weight], key=order)) for weight in sorted(by_weight, reverse=True)]
            self._lots[seat] = lots
        return lots

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
        shed = 0
        for seat in self.draft.open:
            excess = self.load[seat] - self.high[seat]
            if excess > 0:
                shed += _how_many([(weight, len(ranks)) for weight, ranks in self.lots(seat)], excess)
        lacks = [lack for seat in self.draft.open if (lack := self.low[seat] - self.load[seat]) > 0]
        if not lacks:
            return shed
        closed = self.draft.closed
        weights = self.draft.request.table.stateful_weights
        movable = Counter(weight for weight, home in zip(weights, self.held.homes, strict=True) if not closed[home])
        homeless = Counter(self.weight[rank] for rank in self.held.homeless)
        heaviest = sorted(movable.items(), reverse=True)
        everything = sorted((movable + homeless).items(), reverse=True)
        needed = sum(_how_many(everything, lack) for lack in lacks) - homeless.total()
        by_weight = _how_many(heaviest, sum(lacks) - sum(weight * count for weight, count in homeless.items()))
        return max(shed, needed, by_weight)


def _how_many(weights: Sequence[tuple[float, int]], lack: float) -> int:
    """Return how many tasks, heaviest first, it takes to make up for what lacks, given how many there are of each."""
    taken = 0
    for weight, count in weights:
        if lack <= 0:
            break
        some = min(count, ceil(lack / weight))
        lack -= some * weight
        taken += some
    return taken
