"""Levelling standbys: a copy changes seats when that lowers the higher of the two loads per capacity.

Most of it is direct, from seats that hold too many to seats that hold too few, copies that are warm at their goal
first. Where tags, or copies of the same task, stand in the way, a path over other seats is looked for: each hands one
copy on to the next. Every step lowers a higher load in favour of a lower one, so it ends, and what is level is left
alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from batonpass.core.placement_bounds import level_counts
from batonpass.core.placement_copies import Standbys
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
        if not _Paths(board, ranks).shift_one():
            return
        stuck = _level_among(board, ranks, opened)


def fill_by_paths(board: Standbys, ranks: Sequence[int], missing: Sequence[int]) -> None:
    """Place the copies that found no seat, as long as there are slots that others can make use of."""
    for rank in missing:
        while len(board.copies[rank]) < board.wanted and any(board.slots[seat] > 0 for seat in board.draft.open):
            if not _Paths(board, ranks).make_room(rank):
                break


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
    """Direct shifts from seats that hold too many copies to seats that hold too few."""

    __slots__ = ("board", "held", "look", "over", "under")

    def __init__(self, board: Standbys, over: dict[int, int], under: dict[int, int], ranks: Iterable[int]) -> None:
        self.board = board
        self.over = over
        self.under = under
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
        edges: list[tuple[int, int, int, int, int]] = []
        known = stock(self.board.draft.request, self.under, sum(map(len, self.held.values())))
        for source, ranks in self.held.items():
            for rank in ranks if known is None else known.intersection(ranks):
                edges.extend(
                    (known.ready_class, known.lag, rank, source, target)
                    for target, known in warmth(rank).items()
                    if target in self.under and known.ready_class < Ready.NOTHING
                )
        for _, _, rank, source, target in sorted(edges):
            there = source in self.board.copies[rank]
            if there and self.over[source] and target in self.under and self.board.may_shift(rank, source, target):
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
        for target, room in self.under.items():
            if board.may_shift(rank, source, target):
                if len(self.under) == 1:
                    return target
                takers.append((board.pairs(owner, target), -room / board.capacity[target], target))
                if len(takers) == _LOOKAHEAD:
                    break
        return min(takers)[2] if takers else NOBODY

    def _shift(self, rank: int, source: int, target: int) -> None:
        self.board.shift(rank, source, target)
        self.over[source] -= 1
        self.under[target] -= 1
        if not self.under[target]:
            del self.under[target]


class _Paths:
    """Paths along which every seat hands one copy on, from a high seat to a low one."""

    __slots__ = ("board", "held", "reach")

    def __init__(self, board: Standbys, ranks: Iterable[int]) -> None:
        self.board = board
        self.held: dict[int, list[int]] = {seat: [] for seat in board.draft.open}
        for rank in ranks:
            for seat in board.copies[rank]:
                self.held[seat].append(rank)
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

    def shift_one(self) -> bool:
        """Lower the highest seat from which a lower one can be reached; return False if there is none."""
        board = self.board
        kind = board.tags.kind
        lowest: dict[int, float] = {}
        for seat in board.draft.open:
            if board.slots[seat] > 0:
                lowest[kind[seat]] = min(board.next_level[seat], lowest.get(kind[seat], board.next_level[seat]))
        for seat in sorted(board.draft.open, key=lambda seat: (-board.level(seat), seat)):
            height = board.level(seat)
            hope = min((lowest[one] for one in self.reach[kind[seat]] if one in lowest), default=height)
            if hope < height:

                def is_low(other: int, height: float = height) -> bool:
                    return board.next_level[other] < height

                if self._search({seat: (NOBODY, NOBODY)}, is_low):
                    return True
        return False

    def make_room(self, rank: int) -> bool:
        """Give a task one more copy, on a seat that hands one on to make room for it."""
        board = self.board
        first = [seat for seat in board.draft.open if board.may_hold(rank, seat)]
        for tier in board.tiers(rank):
            came = {seat: (NOBODY, rank) for seat in first if board.tags.kind[seat] in tier}
            if came and self._search(came, lambda _: True):
                return True
        return False

    def _search(self, came: dict[int, tuple[int, int]], low_enough: Callable[[int], bool]) -> bool:
        """Look for a path from one of the first seats to a low one with a slot, and hand copies on along it."""
        board = self.board
        rest = set(board.draft.open).difference(came)
        queue = deque(came)
        while queue and rest:
            source = queue.popleft()
            for rank in self.held[source]:
                for target in sorted(rest):
                    if not board.may_shift(rank, source, target):
                        continue
                    came[target] = (source, rank)
                    rest.discard(target)
                    queue.append(target)
                    if board.slots[target] > 0 and low_enough(target):
                        self._hand_on(target, came)
                        return True
        return False

    def _hand_on(self, end: int, came: dict[int, tuple[int, int]]) -> None:
        """Move every copy of the path by one seat, beginning at its end; a task that starts it gets a new copy."""
        target = end
        source, rank = came[target]
        while source != NOBODY:
            self.board.shift(rank, source, target)
            target = source
            source, rank = came[target]
        if rank != NOBODY:
            self.board.put(rank, target)
