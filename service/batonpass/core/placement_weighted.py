"""Target owners of stateful tasks of different weights: every seat near its quota, and few moves.

Near means within the weight of the heaviest stateful task. Which tasks have to move for that is a packing problem
(NP-hard), so the fewest are searched for, not known: seats above their band shed as few tasks as can be, seats below it
are covered by those, by homeless tasks, and by as few others as can be; then every move is tried for whether the rest
can do without it. What moves at all may go anywhere at no further cost: on with a move under way, to where it is warm,
to what is still too low, and at last as it suits the subtopologies.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from batonpass.core.placement_actives import fit, stateless_running, take_stock
from batonpass.core.placement_bent import place_bent, relieve
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_market import Market
from batonpass.core.placement_scales import Scales
from batonpass.core.placement_settling import Settling
from batonpass.core.placement_types import NOBODY

# What a search for fewer moves may look at, counted in seats and tasks weighed.
_EFFORT: Final = 300_000


def place_weighted(draft: Draft) -> int:
    """Give every stateful task a target.

    Returns:
        A number of moves that no placement as balanced can do with less than.
    """
    if draft.limited or draft.restricted:
        return place_bent(draft, _place_once)
    return _place_once(draft)


def _place_once(draft: Draft) -> int:
    held = take_stock(draft, draft.request.table.stateful_ranks, stateful=True)
    held.homeless[:] = fit(draft, held, stateless_running(draft))
    scales = Scales(draft, held)
    if draft.restricted:
        Settling(scales, ()).run()
        relieve(scales)
        return held.forced + len(held.homeless)
    search = _Search(scales)
    leaving = search.run(())
    under_way = search.under_way()
    if under_way:
        sticky = search.run(under_way)
        leaving = sticky if len(sticky) <= len(leaving) else leaving
    Settling(scales, leaving).run()
    return held.forced + len(held.homeless) + (0 if draft.limited else scales.least_moves())


class _Search:
    """The search for the fewest tasks to take from their homes."""

    __slots__ = ("effort", "scales")

    def __init__(self, scales: Scales) -> None:
        self.scales = scales
        self.effort = _EFFORT

    def under_way(self) -> list[int]:
        """Return the tasks of open seats whose move is under way to an open one."""
        scales = self.scales
        draft = scales.draft
        request = draft.request
        return [
            rank
            for rank, target in sorted({**request.previous, **request.warming}.items())
            if not draft.closed[target]
            and draft.owner[rank] != target
            and not draft.closed[draft.owner[rank]]
            and rank not in request.bound
            and request.table.stateful[rank]
        ]

    def run(self, start: Collection[int]) -> set[int]:
        """Return the tasks that leave their homes, beginning with some that do already."""
        leaving = set(start)
        self._shed(leaving)
        if self.scales.draft.request.balance_held:
            return leaving
        shed = set(leaving)
        while not self._works(leaving):
            if not self._add(leaving):
                # The limits keep some band out of reach, and moves towards it would help nobody.
                return shed
        self._do_without(leaving, self.scales.least_moves())
        return leaving

    def _items(self, leaving: Collection[int]) -> list[int]:
        weight = self.scales.weight
        return sorted([*self.scales.held.homeless, *leaving], key=lambda rank: (-weight[rank], rank))

    def _works(self, leaving: Collection[int]) -> bool:
        """Tell whether every seat is within its band with these tasks, and the homeless ones, put to best use."""
        scales = self.scales
        loads, slots = scales.loads_without(leaving), scales.slots_without(leaving)
        self.effort -= len(loads) + len(leaving) + len(scales.held.homeless)
        if any(loads[seat] > scales.high[seat] or slots[seat] < 0 for seat in scales.draft.open):
            return False
        return scales.cover(loads, self._items(leaving), slots) is not None

    def _shed(self, leaving: set[int]) -> None:
        """Let seats above their band, or their limit, give their heaviest tasks."""
        scales = self.scales
        loads = scales.loads_without(leaving)
        slots = scales.slots_without(leaving)
        for seat in scales.draft.open:
            if loads[seat] <= scales.high[seat] and slots[seat] >= 0:
                continue
            for rank in [rank for _, ranks in scales.lots(seat) for rank in ranks if rank not in leaving]:
                if loads[seat] <= scales.high[seat] and slots[seat] >= 0:
                    break
                leaving.add(rank)
                loads[seat] -= scales.weight[rank]
                slots[seat] += 1

    def _add(self, leaving: set[int]) -> bool:
        """Take more tasks for the seats that stay too low: one that is enough, or else the heaviest to be had."""
        scales = self.scales
        after = scales.loads_without(leaving)
        slots = scales.slots_without(leaving)
        scales.cover(after, self._items(leaving), slots)
        market = Market(scales, leaving)
        before = len(leaving)
        depths = [(after[seat] - scales.low[seat], seat) for seat in scales.draft.open]
        for depth, seat in sorted(entry for entry in depths if entry[0] < 0):
            if slots[seat] <= 0:
                self._lighten(seat, leaving)
            lack = -depth
            while slots[seat] > 0 and lack > 0 and (rank := market.take(lack)) != NOBODY:
                leaving.add(rank)
                lack -= scales.weight[rank]
                slots[seat] -= 1
        return len(leaving) > before

    def _lighten(self, seat: int, leaving: set[int]) -> None:
        """Let a seat that is full and yet too low give its lightest task, for a heavier one to come."""
        staying = [rank for _, ranks in self.scales.lots(seat) for rank in ranks if rank not in leaving]
        leaving.update(staying[-1:])

    def _do_without(self, leaving: set[int], floor: int) -> None:
        """Let tasks stay after all that the rest can do without, those not under way first."""
        request = self.scales.draft.request

        def order(rank: int) -> tuple[bool, bool, float, int]:
            return rank in request.warming, rank in request.previous, self.scales.weight[rank], rank

        for rank in sorted(leaving, key=order):
            if len(leaving) <= floor or self.effort <= 0:
                return
            leaving.discard(rank)
            if not self._works(leaving):
                leaving.add(rank)
