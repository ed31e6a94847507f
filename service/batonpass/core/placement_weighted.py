"""Target owners of stateful tasks of different weights: every seat near its quota, and few moves.

Near means within the weight of the heaviest stateful task. Which tasks have to move for that is a packing problem
(NP-hard), so the fewest are searched for, not known: seats above their band shed as few tasks as can be, seats below it
are covered by those, by homeless tasks, and by as few others as can be; then every move is tried for whether the rest
can do without it. What moves at all may go anywhere at no further cost: on with a move under way, to where it is warm,
to what is still too low, and at last as it suits the subtopologies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

from batonpass.core.placement_actives import fit, stateless_running, take_stock
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_scales import TOLERANCE, Scales
from batonpass.core.placement_settling import Settling
from batonpass.core.placement_types import NOBODY

# What a search for fewer moves may look at, counted in seats and tasks weighed.
_EFFORT: Final = 300_000
_ROUNDS: Final = 8


def place_weighted(draft: Draft) -> int:
    """Give every stateful task a target.

    Returns:
        A number of moves that no placement as balanced can do with less than.
    """
    fewest = _place_once(draft)
    # Where limits or topology epochs put bands out of reach, one search may open what another makes use of.
    for _ in range(_ROUNDS if draft.limited or draft.restricted else 0):
        again = Draft(replace(draft.request, home=list(draft.owner)))
        _place_once(again)
        if again.owner == draft.owner:
            break
        draft.owner[:] = again.owner
        draft.waiting = again.waiting
    return fewest


def _place_once(draft: Draft) -> int:
    held = take_stock(draft, draft.request.table.stateful_ranks, stateful=True)
    held.homeless[:] = fit(draft, held, stateless_running(draft))
    scales = Scales(draft, held)
    if draft.restricted:
        Settling(scales, ()).run()
        _relieve(scales)
        return held.forced + len(held.homeless)
    search = _Search(scales)
    leaving = search.run(())
    under_way = search.under_way()
    if under_way:
        sticky = search.run(under_way)
        leaving = sticky if len(sticky) <= len(leaving) else leaving
    Settling(scales, leaving).run()
    return held.forced + len(held.homeless) + (0 if draft.limited else scales.least_moves())


def _relieve(scales: Scales) -> None:
    """Move tasks one by one from seats above their band, and to seats below it, among seats that may take them.

    While not every seat may take every task, bands may be out of reach; no move is made that only passes the load on.
    """
    draft, weight = scales.draft, scales.weight
    loads = [0.0] * len(draft.capacity)
    slots = list(draft.limit)
    for rank in scales.held.ranks:
        seat = draft.owner[rank]
        if seat != NOBODY:
            loads[seat] += weight[rank]
            slots[seat] -= 1
    bound = draft.request.bound
    tasks = [(weight[rank], rank) for rank in scales.held.ranks if draft.owner[rank] != NOBODY and rank not in bound]
    tasks.sort(key=lambda task: (-task[0], task[1]))

    def pass_on(heavy: float, rank: int) -> bool:
        source = draft.owner[rank]
        fit = [
            ((loads[seat] + heavy) / draft.capacity[seat], seat)
            for seat in draft.open
            if seat != source and slots[seat] > 0 and draft.takes(rank, seat)
        ]
        if not fit:
            return False
        level, target = min(fit)
        pressing = loads[source] > scales.high[source] or loads[target] < scales.low[target]
        lowers = level < loads[source] / draft.capacity[source] - TOLERANCE
        if not (pressing and lowers) and slots[source] >= 0:
            return False
        draft.owner[rank] = target
        loads[source] -= heavy
        loads[target] += heavy
        slots[source] += 1
        slots[target] -= 1
        return True

    # Every round lowers the highest of two seats each time, so the rounds end.
    while not draft.request.balance_held and sum(pass_on(*task) for task in tasks):
        pass


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
            for rank, target in sorted((request.previous | request.warming).items())
            if not draft.closed[target]
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
        floor = self.scales.least_moves()
        self._do_without(leaving, floor)
        while len(leaving) > floor and self._exchange(leaving):
            pass
        return leaving

    def _items(self, leaving: Collection[int]) -> list[int]:
        weight = self.scales.weight
        return sorted([*self.scales.held.homeless, *leaving], key=lambda rank: (-weight[rank], rank))

    def _works(self, leaving: Collection[int]) -> bool:
        """Tell whether every seat is within its band with these tasks, and the homeless ones, put to best use."""
        scales = self.scales
        loads = scales.loads_without(leaving)
        self.effort -= len(loads) + len(leaving) + len(scales.held.homeless)
        if any(loads[seat] > scales.high[seat] for seat in scales.draft.open):
            return False
        return scales.cover(loads, self._items(leaving), scales.slots_without(leaving)) is not None

    def _shed(self, leaving: set[int]) -> None:
        """Let seats above their band, or their limit, give their heaviest tasks."""
        scales = self.scales
        loads = scales.loads_without(leaving)
        gone = dict.fromkeys(scales.tasks, 0)
        for rank in leaving:
            gone[scales.draft.owner[rank]] += 1
        for seat, tasks in scales.tasks.items():
            for rank in tasks:
                if loads[seat] <= scales.high[seat] and scales.slots[seat] + gone[seat] >= 0:
                    break
                if rank not in leaving:
                    leaving.add(rank)
                    loads[seat] -= scales.weight[rank]
                    gone[seat] += 1

    def _add(self, leaving: set[int]) -> bool:
        """Take one more task per seat that stays too low: one that is enough, or else the heaviest to be had."""
        scales = self.scales
        weight = scales.weight
        after = scales.loads_without(leaving)
        slots = scales.slots_without(leaving)
        scales.cover(after, self._items(leaving), slots)
        loads = scales.loads_without(leaving)
        added = False
        for seat in sorted(scales.draft.open, key=lambda seat: (after[seat] - scales.low[seat], seat)):
            lack = scales.low[seat] - after[seat]
            if lack <= 0:
                break
            if slots[seat] <= 0:
                added = self._lighten(seat, leaving) or added
                continue
            best: tuple[bool, float, int, int] | None = None
            for source, rank in self._to_be_had(loads, leaving):
                enough = weight[rank] >= lack
                offer = (not enough, weight[rank] if enough else -weight[rank], rank, source)
                best = offer if best is None else min(best, offer)
            if best is not None:
                leaving.add(best[2])
                loads[best[3]] -= weight[best[2]]
                added = True
        return added

    def _lighten(self, seat: int, leaving: set[int]) -> bool:
        """Let a seat that is full and yet too low give its lightest task, for a heavier one to come."""
        rank = next((rank for rank in reversed(self.scales.tasks[seat]) if rank not in leaving), NOBODY)
        if rank != NOBODY:
            leaving.add(rank)
        return rank != NOBODY

    def _to_be_had(self, loads: Sequence[float], leaving: Collection[int]) -> Iterator[tuple[int, int]]:
        """Yield per seat the tasks of each weight that it can give without falling below its band."""
        scales = self.scales
        for seat, tasks in scales.tasks.items():
            seen = 0.0
            for rank in tasks:
                weight = scales.weight[rank]
                if weight != seen and rank not in leaving and loads[seat] - weight >= scales.low[seat]:
                    seen = weight
                    yield seat, rank

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

    def _exchange(self, leaving: set[int]) -> bool:
        """Let two tasks stay for one that leaves instead; return whether that was possible."""
        scales = self.scales
        for one, other in combinations(sorted(leaving), 2):
            rest = leaving - {one, other}
            loads = scales.loads_without(rest)
            for _, rank in self._to_be_had(loads, leaving):
                if self.effort <= 0:
                    return False
                if self._works(rest | {rank}):
                    leaving -= {one, other}
                    leaving.add(rank)
                    return True
        return False
