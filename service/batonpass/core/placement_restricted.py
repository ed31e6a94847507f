"""Target owners while some members do not know the newest topology yet: not every seat may take every task.

A task that asks for a topology epoch may go only to seats at or above it, so the seats for newer tasks are among the
seats for older ones. Where newer tasks are more than their seats' even part, these seats form a block of their own,
share those tasks evenly, and leave everything older to the others; blocks are found densest first. Newer tasks are then
placed before older ones, with as few evictions as their level lacks room.

What runs on a seat that does not know its topology may stay there, and can go only up. Where that leaves more of it
than the blocks have room for, it is relieved one by one, as long as that lowers the higher of two loads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from batonpass.core.placement_actives import Held, destinations, fit, stateless_running, take_stock
from batonpass.core.placement_bounds import Quotas, most_kept, quotas, water_level
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_evenness import Evenness
from batonpass.core.placement_types import NOBODY, Ready, WaitReason, Warmth

_NOTHING = Warmth(int(Ready.NOTHING), 0)


class _Block(NamedTuple):
    """Seats that share some tasks evenly: those that ask for at least ``epoch``.

    ``demand`` is, per epoch from there on, how many tasks these seats have to take.
    """

    epoch: int
    seats: list[int]
    quota: Quotas
    demand: dict[int, int]


def place_restricted(draft: Draft) -> int:
    """Give every stateful task a target, all of them weighing the same.

    Returns:
        A number of moves that no placement as balanced can do with less than.
    """
    held = take_stock(draft, draft.request.table.stateful_ranks, stateful=True)
    held.homeless[:] = fit(draft, held, stateless_running(draft))
    levels = _Levels(draft, held)
    blocks = levels.blocks()
    fewest = held.forced
    room = [0] * len(draft.capacity)
    for block in blocks:
        have = [held.total(seat) for seat in block.seats]
        fewest += sum(block.quota.floors) + block.quota.ceilings - most_kept(block.quota, have)
        for seat, count in levels.counts(block).items():
            room[seat] = count - held.total(seat)
    _Shuffle(draft, levels, room).run()
    return fewest


class _Levels:
    """The levels of topology epochs: which seats may take what, and how many tasks only they can take."""

    __slots__ = ("demand", "draft", "epochs", "free", "held", "need", "seat_epoch")

    def __init__(self, draft: Draft, held: Held) -> None:
        request = draft.request
        self.draft = draft
        self.held = held
        self.need = request.table.topology_epoch
        self.seat_epoch = [seat.topology_epoch for seat in request.seats]
        self.free: dict[int, list[int]] = {seat: [] for seat in draft.open}
        for rank, home in zip(held.ranks, held.homes, strict=True):
            if home in self.free and rank not in request.bound:
                self.free[home].append(rank)
        oldest = min(self.seat_epoch[seat] for seat in draft.open)
        self.epochs = sorted({oldest, *(self.need[rank] for rank in held.ranks if self.need[rank] > oldest)})
        self.demand = {epoch: self._demand(epoch) for epoch in self.epochs}

    def seats_for(self, epoch: int) -> list[int]:
        """Return the open seats that may take tasks of an epoch."""
        return [seat for seat in self.draft.open if self.seat_epoch[seat] >= epoch]

    def _demand(self, epoch: int) -> int:
        """Count what has to be on its seats: what asks for the epoch, but for what runs elsewhere, and what is bound.

        In a pause whatever runs there counts too, and the oldest level counts everything.
        """
        if epoch == self.epochs[0]:
            return sum(self.held.total(seat) for seat in self.draft.open) + len(self.held.homeless)
        seats = self.seats_for(epoch)
        homeless = sum(self.need[rank] >= epoch for rank in self.held.homeless)
        if self.draft.request.balance_held:
            return homeless + sum(self.held.total(seat) for seat in seats)
        running = sum(self.need[rank] >= epoch for seat in seats for rank in self.free[seat])
        return running + homeless + sum(self.held.bound[seat] for seat in seats)

    def blocks(self) -> list[_Block]:
        """Divide the seats into blocks, densest first."""
        draft, held = self.draft, self.held
        most = {seat: max(draft.stateful_limit[seat], held.bound[seat]) for seat in draft.open}
        least = {seat: held.bound[seat] for seat in draft.open}
        if draft.request.balance_held:
            least = {seat: min(held.total(seat), most[seat]) for seat in draft.open}
        left = dict(self.demand)
        rest = list(draft.open)
        found: list[_Block] = []
        while rest:
            candidates: list[tuple[float, int, list[int], int]] = []
            for epoch, tasks in left.items():
                seats = [seat for seat in rest if self.seat_epoch[seat] >= epoch]
                low, high = [least[seat] for seat in seats], [most[seat] for seat in seats]
                count = min(max(tasks, sum(low)), sum(high))
                capacity = [draft.capacity[seat] for seat in seats]
                level = water_level([0.0] * len(seats), capacity, low, high, count) if seats else -1.0
                candidates.append((-level, epoch, seats, count))
            _, epoch, seats, count = min(candidates)
            shares = [draft.share[seat] for seat in seats]
            quota = quotas(shares, [least[seat] for seat in seats], [most[seat] for seat in seats], count)
            found.append(_Block(epoch, seats, quota, {one: tasks for one, tasks in left.items() if one >= epoch}))
            rest = [seat for seat in rest if seat not in seats]
            taken = max(count, left[epoch])
            left = {one: tasks - taken for one, tasks in left.items() if one < epoch}
        return found

    def counts(self, block: _Block) -> dict[int, int]:
        """Settle who of a block gets a ceiling: enough for every newer level, then those that have the task already."""
        held, quota = self.held, block.quota
        aimed = destinations(self.draft, held)
        counts = dict(zip(block.seats, quota.floors, strict=True))
        fractional = {seat for seat, part in zip(block.seats, quota.fractional, strict=True) if part}

        def order(seat: int) -> tuple[bool, bool, float, int]:
            have = held.total(seat)
            return have <= counts[seat], aimed[seat] <= counts[seat], have / self.draft.capacity[seat], seat

        waiting = sorted(fractional, key=order)
        left = quota.ceilings
        for epoch in sorted(block.demand, reverse=True):
            inside = [seat for seat in block.seats if self.seat_epoch[seat] >= epoch]
            lacking = left if epoch == block.epoch else block.demand[epoch] - sum(counts[seat] for seat in inside)
            for seat in [seat for seat in waiting if self.seat_epoch[seat] >= epoch][: max(0, min(left, lacking))]:
                counts[seat] += 1
                waiting.remove(seat)
                left -= 1
        return counts


class _Shuffle:
    """The exchange of tasks between seats of different epochs.

    ``room`` is, per seat, how many more tasks it is to have than it has; negative where it has to give. ``size`` is how
    many it has. ``stuck`` are the tasks that were to be given, found no room, and went back home.
    """

    __slots__ = ("draft", "even", "levels", "room", "size", "stuck")

    def __init__(self, draft: Draft, levels: _Levels, room: list[int]) -> None:
        self.draft = draft
        self.levels = levels
        self.room = room
        self.size = [levels.held.total(seat) for seat in range(len(room))]
        self.stuck: dict[int, list[int]] = {}
        self.even = Evenness(draft.request.table, draft.owner, draft.open, draft.capacity)

    def run(self) -> None:
        """Give, evict, and place what is newest first."""
        levels = self.levels
        items = [*levels.held.homeless, *self._give()]
        for epoch in reversed(levels.epochs[1:]):
            items.extend(self._evict(epoch, items))
        for epoch in reversed(levels.epochs):
            newest = [rank for rank in items if levels.need[rank] >= epoch or epoch == levels.epochs[0]]
            items = [rank for rank in items if rank not in newest]
            self._place(newest)
        self._relieve()

    def _first_to_go(self, tasks: Iterable[int]) -> list[int]:
        """Sort tasks so that those under way go first, then older ones, then those with little state."""
        request, need = self.draft.request, self.levels.need

        def order(rank: int) -> tuple[bool, bool, int, int, int]:
            size = request.state_size(rank)
            return rank not in request.warming, rank not in request.previous, need[rank], size, rank

        return sorted(tasks, key=order)

    def _leave(self, rank: int) -> int:
        seat = self.draft.owner[rank]
        self.levels.free[seat].remove(rank)
        self.room[seat] += 1
        self.size[seat] -= 1
        return rank

    def _give(self) -> list[int]:
        """Take from every seat what is beyond its count; a task that it could not get again goes last."""
        levels = self.levels
        given: list[int] = []
        for seat in self.draft.open:
            tasks = self._first_to_go(levels.free[seat])
            tasks.sort(key=lambda rank, epoch=levels.seat_epoch[seat]: levels.need[rank] > epoch)  # type: ignore[misc]
            given.extend(self._leave(rank) for rank in tasks[: max(0, -self.room[seat])])
        return given

    def _evict(self, epoch: int, items: Collection[int]) -> list[int]:
        """Take older tasks from the seats of an epoch until there is room for everything that asks for it."""
        levels = self.levels
        seats = levels.seats_for(epoch)
        lacking = sum(levels.need[rank] >= epoch for rank in items) - sum(self.room[seat] for seat in seats)
        older = [rank for seat in seats for rank in levels.free[seat] if levels.need[rank] < epoch]
        evicted = self._first_to_go(older)[: max(0, lacking)]
        self.draft.gave_way.update(evicted)
        return [self._leave(rank) for rank in evicted]

    def _place(self, ranks: Collection[int]) -> None:
        """Place tasks of one level: where a warmup runs, where they are warm, where they were meant to go, anywhere."""
        request = self.draft.request
        wishes: list[tuple[int, int, int, int, int]] = []
        for rank in ranks:
            if rank in request.warming:
                wishes.append((0, 0, 0, rank, request.warming[rank]))
            for seat, known in request.warmth(rank).items():
                if known.ready_class < Ready.NOTHING:
                    lag = known.lag if known.ready_class > Ready.CAUGHT_UP else 0
                    wishes.append((1, max(known.ready_class, int(Ready.CAUGHT_UP)), lag, rank, seat))
            if rank in request.previous:
                wishes.append((2, 0, 0, rank, request.previous[rank]))
        left = set(ranks)
        for _, _, _, rank, seat in sorted(wishes):
            if rank in left and self._has_room(rank, seat):
                self._go(rank, seat)
                left.discard(rank)
        for rank in sorted(left):
            self._place_anywhere(rank)

    def _has_room(self, rank: int, seat: int) -> bool:
        return not self.draft.closed[seat] and self.room[seat] > 0 and self.draft.takes(rank, seat)

    def _go(self, rank: int, seat: int) -> None:
        self.even.shift(self.draft.request.table.subtopology[rank], self.draft.owner[rank], seat)
        self.draft.owner[rank] = seat
        self.room[seat] -= 1
        self.size[seat] += 1

    def _place_anywhere(self, rank: int) -> None:
        draft = self.draft
        subtopology = draft.request.table.subtopology[rank]
        known = draft.request.warmth(rank)
        fit = [
            (
                known.get(seat, _NOTHING).ready_class,
                self.even.price_in(seat, subtopology),
                -self.room[seat] / draft.capacity[seat],
                seat,
            )
            for seat in draft.open
            if self._has_room(rank, seat)
        ]
        home = draft.owner[rank]
        if fit:
            self._go(rank, min(fit)[3])
            return
        if not draft.closed[home]:
            self.room[home] -= 1
            self.size[home] += 1
        self.stuck.setdefault(NOBODY if draft.closed[home] else home, []).append(rank)

    def _relieve(self) -> None:
        """Find a seat for what nobody has room for, then let what is stuck go up as long as that lowers a load."""
        draft = self.draft
        for rank in self.stuck.pop(NOBODY, ()):
            if not self._go_up(rank, float("inf")):
                draft.wait(rank, WaitReason.NO_CAPACITY)
        left = {seat: self._first_to_go(ranks)[::-1] for seat, ranks in self.stuck.items()}
        while left:
            seat = min(left, key=lambda one: (-self.size[one] / draft.capacity[one], one))
            rank = left[seat].pop()
            is_over = self.size[seat] > draft.stateful_limit[seat]
            if self._go_up(rank, float("inf") if is_over else self.size[seat] / draft.capacity[seat]):
                self.size[seat] -= 1
            elif is_over:
                self.size[seat] -= 1
                draft.wait(rank, WaitReason.NO_CAPACITY)
            if not left[seat]:
                del left[seat]

    def _go_up(self, rank: int, height: float) -> bool:
        """Let a task go where it stays below a load per capacity; a warmup that runs goes on if it can."""
        draft, request = self.draft, self.draft.request
        warming, previous = request.warming.get(rank), request.previous.get(rank)
        better = [
            (warming != to, previous != to, self._height(to), to)
            for to in draft.open
            if draft.takes(rank, to) and self.size[to] < draft.stateful_limit[to] and self._height(to) < height
        ]
        if better:
            self._go(rank, min(better)[-1])
        return bool(better)

    def _height(self, seat: int) -> float:
        """Return the load per capacity with one more task."""
        return (self.size[seat] + 1) / self.draft.capacity[seat]
