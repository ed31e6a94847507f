"""Target standbys: apart by tags, level, with few new copies, on warm members first, and one owner's copies spread out.

A copy that exists and may stay is kept. Missing copies, and copies of which members have too many, are exchanged in the
same way as actives. Where tags do not distinguish members, all missing copies of a task are placed at once, otherwise
one copy of each task after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from batonpass.placement.actives import ranks
from batonpass.placement.blocks import Blocks
from batonpass.placement.exchange import Exchange, Floats, Move, TaskClass, Wish
from batonpass.placement.flow import Ints
from batonpass.placement.quotas import PLACES, Cohort, Division, Quotas, level_quotas
from batonpass.placement.state import Marks, PlacementState, Wishes
from batonpass.placement.tags import Tags
from batonpass.placement.types import NO_STATE, UNASSIGNED, Readiness, Warmth

LEVELS: Final = ("wait", "apart", "balance", "height", "move", "unready", "cold", "restore", "even", "size")

# In groups up to this many members, each member has an arc of its own from every class, and the costs include how many
# copies of each owner it has. In larger groups members that are alike share an arc, and dealing spreads the copies.
_SINGLE: Final = 64
# The most rounds. One or two are enough, except where limits or tags bind.
_ROUNDS: Final = 8
# How many ways to spread a task's copies over kinds of members are compared.
_WAYS: Final = 100
# A group is small up to this many copies times members. In a small group every member gives and takes at once, and a
# class also has the members with the other copies of a task.
_SMALL: Final = 1 << 16


def place_standbys(state: PlacementState) -> tuple[list[tuple[int, ...]], dict[int, int]]:
    """Return the target standbys of every task, and how many each task lacks, for those that lack any."""
    request = state.request
    if not state.eligible:
        # Nothing moves, but the number of copies follows the group's present settings.
        return [_warmest(state, task, held) for task, held in enumerate(request.standbys)], {}
    if not request.num_standby_replicas:
        return [()] * len(state.owner), {}
    standbys = _Standbys(state)
    for _ in range(_ROUNDS):
        if not standbys.improve():
            break
    return standbys.all_copies(), standbys.short()


def _warmest(state: PlacementState, task: int, held: tuple[int, ...]) -> tuple[int, ...]:
    """Return the standbys that a task keeps while no member may be given anything: the warmest, as many as wanted."""
    request, others = state.request, tuple(member for member in held if member != state.owner[task])
    wanted = request.num_standby_replicas if request.table.stateful[task] else 0
    if len(others) <= wanted:
        return others
    known = request.warmth([task], others).get(task, {})
    ranked = sorted((known.get(member, NO_STATE), member) for member in others)
    return tuple(sorted(member for _, member in ranked[:wanted]))


class _Slots(NamedTuple):
    """Copies that each of some tasks lacks, to go to members of one kind; None: wherever tags want them."""

    kind: int | None
    amount: int
    tasks: list[int]


class _Standbys:
    """Standbys in the making.

    Attributes:
        copies: per task, the members of its target standbys so far, ascending.
    """

    def __init__(self, state: PlacementState) -> None:
        request = state.request
        self._state = state
        self._tags = Tags(request.members, state.eligible, request.rack_aware_tags)
        self._owner = np.array(state.owner, np.int64)
        self._need = np.array(request.table.topology_epoch, np.int64)
        self._had = np.fromiter(map(len, request.standbys), np.int64, len(request.standbys))
        standing = state.stateful & (self._owner != UNASSIGNED)
        others = len(state.eligible) - state.may_be_target[self._owner].astype(np.int64)
        self.copies: list[tuple[int, ...]] = list(request.standbys)
        for task in np.flatnonzero(~standing).tolist():
            self.copies[task] = ()
        self._kept_apart = self._set_apart()
        self._lacks = np.full(len(state.owner), request.num_standby_replicas)
        for task, kept in self._kept_apart.items():
            self._lacks[task] -= len(kept)
        self._wanted = np.where(standing, np.minimum(self._lacks, others), 0)
        self._there = list(self.copies)
        self._owned = state.count(self._owner[standing])
        actives = state.count(self._owner)
        self._actives: list[int] = actives.tolist()
        room = np.minimum(np.array(state.limit) - actives, np.array(state.stateful_limit) - self._owned)
        self._most = np.minimum(np.maximum(0, room), int(standing.sum()) - self._owned)
        self._most[~state.may_be_target[:-1]] = 0
        # The most standbys of one owner's tasks that another member should have.
        self._part: list[int] = (
            -(-self._owned * request.num_standby_replicas // max(1, len(state.eligible) - 1))
        ).tolist()
        self._weighs_pairs = len(state.capacity) <= _SINGLE
        self._is_small = int(self._wanted.sum()) * len(state.eligible) <= _SMALL
        self._busy: set[int] = set()
        self._count_copies()

    def _set_apart(self) -> dict[int, tuple[int, ...]]:
        """Take the copies of missing members out of what is placed, and return by task those that stay."""
        request = self._state.request
        missing = {index for index, member in enumerate(request.members) if member.keeps_copies}
        apart: dict[int, tuple[int, ...]] = {}
        for task, held in enumerate(self.copies) if missing else ():
            if not missing.isdisjoint(held):
                self.copies[task] = tuple([member for member in held if member not in missing])
                kept = [member for member in held if member in missing and member != self._state.owner[task]]
                apart[task] = tuple(kept[: max(0, request.num_standby_replicas - len(self.copies[task]))])
        return apart

    def all_copies(self) -> list[tuple[int, ...]]:
        """Return the standbys of every task, ascending, with those that missing members keep."""
        copies = list(self.copies)
        for task, kept in self._kept_apart.items():
            copies[task] = tuple(sorted((*copies[task], *kept)))
        return copies

    def short(self) -> dict[int, int]:
        lacks = self._lacks - self._lengths
        short = np.flatnonzero(self._state.stateful & (self._owner != UNASSIGNED) & (lacks > 0))
        return dict(zip(short.tolist(), lacks[short].tolist(), strict=True))

    def improve(self) -> bool:
        """Drop the copies that cannot stay, and exchange once. Return whether anything changed.

        What is complete and level stays as it is, so placing a group that is placed changes nothing.

        In a small group every member gives and takes. In larger groups, at first members with too many copies give,
        members with too few take, and members with state of a task that lacks a copy do both: they take that copy and
        pass another on. If that changes nothing, every member gives and takes. The same holds where limits or topology
        epochs may keep copies from where tags want them: copies on a worse block then have to count, and levelling
        some of the members first would hide them.
        """
        self._there = list(self.copies)
        self._drop_misplaced()
        missing = self._missing()
        quota = self._quota(missing)
        floors = np.array(quota.floors)
        level = (floors <= self._count) & (self._count <= floors + quota.fractional)
        if not missing and level[self._state.eligible].all():
            return False
        bent = self._tags.kinds > 1 and (self._state.limited or self._state.restricted)
        if not bent and not self._is_small:
            self._exchange(missing, quota, everybody=False)
            if self.copies != self._there:
                return True
        self._exchange(missing, quota, everybody=True)
        return self.copies != self._there

    def _count_copies(self) -> None:
        """Index all copies, and number the tasks: equal numbers if tags and topology epochs do not tell them apart."""
        self._lengths = np.fromiter(map(len, self.copies), np.int64, len(self.copies))
        self._task = np.repeat(np.arange(len(self.copies)), self._lengths)
        self._holder = np.fromiter(chain.from_iterable(self.copies), np.int64, len(self._task))
        self._count = self._state.count(self._holder)
        self._pattern = self._alike(self._tags.kind) if self._tags.kinds > 1 else np.zeros(len(self._owner), np.int64)
        if self._state.restricted:
            self._pattern = _numbered(self._pattern, self._need)
        self._pairs: dict[int, Counter[int]] = {}
        self._by_owner: tuple[Ints, Ints] | None = None

    def _alike(self, kinds: Sequence[int]) -> Ints:
        """Number the tasks: the same number if the owners, and the other copies, are on members of equal kinds."""
        kind = np.array([*kinds, -1])
        order = np.lexsort((kind[self._holder], self._task))
        task, holders = self._task[order], kind[self._holder[order]]
        turn = np.arange(len(task)) - np.searchsorted(task, task)
        others = np.full((int(turn.max(initial=-1)) + 1, len(self.copies)), -1)
        others[turn, task] = holders
        return _numbered(kind[self._owner], *others)

    def _drop_misplaced(self) -> None:
        """Drop copies that cannot stay: a second copy, on members that leave or do not know the task, or too many."""
        state, task, holder = self._state, self._task, self._holder
        wrong = (holder == self._owner[task]) | ~state.may_be_target[holder]
        if state.restricted:
            epochs = np.array([member.topology_epoch for member in state.request.members])
            wrong |= epochs[holder] < self._need[task]
        misplaced = self._lengths > self._wanted
        misplaced[task[wrong]] = True
        if self._tags.kinds > 1:
            some = np.flatnonzero(self._lengths)
            misplaced[some] |= _per_class(self._pattern[some], some, self._is_misplaced) > 0
        dropped = np.flatnonzero(misplaced).tolist()
        if not dropped:
            return
        known = state.request.warmth(dropped, state.eligible)
        for each in dropped:
            kept = self._kept(each, known.get(each, {}))
            for member in self.copies[each]:
                self._count[member] -= member not in kept
            self.copies[each] = tuple(sorted(kept))
        self._count_copies()

    def _kinds_of(self, task: int) -> tuple[int, tuple[int, ...]]:
        kind = self._tags.kind
        return kind[self._state.owner[task]], tuple(sorted([kind[member] for member in self.copies[task]]))

    def _is_misplaced(self, task: int) -> int:
        return not self._tags.apart(*self._kinds_of(task))

    def _is_free(self, task: int) -> int:
        owner, others = self._kinds_of(task)
        return self._tags.is_free((owner, *others))

    def _kept(self, task: int, known: Mapping[int, Warmth]) -> list[int]:
        """Return the copies of a task that may stay: where tags want them, the warmest first, on members with few."""
        state, kind = self._state, self._tags.kind
        left = [
            member
            for member in self.copies[task]
            if member != state.owner[task] and state.may_be_target[member] and state.takes(task, member)
        ]

        def order(member: int) -> tuple[tuple[int, ...], float, int]:
            degree = known.get(member, NO_STATE)
            level = round(int(self._count[member]) / state.capacity[member], PLACES)
            return (() if degree.ready_class <= Readiness.CAUGHT_UP else tuple(degree)), level, member

        kept: list[int] = []
        on = [kind[state.owner[task]]]
        for _ in range(int(self._wanted[task])):
            best = self._tags.tiers(tuple(sorted(on)))[:1]
            if not best:
                break
            fit = sorted((member for member in left if kind[member] in best[0]), key=order)
            # If no copy is on one of the best kinds, a new copy will be placed there beside the existing ones.
            on.append(kind[fit[0]] if fit else best[0][0])
            kept += fit[:1]
            left = [member for member in left if member not in fit[:1]]
        return kept

    def _missing(self) -> list[_Slots]:
        """Return what tasks lack: all copies at once, or, where tags distinguish members, separately for each kind.

        The kinds are chosen here for tasks that lack several copies: those whose highest level stays lowest. They are
        not chosen where limits or topology epochs may bring two copies to one kind. Then both copies are in one class,
        of which no member gets two copies of a task.
        """
        state, tags, kind = self._state, self._tags, self._tags.kind
        amounts = np.maximum(0, self._wanted - self._lengths)
        by_kind = np.zeros(len(amounts), np.bool_)
        if tags.kinds > 1 and not state.limited and not state.restricted:
            several = np.flatnonzero(amounts > 1)
            by_kind[several] = _per_class(self._pattern[several], several, self._is_free) == 0
        whole = np.flatnonzero((amounts > 0) & ~by_kind)
        missing = [_Slots(None, int(amounts[some[0]]), some.tolist()) for some in _split_by(whole, amounts[whole])]
        slots: dict[tuple[int, int], list[int]] = {}
        capacity, given = [0.0] * tags.kinds, [0.0] * tags.kinds
        for member in state.eligible:
            capacity[kind[member]] += state.capacity[member]
            given[kind[member]] += self._count[member]
        for task in np.flatnonzero(by_kind).tolist():
            owner, others = self._kinds_of(task)
            chosen = min(
                tags.ways((owner, *others), int(amounts[task]), _WAYS),
                key=lambda way: sorted(
                    ((given[each_kind] + way.count(each_kind)) / capacity[each_kind] for each_kind in way), reverse=True
                ),
            )
            for each_kind in sorted(set(chosen)):
                given[each_kind] += chosen.count(each_kind)
                slots.setdefault((each_kind, chosen.count(each_kind)), []).append(task)
        return [*missing, *(_Slots(*key, tasks) for key, tasks in slots.items())]

    def _quota(self, missing: Sequence[_Slots]) -> Quotas:
        """Return how many standbys each member should hold, once the missing ones are placed, as level as possible."""
        state = self._state
        least, most = [0] * len(state.capacity), self._most.tolist()
        lacking = sum(slots.amount * len(slots.tasks) for slots in missing)
        count = min(int(self._count[state.eligible].sum()) + lacking, sum(most))

        def final(members: Sequence[int], some: int) -> Quotas:
            load, capacity = (
                [self._actives[member] for member in members],
                [state.capacity[member] for member in members],
            )
            return level_quotas(load, capacity, [0] * len(members), [most[member] for member in members], some)

        members: list[list[int]] = []
        cohorts = [Cohort(count, (), UNASSIGNED)]
        if self._tags.kinds > 1 or state.restricted:
            blocks = Blocks(state, self._tags, state.eligible, size=len(state.eligible), strict=True)
            tally = Counter(self._reach_of_copies(blocks, self._task, self._holder).tolist())
            for slots in missing:
                for reach in self._reach_of_missing(blocks, slots).tolist():
                    tally[reach] += slots.amount
            members = blocks.members
            cohorts = [
                Cohort(amount, tuple(block for block, _ in blocks.reach[reach]), UNASSIGNED)
                for reach, amount in sorted(tally.items())
            ]
        return Division(cohorts, members, state.shares, least, most, final, self._actives).solve(state.eligible)

    def _exchange(self, missing: Sequence[_Slots], quota: Quotas, *, everybody: bool) -> None:
        state, floors = self._state, np.array(quota.floors)
        gives = takes = state.may_be_target[:-1]
        if not everybody:
            warm = self._warm_for(missing)
            gives = gives & (warm | (self._count > floors))
            takes = takes & (warm | (self._count < floors + quota.fractional))
        takers = np.flatnonzero(takes).tolist()
        self._blocks = Blocks(
            state, self._tags, takers, size=len(takers) if len(takers) > _SINGLE else 1, strict=not everybody
        )
        self._busy = set()
        classes, cold = self._classes(missing, gives, takes)
        counts, even = self._evenness()
        heights = [
            (load + low + 1) / share
            for load, low, share in zip(self._actives, quota.floors, state.capacity, strict=True)
        ]
        exchange = Exchange(
            levels=LEVELS,
            have=self._count.copy(),
            quota=quota,
            most=self._most,
            ceiling={"height": ranks(heights)},
            cold=cold,
            blocks=self._blocks.members,
            reach=self._blocks.reach,
            counts=counts,
            even=even,
            width=state.width,
            solver=state.solver,
            choice=self,
        )
        for move in exchange.solve(classes):
            # What goes to a member was noted when it was dealt.
            if move[1] != UNASSIGNED and move[2] == UNASSIGNED:
                self.note(move)
        self._count_copies()

    def _warm_for(self, missing: Sequence[_Slots]) -> Marks:
        """Return for every member whether it has state of a task that lacks a copy."""
        state, lacking = self._state, [*chain.from_iterable(slots.tasks for slots in missing)]
        warm = np.zeros(len(state.capacity), np.bool_)
        homes = state.home[lacking]
        warm[homes[(homes != UNASSIGNED) & (homes != self._owner[lacking])]] = True
        for task, known in state.request.warmth(lacking, state.eligible).items():
            warm[[member for member in known if member != state.owner[task] and member not in self.copies[task]]] = True
        return warm

    def _evenness(self) -> tuple[Ints, Floats]:
        """Return how many of each owner's copies members have, and how many would be even, if the group weighs that."""
        state, members = self._state, len(self._state.capacity)
        if not self._weighs_pairs:
            return self._count[:, None], np.zeros((members, 1))
        task, holder = self._task, self._holder
        counts = np.bincount(holder * members + self._owner[task], minlength=members**2).reshape(members, members)
        width = np.where(state.may_be_target[:-1], state.width, 0)[:, None] * ~np.eye(members, dtype=np.bool_)
        whole = self._owned * state.request.num_standby_replicas
        return counts, width * whole / np.maximum(width.sum(axis=0), 1e-9)

    def _classes(
        self, missing: Sequence[_Slots], gives: Marks, takes: Marks
    ) -> tuple[list[TaskClass], Mapping[str, int]]:
        """Return the missing copies, the copies that members could give, and the cost of a cold place."""
        state = self._state
        lacking = np.zeros(len(self.copies), np.bool_)
        lacking[[*chain.from_iterable(slots.tasks for slots in missing)]] = True
        # A task that lacks a copy keeps its others where they are, except those above a limit.
        above = (self._count > self._most) & gives
        offered = above[self._holder] | (gives[self._holder] & ~lacking[self._task])
        given, sources = self._task[offered], self._holder[offered]
        tasks = {*np.flatnonzero(lacking).tolist(), *given.tolist()}
        wishes = Wishes(state.request.warmth(tasks, np.flatnonzero(takes | above).tolist()))
        special = self._special(wishes, takes)
        classes = [*self._missing_classes(missing, wishes, special)]
        reaches = self._reach_of_copies(self._blocks, given, sources)
        parts = self._owner[given] if self._weighs_pairs else np.zeros(len(given), np.int64)
        alike = _numbered(sources, reaches, parts)
        if self._is_small:
            alike = _numbered(alike, self._alike(range(len(state.capacity)))[given])
        plain = ~special[given] & ~above[sources]
        for some in _split_by(np.flatnonzero(plain), alike[plain]):
            first = some[0]
            task, reach = int(given[first]), int(reaches[first])
            here = {state.owner[task], *self.copies[task]} if self._is_small else set()
            excluded = frozenset(here & self._blocks.allowed[reach])
            classes.append(
                TaskClass(int(sources[first]), int(parts[first]), reach, excluded=excluded, tasks=given[some].tolist())
            )
        keyed: dict[tuple[object, ...], TaskClass] = {}
        for task, source, reach, part in zip(
            *(each[~plain].tolist() for each in (given, sources, reaches, parts)), strict=True
        ):
            key = (source, part, *self._key(wishes, task, source, reach, 1)[2:])
            give = wishes.chill(task, source) if above[source] else 0
            task_class = keyed.get((*key, give))
            if task_class is None:
                task_class = keyed[*key, give] = TaskClass(*key, give=give, wait=1 if above[source] else None)
            task_class.tasks.append(task)
        return [*classes, *keyed.values()], wishes.cold

    def _special(self, wishes: Wishes, takes: Marks) -> Marks:
        """Return for every task whether some member that takes copies differs from the others for it."""
        state = self._state
        special: Marks = takes[state.home] & (state.home != UNASSIGNED) & (state.home != self._owner)
        taking = {*np.flatnonzero(takes).tolist()}
        for task, known in wishes.copies.items():
            if not taking.isdisjoint(known.keys() - {state.owner[task], *self.copies[task]}):
                special[task] = True
        return special

    def _missing_classes(self, missing: Sequence[_Slots], wishes: Wishes, special: Marks) -> Iterator[TaskClass]:
        """Yield the classes of missing copies. One owner's are alike if no member has, or had, a copy of the task."""
        there = np.fromiter(map(len, self._there), np.int64, len(self._there))
        fresh = ~special & (self._lengths + self._had + there == 0)
        for slots in missing:
            tasks, reaches = np.array(slots.tasks, np.int64), self._reach_of_missing(self._blocks, slots)
            owners, alone = self._owner[tasks], np.where(fresh[tasks], -1, tasks)
            keyed: dict[tuple[object, ...], TaskClass] = {}
            for some in _split_by(np.arange(len(tasks)), _numbered(owners, reaches, alone)):
                task, owner = int(tasks[some[0]]), int(owners[some[0]])
                key = self._key(wishes, task, UNASSIGNED, int(reaches[some[0]]), slots.amount)
                task_class = keyed.get((*key, owner))
                if task_class is None:
                    task_class = keyed[*key, owner] = TaskClass(*key, wait=1)
                    task_class.part = owner if self._weighs_pairs else 0
                task_class.tasks += tasks[some].tolist()
            yield from keyed.values()

    def _key(
        self, wishes: Wishes, task: int, source: int, reach: int, amount: int
    ) -> tuple[int, int, int, int, tuple[Wish, ...], frozenset[int]]:
        """Return the properties by which a copy is sorted into its class."""
        here, allowed = {self._state.owner[task], *self.copies[task]}, self._blocks.allowed[reach]
        request = self._state.request
        # A copy that a moving active leaves at its old owner costs nothing, nor does one that was to be replaced.
        there = {request.home[task], *((*request.standbys[task], *self._there[task]) if source == UNASSIGNED else ())}
        member_wishes: list[Wish] = []
        for member in sorted({*wishes.copies.get(task, ()), *there} & allowed - here):
            wish = _there(member) if member in there else wishes.wish(task, member)
            member_wishes.append(wish._replace(apart=self._blocks.price(reach, member)))
        barred = {wish.member for wish in member_wishes if wish.cold > 1 or amount > 1}
        return source, 0, reach, amount, tuple(member_wishes), frozenset((here & allowed) | barred)

    def _reach_of_copies(self, blocks: Blocks, tasks: Ints, holders: Ints) -> Ints:
        """Return for each existing copy the set of blocks that may have it instead."""
        kinds = np.array(self._tags.kind)[holders]

        def reach(place: int) -> int:
            task, holder = int(tasks[place]), int(holders[place])
            others = [member for member in self.copies[task] if member != holder]
            return blocks.of(task, self._state.owner[task], others, moves=True)

        return _per_class(_numbered(self._pattern[tasks], kinds), np.arange(len(tasks)), reach)

    def _reach_of_missing(self, blocks: Blocks, slots: _Slots) -> Ints:
        """Return for each missing copy the set of blocks that may have it."""
        tasks = np.array(slots.tasks, np.int64)
        return _per_class(
            self._pattern[tasks],
            tasks,
            lambda task: blocks.of(task, self._state.owner[task], self.copies[task], kind=slots.kind),
        )

    # These methods choose, for the exchange, among tasks and members that are alike for it.

    def _pairs_of(self, owner: int) -> Counter[int]:
        """Return how many copies of an owner's tasks each member has."""
        if self._by_owner is None:
            owners = self._owner[self._task]
            order = np.argsort(owners, kind="stable")
            self._by_owner = owners[order], self._holder[order]
        pairs = self._pairs.get(owner)
        if pairs is None:
            owners, holders = self._by_owner
            start, end = np.searchsorted(owners, [owner, owner + 1]).tolist()
            pairs = self._pairs[owner] = Counter(holders[start:end].tolist())
        return pairs

    def suits(self, move: Move) -> bool | None:
        """Say whether a member suits a copy. It does not if it has the task already, or many of the owner's copies."""
        task, source, target = move
        if source != UNASSIGNED and task in self._busy:
            return None
        if target == self._state.owner[task] or target in self.copies[task]:
            return None
        owner = self._state.owner[task]
        return self._pairs_of(owner)[target] < self._part[owner]

    def note(self, move: Move) -> None:
        """Move a copy to a member from another."""
        task, source, target = move
        self._busy.add(task)
        pairs = self._pairs_of(self._state.owner[task])
        pairs[source] -= 1
        pairs[target] += 1
        left = [member for member in self.copies[task] if member != source]
        if target != UNASSIGNED:
            left.append(target)
            left.sort()
        self.copies[task] = tuple(left)


def _there(member: int) -> Wish:
    return Wish(member, move=0, warming=0, unready=0, cold=0, restore=0, previous=0)


def _numbered(*columns: Ints) -> Ints:
    """Return a number for each row, the same where all columns agree. The numbers sort as the columns do, in turn."""
    order = np.lexsort(columns[::-1])
    rows = np.stack(columns)[:, order]
    numbers = np.zeros(len(order), np.int64)
    numbers[order[1:]] = np.cumsum(np.any(rows[:, 1:] != rows[:, :-1], axis=0))
    return numbers


def _split_by(values: Ints, numbers: Ints) -> Iterator[Ints]:
    """Return the values of each number, in their order."""
    order = np.argsort(numbers, kind="stable")
    starts = np.unique(numbers[order], return_index=True)[1]
    yield from np.split(values[order], starts[1:]) if len(values) else ()


def _per_class(numbers: Ints, values: Ints, answer: Callable[[int], int]) -> Ints:
    """Compute the answer once for each number, from the first of its values, and return it for all its values."""
    _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    return np.array([answer(value) for value in values[first].tolist()], np.int64)[place]
