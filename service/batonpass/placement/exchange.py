"""The network of one exchange: which member gives what to which, so that members come to their quotas.

Copies flow: those that change members, and those that have no member yet. A class (copies that no rule distinguishes)
is one node. The package's docstring draws the network.
"""

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, product
from typing import Final, NamedTuple

import numpy as np

from batonpass.placement.blocks import BARRED, Blocks, grouped
from batonpass.placement.flow import PLENTY, Floats, Ints, Marks, Network, Solver
from batonpass.placement.quotas import Quotas, ranks
from batonpass.placement.types import UNASSIGNED
from batonpass.placement.wishes import Wish

LEVELS: Final = (
    *("wait", "apart", "balance", "part", "move", "warming", "height", "unready", "cold", "restore", "previous"),
    *("newcomer", "stateless", "even", "load", "size", "order"),
)
"""The levels of costs, most important first. The table in the package's docstring has the rule behind each."""

_RINGS: Final = (0, 1, 2)
"""How far from an even part evenness tells apart, in copies of a member of average capacity."""

# How many arcs are spent on keeping classes from single members of a block. If more are needed, dealing does it.
_EXACT: Final = 1 << 18
# How many tasks, and how many places, are compared by how well they spread one owner's copies.
_TASKS: Final = 16
_PLACES: Final = 64

HAS_PLACE: Final = -1
"""Instead of the cost of waiting: such a copy must have a place."""


class TaskClass(NamedTuple):
    """What copies have in common that no rule distinguishes.

    Attributes:
        home: the member that has them; ``UNASSIGNED`` for copies to be placed.
        part: their subtopology, or their owner, if it matters.
        reach: which blocks may have them, as an index into ``Blocks.reach``.
        copies: how many copies of each task there are. Each goes to a different member.
        give: the cost of taking one of them from its home, at the level ``size``.
        wait: the cost of leaving one of them without a place, or ``HAS_PLACE``.
        turn: keeps classes apart that are dealt one after the other.
        wishes: the members that differ from the others for them.
        excluded: members that may not have them, or only as a wish.
        apiece: how many of them a member that is like any other should get at most.
    """

    home: int
    part: int
    reach: int
    copies: int = 1
    give: int = 0
    wait: int = HAS_PLACE
    turn: int = 0
    wishes: tuple[Wish, ...] = ()
    excluded: frozenset[int] = frozenset()
    apiece: int = PLENTY


Classes = Mapping[TaskClass, list[int]]
"""The tasks of each class, in the order in which they are dealt."""

Move = tuple[int, int, int]
"""A task, the member that its copy comes from (or ``UNASSIGNED``), and the member that it goes to.

The last is ``UNASSIGNED`` if the copy has to wait.
"""

Suits = Callable[[Move], bool | None]
"""Says whether a move suits (True), is acceptable (False), or is not allowed (None)."""

