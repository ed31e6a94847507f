"""Blocks: members that take copies, grouped by tags and topology epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from batonpass.placement.flow import Ints
from batonpass.placement.state import PlacementState
from batonpass.placement.tags import Tags
from batonpass.placement.types import UNASSIGNED


class Blocks:
    """Members that take copies, grouped so that tags and topology epochs do not distinguish the members of a group.

    Attributes:
        members: the members of each block.
        reach: sets of blocks, each block with its cost.
        allowed: per set, the members in it.
    """

    def __init__(self, state: PlacementState, tags: Tags, takers: Sequence[int], *, size: int, strict: bool) -> None:
        self._state = state
        self._tags = tags
        self._strict = strict
        alike: dict[tuple[int, int], list[int]] = {}
        for member in takers:
            epoch = state.request.members[member].topology_epoch if state.restricted else 0
            alike.setdefault((tags.kind[member], epoch), []).append(member)
        self._kinds: list[tuple[int, int]] = []
        self.members: list[list[int]] = []
        for key, some in sorted(alike.items()):
            for start in range(0, len(some), size):
                self._kinds.append(key)
                self.members.append(some[start : start + size])
        self.reach: list[tuple[tuple[int, int], ...]] = []
        self.allowed: list[frozenset[int]] = []
        self._block = {member: block for block, some in enumerate(self.members) for member in some}
        self._known: dict[tuple[tuple[int, ...], int, bool, int | None], int] = {}
        self._index: dict[tuple[tuple[int, int], ...], int] = {}

    def price(self, reach: int, member: int) -> int:
        """Return the cost of a member in a set."""
        return dict(self.reach[reach])[self._block[member]]

    def among(self, reach: int) -> tuple[int, ...]:
        """Return the blocks of a set."""
        return tuple([block for block, _ in self.reach[reach]])

    def of(self, task: int, owner: int, others: Sequence[int], *, kind: int | None = None, moves: bool = False) -> int:
        """Return the set of blocks that may have a copy of a task, beside its owner and its other copies.

        With a ``kind`` these are its blocks.
        Only missing copies may go to a block that tags rank lower, and only if every member may pass copies on and the
        better blocks have no room.
        """
        kinds = self._tags.kind
        on = tuple(sorted([kinds[owner], *[kinds[member] for member in others]])) if self._tags.kinds > 1 else ()
        need = self._state.request.table.topology_epoch[task] if self._state.restricted else 0
        anywhere = not (moves or self._strict) and (self._state.limited or self._state.restricted)
        key = on, need, anywhere, kind
        known = self._known.get(key)
        if known is None:
            tiers = self._tags.tiers(on) if on else ((0,),)
            tiers = ((kind,),) if kind is not None else tiers if anywhere else tiers[:1]
            price = {each: place for place, tier in enumerate(tiers) for each in tier}
            reach = tuple(
                (block, price[each])
                for block, (each, epoch) in enumerate(self._kinds)
                if each in price and epoch >= need
            )
            known = self._known[key] = self._index.setdefault(reach, len(self.reach))
            if known == len(self.reach):
                self.reach.append(reach)
                self.allowed.append(frozenset(member for block, _ in reach for member in self.members[block]))
        return known


def epoch_blocks(state: PlacementState, takers: Sequence[int]) -> tuple[Blocks, Ints]:
    """Return the members by topology epoch alone, and for every task the set of blocks that may have its active."""
    untagged = Tags(state.request.members, state.eligible, ())
    blocks = Blocks(state, untagged, takers, size=max(1, len(takers)), strict=True)
    need = np.array(state.request.table.topology_epoch, np.int64) * state.restricted
    return blocks, per_class(need, np.arange(len(need)), lambda task: blocks.of(task, UNASSIGNED, ()))


def per_class(numbers: Ints, values: Ints, answer: Callable[[int], int]) -> Ints:
    """Compute the answer once for each number, from the first of its values, and return it for all its values."""
    _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    return np.array([answer(value) for value in values[first].tolist()], np.int64)[place]


def numbered(*columns: Ints) -> Ints:
    """Return a number for each row, the same where all columns agree. The numbers sort as the columns do, in turn."""
    numbers = np.zeros(len(columns[0]), np.int64)
    for number, rows in enumerate(grouped(*columns)):
        numbers[rows] = number
    return numbers


def grouped(*columns: Ints) -> list[Ints]:
    """Return the places of rows in groups in which all columns agree, sorted as the columns are, in turn."""
    order = np.lexsort(columns[::-1])
    rows = np.stack(columns)[:, order]
    return np.split(order, np.flatnonzero(np.any(rows[:, 1:] != rows[:, :-1], axis=0)) + 1) if len(order) else []
