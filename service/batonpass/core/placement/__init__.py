"""Where tasks belong: the target assignment.

``place`` gets what each member has, and how warm it is there. It returns where every task should end up; ``handover``
decides how the group gets there. Two parts of the core adapt its input and its output. ``targets`` counts a failed task
as being with the member that ``handover`` would move it to. ``reach`` removes the moves for which full members would
never make room. ``placement_types`` has the request and the answer.

Placement is one min-cost flow, solved by OR-tools. Copies flow: those that change members, and those that have no
member yet. Copies that no rule distinguishes are one node, a *class*: they have the same home and subtopology, and
the same members may have them or are warm for them. So the network grows with the number of members and of special
tasks, but not with the number of tasks.

    homeless class -------------------------------.
                                                   v
    member -> (member, subtopology) -> class -> block of members -> (member, subtopology) -> member -> end
      (gives)        evenness           |        that are alike          evenness          (takes)   balance
                                        |------> a member that is warm, or was the target --^
                                        `------> waits

The supply of a member is what it has above its floor. The supply of a homeless class is its copies. Every copy ends at
a member or, if there is no room, waits. As long as every member may have every task, only members above their floor
give copies, and only members below their ceiling take any. Limits, pins, draining members and topology epochs appear
as capacities of arcs, and as arcs that are left out.

Costs are levels (``flow``): no sum of lower costs outweighs a higher one. For actives, most important first:

| Level | Arc | Rule |
|---|---|---|
| wait | class to where it waits | a task that fits nowhere waits; a running one only as a last resort |
| balance | member to the end: ceiling 1, beyond 3, 5, 7 | load in proportion to capacity: floor or ceiling |
| part | ceiling: rank of its part's load, in a rollout | more than a share only for tasks that fit nowhere else |
| move | class to anything: 1 | the fewest moves, so a member that has the ceiling keeps it |
| warming | class to where its warmup runs: -1 | the destination of a running warmup stays |
| height | ceiling: rank of (floor + 1) / capacity | the ceiling goes to the lowest load per capacity |
| unready | class to a member that is not caught up: 1 | the warmest destination gets the ceiling of equal loads |
| cold | class to a member with nothing: 1; unknown: 2 | the same, among those that are not caught up |
| restore | class to a member: rank of what is left | the same: the copy with least left to restore |
| previous | class to its previous target: -1 | between placements equal so far the previous target wins |
| newcomer | ceiling of a member that has something: 1 | a newcomer gets the tasks that become free |
| stateless | ceiling: rank of running stateless tasks per capacity | saves a stateless task from moving |
| even | (member, subtopology): distance from the even part | even subtopologies, as far as the rules above allow |
| load | ceiling: rank of floor / capacity, then of the load now | of equal heights the lowest load first |
| size | member to class: size of state by powers of four | tasks with little state are given away first |
| order | ceiling: the member's place | of members equal in everything the first by id |

If several flows are still equal, the solver's choice stands. It depends only on the order of the arcs: members by id,
classes by home, subtopology, size and first task. The flow of a class is dealt to its tasks by size, then in the order
of the topology. Another version of the library may choose another optimum.

The number of tasks per member (``quotas``) is exact: whole numbers in proportion to capacity, which bound tasks and
limits change as little as possible. If topology epochs or tags keep members from having some tasks, maximum flows find
the members that must have more than their share.

**Stateless tasks** are placed in the same way. Their quotas start from the load of the stateful tasks. **Standbys**
(``standbys``) are too, with these differences. The other copies of a task are part of its class, because no member may
have two. Blocks are what ``rack_aware_tags`` distinguish; a worse block costs a level (``apart``) right below waiting.
Balance means the lowest load per capacity. A copy that exists, or that an active leaves behind, costs no move. Each
pair of owner and member has its even part (``even``), which spreads an owner's copies; in groups with too many members
for that, dealing alone spreads them. In a small group every member gives and takes, and one exchange is optimal. In
larger groups the members that have to exchange do so first. Further exchanges follow only if something is still missing
or uneven.

Placing tasks of **unequal weights** is not a flow problem: ``weights`` improves a draft step by step, by the same rules
in the same order, and ``levels`` does so for stateless tasks.
"""

from __future__ import annotations

import numpy as np

from batonpass.core.placement.actives import place_stateful, place_stateless
from batonpass.core.placement.flow import PlacementError, Solver, minimum_flow
from batonpass.core.placement.levels import level_loads
from batonpass.core.placement.standbys import place_standbys
from batonpass.core.placement.state import PlacementState
from batonpass.core.placement.weights import place_weighted
from batonpass.core.state.placement_types import UNASSIGNED, Placed, PlacementRequest
from batonpass.core.state.reasons import Held, Why

__all__ = ["PlacementError", "Solver", "minimum_flow", "place"]


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
        place_stateful(state)
    else:
        lower_bound = place_weighted(state)
    if state.eligible and request.table.stateless_indexes:
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
        # With limits and topology epochs together the bound assumes places that the epochs may rule out.
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
    """Leave everything where it is, because no member may be given anything. Tasks without a home wait."""
    for task, home in enumerate(state.request.home):
        bound = state.request.bound.get(task, home)
        state.owner[task] = bound
        if bound == UNASSIGNED:
            state.wait(task, Held.NO_ELIGIBLE_MEMBER)


def _reasons(state: PlacementState) -> dict[int, Why]:
    """Return the reason for each task whose target is not its home."""
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
            why[task] = Why.PINNED  # `retarget` says what else bound it.
        elif source == UNASSIGNED:
            why[task] = Why.NO_OWNER
        elif not state.may_be_target[source]:
            why[task] = Why.DRAIN
        elif newest.get(source, 0) > need[task]:
            why[task] = Why.TOPOLOGY
        else:
            why[task] = Why.MAX_TASKS if count[source] > state.limit[source] else Why.BALANCE
    return why
