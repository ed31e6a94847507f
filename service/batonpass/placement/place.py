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
    elif request.table.uniform and not request.balance_tolerance:
        place_equal(state, stateful_tasks(state))
    else:
        lower_bound = place_weighted(state, stateful_tasks(state))
    if state.eligible and not all(request.table.stateful):
        place_weighted(state, stateless_tasks(state))
    standbys = place_standbys(state)
    why = _reasons(state)
    moves = int(state.stateful[[*why]].sum())
    return Placed(
        owner=state.owner,
        standbys=standbys,
        waiting=state.waiting,
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
    request, owner = state.request, np.array(state.owner, np.int64)
    moved = np.flatnonzero((state.home != owner) & (owner != UNASSIGNED))
    excess = state.count(state.home) > state.limit
    of_home = [
        Moves.DRAIN if not eligible else Moves.MAX_TASKS if above else Moves.BALANCE
        for eligible, above in zip(state.may_be_target[:-1].tolist(), excess.tolist(), strict=True)
    ]
    of_home.append(Moves.NO_OWNER)  # It is at ``UNASSIGNED``.
    tasks = moved.tolist()
    why = dict(zip(tasks, map(of_home.__getitem__, state.home[moved].tolist()), strict=True))
    if state.restricted:
        newest = np.zeros(len(state.capacity), np.int64)
        np.maximum.at(newest, owner[moved], state.need[moved])
        left_for = (state.home[moved] != UNASSIGNED) & state.may_be_target[state.home[moved]]
        why |= dict.fromkeys(moved[left_for & (newest[state.home[moved]] > state.need[moved])].tolist(), Moves.TOPOLOGY)
    # `retarget` says what else bound it.
    return why | dict.fromkeys(why.keys() & request.bound.keys(), Moves.PINNED)
