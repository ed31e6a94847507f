"""Stateless tasks of different weights, or during a rollout: placed so that they level the load of stateful tasks."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from math import inf

import numpy as np

from batonpass.core.placement.actives import Kind, stateless_tasks
from batonpass.core.placement.quotas import PLACES
from batonpass.core.placement.state import PlacementState
from batonpass.core.state.placement_types import UNASSIGNED
from batonpass.core.state.reasons import Held


def level_loads(state: PlacementState, load: Sequence[float]) -> None:
    """Place stateless tasks of different weights, or during a rollout, on top of the load of stateful ones.

    Tasks without an owner go to the lowest loads per capacity, heaviest first. Then the highest loads are lowered task
    by task, until no single move lowers the higher of two loads.
    """
    held = stateless_tasks(state, None)
    levels = _Levels(state, held, load)
    for task in sorted(held.orphans, key=lambda task: (-levels.need(task), -levels.weight[task], task)):
        levels.place(task)
    for member in state.eligible:
        levels.shed(member)
    while not state.request.balance_held and levels.lower_one():
        pass


class _Levels:
    """Loads and free slots per member, and the stateless tasks that each member could give away, lightest first."""

    def __init__(self, state: PlacementState, held: Kind, load: Sequence[float]) -> None:
        request = state.request
        self.state = state
        self.weight = request.table.weight
        self.load = np.array(load)
        self.capacity = np.array(state.capacity)
        self.slots = np.array(held.limit) - held.have
        self.epoch = np.array([member.topology_epoch for member in request.members])
        self.tasks: dict[int, list[tuple[float, int]]] = {member: [] for member in state.eligible}
        orphans = set(held.orphans)
        for task in held.tasks.tolist():
            if task not in orphans:
                self.tasks[state.owner[task]].append((self.weight[task], task))
        for tasks in self.tasks.values():
            tasks.sort()
        for task in request.table.stateless_indexes:
            if task not in orphans and state.owner[task] != UNASSIGNED:
                self.load[state.owner[task]] += self.weight[task]

    def need(self, task: int) -> int:
        """Return the topology epoch that a task needs, or 0 if epochs do not matter."""
        return self.state.request.table.topology_epoch[task] if self.state.restricted else 0

    def lowest(self, task: int) -> tuple[float, int]:
        """Return the lowest load per capacity that the task can lead to, and the member with that load."""
        may = self.state.may_be_target[:-1] & (self.slots > 0)
        may &= self.epoch >= self.need(task)
        heights = np.where(may, np.round((self.load + self.weight[task]) / self.capacity, PLACES), np.inf)
        member = int(heights.argmin())
        return (float(heights[member]), member) if may[member] else (inf, UNASSIGNED)

    def place(self, task: int) -> None:
        """Place a task without an owner on the member whose load it leaves lowest."""
        _, member = self.lowest(task)
        if member == UNASSIGNED:
            self.state.wait(task, Held.NO_CAPACITY)
        else:
            self.put(task, member)

    def put(self, task: int, member: int) -> None:
        self.state.owner[task] = member
        insort(self.tasks[member], (self.weight[task], task))
        self.load[member] += self.weight[task]
        self.slots[member] -= 1

    def take(self, task: int, member: int) -> None:
        self.tasks[member].remove((self.weight[task], task))
        self.load[member] -= self.weight[task]
        self.slots[member] += 1

    def shed(self, member: int) -> None:
        """Take tasks beyond its limit from a member, lightest first. Tasks that fit nowhere else wait."""
        while self.slots[member] < 0 and self.tasks[member]:
            _, task = self.tasks[member][0]
            self.take(task, member)
            self.place(task)

    def lower_one(self) -> bool:
        """Lower the highest load that moving one task can lower. Return False if there is none."""
        heights = np.round(self.load / self.capacity, PLACES)
        for member in sorted(self.state.eligible, key=lambda member: (-heights[member], member)):
            best = (float(heights[member]), -inf, UNASSIGNED, UNASSIGNED)
            # If every member may have every task, one task of each weight is enough.
            some = (
                self.tasks[member]
                if self.state.restricted
                else {weighted[0]: weighted for weighted in self.tasks[member]}.values()
            )
            for weight, task in some:
                height, target = self.lowest(task)
                left = float(np.round((self.load[member] - weight) / self.capacity[member], PLACES))
                best = min(best, (max(height, left), -weight, task, target))
            if best[2] != UNASSIGNED:
                self.take(best[2], member)
                self.put(best[2], best[3])
                return True
        return False
