"""Where every task belongs, and why: actives, then tasks without state, then standbys."""

import numpy as np

from batonpass.placement.actives import place_equal, stateful_tasks, stateless_tasks
from batonpass.placement.flow import Solver, minimum_flow
from batonpass.placement.standbys import place_standbys
from batonpass.placement.state import PlacementState
from batonpass.placement.types import UNASSIGNED, Moves, Placed, PlacementRequest, Waits
from batonpass.placement.weights import place_weighted


def place(request: PlacementRequest, solver: Solver = minimum_flow) -> Placed:
    """Return where every task belongs.

    The answer depends on the request alone. Placing a group that is placed already changes nothing. Every solver gives
    the same answer, or none.

    Raises:
        PlacementError: the solver found no answer.
    """
    state = PlacementState(request, solver)
    lower_bound = None
    if not state.eligible:
        _stay(state)
    elif request.table.uniform:
        place_equal(state, stateful_tasks(state))
    else:
        lower_bound = place_weighted(state, stateful_tasks(state))
    if state.eligible and request.table.stateless_indexes:
        place_weighted(state, stateless_tasks(state))
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
        # With limits and topology epochs together the bound assumes places that the epochs may rule out.
        lower_bound=moves if lower_bound is None else min(lower_bound, moves) if state.restricted else lower_bound,
    )


def _stay(state: PlacementState) -> None:
    """Leave everything where it is, because no member may be given anything. Tasks without a home wait."""
    for task, home in enumerate(state.request.home):
        bound = state.request.bound.get(task, home)
        state.owner[task] = bound
        if bound == UNASSIGNED:
            state.wait(task, Waits.NO_ELIGIBLE_MEMBER)


def _reasons(state: PlacementState) -> dict[int, Moves]:
    """Return the reason for each task whose target is not its home."""
    request, home, owner = state.request, state.home.tolist(), state.owner
    need = request.table.topology_epoch
    count = state.count(state.home).tolist()
    why: dict[int, Moves] = {}
    moved = np.flatnonzero(state.home != np.array(owner, np.int64)).tolist()
    newest: dict[int, int] = {}
    for task in moved if state.restricted else ():
        newest[owner[task]] = max(need[task], newest.get(owner[task], 0))
    for task in moved:
        source = home[task]
        if owner[task] == UNASSIGNED:
            continue
        if task in request.bound:
            why[task] = Moves.PINNED  # `retarget` says what else bound it.
        elif source == UNASSIGNED:
            why[task] = Moves.NO_OWNER
        elif not state.may_be_target[source]:
            why[task] = Moves.DRAIN
        elif newest.get(source, 0) > need[task]:
            why[task] = Moves.TOPOLOGY
        else:
            why[task] = Moves.MAX_TASKS if count[source] > state.limit[source] else Moves.BALANCE
    return why
