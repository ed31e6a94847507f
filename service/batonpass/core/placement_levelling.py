"""Levelling standbys: a copy changes seats when that lowers the higher of the two loads per capacity.

Most of it is direct, from seats that hold too many to seats that hold too few, copies that are warm at their goal
first. Where tags, or copies of the same task, stand in the way, a path over other seats is looked for: each hands one
copy on to the next. Every step lowers a higher load in favour of a lower one, so it ends, and what is level is left
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from batonpass.core.placement_bounds import level_counts
from batonpass.core.placement_copies import Standbys
from batonpass.core.placement_paths import Paths
from batonpass.core.placement_types import NOBODY, Ready, Warmth, stock

_NOTHING: Final = Warmth(int(Ready.NOTHING), 0)
# How many seats, and how many copies, are compared by how they spread an owner's copies. Of copies fewer where many go:
# then the turn in which they go spreads them, and looking at every one would be most of the work.
_LOOKAHEAD: Final = 4
_LOOKS: Final = 1024


def level_standbys(board: Standbys, ranks: Sequence[int]) -> None:
    """Level the standbys of all seats as far as tags and other copies let it."""
    opened = board.draft.open
    stuck = _level_among(board, ranks, opened)
    if not stuck:
        return
    by_kind: dict[int, list[int]] = {}
    for seat in opened:
        by_kind.setdefault(board.tags.kind[seat], []).append(seat)
    while stuck:
        if board.tags.kinds > 1:
            for seats in by_kind.values():
                _level_among(board, ranks, seats)
        if not Paths(board, ranks).shift_all():
            return
        stuck = _level_among(board, ranks, opened)


def _level_among(board: Standbys, ranks: Sequence[int], seats: Sequence[int]) -> bool:
    """Shift copies directly until these seats are level; return whether something stood in the way."""
    have = [board.count[seat] for seat in seats]
    tasks = len(ranks)
    stateful = board.draft.stateful
    most = [
        max(board.count[seat], min(board.count[seat] + board.slots[seat], tasks - stateful[seat])) for seat in seats
    ]
    capacity = [board.capacity[seat] for seat in seats]
    goal = level_counts([0.0] * len(seats), capacity, ([0] * len(seats), most, have), sum(have))
    over = {seat: count - aim for seat, count, aim in zip(seats, have, goal, strict=True) if count > aim}
    under = {seat: aim - count for seat, count, aim in zip(seats, have, goal, strict=True) if count < aim}
    if not over:
        return False
    shifts = _Shifts(board, over, under, ranks)
    shifts.where_warm()
    shifts.anywhere()
    return any(over.values())


class _Shifts:
    """Direct shifts from seats that hold too many copies to seats that hold too few.

    ``under`` has, per kind of seats, how many copies each low seat lacks.
    """

    __slots__ = ("board", "held", "look", "over", "under")

    def __init__(self, board: Standbys, over: dict[int, int], under: dict[int, int], ranks: Iterable[int]) -> None:
        self.board = board
        self.over = over
        self.under: dict[int, dict[int, int]] = {}
        for seat, room in under.items():
            self.under.setdefault(board.tags.kind[seat], {})[seat] = room
        self.look = max(1, min(_LOOKAHEAD, _LOOKS // sum(over.values())))
        self.held: dict[int, list[int]] = {seat: [] for seat in over}
        copies = board.copies
        for rank in ranks:
            for seat in copies[rank]:
                if seat in over:
                    self.held[seat].append(rank)

    def where_warm(self) -> None:
        """Shift copies to seats that have their state already, the warmest first."""
        warmth = self.board.draft.request.warmth
        lacking = {seat for seats in self.under.values() for seat in seats}
        edges: list[tuple[int, int, int, int, int]] = []
        stocked = stock(self.board.draft.request, sorted(lacking), sum(map(len, self.held.values())))
        for source, ranks in self.held.items():
            for rank in ranks if stocked is None else stocked.intersection(ranks):
                edges.extend(
                    (known.ready_class, known.lag, rank, source, target)
                    for target, known in warmth(rank).items()
                    if target in lacking and known.ready_class < Ready.NOTHING
                )
        for _, _, rank, source, target in sorted(edges):
            lacks = target in self.under.get(self.board.tags.kind[target], ())
            there = source in self.board.copies[rank]
            if lacks and there and self.over[source] and self.board.may_shift(rank, source, target):
                self._shift(rank, source, target)

    def anywhere(self) -> None:
        """Shift copies that no seat is warm for, those first of whose owner the seat holds most."""
        board = self.board
        owner = board.owner
        for source, ranks in self.held.items():
            if not self.over[source]:
                continue
            waiting = [(-board.pairs(owner[rank], source), rank) for rank in ranks if source in board.copies[rank]]
            waiting.sort(reverse=True)
            while waiting and self.over[source]:
                self._shift_one(source, waiting)

    def _shift_one(self, source: int, waiting: list[tuple[int, int]]) -> None:
        """Shift the best of the next few copies: where few of the owner's are, and what is cold at its source."""
        board = self.board
        if self.look == 1:
            _, rank = waiting.pop()
            target = self._taker(rank, source)
            if target != NOBODY:
                self._shift(rank, source, target)
            return
        request = board.draft.request
        best: tuple[int, int, int, int, int] | None = None
        for position in range(len(waiting) - 1, max(-1, len(waiting) - 1 - self.look), -1):
            rank = waiting[position][1]
            target = self._taker(rank, source)
            if target == NOBODY:
                continue
            coldness = -request.warmth(rank).get(source, _NOTHING).ready_class
            offer = (coldness, board.pairs(board.owner[rank], target), request.state_size(rank), -position, target)
            best = offer if best is None else min(best, offer)
        if best is None:
            del waiting[-self.look :]
        else:
            _, rank = waiting.pop(-best[3])
            self._shift(rank, source, best[4])

    def _taker(self, rank: int, source: int) -> int:
        """Return the seat for a copy: of those that hold too few, one with few copies of the same owner's tasks."""
        board = self.board
        owner = board.owner[rank]
        takers: list[tuple[int, float, int]] = []
        for kind, seats in self.under.items():
            if not board.may_change_kind(rank, source, kind):
                continue
            for target, room in seats.items():
                if board.may_hold(rank, target):
                    takers.append((board.pairs(owner, target), -room / board.capacity[target], target))
                    if len(takers) == _LOOKAHEAD:
                        return min(takers)[2]
        return min(takers)[2] if takers else NOBODY

    def _shift(self, rank: int, source: int, target: int) -> None:
        self.board.shift(rank, source, target)
        self.over[source] -= 1
        kind = self.board.tags.kind[target]
        seats = self.under[kind]
        seats[target] -= 1
        if not seats[target]:
            del seats[target]
            if not seats:
                del self.under[kind]
