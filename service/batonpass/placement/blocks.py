"""Blocks: members that take copies, grouped by tags and topology epoch."""

from __future__ import annotations

from collections.abc import Sequence

from batonpass.placement.state import PlacementState
from batonpass.placement.tags import Tags


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

    def of(self, task: int, owner: int, others: Sequence[int], *, kind: int | None = None, moves: bool = False) -> int:
        """Return the set of blocks that may have a copy of a task, beside its owner and its other copies.

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
            tiers = tiers if anywhere else tiers[:1]
            price = {each_kind: place for place, tier in enumerate(tiers) for each_kind in tier}
            if kind is not None:
                price = {kind: 0} if not anywhere else {**dict.fromkeys(price, 1), kind: 0}
            reach = tuple(
                (block, price[each_kind])
                for block, (each_kind, epoch) in enumerate(self._kinds)
                if each_kind in price and epoch >= need
            )
            known = self._known[key] = self._index.setdefault(reach, len(self.reach))
            if known == len(self.reach):
                self.reach.append(reach)
                self.allowed.append(frozenset(member for block, _ in reach for member in self.members[block]))
        return known
