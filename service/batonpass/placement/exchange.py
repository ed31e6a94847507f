"""The network of one exchange: which member gives what to which, so that members come to their quotas.

Copies flow: those that change members, and those that have no member yet. A class (copies that no rule distinguishes)
is one node. The package's docstring draws the network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, product, repeat
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from batonpass.placement.flow import PLENTY, Ints, Network, Solver
from batonpass.placement.quotas import Quotas
from batonpass.placement.types import UNASSIGNED

Floats = npt.NDArray[np.float64]

LEVELS: Final = (
    *("wait", "apart", "balance", "part", "move", "warming", "height", "unready", "cold", "restore", "previous"),
    *("newcomer", "stateless", "even", "load", "size", "order"),
)
"""The levels of costs, most important first. The table in the package's docstring has the rule behind each."""

_BEYOND: Final = (3, 5, 7)
"""The cost per member of tasks beyond the ceiling: the first, the second, each further one. The ceiling costs 1."""

# The cost of evenness: the growth of the squared distance from an even part, in quarters, up to a maximum.
_STEP: Final = 4
_STEEPEST: Final = 20
# How many arcs are spent on keeping classes from single members of a block. If more are needed, dealing does it.
_EXACT: Final = 1 << 18
# How many tasks, and how many places, are compared by how well they spread one owner's copies.
_TASKS: Final = 16
_PLACES: Final = 64


class Wish(NamedTuple):
    """What it costs, by level, to bring a copy to one member that differs from the others for it."""

    member: int
    move: int = 0
    warming: int = 0
    unready: int = 0
    cold: int = 0
    restore: int = 0
    previous: int = 0
    apart: int = 0


@dataclass(slots=True)
class TaskClass:
    """Copies that no rule distinguishes.

    Attributes:
        home: the member that has them; ``UNASSIGNED`` for copies to be placed.
        part: their subtopology, if it matters.
        reach: which blocks may have them, as an index into ``Exchange.reach``.
        tasks: the tasks whose copies they are, in the order in which they are dealt.
        copies: how many copies of each task there are. Each goes to a different member.
        wishes: the members that differ from the others for them.
        excluded: members of their blocks that may not have them, or only as a wish.
        give: the cost of taking one of them from its home, at the level ``size``.
        wait: the cost of leaving one of them without a place. None: it must have one.
    """

    home: int
    part: int
    reach: int
    copies: int = 1
    wishes: tuple[Wish, ...] = ()
    excluded: frozenset[int] = frozenset()
    tasks: list[int] = field(default_factory=list)
    give: int = 0
    wait: int | None = None


Move = tuple[int, int, int]
"""A task, the member that its copy comes from (or ``UNASSIGNED``), and the member that it goes to.

The last is ``UNASSIGNED`` if the copy has to wait.
"""


