"""Tasks of unequal weight where limits or topology epochs may put the bands out of reach.

There is no knowing then how near to its quota every seat can get. So whole placements are compared: by how many tasks
wait, how far seats are from their bands, and how many tasks move. What was answered before is one of them, and stays
unless another is better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from batonpass.core.placement_actives import fit, stateless_running, take_stock
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_scales import TOLERANCE, Scales
from batonpass.core.placement_types import NOBODY, PlacementRequest, WaitReason

# How often what one search has opened may be made use of by another.
_ROUNDS: Final = 8
_PLACES: Final = 6


def place_bent(draft: Draft, place_once: Callable[[Draft], int]) -> int:
    """Place with and without regard to what is under way, and keep the best.

    Returns:
        What the first search says of the fewest moves.
    """
    request = draft.request
    stock = Draft(request)
    held = take_stock(stock, request.table.stateful_ranks, stateful=True)
    held.homeless[:] = fit(stock, held, stateless_running(stock))
    scales = Scales(stock, held)
    first = Draft(request)
    fewest = place_once(first)
    attempts = [_come_to_rest(first, place_once)]
    if request.previous or request.warming:
        fresh = Draft(replace(request, previous={}, warming={}))
        place_once(fresh)
        attempts += [_come_to_rest(fresh, place_once)]
        attempts[:0] = [_come_to_rest(before, place_once) for before in [_as_before(request)] if before is not None]
    best = min(attempts, key=lambda one: _badness(one, scales, request))
    draft.owner[:] = best.owner
    draft.waiting = best.waiting
    return fewest


def _come_to_rest(draft: Draft, place_once: Callable[[Draft], int]) -> Draft:
    """Place what was placed again until nothing changes, as if everything had moved already."""

    def is_at_rest() -> bool:
        again = Draft(replace(draft.request, home=list(draft.owner), previous={}, warming={}))
        place_once(again)
        unchanged = again.owner == draft.owner
        draft.owner[:] = again.owner
        draft.waiting = again.waiting
        return unchanged

    any(is_at_rest() for _ in range(_ROUNDS))
    return draft


def _as_before(request: PlacementRequest) -> Draft | None:
    """Return the placement that the moves under way lead to; None if some seat cannot hold what it would get."""
    draft = Draft(request)
    table = request.table
    for rank in table.stateful_ranks:
        seat = request.bound.get(rank, request.previous.get(rank, draft.owner[rank]))
        if rank in request.bound or not draft.closed[seat]:
            draft.owner[rank] = seat
            if seat != request.home[rank] and rank not in request.bound and not draft.takes(rank, seat):
                return None
        elif draft.may_be_placed(rank):
            draft.wait(rank, WaitReason.NO_CAPACITY)
    counts = draft.count(draft.pick(draft.owner, stateful=True))
    if any(counts[seat] > draft.stateful_limit[seat] for seat in draft.open):
        return None
    return draft


def _badness(draft: Draft, scales: Scales, request: PlacementRequest) -> tuple[int, float, int]:
    """Return how bad a placement is: tasks that wait, the weight by which seats are outside their bands, moves."""
    load = draft.weigh(draft.pick(draft.owner, stateful=True))
    outside = sum(
        max(0.0, scales.low[seat] - load[seat]) + max(0.0, load[seat] - scales.high[seat]) for seat in draft.open
    )
    moves = sum(home != owner for home, owner in zip(request.home, draft.owner, strict=True))
    return len(draft.waiting), round(outside, _PLACES), moves


def relieve(scales: Scales) -> None:
    """Move tasks one by one from seats above their band, and to seats below it, among seats that may take them.

    While not every seat may take every task, bands may be out of reach; no move is made that only passes the load on.
    """
    draft, weight = scales.draft, scales.weight
    loads = [0.0] * len(draft.capacity)
    slots = list(draft.stateful_limit)
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
