"""Levelling standbys: a copy changes seats when that lowers the higher of the two loads per capacity.

Most of it is direct, from seats that hold too many to seats that hold too few, copies that are warm at their goal
first. Where tags, or copies of the same task, stand in the way, a path over other seats is looked for: each hands one
copy on to the next. Every step lowers a higher load in favour of a lower one, so it ends, and what is level is left
alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from batonpass.core.placement_bounds import level_counts
from batonpass.core.placement_copies import Standbys
from batonpass.core.placement_paths import Paths
from batonpass.core.placement_types import NOBODY, Ready, Warmth, stock

# How many seats, and how many copies, are compared by how they spread an owner's copies.
_LOOKAHEAD: Final = 4
_CHOICE: Final = 16


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

    __slots__ = ("board", "held", "over", "under")

    def __init__(self, board: Standbys, over: dict[int, int], under: dict[int, int], ranks: Iterable[int]) -> None:
        self.board = board
        self.over = over
        self.under: dict[int, dict[int, int]] = {}
        for seat, room in under.items():
            self.under.setdefault(board.tags.kind[seat], {})[seat] = room
        self.held: dict[int, list[int]] = {seat: [] for seat in over}
        copies = board.copies
        for rank in ranks:
            for seat in copies[rank]:
                if seat in over:
                    self.held[seat].append(rank)

    def where_warm(self) -> None:
        """Shift copies to seats that have their state already, the warmest first."""
        edges = sorted(
            (known.ready_class, known.lag, rank, source, target)
            for rank, source, target, known in self._edges()
            if known.ready_class < Ready.NOTHING
        )
        for _, _, rank, source, target in edges:
            lacks = target in self.under.get(self.board.tags.kind[target], ())
            there = source in self.board.copies[rank]
            if lacks and there and self.over[source] and self.board.may_shift(rank, source, target):
                self._shift(rank, source, target)

    def _edges(self) -> Iterator[tuple[int, int, int, Warmth]]:
        """Yield each task of a seat that holds too many, that seat, and one that lacks some, with what it has of it."""
        request = self.board.draft.request
        lacking = {seat for seats in self.under.values() for seat in seats}
        stocked = stock(request, sorted(lacking), sum(map(len, self.held.values())))
        # Most of what a seat has is what it runs, or holds already.
        owner, copies = self.board.owner, self.board.copies
        if stocked is None:
            for source, ranks in self.held.items():
                for rank in ranks:
                    for target in request.seats_with_state(rank):
                        if target in lacking and target != owner[rank] and target not in copies[rank]:
                            yield rank, source, target, request.state_at(rank, target)
        else:
            for target, named in stocked.items():
                for rank in named:
                    if target != owner[rank] and target not in copies[rank]:
                        for source in copies[rank]:
                            if source in self.over:
                                yield rank, source, target, request.state_at(rank, target)

    def anywhere(self) -> None:
        """Shift copies that no seat is warm for: those that are cold where they are, then owner by owner in turn."""
        request = self.board.draft.request
        for source, ranks in self.held.items():
            if not self.over[source]:
                continue
            every = len(ranks) // (_CHOICE * self.over[source])
            # Where few of many go, some of them are choice enough.
            sample = ranks[::every] if every > 1 and request.is_level(source) else []
            for chosen in (sample, ranks):
                waiting = deque(self._in_turn(source, chosen))
                while self.over[source] and waiting:
                    self._shift_one(source, waiting)

    def _shift_one(self, source: int, waiting: deque[int]) -> None:
        """Shift the first copy that finds a seat with no more of its owner's copies than are everybody's part there.

        Failing that, of the next few the one that finds the fewest.
        """
        board = self.board
        parts = len(board.draft.open)
        best: tuple[int, int, int] | None = None
        for place in range(min(_LOOKAHEAD, len(waiting))):
            rank = waiting[place]
            target = self._taker(rank, source)
            if target != NOBODY:
                shared = board.pairs(board.owner[rank], target)
                if best is None or shared < best[0]:
                    best = (shared, place, target)
                if shared * parts <= board.count[target]:
                    break
        if best is None:
            for _ in range(min(_LOOKAHEAD, len(waiting))):
                waiting.popleft()
        else:
            rank = waiting[best[1]]
            del waiting[best[1]]
            self._shift(rank, source, best[2])

    def _in_turn(self, source: int, ranks: Sequence[int]) -> list[int]:
        """Return the copies of a seat in the order in which they go: always one of the owner of whom it has most."""
        owner, copies, request = self.board.owner, self.board.copies, self.board.draft.request
        there = [rank for rank in ranks if source in copies[rank]] if self.over[source] else []
        left = Counter([owner[rank] for rank in there])
        labels: list[int] = []
        for rank in there:
            labels.append(-left[owner[rank]])
            left[owner[rank]] -= 1
        if request.is_level(source):
            order = sorted(zip(labels, map(request.state_size, there), there, strict=True))
            return [rank for _, _, rank in order]
        classes = [-request.state_at(rank, source).ready_class for rank in there]
        by_class = sorted(zip(classes, labels, map(request.state_size, there), there, strict=True))
        return [rank for *_, rank in by_class]

    def _taker(self, rank: int, source: int) -> int:
        """Return the seat for a copy: of those that hold too few, one with few copies of the same owner's tasks."""
        board = self.board
        owner, copies = board.owner[rank], board.copies[rank]
        one_kind = board.tags.kinds == 1
        takers: list[tuple[int, float, int]] = []
        for kind, seats in self.under.items():
            if one_kind or board.may_change_kind(rank, source, kind):
                for target, room in seats.items():
                    if target != owner and target not in copies and board.may_stay(rank, target):
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
