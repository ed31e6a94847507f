"""Who still has to give tasks away, who still takes some, and which of them go where a warm copy waits.

The counts are settled before anything is exchanged (`placement_bounds`), so every exchange that they allow is as good
as any other for balance and for the number of moves. What is chosen here is *which* tasks go, and where to: where a
warmup already runs, then where most of the state already is. Readiness is matched for the group as a whole, so that no
task takes the one place at which another would have been ready at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from batonpass.core.placement_types import NOBODY, PlacementRequest, Ready, Warmth, stock


@dataclass(slots=True)
class Exchange:
    """What is left to exchange.

    Attributes:
        owner: rank to target owner; changed by every move.
        homeless: the tasks that nobody keeps; each has to go somewhere.
        pools: per giving seat, the tasks that it may choose from.
        must: per seat, how many it has to give.
        may: per seat, whether it may give one more, at the expense of ``spare``.
        spare: how many seats give one more.
        room: per seat, how many it has to take.
        extra: per seat, whether it may take one more, at the expense of ``spare_room``.
        spare_room: how many seats take one more.
        fixed: the tasks that are bound to a seat.
        kind: rank to whether it is stateful.
        stateful: which kind of tasks is exchanged.
        have: per seat, how many tasks of the kind it had before.
        moved: the tasks that went, each with the seat that gave it.
        left: how many tasks have still to go.
    """

    owner: list[int]
    homeless: list[int]
    pools: dict[int, list[int]]
    must: list[int]
    may: list[bool]
    spare: int
    room: list[int]
    extra: list[bool]
    spare_room: int
    fixed: Mapping[int, int]
    kind: Sequence[bool]
    stateful: bool
    have: list[int]
    moved: dict[int, int] = field(default_factory=dict)
    left: int = field(init=False)

    def __post_init__(self) -> None:
        """Count what there is to do."""
        self.left = sum(self.room) + self.spare_room

    def gives(self, seat: int) -> bool:
        """Tell whether the seat has a task to give; a homeless task can always go."""
        return seat == NOBODY or self.must[seat] > 0 or (self.spare > 0 and self.may[seat])

    def takes(self, seat: int) -> bool:
        """Tell whether the seat has room for one more task."""
        return self.room[seat] > 0 or (self.spare_room > 0 and self.extra[seat])

    def move(self, rank: int, source: int, target: int) -> None:
        """Let a task go from one seat (`NOBODY`: a homeless task) to another."""
        if source != NOBODY:
            if self.must[source] > 0:
                self.must[source] -= 1
            else:
                self.may[source] = False
                self.spare -= 1
        if self.room[target] > 0:
            self.room[target] -= 1
        else:
            self.extra[target] = False
            self.spare_room -= 1
        self.owner[rank] = target
        self.moved[rank] = source
        self.left -= 1

    def narrow_gifts(self, order: Callable[[int], float]) -> None:
        """Let the first in an order give one more; only where some are equal does it stay open which of them."""
        chosen, undecided = _first([seat for seat, may in enumerate(self.may) if may], self.spare, order)
        for seat in chosen:
            self.must[seat] += 1
        self.spare -= len(chosen)
        self.may = [seat in undecided for seat in range(len(self.may))]

    def narrow_room(self, order: Callable[[int], float]) -> None:
        """Let the first in an order take one more; only where some are equal does it stay open which of them."""
        chosen, undecided = _first([seat for seat, may in enumerate(self.extra) if may], self.spare_room, order)
        for seat in chosen:
            self.room[seat] += 1
        self.spare_room -= len(chosen)
        self.extra = [seat in undecided for seat in range(len(self.extra))]

    def movable(self) -> Iterator[tuple[int, int]]:
        """Yield each task that may still go, with the seat that would give it."""
        for rank in self.homeless:
            if rank not in self.moved:
                yield rank, NOBODY
        for seat, pool in self.pools.items():
            if self.gives(seat):
                for rank in pool:
                    if rank not in self.moved:
                        yield rank, seat

    def movable_of(self, ranks: Iterable[int]) -> list[tuple[int, int]]:
        """Return those of the tasks that may still go, each with the seat that would give it."""
        wanted = set(ranks)
        found = [(rank, NOBODY) for rank in self.homeless if rank in wanted and rank not in self.moved]
        for rank in sorted(wanted.difference(self.fixed, self.moved)):
            seat = self.owner[rank]
            if seat in self.pools and self.kind[rank] == self.stateful and self.gives(seat):
                found.append((rank, seat))
        return found

    @property
    def receivers(self) -> list[int]:
        """The seats that still take tasks."""
        return [seat for seat in range(len(self.room)) if self.takes(seat)]


def _first(seats: list[int], count: int, order: Callable[[int], float]) -> tuple[list[int], set[int]]:
    """Return the seats that are among the first for certain, and those that tie for the places that are left."""
    if not count:
        return [], set()
    last = sorted(map(order, seats))[count - 1]
    return [seat for seat in seats if order(seat) < last], {seat for seat in seats if order(seat) == last}


def keep_under_way(exchange: Exchange, request: PlacementRequest, targets: Mapping[int, int]) -> None:
    """Let each move under way go on whose goal is still open to it; those nearest to their end come first."""
    if not targets or not exchange.left:
        return
    wanted = [(rank, source, targets[rank]) for rank, source in exchange.movable_of(targets)]
    wanted.sort(key=lambda move: (*request.state_at(move[0], move[2]), move[0]))
    for rank, source, target in wanted:
        if exchange.gives(source) and exchange.takes(target):
            exchange.move(rank, source, target)


@dataclass(slots=True)
class _Copies:
    """The copies that matter: those on seats that take tasks, of tasks that may go."""

    source: dict[int, int] = field(default_factory=dict)
    ready: dict[int, list[int]] = field(default_factory=dict)
    ready_edges: list[tuple[bool, int, int]] = field(default_factory=list)
    behind_edges: list[tuple[int, int, bool, int, int]] = field(default_factory=list)
    unknown: set[tuple[int, int]] = field(default_factory=set)


def _look(exchange: Exchange, request: PlacementRequest) -> _Copies:
    copies = _Copies()
    previous = request.previous
    for rank, source, seat, (ready_class, lag) in _edges(exchange, request):
        if ready_class == Ready.NOTHING:
            continue
        if ready_class == Ready.UNKNOWN:
            copies.unknown.add((rank, seat))
            continue
        copies.source[rank] = source
        changes = previous.get(rank) != seat
        if ready_class <= Ready.CAUGHT_UP:
            copies.ready.setdefault(rank, []).append(seat)
            copies.ready_edges.append((changes, rank, seat))
        else:
            copies.behind_edges.append((ready_class, lag, changes, rank, seat))
    copies.ready_edges.sort()
    copies.behind_edges.sort()
    return copies


def _edges(exchange: Exchange, request: PlacementRequest) -> Iterator[tuple[int, int, int, Warmth]]:
    """Yield each task that may still go, who would give it, and a seat that takes tasks, with what that has of it."""
    takes = dict.fromkeys(exchange.receivers)
    candidates = len(exchange.homeless) + sum(map(len, exchange.pools.values()))
    stocked = stock(request, takes, candidates)
    if stocked is None:
        for rank, source in exchange.movable():
            for seat in request.seats_with_state(rank):
                if seat in takes:
                    yield rank, source, seat, request.state_at(rank, seat)
    elif stocked:
        sources = dict(exchange.movable_of({rank for ranks in stocked.values() for rank in ranks}))
        for seat, ranks in stocked.items():
            for rank in ranks:
                if rank in sources:
                    yield rank, sources[rank], seat, request.state_at(rank, seat)


class _Evenly:
    """Picks among equally warm seats: the one with least of the task's subtopology, then with least taken, so far."""

    __slots__ = ("_capacity", "_exchange", "_part", "_part_of", "_taken")

    def __init__(self, exchange: Exchange, request: PlacementRequest) -> None:
        self._exchange = exchange
        self._capacity = [seat.capacity for seat in request.seats]
        self._part_of = request.table.subtopology
        self._part: Counter[tuple[int, int]] | None = None
        self._taken: Counter[int] = Counter()

    def choose(self, rank: int, source: int, edges: Iterable[tuple[int, ...]]) -> int:
        """Let the task go to one of the seats (the last of each edge); return which, `NOBODY` if it stays."""
        exchange = self._exchange
        if rank in exchange.moved or not exchange.gives(source):
            return NOBODY
        open_seats = [edge[-1] for edge in edges if exchange.takes(edge[-1])]
        if not open_seats:
            return NOBODY
        seat = open_seats[0] if len(open_seats) == 1 else min(open_seats, key=lambda one: self._price(rank, one))
        exchange.move(rank, source, seat)
        self._taken[seat] += 1
        if self._part is not None:
            part = self._part_of[rank]
            self._part[source, part] -= 1
            self._part[seat, part] += 1
        return seat

    def _price(self, rank: int, seat: int) -> tuple[float, float, int]:
        if self._part is None:
            self._part = Counter(zip(self._exchange.owner, self._part_of, strict=True))
        capacity = self._capacity[seat]
        return (self._part[seat, self._part_of[rank]] / capacity, self._taken[seat] / capacity, seat)