_Way = tuple[deque[int], int]
"""Members, from the left, from which so many copies of a class get one each."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """An exchange of copies between members.

    Attributes:
        have: per member, the copies that it has, including those that cannot move.
        quota: per member, the copies that it should have.
        most: per member, the copies that it may have.
        ceiling: returns by level, for a quota, the cost per member of one copy more than the floor; how high that is
            comes first.
        cold: by level, the cost of going to a member that is like any other.
        blocks: the members that take copies.
        counts: per member and part, the copies of that part. With a single part, evenness does not matter.
        even: per member and part, the even part.
        width: per member, its capacity relative to the others: how many copies more or less count as one.
        solver: solves the network.
        divide: returns the quotas of members in parts that are levelled apart from one another, from the copies that
            each member has. None: the quota can be reached.
        suits: how to choose among equal tasks and equal members. None: the first of each.
        note: is told of each move that was chosen so.
        parts: the parts, once it is solved.
    """

    have: Ints
    quota: Quotas
    most: Ints
    ceiling: Callable[[Quotas], Mapping[str, Ints]]
    cold: Mapping[str, int]
    blocks: Blocks
    counts: Ints
    even: Floats
    width: Floats
    solver: Solver
    divide: Callable[[Sequence[Ints], Ints], Quotas] | None = None
    suits: Suits | None = None
    note: Callable[[Move], None] = lambda _: None
    parts: list[Ints] = field(default_factory=list)

    def solve(self, classes: Classes) -> list[Move]:
        """Return the best exchange of these classes.

        Members that stay highest, and those that could take from them, are levelled among themselves, and so are the
        others, with a quota for each of the two, until every member of a part could take from its highest. The first
        quota may count copies that wait.

        Raises:
            PlacementError: the solver found none.
        """
        if not classes:
            return []
        brought = [len(tasks) * row.copies for row, tasks in classes.items() if row.home == UNASSIGNED]
        count = int(self.have.sum()) + sum(brought)
        while True:
            dealt, ends, could_go = self._flow(classes)
            parts: list[Ints] = []
            for part in self.parts if self.divide is not None else ():
                reached = could_go(part[self._is_highest(part, ends)])[part]
                parts += [some for some in (part[reached], part[~reached]) if len(some)]
            if self.divide is None or (len(parts) == len(self.parts) and count == ends.sum()):
                # What members give comes first: a task that has just got a missing copy would keep the others.
                rows = sorted(classes, key=lambda row: row.home == UNASSIGNED)
                return [move for row in rows for move in self._deal(row, classes[row], dealt)]
            self.parts, self.quota, count = parts, self.divide(parts, ends), ends.sum()

    def _is_highest(self, part: Ints, ends: Ints) -> Marks:
        """Return which members of a part are above their ceiling; if none is, which ceilings in use are the highest."""
        floors, fractional = np.asarray(self.quota.floors)[part], np.asarray(self.quota.fractional)[part]
        above: Marks = ends[part] > floors + fractional
        height, *_ = self.ceiling(self.quota).values()
        in_use = np.where(ends[part] > floors, height[part], -1)
        return above if above.any() else (in_use >= 0) & (in_use == in_use.max())

    def _flow(self, classes: Classes) -> tuple[dict[TaskClass, list[_Way]], Ints, Callable[[Ints], Marks]]:
        """Return the places of each class, how many copies each member then has, and what says to whom some could give.

        The last returns for members all members that could have a copy instead of them.
        """
        network, (count, parts) = Network(LEVELS, self.solver), self.counts.shape
        rows = [*classes]
        amounts = np.array([len(tasks) for tasks in classes.values()])
        members, (sink, hall) = network.nodes(count), network.nodes(2).tolist()
        goals = network.nodes(count * parts).reshape(-1, parts) if parts > 1 else members[:, None]
        hubs = network.nodes(len(self.blocks.members) * parts).reshape(-1, parts)
        nodes = network.nodes(len(classes))
        ending, end_arcs = self._load(network, members, sink)
        self._give(network, members, rows, amounts, nodes)
        ways, way_arcs = self._ways(network, classes, nodes, goals, hubs)
        fills = self._arrive(network, members, goals, hubs, {*ways[2].tolist()})
        waits = [place for place, row in enumerate(rows) if row.wait != HAS_PLACE]
        waiting = network.arcs(nodes[waits], hall, PLENTY, wait=[rows[place].wait for place in waits])
        network.arcs(hall, sink, PLENTY)
        flow = network.solve(pivots=4 * (min(len(classes), len(np.unique(ways[2]))) + 2))
        dealt: dict[TaskClass, list[_Way]] = {}
        in_turn = {hub: _in_turn(some, flow[arcs]) for hub, some, arcs in fills if flow[arcs].any()}
        used = flow[way_arcs] > 0
        # Hubs come after single members.
        for place, member, head, amount in sorted(
            zip(*ways[:, used].tolist(), flow[way_arcs][used].tolist(), strict=True),
            key=lambda way: (way[1] == UNASSIGNED, way),
        ):
            some = in_turn[head] if member == UNASSIGNED else deque([member] * amount)
            dealt.setdefault(rows[place], []).append((some, amount))
        for place, amount in zip(waits, flow[waiting].tolist(), strict=True):
            if amount:
                dealt.setdefault(rows[place], []).append((deque([UNASSIGNED] * amount), amount))
        floors = np.asarray(self.quota.floors)
        ends = np.minimum(self.have, floors)
        np.add.at(ends, ending, flow[end_arcs])
        return dealt, ends, lambda some: network.reached(flow, members[some], sink, LEVELS[:2])[members]

    def _deal(
        self, task_class: TaskClass, tasks: Sequence[int], dealt: Mapping[TaskClass, Sequence[_Way]]
    ) -> Iterator[Move]:
        """Yield the moves of a class: its tasks in order, and places in turn."""
        left, home = deque(list(tasks) * task_class.copies), task_class.home
        for places, amount in dealt.get(task_class, ()):
            if self.suits is None:
                for target in _first(places, amount, task_class.excluded):
                    yield left.popleft(), home, target
                continue
            for _ in range(amount):
                move = left[0], home, places[0]
                found = move if self.suits(move) else _first_that_suits(self.suits, home, left, places)
                if found is not None:
                    if found is not move:
                        left.remove(found[0])
                        left.appendleft(found[0])
                        # What was passed over is not looked at again before all else.
                        places.rotate(-places.index(found[2]))
                    left.popleft()
                    places.popleft()
                    self.note(found)
                    yield found

    def _load(self, network: Network, members: Ints, sink: int) -> tuple[Ints, slice]:
        """Add the supplies above floors, and the arcs to the end with the costs of balance. Return the latter."""
        floors, fractional = np.asarray(self.quota.floors), np.asarray(self.quota.fractional)
        over = np.maximum(0, self.have - floors)
        network.supply(members, over)
        network.supply(sink, -int(over.sum()))
        low, may = np.flatnonzero(self.have < floors), np.flatnonzero(fractional)
        room = self.most - floors - fractional
        beyond = np.flatnonzero(room > 0)
        # Only the order of these costs counts: what is open, what is beyond, then the same of a higher part. So nothing
        # is gained by a copy that goes from a low part to a high one.
        price = 4 * ranks(self.quota.levels)
        ceiling = {level: each[may] for level, each in self.ceiling(self.quota).items()}
        first = network.arcs(members[low], sink, (floors - self.have)[low])
        network.arcs(members[may], sink, 1, balance=price[may] + 1, **ceiling)
        last = network.arcs(members[beyond], sink, room[beyond], balance=price[beyond] + 3)
        return np.concatenate([low, may, beyond]), slice(first.start, last.stop)

    def _give(self, network: Network, members: Ints, rows: Sequence[TaskClass], amounts: Ints, nodes: Ints) -> None:
        """Add what classes without a home bring, and the arcs by which members give.

        Members give first from parts of which they have too many, and little state first.
        """
        home, part, give = np.array([(row.home, row.part, row.give) for row in rows], np.int64).T
        bring = amounts * [row.copies for row in rows] * (home == UNASSIGNED)
        network.supply(nodes, bring)
        network.supply(len(members), -int(bring.sum()))
        some = np.flatnonzero(home != UNASSIGNED)
        if self.counts.shape[1] == 1:
            network.arcs(members[home[some]], nodes[some], amounts[some], size=give[some])
            return
        cells, cell = np.unique(home[some] * self.counts.shape[1] + part[some], return_inverse=True)
        gives = network.nodes(len(cells))
        network.arcs(gives[cell], nodes[some], amounts[some], size=give[some])
        have, even = self.counts.ravel()[cells], self.even.ravel()[cells]
        width = self.width[cells // self.counts.shape[1]]
        begin = members[cells // self.counts.shape[1]]
        for price, low, high in _rings(even, width):
            network.arcs(begin, gives, np.minimum(have, high) - np.minimum(have, low), even=-price)

    def _arrive(
        self, network: Network, members: Ints, goals: Ints, hubs: Ints, used: Container[int]
    ) -> list[tuple[int, Sequence[int], slice]]:
        """Add the arcs from hubs that are used to the members of their block, and the costs of evenness.

        Returns:
            Each of these hubs, its members, and the slice of their flows.
        """
        fills: list[tuple[int, Sequence[int], slice]] = [
            (hub, some, network.arcs(hub, goals[some, part], PLENTY))
            for block, some in enumerate(self.blocks.members)
            for part, hub in enumerate(hubs[block].tolist())
            if hub in used
        ]
        takers = np.flatnonzero(self.blocks.block != UNASSIGNED)
        if goals.shape[1] > 1:
            have, even = self.counts[takers].ravel(), self.even[takers].ravel()
            begin, end = goals[takers].ravel(), np.repeat(members[takers], goals.shape[1])
            for price, low, high in _rings(even, np.repeat(self.width[takers], goals.shape[1])):
                network.arcs(begin, end, np.maximum(have, high) - np.maximum(have, low), even=price)
        return fills

    def _ways(self, network: Network, classes: Classes, nodes: Ints, goals: Ints, hubs: Ints) -> tuple[Ints, slice]:
        """Add the arcs of classes: to hubs, or to single members where some are barred; and to members with a wish.

        A member that several copies of the same tasks wish for gets one of each.

        Returns:
            For each arc its class, its member (``UNASSIGNED`` for a hub) and the node that it leads to; and the slice
            of their flows.
        """
        rows, amounts = [*classes], np.array([len(tasks) for tasks in classes.values()])
        part, reach = np.array([(row.part, row.reach) for row in rows], np.int64).T
        price = np.array(self.blocks.reach, np.int64)[reach]
        takers = np.flatnonzero(self.blocks.block != UNASSIGNED)
        # Arcs keep a class from its excluded members only if hubs would not spread it anyway, and if that does not need
        # too many arcs. Otherwise dealing does it.
        excludes = np.array([len(row.excluded) for row in rows])
        single = (excludes > 0) & ((goals.shape[1] > 1) | (amounts == 1) | (excludes > 1))
        if single.sum() * len(takers) > _EXACT:
            single[:] = False
        some = np.flatnonzero(single)
        each = price[some][:, self.blocks.block[takers]]
        column_of = {member: column for column, member in enumerate(takers.tolist())}
        barred = [
            (row, column_of[member])
            for row, place in enumerate(some.tolist())
            for member in rows[place].excluded
            if member in column_of
        ]
        if barred:
            each[tuple(np.array(barred).T)] = BARRED
        row, column = np.nonzero(each != BARRED)
        place, member = some[row], takers[column]
        tables = [np.stack([place, member, goals[member, part[place]]])]
        first = network.arcs(nodes[place], tables[0][2], amounts[place], apart=each[row, column], **self.cold)
        place, block = np.nonzero((price != BARRED) & ~single[:, None])
        head, size = hubs[block, part[place]], np.array([len(some) for some in self.blocks.members], np.int64)
        should = np.minimum(amounts, [row.apiece for row in rows])
        for each, more in ((should, 0), (amounts - should, 1)):
            some = np.flatnonzero(each[place])
            tables.append(np.stack([place, np.full(len(place), UNASSIGNED), head])[:, some])
            capacity, apart = (each[place] * size[block])[some], price[place, block][some]
            network.arcs(nodes[place[some]], head[some], capacity, apart=apart, even=more, **self.cold)
        wishes = [(place, wish) for place, task_class in enumerate(rows) for wish in task_class.wishes]
        place = np.array([place for place, _ in wishes], np.int64)
        member, *costs = np.array([wish for _, wish in wishes], np.int64).reshape(-1, len(Wish._fields)).T
        goal, levels = goals[member, part[place]], dict(zip(Wish._fields[1:], costs, strict=True))
        number: dict[tuple[int, ...], int] = {}
        same = np.array([number.setdefault(tuple(tasks), len(number)) for tasks in classes.values()])
        shared = grouped(same[place], member) if len(number) < len(rows) else []
        head, gates = goal.copy(), network.nodes(len(shared))
        for gate, some in zip(gates, shared, strict=True):
            head[some] = gate
        tables.append(np.stack([place, member, head]))
        last = network.arcs(nodes[place], head, amounts[place], **levels)
        for gate, some in zip(gates, shared, strict=True):
            network.arcs(gate, goal[some[0]], amounts[place[some[0]]])
        return np.concatenate(tables, axis=1), slice(first.start, last.stop)


def _rings(even: Floats, width: Floats) -> Iterator[tuple[int, Ints, Ints]]:
    """Yield ranges of counts around an even part: what one copy costs there, from above which count up to which."""
    below = [np.floor(even - steps * width) for steps in _RINGS[::-1]]
    above = [np.ceil(even + steps * width) for steps in _RINGS]
    edges = np.maximum(0, [0 * even, *below, *above, even + PLENTY]).astype(np.int64)
    for price, (begin, end) in enumerate(pairwise(edges)):
        yield price, begin, end


def _in_turn(members: Sequence[int], amounts: Ints) -> deque[int]:
    """Return the members that get copies, once for each, one for each member in turn."""
    turns = np.concatenate([np.arange(amount) for amount in amounts])
    return deque(np.repeat(members, amounts)[np.argsort(turns, kind="stable")].tolist())


def _first_that_suits(suits: Suits, home: int, tasks: Sequence[int], places: Sequence[int]) -> Move | None:
    """Return the first move that suits, among a few; failing that, the first acceptable one, among all."""
    # Missing copies of a class are of one owner's tasks, so that another task would suit no better.
    few, near = [*islice(tasks, _TASKS if home != UNASSIGNED else 1)], dict.fromkeys(islice(places, _PLACES))
    if suiting := next((move for move in product(few, (home,), near) if suits(move)), None):
        return suiting
    # There may be fifty thousand places, which are not gone through where one of the first will do.
    for some, there in ((few[:1], near), (tasks, places)):
        every = product(some, (home,), dict.fromkeys(there))
        if acceptable := next((move for move in every if suits(move) is not None), None):
            return acceptable
    return None


def _first(places: deque[int], amount: int, excluded: frozenset[int]) -> list[int]:
    """Take the first places, of those that are not excluded if there are enough."""
    suitable = [*islice((member for member in places if member not in excluded), amount)] if excluded else []
    for member in suitable:
        places.remove(member)
    return [*suitable, *(places.popleft() for _ in range(amount - len(suitable)))]
