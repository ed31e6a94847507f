"""Tasks of unequal weights: how many of each weight every member has (``amounts``), then which ones (``actives``)."""

import numpy as np

from batonpass.placement.actives import Kind, place_part
from batonpass.placement.amounts import Amounts, Room
from batonpass.placement.quotas import Quotas
from batonpass.placement.state import PlacementState
from batonpass.placement.types import NO_STATE, UNASSIGNED


def place_weighted(state: PlacementState, kind: Kind) -> int:
    """Give tasks of unequal weights a target.

    Moves under way are kept unless fewer tasks wait, or move, without them.

    Returns:
        A number of moves below which the highest load cannot be as low.
    """
    request = state.request
    forced = sum(request.home[task] != member for task, member in request.bound.items() if state.stateful[task])
    if not len(kind.tasks):
        return forced
    sorts = _Sorts(state, kind)
    warm, under_way = _warm(state, kind), _under_way(state, kind)
    amounts = sorts.amounts(warm, {})
    if not request.balance_held:
        amounts.spare()
    if under_way:
        kept = sorts.amounts(warm, under_way)
        amounts = min(kept, amounts, key=lambda each: (each.lacking.sum(), each.moves()))
    order = np.argsort(sorts.sort, kind="stable")
    tasks_of = np.split(kind.tasks[order], np.cumsum(np.bincount(sorts.sort))[:-1])
    for tasks, counts, lacking in zip(tasks_of, amounts.counts.T, amounts.lacking.tolist(), strict=True):
        if len(tasks) == 1 and not lacking:
            # No other task weighs the same, so the amounts leave no choice.
            state.owner[tasks[0]] = int(counts.argmax())
            continue
        quota = Quotas(counts.tolist(), [False] * len(counts), [0.0] * len(counts))
        place_part(state, kind.of(state, tasks, counts), quota)
    return forced + len(kind.orphans) - int(amounts.lacking.sum()) + amounts.fewest_moves()


def _warm(state: PlacementState, kind: Kind) -> dict[int, int]:
    """Return for tasks without a member the one that is warmest for them."""
    known = state.request.warmth(kind.orphans, state.eligible) if kind.stateful else {}
    there = {
        task: [(copy, member) for member, copy in copies.items() if copy < NO_STATE and state.takes(task, member)]
        for task, copies in sorted(known.items())
    }
    return {task: min(copies)[1] for task, copies in there.items() if copies}


def _under_way(state: PlacementState, kind: Kind) -> dict[int, int]:
    """Return for tasks that are on their way to a member, or warm up there, this member."""
    request, tasks = state.request, {*kind.tasks.tolist()}
    return {
        task: member
        for task, member in sorted({**request.previous, **request.warming}.items())
        if task in tasks and state.may_be_target[member] and member != request.home[task] and state.takes(task, member)
    }


class _Sorts:
    """The sorts of tasks: those with the same weight and the same topology epoch. Heavy ones come first.

    Attributes:
        sort: per task of the kind, its sort.
    """

    def __init__(self, state: PlacementState, kind: Kind) -> None:
        table = state.request.table
        need = np.array(table.topology_epoch if state.restricted else [0] * len(table.stateful))[kind.tasks]
        weight = np.array(table.weight, float)[kind.tasks]
        sorts, self.sort = np.unique(np.stack([-need, -weight]), axis=1, return_inverse=True)
        self._held = state.request.balance_held
        self._weight = (-sorts[1]).tolist()
        epochs = np.array([member.topology_epoch for member in state.request.members])
        self._allowed = state.may_be_target[:-1, None] & (epochs[:, None] >= -sorts[0])
        self._home = np.where(np.isin(kind.tasks, kind.orphans), UNASSIGNED, state.home[kind.tasks])
        self._place_of = {task: place for place, task in enumerate(kind.tasks.tolist())}
        load = np.array(kind.load)
        for task, member in state.request.bound.items():
            load[member] += table.weight[task] if state.stateful[task] == kind.stateful else 0.0
        slots, tolerance = np.array(kind.most) - kind.have, state.request.balance_tolerance
        self._room = Room(load, np.array(state.capacity), slots, tolerance)

    def amounts(self, warm: dict[int, int], under_way: dict[int, int]) -> Amounts:
        """Return how many of each sort every member should have, if tasks begin where they are warm or under way.

        A task goes where it is warm only as long as that is below the member's quota.
        """
        counts = np.zeros((len(self._room.load) + 1, len(self._weight)), np.int64)
        np.add.at(counts, (self._home, self.sort), 1)
        amounts = Amounts(self._weight, self._allowed, self._room, counts[:-1], counts[-1])
        for task, member in {**warm, **under_way}.items():
            sort, home = int(self.sort[self._place_of[task]]), int(self._home[self._place_of[task]])
            # What is under way may go to a member that is full only until others have left it.
            if task in under_way or amounts.takes_below_quota(sort, member):
                amounts.put(sort, member)
                if home == UNASSIGNED:
                    amounts.lacking[sort] -= 1
                else:
                    amounts.put(sort, home, -1)
        amounts.place()
        amounts.shed()
        if not self._held:
            amounts.level()
        return amounts
