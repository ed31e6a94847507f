"""Paths over seats: each hands one copy on to the next, where a copy cannot go straight to where it is wanted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

from batonpass.core.placement_copies import Standbys
from batonpass.core.placement_types import NOBODY

# Per seat that was reached: from which seat, and which task's copy would go. `NOBODY` where the path begins.
Came = dict[int, tuple[int, int]]


def fill_by_paths(board: Standbys, ranks: Sequence[int], missing: Sequence[int]) -> None:
    """Place the copies that found no seat, as long as there are slots that others can make use of."""
    if not missing or not board.with_slots:
        return
    paths = Paths(board, ranks)
    for rank in missing:
        while len(board.copies[rank]) < board.wanted and board.with_slots and paths.make_room(rank):
            pass


class Paths:
    """Paths from high seats to low ones, and from seats that are full to seats with slots.

    Attributes:
        board: the standbys.
        by_kind: the open seats of each kind.
        held: per open seat, the tasks of which it holds a standby.
        reach: per kind of seats, the kinds that a copy can get to in any number of steps.
    """

    __slots__ = ("board", "by_kind", "held", "reach")

    def __init__(self, board: Standbys, ranks: Sequence[int]) -> None:
        self.board = board
        self.held: dict[int, list[int]] = {seat: [] for seat in board.draft.open}
        for rank in ranks:
            for seat in board.copies[rank]:
                self.held[seat].append(rank)
        self.by_kind: dict[int, list[int]] = {}
        for seat in board.draft.open:
            self.by_kind.setdefault(board.tags.kind[seat], []).append(seat)
        self.reach = self._kinds_in_reach(ranks)

    def _kinds_in_reach(self, ranks: Iterable[int]) -> dict[int, set[int]]:
        """Return, per kind of seats, the kinds that a copy can get to in any number of steps."""
        board = self.board
        kinds = range(board.tags.kinds)
        if board.tags.kinds == 1:
            return {0: {0}}
        kind = board.tags.kind
        step: dict[int, set[int]] = {one: {one} for one in kinds}
        groups = {
            (kind[board.owner[rank]], tuple(sorted([kind[seat] for seat in board.copies[rank]]))) for rank in ranks
        }
        for owner, held in sorted(groups):
            for position, one in enumerate(held):
                rest = held[:position] + held[position + 1 :]
                step[one].update(other for other in kinds if board.tags.apart(owner, tuple(sorted((*rest, other)))))
        for via in kinds:
            for one in kinds:
                if via in step[one]:
                    step[one] |= step[via]
        return step

    def shift_all(self) -> bool:
        """Lower every seat, the highest first, from which lower ones can be reached; tell whether there was any."""
        board = self.board
        lowest = {kind: self._lowest(kind) for kind in self.by_kind}
        shifted = False
        for seat in sorted(board.draft.open, key=lambda seat: (-board.level(seat), seat)):
            while (end := self._shift_down(seat, lowest)) != NOBODY:
                shifted = True
                for kind in (board.tags.kind[seat], board.tags.kind[end]):
                    lowest[kind] = self._lowest(kind)
        return shifted

    def _lowest(self, kind: int) -> float:
        """Return how low the lowest seat of a kind would be with one more copy."""
        board = self.board
        return min((board.next_level[seat] for seat in self.by_kind[kind] if board.slots[seat] > 0), default=inf)

    def _shift_down(self, seat: int, lowest: dict[int, float]) -> int:
        """Lower a seat for a lower one; return that, or `NOBODY`."""
        board = self.board
        height = board.level(seat)
        if min(lowest[kind] for kind in self.reach[board.tags.kind[seat]] if kind in lowest) >= height:
            return NOBODY
        return self._search({seat: (NOBODY, NOBODY)}, lambda low: board.next_level[low] < height)

    def make_room(self, rank: int) -> bool:
        """Give a task one more copy, on a seat that hands one on to make room for it."""
        board = self.board
        first = [seat for seat in board.draft.open if board.may_hold(rank, seat)]
        for tier in board.tiers(rank):
            came = {seat: (NOBODY, rank) for seat in first if board.tags.kind[seat] in tier}
            if self._search(came, lambda _: True) != NOBODY:
                return True
        return False

    def _search(self, came: Came, low_enough: Callable[[int], bool]) -> int:
        """Look for a path from one of the first seats to a low one with a slot, and hand copies on along it.

        Returns:
            The seat at the end of the path; `NOBODY` if there is none.
        """
        board = self.board
        rest = {kind: [seat for seat in seats if seat not in came] for kind, seats in self.by_kind.items()}
        queue = deque(came)
        while queue:
            source = queue.popleft()
            for rank in self.held[source]:
                for target in self._next(rank, source, rest):
                    came[target] = (source, rank)
                    queue.append(target)
                    if board.slots[target] > 0 and low_enough(target) and self._is_simple(target, came):
                        self._hand_on(target, came)
                        return target
        return NOBODY

    def _next(self, rank: int, source: int, rest: dict[int, list[int]]) -> Iterator[int]:
        """Yield, and take from the rest, the seats to which a copy could go from its seat."""
        board = self.board
        for kind, seats in rest.items():
            if seats and board.may_change_kind(rank, source, kind):
                fit = [seat for seat in seats if board.may_hold(rank, seat)]
                rest[kind] = [seat for seat in seats if not board.may_hold(rank, seat)]
                yield from fit

    @staticmethod
    def _is_simple(end: int, came: Came) -> bool:
        """Tell whether no task is on the path twice: one copy's way may not fit any more once another has moved."""
        on_path: list[int] = []
        seat = end
        while seat != NOBODY:
            seat, rank = came[seat]
            on_path.append(rank)
        return len(set(on_path)) == len(on_path)

    def _hand_on(self, end: int, came: Came) -> None:
        """Move every copy of the path by one seat, beginning at its end; a task that starts it gets a new copy."""
        target = end
        source, rank = came[target]
        while source != NOBODY:
            self.board.shift(rank, source, target)
            self.held[source].remove(rank)
            self.held[target].append(rank)
            target = source
            source, rank = came[target]
        if rank != NOBODY:
            self.board.put(rank, target)
            self.held[target].append(rank)
