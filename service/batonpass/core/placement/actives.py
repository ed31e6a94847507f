"""Target owners of tasks that weigh the same: first of those with state, then of those without."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from batonpass.core.placement.exchange import Exchange, Floats, TaskClass, Wish
from batonpass.core.placement.flow import Ints
from batonpass.core.placement.quotas import PLACES, Cohort, Division, Quotas, level_quotas, quotas
from batonpass.core.placement.state import Marks, PlacementState, Wishes
from batonpass.core.placement_types import NO_STATE, UNASSIGNED, Ready
from batonpass.core.reasons import Held

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


def place_stateful(state: PlacementState) -> None:
    """Give every stateful task a target."""
    _place(state, stateful_tasks(state))


def stateful_tasks(state: PlacementState) -> Kind:
    """Return the stateful tasks; limits leave them what is beside the stateless ones that are bound to a member."""
    taken = bound_stateless(state).tolist()
    limit = [max(0, limit - count) for limit, count in zip(state.limit, taken, strict=True)]
    limit = list(map(min, limit, state.stateful_limit))
    return Kind(state, stateful=True, limit=limit, slots=running_stateless(state), load=None)


def stateless_tasks(state: PlacementState, load: Sequence[float] | None) -> Kind:
    """Return the stateless tasks; limits leave them what stateful ones do not take."""
    actives = state.count_actives(stateful=True)
    limit = [max(0, limit - count) for limit, count in zip(state.limit, actives.tolist(), strict=True)]
    return Kind(state, stateful=False, limit=limit, slots=actives, load=load)


def place_stateless(state: PlacementState, load: Sequence[float]) -> None:
    """Give every stateless task a target, on top of the stateful load of each member, in units of their weight."""
    _place(state, stateless_tasks(state, load))


def running_stateless(state: PlacementState) -> Ints:
    """Return the slots that running stateless tasks take: they are not stopped to start others."""
    homes = state.home.copy()
    for task, member in state.request.bound.items():
        homes[task] = member
    return state.count(homes[~state.stateful])


def bound_stateless(state: PlacementState) -> Ints:
    """Return how many stateless tasks are bound to each member."""
    return state.count([member for task, member in state.request.bound.items() if not state.stateful[task]])


class Kind:
    """The stateful or the stateless tasks, and who has them before anything moves.

    Attributes:
        tasks: those that are not bound and are to have a place.
        have: per open member, those that it has, what is bound to it included; 0 for others.
        bound: per member, those that are bound to it.
        orphans: those of the tasks that no open member has.
        limit: per member, what limits leave it.
        least: per member, what it has to have.
        most: per member, what it may have.
        load: what members run besides, in units of a task; None where nothing counts but these.
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
        at_home = free & state.is_open[state.home]
        held = state.count(state.home[at_home])
        self.have = np.where(state.is_open[:-1], held + self.bound, 0)
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

    def count(self, state: PlacementState) -> int:
        """Return how many of the tasks are to be on open members."""
        total = int(self.have.sum()) + len(self.orphans)
        return min(total, sum(self.most[one] for one in state.open))


def fit(state: PlacementState, orphans: list[int], slots: Sequence[int]) -> list[int]:
    """Return the tasks without a member that find a slot, the warmest first where there are too few; the others wait.

    Args:
        state: what is being placed.
        orphans: the tasks.
        slots: per member, how many more tasks it may have.
    """
    request = state.request
    need = request.table.topology_epoch
    epochs = {one: request.members[one].topology_epoch for one in state.open}
    if state.restricted:
        newest = max(epochs.values())
        for task in [task for task in orphans if need[task] > newest]:
            state.wait(task, Held.STALE_TOPOLOGY)
        orphans = [task for task in orphans if need[task] <= newest]
    if not state.limited or not orphans:
        return orphans
    free = {one: slots[one] for one in state.open}
    # Members that may take a task may take every older one too: what asks for an epoch, or a newer one, has to fit.
    room = {
        epoch: sum(free[one] for one in state.open if not state.restricted or epochs[one] >= epoch)
        for epoch in ({need[task] for task in orphans} if state.restricted else {0})
    }
    if not state.restricted and len(orphans) <= room[0]:
        return orphans
    known = request.warmth(orphans, state.open)

    def coldness(task: int) -> tuple[int, int, int]:
        there = [held for member, held in known.get(task, {}).items() if state.is_open[member]]
        return (*min([NO_STATE, *there]), task)

    fitting: list[int] = []
    for task in sorted(orphans, key=coldness):
        levels = [epoch for epoch in room if not state.restricted or epoch <= need[task]]
        if all(room[epoch] > 0 for epoch in levels):
            fitting.append(task)
            for epoch in levels:
                room[epoch] -= 1
        else:
            state.wait(task, Held.NO_CAPACITY)
    return sorted(fitting)


