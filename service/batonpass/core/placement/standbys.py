"""Target standbys: apart by tags, level, few new copies, warm ones first, one owner's spread over many members.

What is there and may stay does. What is missing, and what members have too much of, is exchanged as actives are: all
missing copies of a task at once where tags do not tell members apart, else one copy of each task after the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from batonpass.core.placement.actives import ranks
from batonpass.core.placement.exchange import Exchange, Floats, Lot, Move, Wish
from batonpass.core.placement.flow import Ints
from batonpass.core.placement.quotas import PLACES, Cohort, Division, Quotas, level_quotas
from batonpass.core.placement.state import Marks, PlacementState, Wishes
from batonpass.core.placement.tags import Tags
from batonpass.core.placement_types import NO_STATE, UNASSIGNED, Ready

LEVELS: Final = ("wait", "apart", "balance", "height", "move", "unready", "cold", "restore", "even", "size")

# Up to how many members each has an arc of its own from every lot, and how many of one owner's copies each has is
# weighed; beyond that, blocks of so many share one, and copies are spread when they are dealt.
_SINGLE: Final = 64
_BLOCK: Final = 32
# How many exchanges there are at most; two or three are enough but where limits or tags bind.
_ROUNDS: Final = 8
# How many ways to spread a task's copies over kinds of members are compared.
_WAYS: Final = 100
# How many places are looked at for one that has few of an owner's copies.
_LOOKED_AT: Final = 64
# Up to how many copies times members copies are passed on.
_PASSED_ON: Final = 1 << 20


def place_standbys(state: PlacementState) -> tuple[list[tuple[int, ...]], dict[int, int]]:
    """Return the target standbys of every task, and how many of them each short task lacks."""
    request = state.request
    if not state.open:
        # Nothing moves, but no more copies are wanted than the group asks for now.
        return [_warmest(state, task, held) for task, held in enumerate(request.standbys)], {}
    if not request.num_standby_replicas:
        return [()] * len(state.owner), {}
    standbys = _Standbys(state)
    for _ in range(_ROUNDS):
        if not standbys.exchange():
            break
    return standbys.copies, standbys.short()


def _warmest(state: PlacementState, task: int, held: tuple[int, ...]) -> tuple[int, ...]:
    """Return the standbys that a task keeps where nobody may be given anything: as many as are wanted."""
    request, others = state.request, tuple(one for one in held if one != state.owner[task])
    wanted = request.num_standby_replicas if request.table.stateful[task] else 0
    if len(others) <= wanted:
        return others
    known = request.warmth([task], others).get(task, {})
    ranked = sorted((known.get(one, NO_STATE), one) for one in others)
    return tuple(sorted(one for _, one in ranked[:wanted]))


_NONE: Final[frozenset[int]] = frozenset()


class _Slots(NamedTuple):
    """Copies that each of some tasks lacks, to go to members of one kind, or (None) wherever tags want them."""

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
        self._tags = Tags(request.members, state.open, request.rack_aware_tags)
        self._epoch = [one.topology_epoch for one in request.members]
        self._owner = np.array(state.owner, np.int64)
        self._tasks: Ints = np.flatnonzero(state.stateful & (self._owner != UNASSIGNED))
        others = state.open
        self._wanted = np.minimum(
            request.num_standby_replicas, len(others) - state.is_open[self._owner].astype(np.int64)
        )
        self.copies: list[tuple[int, ...]] = list(request.standbys)
        for task in range(len(state.owner)) if len(self._tasks) < len(state.owner) else ():
            if not state.stateful[task] or state.owner[task] == UNASSIGNED:
                self.copies[task] = ()
        self._there = list(self.copies)
        self._count_copies()
        owned = state.count(self._owner[self._tasks])
        actives = state.count(self._owner)
        self._most = np.minimum(np.maximum(0, np.array(state.limit) - actives), len(self._tasks) - owned)
        self._most[~state.is_open[:-1]] = 0
        # As many standbys of one owner's tasks as another member should have, at most.
        self._part: list[int] = (-(-owned * request.num_standby_replicas // max(1, len(others) - 1))).tolist()
        self._owned = owned
        self._weighs_pairs = len(state.capacity) <= _SINGLE
        self._pairs: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._busy: set[int] = set()

    def _set(self, task: int, held: Sequence[int]) -> None:
        for one in self.copies[task]:
            self._count[one] -= 1
        for one in held:
            self._count[one] += 1
        self.copies[task] = tuple(sorted(held))

    def _misplaced(self) -> list[int]:
        """Return the tasks whose copies cannot stay as they are."""
        state, copies = self._state, self.copies
        owner, tags, tasks = state.owner, self._tags, self._tasks.tolist()
        task, holder = self._task, self._holder
        wrong = (holder == self._owner[task]) | ~state.is_open[holder]
        if state.restricted:
            wrong |= np.array(self._epoch)[holder] < np.array(state.request.table.topology_epoch)[task]
        many = self._lengths > self._wanted
        found = {*task[wrong].tolist(), *np.flatnonzero(many).tolist()}
        if tags.kinds > 1:
            kind = tags.kind
            found.update(
                task
                for task in tasks
                if copies[task]
                and not tags.apart(kind[owner[task]], tuple(sorted([kind[one] for one in copies[task]])))
            )
        return sorted(found)

    def _kept(self, task: int) -> list[int]:
        """Return the copies of a task that may stay: those that tags want, the warmest of them, on low members."""
        state, kind = self._state, self._tags.kind
        left = [
            one
            for one in self.copies[task]
            if one != state.owner[task] and state.is_open[one] and state.takes(task, one)
        ]
        known = state.request.warmth([task], left).get(task, {})

        def order(one: int) -> tuple[tuple[int, ...], float, int]:
            degree = known.get(one, NO_STATE)
            level = round(self._count[one] / state.capacity[one], PLACES)
            return (() if degree.ready_class <= Ready.CAUGHT_UP else tuple(degree)), level, one

        kept: list[int] = []
        on = [kind[state.owner[task]]]
        for _ in range(int(self._wanted[task])):
            best = self._tags.tiers(tuple(sorted(on)))[:1]
            if not best:
                break
            fit = sorted((one for one in left if kind[one] in best[0]), key=order)
            # Where none of them is among the best, one that is will come beside them.
            on.append(kind[fit[0]] if fit else best[0][0])
            kept += fit[:1]
            left = [one for one in left if one not in fit[:1]]
        return kept

    def exchange(self) -> bool:
        """Exchange once; return whether anything changed.

        What a round begins with follows from where copies are alone: so where a round changes nothing, placing what is
        placed changes nothing either. Where what members have too much of cannot go straight to those who have too
        little, others pass copies on. Where limits or topologies may keep copies from where tags want them, all are
        weighed at once: copies on a worse place count, which they would not if the others were levelled first.
        """
        self._there = list(self.copies)
        misplaced = self._misplaced()
        for task in misplaced:
            self._set(task, self._kept(task))
        if misplaced:
            self._count_copies()
        if self._tags.kinds == 1 or not (self._state.limited or self._state.restricted):
            self._exchange(passing_on=False)
            if self.copies != self._there:
                return True
        self._exchange(passing_on=True)
        return self.copies != self._there

    def _exchange(self, *, passing_on: bool) -> None:
        state = self._state
        lacking = self._tasks[(self._lengths < self._wanted)[self._tasks]]
        missing = self._slots(lacking, (self._wanted - self._lengths)[lacking])
        quota = self._quota(missing)
        floors = np.array(quota.floors)
        tops = floors + quota.fractional
        opened = state.is_open[:-1]
        if not missing and bool(((floors <= self._count) & (self._count <= tops))[opened].all()):
            return
        gives, takes = opened & (self._count > floors), opened & (self._count < tops)
        if passing_on:
            takes = opened
            is_small = int(self._count.sum()) * len(state.open) <= _PASSED_ON
            gives = opened & (self._count > 0) if is_small else gives
        self._takers = np.flatnonzero(takes).tolist()
        self._blocks = _Blocks(
            state, self._tags, self._takers, size=_BLOCK if len(self._takers) > _SINGLE else 1, strict=not passing_on
        )
        self._busy = set()
        lots, wishes = self._lots(missing, np.flatnonzero(gives).tolist())
        counts, even = self._evenness()
        heights = [(low + 1) / share for low, share in zip(quota.floors, state.capacity, strict=True)]
        exchange = Exchange(
            levels=LEVELS,
            have=self._count.copy(),
            quota=quota,
            most=self._most,
            ceiling={"height": ranks(heights)},
            cold=wishes.cold,
            blocks=self._blocks.members,
            reach=self._blocks.reach,
            counts=counts,
            even=even,
            width=state.width,
            choice=self,
        )
        for move in exchange.solve(lots):
            # What members give was noted when it was dealt. Of two copies of a task at one member one is still missing.
            if move[1] == UNASSIGNED and move[2] not in self.copies[move[0]]:
                self._apply(move)
            elif move[2] == UNASSIGNED:
                self.note(move)
        self._count_copies()

    def _evenness(self) -> tuple[Ints, Floats]:
        """Return how many of each owner's copies members have, and how many would be even, in groups that weigh it."""
        state, members = self._state, len(self._state.capacity)
        if not self._weighs_pairs:
            return self._count[:, None], np.zeros((members, 1))
        task, holder = self._task, self._holder
        counts = np.bincount(holder * members + self._owner[task], minlength=members**2).reshape(members, members)
        width = np.where(state.is_open[:-1], state.width, 0)[:, None] * ~np.eye(members, dtype=np.bool_)
        whole = self._owned * state.request.num_standby_replicas
        return counts, width * whole / np.maximum(width.sum(axis=0), 1e-9)

    def choose(self, task: int, places: deque[int], amount: int) -> list[int]:
        """Take places that have few of an owner's copies, in turn."""
        owner = self._state.owner[task]
        pairs, part = self._pairs[owner], self._part[owner]
        chosen: list[int] = []
        passed: list[int] = []
        while len(chosen) < amount and places and len(passed) < _LOOKED_AT:
            one = places.popleft()
            held = pairs.get(one, 0)
            if held < part:
                pairs[one] = held + 1
                chosen.append(one)
            else:
                passed.append(one)
        more = amount - len(chosen)
        places.extendleft(reversed(passed))
        chosen += [places.popleft() for _ in range(more)]
        return chosen

    def suits(self, move: Move) -> bool | None:
        """Tell whether a member suits a copy: not if it has the task already, nor if it has many of its owner."""
        task, source, target = move
        if target == self._state.owner[task] or target in self.copies[task]:
            return None
        if source != UNASSIGNED and task in self._busy:
            return None
        owner = self._state.owner[task]
        return self._pairs[owner][target] < self._part[owner]

    def note(self, move: Move) -> None:
        """Let a copy come to a member, and leave another."""
        task, source, target = move
        self._busy.add(task)
        pairs = self._pairs[self._state.owner[task]]
        pairs[source] -= 1
        pairs[target] += 1
        self._apply(move)

    def _apply(self, move: Move) -> None:
        task, source, target = move
        left = [one for one in self.copies[task] if one != source]
        if target != UNASSIGNED:
            left.append(target)
            left.sort()
        self.copies[task] = tuple(left)

    def short(self) -> dict[int, int]:
        """Return how many standbys each short task lacks."""
        lacks = self._state.request.num_standby_replicas - self._lengths
        short = self._tasks[lacks[self._tasks] > 0]
        return dict(zip(short.tolist(), lacks[short].tolist(), strict=True))

    def _slots(self, lacking: Ints, amounts: Ints) -> list[_Slots]:
        """Return what tasks lack: all at once, but where tags tell members apart for each kind of members apart.

        Which kinds is settled here for tasks that lack several copies: those that leave the highest level lowest.
        Not where limits or topologies may bring two copies to one kind after all: then both have one lot, of which no
        member gets two copies of a task.
        """
        tags, kind = self._tags, self._tags.kind
        if tags.kinds == 1:
            return [_Slots(None, amount, tasks) for amount, tasks in _grouped(amounts, lacking)]
        slots: dict[tuple[int | None, int], list[int]] = {}
        capacity, given = [0.0] * tags.kinds, [0.0] * tags.kinds
        for one in self._state.open:
            capacity[kind[one]] += self._state.capacity[one]
            given[kind[one]] += self._count[one]
        for task, amount in zip(lacking.tolist(), amounts.tolist(), strict=True):
            on = [kind[self._state.owner[task]], *[kind[one] for one in self.copies[task]]]
            if amount == 1 or self._state.limited or self._state.restricted or tags.is_free(on):
                slots.setdefault((None, amount), []).append(task)
                continue
            chosen = min(
                tags.ways(on, amount, _WAYS),
                key=lambda way: sorted(((given[one] + way.count(one)) / capacity[one] for one in way), reverse=True),
            )
            for one in sorted(set(chosen)):
                given[one] += chosen.count(one)
                slots.setdefault((one, chosen.count(one)), []).append(task)
        return [_Slots(*key, tasks) for key, tasks in slots.items()]

    def _lots(self, missing: Sequence[_Slots], givers: Sequence[int]) -> tuple[list[Lot], Wishes]:
        """Return the copies that are missing, and those that members with too many could give."""
        state, owner = self._state, self._state.owner
        over = {one for one in givers if self._count[one] > self._most[one]}
        everything, holders = self._task, self._holder
        # A task that lacks a copy keeps the others where they are, unless that is above a limit.
        lacking = np.zeros(len(owner), np.bool_)
        lacking[[*chain.from_iterable(slots.tasks for slots in missing)]] = True
        mine = np.isin(holders, givers) & (~lacking[everything] | np.isin(holders, list(over)))
        given, sources = everything[mine], holders[mine]
        tasks, members = (
            {*chain.from_iterable(slots.tasks for slots in missing), *given.tolist()},
            {*self._takers, *over},
        )
        wishes = Wishes(state.request.warmth(tasks, members), tasks, members)
        pairs, counts = np.unique(self._owner[everything] * len(state.capacity) + holders, return_counts=True)
        self._pairs = defaultdict(Counter)
        for of, one, count in zip(
            *(each.tolist() for each in np.divmod(pairs, len(state.capacity))), counts.tolist(), strict=True
        ):
            self._pairs[of][one] = count
        keyed: dict[tuple[object, ...], Lot] = {}
        warm = np.zeros(len(owner), np.bool_)
        warm[list(wishes.copies)] = True
        for slots in missing:
            # Of tasks that nobody has a copy of, those of one owner are alike.
            for some in self._alike(slots.tasks, warm):
                task, of = some[0], owner[some[0]]
                reach = self._blocks.of(task, of, self.copies[task], kind=slots.kind)
                key = self._key(wishes, task, UNASSIGNED, reach, slots.amount)
                lot = keyed.get((*key, of))
                if lot is None:
                    each = None if self._weighs_pairs else self._part[of]
                    lot = keyed[*key, of] = Lot(*key, wait=1, each=each)
                    lot.part = of if self._weighs_pairs else 0
                lot.tasks += some
        # Only what concerns a member that takes something tells copies apart that tags do not.
        takes = np.isin(np.arange(-1, len(state.capacity)), self._takers)
        concerned = warm | takes[self._owner + 1] | takes[state.home + 1]
        concerned[everything[takes[holders + 1]]] = True
        plain = ~concerned[given] & ~np.isin(sources, list(over))
        reaches = self._reaches(self._blocks, given, sources)
        parts = self._owner[given] if self._weighs_pairs else np.zeros(len(given), np.int64)
        codes = (sources * max(1, len(self._blocks.reach)) + reaches) * len(state.capacity) + parts
        lots = list(keyed.values())
        for code, alike in _grouped(codes[plain], given[plain]):
            rest, part = divmod(code, len(state.capacity))
            source, reach = divmod(rest, len(self._blocks.reach))
            lots.append(Lot(source, part, reach, tasks=alike))
        keyed.clear()
        special = (each[~plain].tolist() for each in (given, sources, reaches, parts))
        for task, source, reach, part in zip(*special, strict=True):
            key = (source, part, *self._key(wishes, task, source, reach, 1)[2:])
            give = wishes.chill(task, source) if source in over else 0
            lot = keyed.get((*key, give))
            if lot is None:
                lot = keyed[*key, give] = Lot(*key, give=give, wait=1 if source in over else None)
            lot.tasks.append(task)
        return [*lots, *keyed.values()], wishes

    def _reaches(self, blocks: _Blocks, task: Ints, holder: Ints) -> Ints:
        """Return for copies that members have which set of blocks may have each of them instead."""
        if not len(task):
            return task
        code = np.zeros(len(task), np.int64)
        if self._tags.kinds > 1:
            # What a task's copies come to is told by their kinds in order, owner first.
            kind, of, one = np.array(self._tags.kind), self._task, self._holder
            order = np.lexsort((kind[one], of))
            of, one = of[order], one[order]
            turn = np.arange(len(of)) - np.searchsorted(of, of)
            alike = kind[self._owner]
            for place in range(int(turn.max(initial=-1)) + 1):
                column = np.zeros(len(alike), np.int64)
                column[of[turn == place]] = kind[one[turn == place]] + 1
                alike = np.unique(alike * (self._tags.kinds + 1) + column, return_inverse=True)[1]
            code = alike[task] * self._tags.kinds + kind[holder]
        if self._state.restricted:
            epochs = np.unique(np.array(self._state.request.table.topology_epoch), return_inverse=True)[1]
            code = code * len(epochs) + epochs[task]
        _, first, which = np.unique(code, return_index=True, return_inverse=True)
        found = [
            blocks.of(one, self._state.owner[one], [each for each in self.copies[one] if each != source], moves=True)
            for one, source in zip(task[first].tolist(), holder[first].tolist(), strict=True)
        ]
        return np.array(found, np.int64)[which]

    def _alike(self, tasks: Sequence[int], warm: Marks) -> Iterator[list[int]]:
        """Divide tasks into those of which no rule but their owner tells them apart, and single ones."""
        state, some = self._state, np.array(tasks, np.int64)
        owner, home, had = self._owner[some], state.home[some], state.request.standbys
        alike = ~warm[some] & ((home == UNASSIGNED) | (home == owner)) & (not state.restricted)
        alike &= [not (self.copies[task] or self._there[task] or had[task]) for task in tasks]
        yield from ([task] for task in some[~alike].tolist())
        yield from (each for _, each in _grouped(owner[alike], some[alike]))

    def _count_copies(self) -> None:
        """Take note of all copies."""
        self._lengths = np.fromiter(map(len, self.copies), np.int64, len(self.copies))
        self._task = np.repeat(np.arange(len(self.copies)), self._lengths)
        self._holder = np.fromiter(chain.from_iterable(self.copies), np.int64, len(self._task))
        self._count = self._state.count(self._holder)

    def _key(
        self, wishes: Wishes, task: int, source: int, reach: int, amount: int
    ) -> tuple[int, int, int, int, tuple[Wish, ...], frozenset[int]]:
        """Return what a copy is sorted by."""
        here, allowed = {self._state.owner[task], *self.copies[task]}, self._blocks.allowed[reach]
        request = self._state.request
        # An active that leaves its owner leaves a copy there that costs nothing, nor does one that was to be replaced.
        there = {request.home[task], *((*request.standbys[task], *self._there[task]) if source == UNASSIGNED else ())}
        found: list[Wish] = []
        for one in sorted({*wishes.copies.get(task, ()), *there} & allowed - here):
            wish = _there(one) if one in there else wishes.wish(task, one)
            found.append(wish._replace(apart=self._blocks.price(reach, one)))
        barred = {one.member for one in found if one.cold > 1 or amount > 1}
        return source, 0, reach, amount, tuple(found), frozenset((here & allowed) | barred)

    def _quota(self, missing: Sequence[_Slots]) -> Quotas:
        """Return how many standbys each member should hold once these are placed too, as level as can be."""
        state = self._state
        least, most = [0] * len(state.capacity), self._most.tolist()
        lacking = sum(slots.amount * len(slots.tasks) for slots in missing)
        count = min(int(self._count[state.open].sum()) + lacking, sum(most))

        def final(members: Sequence[int], some: int) -> Quotas:
            capacity = [state.capacity[one] for one in members]
            return level_quotas(
                [0.0] * len(members), capacity, [0] * len(members), [most[one] for one in members], some
            )

        if self._tags.kinds == 1 and not state.restricted:
            found = final(state.open, count)
            floors, fractional = [0] * len(state.capacity), [False] * len(state.capacity)
            for one, low, more in zip(state.open, found.floors, found.fractional, strict=True):
                floors[one], fractional[one] = low, more
            return Quotas(floors, fractional, found.ceilings)
        blocks, owner = _Blocks(state, self._tags, state.open, size=len(state.open), strict=True), state.owner
        tally: Counter[int] = Counter()
        for reach, amount in zip(
            *np.unique(self._reaches(blocks, self._task, self._holder), return_counts=True), strict=True
        ):
            tally[int(reach)] += int(amount)
        for slots in missing:
            for task in slots.tasks:
                tally[blocks.of(task, owner[task], self.copies[task], kind=slots.kind)] += slots.amount
        cohorts = [
            Cohort(amount, tuple(block for block, _ in blocks.reach[one]), UNASSIGNED)
            for one, amount in sorted(tally.items())
        ]
        return Division(cohorts, blocks.members, state.shares, least, most, final).solve(state.open)


