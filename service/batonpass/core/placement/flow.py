"""A min-cost flow whose costs are levels: a lower level only chooses between flows that are equal in all higher ones.

A flow is best in this order if and only if no cycle in what it leaves over improves it, and a simple cycle passes each
node once. So a level may be weighed in one number with the levels below it, if one unit of it outweighs all that one
cycle can gain in them. As many levels as fit are solved at once. What that settles is kept for the next ones: an arc
with a reduced cost other than zero carries the same in every optimum, and drops out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.integer] | Sequence[int] | int
Solver = Callable[[Ints, Ints, Ints, Ints, Ints], Ints]
"""What finds a flow of least cost, as `minimum_flow` does, which is the one to use where nothing else is said."""

PLENTY: Final = 1 << 31
"""A capacity that nothing ever fills."""

_LARGEST: Final = 1 << 58
"""What a cost may come to at most once the solver has multiplied it by the number of nodes."""


class PlacementError(Exception):
    """The solver found no best placement; says what it answered. Whoever asked keeps the target that there is."""


class Network:
    """Nodes, arcs and supplies; `solve` says what flows.

    The answer depends on the order in which arcs were added, and on nothing else where several flows are best: add
    them in an order that follows from the question.
    """

    def __init__(self, levels: Sequence[str], solver: Solver) -> None:
        self._levels = tuple(levels)
        self._solver = solver
        self._nodes = 0
        self._arcs = 0
        self._parts: list[list[Ints]] = []
        self._costs: list[dict[str, Ints]] = []
        self._supplies: list[tuple[Ints, Ints]] = []

    def node(self) -> int:
        """Add a node."""
        self._nodes += 1
        return self._nodes - 1

    def nodes(self, count: int) -> Ints:
        """Add nodes."""
        self._nodes += count
        return np.arange(self._nodes - count, self._nodes, dtype=np.int64)

    def supply(self, nodes: Numbers, amount: Numbers) -> None:
        """Let so much begin at nodes; a negative amount ends there."""
        found = np.broadcast_arrays(np.asarray(nodes, np.int64).ravel(), np.asarray(amount, np.int64))
        self._supplies.append((found[0], found[1]))

    def arcs(self, tails: Numbers, heads: Numbers, capacity: Numbers, **costs: Numbers) -> slice:
        """Add arcs; numbers stand for all of them alike.

        Args:
            tails: where they begin.
            heads: where they end.
            capacity: the most that each carries.
            costs: what a unit costs, by level; 0 for levels left out.

        Returns:
            Where their flows are in what `solve` returns.
        """
        given = [np.asarray(one, np.int64) for one in (tails, heads, capacity, *costs.values())]
        sizes = {one.size for one in given}
        count = 0 if 0 in sizes else max(sizes)
        found = [one.ravel() if one.size == count else np.full(count, one.item() if count else 0) for one in given]
        self._parts.append(found[:3])
        self._costs.append(dict(zip(costs, found[3:], strict=True)))
        self._arcs += count
        return slice(self._arcs - count, self._arcs)

    def solve(self, pivots: int) -> Ints:
        """Return what flows through each arc.

        Args:
            pivots: a bound on how many arcs that cost anything at one level lie on one simple cycle.

        Raises:
            PlacementError: the solver found no best flow.
        """
        tails, heads, capacity = (np.concatenate([part[place] for part in self._parts]) for place in range(3))
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

    def _pack(self, pivots: int) -> list[Ints]:
        """Return the costs of levels that fit into one number, most important first."""
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
        found = np.zeros(self._arcs, np.int64)
        start = 0
        for part, costs in zip(self._parts, self._costs, strict=True):
            if level in costs:
                found[start : start + len(part[0])] = costs[level]
            start += len(part[0])
        return found


def minimum_flow(tails: Ints, heads: Ints, capacity: Ints, cost: Ints, supply: Ints) -> Ints:
    """Return what flows through each arc at the least cost; keeps the interpreter's lock as long as it solves.

    Args:
        tails: per arc, the node where it begins.
        heads: per arc, the node where it ends.
        capacity: per arc, the most that it carries.
        cost: per arc, what a unit costs.
        supply: per node, what begins there; less than 0 ends there.

    Raises:
        PlacementError: the solver found no best flow.
    """
    solver = SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(tails.astype(np.int32), heads.astype(np.int32), capacity, cost)
    solver.set_nodes_supplies(np.arange(len(supply), dtype=np.int32), supply)
    try:
        status = solver.solve()
    except Exception as problem:
        raise PlacementError(f"the solver of placement failed: {problem}") from problem
    if status != solver.OPTIMAL:
        raise PlacementError(
            f"the solver of placement answered {status.name} to {len(tails)} arcs between {len(supply)} nodes"
        )
    return np.asarray(solver.flows(np.arange(len(tails), dtype=np.int32)), np.int64)


def _undecided(  # noqa: PLR0917 - the arcs of a network, column by column
    tails: Ints, heads: Ints, capacity: Ints, cost: Ints, flow: Ints, nodes: int
) -> npt.NDArray[np.bool_]:
    """Tell which arcs may carry something else in another flow that costs as little (Bellman and Ford's potentials)."""
    more, less = flow < capacity, flow > 0
    begin = np.concatenate([tails[more], heads[less]])
    end = np.concatenate([heads[more], tails[less]])
    price = np.concatenate([cost[more], -cost[less]])
    potential = np.zeros(nodes, np.int64)
    while True:
        lower = potential.copy()
        np.minimum.at(lower, end, potential[begin] + price)
        if np.array_equal(lower, potential):
            return np.asarray(cost + potential[tails] - potential[heads] == 0)
        potential = lower
