"""Where tasks belong: the target assignment.

`place` looks at who has what and how warm it is, and answers where everything should end up. How the group gets there
is for `handover` to decide. Placement asks nothing of that, but what it is told rests on it twice: a task that failed
counts as with whoever `handover` would have take over (`targets`), and what full members would never make room for is
taken out of the answer (`reach`). What is asked and answered is in `placement_types`.

Placement is one min-cost flow, solved by OR-tools. What flows is copies that change members, or that have none yet.
Copies that no rule tells apart are one node, a *class*: they have the same home, subtopology, and members that may have
them or are warm for them. So the network grows with members, and with what is special, but not with tasks.

    homeless class -------------------------------.
                                                   v
    member -> (member, subtopology) -> class -> block of members -> (member, subtopology) -> member -> end
      (gives)        evenness           |        that are alike          evenness          (takes)   balance
                                        |------> a member that is warm, or was the target --^
                                        `------> waits

A member begins with what it has above its floor; what has no member begins in its class; everything ends with members
or, where there is no room, waits. Only members above their floor give and only members below their ceiling take, as
long as every member may have every task. Limits, pins, draining members, and topology epochs are capacities, and arcs
that are not there.

Costs are levels (`flow`): no sum of lower ones outweighs a higher one. For actives, most important first:

| Level | Arc | Rule |
|---|---|---|
| wait | class to where it waits | what fits nowhere waits; what runs rather keeps its place |
| balance | member to the end: ceiling 1, beyond 3, 5, 7 | load in proportion to capacity: floor or ceiling |
| part | ceiling: rank of its part's load, in a rollout | who has to have more has nothing that can be elsewhere |
| move | class to anything: 1 | the fewest moves; so who has the ceiling keeps it |
| warming | class to where its warmup runs: -1 | the destination of a running warmup stays |
| height | ceiling: rank of (floor + 1) / capacity | the ceiling goes to the lowest load per capacity |
| unready | class to a member that is not caught up: 1 | the warmest destination: so it has the ceiling of equal loads |
| cold | class to a member with nothing: 1; unknown: 2 | the same, among those that are not caught up |
| restore | class to a member: rank of what is left | the same: the copy with least left to restore |
| previous | class to its previous target: -1 | between placements equal so far the previous target wins |
| newcomer | ceiling of who has something: 1 | a newcomer gets what somebody left |
| stateless | ceiling: rank of running stateless tasks per capacity | saves a stateless task from moving |
| even | (member, subtopology): distance from the even part | even subtopologies as far as all this allows |
| load | ceiling: rank of floor / capacity, then of the load now | of equal heights the lowest load first |
| size | member to class: size of state by powers of four | tasks with little state are given away first |
| order | ceiling: the member's place | of members equal in everything the first by id |

Where this still leaves a choice the solver's stands, which follows from the order of arcs alone (members by id, classes
by home, subtopology, size and first task); what flows is dealt to the tasks of a class by size and then in the order of
the topology. Another version of the library may choose another optimum.

How many tasks a member should have (`quotas`) is exact: whole numbers in proportion to capacity, bent by what is bound
and by limits as little as can be. Where topology epochs or tags keep members from having some of the tasks, maximum
flows find the members that have to have more than their part.

**Stateless tasks** go the same way, on quotas that fill up from the load of the stateful ones. **Standbys** too
(`standbys`): there a class is told apart by the other copies of its tasks, beside which none may be; blocks are what
`rack_aware_tags` tell apart, and a place on a worse one costs a level (`apart`) right below waiting; balance is the
lowest load per capacity; a copy that is there, or that an active leaves behind, costs no move; and each
pair of owner and member has its even part (`even`), which spreads an owner's copies; in groups of more members than
the network has room for pairs, dealing alone does that.
In a small group everybody gives and takes, and one exchange is the best there is; in others first those that have to,
and further exchanges follow only where something is still missing or not level.

Tasks of **unequal weights** are no flow: `weights` makes a draft better step by step, in the same order of rules, and
`levels` does for stateless ones.
"""

from __future__ import annotations

import numpy as np

from batonpass.core.placement.actives import place_stateful, place_stateless
from batonpass.core.placement.flow import PlacementError, Solver, minimum_flow
from batonpass.core.placement.levels import level_loads
from batonpass.core.placement.standbys import place_standbys
from batonpass.core.placement.state import PlacementState
from batonpass.core.placement.weights import place_weighted
from batonpass.core.placement_types import UNASSIGNED, Placed, PlacementRequest
from batonpass.core.reasons import Held, Why

__all__ = ["PlacementError", "Solver", "minimum_flow", "place"]


def place(request: PlacementRequest, solver: Solver = minimum_flow) -> Placed:
    """Return where every task belongs.

    The answer depends on the request alone, and placing what is placed already changes nothing. Every solver gives the
    same answer, or none.

    Raises:
        PlacementError: the solver found no answer.
    """
    state = PlacementState(request, solver)
    lower_bound = None
    if not state.open:
        _stay(state)
    elif request.table.uniform:
        place_stateful(state)
    else:
        lower_bound = place_weighted(state)
    if state.open and request.table.stateless_indexes:
        _place_stateless(state, state.stateful_load(state.owner))
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
    )


def _place_stateless(state: PlacementState, load: list[float]) -> None:
    table = state.request.table
    weights = {table.weight[task] for task in table.stateless_indexes}
    if len(weights) == 1 and not state.restricted:
        unit = weights.pop()
        place_stateless(state, [part / unit for part in load])
    else:
        level_loads(state, list(load))


def _stay(state: PlacementState) -> None:
    """Leave everything where it is, since nobody may be given anything; what nobody has waits."""
    for task, home in enumerate(state.request.home):
        bound = state.request.bound.get(task, home)
        state.owner[task] = bound
        if bound == UNASSIGNED:
            state.wait(task, Held.NO_ELIGIBLE_MEMBER)


def _reasons(state: PlacementState) -> dict[int, Why]:
    """Say of each task whose target is not its home why that is so."""
    request, home, owner = state.request, state.home.tolist(), state.owner
    need = request.table.topology_epoch
    count = state.count(state.home).tolist()
    why: dict[int, Why] = {}
    moved = np.flatnonzero(state.home != np.array(owner, np.int64)).tolist()
    newest: dict[int, int] = {}
    for task in moved if state.restricted else ():
        newest[owner[task]] = max(need[task], newest.get(owner[task], 0))
    for task in moved:
        source = home[task]
        if owner[task] == UNASSIGNED:
            continue
        if task in request.bound:
            why[task] = Why.PINNED
        elif source == UNASSIGNED:
            why[task] = Why.NO_OWNER
        elif not state.is_open[source]:
            why[task] = Why.DRAIN
        elif newest.get(source, 0) > need[task]:
            why[task] = Why.TOPOLOGY
        else:
            why[task] = Why.MAX_TASKS if count[source] > state.limit[source] else Why.BALANCE
    return why
