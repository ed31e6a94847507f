"""The exchange of tasks for which no seat is warmer than another: even subtopologies, little state first.

Every seat should run its part, by capacity, of each subtopology. How many tasks a seat gives or takes is settled; what
is chosen here is from which subtopology. A price says how much further from even a choice leads (the growth of the
squared distance from the part, by capacity); the cheapest pair of giver and taker goes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heapreplace
from itertools import cycle
from math import floor
from typing import Final

from batonpass.core.placement_bounds import PLACES
from batonpass.core.placement_evening import Cells, Evening
from batonpass.core.placement_evenness import Evenness
from batonpass.core.placement_exchange import Exchange
from batonpass.core.placement_types import NOBODY, PlacementRequest, size_unknown

Entry = tuple[float, float, int]
Taker = tuple[float, float, float, int]
Offer = tuple[float, float, int, int, int]
TINY: Final = 1e-9


class Spread:
    """One run over what is left of an exchange."""

    __slots__ = ("cold", "even", "exchange", "givers", "lots", "offers", "request", "subtopology", "takers", "unknown")

    def __init__(
        self, exchange: Exchange, even: Evenness, request: PlacementRequest, unknown: AbstractSet[tuple[int, int]]
    ) -> None:
        self.exchange = exchange
        self.even = even
        self.request = request
        self.subtopology = request.table.subtopology
        self.unknown = unknown
        self.takers: dict[int, list[Taker]] = {}
        self.givers: dict[int, list[Entry]] = {}
        self.cold: list[int] = []
        self.offers: dict[int, Offer] = {}
        self.lots: dict[int, dict[int, list[int]]] = {}

    def run(self) -> None:
        """Exchange everything that is left, homeless tasks first: these have no choice of subtopology."""
        exchange = self.exchange
        gifts, places = list(exchange.may), list(exchange.extra)
        self._exchange_all()
        if len(self.even.part) > 1 and self.cold:
            cells = Cells(exchange, self.subtopology, self.cold)
            Evening(self.even, cells, gifts, places).run()

    def _exchange_all(self) -> None:
        exchange = self.exchange
        homeless = [rank for rank in exchange.homeless if rank not in exchange.moved]
        only = exchange.receivers[:2]
        for rank in homeless:
            self._go(rank, NOBODY, only[0] if len(only) == 1 else self._taker_for(rank))
        if not exchange.left:
            return
        self._pour()
        self.takers.clear()
        if exchange.left:
            self._list_givers()
        while exchange.left:
            self._give_one()

    def _pour(self) -> None:
        """Move at once what takes both seats closer to even, where that is no more than what has to be moved.

        Every seat that has to give has more than its part of the subtopology, even without these tasks, and every seat
        that takes them has less, even with them.
        """
        exchange = self.exchange
        above = {seat: self._beyond(seat, 1) for seat in exchange.pools if exchange.must[seat]}
        below = {seat: self._beyond(seat, -1) for seat in exchange.receivers if exchange.room[seat]}
        if any(sum(parts) > exchange.must[seat] for seat, parts in above.items()):
            return
        if any(sum(parts) > exchange.room[seat] for seat, parts in below.items()):
            return
        for subtopology in range(len(self.even.part)):
            taking = deque((seat, parts[subtopology]) for seat, parts in below.items() if parts[subtopology])
            for source, parts in above.items():
                lot = self._lots(source).get(subtopology, []) if parts[subtopology] and taking else []
                for _ in range(min(parts[subtopology], len(lot))):
                    if not taking:
                        break
                    target, room = taking.popleft()
                    self._give(lot, source, target)
                    if room > 1:
                        taking.append((target, room - 1))

    def _beyond(self, seat: int, side: int) -> list[int]:
        """Return per subtopology by how many whole tasks the seat is above (1) or below (-1) its part."""
        even = self.even
        if len(even.part) == 1:
            return [self.exchange.must[seat] if side > 0 else self.exchange.room[seat]]
        capacity = even.capacity[seat]
        return [
            max(0, floor(side * (count - part * capacity) + TINY))
            for count, part in zip(even.counts[seat], even.part, strict=True)
        ]

    def _go(self, rank: int, source: int, target: int) -> None:
        self.exchange.move(rank, source, target)
        self.even.shift(self.subtopology[rank], source, target)
        self.cold.append(rank)

    def _taking(self, seat: int, subtopology: int) -> Taker:
        exchange = self.exchange
        room = exchange.room[seat] + exchange.extra[seat]
        capacity = self.even.capacity[seat]
        return self.even.price_in(seat, subtopology), -room / capacity, exchange.have[seat] / capacity, seat

    def _taker(self, subtopology: int) -> Taker:
        """Return the best taker, by price, then the emptiest; prices only rise, so a stale entry is never too dear."""
        heap = self.takers.get(subtopology)
        if heap is None:
            heap = [self._taking(seat, subtopology) for seat in self.exchange.receivers]
            heapify(heap)
            self.takers[subtopology] = heap
        while True:
            top = heap[0]
            if not self.exchange.takes(top[3]):
                heappop(heap)
                continue
            entry = self._taking(top[3], subtopology)
            if entry == top:
                return top
            heapreplace(heap, entry)

    def _taker_for(self, rank: int) -> int:
        subtopology = self.subtopology[rank]
        *_, seat = self._taker(subtopology)
        if (rank, seat) in self.unknown:
            known = [other for other in self.exchange.receivers if (rank, other) not in self.unknown]
            return min((self._taking(other, subtopology) for other in known), default=(0.0, 0.0, 0.0, seat))[3]
        return seat

    def _list_givers(self) -> None:
        """List per subtopology the seats that can give a task of it, by price and by the size of their smallest."""
        exchange, even = self.exchange, self.even
        sizes_known = self.request.state_size is not size_unknown
        for seat in exchange.pools:
            if not exchange.gives(seat):
                continue
            if sizes_known or len(even.part) == 1:
                offered = {
                    subtopology: float(self.request.state_size(lot[-1])) if sizes_known else 0.0
                    for subtopology, lot in self._lots(seat).items()
                    if lot
                }
            else:
                offered = {subtopology: 0.0 for subtopology, count in enumerate(even.counts[seat]) if count}
            prices = even.prices_out(seat)
            for subtopology, size in offered.items():
                self.givers.setdefault(subtopology, []).append((prices[subtopology], size, seat))
        for heap in self.givers.values():
            heapify(heap)

    def _lots(self, seat: int) -> dict[int, list[int]]:
        """Divide what a seat may give by subtopology, each lot so that its last task is the first to go."""
        lots = self.lots.get(seat)
        if lots is None:
            lots = {}
            for rank in self.exchange.pools[seat]:
                if rank not in self.exchange.moved:
                    lots.setdefault(self.subtopology[rank], []).append(rank)
            doubtful = {rank for rank, _ in self.unknown}
            size = self.request.state_size
            for lot in lots.values():
                lot.sort(key=lambda rank: (rank in doubtful, size(rank), rank), reverse=True)
            self.lots[seat] = lots
        return lots

    def _giver(self, subtopology: int) -> Entry | None:
        """Return price, size and seat of the best giver of a subtopology."""
        heap = self.givers[subtopology]
        while heap:
            price, size, seat = heap[0]
            if not self.exchange.gives(seat):
                heappop(heap)
                continue
            now = self.even.price_out(seat, subtopology)
            if now == price:
                return heap[0]
            heapreplace(heap, (now, size, seat))
        return None

    def _give_one(self) -> None:
        """Let the cheapest pair of giver and taker exchange a task."""
        exchange = self.exchange
        for subtopology in self.givers:
            offer = self.offers.get(subtopology)
            if offer is None or not exchange.gives(offer[3]) or not exchange.takes(offer[4]):
                self._offer(subtopology)
        _, _, subtopology, source, target = min(self.offers.values())
        del self.offers[subtopology]
        lot = self._lots(source).get(subtopology)
        if lot:
            self._give(lot, source, target)
        else:
            heappop(self.givers[subtopology])

    def _offer(self, subtopology: int) -> None:
        """Note the cheapest pair of giver and taker of a subtopology, if there is one."""
        giver = self._giver(subtopology)
        self.offers.pop(subtopology, None)
        if giver is not None:
            price, _, _, taker = self._taker(subtopology)
            self.offers[subtopology] = (round(giver[0] + price, PLACES), giver[1], subtopology, giver[2], taker)

    def _give(self, lot: list[int], source: int, target: int) -> None:
        """Let a task of a lot go, if possible one whose state at the target is not in doubt."""
        position = len(lot) - 1
        if self.unknown:
            known = (place for place in reversed(range(len(lot))) if (lot[place], target) not in self.unknown)
            position = next(known, position)
        self._go(lot.pop(position), source, target)


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
