"""Members that take copies, divided by what tags and topologies tell apart."""

from __future__ import annotations

from collections.abc import Sequence

from batonpass.core.placement.state import PlacementState
from batonpass.core.placement.tags import Tags


class Blocks:
    """Members that take copies, divided by what tags and topologies tell apart.

    Attributes:
        members: the blocks.
        reach: sets of blocks, with what each costs.
        allowed: per set, the members in it.
    """

    def __init__(self, state: PlacementState, tags: Tags, takers: Sequence[int], *, size: int, strict: bool) -> None:
        self._state = state
        self._tags = tags
        self._strict = strict
        alike: dict[tuple[int, int], list[int]] = {}
        for one in takers:
            epoch = state.request.members[one].topology_epoch if state.restricted else 0
            alike.setdefault((tags.kind[one], epoch), []).append(one)
        self._kinds: list[tuple[int, int]] = []
        self.members: list[list[int]] = []
        for key, some in sorted(alike.items()):
            for start in range(0, len(some), size):
                self._kinds.append(key)
                self.members.append(some[start : start + size])
        self.reach: list[tuple[tuple[int, int], ...]] = []
        self.allowed: list[frozenset[int]] = []
        self._block = {one: block for block, some in enumerate(self.members) for one in some}
        self._known: dict[tuple[tuple[int, ...], int, bool, int | None], int] = {}
        self._index: dict[tuple[tuple[int, int], ...], int] = {}

    def price(self, reach: int, member: int) -> int:
        """Return what a member of a set costs."""
        return dict(self.reach[reach])[self._block[member]]

    def of(self, task: int, owner: int, others: Sequence[int], *, kind: int | None = None, moves: bool = False) -> int:
        """Return which set of blocks may have a copy of a task, beside its owner and its other copies.

        Only copies that are missing may go where tags would rather not have them, once everybody may pass copies on and
        there is no room elsewhere.
        """
        kinds = self._tags.kind
        on = tuple(sorted([kinds[owner], *[kinds[one] for one in others]])) if self._tags.kinds > 1 else ()
        need = self._state.request.table.topology_epoch[task] if self._state.restricted else 0
        anywhere = not (moves or self._strict) and (self._state.limited or self._state.restricted)
        key = on, need, anywhere, kind
        known = self._known.get(key)
        if known is None:
            tiers = self._tags.tiers(on) if on else ((0,),)
            tiers = tiers if anywhere else tiers[:1]
            price = {one: place for place, tier in enumerate(tiers) for one in tier}
            if kind is not None:
                price = {kind: 0} if not anywhere else {**dict.fromkeys(price, 1), kind: 0}
            found = tuple(
                (block, price[one]) for block, (one, epoch) in enumerate(self._kinds) if one in price and epoch >= need
            )
            known = self._known[key] = self._index.setdefault(found, len(self.reach))
            if known == len(self.reach):
                self.reach.append(found)
                self.allowed.append(frozenset(member for block, _ in found for member in self.members[block]))
        return known
