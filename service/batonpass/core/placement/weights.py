"""Stateful tasks of different weights: every member near its quota, with few moves.

Near means within the weight of the heaviest stateful task, so each member has a band of loads. Which tasks have to move
for that is a packing problem (NP-hard) and not a flow, so few moves are searched for. A draft of the placement begins
with every task at home, and changes step by step (``_Draft.run``):

1. ``shed``: members above their band, or their limit, give tasks away, heaviest first.
2. ``deal``: tasks without a member go where they are warm, or else where there is least of their subtopology.
3. ``level``: members below their band take tasks: first tasks that move anyway, then as few others as possible. Single
   moves and exchanges correct what limits, pins and topology epochs may have left outside a band.
4. ``spare``: for each move, try whether the other moves are enough without it.
5. ``warm``: tasks that move go to warmer members, directly or in exchange for another task that moves.

Steps 2 to 5 are repeated until none of them changes anything. That ends, because each step improves the draft in this
order: tasks that wait, loads outside of bands, moves, warmth.

Placement promises the band, not the evenest loads. A member is within its band while its load differs from its quota by
no more than the heaviest task. So if a newcomer's quota is no more than that task's weight, and no member is above its
band, nothing moves. A member above its band may give tasks to members that were there before as well as to a newcomer.

A second draft begins with the moves under way already made. It is the answer, unless the first draft has fewer tasks
that wait, better loads or fewer moves. So a group that is placed stays placed, and targets stay as long as nothing that
matters changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain
from math import ceil
from typing import Final, NamedTuple

from batonpass.core.placement.actives import Kind, stateful_tasks
from batonpass.core.placement.quotas import PLACES, pour
from batonpass.core.placement.state import PlacementState
from batonpass.core.state.placement_types import NO_STATE, UNASSIGNED, Copies, Readiness
from batonpass.core.state.reasons import Held

_TOLERANCE: Final = 1e-9
# How many moves ``spare`` tries each time.
_TRIES: Final = 2_000
# With how many tasks of another member ``warm`` tries to exchange a task.
_OTHERS: Final = 8

Rank = tuple[bool, int, int, bool]
_NOWHERE_WARM: Final[Rank] = (True, int(Readiness.COLD), 0, True)


def place_weighted(state: PlacementState) -> int:
    """Give every stateful task a target.

    Returns:
        A number of moves below which no equally balanced placement exists.
    """
    request = state.request
    kind = stateful_tasks(state)
    forced = sum(request.home[task] != member for task, member in request.bound.items() if state.stateful[task])
    draft, fewest = _Draft(state, kind), 0
    if not draft.is_at_rest():
        fewest = 0 if state.limited or state.restricted else _least_moves(draft)
        drafts = [draft]
        if under_way := _under_way(state, kind):
            drafts = [_Draft(state, kind, under_way), draft]
        for candidate in drafts:
            candidate.run(fewest)
        draft = min(drafts, key=lambda candidate: candidate.badness())
    for task in kind.tasks.tolist():
        state.owner[task] = draft.where[task]
        if draft.where[task] == UNASSIGNED:
            state.wait(task, Held.NO_CAPACITY)
    return forced + len(kind.orphans) + fewest


def _under_way(state: PlacementState, kind: Kind) -> dict[int, int]:
    """Return the previous targets that are not the homes; for tasks without a home also where their warmup runs."""
    request, tasks = state.request, set(kind.tasks.tolist())
    orphans = {task: member for task, member in request.warming.items() if request.home[task] == UNASSIGNED}
    return {
        task: member
        for task, member in sorted({**orphans, **request.previous}.items())
        if task in tasks and state.may_be_target[member] and member != request.home[task] and state.takes(task, member)
    }


class _Bands(NamedTuple):
    """Per member the load in proportion to its capacity, and the lowest and highest load that are near enough."""

    quota: list[float]
    low: list[float]
    high: list[float]


def _bands(state: PlacementState, kind: Kind, load: Sequence[float]) -> _Bands:
    request, weight = state.request, state.request.table.weight
    least = list(load) if request.balance_held else [0.0] * len(load)
    for task, member in () if request.balance_held else request.bound.items():
        least[member] += weight[task] if state.stateful[task] else 0.0
    total = sum(load[member] for member in state.eligible) + sum(weight[task] for task in kind.orphans)
    members = len(state.eligible)
    capacity, floors = (
        [state.capacity[member] for member in state.eligible],
        [least[member] for member in state.eligible],
    )
    water = pour([0.0] * members, capacity, floors, [total] * members, total)
    level = water.rest / water.width if water.width else 0.0
    slack = max(request.table.stateful_weights) + _TOLERANCE * max(1.0, total)
    quota = [max(floor, level * share) for floor, share in zip(least, state.capacity, strict=True)]
    high = [max(wanted + slack, floor) for wanted, floor in zip(quota, least, strict=True)]
    return _Bands(quota, [wanted - slack for wanted in quota], high)


class _Draft:
    """A placement in the making.

    Attributes:
        previous: the previous targets. Empty in a draft that begins with every task at home.
        where: per task, its member so far.
        home: per task, the eligible member that has it.
        away: the placed tasks whose member is not their home, or that have no home.
        load: per member, the weight of its stateful tasks.
        slots: per member, how many more tasks its limit allows.
    """

    def __init__(self, state: PlacementState, kind: Kind, under_way: Mapping[int, int] | None = None) -> None:
        self.state = state
        self.kind = kind
        self.previous = under_way or {}
        self.weight = state.request.table.weight
        self.where = list(state.owner)
        for task in kind.orphans:
            self.where[task] = UNASSIGNED
        self.home = list(self.where)
        self.away: set[int] = set()
        self.load = state.stateful_load(self.where)
        self.bands = _bands(state, kind, self.load)
        self.slots: list[int] = [limit - have for limit, have in zip(kind.limit, kind.have.tolist(), strict=True)]
        self._unplaced = set(kind.orphans)
        self._copies: Copies = {}

    def run(self, fewest: int) -> None:
        """Change the draft until nothing improves it. It does not search for fewer moves than ``fewest``."""
        for task, member in self.previous.items():
            self.move(task, member)
        self.shed()
        while self.deal() | self.level() | self.spare(fewest) | self.warm():
            pass

    def is_at_rest(self) -> bool:
        """Say whether every task has a member, within bands and limits."""
        return not self._unplaced and all(
            not self.gap(member) and self.slots[member] >= 0 for member in self.state.eligible
        )

    def badness(self) -> tuple[float, ...]:
        """Return how bad the draft is, without warmth."""
        return len(self._unplaced), self.outside(), len(self.away)

    def outside(self) -> float:
        """Return how far members are outside of their bands, squared: two small gaps are better than a large one."""
        return round(sum(self.gap(member) ** 2 for member in self.state.eligible), PLACES)

    def gap(self, member: int, more: float = 0.0) -> float:
        """Return how far above its band a member would be with ``more`` load; negative: below it."""
        load = self.load[member] + more
        return min(0.0, load - self.bands.low[member]) + max(0.0, load - self.bands.high[member])

    def fullness(self, member: int) -> float:
        return (self.load[member] - self.bands.quota[member]) / self.state.capacity[member]

    def move(self, task: int, member: int) -> None:
        """Put a task on another member, or (``UNASSIGNED``) on none."""
        source = self.where[task]
        if source != UNASSIGNED:
            self.load[source] -= self.weight[task]
            self.slots[source] += 1
        if member != UNASSIGNED:
            self.load[member] += self.weight[task]
            self.slots[member] -= 1
        self.where[task] = member
        (self._unplaced.add if member == UNASSIGNED else self._unplaced.discard)(task)
        (self.away.discard if member in {UNASSIGNED, self.home[task]} else self.away.add)(task)

    def fits(self, task: int, member: int) -> bool:
        """Say whether a member may have a task and stays within its band."""
        return self.has_room(task, member) and self.load[member] + self.weight[task] <= self.bands.high[member]

    def has_room(self, task: int, member: int) -> bool:
        """Say whether a member may have a task, whatever its load."""
        return self.slots[member] > 0 and self.state.takes(task, member)

    def lowest(self, task: int, *, beyond_bands: bool) -> int:
        """Return the lowest member that a task fits, or else one with room for it; ``UNASSIGNED`` if there is none."""
        fit = [(self.fullness(member), member) for member in self.state.eligible if self.fits(task, member)]
        if beyond_bands and not fit:
            fit = [(self.fullness(member), member) for member in self.state.eligible if self.has_room(task, member)]
        return min(fit, default=(0.0, UNASSIGNED))[1]

    def at_home(self) -> list[int]:
        """Return the tasks that may leave their homes and have not done so. During a pause there are none."""
        if self.state.request.balance_held:
            return []
        return [task for task in self.kind.tasks.tolist() if self.where[task] == self.home[task] != UNASSIGNED]

    def turn(self, task: int) -> tuple[int, ...]:
        """Return the order in which tasks of equal weight are given away.

        Of tasks that move anyway, those whose present member is the worst for them come first. Of others, first come
        those that were under way, then those with little state.
        """
        request = self.state.request
        if task in self.away:
            return *(-part for part in self.rank(task, self.where[task])), task
        size = request.state_size.get(task, 0)
        return task not in request.warming, task not in self.previous, size, task

    def need(self, task: int) -> int:
        """Return the topology epoch that a task needs, or 0 if epochs do not matter. Fewer members know a high one."""
        return self.state.request.table.topology_epoch[task] if self.state.restricted else 0

    def shed(self) -> None:
        """Let members above their bands give away what fits elsewhere, and members above their limits the excess."""
        over = {member for member in self.state.eligible if self.gap(member) > 0 or self.slots[member] < 0}
        if not over:
            return
        lacking = _Lacking(self)
        tasks = [task for task in {*self.away, *self.kind.tasks.tolist()} if self.where[task] in over]
        tasks.sort(key=lambda task: (self.need(task), task not in self.away, -self.weight[task], self.turn(task)))
        for task in tasks:
            source = self.where[task]
            beyond_limit = self.slots[source] < 0
            free = task in self.away or not self.state.request.balance_held
            if beyond_limit or (self.gap(source) > 0 and free):
                target = lacking.deepest()
                if target == UNASSIGNED or not self.fits(task, target):
                    target = self.lowest(task, beyond_bands=beyond_limit)
                if target != UNASSIGNED or beyond_limit:
                    self.move(task, target)
                    lacking.note(source)

    def deal(self) -> bool:
        """Place tasks without a member: where they are warm, or else where there is least of their subtopology."""
        tasks = sorted(self._unplaced)
        for _, _, task, member in self.wishes(tasks):
            if task in self._unplaced and self.fits(task, member):
                self.move(task, member)
        rest = sorted(self._unplaced, key=lambda task: (-self.need(task), -self.weight[task], task))
        evenness = _Evenness(self) if rest else None
        for task in rest:
            member = evenness.best(task) if evenness else UNASSIGNED
            if member == UNASSIGNED:
                member = self.lowest(task, beyond_bands=True)
            self.move(task, member if member != UNASSIGNED else self._make_room(task))
        return len(self._unplaced) < len(tasks)

    def _make_room(self, task: int) -> int:
        """Move an older task from a member that may have this one to a member that may not. Return the first member."""
        ways = [
            (self.turn(other), other, place)
            for other in ([*self.away, *self.at_home()] if self.state.restricted else ())
            if self.state.takes(task, self.where[other])
            for place in self.state.eligible
            if self.has_room(other, place)
        ]
        if not ways:
            return UNASSIGNED
        _, other, place = min(ways)
        member = self.where[other]
        self.move(other, place)
        return member

    def wishes(self, tasks: Collection[int]) -> list[tuple[Rank, float, int, int]]:
        """Return where tasks would be better than at any other member: (how good, weight, task, member), sorted."""
        request, ranked = self.state.request, []
        self._copies = request.warmth(tasks, self.state.eligible) if tasks else {}
        for task in tasks:
            some = {request.warming.get(task, UNASSIGNED), self.previous.get(task, UNASSIGNED)}
            for member in sorted({*self._copies.get(task, ()), *some} - {self.home[task], UNASSIGNED}):
                rank = self.rank(task, member)
                if rank < _NOWHERE_WARM and self.state.may_be_target[member] and self.state.takes(task, member):
                    ranked.append((rank, self.weight[task], task, member))
        return sorted(ranked)

    def rank(self, task: int, member: int) -> Rank:
        """Return how good a member is for a task that moves, lower is better: running warmup, warmth, then target."""
        known = self._copies.get(task, {}).get(member, NO_STATE)
        ready = max(int(Readiness.CAUGHT_UP), known.ready_class)
        lag = known.lag if Readiness.CAUGHT_UP < ready < Readiness.COLD else 0
        return self.state.request.warming.get(task) != member, ready, lag, self.previous.get(task) != member

    def level(self) -> bool:
        """Bring members up into their bands, then correct what is still outside."""
        done = self._fill(self.away) | self._fill(self.at_home())
        outside = [member for member in self.state.eligible if self.gap(member)]
        tasks = [*self.away, *self.at_home()] if outside else []
        for member in outside:
            done |= self._exchange(member, tasks)
        return done

    def _fill(self, tasks: Collection[int]) -> bool:
        """Bring members up into their bands with some of these tasks."""
        lacking, done = _Lacking(self), False
        surplus = _Surplus(self, tasks) if lacking.deepest() != UNASSIGNED else None
        while surplus and (member := lacking.deepest()) != UNASSIGNED:
            task = surplus.take(self.bands.low[member] - self.load[member], member)
            if task == UNASSIGNED:
                lacking.drop()
            else:
                self.move(task, member)
                done = True
        return done

    def _exchange(self, member: int, tasks: Collection[int]) -> bool:
        """Bring a member closer to its band by moves from and to it and by exchanges, the best first."""
        done = False
        while self.gap(member) and (best := self._best_exchange(member, tasks)):
            given, taken, place = best
            for task, target in ((given, place), (taken, member)):
                if task != UNASSIGNED:
                    self.move(task, target)
            done = True
        return done

    def _best_exchange(self, member: int, tasks: Collection[int]) -> tuple[int, int, int] | None:
        """Return a task to give and a task to take (``UNASSIGNED`` for none), and the other member."""
        # Tasks of equal weight, member and topology epoch are interchangeable.
        alike: dict[tuple[int, float, int], int] = {}
        for task in sorted(tasks, key=self.turn):
            alike.setdefault((self.where[task], self.weight[task], self.need(task)), task)
        by_member: dict[int, list[int]] = defaultdict(lambda: [UNASSIGNED])
        for (place, _, _), task in alike.items():
            by_member[place].append(task)
        exchanges = []
        for place in (other for other in self.state.eligible if other != member):
            before = self.gap(member) ** 2 + self.gap(place) ** 2
            for given in by_member[member]:
                for taken in by_member[place]:
                    more = sum(
                        self.weight[moved] * sign for moved, sign in ((taken, 1), (given, -1)) if moved != UNASSIGNED
                    )
                    after = self.gap(member, more) ** 2 + self.gap(place, -more) ** 2
                    may = self._may_go(given, place, taken) and self._may_go(taken, member, given)
                    if after < before - _TOLERANCE and may:
                        exchanges.append((round(after - before, PLACES), given, taken, place))
        return min(exchanges)[1:] if exchanges else None

    def _may_go(self, task: int, member: int, leaving: int) -> bool:
        """Say whether a member may have a task when another task, if there is one, leaves it."""
        if task == UNASSIGNED:
            return True
        return (self.slots[member] > 0 or leaving != UNASSIGNED) and (
            self.home[task] == member or self.state.takes(task, member)
        )

    def spare(self, fewest: int) -> bool:
        """Bring home the tasks that need not move, those that are not under way first."""
        request, done = self.state.request, False
        moved = [task for task in self.away if self.home[task] != UNASSIGNED]
        count = len(moved)
        moved.sort(key=lambda task: (task in request.warming, task in self.previous, self.weight[task], task))
        for task in moved[:_TRIES]:
            source, home = self.where[task], self.home[task]
            if count <= fewest:
                break
            if task not in self.away or not self._may_go(task, home, UNASSIGNED):
                continue
            if self.load[home] + self.weight[task] > self.bands.high[home]:
                continue
            before, outside = {away_task: self.where[away_task] for away_task in self.away}, self.outside()
            self.move(task, home)
            if self.gap(source) < 0:
                self._fill(self.away)
                self._exchange(source, self.away)
            if self.outside() <= outside:
                done = True
                count -= 1
                continue
            for away_task, member in before.items():
                if self.where[away_task] != member:
                    self.move(away_task, member)
        return done

    def warm(self) -> bool:
        """Let tasks that move go to warmer members, directly or in exchange for another task that moves."""
        done = False
        there: dict[int, set[int]] = defaultdict(set)
        for task in self.away:
            there[self.where[task]].add(task)
        for rank, _, task, member in self.wishes(sorted(self.away)):
            source = self.where[task]
            if rank >= self.rank(task, source):
                continue
            others = chain([UNASSIGNED], sorted(there[member])[:_OTHERS])
            other = next((other for other in others if self._is_better(task, other, member)), None)
            if other is None:
                continue
            for moved_task, place in ((task, member), (other, source)):
                if moved_task != UNASSIGNED:
                    there[self.where[moved_task]].discard(moved_task)
                    there[place].add(moved_task)
                    self.move(moved_task, place)
            done = True
        return done

    def _is_better(self, task: int, other: int, member: int) -> bool:
        """Say whether a task may go to a warmer member, and another may come back for it, without any loss."""
        source = self.where[task]
        more = self.weight[task] - (self.weight[other] if other != UNASSIGNED else 0.0)
        if abs(self.gap(member, more)) > abs(self.gap(member)) or abs(self.gap(source, -more)) > abs(self.gap(source)):
            return False
        if other == UNASSIGNED:
            return self.slots[member] > 0
        if self.home[other] == source or not self.state.takes(other, source):
            return False
        return self.rank(other, source) <= self.rank(other, member)


class _Lacking:
    """The members below their bands that have a free slot, those that lack most first."""

    def __init__(self, draft: _Draft) -> None:
        self._draft = draft
        self._heap = [(gap, member) for member in draft.state.eligible if (gap := draft.gap(member)) < 0]
        heapify(self._heap)

    def deepest(self) -> int:
        """Return the member that lacks most; ``UNASSIGNED`` if there is none."""
        heap, draft = self._heap, self._draft
        while heap:
            gap, member = heap[0]
            now = draft.gap(member)
            if now >= 0 or draft.slots[member] <= 0:
                heappop(heap)
            elif now != gap:
                heapreplace(heap, (now, member))
            else:
                return member
        return UNASSIGNED

    def note(self, member: int) -> None:
        """Take into account that a member has less than before."""
        if self._draft.gap(member) < 0:
            heappush(self._heap, (self._draft.gap(member), member))

    def drop(self) -> None:
        """Leave out the member that lacks most from now on."""
        heappop(self._heap)


class _Surplus:
    """What members can give without falling below their bands, by weight. Within a weight the fullest gives first."""

    def __init__(self, draft: _Draft, tasks: Iterable[int]) -> None:
        self._draft = draft
        self._by_weight: dict[tuple[float, int], list[int]] = defaultdict(list)
        for task in sorted(tasks, key=draft.turn, reverse=True):
            self._by_weight[draft.weight[task], draft.where[task]].append(task)
        self._heaps: dict[float, list[tuple[float, int]]] = defaultdict(list)
        for weight, member in self._by_weight:
            self._heaps[weight].append((-draft.fullness(member), member))
        for heap in self._heaps.values():
            heapify(heap)
        self._weights = sorted(self._heaps)

    def take(self, lack: float, taker: int) -> int:
        """Take the lightest task that makes up for the lack, or else the heaviest; ``UNASSIGNED`` if there is none."""
        enough = bisect_left(self._weights, lack)
        for place in chain(range(enough, len(self._weights)), range(enough - 1, -1, -1)):
            task = self._take(self._weights[place], taker)
            if task != UNASSIGNED:
                return task
        return UNASSIGNED

    def _take(self, weight: float, taker: int) -> int:
        """Take a task of one weight, for this taker, from the fullest member that has one."""
        draft, heap, passed_over = self._draft, self._heaps[weight], []
        task = UNASSIGNED
        while heap and task == UNASSIGNED:
            entry, member = heap[0], heap[0][1]
            now, at_weight = (-draft.fullness(member), member), self._by_weight[weight, member]
            if not at_weight or draft.load[member] - weight < draft.bands.low[member]:
                heappop(heap)
            elif now != entry:
                heapreplace(heap, now)
            else:
                may = (
                    candidate
                    for candidate in reversed(at_weight)
                    if draft.home[candidate] != taker and draft.state.takes(candidate, taker)
                )
                task = next(may, UNASSIGNED)
                if task == UNASSIGNED:
                    passed_over.append(heappop(heap))
                else:
                    at_weight.remove(task)
        for entry in passed_over:
            heappush(heap, entry)
        return task


class _Evenness:
    """Finds the member that has least of a subtopology beyond its even part, per capacity."""

    def __init__(self, draft: _Draft) -> None:
        table, state = draft.state.request.table, draft.state
        self._draft = draft
        self._subtopology = table.subtopology
        self._counts = Counter(zip(draft.where, table.subtopology, strict=True))
        total = sum(state.capacity[member] for member in state.eligible)
        self._part = {subtopology: size / total for subtopology, size in Counter(table.subtopology).items()}
        self._heaps: dict[int, list[tuple[float, float, int]]] = {}

    def _entry(self, member: int, subtopology: int) -> tuple[float, float, int]:
        capacity, beyond = self._draft.state.capacity[member], 0.0
        if len(self._part) > 1:
            beyond = (2 * (self._counts[member, subtopology] - self._part[subtopology] * capacity) + 1) / capacity
        return beyond, self._draft.fullness(member), member

    def best(self, task: int) -> int:
        """Return the member that a task fits best, and count the task there; ``UNASSIGNED`` if there is none."""
        subtopology = self._subtopology[task]
        heap = self._heaps.get(subtopology)
        if heap is None:
            heap = [self._entry(member, subtopology) for member in self._draft.state.eligible]
            heapify(heap)
            self._heaps[subtopology] = heap
        while heap:
            entry = self._entry(heap[0][2], subtopology)
            if entry != heap[0]:
                heapreplace(heap, entry)
            elif self._draft.fits(task, entry[2]):
                self._counts[entry[2], subtopology] += 1
                return entry[2]
            else:
                # Heavier tasks come first, so a member without room for one is full, or nearly so.
                heappop(heap)
        return UNASSIGNED


def _least_moves(draft: _Draft) -> int:
    """Return how many tasks that have an owner must move at least, wherever orphans go.

    A member above its band gives the fewest tasks if it gives its heaviest ones. A member below its band gets the
    fewest if it gets the heaviest of all. The tasks that it gets are orphans, or tasks that move.
    """
    state, weight, load, bands = draft.state, draft.weight, draft.load, draft.bands
    over = {member: excess for member in state.eligible if (excess := load[member] - bands.high[member]) > 0}
    lacks = [lack for member in state.eligible if (lack := bands.low[member] - load[member]) > 0]
    if not over and not lacks:
        return 0
    orphans = Counter(weight[task] for task in draft.kind.orphans)
    movable = Counter(weight[task] for task in state.request.bound if state.stateful[task])
    has: dict[int, Counter[float]] = {member: Counter() for member in over}
    for task in draft.kind.tasks.tolist():
        if draft.home[task] != UNASSIGNED:
            movable[weight[task]] += 1
            if draft.home[task] in over:
                has[draft.home[task]][weight[task]] += 1
    given = sum(_how_many(_heaviest(has[member]), excess) for member, excess in over.items())
    every = _heaviest(movable + orphans)
    needed = sum(_how_many(every, lack) for lack in lacks) - orphans.total()
    rest = sum(lacks) - sum(each * count for each, count in orphans.items())
    return max(given, needed, _how_many(_heaviest(movable), rest))


def _heaviest(weights: Counter[float]) -> list[tuple[float, int]]:
    return sorted(weights.items(), reverse=True)


def _how_many(heaviest: Iterable[tuple[float, int]], lack: float) -> int:
    """Return how many tasks make up for a lack, given how many there are of each weight, the heaviest first."""
    taken = 0
    for weight, count in heaviest:
        if lack <= 0:
            break
        some = min(count, ceil(lack / weight))
        lack -= some * weight
        taken += some
    return taken
