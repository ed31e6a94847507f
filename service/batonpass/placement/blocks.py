"""Blocks: members that take copies, grouped by tags and topology epoch."""

from collections.abc import Callable, Sequence

import numpy as np

from batonpass.placement.flow import Ints
from batonpass.placement.state import PlacementState
from batonpass.placement.tags import Tags
from batonpass.placement.types import UNASSIGNED

BARRED = -1
"""The cost of a block that may not have a copy."""


class Blocks:
    """Members that take copies, grouped so that tags and topology epochs do not distinguish the members of a group.

    Attributes:
        members: the members of each block.
        block: per member, its block; ``UNASSIGNED`` for members that take nothing.
        reach: sets of blocks: for each set the cost of every block, or ``BARRED``.
    """

    def __init__(self, state: PlacementState, tags: Tags, takers: Sequence[int], *, strict: bool = True) -> None:
        """With ``strict``, copies go only to blocks that tags rank best."""
        self._state = state
        self._tags = tags
        self._strict = strict
        alike: dict[tuple[int, int], list[int]] = {}
        for member in takers:
            epoch = state.request.members[member].topology_epoch if state.restricted else 0
            alike.setdefault((tags.kind[member], epoch), []).append(member)
        self._kinds = sorted(alike)
        self.members = [alike[key] for key in self._kinds]
        self.block = np.full(len(state.capacity), UNASSIGNED)
        for block, some in enumerate(self.members):
            self.block[some] = block
        self.reach: list[tuple[int, ...]] = []
        self._known: dict[tuple[tuple[int, ...], int, bool, int | None], int] = {}
        self._index: dict[tuple[int, ...], int] = {}

    def price(self, reach: int, member: int) -> int:
        """Return the cost of a member in a set."""
        block = int(self.block[member])
        return self.reach[reach][block] if block != UNASSIGNED else BARRED

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
            reach = tuple(price.get(each, BARRED) if epoch >= need else BARRED for each, epoch in self._kinds)
            known = self._known[key] = self._index.setdefault(reach, len(self.reach))
            if known == len(self.reach):
                self.reach.append(reach)
        return known


def epoch_blocks(state: PlacementState, takers: Sequence[int]) -> tuple[Blocks, Ints]:
    """Return the members by topology epoch alone, and for every task the set of blocks that may have its active."""
    blocks = Blocks(state, Tags(state.request.members, state.eligible, ()), takers)
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
