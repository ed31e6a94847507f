"""Target owners of tasks of equal weight: first the stateful tasks, then the stateless ones."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Final

import numpy as np

from batonpass.placement.blocks import epoch_blocks, grouped
from batonpass.placement.exchange import HAS_PLACE, Classes, Exchange, TaskClass
from batonpass.placement.flow import Floats, Ints, Marks
from batonpass.placement.quotas import Quotas, in_parts, quotas, ranks
from batonpass.placement.state import PlacementState
from batonpass.placement.types import UNASSIGNED, Waits
from batonpass.placement.wishes import Wish, Wishes


def stateful_tasks(state: PlacementState) -> "Kind":
    """Return the stateful tasks.

    A member keeps what it has beside the stateless tasks that are bound to it: the others may be moved. If not all of
    them could go elsewhere, it takes no more than has room beside those that run there.
    """
    stateless, bound = ~state.stateful, np.full(len(state.home), UNASSIGNED)
    bound[[*state.request.bound]] = [*state.request.bound.values()]
    has_room = not state.restricted and state.limit[state.eligible].sum() >= len(bound)
    staying = bound if has_room else np.where(bound == UNASSIGNED, state.home, bound)
    keeps = np.minimum(state.limit - state.count(bound[stateless]), state.stateful_limit)
    takes = np.minimum(state.limit - state.count(staying[stateless]), state.stateful_limit)
    return Kind(state, stateful=True, keeps=keeps, takes=takes, load=[0.0] * len(state.capacity))


def stateless_tasks(state: PlacementState) -> "Kind":
    """Return the stateless tasks. The stateful ones take part of the members' limits, and are their other load."""
    limit = state.limit - state.count(np.array(state.owner, np.int64)[state.stateful])
    return Kind(state, stateful=False, keeps=limit, takes=limit, load=state.stateful_load())


class Kind:
    """The stateful or the stateless tasks, and which member has them before anything moves.

    Attributes:
        tasks: those to be placed that are not bound.
        have: per eligible member, how many it has, including those bound to it; 0 for others.
        bound: per member, how many are bound to it.
        orphans: those of the tasks that no eligible member has.
        least: per member, the fewest that it must have.
        most: per member, the most that it may have.
        load: per member, its other load.
    """

    def __init__(
        self, state: PlacementState, *, stateful: bool, keeps: Ints, takes: Ints, load: Sequence[float]
    ) -> None:
        """Find out who has the tasks, if members may keep ``keeps`` of them, and be given more up to ``takes``."""
        request = state.request
        self.stateful = stateful
        self.load = load
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
        self.orphans = np.flatnonzero(free & ~at_home & (state.need <= state.newest)).tolist()
        for task in np.flatnonzero(free & ~at_home & (state.need > state.newest)).tolist():
            state.wait(task, Waits.STALE_TOPOLOGY)
        at_home[self.orphans] = True
        self.tasks = np.flatnonzero(at_home)
        most = np.maximum(np.maximum(takes, np.minimum(keeps, self.have)), self.bound)
        self.most: list[int] = most.tolist()
        self.least: list[int] = (np.minimum(self.have, most) if request.balance_held else self.bound).tolist()

    def of(self, state: PlacementState, tasks: Ints, amounts: Ints) -> "Kind":
        """Return some of the tasks as a kind of their own, of which members are to have these amounts."""
        some = copy(self)
        some.tasks = tasks
        orphans = {*self.orphans}
        some.orphans = [task for task in tasks.tolist() if task in orphans]
        some.have = state.count(state.home[tasks[~np.isin(tasks, some.orphans)]])
        some.most = some.least = amounts.tolist()
        return some


def place_equal(state: PlacementState, kind: Kind) -> None:
    """Give tasks that all weigh the same a target."""

    def divide(members: Sequence[int], some: int) -> Quotas:
        least, most = [kind.least[member] for member in members], [kind.most[member] for member in members]
        some = min(max(some, sum(least)), sum(most))
        return quotas([state.shares[member] for member in members], least, most, some)

    def of_parts(parts: Sequence[Ints], have: Ints) -> Quotas:
        return in_parts(parts, have, np.zeros_like(have), state.shares, divide)

    every = [np.array(state.eligible)]
    have = kind.have.copy()
    have[state.eligible[0]] += len(kind.orphans)
    place_part(state, kind, of_parts(every, have), of_parts)


def place_part(
    state: PlacementState,
    kind: Kind,
    quota: Quotas,
    divide: Callable[[Sequence[Ints], Ints], Quotas] | None = None,
) -> None:
    """Give tasks of one weight a target, as many to each member as its quota says. What fits nowhere waits.

    If topology epochs keep members from their quota, ``divide`` returns the quotas of parts of the members.
    """
    floors, tops = np.array(quota.floors), np.array(quota.floors) + quota.fractional
    opened = state.may_be_target[:-1]
    at_rest = bool(((floors <= kind.have) & (kind.have <= tops))[opened].all())
    if at_rest and not kind.orphans and not state.restricted:
        return
    gives = opened & ((kind.have > floors) | (state.restricted and not state.request.balance_held))
    takes = opened & ((kind.have < tops) | state.restricted)
    exchange, classes = _network(state, kind, quota, gives, takes)
    exchange.parts, exchange.divide = [np.flatnonzero(opened)], divide if state.restricted else None
    for task, _, target in exchange.solve(classes):
        if target == UNASSIGNED:
            state.wait(task, Waits.NO_CAPACITY)
        else:
            state.owner[task] = target


