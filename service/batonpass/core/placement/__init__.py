"""Where tasks belong: the target assignment (docstring to come)."""

from __future__ import annotations

import numpy as np

from batonpass.core.placement.actives import place_stateful, place_stateless
from batonpass.core.placement.flow import PlacementError
from batonpass.core.placement.standbys import place_standbys
from batonpass.core.placement.state import PlacementState
from batonpass.core.placement.weights import level_loads, place_weighted
from batonpass.core.placement_types import (
    UNASSIGNED,
    LoadSpread,
    MoveReason,
    Placed,
    PlacementRequest,
    WaitReason,
)

__all__ = ["PlacementError", "place"]


def place(request: PlacementRequest) -> Placed:
    """Return where every task belongs.

    The answer depends on the request alone, and placing what is placed already changes nothing.

    Raises:
        PlacementError: the solver found no answer.
    """
    state = PlacementState(request)
    before = state.stateful_load(request.home)
    lower_bound = None
    if not state.open:
        _stay(state)
    elif request.table.uniform:
        place_stateful(state)
    else:
        lower_bound = place_weighted(state)
    load = state.stateful_load(state.owner)
    if state.open and request.table.stateless_ranks:
        _place_stateless(state, load)
    standbys, short = place_standbys(state)
    why = _reasons(state)
    moves = sum(1 for task in why if request.table.stateful[task])
    return Placed(
        owner=state.owner,
        standbys=standbys,
        waiting=state.waiting,
        short=short,
        why=why,
        moves=moves,
        # With limits and topology epochs at once the bound counts on places that the epochs may rule out.
        lower_bound=moves if lower_bound is None else min(lower_bound, moves) if state.restricted else lower_bound,
        before=_spread(state, before),
        after=_spread(state, load),
    )


def _place_stateless(state: PlacementState, load: list[float]) -> None:
    table = state.request.table
    weights = {table.weight[task] for task in table.stateless_ranks}
    if len(weights) == 1 and not state.restricted:
        unit = weights.pop()
        place_stateless(state, [part / unit for part in load])
    else:
        level_loads(state, list(load))


def _spread(state: PlacementState, load: list[float]) -> LoadSpread:
    levels = [load[one] / state.capacity[one] for one in state.open]
    return LoadSpread(max(levels, default=0.0), min(levels, default=0.0))


def _stay(state: PlacementState) -> None:
    """Leave everything where it is, since nobody may be given anything; what nobody has waits."""
    for task, home in enumerate(state.request.home):
        bound = state.request.bound.get(task, home)
        state.owner[task] = bound
        if bound == UNASSIGNED:
            state.wait(task, WaitReason.NO_ELIGIBLE_MEMBER)


def _reasons(state: PlacementState) -> dict[int, MoveReason]:
    """Say of each task whose target is not its home why that is so."""
    request, home, owner = state.request, state.home.tolist(), state.owner
    need = request.table.topology_epoch
    count = state.count(state.home).tolist()
    why: dict[int, MoveReason] = {}
    moved = np.flatnonzero(state.home != np.array(owner, np.int64)).tolist()
    newest: dict[int, int] = {}
    for task in moved if state.restricted else ():
        newest[owner[task]] = max(need[task], newest.get(owner[task], 0))
    for task in moved:
        source = home[task]
        if owner[task] == UNASSIGNED:
            continue
        if task in request.bound:
            why[task] = MoveReason.PINNED
        elif source == UNASSIGNED:
            why[task] = MoveReason.NO_OWNER
        elif not state.is_open[source]:
            why[task] = MoveReason.DRAIN
        elif newest.get(source, 0) > need[task]:
            why[task] = MoveReason.TOPOLOGY
        else:
            why[task] = MoveReason.MAX_TASKS if count[source] > state.limit[source] else MoveReason.BALANCE
    return why
