"""The exchange of tasks for which no seat is warmer than another: even subtopologies, little state first.

Every seat should run its part, by capacity, of each subtopology. How many tasks a seat gives or takes is settled; what
is chosen here is from which subtopology. A price says how much further from even a choice leads (the growth of the
squared distance from the part, by capacity); the cheapest pair of giver and taker goes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush, heapreplace
from itertools import cycle

from batonpass.core.placement_exchange import Exchange
from batonpass.core.placement_types import NOBODY, TaskTable

Offer = tuple[float, int, int, int, int]


class Evenness:
    """How many tasks of each subtopology each seat runs, and what one more or one less would cost.

    Attributes:
        counts: per seat and subtopology, the tasks that it runs so far.
        part: per subtopology, its tasks per unit of capacity.
        capacity: per seat.
    """

    __slots__ = ("capacity", "counts", "part")

    def __init__(self, table: TaskTable, owner: Sequence[int], seats: Sequence[int], capacity: Sequence[float]) -> None:
        total = sum(capacity[seat] for seat in seats)
        self.capacity = capacity
        self.counts = {seat: [0] * table.subtopologies for seat in seats}
        self.part = [0.0] * table.subtopologies
        start = 0
        for subtopology, size in sorted(Counter(table.subtopology).items()):
            self.part[subtopology] = size / total
            if table.subtopologies > 1:
                for seat, count in Counter(owner[start : start + size]).items():
                    if seat in self.counts:
                        self.counts[seat][subtopology] = count
            start += size

    def price_in(self, seat: int, subtopology: int) -> float:
        """Return the price of one more task of the subtopology on the seat."""
        capacity = self.capacity[seat]
        return (2 * (self.counts[seat][subtopology] - self.part[subtopology] * capacity) + 1) / capacity

    def price_out(self, seat: int, subtopology: int) -> float:
        """Return the price of one task less of the subtopology on the seat."""
        capacity = self.capacity[seat]
        return (1 - 2 * (self.counts[seat][subtopology] - self.part[subtopology] * capacity)) / capacity

    def shift(self, subtopology: int, source: int, target: int) -> None:
        """Count a task on another seat."""
        if source in self.counts:
            self.counts[source][subtopology] -= 1
        self.counts[target][subtopology] += 1


class Spread:
    """One run over what is left of an exchange."""

    __slots__ = ("even", "exchange", "lots", "moves", "size", "subtopology", "takers", "unknown")

    def __init__(
        self,
        exchange: Exchange,
        even: Evenness,
        subtopology: Sequence[int],
        *,
        size: Callable[[int], int],
        unknown: AbstractSet[tuple[int, int]],
    ) -> None:
        self.exchange = exchange
        self.even = even
        self.subtopology = subtopology
        self.size = size
        self.unknown = unknown
        self.takers: dict[int, list[tuple[float, float, int]]] = {}
        self.lots: dict[tuple[int, int], list[int]] = {}
        self.moves: list[int] = []

    def run(self) -> None:
        """Exchange everything that is left, homeless tasks first: these have no choice of subtopology."""
        for rank, source in [move for move in self.exchange.movable() if move[1] == NOBODY]:
            self._go(rank, source, self._taker_for(rank))
        self._sort_lots()
        self._give()

    def _go(self, rank: int, source: int, target: int) -> None:
        self.exchange.move(rank, source, target)
        self.even.shift(self.subtopology[rank], source, target)
        self.moves.append(rank)

    def _entry(self, seat: int, subtopology: int) -> tuple[float, float, int]:
        exchange = self.exchange
        room = exchange.room[seat] + exchange.extra[seat]
        return self.even.price_in(seat, subtopology), -room / self.even.capacity[seat], seat

    def _taker(self, subtopology: int) -> tuple[float, float, int]:
        """Return price, filling and seat of the best taker; prices only rise, so a stale entry is never too dear."""
        heap = self.takers.get(subtopology)
        if heap is None:
            heap = [self._entry(seat, subtopology) for seat in self.exchange.receivers]
            heapify(heap)
            self.takers[subtopology] = heap
        while True:
            top = heap[0]
            if not self.exchange.takes(top[2]):
                heappop(heap)
                continue
            entry = self._entry(top[2], subtopology)
            if entry == top:
                return top
            heapreplace(heap, entry)

    def _taker_for(self, rank: int) -> int:
        subtopology = self.subtopology[rank]
        _, _, seat = self._taker(subtopology)
        if (rank, seat) in self.unknown:
            known = [other for other in self.exchange.receivers if (rank, other) not in self.unknown]
            return min((self._entry(other, subtopology) for other in known), default=(0.0, 0.0, seat))[2]
        return seat

    def _sort_lots(self) -> None:
        """Divide what seats may give by subtopology, each lot so that its last task is the first to go."""
        doubtful = {rank for rank, _ in self.unknown}
        for rank, source in self.exchange.movable():
            self.lots.setdefault((source, self.subtopology[rank]), []).append(rank)
        for lot in self.lots.values():
            lot.sort(key=lambda rank: (rank in doubtful, self.size(rank), rank), reverse=True)

    def _offer(self, seat: int, subtopologies: Sequence[int]) -> Offer | None:
        """Return the cheapest task that the seat can give: price, size, rank, seat, taker."""
        best: Offer | None = None
        for subtopology in subtopologies:
            lot = self.lots[seat, subtopology]
            if lot:
                price, _, taker = self._taker(subtopology)
                price = round(price + self.even.price_out(seat, subtopology), 9)
                if best is None or price <= best[0]:
                    offer = (price, self.size(lot[-1]), lot[-1], seat, taker)
                    best = offer if best is None else min(best, offer)
        return best

    def _give(self) -> None:
        choices: dict[int, list[int]] = {}
        for seat, subtopology in sorted(self.lots):
            choices.setdefault(seat, []).append(subtopology)
        offers = [offer for seat, lots in choices.items() if (offer := self._offer(seat, lots)) is not None]
        heapify(offers)
        while offers and self.exchange.left:
            _, _, _, seat, _ = heappop(offers)
            if not self.exchange.gives(seat):
                continue
            offer = self._offer(seat, choices[seat])
            if offer is None:
                continue
            if offers and offer > offers[0]:
                heappush(offers, offer)
                continue
            self._go(offer[2], seat, offer[4])
            self.lots[seat, self.subtopology[offer[2]]].pop()
            if self.exchange.gives(seat) and self.exchange.left:
                again = self._offer(seat, choices[seat])
                if again is not None:
                    heappush(offers, again)


def deal(exchange: Exchange, capacity: Sequence[float]) -> bool:
    """Deal all homeless tasks in turn to equal seats that have nothing yet, which is as even as can be.

    Returns:
        False, with nothing dealt, where seats or their rooms are not equal enough for that.
    """
    receivers = exchange.receivers
    rooms = [exchange.room[seat] for seat in receivers]
    spare = exchange.spare_room
    for index, seat in enumerate(receivers):
        if spare and exchange.extra[seat]:
            rooms[index] += 1
            spare -= 1
    equal = len({capacity[seat] for seat in receivers}) == 1 and max(rooms) - min(rooms) <= 1
    if not equal or exchange.pools or exchange.moved:
        return False
    turn = [seat for _, seat in sorted(zip((-room for room in rooms), receivers, strict=True))]
    owner = exchange.owner
    for rank, seat in zip(exchange.homeless, cycle(turn), strict=False):
        owner[rank] = seat
    return True