def _grouped(keys: Ints, values: Ints) -> Iterator[tuple[int, list[int]]]:
    """Return the values of each key, in their order."""
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    for key, some in zip(found.tolist(), np.split(values[order], starts[1:]), strict=False):
        yield key, some.tolist()


class _Blocks:
    """Members that take copies, divided by what tags and topologies tell apart.

    Attributes:
        members: the blocks.
        reach: sets of blocks, with what each costs.
        allowed: per set, the members in it.
    """

    def __init__(self, state: PlacementState, tags: Tags, takers: Sequence[int], *, size: int, strict: bool) -> None:
        self._state = state
        self._tags = tags
        self._strict = strict
        alike: dict[tuple[int, int], list[int]] = {}
        for one in takers:
            epoch = state.request.members[one].topology_epoch if state.restricted else 0
            alike.setdefault((tags.kind[one], epoch), []).append(one)
        self._kinds: list[tuple[int, int]] = []
        self.members: list[list[int]] = []
        for key, some in sorted(alike.items()):
            for start in range(0, len(some), size):
                self._kinds.append(key)
                self.members.append(some[start : start + size])
        self.reach: list[tuple[tuple[int, int], ...]] = []
        self.allowed: list[frozenset[int]] = []
        self._block = {one: block for block, some in enumerate(self.members) for one in some}
        self._known: dict[tuple[tuple[int, ...], int, bool, int | None], int] = {}
        self._index: dict[tuple[tuple[int, int], ...], int] = {}

    def price(self, reach: int, member: int) -> int:
        """Return what a member of a set costs."""
        return dict(self.reach[reach])[self._block[member]]

    def of(self, task: int, owner: int, others: Sequence[int], *, kind: int | None = None, moves: bool = False) -> int:
        """Return which set of blocks may have a copy of a task, beside its owner and its other copies.

        Only copies that are missing may go where tags would rather not have them, once everybody may pass copies on and
        there is no room elsewhere.
        """
        kinds = self._tags.kind
        on = tuple(sorted([kinds[owner], *[kinds[one] for one in others]])) if self._tags.kinds > 1 else ()
        need = self._state.request.table.topology_epoch[task] if self._state.restricted else 0
        anywhere = not (moves or self._strict) and (self._state.limited or self._state.restricted)
        key = on, need, anywhere, kind
        known = self._known.get(key)
        if known is None:
            tiers = self._tags.tiers(on) if on else ((0,),)
            tiers = tiers if anywhere else tiers[:1]
            price = {one: place for place, tier in enumerate(tiers) for one in tier}
            if kind is not None:
                price = {kind: 0} if not anywhere else {**dict.fromkeys(price, 1), kind: 0}
            found = tuple(
                (block, price[one]) for block, (one, epoch) in enumerate(self._kinds) if one in price and epoch >= need
            )
            known = self._known[key] = self._index.setdefault(found, len(self.reach))
            if known == len(self.reach):
                self.reach.append(found)
                self.allowed.append(frozenset(member for block, _ in found for member in self.members[block]))
        return known


def _there(member: int) -> Wish:
    return Wish(member, move=0, warming=0, unready=0, cold=0, restore=0, previous=0)
