"""Where tasks of different weights go, once it is known which of them have to move.

All of it happens within the bands that balance allows, so it costs no move: on with a move under way, to where a task
is warm, to seats that are too low, and at last as it suits the subtopologies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, cycle
from typing import Final, NamedTuple

from batonpass.core.placement_evenness import Evenness
from batonpass.core.placement_scales import Scales
from batonpass.core.placement_types import NOBODY, Ready, WaitReason, stock

Wish = tuple[int, int]
Entry = tuple[float, float, int]


class Way(NamedTuple):
    """One way to settle.

    Attributes:
        sparing: wishes are granted to seats that are too low first, so that other low seats get something too.
        cover: low seats are brought up into their bands next.
        even: what is left goes as it suits the subtopologies, not heaviest first to the lowest seat.
    """

    sparing: bool
    cover: bool
    even: bool


WAYS: Final = (
    Way(sparing=False, cover=False, even=True),
    Way(sparing=False, cover=True, even=True),
    Way(sparing=False, cover=True, even=False),
    Way(sparing=True, cover=True, even=True),
    Way(sparing=True, cover=True, even=False),
)
# Lots of tasks of one subtopology and weight, up to which it pays to deal them one after the other.
_LOTS: Final = 64


class Settling:
    """The choice of a seat for every task that moves."""

    __slots__ = ("_even", "_heaps", "draft", "items", "leaving", "loads", "scales", "seat_of", "slots")

    def __init__(self, scales: Scales, leaving: Collection[int]) -> None:
        self.scales = scales
        self.draft = scales.draft
        self.leaving = leaving
        weight = scales.weight
        # What fewer seats may take goes first.
        epoch = self.draft.request.table.topology_epoch if self.draft.restricted else [0] * len(weight)
        items = [*scales.held.homeless, *leaving]
        self.items = sorted(items, key=lambda rank: (-epoch[rank], -weight[rank], rank))
        self.loads: list[float] = []
        self.slots: list[int] = []
        self.seat_of: dict[int, int] = {}
        self._even: Evenness | None = None
        self._heaps: dict[int, list[Entry]] = {}

    def run(self) -> None:
        """Settle every task, with as many of the wishes as leave all seats within their bands."""
        if not self.items:
            return
        wishes = self._wishes()
        if any(wishes) or not self._deal():
            self._settle_by_wish(wishes)
        for rank in self.items:
            if rank in self.seat_of:
                self.draft.owner[rank] = self.seat_of[rank]
            else:
                self.draft.wait(rank, WaitReason.NO_CAPACITY)

    def _deal(self) -> bool:
        """Deal everything in turn to equal seats that have nothing yet, one subtopology after the other.

        Each turn begins with the lowest seats, so that loads stay within the heaviest task of one another.

        Returns:
            False, with nothing dealt, where seats are not equal, or almost every task has a weight of its own.
        """
        draft, table = self.draft, self.draft.request.table
        lots: dict[tuple[float, int], list[int]] = {}
        for rank in self.items:
            lots.setdefault((-table.weight[rank], table.subtopology[rank]), []).append(rank)
        equal = len({draft.capacity[seat] for seat in draft.open}) == 1 and not any(self.scales.load)
        if not equal or draft.limited or draft.restricted or self.leaving or len(lots) > _LOTS:
            return False
        self._begin()
        for (negative, _), ranks in sorted(lots.items()):
            turn = sorted(draft.open, key=lambda seat: (self.loads[seat], seat))
            self.seat_of.update(zip(ranks, cycle(turn), strict=False))
            full, more = divmod(len(ranks), len(turn))
            for place, seat in enumerate(turn):
                self.loads[seat] -= negative * (full + (place < more))
        return True

    def _settle_by_wish(self, wishes: list[list[Wish]]) -> None:
        """Settle within the bands, granting what wishes can be granted."""
        if not self._settle(wishes):
            # No way is within the bands, so the one that grants most is as good as any.
            self._try([wish for group in wishes for wish in group], WAYS[0])

    def _settle(self, wishes: list[list[Wish]]) -> bool:
        """Try ways that grant less and less, until one leaves all seats within their bands."""
        for count in range(len(wishes), -1, -1):
            if count and not wishes[count - 1]:
                continue
            granted = [wish for group in wishes[:count] for wish in group]
            if any(self._try(granted, way) or self.draft.restricted for way in WAYS):
                return True
        return False

    def _try(self, wishes: Sequence[Wish], way: Way) -> bool:
        """Settle every task one way; return whether all seats are within their bands."""
        scales = self.scales
        self._begin()
        self._grant(wishes, only_low=way.sparing)
        if way.cover:
            self._cover()
        self._grant(wishes, only_low=False)
        self._place_rest(even=way.even)
        return all(scales.low[seat] <= self.loads[seat] <= scales.high[seat] for seat in self.draft.open)

    def _wishes(self) -> list[list[Wish]]:
        """Return where tasks would like to go, the strongest wishes first, in groups to be granted together."""
        request = self.draft.request
        items = set(self.items)
        weight = self.scales.weight
        # Light ones first: what covers a seat that is too low is the heavy ones.
        under_way = [(rank, seat) for rank, seat in sorted(request.warming.items()) if rank in items]
        under_way.sort(key=lambda wish: weight[wish[0]])
        queued = [(rank, seat) for rank, seat in sorted(request.previous.items()) if rank in items]
        stocked = stock(request, self.draft.open, len(items))
        ready: list[tuple[bool, int, int]] = []
        behind: list[tuple[int, int, bool, int, int]] = []
        for rank in sorted(items if stocked is None else items.intersection(chain.from_iterable(stocked.values()))):
            home = self.draft.owner[rank]
            for seat, (ready_class, lag) in request.warmth(rank).items():
                changes = request.previous.get(rank) != seat
                if seat != home and ready_class <= Ready.CAUGHT_UP:
                    ready.append((changes, rank, seat))
                elif seat != home and ready_class < Ready.NOTHING:
                    behind.append((ready_class, lag, changes, rank, seat))
        warm = [(rank, seat) for _, rank, seat in sorted(ready)]
        lagging = [(rank, seat) for *_, rank, seat in sorted(behind)]
        return [under_way, warm, lagging, queued]

    def _begin(self) -> None:
        """Start over."""
        scales = self.scales
        self.loads = scales.loads_without(self.leaving)
        self.slots = list(scales.slots)
        for rank in self.leaving:
            self.slots[self.draft.owner[rank]] += 1
        self.seat_of = {}

    def _grant(self, wishes: Iterable[Wish], *, only_low: bool) -> None:
        """Grant what wishes can be granted; to seats that are still too low, or to all."""
        for rank, seat in wishes:
            if only_low and self.loads[seat] >= self.scales.low[seat]:
                continue
            # Where limits or topologies put bands out of reach, what was settled stays settled.
            bent = self.draft.restricted or self.draft.limited
            meant = bent and self.draft.request.previous.get(rank) == seat and self._may(rank, seat)
            if rank not in self.seat_of and (meant or self._fits(rank, seat)):
                self._put(rank, seat)

    def _may(self, rank: int, seat: int) -> bool:
        return not self.draft.closed[seat] and self.slots[seat] > 0 and self.draft.takes(rank, seat)

    def _fits(self, rank: int, seat: int) -> bool:
        return self._may(rank, seat) and self.loads[seat] + self.scales.weight[rank] <= self.scales.high[seat]

    def _put(self, rank: int, seat: int) -> None:
        self.seat_of[rank] = seat
        self.loads[seat] += self.scales.weight[rank]
        self.slots[seat] -= 1

    def _cover(self) -> None:
        """Bring low seats up into their bands, if what is left can do that."""
        rest = [rank for rank in self.items if rank not in self.seat_of]
        covered = self.scales.cover(list(self.loads), rest, self.slots)
        for rank, seat in (covered or {}).items():
            self._put(rank, seat)

    def _place_rest(self, *, even: bool) -> None:
        """Place what is free to go anywhere: as it suits the subtopologies, or else the heaviest on the lowest."""
        self._even = self._counts() if even else None
        self._heaps = {}
        for rank in self.items:
            seat = self._best(rank) if rank not in self.seat_of else NOBODY
            if seat != NOBODY:
                self._put(rank, seat)
                if self._even is not None:
                    self._even.shift(self.draft.request.table.subtopology[rank], NOBODY, seat)

    def _counts(self) -> Evenness:
        owner = list(self.draft.owner)
        for rank in self.items:
            owner[rank] = self.seat_of.get(rank, NOBODY)
        return Evenness(self.draft.request.table, owner, self.draft.open, self.draft.capacity)

    def _entry(self, seat: int, subtopology: int) -> Entry:
        price = 0.0 if self._even is None else self._even.price_in(seat, subtopology)
        return price, (self.loads[seat] - self.scales.quota[seat]) / self.draft.capacity[seat], seat

    def _best(self, rank: int) -> int:
        """Return the best seat for a task within its band; failing that, the lowest that has a slot for it."""
        subtopology = self.draft.request.table.subtopology[rank] if self._even is not None else 0
        heap = self._heaps.get(subtopology)
        if heap is None:
            heap = [self._entry(seat, subtopology) for seat in self.draft.open]
            heapify(heap)
            self._heaps[subtopology] = heap
        aside: list[Entry] = []
        found = NOBODY
        while heap and found == NOBODY:
            entry = self._entry(heap[0][2], subtopology)
            if entry != heap[0]:
                heapreplace(heap, entry)
            elif self._fits(rank, entry[2]):
                found = entry[2]
            else:
                aside.append(heappop(heap))
        for entry in aside:
            heappush(heap, entry)
        if found != NOBODY:
            return found
        lowest = [
            (self.loads[seat] - self.scales.quota[seat], seat) for seat in self.draft.open if self._may(rank, seat)
        ]
        return min(lowest)[1] if lowest else NOBODY
