"""A min-cost flow whose costs are levels: a lower level only chooses among flows that are equal in all higher levels.

Why several levels fit into one number: a flow is optimal in this order if and only if no cycle of the residual network
improves it, and a simple cycle passes each node once. So levels can be added up in one number if one unit of the higher
level outweighs all that one cycle can gain in the lower ones. As many levels as fit are solved at once. Their result is
kept for the next ones: an arc with a nonzero reduced cost has the same flow in every optimum, so it drops out.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

Ints = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.integer] | Sequence[int] | int
Solver = Callable[[Ints, Ints, Ints, Ints, Ints], Ints]
"""A function that finds a flow of least cost. ``minimum_flow`` is the default."""

PLENTY: Final = 1 << 31
"""A capacity that is never reached."""

_LARGEST: Final = 1 << 58
"""The largest cost of an arc, after the solver has multiplied it by the number of nodes plus one.

The solver refuses ways that cost more than about sixteen times as much.
"""


class PlacementError(Exception):
    """The solver found no optimal placement; the message has its answer. The caller keeps the present target."""


class Network:
    """Nodes, arcs and supplies; ``solve`` returns the flow.

    If several flows are optimal, the answer depends only on the order in which the arcs were added. So add them in an
    order that follows from the request.
    """

    def __init__(self, levels: Sequence[str], solver: Solver) -> None:
        self._levels = tuple(levels)
        self._solver = solver
        self._nodes = 0
        self._arcs = 0
        self._parts: list[list[Ints]] = []
        self._costs: list[dict[str, Ints]] = []
        self._supplies: list[tuple[Ints, Ints]] = []
        self._ends: tuple[Ints, Ints, Ints] = (np.empty(0, np.int64),) * 3

    def nodes(self, count: int) -> Ints:
        self._nodes += count
        return np.arange(self._nodes - count, self._nodes, dtype=np.int64)

    def supply(self, nodes: Numbers, amount: Numbers) -> None:
        """Add supply at nodes; a negative amount is demand."""
        aligned = np.broadcast_arrays(np.asarray(nodes, np.int64).ravel(), np.asarray(amount, np.int64))
        self._supplies.append((aligned[0], aligned[1]))

    def arcs(self, tails: Numbers, heads: Numbers, capacity: Numbers, **costs: Numbers) -> slice:
        """Add arcs. A single number stands for all of them.

        Args:
            tails: where they begin.
            heads: where they end.
            capacity: the most that each carries.
            costs: the cost of a unit, by level; 0 for levels left out.

        Returns:
            The slice of their flows in what ``solve`` returns.
        """
        given = [np.asarray(column, np.int64).ravel() for column in (tails, heads, capacity, *costs.values())]
        columns = np.broadcast_arrays(*given)
        self._parts.append([*columns[:3]])
        self._costs.append(dict(zip(costs, columns[3:], strict=True)))
        self._arcs += len(columns[0])
        return slice(self._arcs - len(columns[0]), self._arcs)

    def solve(self, pivots: int) -> Ints:
        """Return the flow through each arc.

        Args:
            pivots: an upper bound on the arcs of one simple cycle that have a cost at the same level.

        Raises:
            PlacementError: the solver found no optimal flow.
        """
        tails, heads, capacity = (np.concatenate([part[place] for part in self._parts]) for place in range(3))
        self._ends = tails, heads, capacity
        supply = np.zeros(self._nodes, np.int64)
        for nodes, amount in self._supplies:
            np.add.at(supply, nodes, amount)
        flow = np.zeros(self._arcs, np.int64)
        free = np.arange(self._arcs)
        packs = self._pack(pivots)
        for place, cost in enumerate(packs):
            part = self._solver(tails[free], heads[free], capacity[free], cost[free], supply)
            flow[free] = part
            if place + 1 < len(packs):
                settled = ~_undecided(tails[free], heads[free], capacity[free], cost[free], part, self._nodes)
                np.subtract.at(supply, tails[free][settled], part[settled])
                np.add.at(supply, heads[free][settled], part[settled])
                free = free[~settled]
        return flow

    def reached(self, flow: Ints, nodes: Ints, without: int, levels: Sequence[str]) -> Marks:
        """Return the nodes to which a unit at one of these nodes could go instead, at no cost at these two levels.

        It does not go by way of ``without``.
        """
        first, second = map(self._level, levels)
        # So no way gains as much at the second level as one unit of the first costs.
        whole = 1 + int(np.abs(second).sum())
        begin, end, price = _residual(*self._ends, flow, first * whole + second)
        inside = (begin != without) & (end != without)
        start = np.full(self._nodes, PLENTY)
        start[nodes] = 0
        return np.asarray(_lowest(begin[inside], end[inside], price[inside], start) <= 0)

    def _pack(self, pivots: int) -> list[Ints]:
        """Return the costs, as many levels in one number as fit, most important first."""
        most = _LARGEST // (self._nodes + 1)
        packs: list[Ints] = []
        cost, reach = np.zeros(self._arcs, np.int64), 0
        # From the least level upward, so that each pack begins with weight 1.
        for level in reversed(self._levels):
            each = self._level(level)
            highest = int(np.abs(each).max(initial=0))
            if not highest:
                continue
            weight = reach * pivots + 1
            if reach and weight * highest > most:
                packs.append(cost)
                cost, reach, weight = np.zeros(self._arcs, np.int64), 0, 1
            cost = cost + weight * each
            reach += weight * highest
        packs.append(cost)
        return packs[::-1]

    def _level(self, level: str) -> Ints:
        cost = np.zeros(self._arcs, np.int64)
        start = 0
        for part, costs in zip(self._parts, self._costs, strict=True):
            if level in costs:
                cost[start : start + len(part[0])] = costs[level]
            start += len(part[0])
        return cost


def minimum_flow(tails: Ints, heads: Ints, capacity: Ints, cost: Ints, supply: Ints) -> Ints:
    """Return the flow of least cost through each arc. It holds the interpreter's lock while it solves.

    Args:
        tails: per arc, the node where it begins.
        heads: per arc, the node where it ends.
        capacity: per arc, the most that it carries.
        cost: per arc, the cost of a unit.
        supply: per node, what begins there; negative amounts end there.

    Raises:
        PlacementError: the solver found no optimal flow.
    """
    solver = SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(tails.astype(np.int32), heads.astype(np.int32), capacity, cost)
    solver.set_nodes_supplies(np.arange(len(supply), dtype=np.int32), supply)
    try:
        status = solver.solve()
    except Exception as problem:
        raise PlacementError(f"the solver of placement failed: {problem}") from problem
    if status != solver.OPTIMAL:
        size = f"{solver.num_arcs()} arcs between {solver.num_nodes()} nodes"
        raise PlacementError(f"the solver of placement answered {status.name} to {size}")
    return np.asarray(solver.flows(np.arange(len(tails), dtype=np.int32)), np.int64)


def _residual(tails: Ints, heads: Ints, capacity: Ints, flow: Ints, cost: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the ways on which a unit could go otherwise: where each begins and ends, and what it costs."""
    more, less = flow < capacity, flow > 0
    begin, end = np.concatenate([tails[more], heads[less]]), np.concatenate([heads[more], tails[less]])
    return begin, end, np.concatenate([cost[more], -cost[less]])


def _lowest(begin: Ints, end: Ints, price: Ints, start: Ints) -> Ints:
    """Return the lowest cost to each node, if it costs ``start`` to begin there (Bellman and Ford)."""
    while True:
        lower = start.copy()
        np.minimum.at(lower, end, start[begin] + price)
        if np.array_equal(lower, start):
            return start
        start = lower


def _undecided(  # noqa: PLR0917 - the arcs of a network, column by column
    tails: Ints, heads: Ints, capacity: Ints, cost: Ints, flow: Ints, nodes: int
) -> Marks:
    """Return which arcs may differ in another optimal flow."""
    potential = _lowest(*_residual(tails, heads, capacity, flow, cost), np.zeros(nodes, np.int64))
    return np.asarray(cost + potential[tails] - potential[heads] == 0)
