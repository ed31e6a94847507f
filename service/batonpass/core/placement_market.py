"""The market of tasks that seats can do without: where a seat that is too low finds what it lacks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from heapq import heapify, heappop, heapreplace
from itertools import chain

from batonpass.core.placement_scales import Scales
from batonpass.core.placement_types import NOBODY

Offer = tuple[bool, float, int]


class Market:
    """What every seat can give without falling below its band, by weight.

    Tasks whose move is under way are given first, then those of the fullest seats.
    """

    __slots__ = ("loads", "lots", "offers", "scales", "weights")

    def __init__(self, scales: Scales, leaving: Collection[int]) -> None:
        self.scales = scales
        self.loads = scales.loads_without(leaving)
        self.lots: dict[tuple[float, int], list[int]] = {}
        self.offers: dict[float, list[Offer]] = {}
        for seat in scales.draft.open:
            for weight, ranks in scales.lots(seat):
                if self.loads[seat] - weight >= scales.low[seat]:
                    self.lots[weight, seat] = [rank for rank in reversed(ranks) if rank not in leaving]
                    self.offers.setdefault(weight, []).append(self._offer(weight, seat))
        for heap in self.offers.values():
            heapify(heap)
        self.weights = sorted(self.offers)

    def _offer(self, weight: float, seat: int) -> Offer:
        draft = self.scales.draft
        new = not any(rank in draft.request.warming for rank in self.lots[weight, seat][-1:])
        return new, (self.scales.quota[seat] - self.loads[seat]) / draft.capacity[seat], seat

    def take(self, lack: float) -> int:
        """Take the lightest task that makes up for the lack, or else the heaviest; `NOBODY` if there is none left."""
        enough = bisect_left(self.weights, lack)
        for place in chain(range(enough, len(self.weights)), range(enough - 1, -1, -1)):
            rank = self._take(self.weights[place])
            if rank != NOBODY:
                return rank
        return NOBODY

    def _take(self, weight: float) -> int:
        """Take a task of one weight from the fullest seat that has one."""
        heap = self.offers[weight]
        while heap:
            seat = heap[0][2]
            offer = self._offer(weight, seat)
            if not self.lots[weight, seat] or self.loads[seat] - weight < self.scales.low[seat]:
                heappop(heap)
            elif offer != heap[0]:
                heapreplace(heap, offer)
            else:
                self.loads[seat] -= weight
                return self.lots[weight, seat].pop()
        return NOBODY
