"""First standbys of a group of equal seats: dealt ring by ring, one ring for each kind of seats.

A ring that is dealt round and round is level by itself, and owner by owner it spreads what each of them has over all of
its seats. How many copies go to which kind is settled beforehand, for all tasks together: that levels the rings among
one another, whatever kinds their owners may not use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import floor
from typing import Final

from batonpass.core.placement_copies import Standbys

_FITS: Final = 30
TINY: Final = 1e-9
Counts = list[int]


def deal_one_ring(board: Standbys, ring: Sequence[int], by_owner: Mapping[int, Sequence[int]]) -> None:
    """Deal an owner's tasks in turn to the seats one, two, three places further on in the ring.

    Every round, a task of each owner, gives every seat as many copies as any other. The last, incomplete round is left.
    """
    size, wanted = len(ring), board.wanted
    rounds = min(len(tasks) for tasks in by_owner.values())
    twice = [*ring, *ring]
    for place, seat in enumerate(ring):
        others = twice[place + 1 : place + size]
        around = others + others
        start = 0
        for rank in by_owner[seat][:rounds]:
            board.copies[rank] = tuple(around[start : start + wanted])
            start = (start + wanted) % (size - 1)
    for seat in ring:
        board.count[seat] += rounds * wanted
        board.slots[seat] -= rounds * wanted


def deal_single_copies(board: Standbys, ring: Sequence[int], by_owner: Mapping[int, Sequence[int]]) -> None:
    """Deal one copy of each task to the kinds that are best beside its owner's, which is never among them."""
    kind = board.tags.kind
    rings: dict[int, list[int]] = {}
    tasks: dict[int, list[int]] = {}
    for seat in ring:
        rings.setdefault(kind[seat], []).append(seat)
        tasks.setdefault(kind[seat], []).extend(by_owner[seat])
    best = {one: board.tags.tiers((one,))[0] for one in rings}
    given = dict.fromkeys(rings, 0)
    seats = {one: cycle([(seat,) for seat in members]) for one, members in rings.items()}
    for one, flows in _flows({k: len(ranks) for k, ranks in tasks.items()}, rings, best).items():
        turns = sorted([((turn + 0.5) / count, to) for to, count in flows.items() for turn in range(count)])
        for rank, (_, to) in zip(tasks[one], turns, strict=True):
            board.copies[rank] = next(seats[to])
        for to, count in flows.items():
            given[to] += count
    for one, members in rings.items():
        every, more = divmod(given[one], len(members))
        for place, seat in enumerate(members):
            board.count[seat] += every + (place < more)
            board.slots[seat] -= every + (place < more)


def _flows(
    supply: Mapping[int, int], rings: Mapping[int, Sequence[int]], best: Mapping[int, Sequence[int]]
) -> dict[int, dict[int, int]]:
    """Return how many of each kind's tasks have their copy on each kind that is best for them.

    In proportion, as nearly as whole numbers allow, to the sizes of the rings: every seat gets as many as any other,
    as far as the best kinds let it.
    """
    level = sum(supply.values()) / sum(map(len, rings.values()))
    factor = {one: float(len(members)) for one, members in rings.items()}
    shares: dict[int, dict[int, float]] = {}
    for _ in range(_FITS):
        for one, count in supply.items():
            whole = sum(factor[to] for to in best[one])
            shares[one] = {to: count * factor[to] / whole for to in best[one]}
        for to, members in rings.items():
            arriving = sum(share.get(to, 0.0) for share in shares.values())
            factor[to] *= level * len(members) / arriving if arriving else 1.0
    owed = dict.fromkeys(rings, 0.0)
    flows: dict[int, dict[int, int]] = {}
    for one, share in shares.items():
        flows[one] = {to: floor(part + TINY) for to, part in share.items()}
        for to, part in share.items():
            owed[to] += part - flows[one][to]
        for to in sorted(share, key=lambda other: -owed[other])[: supply[one] - sum(flows[one].values())]:
            flows[one][to] += 1
            owed[to] -= 1
    return flows


def deal_by_kind(board: Standbys, ring: Sequence[int], by_owner: Mapping[int, Sequence[int]]) -> None:
    """Deal several copies of each task, of every kind that is best beside the others as many as levels the rings."""
    kind = board.tags.kind
    rings: list[list[int]] = [[] for _ in range(board.tags.kinds)]
    for seat in ring:
        rings[kind[seat]].append(seat)
    mix = _Mix(board, [len(members) for members in rings])
    mixes: dict[int, list[Counts]] = {seat: [] for seat in ring}
    # A task of each owner in turn, so that rings are level at every moment; the seats are dealt owner by owner. Every
    # turn begins with another owner, so that the same owner does not meet the same kinds each time.
    for turn in range(max(map(len, by_owner.values()))):
        first = turn % len(ring)
        for seat in (*ring[first:], *ring[:first]):
            if turn < len(by_owner[seat]):
                mixes[seat].append(mix.next_of(kind[seat]))
    around = [members * 3 for members in rings]
    start = [0] * len(rings)
    given = [0] * len(board.count)
    for owner in ring:
        own = kind[owner]
        for rank, counts in zip(by_owner[owner], mixes[owner], strict=True):
            copies: list[int] = []
            for one, count in enumerate(counts):
                if count:
                    place = start[one]
                    end = place + count
                    found = around[one][place:end]
                    if one == own and owner in found:
                        end += 1
                        found = around[one][place:end]
                        found.remove(owner)
                    start[one] = end % len(rings[one])
                    copies += found
            copies.sort()
            board.copies[rank] = tuple(copies)
            for seat in copies:
                given[seat] += 1
    for seat, count in enumerate(given):
        board.count[seat] += count
        board.slots[seat] -= count


class _Mix:
    """How many copies of a task go to each kind of seats, so that all kinds are as high per seat."""

    __slots__ = ("_given", "_sizes", "_tags", "_wanted")

    def __init__(self, board: Standbys, sizes: Sequence[int]) -> None:
        self._tags = board.tags
        self._wanted = board.wanted
        self._sizes = sizes
        self._given = [0] * len(sizes)

    def next_of(self, owner: int) -> Counts:
        """Return per kind the copies of one more task whose owner is of this kind."""
        counts = [0] * len(self._sizes)
        on = [owner]
        left = self._wanted
        while left:
            tiers = self._tags.tiers(tuple(sorted(on)))
            if len(tiers) == 1 and all(kind in on for kind in tiers[0]):
                self._fill(counts, owner, left)
                break
            kind = min(tiers[0], key=self._height)
            self._given[kind] += 1
            counts[kind] += 1
            on.append(kind)
            left -= 1
        return counts

    def _height(self, kind: int) -> float:
        return (self._given[kind] + 1) / self._sizes[kind]

    def _fill(self, counts: Counts, owner: int, left: int) -> None:
        """Add copies to the kinds that are lowest; tags have nothing more to say about this task."""
        sizes, given = self._sizes, self._given
        room = [size - count for size, count in zip(sizes, counts, strict=True)]
        room[owner] -= 1
        level = (sum(given) + left) / sum(sizes)
        for kind, size in enumerate(sizes):
            more = max(0, min(room[kind], left, floor(level * size) - given[kind]))
            counts[kind] += more
            given[kind] += more
            room[kind] -= more
            left -= more
        for _ in range(left):
            kind = min([kind for kind, free in enumerate(room) if free], key=self._height)
            counts[kind] += 1
            given[kind] += 1
            room[kind] -= 1
