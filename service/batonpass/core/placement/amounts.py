"""How many tasks of each weight every member should have: balanced, with few moves.

Tasks that weigh the same, and that the same members may have, are a *sort* here. Which tasks of a sort move is decided
afterwards, by one exchange for each sort (``actives``). Balanced means that no move of one task, and no exchange of two,
lowers the higher of two loads per capacity. Which moves are fewest is a packing problem (NP-hard), so few are searched:

1. ``place``: tasks without a member go to members below their quota, heaviest first.
2. ``shed``: a member above its limit gives away its lightest tasks.
3. ``level``: the highest load that can be lowered is lowered by the move, or else the exchange, that leaves the higher
   of the two loads lowest, until the group is balanced.
4. ``spare``: each move is tried without its task, or with another one instead, and the group is levelled again. What
   then moves fewer tasks is kept.

Numbers of tasks are compared, so tasks of a sort that would change places do not move at all. A group that is balanced
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil
from typing import Final, NamedTuple

import numpy as np

from batonpass.core.placement.exchange import Floats
from batonpass.core.placement.flow import Ints
from batonpass.core.placement.quotas import PLACES
from batonpass.core.placement.state import Marks

_COMPARED: Final = 1 << 18
"""How many exchanges of one member are compared, with the lowest others first; at least those with eight others."""
_TRIES: Final = 200
_LEVELLED: Final = 2_000
"""How often moves are tried otherwise: so many times, and with so many members together."""


class Change(NamedTuple):
    """A move of one task, or an exchange of two, from the member with the higher load."""

    source: int
    target: int
    given: int
    taken: int = -1


class Amounts:
    """How many tasks of each sort the members have, so far.

    Attributes:
        counts: per member and sort.
        waiting: per sort, how many tasks fit on no member.
    """

    def __init__(  # noqa: PLR0917 - a table by members and sorts
        self, weight: Sequence[float], allowed: Marks, have: Ints, load: Floats, capacity: Floats, slots: Ints, total: float
    ) -> None:
        """Begin with the tasks where they are.

        Args:
            weight: per sort, what a task weighs.
            allowed: per member and sort, whether the member may be given such tasks.
            have: per member and sort, how many it has.
            load: per member, what it has that stays.
            capacity: per member.
            slots: per member, how many more tasks it may have. Below 0: it has too many.
            total: what all members will have, with the tasks that have no member yet.
        """
        self.counts = have.copy()
        self.waiting = np.zeros(len(weight), np.int64)
        self._weight = np.array(weight, float)
        self._allowed = allowed
        self._have = have
        self._load = np.round(load + have @ self._weight, PLACES)
        self._capacity = capacity
        self._slots = slots.copy()
        different = np.unique([0.0, *weight])
        self._step = float(np.diff(different).min())
        self._quota = round(total / float(capacity[allowed.any(axis=1)].sum()), PLACES)

    def put(self, sort: int, member: int, amount: int = 1) -> None:
        """Add tasks to a member; a negative amount takes some."""
        self.counts[member, sort] += amount
        self._load[member] = round(self._load[member] + amount * self._weight[sort], PLACES)
        self._slots[member] -= amount

    def takes(self, sort: int, member: int, *, below_quota: bool) -> bool:
        """Say whether a member may have one task more, and if asked, whether it stays below its quota with it."""
        height = self._heights(sort)[member]
        return bool(height <= self._quota if below_quota else height < np.inf)

    def moves(self) -> int:
        """Return how many tasks are no longer on the member that had them."""
        return int(np.maximum(0, self._have - self.counts).sum())

    def place(self, sort: int, amount: int) -> None:
        """Give tasks without a member away. Those that fit nowhere wait.

        They go to members below their quota that have fewest of the sort, or else to the lowest loads per capacity.
        """
        weight, capacity = self._weight[sort], self._capacity
        heights = self._heights(sort)
        columns = (heights, np.round(self.counts[:, sort] / capacity, PLACES), heights > self._quota)
        order = [member for member in np.lexsort(columns).tolist() if heights[member] < np.inf]
        heap = [(*(column[member] for column in columns[::-1]), member) for member in order[:amount]]
        while amount and heap:
            member = heap[0][3]
            self.put(sort, member)
            amount -= 1
            if self._slots[member] > 0:
                height = round((self._load[member] + weight) / capacity[member], PLACES)
                share = round(self.counts[member, sort] / capacity[member], PLACES)
                heapreplace(heap, (height > self._quota, share, height, member))
            else:
                heappop(heap)
        while amount and self._make_room(sort):
            amount -= 1
        self.waiting[sort] += amount

    def _heights(self, sort: int) -> Floats:
        """Return the load per capacity that one task more leads to, for each member; infinite where it may not go."""
        heights = np.round((self._load + self._weight[sort]) / self._capacity, PLACES)
        return np.where(self._allowed[:, sort] & (self._slots > 0), heights, np.inf)

    def _make_room(self, sort: int) -> bool:
        """Place a task where another one, that may go to more members, makes room for it."""
        ways = [
            (float(heights.min()), member, other, int(heights.argmin()))
            for other in range(len(self._weight))
            if (heights := self._heights(other)).min() < np.inf
            for member in np.flatnonzero(self._allowed[:, sort] & (self.counts[:, other] > 0)).tolist()
        ]
        if not ways:
            return False
        _, member, other, target = min(ways)
        self.put(other, member, -1)
        self.put(other, target)
        self.put(sort, member)
        return True

    def shed(self) -> None:
        """Take tasks from members above their limit, the lightest first."""
        for member in np.flatnonzero(self._slots < 0).tolist():
            for sort in np.argsort(self._weight, kind="stable").tolist():
                amount = min(-int(self._slots[member]), int(self.counts[member, sort]))
                if amount > 0:
                    self.put(sort, member, -amount)
                    self.place(sort, amount)

    def level(self) -> None:
        """Lower the highest loads until no move of one task, and no exchange of two, lowers the higher of two."""
        while self._lower(np.flatnonzero(self.counts.any(axis=1)).tolist()):
            pass

    def _lower(self, members: Sequence[int]) -> bool:
        """Lower the loads of these members, and of those that take from them, the highest first. Say whether any was."""
        changes = False
        highest = [(-self._height(member), member) for member in members]
        heapify(highest)
        while highest:
            height, member = highest[0]
            if height != -self._height(member):
                heapreplace(highest, (-self._height(member), member))
            elif change := self._best_change(member):
                self._make(change)
                heappush(highest, (-self._height(change.target), change.target))
                changes = True
            else:
                heappop(highest)
        return changes

    def _height(self, member: int) -> float:
        return round(float(self._load[member] / self._capacity[member]), PLACES)

    def _make(self, change: Change) -> None:
        self.put(change.given, change.source, -1)
        if change.taken >= 0:
            self.put(change.taken, change.target, -1)
            self.put(change.taken, change.source)
        self.put(change.given, change.target)

    def _best_change(self, member: int) -> Change | None:
        """Return the best move of one task from a member, or else the best exchange; None if none lowers its load."""
        height = self._height(member)
        if ((self._load + self._step) / self._capacity).min() >= height:
            return None
        return self._best_move(member) or self._best_exchange(member)

    def _best_move(self, member: int) -> Change | None:
        """Return the move of one task from a member that leaves the higher of two loads lowest; None if none lowers it."""
        gives = np.flatnonzero(self.counts[member])
        weight = self._weight[gives][:, None]
        here = np.round((self._load[member] - weight) / self._capacity[member], PLACES)
        there = np.round((self._load + weight) / self._capacity, PLACES)
        can = self._allowed[:, gives].T & (self._slots > 0) & (there < self._height(member))
        if not can.any():
            return None
        sort, target = np.unravel_index(int(np.where(can, np.maximum(here, there), np.inf).argmin()), can.shape)
        return Change(member, int(target), int(gives[sort]))

    def _best_exchange(self, member: int) -> Change | None:
        """Return the exchange of two tasks that leaves the higher of two loads lowest; None if none lowers it."""
        height = self._height(member)
        gives = np.flatnonzero(self.counts[member])
        takes = np.flatnonzero(self._allowed[member] & self._allowed.any(axis=0))
        others = np.flatnonzero(np.round((self._load + self._step) / self._capacity, PLACES) < height)
        if not (len(gives) and len(takes) and len(others)):
            return None
        others = others[np.argsort(self._load[others] / self._capacity[others], kind="stable")]
        others = others[: max(8, _COMPARED // (len(gives) * len(takes)))]
        more = self._weight[gives][:, None] - self._weight[takes][None, :]
        there = np.round((self._load[others] + more[..., None]) / self._capacity[others], PLACES)
        here = np.round((self._load[member] - more[..., None]) / self._capacity[member], PLACES)
        can = (more[..., None] > 0) & (there < height)
        can &= (self.counts[others][:, takes].T > 0)[None] & self._allowed[others][:, gives].T[:, None]
        if not can.any():
            return None
        best = int(np.where(can, np.maximum(here, there), np.inf).argmin())
        given, taken, other = np.unravel_index(best, can.shape)
        return Change(member, int(others[other]), int(gives[given]), int(takes[taken]))

    def fewest_moves(self) -> int:
        """Return how many tasks have to move at least, so that no load per capacity is higher than the highest now."""
        most = float((self._load / self._capacity).max(initial=0.0)) * self._capacity
        excess = self._load + (self._have - self.counts) @ self._weight - most
        fewest = 0
        for member in np.flatnonzero(excess > 10**-PLACES).tolist():
            for sort in np.argsort(-self._weight, kind="stable").tolist():
                some = min(int(self._have[member, sort]), ceil(round(excess[member] / self._weight[sort], PLACES)))
                if some > 0:
                    excess[member] -= some * self._weight[sort]
                    fewest += some
        return fewest

    def spare(self) -> None:
        """Try each move without the task, or with another one in its place, and keep what then moves fewer tasks."""
        tries = min(_TRIES, _LEVELLED // len(self._load))
        found = True
        while found and tries and self.moves() > self.fewest_moves():
            found = False
            for member, other, sort, instead in self._trials():
                tries -= 1
                found = found or self._try(member, other, sort, instead)
                if found or not tries:
                    break

    def _trials(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield, for what a member got, whom to give it (first those that gave such a task) and for which sort; -1: none."""
        got = self.counts > self._have
        for sort in np.argsort(self._weight, kind="stable").tolist():
            gave = self.counts[:, sort] < self._have[:, sort]
            for other in np.flatnonzero(got[:, sort]).tolist():
                for member in np.argsort(~gave, kind="stable")[: len(gave)].tolist():
                    if member == other or not self._allowed[member, sort]:
                        continue
                    instead = self.counts[member] * self._allowed[other]
                    yield from ((member, other, sort, each) for each in [-1, *np.flatnonzero(instead).tolist()])

    def _try(self, member: int, other: int, sort: int, instead: int) -> bool:
        """Take a move back, give another task instead, level again, and keep that if it moves fewer tasks."""
        before = self.counts.copy(), self._load.copy(), self._slots.copy(), self.moves()
        self.put(sort, other, -1)
        self.put(sort, member)
        if instead >= 0:
            self.put(instead, member, -1)
            self.put(instead, other)
        self._lower([member, other])
        if self.moves() < before[3]:
            self.level()
        if self.moves() < before[3] and (self._slots >= np.minimum(before[2], 0)).all():
            return True
        self.counts, self._load, self._slots = before[:3]
        return False
