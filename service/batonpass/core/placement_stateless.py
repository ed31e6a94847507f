"""Target owners of stateless tasks: they level the total load of actives, and move no more than that takes.

A task is where it should be when going to any other seat would not lower the higher load per capacity of the two. There
is nothing to restore, so nothing else speaks for one seat or another but the subtopology.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

from batonpass.core.placement_actives import Held, fill_pools, fit, give_up, take_stock
from batonpass.core.placement_bounds import PLACES, level_counts
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_evenness import Evenness
from batonpass.core.placement_exchange import Exchange
from batonpass.core.placement_spread import Spread, deal
from batonpass.core.placement_types import NOBODY, WaitReason


def place_stateless(draft: Draft, load: Sequence[float]) -> None:
    """Give every stateless task a target, on top of the stateful load of each seat."""
    table = draft.request.table
    held = take_stock(draft, table.stateless_ranks, stateful=False)
    held.homeless[:] = fit(draft, held, draft.actives)
    weights = {table.weight[rank] for rank in table.stateless_ranks}
    if len(weights) == 1 and not draft.restricted:
        unit = table.weight[table.stateless_ranks[0]]
        _level_counts(draft, held, [part / unit for part in load])
    else:
        _level_loads(draft, held, list(load))


def _limits(draft: Draft, held: Held) -> tuple[list[int], list[int]]:
    """Return the fewest and the most stateless tasks of each open seat."""
    least, most = [], []
    for seat in draft.open:
        limit = max(draft.limit[seat] - draft.actives[seat], held.bound[seat])
        least.append(min(held.total(seat), limit) if draft.request.balance_held else held.bound[seat])
        most.append(limit)
    return least, most


def _level_counts(draft: Draft, held: Held, load: Sequence[float]) -> None:
    """Place tasks that weigh the same; loads are in units of their weight."""
    least, most = _limits(draft, held)
    have = [held.total(seat) for seat in draft.open]
    count = min(sum(have) + len(held.homeless), sum(most))
    counts = level_counts(
        [load[seat] for seat in draft.open], [draft.capacity[seat] for seat in draft.open], (least, most, have), count
    )
    seats = len(draft.capacity)
    must, room = [0] * seats, [0] * seats
    for index, seat in enumerate(draft.open):
        must[seat] = max(0, have[index] - counts[index])
        room[seat] = max(0, counts[index] - have[index])
    pools: dict[int, list[int]] = {seat: [] for seat in draft.open if must[seat]}
    if pools:
        fill_pools(pools, held, draft.request.bound)
    none = [False] * seats
    exchange = Exchange(
        owner=draft.owner,
        homeless=held.homeless,
        pools=pools,
        must=must,
        may=none,
        spare=0,
        room=room,
        extra=none,
        spare_room=0,
        fixed=draft.request.bound,
        kind=draft.request.table.stateful,
        stateful=False,
        have=[held.total(seat) for seat in range(seats)],
    )
    if exchange.left and (any(have) or not deal(exchange, draft.capacity)):
        table = draft.request.table
        even = Evenness(table, draft.owner, draft.open, draft.capacity)
        Spread(exchange, even, draft.request, frozenset()).run()
    give_up(draft, exchange)


def _level_loads(draft: Draft, held: Held, load: list[float]) -> None:
    """Place tasks of different weights: what has no owner goes heaviest first, then the highest loads are lowered."""
    board = _Board(draft, held, load)
    weight = draft.request.table.weight
    newest = draft.request.table.topology_epoch
    for rank in sorted(held.homeless, key=lambda rank: (-newest[rank] if draft.restricted else 0, -weight[rank], rank)):
        board.place(rank)
    for seat in draft.open:
        board.shed(seat)
    while not draft.request.balance_held and board.lower_one():
        pass


class _Board:
    """Loads and free slots per open seat, and the stateless tasks that each could give away, lightest first."""

    __slots__ = ("_lows", "draft", "load", "slots", "tasks", "weight")

    def __init__(self, draft: Draft, held: Held, load: list[float]) -> None:
        request = draft.request
        self.draft = draft
        self.load = load
        self.weight = request.table.weight
        self.slots = [limit - actives for limit, actives in zip(draft.limit, draft.actives, strict=True)]
        self.tasks: dict[int, list[tuple[float, int]]] = {seat: [] for seat in draft.open}
        for rank in held.ranks:
            seat = draft.owner[rank]
            if seat in self.tasks:
                self.load[seat] += self.weight[rank]
                self.slots[seat] -= 1
                if rank not in request.bound:
                    self.tasks[seat].append((self.weight[rank], rank))
        for tasks in self.tasks.values():
            tasks.sort()
        # Of seats of equal capacity the lowest is the best for a task of any weight. Entries that a later change has
        # made stale are dropped where they come up.
        self._lows: dict[float, list[tuple[float, int]]] = {}
        for seat in draft.open:
            self._lows.setdefault(draft.capacity[seat], []).append((self.load[seat], seat))
        for heap in self._lows.values():
            heapify(heap)

    def lowest(self, rank: int) -> tuple[float, int]:
        """Return the least load per capacity that the task makes on any seat, and that seat: `NOBODY` without one."""
        weight = self.weight[rank]
        best = (inf, NOBODY)
        if self.draft.restricted:
            for seat in self.draft.open:
                if self.slots[seat] > 0 and self.draft.takes(rank, seat):
                    best = min(best, (round((self.load[seat] + weight) / self.draft.capacity[seat], PLACES), seat))
            return best
        for capacity, heap in self._lows.items():
            while heap and (heap[0][0] != self.load[heap[0][1]] or self.slots[heap[0][1]] <= 0):
                heappop(heap)
            if heap:
                best = min(best, (round((heap[0][0] + weight) / capacity, PLACES), heap[0][1]))
        return best

    def place(self, rank: int) -> None:
        """Place a task that nobody has on the seat that it makes lowest."""
        _, seat = self.lowest(rank)
        if seat == NOBODY:
            self.draft.wait(rank, WaitReason.NO_CAPACITY)
        else:
            self.put(rank, seat)

    def put(self, rank: int, seat: int) -> None:
        """Place a task that nobody has."""
        self.draft.owner[rank] = seat
        insort(self.tasks[seat], (self.weight[rank], rank))
        self._change(seat, self.weight[rank], -1)

    def take(self, rank: int, seat: int) -> None:
        """Take a task away from a seat."""
        self.tasks[seat].remove((self.weight[rank], rank))
        self._change(seat, -self.weight[rank], 1)

    def _change(self, seat: int, weight: float, slots: int) -> None:
        self.load[seat] += weight
        self.slots[seat] += slots
        heappush(self._lows[self.draft.capacity[seat]], (self.load[seat], seat))

    def shed(self, seat: int) -> None:
        """Take from a seat what goes beyond its limit, lightest first; what fits nowhere else waits."""
        while self.slots[seat] < 0 and self.tasks[seat]:
            _, rank = self.tasks[seat][0]
            self.take(rank, seat)
            self.place(rank)

    def _offers(self, seat: int) -> list[tuple[float, int]]:
        """Return the tasks to look at when a seat is to be lowered: where all may go anywhere, one of each weight."""
        if self.draft.restricted:
            return self.tasks[seat]
        return list({weight: (weight, rank) for weight, rank in reversed(self.tasks[seat])}.values())

    def lower_one(self) -> bool:
        """Lower the highest load that one task can lower by going elsewhere; return False if there is none."""
        capacity, load = self.draft.capacity, self.load
        heights = sorted((-round(load[seat] / capacity[seat], PLACES), seat) for seat in self.draft.open)
        for negative, seat in heights:
            best = (-negative, 0.0, NOBODY, NOBODY)
            for weight, rank in self._offers(seat):
                height, target = self.lowest(rank)
                left = round((load[seat] - weight) / capacity[seat], PLACES)
                best = min(best, (max(height, left), -weight, rank, target))
            if best[3] != NOBODY and best[0] < -negative:
                self.take(best[2], seat)
                self.put(best[2], best[3])
                return True
        return False