class Preference(Protocol):
    """How to choose among the tasks of a class, and among the members that they go to."""

    def suits(self, move: Move) -> bool | None:
        """Say whether a move suits (True), is acceptable (False), or is not allowed (None)."""

    def note(self, move: Move) -> None:
        """Record a move that was chosen."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """An exchange of copies between members.

    Attributes:
        have: per member, the copies that it has, including those that cannot move.
        quota: per member, the copies that it should have.
        most: per member, the copies that it may have.
        ceiling: by level, the cost per member of one copy more than the floor.
        cold: by level, the cost of going to a member that is like any other.
        blocks: the members that take copies, grouped so that those of a block are alike for almost every copy.
        reach: sets of blocks that classes may go to, each block with its cost at the level ``apart``.
        counts: per member and part, the copies of that part. With a single part, evenness does not matter.
        even: per member and part, the even part.
        width: per member, its capacity relative to the others.
        solver: solves the network.
        choice: how to choose among equal tasks and equal members. None: the first of each.
    """

    have: Ints
    quota: Quotas
    most: Ints
    ceiling: Mapping[str, Ints]
    cold: Mapping[str, int]
    blocks: Sequence[Sequence[int]]
    reach: Sequence[tuple[tuple[int, int], ...]]
    counts: Ints
    even: Floats
    width: Floats
    solver: Solver
    choice: Preference | None = None

    def solve(self, classes: Sequence[TaskClass]) -> list[Move]:
        """Return the best exchange of these classes.

        Raises:
            PlacementError: the solver found none.
        """
        if not classes:
            return []
        network, count = Network(LEVELS, self.solver), len(self.have)
        parts = self.counts.shape[1]
        members, (sink, hall) = network.nodes(count), network.nodes(2).tolist()
        goals = network.nodes(count * parts).reshape(-1, parts) if parts > 1 else members[:, None]
        # A block of one member has no hub: its classes are connected to the member itself.
        wide = [block for block, some in enumerate(self.blocks) if len(some) > 1]
        hubs = np.full((len(self.blocks), parts), UNASSIGNED)
        hubs[wide] = network.nodes(len(wide) * parts).reshape(-1, parts)
        nodes = network.nodes(len(classes))
        self._load(network, members, sink, classes, nodes)
        self._give(network, members, classes, nodes)
        ways, arcs = self._ways(network, classes, nodes, goals, hubs)
        fills = self._arrive(network, members, goals, hubs)
        waits = [place for place, task_class in enumerate(classes) if task_class.wait is not None]
        waiting = network.arcs(nodes[waits], hall, PLENTY, wait=[classes[place].wait or 0 for place in waits])
        network.arcs(hall, sink, PLENTY)
        flow = network.solve(pivots=4 * (min(len(classes), len(np.unique(ways[2]))) + 2))
        in_turn = {hub: fill.in_turn(flow) for hub, fill in fills.items() if flow[fill.arcs].any()}
        dealt: dict[int, list[_Places]] = {}
        amounts = flow[arcs]
        used = zip(*ways[:, amounts > 0].tolist(), amounts[amounts > 0].tolist(), strict=True)
        # Hubs come after single members.
        for place, member, head, amount in sorted(used, key=lambda way: (way[1] == UNASSIGNED, way)):
            some = in_turn[head] if member == UNASSIGNED else deque([member] * amount)
            dealt.setdefault(place, []).append((some, amount))
        for place, amount in zip(waits, flow[waiting].tolist(), strict=True):
            if amount:
                dealt.setdefault(place, []).append((deque([UNASSIGNED] * amount), amount))
        return [move for place, some in sorted(dealt.items()) for move in self._deal(classes[place], some)]

    def _deal(self, task_class: TaskClass, ways: Sequence[_Places]) -> Iterator[Move]:
        """Yield the moves of a class: its tasks in order, and places in turn."""
        if self.choice is None:
            targets = [target for places, amount in ways for target in _first(places, amount, task_class.excluded)]
            yield from zip(task_class.tasks, repeat(task_class.home), targets, strict=False)
            return
        left = deque(task_class.tasks * task_class.copies)
        for places, amount in ways:
            for _ in range(amount):
                move = left[0], task_class.home, places[0]
                found = move if self.choice.suits(move) else _first_that_suits(self.choice, task_class, left, places)
                if found is not None:
                    left.remove(found[0])
                    # What was passed over is not looked at again before all else.
                    places.rotate(-places.index(found[2]))
                    places.popleft()
                    self.choice.note(found)
                    yield found

    def _load(self, network: Network, members: Ints, sink: int, classes: Sequence[TaskClass], nodes: Ints) -> None:
        """Add the supplies, above floors and of homeless classes, and the arcs to the end with the costs of balance."""
        floors, fractional = np.asarray(self.quota.floors), np.asarray(self.quota.fractional)
        over = np.maximum(0, self.have - floors)
        network.supply(members, over)
        orphans = [place for place, task_class in enumerate(classes) if task_class.home == UNASSIGNED]
        amounts = [len(classes[place].tasks) * classes[place].copies for place in orphans]
        network.supply(nodes[orphans], amounts)
        network.supply(sink, -int(over.sum()) - sum(amounts))
        low = np.flatnonzero(self.have < floors)
        network.arcs(members[low], sink, (floors - self.have)[low])
        may = np.flatnonzero(fractional)
        costs = {level: each[may] for level, each in self.ceiling.items()}
        network.arcs(members[may], sink, 1, balance=1, **costs)
        room = self.most - floors - fractional
        for place, price in enumerate(_BEYOND):
            left = room - place
            some = np.flatnonzero(left > 0)
            last = place + 1 == len(_BEYOND)
            network.arcs(members[some], sink, left[some] if last else 1, balance=price)

    def _give(self, network: Network, members: Ints, classes: Sequence[TaskClass], nodes: Ints) -> None:
        """Add the arcs by which members give: first from parts of which they have too many, and little state first."""
        places = np.array(
            [place for place, task_class in enumerate(classes) if task_class.home != UNASSIGNED], np.int64
        )
        if not len(places):
            return
        homes = np.array([classes[place].home for place in places])
        sizes = np.array([len(classes[place].tasks) for place in places])
        prices = np.array([classes[place].give for place in places])
        parts = self.counts.shape[1]
        if parts == 1:
            network.arcs(members[homes], nodes[places], sizes, size=prices)
            return
        cells, cell = np.unique(homes * parts + [classes[place].part for place in places], return_inverse=True)
        gives = network.nodes(len(cells))
        network.arcs(gives[cell], nodes[places], sizes, size=prices)
        home, part = np.divmod(cells, parts)
        have = self.counts[home, part]
        cell, price, amounts = _steps(np.zeros_like(have), have, self.even[home, part], self.width[home])
        network.arcs(members[home[cell]], gives[cell], amounts, even=-price)

    def _arrive(self, network: Network, members: Ints, goals: Ints, hubs: Ints) -> dict[int, _Fill]:
        """Add the arcs from hubs to the members of their block, with the costs of evenness."""
        fills: dict[int, _Fill] = {}
        parts = goals.shape[1]
        for block, some in enumerate(self.blocks):
            for part in range(parts) if len(some) > 1 else ():
                arcs = network.arcs(hubs[block, part], goals[some, part], PLENTY)
                fills[int(hubs[block, part])] = _Fill(some, arcs)
        takers = np.unique(np.array([*chain.from_iterable(self.blocks)], np.int64))
        if parts == 1 or not len(takers):
            return fills
        have, even, width = self.counts[takers].ravel(), self.even[takers].ravel(), np.repeat(self.width[takers], parts)
        begin, end = goals[takers].ravel(), np.repeat(members[takers], parts)
        lacks = np.repeat(np.maximum(1, np.asarray(self.quota.floors) + 1 - self.have)[takers], parts)
        # Further copies cost as much as the last of these: the most, or they are beyond the ceiling anyway.
        steep = np.ceil(even + (_STEEPEST / _STEP * width + 1) / 2).astype(np.int64)
        last = np.maximum(have, np.minimum(have + lacks, steep))
        cell, price, amounts = _steps(have, last, even, width)
        network.arcs(begin[cell], end[cell], amounts, even=price)
        network.arcs(begin, end, PLENTY, even=_growth(last + 1, even, width))
        return fills

    def _ways(
        self, network: Network, classes: Sequence[TaskClass], nodes: Ints, goals: Ints, hubs: Ints
    ) -> tuple[Ints, slice]:
        """Add the arcs of classes: to hubs, to members with a wish, and to single members where a hub is barred.

        Returns:
            For each arc its class, its member (``UNASSIGNED`` for a hub) and the node that it leads to; and the slice
            of their flows.
        """
        by_reach: dict[int, list[int]] = {}
        for place, task_class in enumerate(classes):
            by_reach.setdefault(task_class.reach, []).append(place)
        tables = [
            _NOTHING,
            *chain.from_iterable(
                self._common(classes, *reach_places, goals, hubs) for reach_places in by_reach.items()
            ),
        ]
        class_of, _, heads, capacity, apart = (table := np.concatenate(tables, axis=1))
        common = network.arcs(nodes[class_of], heads, capacity, apart=apart, **self.cold)
        wishes = [(place, wish) for place, task_class in enumerate(classes) for wish in task_class.wishes]
        places = np.array([place for place, _ in wishes], np.int64)
        prices = np.array([wish for _, wish in wishes], np.int64).reshape(-1, len(Wish._fields)).T
        parts = np.array([classes[place].part for place, _ in wishes], np.int64)
        ends = goals[prices[0], parts]
        amounts = [len(classes[place].tasks) for place, _ in wishes]
        levels = dict(zip(Wish._fields[1:], prices[1:], strict=True))
        special = network.arcs(nodes[places], ends, amounts, **levels)
        ways = np.concatenate([table[:3], np.stack([places, prices[0], ends])], axis=1)
        return ways, slice(common.start, special.stop)

    def _common(
        self, classes: Sequence[TaskClass], reach: int, places: Sequence[int], goals: Ints, hubs: Ints
    ) -> Iterator[Ints]:
        """Return the arcs of classes with the same reach to the members without a wish for them.

        Each table has the classes, the members (``UNASSIGNED`` for a hub), the nodes, the capacities and the costs.
        """
        blocks = np.array(self.reach[reach], np.int64).reshape(-1, 2)
        among = [self.blocks[block] for block in blocks[:, 0].tolist()]
        column_of = {member: column for column, members in enumerate(among) for member in members}
        sizes = np.array([len(members) for members in among], np.int64)
        some, part = np.array(places), np.array([classes[place].part for place in places])
        count = np.array([len(classes[place].tasks) for place in places])
        excluded = [
            (row, member)
            for row, place in enumerate(places)
            for member in classes[place].excluded
            if member in column_of
        ]
        # Arcs keep a class from its excluded members only if it is a single copy or excludes several members, and if
        # that does not need too many arcs. Otherwise dealing does it.
        barred = {
            (row, column_of[member])
            for row, member in excluded
            if count[row] == 1 or len(classes[places[row]].excluded) > 1
        }
        if sum(int(sizes[column]) for _, column in barred) > _EXACT:
            barred = set()
        excluded = [
            (row, member)
            for row, member in excluded
            if sizes[column_of[member]] == 1 or (row, column_of[member]) in barred
        ]
        shared = (sizes > 1) & (np.array([classes[place].copies for place in places]) == 1)[:, None]
        for row, member in excluded:
            shared[row, column_of[member]] = False
        # If a class excludes a member of a block, each other member of the block has an arc of its own.
        rows, columns = np.nonzero(~shared)
        length = sizes[columns]
        offset = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
        starts = np.repeat((np.cumsum(sizes) - sizes)[columns], length)
        members = np.array([*chain.from_iterable(among)], np.int64)[starts + offset]
        rows, columns = np.repeat(rows, length), np.repeat(columns, length)
        fine = ~np.isin(rows * len(goals) + members, [row * len(goals) + member for row, member in excluded])
        rows, columns, members = rows[fine], columns[fine], members[fine]
        yield np.stack([some[rows], members, goals[members, part[rows]], count[rows], blocks[columns, 1]])
        rows, columns = np.nonzero(shared)
        hub, none = hubs[blocks[columns, 0], part[rows]], np.full(len(rows), UNASSIGNED)
        yield np.stack([some[rows], none, hub, count[rows] * sizes[columns], blocks[columns, 1]])


_NOTHING: Final = np.empty((5, 0), np.int64)


class _Fill(NamedTuple):
    members: Sequence[int]
    arcs: slice

    def in_turn(self, flow: Ints) -> deque[int]:
        """Return the members that get copies, once for each, one for each member in turn."""
        amounts = flow[self.arcs]
        turns = np.concatenate([np.arange(amount) for amount in amounts])
        return deque(np.repeat(self.members, amounts)[np.argsort(turns, kind="stable")].tolist())


_Places = tuple[deque[int], int]
"""Members from which so many copies of a class get one each: from the left."""


def _steps(begin: Ints, end: Ints, even: Floats, width: Floats) -> tuple[Ints, Ints, Ints]:
    """Return the arcs for copies from ``begin`` to ``end``: of which cell each is, its cost, and how many copies."""
    size = end - begin
    cell = np.repeat(np.arange(len(size)), size)
    count = np.arange(1, len(cell) + 1) + np.repeat(begin - np.cumsum(size) + size, size)
    costs, base = _growth(count, even[cell], width[cell]) + _STEEPEST, 2 * _STEEPEST + 1
    keys, amounts = np.unique(cell * base + costs, return_counts=True)
    return keys // base, keys % base - _STEEPEST, amounts


def _growth(count: Ints, even: Floats, width: Floats) -> Ints:
    """Return the cost of the copy that makes the count reach ``count``."""
    return np.clip(np.rint(_STEP * (2 * (count - even) - 1) / width), -_STEEPEST, _STEEPEST).astype(np.int64)


def _first_that_suits(
    choice: Preference, task_class: TaskClass, tasks: Sequence[int], places: Sequence[int]
) -> Move | None:
    """Return the first move that suits, among a few; failing that, the first acceptable one, among all."""
    acceptable: Move | None = None
    # Missing copies of a class are of one owner's tasks, so that another task would suit no better.
    few = _TASKS if task_class.home != UNASSIGNED else 1
    for move in product(islice(tasks, few), (task_class.home,), dict.fromkeys(islice(places, _PLACES))):
        suits = choice.suits(move)
        if suits:
            return move
        if suits is False and acceptable is None:
            acceptable = move
    if acceptable is not None:
        return acceptable
    every = product(tasks, (task_class.home,), dict.fromkeys(places))
    return next((move for move in every if choice.suits(move) is not None), None)


def _first(places: deque[int], amount: int, excluded: Collection[int]) -> list[int]:
    """Take the first places, of those that are not excluded if there are enough."""
    suitable = [*islice((member for member in places if member not in excluded), amount)] if excluded else []
    for member in suitable:
        places.remove(member)
    return [*suitable, *(places.popleft() for _ in range(amount - len(suitable)))]