def _place(state: PlacementState, kind: Kind) -> None:
    count = kind.count(state)
    quota = _quota(state, kind, count)
    floors, tops = np.array(quota.floors), np.array(quota.floors) + quota.fractional
    opened = state.is_open[:-1]
    at_rest = bool(((floors <= kind.have) & (kind.have <= tops))[opened].all())
    if at_rest and not kind.orphans and not state.restricted:
        return
    gives = opened & ((kind.have > floors) | (state.restricted and not state.request.balance_held))
    takes = opened & ((kind.have < tops) | state.restricted)
    exchange, classes = _network(
        state, kind, quota, gives, takes, overflow=int(kind.have.sum()) + len(kind.orphans) > count
    )
    for task, _, target in exchange.solve(classes):
        if target == UNASSIGNED:
            state.wait(task, Held.NO_CAPACITY)
        else:
            state.owner[task] = target


def _quota(state: PlacementState, kind: Kind, count: int) -> Quotas:
    def final(members: Sequence[int], some: int) -> Quotas:
        least, most = [kind.least[one] for one in members], [kind.most[one] for one in members]
        if kind.load is None:
            return quotas([state.shares[one] for one in members], least, most, some)
        load, capacity = [kind.load[one] for one in members], [state.capacity[one] for one in members]
        return level_quotas(load, capacity, least, most, some)

    if not state.restricted:
        found = final(state.open, count)
        floors, fractional = [0] * len(state.capacity), [False] * len(state.capacity)
        for one, low, more in zip(state.open, found.floors, found.fractional, strict=True):
            floors[one], fractional[one] = low, more
        return Quotas(floors, fractional, found.ceilings)
    blocks, reach_of = epoch_blocks(state)
    need = state.request.table.topology_epoch
    tally: dict[tuple[int, tuple[int, ...]], int] = {}
    for task in kind.tasks.tolist():
        key = int(state.home[task]) if state.is_open[state.home[task]] else UNASSIGNED, reach_of(need[task])
        tally[key] = tally.get(key, 0) + 1
    cohorts = [Cohort(amount, to, home) for (home, to), amount in sorted(tally.items())]
    cohorts += [Cohort(int(kind.bound[one]), (), one) for one in state.open if kind.bound[one]]
    return Division(cohorts, blocks, state.shares, kind.least, kind.most, final).solve(state.open)


def epoch_blocks(state: PlacementState) -> tuple[list[list[int]], Callable[[int], tuple[int, ...]]]:
    """Return the open members of each topology epoch, and which of these blocks may have what asks for an epoch."""
    members = state.request.members
    epochs = sorted({members[one].topology_epoch for one in state.open})
    blocks = [[one for one in state.open if members[one].topology_epoch == epoch] for epoch in epochs]
    return blocks, lambda need: tuple(place for place, epoch in enumerate(epochs) if epoch >= need)


def _network(
    state: PlacementState, kind: Kind, quota: Quotas, gives: Marks, takes: Marks, *, overflow: bool
) -> tuple[Exchange, list[TaskClass]]:
    request = state.request
    home = np.where(state.is_open[state.home], state.home, UNASSIGNED)
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
    """Return what it costs per member to have one task more than its floor."""
    heights = [(low + 1) / capacity for low, capacity in zip(quota.floors, state.capacity, strict=True)]
    # Of members that a ceiling makes equally high the one is lowest that has least without it.
    levels = np.stack([quota.floors, kind.have]).T / np.array(state.capacity)[:, None]
    found = {"newcomer": (kind.have > 0).astype(np.int64), "load": ranks(levels), "order": np.arange(len(levels))}
    if quota.levels:
        found["part"] = ranks(quota.levels)
    if kind.load is None:
        found["height"] = ranks(heights)
        # Where more stateless tasks run, a stateful one less saves one of them from moving.
        others = state.count(state.home[~state.stateful]).tolist()
        found["stateless"] = ranks([count / capacity for count, capacity in zip(others, state.capacity, strict=True)])
    return found


