"""Target owners of tasks of equal weight: first the stateful tasks, then the stateless ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy

import numpy as np

from batonpass.placement.exchange import Exchange, Floats, TaskClass, Wish
from batonpass.placement.flow import Ints
from batonpass.placement.quotas import PLACES, Cohort, Division, Quotas, level_quotas, quotas
from batonpass.placement.state import Marks, PlacementState, Wishes
from batonpass.placement.types import NO_STATE, UNASSIGNED, Readiness, Waits

LEVELS = (
    "wait",
    "balance",
    "part",
    "move",
    "warming",
    "height",
    "unready",
    "cold",
    "restore",
    "previous",
    "newcomer",
    "stateless",
    "even",
    "load",
    "size",
    "order",
)


def stateful_tasks(state: PlacementState) -> Kind:
    """Return the stateful tasks. Stateless tasks that are bound to a member take part of its limit."""
    taken = bound_stateless(state).tolist()
    limit = [max(0, limit - count) for limit, count in zip(state.limit, taken, strict=True)]
    limit = list(map(min, limit, state.stateful_limit))
    return Kind(state, stateful=True, limit=limit, slots=running_stateless(state), load=None)


def stateless_tasks(state: PlacementState, load: Sequence[float] | None) -> Kind:
    """Return the stateless tasks. Stateful tasks take part of the members' limits.

    ``load`` is the members' stateful load, in units of one task's weight where all weigh the same.
    """
    actives = state.count(np.array(state.owner, np.int64)[state.stateful])
    limit = [max(0, limit - count) for limit, count in zip(state.limit, actives.tolist(), strict=True)]
    return Kind(state, stateful=False, limit=limit, slots=actives, load=load)


def running_stateless(state: PlacementState) -> Ints:
    """Return the slots that running stateless tasks take. They are not stopped in order to start others."""
    homes = state.home.copy()
    for task, member in state.request.bound.items():
        homes[task] = member
    return state.count(homes[~state.stateful])


def bound_stateless(state: PlacementState) -> Ints:
    return state.count([member for task, member in state.request.bound.items() if not state.stateful[task]])


class Kind:
    """The stateful or the stateless tasks, and which member has them before anything moves.

    Attributes:
        tasks: those to be placed that are not bound.
        have: per eligible member, how many it has, including those bound to it; 0 for others.
        bound: per member, how many are bound to it.
        orphans: those of the tasks that no eligible member has.
        limit: per member, how many its limits leave room for.
        least: per member, the fewest that it must have.
        most: per member, the most that it may have.
        load: the other load of members, in units of a task; None if it does not count.
    """

    def __init__(
        self,
        state: PlacementState,
        *,
        stateful: bool,
        limit: Sequence[int],
        slots: Ints,
        load: Sequence[float] | None,
    ) -> None:
        request = state.request
        self.stateful = stateful
        self.load = load
        self.limit = list(limit)
        free = state.stateful == stateful
        self.bound = np.zeros(len(state.capacity), np.int64)
        for task, member in request.bound.items():
            if free[task]:
                free[task] = False
                self.bound[member] += 1
                state.owner[task] = member
        at_home = free & state.may_be_target[state.home]
        held = state.count(state.home[at_home])
        self.have = np.where(state.may_be_target[:-1], held + self.bound, 0)
        orphans = np.flatnonzero(free & ~at_home).tolist()
        free = np.minimum(np.array(state.limit) - slots, limit) - self.have
        self.orphans = fit(state, orphans, free.tolist())
        at_home[self.orphans] = True
        self.tasks = np.flatnonzero(at_home)
        bound = self.bound.tolist()
        self.most = [max(high, low) for high, low in zip(limit, bound, strict=True)]
        self.least = bound
        if request.balance_held:
            self.least = [min(has, high) for has, high in zip(self.have.tolist(), self.most, strict=True)]

    def of(self, state: PlacementState, tasks: Ints, amounts: Ints) -> Kind:
        """Return some of the tasks as a kind of their own, of which members are to have these amounts."""
        some = copy(self)
        some.tasks = tasks
        orphans = {*self.orphans}
        some.orphans = [task for task in tasks.tolist() if task in orphans]
        some.have = state.count(state.home[tasks[~np.isin(tasks, some.orphans)]])
        some.most = some.least = amounts.tolist()
        return some

    def count(self, state: PlacementState) -> int:
        """Return how many of the tasks will be on eligible members."""
        total = int(self.have.sum()) + len(self.orphans)
        return min(total, sum(self.most[member] for member in state.eligible))


def fit(state: PlacementState, orphans: list[int], slots: Sequence[int]) -> list[int]:
    """Return the orphans that find a slot, the warmest first if there are too few slots. The others wait.

    Args:
        state: what is being placed.
        orphans: the tasks.
        slots: per member, how many more tasks it may have.
    """
    request = state.request
    need = request.table.topology_epoch
    epochs = {member: request.members[member].topology_epoch for member in state.eligible}
    if state.restricted:
        newest = max(epochs.values())
        for task in [task for task in orphans if need[task] > newest]:
            state.wait(task, Waits.STALE_TOPOLOGY)
        orphans = [task for task in orphans if need[task] <= newest]
    if not state.limited or not orphans:
        return orphans
    free = {member: slots[member] for member in state.eligible}
    # A member that may take a task may take every older one too. So for each epoch, the tasks that need this epoch or a
    # newer one have to fit together.
    room = {
        epoch: sum(free[member] for member in state.eligible if not state.restricted or epochs[member] >= epoch)
        for epoch in ({need[task] for task in orphans} if state.restricted else {0})
    }
    if not state.restricted and len(orphans) <= room[0]:
        return orphans
    known = request.warmth(orphans, state.eligible)

    def coldness(task: int) -> tuple[int, int, int]:
        there = [held for member, held in known.get(task, {}).items() if state.may_be_target[member]]
        return (*min([NO_STATE, *there]), task)

    fitting: list[int] = []
    for task in sorted(orphans, key=coldness):
        levels = [epoch for epoch in room if not state.restricted or epoch <= need[task]]
        if all(room[epoch] > 0 for epoch in levels):
            fitting.append(task)
            for epoch in levels:
                room[epoch] -= 1
        else:
            state.wait(task, Waits.NO_CAPACITY)
    return sorted(fitting)


def place_equal(state: PlacementState, kind: Kind) -> None:
    """Give tasks that all weigh the same a target."""
    count = kind.count(state)
    overflow = int(kind.have.sum()) + len(kind.orphans) > count
    place_part(state, kind, _quota(state, kind, count), overflow=overflow)


def place_part(state: PlacementState, kind: Kind, quota: Quotas, *, overflow: bool) -> None:
    """Give tasks of one weight a target, as many to each member as its quota says."""
    floors, tops = np.array(quota.floors), np.array(quota.floors) + quota.fractional
    opened = state.may_be_target[:-1]
    at_rest = bool(((floors <= kind.have) & (kind.have <= tops))[opened].all())
    if at_rest and not kind.orphans and not state.restricted:
        return
    gives = opened & ((kind.have > floors) | (state.restricted and not state.request.balance_held))
    takes = opened & ((kind.have < tops) | state.restricted)
    exchange, classes = _network(state, kind, quota, gives, takes, overflow=overflow)
    for task, _, target in exchange.solve(classes):
        if target == UNASSIGNED:
            state.wait(task, Waits.NO_CAPACITY)
        else:
            state.owner[task] = target


def _quota(state: PlacementState, kind: Kind, count: int) -> Quotas:
    def final(members: Sequence[int], some: int) -> Quotas:
        least, most = [kind.least[member] for member in members], [kind.most[member] for member in members]
        if kind.load is None:
            return quotas([state.shares[member] for member in members], least, most, some)
        load, capacity = [kind.load[member] for member in members], [state.capacity[member] for member in members]
        return level_quotas(load, capacity, least, most, some)

    blocks: list[list[int]] = []
    cohorts = [Cohort(count, (), UNASSIGNED)]
    if state.restricted:
        blocks, reach_of = epoch_blocks(state)
        need = state.request.table.topology_epoch
        homes = np.where(state.may_be_target[state.home], state.home, UNASSIGNED).tolist()
        tally = Counter((homes[task], reach_of(need[task])) for task in kind.tasks.tolist())
        cohorts = [Cohort(amount, to, home) for (home, to), amount in sorted(tally.items())]
        cohorts += [Cohort(int(kind.bound[member]), (), member) for member in state.eligible if kind.bound[member]]
    nothing = [0] * len(state.capacity)
    return Division(cohorts, blocks, state.shares, kind.least, kind.most, final, nothing).solve(state.eligible)


def epoch_blocks(state: PlacementState) -> tuple[list[list[int]], Callable[[int], tuple[int, ...]]]:
    """Return the eligible members of each topology epoch, and which of these blocks may have a task of an epoch."""
    members = state.request.members
    epochs = sorted({members[member].topology_epoch for member in state.eligible})
    blocks = [[member for member in state.eligible if members[member].topology_epoch == epoch] for epoch in epochs]
    return blocks, lambda need: tuple(place for place, epoch in enumerate(epochs) if epoch >= need)


def _network(
    state: PlacementState, kind: Kind, quota: Quotas, gives: Marks, takes: Marks, *, overflow: bool
) -> tuple[Exchange, list[TaskClass]]:
    request = state.request
    home = np.where(state.may_be_target[state.home], state.home, UNASSIGNED)
    tasks = kind.tasks[(home[kind.tasks] == UNASSIGNED) | gives[home[kind.tasks]]]
    takers = np.flatnonzero(takes).tolist()
    wishes = Wishes(request.warmth(tasks.tolist(), takers) if kind.stateful else {})
    sorting = _Sorting(state, kind, tasks, home)
    counts, even = sorting.evenness(state, kind)
    exchange = Exchange(
        levels=LEVELS,
        have=kind.have,
        quota=quota,
        most=np.array(kind.most, np.int64),
        ceiling=_ceiling(state, kind, quota),
        cold=wishes.cold,
        blocks=sorting.blocks if state.restricted else [takers],
        reach=sorting.reach,
        counts=counts,
        even=even,
        width=state.width,
        solver=state.solver,
    )
    classes = sorting.classes(state, wishes, frozenset(takers))
    if overflow:
        for task_class in classes:
            if task_class.home == UNASSIGNED or kind.have[task_class.home] > kind.most[task_class.home]:
                task_class.wait = 1 if task_class.home == UNASSIGNED else 2
    return exchange, classes


def _ceiling(state: PlacementState, kind: Kind, quota: Quotas) -> dict[str, Ints]:
    """Return, by level, the cost per member of one task more than its floor."""
    heights = [(low + 1) / capacity for low, capacity in zip(quota.floors, state.capacity, strict=True)]
    # Among members that the ceiling makes equally high, the one with the lowest load without it comes first.
    levels = np.stack([quota.floors, kind.have]).T / np.array(state.capacity)[:, None]
    costs = {"newcomer": (kind.have > 0).astype(np.int64), "load": ranks(levels), "order": np.arange(len(levels))}
    if state.restricted:
        costs["part"] = ranks(quota.levels)
    if kind.load is None:
        costs["height"] = ranks(heights)
        # A member that runs many stateless tasks should get fewer stateful ones, so that no stateless one has to move.
        others = state.count(state.home[~state.stateful]).tolist()
        costs["stateless"] = ranks([count / capacity for count, capacity in zip(others, state.capacity, strict=True)])
    return costs


def ranks(values: Sequence[float] | Floats) -> Ints:
    """Return the rank of each value, or row of values, among the distinct ones."""
    return np.unique(np.round(values, PLACES), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


class _Sorting:
    """Sorts tasks into classes: by home, subtopology, members that may have them, size of state, and wishes."""

    def __init__(self, state: PlacementState, kind: Kind, tasks: Ints, home: Ints) -> None:
        table = state.request.table
        self.tasks = tasks
        self.home = home
        self.parts, self._part = np.unique(np.array(table.subtopology, np.int64), return_inverse=True)
        of_kind = np.unique(self._part[kind.tasks])
        # With a single subtopology, evenness follows from the counts of all tasks.
        self._count = len(self.parts) if len(of_kind) > 1 else 1
        if self._count == 1:
            self._part = np.zeros(len(self._part), np.int64)
        self.blocks: list[list[int]] = [[]]
        self.reach: list[tuple[tuple[int, int], ...]] = [((0, 0),)]
        self._reach = np.zeros(len(table.stateful), np.int64)
        if state.restricted:
            self.blocks, reach_of = epoch_blocks(state)
            needs, self._reach = np.unique(np.array(table.topology_epoch, np.int64), return_inverse=True)
            self.reach = [tuple((block, 0) for block in reach_of(int(need))) for need in needs]
        sizes = state.request.state_size
        self._size = np.array([sizes.get(task, 0) for task in tasks.tolist()] if sizes else 0, np.int64)

    def evenness(self, state: PlacementState, kind: Kind) -> tuple[Ints, Floats]:
        """Return how many tasks of each subtopology each member has, and how many would be even."""
        members = len(state.capacity)
        if self._count == 1:
            return kind.have[:, None], np.zeros((members, 1))
        owner = np.array(state.owner, np.int64)
        counted = (state.stateful == kind.stateful) & state.may_be_target[owner]
        cells = owner[counted] * self._count + self._part[counted]
        counts = np.bincount(cells, minlength=members * self._count).reshape(members, self._count)
        total = counts.sum(axis=0) + np.bincount(self._part[kind.orphans], minlength=self._count)
        shares = np.where(state.may_be_target[:-1], np.array(state.capacity), 0)
        return counts, np.outer(shares / shares.sum(), total)

    def classes(self, state: PlacementState, wishes: Wishes, takers: frozenset[int]) -> list[TaskClass]:
        """Return the classes, in an order that depends only on their content."""
        request = state.request
        special: dict[int, tuple[tuple[Wish, ...], frozenset[int]]] = {}
        for task in {*wishes.copies, *request.previous, *request.warming}.intersection(self.tasks.tolist()):
            distinct = _wishes(state, wishes, task, takers)
            if distinct[0]:
                special[task] = distinct
        tasks = self.tasks
        home, part, reach = self.home[tasks], self._part[tasks], self._reach[tasks]
        size = np.broadcast_to(self._size, len(tasks))
        bucket = (
            np.array([(int(task_size).bit_length() + 1) // 2 for task_size in size])
            if size.any()
            else np.zeros_like(home)
        )
        order = np.lexsort((tasks, size, bucket, reach, part, home))
        keys = np.stack([home, part, reach, bucket])[:, order]
        keyed: dict[tuple[tuple[Wish, ...], frozenset[int], tuple[int, ...]], TaskClass] = {}
        classes: list[TaskClass] = []
        listed = tasks[order].tolist()
        apart = np.array([task in special for task in listed], np.bool_) if special else np.zeros(len(listed), np.bool_)
        # A task with wishes separates those before it from those after it. It starts a class, or joins an equal one.
        begins = np.flatnonzero(np.any(keys[:, 1:] != keys[:, :-1], axis=0) | apart[1:] | apart[:-1]) + 1
        spans = zip([0, *begins.tolist()], [*begins.tolist(), len(listed)], strict=True) if listed else ()
        for start, end in spans:
            key = tuple(keys[:, start].tolist())
            task_class = TaskClass(key[0], key[1], key[2], tasks=listed[start:end], give=key[3])
            if apart[start]:
                task_class.wishes, task_class.excluded = special[listed[start]]
                first = keyed.setdefault((task_class.wishes, task_class.excluded, key), task_class)
                if first is not task_class:
                    first.tasks = [*first.tasks, *task_class.tasks]
                    continue
            classes.append(task_class)
        return classes


def _wishes(
    state: PlacementState, wishes: Wishes, task: int, takers: frozenset[int]
) -> tuple[tuple[Wish, ...], frozenset[int]]:
    """Return the wishes for a task, one per member that differs from the others, and the members of unknown lag."""
    request = state.request
    previous, warming = request.previous.get(task, UNASSIGNED), request.warming.get(task, UNASSIGNED)
    known = wishes.copies.get(task, {})
    some = [
        member
        for member in sorted({*known, previous, warming})
        if member in takers and member != request.home[task] and state.takes(task, member)
    ]
    member_wishes = tuple(
        wishes.wish(task, member, warming=member == warming, previous=member == previous) for member in some
    )
    return member_wishes, frozenset(member for member in some if wishes.at(task, member).ready_class > Readiness.COLD)
