"""Groups for tests of placement: members come and go by name, and what was placed becomes what is there."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations, product
from math import ceil, floor

from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import TaskTable
from batonpass.placement.place import place
from batonpass.placement.types import UNASSIGNED, Copies, Placed, PlacementMember, PlacementRequest, Warmth

Warm = Mapping[int, Mapping[str, Warmth]]
TINY = 1e-6


class Unsolvable(SimpleMinCostFlow):  # type: ignore[misc] # published without types
    """A solver that never finds an answer, to stand for the real one in ``flow``."""

    def solve(self) -> object:
        return self.INFEASIBLE


def tasks(
    *sizes: int,
    stateless: Iterable[int] = (),
    weight: Callable[[int, int], float] = lambda _subtopology, _partition: 1.0,
    epochs: Mapping[int, int] | None = None,
) -> TaskTable:
    """Return subtopologies of these sizes; some stateless, some that ask for a topology epoch."""
    without = set(stateless)
    cells = [(one, partition) for one, size in enumerate(sizes) for partition in range(size)]
    return TaskTable(
        ids=tuple(TaskId(f"{one}_{partition}") for one, partition in cells),
        subtopology=tuple(one for one, _ in cells),
        stateful=tuple(one not in without for one, _ in cells),
        weight=tuple(weight(one, partition) for one, partition in cells),
        topology_epoch=tuple((epochs or {}).get(one, 0) for one, _ in cells),
    )


def seat(name: str, capacity: float = 1.0, **more: object) -> PlacementMember:
    """Return a member's seat; `tags` as keywords of their own would be in the way of the seat's fields."""
    return replace(PlacementMember(MemberId(name), capacity), **more)  # type: ignore[arg-type]


def seats(count: int, capacity: float = 1.0) -> tuple[PlacementMember, ...]:
    """Return equal members m00, m01 and so on."""
    return tuple(seat(f"m{index:02}", capacity) for index in range(count))


def zoned(*zones: str, clusters: tuple[str, ...] = (), capacity: float = 1.0) -> tuple[PlacementMember, ...]:
    """Return one member for each zone named, in a cluster each where these are given."""
    tags = [{"zone": zone} for zone in zones]
    for tag, cluster in zip(tags, clusters, strict=False):
        tag["cluster"] = cluster
    return tuple(seat(f"m{index:02}", capacity, tags=tag) for index, tag in enumerate(tags))


@dataclass(frozen=True)
class Group:
    """Who is there and who has what, by name. Everything is None or empty until it is placed."""

    table: TaskTable
    seats: tuple[PlacementMember, ...]
    home: tuple[str | None, ...] = ()
    standbys: tuple[frozenset[str], ...] = ()
    replicas: int = 0
    tags: tuple[str, ...] = ()
    previous: Mapping[int, str] = field(default_factory=dict)
    warming: Mapping[int, str] = field(default_factory=dict)
    bound: Mapping[int, str] = field(default_factory=dict)
    warm: Warm = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    held: bool = False
    tolerance: float = 0.0

    def number(self) -> dict[str, int]:
        """Return the seat of every member."""
        return {one.id: index for index, one in enumerate(sorted(self.seats, key=lambda one: one.id))}

    def request(self) -> PlacementRequest:
        """Return the question that placement is asked."""
        number = self.number()
        home = self.home or (None,) * len(self.table.ids)
        standbys = self.standbys or (frozenset(),) * len(self.table.ids)

        def warmth(
            asked: Collection[int],
            members: Collection[int],
            without: Callable[[int], Collection[int]] = lambda _: (),
        ) -> Copies:
            wanted = set(members)
            found = {
                task: {
                    number[name]: known
                    for name, known in held.items()
                    if number.get(name) in wanted.difference(without(task))
                }
                for task, held in self.warm.items()
                if task in asked
            }
            return {task: held for task, held in found.items() if held}

        return PlacementRequest(
            table=self.table,
            members=sorted(self.seats, key=lambda one: one.id),
            home=[number.get(name, UNASSIGNED) if name else UNASSIGNED for name in home],
            standbys=[tuple(sorted(number[name] for name in names if name in number)) for names in standbys],
            previous={task_index: number[name] for task_index, name in self.previous.items() if name in number},
            warming={task_index: number[name] for task_index, name in self.warming.items() if name in number},
            bound={task_index: number[name] for task_index, name in self.bound.items()},
            warmth=warmth,
            state_size=self.sizes,
            num_standby_replicas=self.replicas,
            rack_aware_tags=self.tags,
            balance_held=self.held,
            balance_tolerance=self.tolerance,
        )

    def place(self) -> Placed:
        """Place the group."""
        return place(self.request())

    def name(self, index: int) -> str | None:
        """Return who sits on a seat."""
        names = {number: name for name, number in self.number().items()}
        return names.get(index)

    def settle(self, placed: Placed | None = None) -> "Group":
        """Return the group when everything runs where it was placed."""
        placed = placed or self.place()
        names = {number: name for name, number in self.number().items()}
        return replace(
            self,
            home=tuple(names.get(owner) for owner in placed.owner),
            standbys=tuple(frozenset(names[one] for one in held) for held in placed.standbys),
            previous={},
            warming={},
        )

    def pending(self, placed: Placed | None = None) -> "Group":
        """Return the group when every assignment was sent and nothing has moved yet."""
        placed = placed or self.place()
        names = {number: name for name, number in self.number().items()}
        home = self.home or (None,) * len(self.table.ids)
        away = {
            task_index: names[owner]
            for task_index, owner in enumerate(placed.owner)
            if owner in names and names[owner] != home[task_index]
        }
        held = tuple(frozenset(names[one] for one in one_held) for one_held in placed.standbys)
        return replace(self, previous=away, standbys=held)

    def join(self, *newcomers: PlacementMember) -> "Group":
        """Return the group with more members."""
        return replace(self, seats=(*self.seats, *newcomers))

    def leave(self, *names: str) -> "Group":
        """Return the group without some members."""
        return replace(
            self,
            seats=tuple(one for one in self.seats if one.id not in names),
            home=tuple(None if name in names else name for name in self.home),
            standbys=tuple(held.difference(names) for held in self.standbys),
        )

    def drain(self, *names: str, closed: bool = True) -> "Group":
        """Return the group with some members draining, or no longer."""
        return replace(
            self, seats=tuple(replace(one, may_be_target=not closed) if one.id in names else one for one in self.seats)
        )


def moved(group: Group, placed: Placed) -> dict[int, tuple[str | None, str | None]]:
    """Return every task whose target is not its home, with both."""
    home = group.home or (None,) * len(group.table.ids)
    return {
        task_index: (home[task_index], group.name(owner))
        for task_index, owner in enumerate(placed.owner)
        if group.name(owner) != home[task_index]
    }


def counts(group: Group, placed: Placed, *, stateful: bool = True) -> dict[str, int]:
    """Return how many stateful (or stateless) actives each eligible member is to have."""
    task_indexes = [one for one, has_state in enumerate(group.table.stateful) if has_state is stateful]
    found = Counter(placed.owner[task_index] for task_index in task_indexes)
    return {one.id: found[group.number()[one.id]] for one in group.seats if one.may_be_target}


def standby_counts(group: Group, placed: Placed) -> dict[str, int]:
    """Return how many standbys each eligible member is to have."""
    found = Counter(one for held in placed.standbys for one in held)
    return {one.id: found[group.number()[one.id]] for one in group.seats if one.may_be_target}


def copy_counts(group: Group, placed: Placed) -> dict[str, int]:
    """Return how many copies each eligible member is to have: actives and standbys."""
    have, held = Counter(placed.owner), standby_counts(group, placed)
    return {name: have[group.number()[name]] + count for name, count in held.items()}


def is_balanced(group: Group, owner: Sequence[int]) -> bool:
    """Say whether no move of a stateful task, and no exchange of two, lowers the higher of two loads per capacity."""
    ordered = sorted(group.seats, key=lambda one: one.id)
    weights: dict[int, list[float]] = {index: [] for index, one in enumerate(ordered) if one.may_be_target}
    for task_index in group.table.stateful_indexes:
        if owner[task_index] in weights:
            weights[owner[task_index]].append(group.table.weight[task_index])
    for one, other in permutations(weights, 2):
        height = sum(weights[one]) / ordered[one].capacity - TINY
        for given, taken in product(set(weights[one]), {0.0, *weights[other]}):
            there = (sum(weights[other]) + given - taken) / ordered[other].capacity
            if given > taken and there < height:
                return False
    return True


def loads(group: Group, placed: Placed, *, stateful_only: bool = False) -> dict[str, float]:
    """Return the weight of the actives that each eligible member is to have."""
    found: dict[str, float] = {one.id: 0.0 for one in group.seats if one.may_be_target}
    for task_index, owner in enumerate(placed.owner):
        name = group.name(owner)
        if name in found and (group.table.stateful[task_index] or not stateful_only):
            found[name] += group.table.weight[task_index]
    return found


def skew(group: Group, placed: Placed) -> float:
    """Return by how much per-capacity counts of a subtopology differ between eligible members, at most."""
    capacity = {one.id: one.capacity for one in group.seats if one.may_be_target}
    per: dict[int, Counter[str | None]] = {one: Counter() for one in {*group.table.subtopology}}
    for task_index, owner in enumerate(placed.owner):
        per[group.table.subtopology[task_index]][group.name(owner)] += 1
    return max(
        max(count[name] / share for name, share in capacity.items())
        - min(count[name] / share for name, share in capacity.items())
        for count in per.values()
    )


def faults(group: Group, placed: Placed) -> list[str]:
    """Return what is wrong with any placement, whatever was asked: where tasks are, and how many copies of them."""
    found = []
    ordered = sorted(group.seats, key=lambda one: one.id)
    eligible = [one.may_be_target for one in ordered]
    copies: Counter[int] = Counter(owner for owner in placed.owner if owner != UNASSIGNED)
    for task_index, (owner, held) in enumerate(zip(placed.owner, placed.standbys, strict=True)):
        copies.update(held)
        if (owner == UNASSIGNED) != (task_index in placed.waiting):
            found.append(f"{task_index} has owner {owner} and waits: {task_index in placed.waiting}")
        if owner in held or len(set(held)) != len(held):
            found.append(f"{task_index} has two copies on one seat: {owner}, {held}")
        if held and not group.table.stateful[task_index]:
            found.append(f"{task_index} is stateless and has standbys")
        if (
            any(eligible)
            and task_index not in group.bound
            and not all(eligible[one] for one in (*held, *([owner] if owner >= 0 else [])))
        ):
            found.append(f"{task_index} is placed on a seat that drains")
    for index, one in enumerate(ordered):
        if one.may_be_target and one.max_tasks is not None and copies[index] > max(one.max_tasks, len(group.bound)):
            found.append(f"{one.id} has {copies[index]} copies, limit {one.max_tasks}")
    return found


def unbalanced(group: Group, placed: Placed) -> list[str]:
    """Return the eligible members outside of floor and ceiling of their quota of stateful tasks, limits aside."""
    have = counts(group, placed)
    total = sum(have.values())
    whole = sum(one.capacity for one in group.seats if one.may_be_target)
    return [
        f"{one.id} has {have[one.id]} of quota {quota}"
        for one in group.seats
        if one.may_be_target and (quota := total * one.capacity / whole) is not None
        if not floor(quota + TINY) <= have[one.id] <= ceil(quota - TINY)
    ]


def unlevel(group: Group, placed: Placed) -> list[str]:
    """Return the moves and exchanges of stateless tasks that lower the higher load per capacity of two members."""
    load, weight = loads(group, placed), group.table.weight
    capacity: dict[str, float] = {one.id: one.capacity for one in group.seats}
    of: dict[str | None, set[float]] = {name: set() for name in load}
    for task_index in [one for one, stateful in enumerate(group.table.stateful) if not stateful]:
        of.setdefault(group.name(placed.owner[task_index]), set()).add(weight[task_index])
    return [
        f"{source} would better give {given} to {target} for {taken}"
        for source, target in permutations(load, 2)
        for given, taken in product(of[source], {0.0, *of[target]})
        if given > taken
        if (load[target] + given - taken) / capacity[target] < load[source] / capacity[source] - TINY
    ]


def unlevel_standbys(group: Group, placed: Placed) -> list[str]:
    """Return the standbys that would lower the higher number of copies per capacity of two members by going over.

    They may go to members that have room, know the task, have no copy of it, and leave as many values of each tag.
    """
    ordered = sorted(group.seats, key=lambda one: one.id)
    copies = Counter([*placed.owner, *(one for held in placed.standbys for one in held)])
    takers = [index for index, one in enumerate(ordered) if one.may_be_target]
    takers = [index for index in takers if ordered[index].max_tasks is None or copies[index] < ordered[index].max_tasks]  # type: ignore[operator]
    found = []
    for task_index, (owner, held) in enumerate(zip(placed.owner, placed.standbys, strict=True)):
        for source, target in product(held, takers):
            there = {owner, *held} - {source} | {target}
            higher = copies[source] / ordered[source].capacity
            if (
                (copies[target] + 1) / ordered[target].capacity < higher - TINY
                and target not in {owner, *held}
                and ordered[target].topology_epoch >= group.table.topology_epoch[task_index]
                and values(group, there) >= values(group, {owner, *held})
            ):
                found.append(f"a standby of {task_index} would be better on {target} than on {source}")
    return found


def values(group: Group, members: Collection[int]) -> tuple[int, ...]:
    """Return how many different values these members have of each tag that keeps copies apart."""
    ordered = sorted(group.seats, key=lambda one: one.id)
    return tuple(len({ordered[index].tags.get(key) for index in members}) for key in group.tags)


def together(group: Group, placed: Placed, key: str) -> int:
    """Return how many pairs of copies of one task share a value of a tag."""
    ordered = sorted(group.seats, key=lambda one: one.id)
    value = [one.tags.get(key) for one in ordered]
    return sum(
        value[one] == value[other]
        for owner, held in zip(placed.owner, placed.standbys, strict=True)
        for one, other in combinations((owner, *held) if owner != UNASSIGNED else held, 2)
    )


def shares(placed: Placed, task_indexes: Sequence[int]) -> Counter[tuple[int, int]]:
    """Return how many standbys of one seat's tasks another holds."""
    return Counter(
        (placed.owner[task_index], one) for task_index in task_indexes for one in placed.standbys[task_index]
    )