def go_where_warm(exchange: Exchange, request: PlacementRequest) -> set[tuple[int, int]]:
    """Let as many tasks as possible go where they are caught up, then the others where least is left to restore.

    Returns:
        The (task, seat) pairs whose state nobody can judge: the last choice for what goes next.
    """
    copies = _look(exchange, request)
    matched: dict[int, list[int]] = {}
    evenly = _Evenly(exchange, request)
    for (_, rank), ready in groupby(copies.ready_edges, key=itemgetter(0, 1)):
        seat = evenly.choose(rank, copies.source[rank], ready)
        if seat != NOBODY:
            matched.setdefault(seat, []).append(rank)
    _match_more(exchange, copies, matched)
    for (_, _, _, rank), behind in groupby(copies.behind_edges, key=itemgetter(0, 1, 2, 3)):
        evenly.choose(rank, copies.source[rank], behind)
    return copies.unknown


def _match_more(exchange: Exchange, copies: _Copies, matched: dict[int, list[int]]) -> None:
    """Reroute what is matched already as long as one more task finds a seat on which it is caught up.

    Augmenting paths, as in bipartite matching: a seat that was in reach of a failed search stays out of reach until a
    search succeeds.
    """
    offers: dict[int, list[int]] = {}
    for rank in sorted(copies.ready):
        if copies.source[rank] != NOBODY:
            offers.setdefault(copies.source[rank], []).append(rank)
    seen: dict[int, tuple[int, int, int]] = {}
    for rank in sorted(copies.ready):
        source = copies.source[rank]
        if rank in exchange.moved or not exchange.gives(source):
            continue
        free = _reach(exchange, copies, offers, matched, (rank, seen))
        if free != NOBODY:
            _reroute(exchange, copies, matched, seen, free)
            seen = {}