def ranks(values: Sequence[float] | Floats) -> Ints:
    """Return for each value, or row of values, how many lower ones there are, equal ones counted once."""
    return np.unique(np.round(values, PLACES), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


class _Sorting:
    """Sorts tasks into classes: by home, subtopology, members that may have them, size of state, and wishes."""

    def __init__(self, state: PlacementState, kind: Kind, tasks: Ints, home: Ints) -> None:
        table = state.request.table
        self.tasks = tasks
        self.home = home
        self.parts, self._part = np.unique(np.array(table.subtopology, np.int64), return_inverse=True)
        of_kind = np.unique(self._part[kind.tasks])
        # A single subtopology is even when the counts of all tasks are.
        self._count = len(self.parts) if len(of_kind) > 1 else 1
        if self._count == 1:
            self._part = np.zeros(len(self._part), np.int64)
        self.blocks: list[list[int]] = [[]]
        self.reach: list[tuple[tuple[int, int], ...]] = [((0, 0),)]
        self._reach = np.zeros(len(table.ids), np.int64)
        if state.restricted:
            self.blocks, reach_of = epoch_blocks(state)
            needs, self._reach = np.unique(np.array(table.topology_epoch, np.int64), return_inverse=True)
            self.reach = [tuple((block, 0) for block in reach_of(int(need))) for need in needs]
        sizes = state.request.state_size
        self._size = np.array([sizes.get(task, 0) for task in tasks.tolist()] if sizes else 0, np.int64)

    def evenness(self, state: PlacementState, kind: Kind) -> tuple[Ints, Floats]:
        """Return how many tasks of each subtopology members have, and how many would be even."""
        members = len(state.capacity)
        if self._count == 1:
            return kind.have[:, None], np.zeros((members, 1))
        owner = np.array(state.owner, np.int64)
        mine = (state.stateful == kind.stateful) & state.is_open[owner]
        cells = owner[mine] * self._count + self._part[mine]
        counts = np.bincount(cells, minlength=members * self._count).reshape(members, self._count)
        total = counts.sum(axis=0) + np.bincount(self._part[kind.orphans], minlength=self._count)
        shares = np.where(state.is_open[:-1], np.array(state.capacity), 0)
        return counts, np.outer(shares / shares.sum(), total)

    def classes(self, state: PlacementState, wishes: Wishes, takers: frozenset[int]) -> list[TaskClass]:
        """Return the classes, in an order that depends on nothing but what is in them."""
        request = state.request
        special: dict[int, tuple[tuple[Wish, ...], frozenset[int]]] = {}
        for task in {*wishes.copies, *request.previous, *request.warming}.intersection(self.tasks.tolist()):
            found = _wishes(state, wishes, task, takers)
            if found[0]:
                special[task] = found
        tasks = self.tasks
        home, part, reach = self.home[tasks], self._part[tasks], self._reach[tasks]
        size = np.broadcast_to(self._size, len(tasks))
        bucket = np.array([(int(one).bit_length() + 1) // 2 for one in size]) if size.any() else np.zeros_like(home)
        order = np.lexsort((tasks, size, bucket, reach, part, home))
        keys = np.stack([home, part, reach, bucket])[:, order]
        keyed: dict[tuple[tuple[Wish, ...], frozenset[int], tuple[int, ...]], TaskClass] = {}
        classes: list[TaskClass] = []
        listed = tasks[order].tolist()
        apart = np.array([task in special for task in listed], np.bool_) if special else np.zeros(len(listed), np.bool_)
        # A task with wishes stands between two classes of others, and begins a class of its own, or joins one like it.
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
    """Return the members that are not like the others for a task, and those of them that are no better than others."""
    request = state.request
    previous, warming = request.previous.get(task, UNASSIGNED), request.warming.get(task, UNASSIGNED)
    known = wishes.copies.get(task, {})
    some = [
        one
        for one in sorted({*known, previous, warming})
        if one in takers and one != request.home[task] and state.takes(task, one)
    ]
    found = tuple(wishes.wish(task, one, warming=one == warming, previous=one == previous) for one in some)
    return found, frozenset(one for one in some if wishes.at(task, one).ready_class > Ready.NOTHING)