def _network(state: PlacementState, kind: Kind, quota: Quotas, gives: Marks, takes: Marks) -> tuple[Exchange, Classes]:
    request = state.request
    home = np.where(state.may_be_target[state.home], state.home, UNASSIGNED)
    tasks = kind.tasks[(home[kind.tasks] == UNASSIGNED) | gives[home[kind.tasks]]]
    takers = np.flatnonzero(takes).tolist()
    wishes = Wishes(request.warmth(tasks.tolist(), takers) if kind.stateful else {})
    sorting = _Sorting(state, kind, tasks, home, takers)
    counts, even = sorting.evenness(state, kind)
    exchange = Exchange(
        have=kind.have,
        quota=quota,
        most=np.array(kind.most, np.int64),
        ceiling=lambda quota: _ceiling(state, kind, quota),
        cold=wishes.cold,
        blocks=sorting.blocks,
        counts=counts,
        even=even,
        width=state.width,
        solver=state.solver,
    )
    # Of what a member has, something may have to wait only if it has more than it takes.
    waits = [2 if have > most else HAS_PLACE for have, most in zip(kind.have.tolist(), kind.most, strict=True)]
    return exchange, sorting.classes(state, wishes, frozenset(takers), waits)


def _ceiling(state: PlacementState, kind: Kind, quota: Quotas) -> dict[str, Ints]:
    """Return, by level, the cost per member of one task more than its floor."""
    heights = [(low + 1) / capacity for low, capacity in zip(quota.floors, state.capacity, strict=True)]
    # Among members that the ceiling makes equally high, the one with the lowest load without it comes first.
    levels = np.stack([quota.floors, kind.have]).T / np.array(state.capacity)[:, None]
    # A member that runs many stateless tasks should get fewer stateful ones, so that no stateless one has to move.
    others = state.count(state.home[~state.stateful]).tolist()
    return {
        "height": ranks(heights),
        "newcomer": (kind.have > 0).astype(np.int64),
        "stateless": ranks([count / capacity for count, capacity in zip(others, state.capacity, strict=True)]),
        "load": ranks(levels),
        "order": np.arange(len(levels)),
    }


_Distinct = tuple[tuple[Wish, ...], frozenset[int]]
"""The wishes for a task, one for each member that differs from the others, and the members of unknown lag."""
_ALIKE: Final[_Distinct] = ((), frozenset())
"""What is wished for a task for which all members are alike."""


class _Sorting:
    """Sorts tasks into classes: by home, subtopology, members that may have them, size of state, and wishes."""

    def __init__(self, state: PlacementState, kind: Kind, tasks: Ints, home: Ints, takers: Sequence[int]) -> None:
        self.tasks = tasks
        self.home = home
        self.parts, self._part = np.unique(state.request.table.subtopology, return_inverse=True)
        of_kind = np.unique(self._part[kind.tasks])
        # With a single subtopology, evenness follows from the counts of all tasks.
        self._count = len(self.parts) if len(of_kind) > 1 else 1
        if self._count == 1:
            self._part = np.zeros(len(self._part), np.int64)
        self.blocks, self._reach = epoch_blocks(state, takers)

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

    def classes(self, state: PlacementState, wishes: Wishes, takers: frozenset[int], waits: Sequence[int]) -> Classes:
        """Return the classes, in an order that depends only on their content."""
        sizes = state.request.state_size
        special = self._special(state, wishes, takers)
        size = np.array([sizes.get(task, 0) for task in self.tasks.tolist()]) if sizes else np.zeros_like(self.tasks)
        order = np.argsort(size, kind="stable")
        # Sizes of state differ if they differ by powers of four.
        tasks, give = self.tasks[order], (np.frexp(size[order])[1] + 1) // 2
        names, number = [_ALIKE, *dict.fromkeys(special.values())], np.zeros(len(self.home), np.int64)
        number_of = {some: place for place, some in enumerate(names)}
        number[[*special]] = [number_of[some] for some in special.values()]
        alike = number[tasks]
        # A task with wishes separates those before it from those after it. Of these classes the later one gives first,
        # so that tasks whose copies come no closer are tried in turn.
        run = np.where(alike > 0, -1, np.cumsum(alike > 0))
        rows = np.stack([self.home[tasks], self._part[tasks], self._reach[tasks], give, alike, run])
        found: dict[TaskClass, list[int]] = {}
        for some in grouped(*rows):
            home, part, reach, gives, its_wishes, turn = rows[:, some[0]].tolist()
            wait = 1 if home == UNASSIGNED else waits[home]
            found[TaskClass(home, part, reach, 1, gives, wait, turn, *names[its_wishes])] = tasks[some].tolist()
        return dict(sorted(found.items(), key=lambda row: (*row[0][:5], bool(row[0].wishes), row[0].turn, row[1][0])))

    def _special(self, state: PlacementState, wishes: Wishes, takers: frozenset[int]) -> dict[int, _Distinct]:
        """Return what is wished for the tasks for which some members differ from the others."""
        request = state.request
        special: dict[int, _Distinct] = {}
        seen: dict[tuple[object, ...], _Distinct] = {}
        for task in sorted({*wishes.copies, *request.previous, *request.warming}.intersection(self.tasks.tolist())):
            known, home = wishes.copies.get(task, {}), request.home[task]
            previous, warming = request.previous.get(task, UNASSIGNED), request.warming.get(task, UNASSIGNED)
            alike = home, previous, warming, request.table.topology_epoch[task], *known.items()
            distinct = seen.get(alike)
            if distinct is None:
                there = {*known, previous, warming}.intersection(takers) - {home}
                its_wishes = tuple(
                    wishes.wish(task, member, warming=member == warming, previous=member == previous)
                    for member in sorted(there)
                    if state.takes(task, member)
                )
                unknown = frozenset([wish.member for wish in its_wishes if wish.cold > 1])
                distinct = seen[alike] = its_wishes, unknown
            if distinct != _ALIKE:
                special[task] = distinct
        return special
