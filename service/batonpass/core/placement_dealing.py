"""First standbys, dealt in rings: where nobody has anything yet, and seats differ in nothing but their tags.

Owner by owner, so that one owner's standbys go to seats that follow one another in a ring, and spread over all of it. A
ring that is dealt round and round is level by itself. What a deal leaves undone is filled up like any other task.
"""

from __future__ import annotations

from collections.abc import Sequence

from batonpass.core.placement_copies import Standbys


def deal_standbys(board: Standbys, ranks: Sequence[int]) -> None:
    """Deal first standbys, if the seats are equal and there are enough of them."""
    draft = board.draft
    ring = sorted(draft.open, key=lambda seat: (-draft.actives[seat], seat))
    equal = len({draft.capacity[seat] for seat in ring}) == 1 and not draft.limited
    if not equal or len(ring) <= board.wanted or board.epochs:
        return
    by_owner: dict[int, list[int]] = {seat: [] for seat in ring}
    for rank in ranks:
        if board.owner[rank] in by_owner:
            by_owner[board.owner[rank]].append(rank)
    if board.tags.kinds == 1:
        _deal_one_ring(board, ring, by_owner)
    else:
        _Rings(board, ring).deal(by_owner)


def _deal_one_ring(board: Standbys, ring: Sequence[int], by_owner: dict[int, list[int]]) -> None:
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


class _Rings:
    """One ring of seats per kind; the next copy goes to the lowest of the kinds that tags put first."""

    __slots__ = ("board", "given", "place", "rings")

    def __init__(self, board: Standbys, ring: Sequence[int]) -> None:
        self.board = board
        self.rings: list[list[int]] = [[] for _ in range(board.tags.kinds)]
        for seat in ring:
            self.rings[board.tags.kind[seat]].append(seat)
        self.place = [0] * len(self.rings)
        self.given = [0] * len(self.rings)

    def deal(self, by_owner: dict[int, list[int]]) -> None:
        """Deal the copies of all tasks, owner by owner."""
        board = self.board
        for owner, tasks in by_owner.items():
            for rank in tasks:
                seats = self._copies(owner)
                board.copies[rank] = tuple(sorted(seats))
                for seat in seats:
                    board.count[seat] += 1
                    board.slots[seat] -= 1

    def _copies(self, owner: int) -> list[int]:
        """Return the seats for the copies of a task."""
        kind, tags = self.board.tags.kind, self.board.tags
        taken = [owner]
        on = [kind[owner]]
        for _ in range(self.board.wanted):
            tiers = tags.tiers(tuple(sorted(on)))
            if len(tiers) == 1 and len(on) > 1:
                # All values are used up, and will stay so: tags have nothing more to say about this task.
                self._fill_up(taken, on)
                break
            self._take(min(tiers[0], key=self._height), taken, on)
        return taken[1:]

    def _height(self, kind: int) -> float:
        return (self.given[kind] + 1) / len(self.rings[kind])

    def _fill_up(self, taken: list[int], on: list[int]) -> None:
        """Take what is still wanted from the lowest kinds that have seats left."""
        free = [len(ring) for ring in self.rings]
        for kind in on:
            free[kind] -= 1
        while len(taken) <= self.board.wanted:
            kind = min((kind for kind, count in enumerate(free) if count), key=self._height)
            free[kind] -= 1
            self._take(kind, taken, on)

    def _take(self, kind: int, taken: list[int], on: list[int]) -> None:
        """Take the next seat of a ring that has no copy of the task; a seat that is passed over is the next but one."""
        ring = self.rings[kind]
        place = self.place[kind]
        if ring[place] in taken:
            other = next(step for step in range(len(ring)) if ring[(place + step) % len(ring)] not in taken)
            other = (place + other) % len(ring)
            ring[place], ring[other] = ring[other], ring[place]
        taken.append(ring[place])
        on.append(kind)
        self.given[kind] += 1
        self.place[kind] = (place + 1) % len(ring)
