"""First standbys, dealt in rings, where nobody has anything yet.

Owner by owner, so that one owner's standbys go to seats that follow one another, and spread over all of them. A ring
that is dealt round and round is level by itself; seats of different capacity come up as often as their capacity says.
What a deal leaves undone is filled up like any other task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from batonpass.core.placement_copies import Standbys
from batonpass.core.placement_rings import deal_by_kind, deal_one_ring, deal_single_copies
from batonpass.core.placement_types import NOBODY

Entry = tuple[float, int, int]


def deal_standbys(board: Standbys, ranks: Sequence[int]) -> None:
    """Deal first standbys, if every seat may take every task and there are more seats than standbys of one."""
    draft = board.draft
    ring = sorted(draft.open, key=lambda seat: (-draft.actives[seat], seat))
    if len(ring) <= board.wanted or board.epochs:
        return
    equal = len({draft.capacity[seat] for seat in ring}) == 1 and not draft.limited
    by_owner: dict[int, list[int]] = {seat: [] for seat in ring}
    for rank in ranks:
        if board.owner[rank] in by_owner:
            by_owner[board.owner[rank]].append(rank)
    if board.tags.kinds == 1 and equal:
        deal_one_ring(board, ring, by_owner)
    elif not equal or board.tags.kinds > _MANY:
        _Rings(board, ring).deal(by_owner)
    elif board.wanted == 1:
        deal_single_copies(board, ring, by_owner)
    else:
        deal_by_kind(board, ring, by_owner)
    board.note_counts()


# With more kinds than this, a seat is looked for among the lowest of all before kinds are compared; so many are tried.
_MANY: Final = 16
_TRIES: Final = 32


class _Rings:
    """The seats of each kind, lowest first; the next copy goes to the lowest of the kinds that tags put first."""

    __slots__ = ("board", "capacity", "given", "heaps", "lowest")

    def __init__(self, board: Standbys, ring: Sequence[int]) -> None:
        kind = board.tags.kind
        self.board = board
        self.heaps: list[list[Entry]] = [[] for _ in range(board.tags.kinds)]
        self.capacity = [0.0] * len(self.heaps)
        self.given = [0] * len(self.heaps)
        for place, seat in enumerate(ring):
            if board.slots[seat] > 0:
                self.heaps[kind[seat]].append((self._level(seat), place, seat))
                self.capacity[kind[seat]] += board.capacity[seat]
        self.lowest = [entry for heap in self.heaps for entry in heap] if len(self.heaps) > _MANY else []
        for heap in (*self.heaps, self.lowest):
            heapify(heap)

    def deal(self, by_owner: dict[int, list[int]]) -> None:
        """Deal the copies of all tasks, owner by owner."""
        board = self.board
        for owner, tasks in by_owner.items():
            for rank in tasks:
                board.copies[rank] = tuple(sorted(self._copies(owner)))

    def _copies(self, owner: int) -> list[int]:
        """Return the seats for the copies of a task, as many as there are seats for at once."""
        tags = self.board.tags
        taken = [owner]
        on = [tags.kind[owner]]
        while len(taken) <= self.board.wanted and self._take_new(taken, on):
            pass
        tiers = tags.tiers(tuple(sorted(on))) if len(taken) <= self.board.wanted else ()
        while len(taken) <= self.board.wanted and tiers:
            kind = min((kind for kind in tiers[0] if self.heaps[kind]), key=self._height, default=NOBODY)
            if kind == NOBODY or not self._take(kind, taken):
                break
            on.append(kind)
            # Once a single tier is left all values are used up, and tags have nothing more to say about this task.
            if len(tiers) > 1:
                tiers = tags.tiers(tuple(sorted(on)))
        return taken[1:]

    def _take_new(self, taken: list[int], on: list[int]) -> bool:
        """Take one of the lowest seats of all, if it differs in every key from those taken; only for many kinds."""
        kind, is_new = self.board.tags.kind, self.board.tags.is_new
        found = self._first(self.lowest, lambda seat: seat not in taken and is_new(kind[seat], on))
        if found is None:
            return False
        taken.append(found[2])
        on.append(kind[found[2]])
        heappush(self.heaps[kind[found[2]]], found)
        return True

    def _take(self, kind: int, taken: list[int]) -> bool:
        """Take the lowest seat of a kind that has no copy of the task; return False if there is none."""
        found = self._first(self.heaps[kind], lambda seat: seat not in taken)
        if found is None:
            return False
        taken.append(found[2])
        if self.lowest:
            heappush(self.lowest, found)
        return True

    def _first(self, heap: list[Entry], fits: Callable[[int], bool]) -> Entry | None:
        """Give the lowest seat that fits one more copy, and return its new entry, which is in the heap already."""
        board = self.board
        passed: list[Entry] = []
        found: Entry | None = None
        while heap and found is None and len(passed) < _TRIES + board.wanted:
            level, place, seat = heappop(heap)
            # An entry that another heap has made stale, or whose seat is full, is dropped.
            if level != self._level(seat) or board.slots[seat] <= 0:
                continue
            if fits(seat):
                board.count[seat] += 1
                board.slots[seat] -= 1
                self.given[board.tags.kind[seat]] += 1
                found = (self._level(seat), place, seat)
                passed.append(found)
            else:
                passed.append((level, place, seat))
        for entry in passed:
            heappush(heap, entry)
        return found

    def _level(self, seat: int) -> float:
        return (self.board.count[seat] + 1) / self.board.capacity[seat]

    def _height(self, kind: int) -> float:
        return (self.given[kind] + 1) / self.capacity[kind]
