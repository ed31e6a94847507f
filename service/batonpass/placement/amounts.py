"""How many tasks of each weight every member should have: balanced, with few moves.

Tasks that weigh the same, and that the same members may have, are a *sort*. Balanced means that no move of one task,
and no exchange of two, lowers the higher of two loads per capacity by more than a thousandth of the average one. The
fewest moves for that are a packing problem (NP-hard), so few are searched for:

1. ``place``: tasks without a member go to the lowest loads, heaviest first.
2. ``shed``: members above their limit give away their lightest tasks.
3. ``level``: the highest load that can be lowered is lowered, by the move or else the exchange that leaves the higher
   of the two loads lowest, until the group is balanced, or what is above the average by more than the tolerance cannot
   be lowered.
4. ``spare``: each move is tried without its task, or with another task instead, and the group is levelled again. What
   then moves fewer tasks is kept.

Only numbers of tasks are known here, so no two tasks of a sort ever change places. A balanced group stays as it is.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from batonpass.placement.flow import Floats, Ints, Marks
from batonpass.placement.quotas import PLACES, level_quotas

_TOLERANCE: Final = 0.001
"""A change has to lower the higher load per capacity by more than this part of the average one."""
_COMPARED: Final = 1 << 18
"""How many exchanges of one member are compared at once, so that they fit into memory."""
_TRIES: Final = 2_000
"""How often a move is tried otherwise, in proportion to one member."""
_NONE: Final = np.empty(0, np.int64)


class Room(NamedTuple):
    """Per member, what it has that stays, its capacity, and how many more tasks it may have (below 0: too many).

    Who has at most ``tolerance`` more than the average load per capacity, as a part of it, need not give any away.
    """

    load: Floats
    capacity: Floats
    slots: Ints
    tolerance: float = 0.0


class Change(NamedTuple):
    """A move of a task, or an exchange of two, from the member with the higher load. Tasks are named by their sort."""

    source: int
    target: int
    given: int
    taken: int | None = None


class Amounts:
    """How many tasks of each sort the members have, so far.

    Attributes:
        counts: per member and sort.
        lacking: per sort, how many tasks have no member.
    """

    def __init__(self, weight: Sequence[float], allowed: Marks, room: Room, have: Ints, lacking: Ints) -> None:
        """Begin with the tasks where they are.

        Args:
            weight: per sort, what a task weighs.
            allowed: per member and sort, whether the member may be given such tasks.
            room: the members.
            have: per member and sort, how many it has.
            lacking: per sort, how many tasks have no member yet.
        """
        self.counts = have.copy()
        self.lacking = lacking.copy()
        self._weight = np.array(weight, float)
        self._lightest = np.argsort(self._weight, kind="stable").tolist()
        self._step = float(np.diff(np.unique([0.0, *weight])).min())
        self._allowed = allowed
        self._have = have
        self._load = np.round(room.load + have @ self._weight, PLACES)
        self._capacity = room.capacity
        self._slots = room.slots.copy()
        takers = allowed.any(axis=1)
        total = float(self._load[takers].sum() + lacking @ self._weight)
        self._quota = round(total / float(room.capacity[takers].sum()), PLACES) if takers.any() else 0.0
        self._least = self._quota * _TOLERANCE
        # Without a tolerance, one that has less than the average may still give some to another.
        self._enough = self._quota * (1 + room.tolerance) if room.tolerance else 0.0

    def put(self, sort: int, member: int, amount: int = 1) -> None:
        """Add tasks to a member; a negative amount takes some away."""
        self.counts[member, sort] += amount
        self._load[member] = round(self._load[member] + amount * self._weight[sort], PLACES)
        self._slots[member] -= amount

    def takes_below_quota(self, sort: int, member: int) -> bool:
        """Say whether a member may have one task more, with a load that is then at most its quota."""
        return bool(self._heights(sort)[member] <= self._quota)

    def moves(self) -> int:
        """Return how many tasks are no longer on the member that had them."""
        return int(np.maximum(0, self._have - self.counts).sum())

    def place(self) -> None:
        """Give away the tasks without a member, as far as they fit: to where they leave the loads lowest."""
        nothing = [0] * len(self._capacity)
        for sort in np.flatnonzero(self.lacking).tolist():
            load = self._load / self._weight[sort]
            most = np.where(self._allowed[:, sort], np.maximum(0, self._slots), 0)
            amount = min(int(self.lacking[sort]), int(most.sum()))
            quota = level_quotas(load.tolist(), self._capacity.tolist(), nothing, most.tolist(), amount)
            amounts = np.array(quota.floors)
            amounts[np.flatnonzero(quota.fractional)[: amount - amounts.sum()]] += 1
            for member in np.flatnonzero(amounts).tolist():
                self.put(sort, member, int(amounts[member]))
            self.lacking[sort] -= amount
            while self.lacking[sort] and self._make_room(sort):
                self.lacking[sort] -= 1

    def _heights(self, sort: int) -> Floats:
        """Return the load per capacity that one task more leads to, for each member; infinite where it may not go."""
        heights = np.round((self._load + self._weight[sort]) / self._capacity, PLACES)
        return np.where(self._allowed[:, sort] & (self._slots > 0), heights, np.inf)

    def _make_room(self, sort: int) -> bool:
        """Place a task on a full member from which another task may go elsewhere."""
        ways = [
            (float(heights.min()), member, other, int(heights.argmin()))
            for other in self._lightest
            if (heights := self._heights(other)).min() < np.inf
            for member in np.flatnonzero(self._allowed[:, sort] & (self.counts[:, other] > 0)).tolist()
        ]
        if not ways:
            return False
        _, member, other, target = min(ways)
        self._make(Change(member, target, other))
        self.put(sort, member)
        return True

    def shed(self) -> None:
        """Take tasks from members above their limits, the lightest first."""
        for member in np.flatnonzero(self._slots < 0).tolist():
            for sort in self._lightest:
                amount = min(-int(self._slots[member]), int(self.counts[member, sort]))
                if amount > 0:
                    self.put(sort, member, -amount)
                    self.lacking[sort] += amount
        self.place()

    def level(self) -> None:
        """Lower the highest loads until no move of one task, and no exchange of two, lowers the higher of two."""
        while self._lower(np.flatnonzero(self.counts.any(axis=1)).tolist()):
            pass

    def _lower(self, members: Sequence[int]) -> bool:
        """Lower the loads of these members and of those that take from them. Return whether any could be lowered."""
        changes = False
        highest = [(-self._height(member), member) for member in members]
        heapify(highest)
        # What was found of one member is so of all that are like it, until something changes.
        cannot_be_lowered: set[tuple[object, ...]] = set()
        while highest and -highest[0][0] > self._enough:
            height, member = highest[0]
            if height != -self._height(member):
                heapreplace(highest, (-self._height(member), member))
                continue
            rows = self.counts[member].tobytes(), self._allowed[member].tobytes()
            kind = (*rows, self._load[member], self._capacity[member])
            if kind in cannot_be_lowered:
                heappop(highest)
            elif change := self._best_change(member, exchange=False) or self._best_change(member, exchange=True):
                self._make(change)
                heappush(highest, (-self._height(change.target), change.target))
                changes = True
                cannot_be_lowered.clear()
            else:
                cannot_be_lowered.add(kind)
        return changes

    def _height(self, member: int) -> float:
        return round(float(self._load[member] / self._capacity[member]), PLACES)

    def _make(self, change: Change) -> None:
        self.put(change.given, change.source, -1)
        if change.taken is not None:
            self.put(change.taken, change.target, -1)
            self.put(change.taken, change.source)
        self.put(change.given, change.target)

    def _lower_others(self, member: int) -> Ints:
        """Return the members, lowest first, that the least difference between tasks would leave lower than this one."""
        heights = np.round((self._load + self._step) / self._capacity, PLACES)
        others = np.flatnonzero(heights < self._height(member) - self._least)
        return others[np.argsort(heights[others], kind="stable")]

    def _best_change(self, member: int, *, exchange: bool) -> Change | None:
        """Return the move, or exchange, that leaves the higher of two loads lowest; None if none lowers it.

        Where there is a tolerance, one that takes nobody above that comes first.
        """
        found: list[tuple[bool, float, int, Change]] = []
        gives, lower = np.flatnonzero(self.counts[member]), self._lower_others(member)
        size = max(1, _COMPARED // max(1, len(gives) * self.counts.shape[1]))
        for some in (lower[start : start + size] for start in range(0, len(lower), size)):
            if exchange:
                place, takes = np.nonzero((self.counts[some] > 0) & self._allowed[member])
                others, weight = some[place], self._weight[takes]
            else:
                others, takes, weight = some[self._slots[some] > 0], _NONE, np.zeros(1)
            more = self._weight[gives][:, None] - weight
            here = np.round((self._load[member] - more) / self._capacity[member], PLACES)
            there = np.round((self._load[others] + more) / self._capacity[others], PLACES)
            higher = np.maximum(here, there)
            can = (more > 0) & (higher < self._height(member) - self._least) & self._allowed[others][:, gives].T
            mild = can & (there <= self._enough)
            can = mild if mild.any() else can
            if can.any():
                given, best = np.unravel_index(int(np.where(can, higher, np.inf).argmin()), can.shape)
                change = Change(member, int(others[best]), int(gives[given]), int(takes[best]) if exchange else None)
                found.append((not mild.any(), float(higher[given, best]), int(given), change))
        return min(found, key=itemgetter(0, 1, 2))[3] if found else None

    def fewest_moves(self) -> int:
        """Return how many tasks have to move at least if no load per capacity may be above the highest one now."""
        most = float((self._load / self._capacity).max(initial=0.0)) * self._capacity
        excess = self._load + (self._have - self.counts) @ self._weight - most
        fewest = 0
        for member in np.flatnonzero(excess > 10**-PLACES).tolist():
            heaviest = np.sort(np.repeat(self._weight, self._have[member]))[::-1]
            enough = np.round(heaviest.cumsum(), PLACES) >= round(excess[member], PLACES)
            fewest += int(enough.argmax()) + 1 if enough.any() else len(heaviest)
        return fewest

    def spare(self) -> None:
        """Try moves without their task, or with another one instead, and keep what moves fewer tasks."""
        tries = _TRIES // len(self.counts)
        found = True
        while found and self.moves() > self.fewest_moves():
            found = False
            for back, instead in self._trials():
                if found or not tries:
                    break
                tries -= 1
                found = self._try(back, instead)

    def _trials(self) -> Iterator[tuple[Change, Change | None]]:
        """Yield for each task that came to a member its way to others, first to those that gave one, and what may come.

        What may come instead is a task of the same other member, or none.
        """
        came = self.counts > self._have
        for sort in self._lightest:
            gave = self.counts[:, sort] < self._have[:, sort]
            for member in np.flatnonzero(came[:, sort]).tolist():
                for other in np.argsort(~gave, kind="stable").tolist():
                    if other != member and self._allowed[other, sort]:
                        back = Change(member, other, sort)
                        yield back, None
                        for given in np.flatnonzero(self.counts[other] * self._allowed[member]).tolist():
                            yield back, Change(other, member, given)

    def _try(self, back: Change, instead: Change | None) -> bool:
        """Make changes, level again, and keep that if it moves fewer tasks and no member is further above its limit."""
        before, moves = (self.counts.copy(), self._load.copy(), self._slots.copy()), self.moves()
        self._make(back)
        if instead is not None:
            self._make(instead)
        self._lower([back.source, back.target])
        if self.moves() < moves:
            self.level()
        if self.moves() < moves and (self._slots >= np.minimum(before[2], 0)).all():
            return True
        self.counts, self._load, self._slots = before
        return False