def _reach(
    exchange: Exchange,
    copies: _Copies,
    offers: Mapping[int, Sequence[int]],
    matched: Mapping[int, Sequence[int]],
    search: tuple[int, dict[int, tuple[int, int, int]]],
) -> int:
    """Find a seat with room that the task reaches by rerouting others; `NOBODY` where there is none.

    ``seen`` records per seat reached: the task that would go there, the task that it would displace, and from where.
    """
    start, seen = search
    queue: deque[int] = deque()

    def visit(ranks: Iterable[int], displaced: int, via: int) -> int:
        for rank in ranks:
            if rank != displaced and rank in exchange.moved:
                continue
            for seat in copies.ready[rank]:
                if seat in seen:
                    continue
                seen[seat] = (rank, displaced, via)
                if exchange.takes(seat):
                    return seat
                queue.append(seat)
        return NOBODY

    found = visit([start], start, NOBODY)
    while found == NOBODY and queue:
        seat = queue.popleft()
        for rank in matched.get(seat, ()):
            found = visit(offers.get(copies.source[rank], [rank]), rank, seat)
            if found != NOBODY:
                break
    return found


def _reroute(
    exchange: Exchange,
    copies: _Copies,
    matched: dict[int, list[int]],
    seen: Mapping[int, tuple[int, int, int]],
    free: int,
) -> None:
    """Shift every task of the path by one seat, beginning at the seat with room."""
    seat = free
    while True:
        rank, displaced, via = seen[seat]
        matched.setdefault(seat, []).append(rank)
        if via == NOBODY:
            break
        matched[via].remove(displaced)
        if rank != displaced:
            # The giver stays the same; it gives another task.
            del exchange.moved[displaced]
            exchange.owner[displaced] = copies.source[displaced]
        exchange.owner[rank] = seat
        exchange.moved[rank] = copies.source[rank]
        seat = via
    # Only the end of the path changes counts: one more task is given, one more place is taken.
    exchange.move(rank, copies.source[rank], free)
    exchange.owner[rank] = seat
