"""Tasks of different weights: every member near its quota, and few moves.

Near means within the weight of the heaviest stateful task. Which tasks have to move for that is a packing problem
(NP-hard) and no flow, so the fewest are searched for, not known: members above their band shed as few tasks as can be,
members below it are covered by those, by tasks that nobody has, and by as few others as can be; then every move is
tried for whether the rest can do without it. What moves at all may go anywhere at no further cost: on with a move under
way, to where it is warm, to what is still too low, and at last as it suits the subtopologies.

Where limits or topology epochs may put the bands out of reach, whole placements are compared: by how many tasks wait,
how far members are from their bands, and how many tasks move.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain
from math import ceil, inf
from typing import Final, NamedTuple

from batonpass.core.placement.actives import Kind, stateful_tasks, stateless_tasks
from batonpass.core.placement.quotas import PLACES, pour
from batonpass.core.placement.state import PlacementState
from batonpass.core.placement_types import UNASSIGNED, PlacementRequest, Ready, TaskTable, WaitReason

TOLERANCE: Final = 1e-9
# What a search for fewer moves may look at, counted in members and tasks weighed.
_EFFORT: Final = 300_000
# How often what one search has opened may be made use of by another.
_ROUNDS: Final = 8
_OUTSIDE: Final = 6

Lots = list[tuple[float, list[int]]]
Offer = tuple[bool, float, int]
Destination = tuple[int, int]
Entry = tuple[float, float, int]


class _Evenness:
    """How many tasks of each subtopology each member runs, and what one more would cost.

    Attributes:
        counts: per member and subtopology, the tasks that it runs so far.
        part: per subtopology, its tasks per unit of capacity.
        capacity: per member.
    """

    def __init__(
        self, table: TaskTable, owner: Sequence[int], members: Sequence[int], capacity: Sequence[float]
    ) -> None:
        total = sum(capacity[member] for member in members)
        self.capacity = capacity
        self.counts = {member: [0] * table.subtopologies for member in members}
        self.part = [0.0] * table.subtopologies
        start = 0
        for subtopology, size in sorted(Counter(table.subtopology).items()):
            self.part[subtopology] = size / total
            if table.subtopologies > 1:
                for member, count in Counter(owner[start : start + size]).items():
                    if member in self.counts:
                        self.counts[member][subtopology] = count
            start += size

    def price_in(self, member: int, subtopology: int) -> float:
        """Return the price of one more task of the subtopology on the member."""
        if len(self.part) == 1:
            return 0.0
        capacity = self.capacity[member]
        return (2 * (self.counts[member][subtopology] - self.part[subtopology] * capacity) + 1) / capacity

    def add(self, subtopology: int, member: int) -> None:
        """Count one more task on a member."""
        self.counts[member][subtopology] += 1


class _Scales:
    """Loads of the open members with every task at home, and how far they may be from the quotas.

    Attributes:
        state: what is being placed.
        held: who has what.
        weight: per task.
        load: per member, the weight of its tasks at home.
        quota: per member, its part of all weight by capacity.
        low: per member, the least load within its band.
        high: per member, the greatest load within its band.
        slots: per member, how many more tasks its limit lets in.
    """

    def __init__(self, state: PlacementState, held: Kind) -> None:
        request = state.request
        self.state = state
        self.held = held
        self.weight = request.table.weight
        self.load = _weigh(state)
        bound = [0.0] * len(self.load)
        for task, member in request.bound.items():
            bound[member] += self.weight[task] if request.table.stateful[task] else 0.0
        self.slots = [limit - have for limit, have in zip(held.limit, held.have.tolist(), strict=True)]
        self._tasks: dict[int, list[int]] | None = None
        self._lots: dict[int, Lots] = {}
        self._set_bands(list(self.load) if request.balance_held else bound)

    def _set_bands(self, least: Sequence[float]) -> None:
        state, weight = self.state, self.weight
        total = sum(self.load[member] for member in state.open) + sum(weight[task] for task in self.held.orphans)
        members = state.open
        capacity, low = [state.capacity[one] for one in members], [least[one] for one in members]
        water = pour([0.0] * len(members), capacity, low, [total] * len(members), total)
        level = water.rest / water.width if water.width else 0.0
        slack = max(state.request.table.stateful_weights) + TOLERANCE * max(1.0, total)
        self.quota = [max(least[member], level * capacity) for member, capacity in enumerate(state.capacity)]
        self.low = [quota - slack for quota in self.quota]
        self.high = [max(quota + slack, floor) for quota, floor in zip(self.quota, least, strict=True)]

    def lots(self, member: int) -> Lots:
        """Return the tasks that may leave an open member, heaviest first, those of one weight together.

        Within a weight, tasks under way come first, then those with little state.
        """
        lots = self._lots.get(member)
        if lots is None:
            if self._tasks is None:
                self._tasks = {one: [] for one in self.state.open}
                for task in self.held.tasks.tolist():
                    if self.state.owner[task] in self._tasks:
                        self._tasks[self.state.owner[task]].append(task)
            request, by_weight = self.state.request, dict[float, list[int]]()
            for task in self._tasks[member]:
                by_weight.setdefault(self.weight[task], []).append(task)

            def order(task: int) -> tuple[bool, bool, int, int]:
                return task not in request.warming, task not in request.previous, request.state_size.get(task, 0), task

            lots = [(weight, sorted(by_weight[weight], key=order)) for weight in sorted(by_weight, reverse=True)]
            self._lots[member] = lots
        return lots

    def loads_without(self, leaving: Collection[int]) -> list[float]:
        """Return the loads if these tasks left their homes."""
        loads = list(self.load)
        for task in leaving:
            loads[self.state.owner[task]] -= self.weight[task]
        return loads

    def slots_without(self, leaving: Collection[int]) -> list[int]:
        """Return how many tasks the limits would let in if these tasks left their homes."""
        slots = list(self.slots)
        for task in leaving:
            slots[self.state.owner[task]] += 1
        return slots

    def cover(self, loads: list[float], items: Sequence[int], slots: Sequence[int]) -> dict[int, int] | None:
        """Put some of the items (heaviest first) on the members below their band so that none is left below.

        Returns:
            The member of each item that it took; None, if neither way that is tried gets there. The loads are changed.
        """
        lows = [member for member in self.state.open if loads[member] < self.low[member]]
        if not lows:
            return {}
        first = list(loads)
        found = self._cover_deepest(first, items, {member: slots[member] for member in lows})
        if any(first[member] < self.low[member] for member in lows):
            first = list(loads)
            found = self._cover_snugly(first, items, {member: slots[member] for member in lows})
        loads[:] = first
        return None if any(first[member] < self.low[member] for member in lows) else found

    def _cover_deepest(self, loads: list[float], items: Sequence[int], lows: dict[int, int]) -> dict[int, int]:
        """Give the heaviest item to the member that lacks most, again and again."""
        heap = [(loads[member] - self.low[member], member) for member, slots in lows.items() if slots > 0]
        heapify(heap)
        taken: dict[int, int] = {}
        for task in items:
            if not heap:
                break
            _, member = heappop(heap)
            taken[task] = member
            loads[member] += self.weight[task]
            lows[member] -= 1
            if loads[member] < self.low[member] and lows[member] > 0:
                heappush(heap, (loads[member] - self.low[member], member))
        return taken

    def _cover_snugly(self, loads: list[float], items: Sequence[int], lows: dict[int, int]) -> dict[int, int]:
        """Give each member, the lowest first, the lightest item that is enough, or else the heaviest that there is."""
        left = list(items)
        taken: dict[int, int] = {}
        for member in sorted(lows, key=lambda member: (loads[member] - self.low[member], member)):
            while left and loads[member] < self.low[member] and lows[member] > 0:
                lows[member] -= 1
                lack = self.low[member] - loads[member]
                enough = [task for task in left if self.weight[task] >= lack]
                task = enough[-1] if enough else left[0]
                left.remove(task)
                taken[task] = member
                loads[member] += self.weight[task]
        return taken

    def least_moves(self) -> int:
        """Return how many tasks that have an owner must move at least, whatever is done with orphans.

        Every member above its band sheds no fewer than its heaviest tasks take; every member below it needs no fewer
        than the heaviest tasks of all take, and what comes to these members are orphans or has moved.
        """
        shed = 0
        for member in self.state.open:
            excess = self.load[member] - self.high[member]
            if excess > 0:
                shed += _how_many([(weight, len(tasks)) for weight, tasks in self.lots(member)], excess)
        lacks = [lack for member in self.state.open if (lack := self.low[member] - self.load[member]) > 0]
        if not lacks:
            return shed
        orphans = Counter(self.weight[task] for task in self.held.orphans)
        movable = Counter(self.weight[task] for task in self.held.tasks.tolist()) - orphans
        movable += Counter(self.weight[task] for task in self.state.request.bound if self.state.stateful[task])
        heaviest = sorted(movable.items(), reverse=True)
        everything = sorted((movable + orphans).items(), reverse=True)
        needed = sum(_how_many(everything, lack) for lack in lacks) - orphans.total()
        by_weight = _how_many(heaviest, sum(lacks) - sum(weight * count for weight, count in orphans.items()))
        return max(shed, needed, by_weight)


def _how_many(weights: Sequence[tuple[float, int]], lack: float) -> int:
    """Return how many tasks, heaviest first, it takes to make up for what lacks, given how many there are of each."""
    taken = 0
    for weight, count in weights:
        if lack <= 0:
            break
        some = min(count, ceil(lack / weight))
        lack -= some * weight
        taken += some
    return taken


class _Market:
    """What every member can give without falling below its band, by weight.

    Tasks whose move is under way are given first, then those of the fullest members.
    """

    def __init__(self, scales: _Scales, leaving: Collection[int]) -> None:
        self.scales = scales
        self.loads = scales.loads_without(leaving)
        self.lots: dict[tuple[float, int], list[int]] = {}
        self.offers: dict[float, list[Offer]] = {}
        for member in scales.state.open:
            for weight, tasks in scales.lots(member):
                if self.loads[member] - weight >= scales.low[member]:
                    self.lots[weight, member] = [task for task in reversed(tasks) if task not in leaving]
                    self.offers.setdefault(weight, []).append(self._offer(weight, member))
        for heap in self.offers.values():
            heapify(heap)
        self.weights = sorted(self.offers)

    def _offer(self, weight: float, member: int) -> Offer:
        state = self.scales.state
        new = not any(task in state.request.warming for task in self.lots[weight, member][-1:])
        return new, (self.scales.quota[member] - self.loads[member]) / state.capacity[member], member

    def take(self, lack: float) -> int:
        """Take the lightest task that makes up for the lack, or else the heaviest; `UNASSIGNED` without one."""
        enough = bisect_left(self.weights, lack)
        for place in chain(range(enough, len(self.weights)), range(enough - 1, -1, -1)):
            task = self._take(self.weights[place])
            if task != UNASSIGNED:
                return task
        return UNASSIGNED

    def _take(self, weight: float) -> int:
        """Take a task of one weight from the fullest member that has one."""
        heap = self.offers[weight]
        while heap:
            member = heap[0][2]
            offer = self._offer(weight, member)
            if not self.lots[weight, member] or self.loads[member] - weight < self.scales.low[member]:
                heappop(heap)
            elif offer != heap[0]:
                heapreplace(heap, offer)
            else:
                self.loads[member] -= weight
                return self.lots[weight, member].pop()
        return UNASSIGNED


def _weigh(state: PlacementState) -> list[float]:
    """Return the weight of the stateful tasks of each member."""
    return state.stateful_load(state.owner)


def place_weighted(state: PlacementState) -> int:
    """Give every stateful task a target.

    Returns:
        A number of moves that no placement as balanced can do with less than.
    """
    if state.limited or state.restricted:
        return place_bent(state, _place_once)
    return _place_once(state)


def _place_once(state: PlacementState) -> int:
    held = stateful_tasks(state)
    home = state.request.home
    forced = sum(home[task] != one for task, one in state.request.bound.items() if state.stateful[task])
    fewest = forced + len(held.orphans)
    scales = _Scales(state, held)
    if state.restricted:
        _Settling(scales, ()).run()
        _relieve(scales)
        return fewest
    search = _Search(scales)
    leaving = search.run(())
    under_way = search.under_way()
    if under_way:
        sticky = search.run(under_way)
        leaving = sticky if len(sticky) <= len(leaving) else leaving
    _Settling(scales, leaving).run()
    return fewest + (0 if state.limited else scales.least_moves())


class _Search:
    """The search for the fewest tasks to take from their homes."""

    def __init__(self, scales: _Scales) -> None:
        self.scales = scales
        self.effort = _EFFORT

    def under_way(self) -> list[int]:
        """Return the tasks of open members whose move is under way to an open one."""
        scales = self.scales
        state = scales.state
        request = state.request
        return [
            task
            for task, target in sorted({**request.previous, **request.warming}.items())
            if state.is_open[target]
            and state.owner[task] != target
            and state.is_open[state.owner[task]]
            and task not in request.bound
            and request.table.stateful[task]
        ]

    def run(self, start: Collection[int]) -> set[int]:
        """Return the tasks that leave their homes, beginning with some that do already."""
        leaving = set(start)
        self._shed(leaving)
        if self.scales.state.request.balance_held:
            return leaving
        shed = set(leaving)
        while not self._works(leaving):
            if not self._add(leaving):
                # The limits keep some band out of reach, and moves towards it would help nobody.
                return shed
        self._do_without(leaving, self.scales.least_moves())
        return leaving

    def _items(self, leaving: Collection[int]) -> list[int]:
        weight = self.scales.weight
        return sorted([*self.scales.held.orphans, *leaving], key=lambda task: (-weight[task], task))

    def _works(self, leaving: Collection[int]) -> bool:
        """Tell whether every member is within its band with these tasks, and the orphans ones, put to best use."""
        scales = self.scales
        loads, slots = scales.loads_without(leaving), scales.slots_without(leaving)
        self.effort -= len(loads) + len(leaving) + len(scales.held.orphans)
        if any(loads[member] > scales.high[member] or slots[member] < 0 for member in scales.state.open):
            return False
        return scales.cover(loads, self._items(leaving), slots) is not None

    def _shed(self, leaving: set[int]) -> None:
        """Let members above their band, or their limit, give their heaviest tasks."""
        scales = self.scales
        loads = scales.loads_without(leaving)
        slots = scales.slots_without(leaving)
        for member in scales.state.open:
            if loads[member] <= scales.high[member] and slots[member] >= 0:
                continue
            for task in [task for _, tasks in scales.lots(member) for task in tasks if task not in leaving]:
                if loads[member] <= scales.high[member] and slots[member] >= 0:
                    break
                leaving.add(task)
                loads[member] -= scales.weight[task]
                slots[member] += 1

    def _add(self, leaving: set[int]) -> bool:
        """Take more tasks for the members that stay too low: one that is enough, or else the heaviest to be had."""
        scales = self.scales
        after = scales.loads_without(leaving)
        slots = scales.slots_without(leaving)
        scales.cover(after, self._items(leaving), slots)
        market = _Market(scales, leaving)
        before = len(leaving)
        depths = [(after[member] - scales.low[member], member) for member in scales.state.open]
        for depth, member in sorted(entry for entry in depths if entry[0] < 0):
            if slots[member] <= 0:
                self._lighten(member, leaving)
            lack = -depth
            while slots[member] > 0 and lack > 0 and (task := market.take(lack)) != UNASSIGNED:
                leaving.add(task)
                lack -= scales.weight[task]
                slots[member] -= 1
        return len(leaving) > before

    def _lighten(self, member: int, leaving: set[int]) -> None:
        """Let a member that is full and yet too low give its lightest task, for a heavier one to come."""
        staying = [task for _, tasks in self.scales.lots(member) for task in tasks if task not in leaving]
        leaving.update(staying[-1:])

    def _do_without(self, leaving: set[int], floor: int) -> None:
        """Let tasks stay after all that the rest can do without, those not under way first."""
        request = self.scales.state.request

        def order(task: int) -> tuple[bool, bool, float, int]:
            return task in request.warming, task in request.previous, self.scales.weight[task], task

        for task in sorted(leaving, key=order):
            if len(leaving) <= floor or self.effort <= 0:
                return
            leaving.discard(task)
            if not self._works(leaving):
                leaving.add(task)


class _Way(NamedTuple):
    """One way to settle.

    Attributes:
        sparing: wishes are granted to members that are too low first, so that other low members get something too.
        cover: low members are brought up into their bands next.
        even: what is left goes as it suits the subtopologies, not heaviest first to the lowest member.
    """

    sparing: bool
    cover: bool
    even: bool


WAYS: Final = (
    _Way(sparing=False, cover=False, even=True),
    _Way(sparing=False, cover=True, even=True),
    _Way(sparing=False, cover=True, even=False),
    _Way(sparing=True, cover=True, even=True),
    _Way(sparing=True, cover=True, even=False),
)
# Lots of tasks of one subtopology and weight, up to which it pays to deal them one after the other.
_LOTS: Final = 64


class _Settling:
    """The choice of a member for every task that moves."""

    def __init__(self, scales: _Scales, leaving: Collection[int]) -> None:
        self.scales = scales
        self.state = scales.state
        self.leaving = leaving
        weight = scales.weight
        # What fewer members may take goes first.
        epoch = self.state.request.table.topology_epoch if self.state.restricted else [0] * len(weight)
        items = [*scales.held.orphans, *leaving]
        self.items = sorted(items, key=lambda task: (-epoch[task], -weight[task], task))
        self.loads: list[float] = []
        self.slots: list[int] = []
        self.member_of: dict[int, int] = {}
        self._even: _Evenness | None = None
        self._heaps: dict[int, list[Entry]] = {}

    def run(self) -> None:
        """Settle every task, with as many of the wishes as leave all members within their bands."""
        if not self.items:
            return
        wishes = self._destinations()
        self._settle_by_wish(wishes)
        for task in self.items:
            if task in self.member_of:
                self.state.owner[task] = self.member_of[task]
            else:
                self.state.wait(task, WaitReason.NO_CAPACITY)

    def _settle_by_wish(self, wishes: list[list[Destination]]) -> None:
        """Settle within the bands, granting what wishes can be granted."""
        if not self._settle(wishes):
            # No way is within the bands, so the one that grants most is as good as any.
            self._try([wish for group in wishes for wish in group], WAYS[0])

    def _settle(self, wishes: list[list[Destination]]) -> bool:
        """Try ways that grant less and less, until one leaves all members within their bands."""
        for count in range(len(wishes), -1, -1):
            if count and not wishes[count - 1]:
                continue
            granted = [wish for group in wishes[:count] for wish in group]
            if any(self._try(granted, way) or self.state.restricted for way in WAYS):
                return True
        return False

    def _try(self, wishes: Sequence[Destination], way: _Way) -> bool:
        """Settle every task one way; return whether all members are within their bands."""
        scales = self.scales
        self._begin()
        self._grant(wishes, only_low=way.sparing)
        if way.cover:
            self._cover()
        self._grant(wishes, only_low=False)
        self._place_rest(even=way.even)
        return all(scales.low[member] <= self.loads[member] <= scales.high[member] for member in self.state.open)

    def _destinations(self) -> list[list[Destination]]:
        """Return where tasks would like to go, the strongest wishes first, in groups to be granted together."""
        request = self.state.request
        items = set(self.items)
        weight = self.scales.weight
        # Light ones first: what covers a member that is too low is the heavy ones.
        under_way = [(task, member) for task, member in sorted(request.warming.items()) if task in items]
        under_way.sort(key=lambda wish: weight[wish[0]])
        queued = [(task, member) for task, member in sorted(request.previous.items()) if task in items]
        copies = request.warmth(items, self.state.open)
        ready: list[tuple[bool, int, int]] = []
        behind: list[tuple[int, int, bool, int, int]] = []
        for task in sorted(items.intersection(copies)):
            home = self.state.owner[task]
            for member, (ready_class, lag) in copies[task].items():
                changes = request.previous.get(task) != member
                if member != home and ready_class <= Ready.CAUGHT_UP:
                    ready.append((changes, task, member))
                elif member != home and ready_class < Ready.NOTHING:
                    behind.append((ready_class, lag, changes, task, member))
        warm = [(task, member) for _, task, member in sorted(ready)]
        lagging = [(task, member) for *_, task, member in sorted(behind)]
        return [under_way, warm, lagging, queued]

    def _begin(self) -> None:
        """Start over."""
        scales = self.scales
        self.loads = scales.loads_without(self.leaving)
        self.slots = list(scales.slots)
        for task in self.leaving:
            self.slots[self.state.owner[task]] += 1
        self.member_of = {}

    def _grant(self, wishes: Iterable[Destination], *, only_low: bool) -> None:
        """Grant what wishes can be granted; to members that are still too low, or to all."""
        for task, member in wishes:
            if only_low and self.loads[member] >= self.scales.low[member]:
                continue
            # Where limits or topologies put bands out of reach, what was settled stays settled.
            bent = self.state.restricted or self.state.limited
            meant = bent and self.state.request.previous.get(task) == member and self._may(task, member)
            if task not in self.member_of and (meant or self._fits(task, member)):
                self._put(task, member)

    def _may(self, task: int, member: int) -> bool:
        return self.state.is_open[member] and self.slots[member] > 0 and self.state.takes(task, member)

    def _fits(self, task: int, member: int) -> bool:
        return self._may(task, member) and self.loads[member] + self.scales.weight[task] <= self.scales.high[member]

    def _put(self, task: int, member: int) -> None:
        self.member_of[task] = member
        self.loads[member] += self.scales.weight[task]
        self.slots[member] -= 1

    def _cover(self) -> None:
        """Bring low members up into their bands, if what is left can do that."""
        rest = [task for task in self.items if task not in self.member_of]
        covered = self.scales.cover(list(self.loads), rest, self.slots)
        for task, member in (covered or {}).items():
            self._put(task, member)

    def _place_rest(self, *, even: bool) -> None:
        """Place what is free to go anywhere: as it suits the subtopologies, or else the heaviest on the lowest."""
        self._even = self._counts() if even else None
        self._heaps = {}
        for task in self.items:
            member = self._best(task) if task not in self.member_of else UNASSIGNED
            if member != UNASSIGNED:
                self._put(task, member)
                if self._even is not None:
                    self._even.add(self.state.request.table.subtopology[task], member)

    def _counts(self) -> _Evenness:
        owner = list(self.state.owner)
        for task in self.items:
            owner[task] = self.member_of.get(task, UNASSIGNED)
        return _Evenness(self.state.request.table, owner, self.state.open, self.state.capacity)

    def _entry(self, member: int, subtopology: int) -> Entry:
        price = 0.0 if self._even is None else self._even.price_in(member, subtopology)
        return price, (self.loads[member] - self.scales.quota[member]) / self.state.capacity[member], member

    def _best(self, task: int) -> int:
        """Return the best member for a task within its band; failing that, the lowest that has a slot for it."""
        subtopology = self.state.request.table.subtopology[task] if self._even is not None else 0
        heap = self._heaps.get(subtopology)
        if heap is None:
            heap = [self._entry(member, subtopology) for member in self.state.open]
            heapify(heap)
            self._heaps[subtopology] = heap
        aside: list[Entry] = []
        found = UNASSIGNED
        while heap and found == UNASSIGNED:
            entry = self._entry(heap[0][2], subtopology)
            if entry != heap[0]:
                heapreplace(heap, entry)
            elif self._fits(task, entry[2]):
                found = entry[2]
            else:
                aside.append(heappop(heap))
        for entry in aside:
            heappush(heap, entry)
        if found != UNASSIGNED:
            return found
        lowest = [
            (self.loads[member] - self.scales.quota[member], member)
            for member in self.state.open
            if self._may(task, member)
        ]
        return min(lowest)[1] if lowest else UNASSIGNED


def place_bent(state: PlacementState, place_once: Callable[[PlacementState], int]) -> int:
    """Place with and without regard to what is under way, and keep the best.

    Returns:
        What the first search says of the fewest moves.
    """
    request = state.request
    stock = PlacementState(request)
    scales = _Scales(stock, stateful_tasks(stock))
    first = PlacementState(request)
    fewest = place_once(first)
    attempts = [_come_to_rest(first, place_once)]
    if request.previous or request.warming:
        fresh = PlacementState(replace(request, previous={}, warming={}))
        place_once(fresh)
        attempts += [_come_to_rest(fresh, place_once)]
        attempts[:0] = [_come_to_rest(before, place_once) for before in [_as_before(request)] if before is not None]
    best = min(attempts, key=lambda one: _badness(one, scales, request))
    state.owner[:] = best.owner
    state.waiting = best.waiting
    return fewest


def _come_to_rest(state: PlacementState, place_once: Callable[[PlacementState], int]) -> PlacementState:
    """Place what was placed again until nothing changes, as if everything had moved already."""

    def is_at_rest() -> bool:
        again = PlacementState(replace(state.request, home=list(state.owner), previous={}, warming={}))
        place_once(again)
        unchanged = again.owner == state.owner
        state.owner[:] = again.owner
        state.waiting = again.waiting
        return unchanged

    any(is_at_rest() for _ in range(_ROUNDS))
    return state


def _as_before(request: PlacementRequest) -> PlacementState | None:
    """Return the placement that the moves under way lead to; None if some member cannot hold what it would get."""
    state = PlacementState(request)
    table = request.table
    for task in table.stateful_indexes:
        member = request.bound.get(task, request.previous.get(task, state.owner[task]))
        if task in request.bound or state.is_open[member]:
            state.owner[task] = member
            if member != request.home[task] and task not in request.bound and not state.takes(task, member):
                return None
        else:
            known = any(state.takes(task, one) for one in state.open)
            state.wait(task, WaitReason.NO_CAPACITY if known else WaitReason.STALE_TOPOLOGY)
    counts, limit = state.count_actives(stateful=True), stateful_tasks(PlacementState(request)).limit
    if any(counts[member] > limit[member] for member in state.open):
        return None
    return state


def _badness(state: PlacementState, scales: _Scales, request: PlacementRequest) -> tuple[int, float, int]:
    """Return how bad a placement is: tasks that wait, the weight by which members are outside their bands, moves."""
    load = _weigh(state)
    outside = sum(
        max(0.0, scales.low[member] - load[member]) + max(0.0, load[member] - scales.high[member])
        for member in state.open
    )
    moves = sum(home != owner for home, owner in zip(request.home, state.owner, strict=True))
    return len(state.waiting), round(outside, _OUTSIDE), moves


def _relieve(scales: _Scales) -> None:
    """Move tasks one by one from members above their band, and to members below it, among members that may take them.

    While not every member may take every task, bands may be out of reach; no move is made that only passes the load on.
    """
    state, weight = scales.state, scales.weight
    loads = [0.0] * len(state.capacity)
    slots = list(scales.held.limit)
    for task in state.request.table.stateful_indexes:
        member = state.owner[task]
        if member != UNASSIGNED:
            loads[member] += weight[task]
            slots[member] -= 1
    bound = state.request.bound
    tasks = [
        (weight[task], task)
        for task in scales.held.tasks.tolist()
        if state.owner[task] != UNASSIGNED and task not in bound
    ]
    tasks.sort(key=lambda task: (-task[0], task[1]))

    def pass_on(heavy: float, task: int) -> bool:
        source = state.owner[task]
        fit = [
            ((loads[member] + heavy) / state.capacity[member], member)
            for member in state.open
            if member != source and slots[member] > 0 and state.takes(task, member)
        ]
        if not fit:
            return False
        level, target = min(fit)
        pressing = loads[source] > scales.high[source] or loads[target] < scales.low[target]
        lowers = level < loads[source] / state.capacity[source] - TOLERANCE
        if not (pressing and lowers) and slots[source] >= 0:
            return False
        state.owner[task] = target
        loads[source] -= heavy
        loads[target] += heavy
        slots[source] += 1
        slots[target] -= 1
        return True

    # Every round lowers the highest of two members each time, so the rounds end.
    while not state.request.balance_held and sum(pass_on(*task) for task in tasks):
        pass


def level_loads(state: PlacementState, load: list[float]) -> None:
    """Place tasks of different weights: what has no owner goes heaviest first, then the highest loads are lowered."""
    held = stateless_tasks(state, None)
    for task in held.orphans:
        state.owner[task] = UNASSIGNED
    board = _Board(state, load)
    weight = state.request.table.weight
    newest = state.request.table.topology_epoch
    for task in sorted(held.orphans, key=lambda task: (-newest[task] if state.restricted else 0, -weight[task], task)):
        board.place(task)
    for member in state.open:
        board.shed(member)
    while not state.request.balance_held and board.lower_one():
        pass


class _Board:
    """Loads and free slots per open member, and the stateless tasks that each could give away, lightest first."""

    def __init__(self, state: PlacementState, load: list[float]) -> None:
        request = state.request
        self.state = state
        self.load = load
        self.weight = request.table.weight
        self.slots = [
            limit - actives
            for limit, actives in zip(state.limit, state.count_actives(stateful=True).tolist(), strict=True)
        ]
        self.tasks: dict[int, list[tuple[float, int]]] = {member: [] for member in state.open}
        for task in request.table.stateless_indexes:
            member = state.owner[task]
            if member in self.tasks:
                self.load[member] += self.weight[task]
                self.slots[member] -= 1
                if task not in request.bound:
                    self.tasks[member].append((self.weight[task], task))
        for tasks in self.tasks.values():
            tasks.sort()
        # Of members of equal capacity the lowest is the best for a task of any weight. Entries that a later change has
        # made stale are dropped where they come up.
        self._lows: dict[float, list[tuple[float, int]]] = {}
        for member in state.open:
            self._lows.setdefault(state.capacity[member], []).append((self.load[member], member))
        for heap in self._lows.values():
            heapify(heap)

    def lowest(self, task: int) -> tuple[float, int]:
        """Return the least load per capacity that the task makes on any member, and that member."""
        weight = self.weight[task]
        best = (inf, UNASSIGNED)
        if self.state.restricted:
            for member in self.state.open:
                if self.slots[member] > 0 and self.state.takes(task, member):
                    best = min(
                        best, (round((self.load[member] + weight) / self.state.capacity[member], PLACES), member)
                    )
            return best
        for capacity, heap in self._lows.items():
            while heap and (heap[0][0] != self.load[heap[0][1]] or self.slots[heap[0][1]] <= 0):
                heappop(heap)
            if heap:
                best = min(best, (round((heap[0][0] + weight) / capacity, PLACES), heap[0][1]))
        return best

    def place(self, task: int) -> None:
        """Place a task that nobody has on the member that it makes lowest."""
        _, member = self.lowest(task)
        if member == UNASSIGNED:
            self.state.wait(task, WaitReason.NO_CAPACITY)
        else:
            self.put(task, member)

    def put(self, task: int, member: int) -> None:
        """Place a task that nobody has."""
        self.state.owner[task] = member
        insort(self.tasks[member], (self.weight[task], task))
        self._change(member, self.weight[task], -1)

    def take(self, task: int, member: int) -> None:
        """Take a task away from a member."""
        self.tasks[member].remove((self.weight[task], task))
        self._change(member, -self.weight[task], 1)

    def _change(self, member: int, weight: float, slots: int) -> None:
        self.load[member] += weight
        self.slots[member] += slots
        heappush(self._lows[self.state.capacity[member]], (self.load[member], member))

    def shed(self, member: int) -> None:
        """Take from a member what goes beyond its limit, lightest first; what fits nowhere else waits."""
        while self.slots[member] < 0 and self.tasks[member]:
            _, task = self.tasks[member][0]
            self.take(task, member)
            self.place(task)

    def _offers(self, member: int) -> list[tuple[float, int]]:
        """Return the tasks to look at when a member is to be lowered: where all may go anywhere, one of each weight."""
        if self.state.restricted:
            return self.tasks[member]
        return list({weight: (weight, task) for weight, task in reversed(self.tasks[member])}.values())

    def lower_one(self) -> bool:
        """Lower the highest load that one task can lower by going elsewhere; return False if there is none."""
        capacity, load = self.state.capacity, self.load
        heights = sorted((-round(load[member] / capacity[member], PLACES), member) for member in self.state.open)
        for negative, member in heights:
            best = (-negative, 0.0, UNASSIGNED, UNASSIGNED)
            for weight, task in self._offers(member):
                height, target = self.lowest(task)
                left = round((load[member] - weight) / capacity[member], PLACES)
                best = min(best, (max(height, left), -weight, task, target))
            if best[3] != UNASSIGNED and best[0] < -negative:
                self.take(best[2], member)
                self.put(best[2], best[3])
                return True
        return False
