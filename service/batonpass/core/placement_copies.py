"""The board on which standbys are placed: who holds which, how full seats are, and who may hold one more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final

from batonpass.core.placement_bounds import PLACES
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_tags import Tags, Tiers
from batonpass.core.placement_types import NOBODY

# How many equally low seats are compared by how many copies of the same owner's tasks they hold already.
_LOOKAHEAD: Final = 4
# How many seats are looked at one by one rather than kept in order.
_FEW: Final = 16
ONE_TIER: Final[Tiers] = ((0,),)


class Standbys:
    """Standbys in the making.

    Attributes:
        copies: rank to the seats of its target standbys so far.
        count: per seat, the standbys that it is to hold.
        even: the standbys per unit of capacity, if all are placed.
        epochs: per seat, its topology epoch; empty where every seat may take every task.
        next_level: per seat, its standbys per capacity with one more.
        slots: per seat, how many more copies its limit lets in.
        tags: the kinds of seats.
        touched: the tasks whose copies were changed.
        wanted: the standbys that every task should have.
        with_slots: how many open seats take one more copy.
    """

    __slots__ = (
        "_by_kind",
        "_heaps",
        "_pairs",
        "capacity",
        "copies",
        "count",
        "draft",
        "epochs",
        "even",
        "next_level",
        "owner",
        "slots",
        "tags",
        "touched",
        "wanted",
        "with_slots",
    )

    def __init__(self, draft: Draft, tags: Tags, copies: list[tuple[int, ...]], ranks: Sequence[int]) -> None:
        self.draft = draft
        self.tags = tags
        self.owner = draft.owner
        self.copies = copies
        self.capacity = draft.capacity
        held = copies if len(ranks) == len(copies) else [copies[rank] for rank in ranks]
        self.count = draft.count(chain.from_iterable(held))
        self.slots = [
            limit - actives - count
            for limit, actives, count in zip(draft.limit, draft.actives, self.count, strict=True)
        ]
        seats = draft.request.seats
        self.epochs = [seat.topology_epoch for seat in seats] if draft.restricted else []
        self.wanted = draft.request.num_standby_replicas
        total = draft.request.num_standby_replicas * len(ranks)
        self.even = total / sum(self.capacity[seat] for seat in draft.open)
        self.touched: set[int] = set()
        self.next_level: list[float] = []
        self.with_slots = 0
        self.note_counts()
        self._by_kind: list[list[int]] = []
        self._heaps: list[list[tuple[float, int]]] = []
        self._pairs: Counter[int] | None = None

    def note_counts(self) -> None:
        """Note what follows from counts and slots that were set for all seats at once."""
        self.with_slots = sum(self.slots[seat] > 0 for seat in self.draft.open)
        self.next_level = [
            round((count + 1) / capacity, PLACES) for count, capacity in zip(self.count, self.capacity, strict=True)
        ]

    def may_hold(self, rank: int, seat: int) -> bool:
        """Tell whether the seat could hold a standby of the task, limits and tags aside."""
        return seat not in self.copies[rank] and self.may_stay(rank, seat)

    def may_stay(self, rank: int, seat: int) -> bool:
        """Tell whether a standby of the task may be on the seat, limits, tags and other copies aside."""
        if seat == self.owner[rank] or self.draft.closed[seat]:
            return False
        return not self.epochs or self.epochs[seat] >= self.draft.request.table.topology_epoch[rank]

    def level(self, seat: int) -> float:
        """Return the standbys per capacity of a seat."""
        return round(self.count[seat] / self.capacity[seat], PLACES)

    def put(self, rank: int, seat: int) -> None:
        """Add a copy."""
        self.copies[rank] = (*self.copies[rank], seat)
        self._change(rank, seat, 1)

    def drop(self, rank: int, seat: int) -> None:
        """Take a copy away."""
        self.copies[rank] = tuple(other for other in self.copies[rank] if other != seat)
        self._change(rank, seat, -1)

    def shift(self, rank: int, source: int, target: int) -> None:
        """Let a copy change seats."""
        self.copies[rank] = tuple([target if seat == source else seat for seat in self.copies[rank]])
        self._change(rank, source, -1)
        self._change(rank, target, 1)

    def _change(self, rank: int, seat: int, by: int) -> None:
        self.touched.add(rank)
        self.count[seat] += by
        if not self.draft.closed[seat]:
            self.with_slots += (self.slots[seat] > by) - (self.slots[seat] > 0)
        self.slots[seat] -= by
        self.next_level[seat] = round((self.count[seat] + 1) / self.capacity[seat], PLACES)
        if self._pairs is not None:
            self._pairs[self.owner[rank] * len(self.count) + seat] += by
        if self._heaps and not self.draft.closed[seat]:
            heappush(self._heaps[self.tags.kind[seat]], (self.next_level[seat], seat))

    def apart(self, rank: int) -> bool:
        """Tell whether the copies of a task are as far apart as tags want them."""
        if self.tags.kinds == 1:
            return True
        kind = self.tags.kind
        return self.tags.apart(kind[self.owner[rank]], tuple(sorted([kind[seat] for seat in self.copies[rank]])))

    def tiers(self, rank: int) -> Tiers:
        """Return the kinds that can hold the next copy of a task, best first."""
        if self.tags.kinds == 1:
            return ONE_TIER
        kind = self.tags.kind
        return self.tags.tiers(tuple(sorted([kind[self.owner[rank]], *[kind[seat] for seat in self.copies[rank]]])))

    def may_shift(self, rank: int, source: int, target: int) -> bool:
        """Tell whether a copy may go from one seat to another, limits aside, and its task's copies stay apart."""
        return self.may_hold(rank, target) and self.may_change_kind(rank, source, self.tags.kind[target])

    def may_change_kind(self, rank: int, source: int, new: int) -> bool:
        """Tell whether the task's copies stay apart when the one at the source goes to seats of another kind."""
        kind = self.tags.kind
        if kind[source] == new:
            return True
        kinds = [new if seat == source else kind[seat] for seat in self.copies[rank]]
        return self.tags.apart(kind[self.owner[rank]], tuple(sorted(kinds)))

    def is_low(self, seat: int) -> bool:
        """Tell whether one more standby leaves the seat within its even part."""
        return self.count[seat] < self.even * self.capacity[seat]

    def pairs(self, owner: int, seat: int) -> int:
        """Return how many standbys of one seat's tasks another seat holds."""
        return (self._pairs or self._count_pairs())[owner * len(self.count) + seat]

    def _count_pairs(self) -> Counter[int]:
        if self._pairs is None:
            seats = len(self.count)
            self._pairs = Counter(
                [owner * seats + seat for owner, held in zip(self.owner, self.copies, strict=True) for seat in held]
            )
        return self._pairs

    def lowest(self, rank: int, kinds: Iterable[int]) -> int:
        """Return the lowest seat of these kinds that may hold the task; `NOBODY` where there is none with a slot.

        Of seats equally low, the one with fewest copies of the same owner's tasks.
        """
        pairs, first = self._count_pairs(), self.owner[rank] * len(self.count)
        found: list[tuple[float, int, int]] = []
        for kind in kinds:
            found += [(self.next_level[seat], pairs[first + seat], seat) for seat in self._low_seats(rank, kind)]
        return min(found)[2] if found else NOBODY

    def _low_seats(self, rank: int, kind: int) -> list[int]:
        """Return seats of a kind that may hold the task, among them the first few of the lowest."""
        members = self._members()[kind]
        if len(members) > _FEW:
            return self._peek(rank, kind)
        return [seat for seat in members if self.slots[seat] > 0 and self.may_hold(rank, seat)]

    def _members(self) -> list[list[int]]:
        if not self._by_kind:
            self._by_kind = [[] for _ in range(self.tags.kinds)]
            for seat in self.draft.open:
                self._by_kind[self.tags.kind[seat]].append(seat)
        return self._by_kind

    def _peek(self, rank: int, kind: int) -> list[int]:
        """Return the first few of the lowest seats that may hold the task, leaving the heap as it was but for dross."""
        if not self._heaps:
            self._heaps = [[(self.next_level[seat], seat) for seat in members] for members in self._members()]
            for heap in self._heaps:
                heapify(heap)
        heap, next_level = self._heaps[kind], self.next_level
        fit: list[int] = []
        aside: list[tuple[float, int]] = []
        while heap and len(fit) < _LOOKAHEAD and (not fit or heap[0][0] == next_level[fit[0]]):
            entry = heappop(heap)
            level, seat = entry
            if level != next_level[seat] or (aside and aside[-1] == entry):
                continue
            aside.append(entry)
            if self.slots[seat] > 0 and self.may_hold(rank, seat):
                fit.append(seat)
        for entry in aside:
            heappush(heap, entry)
        return fit
