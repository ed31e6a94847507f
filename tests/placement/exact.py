"""An exact solver for small groups (scipy's HiGHS): what the best of all placements would be.

Every task and open member make one variable that is 0 or 1. The laws are rows; what is asked for is the objective.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations, product
from math import ceil, floor, inf

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix
from tests.placement.placing import Group, is_balanced

from batonpass.placement.types import Placed, Readiness

TINY = 1e-9
Row = tuple[Mapping[int, float], float, float]


class Exact:
    """The placements of a group's stateful tasks (or of its standbys) as an integer program."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.ranks = list(group.table.stateful_indexes)
        self.members = [one for one in sorted(group.seats, key=lambda one: one.id) if one.may_be_target]
        self.home = group.home or (None,) * len(group.table.ids)
        self.rows: list[Row] = []
        self.upper = np.ones(len(self.ranks) * len(self.members) + 2)
        self.upper[-2:] = inf

    def at(self, task: int, member: int) -> int:
        """Return the variable that says whether the member has the task (or a standby of it)."""
        return task * len(self.members) + member

    def row(self, parts: Iterable[tuple[int, float]], low: float, high: float) -> None:
        """Add a law: a weighted sum of variables lies between two numbers."""
        self.rows.append((dict(parts), low, high))

    def copies(self, count: int) -> None:
        """Give every task so many members."""
        for task in range(len(self.ranks)):
            self.row(((self.at(task, member), 1.0) for member in range(len(self.members))), count, count)

    def near_quota(self) -> None:
        """Keep every member at floor or ceiling of its quota."""
        capacity = sum(one.capacity for one in self.members)
        for member, one in enumerate(self.members):
            quota = len(self.ranks) * one.capacity / capacity
            parts = ((self.at(task, member), 1.0) for task in range(len(self.ranks)))
            self.row(parts, floor(quota + TINY) - TINY, ceil(quota - TINY) + TINY)

    def is_move(self, task: int, member: int) -> bool:
        """Tell whether the task would not be at home there."""
        return self.home[self.ranks[task]] != self.members[member].id

    def moves(self) -> dict[int, float]:
        """Return what every move costs: one."""
        cells = ((task, member) for task in range(len(self.ranks)) for member in range(len(self.members)))
        return {self.at(*cell): 1.0 for cell in cells if self.is_move(*cell)}

    def minimum(self, cost: Mapping[int, float]) -> float:
        """Return the least cost that the laws allow."""
        size = len(self.upper)
        matrix = lil_matrix((len(self.rows), size))
        for index, (parts, _, _) in enumerate(self.rows):
            for variable, factor in parts.items():
                matrix[index, variable] = factor
        objective = np.zeros(size)
        for variable, price in cost.items():
            objective[variable] = price
        whole = np.ones(size)
        whole[-2:] = 0
        laws = LinearConstraint(matrix.tocsr(), [low for _, low, _ in self.rows], [high for _, _, high in self.rows])
        found = milp(objective, constraints=laws, integrality=whole, bounds=Bounds(0, self.upper))
        assert found.status == 0, found.message
        return float(found.fun)


def fewest_moves(group: Group) -> int:
    """Return the fewest moves of any placement of equal weights with every member at its quota."""
    exact = Exact(group)
    exact.copies(1)
    exact.near_quota()
    return round(exact.minimum(exact.moves()))


def fewest_balanced_moves(group: Group) -> int:
    """Return the fewest moves of any balanced placement, by trying them all, with few moves first."""
    number = group.number()
    members = [number[one.id] for one in group.seats if one.may_be_target]
    home = [number.get(name, -1) if name else -1 for name in group.home]
    homeless = [task_index for task_index, member in enumerate(home) if member not in members]
    rest = [task_index for task_index in range(len(home)) if task_index not in homeless]
    for count in range(len(rest) + 1):
        for moving in combinations(rest, count):
            for targets in product(members, repeat=len(homeless) + count):
                owner = list(home)
                for task_index, member in zip((*homeless, *moving), targets, strict=True):
                    owner[task_index] = member
                if is_balanced(group, owner):
                    return len(homeless) + count
    raise AssertionError("no placement is balanced")


def most_warm_moves(group: Group, placed: Placed) -> int:
    """Return how many of the moves, which are as few as those made, could go to caught-up copies at most."""
    exact = Exact(group)
    exact.copies(1)
    exact.near_quota()
    exact.row(exact.moves().items(), placed.moves, placed.moves)
    warm = {
        exact.at(task, member): -1.0
        for task, task_index in enumerate(exact.ranks)
        for member, one in enumerate(exact.members)
        if exact.is_move(task, member)
        and (known := group.warm.get(task_index, {}).get(one.id)) is not None
        and known.ready_class <= Readiness.CAUGHT_UP
    }
    return -round(exact.minimum(warm))


def least_skew(group: Group, placed: Placed) -> float:
    """Return the least subtopology skew per capacity of any placement with no more moves than those made."""
    exact = Exact(group)
    exact.copies(1)
    exact.near_quota()
    exact.row(exact.moves().items(), 0, placed.moves)
    widest = len(exact.upper) - 1
    for subtopology in set(group.table.subtopology):
        own = [
            task for task, task_index in enumerate(exact.ranks) if group.table.subtopology[task_index] == subtopology
        ]
        for member, one in enumerate(exact.members):
            for other, another in enumerate(exact.members):
                if member != other:
                    parts = {exact.at(task, member): 1 / one.capacity for task in own}
                    parts |= {exact.at(task, other): -1 / another.capacity for task in own}
                    exact.row((parts | {widest: -1.0}).items(), -inf, 0)
    return exact.minimum({widest: 1.0})


def _standbys(group: Group, placed: Placed) -> Exact:
    exact = Exact(group)
    exact.copies(min(group.replicas, len(exact.members) - 1))
    for task, task_index in enumerate(exact.ranks):
        for member, one in enumerate(exact.members):
            if group.name(placed.owner[task_index]) == one.id:
                exact.upper[exact.at(task, member)] = 0
    return exact


def lowest_peak(group: Group, placed: Placed) -> float:
    """Return the least that the most copies per capacity can be, without tags, with these actives."""
    exact, actives = _standbys(group, placed), Counter(group.name(owner) for owner in placed.owner)
    peak = len(exact.upper) - 1
    for member, one in enumerate(exact.members):
        parts = {exact.at(task, member): 1 / one.capacity for task in range(len(exact.ranks))} | {peak: -1.0}
        exact.row(parts.items(), -inf, -actives[one.id] / one.capacity)
    return exact.minimum({peak: 1.0})


def fewest_new_copies(group: Group, placed: Placed) -> int:
    """Return the fewest new standbys, without tags, with every member holding as many as it does in the answer."""
    exact = _standbys(group, placed)
    held = Counter(group.name(seat) for seats in placed.standbys for seat in seats)
    for member, one in enumerate(exact.members):
        parts = ((exact.at(task, member), 1.0) for task in range(len(exact.ranks)))
        exact.row(parts, held[one.id], held[one.id])
    cost = {
        exact.at(task, member): 1.0
        for task, task_index in enumerate(exact.ranks)
        for member, one in enumerate(exact.members)
        if one.id not in group.standbys[task_index] and one.id != group.home[task_index]
    }
    return round(exact.minimum(cost))
