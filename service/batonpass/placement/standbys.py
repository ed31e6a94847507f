"""Target standbys: apart by tags, level, with few new copies, on warm members first, and one owner's copies spread out.

A copy that exists and may stay is kept. Missing copies, and copies of which members have too many, are exchanged in the
same way as actives. Where tags do not distinguish members, all missing copies of a task are placed at once, otherwise
one copy of each task after the other.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np

from batonpass.placement.blocks import BARRED, Blocks, grouped, numbered, per_class
from batonpass.placement.exchange import HAS_PLACE, Exchange, Move, TaskClass
from batonpass.placement.flow import PLENTY, Floats, Ints, Marks
from batonpass.placement.quotas import PLACES, Quotas, in_parts, level_quotas, ranks
from batonpass.placement.state import PlacementState
from batonpass.placement.tags import Tags
from batonpass.placement.types import NO_STATE, UNASSIGNED, Copies, Readiness, Warmth
from batonpass.placement.wishes import Wish, Wishes

# In groups up to this many members, each member has an arc of its own from every class, and the costs include how many
# copies of each owner it has. In larger groups members that are alike share an arc, and dealing spreads the copies.
_SINGLE: Final = 64
# A group is small up to this many copies times members. In a small group every member gives and takes at once, and a
# class also has the members with the other copies of a task.
_SMALL: Final = 1 << 16


def place_standbys(state: PlacementState) -> list[tuple[int, ...]]:
    """Return the target standbys of every task."""
    request = state.request
    if not state.eligible:
        # Nothing moves, but the number of copies follows the group's present settings.
        return [_warmest(state, task, held) for task, held in enumerate(request.standbys)]
    if not request.num_standby_replicas:
        return [()] * len(state.owner)
    standbys, seen = _Standbys(state), list[list[tuple[int, ...]]]()
    # Once or twice is enough, except where limits or tags bind. There, what one exchange does the next may take back.
    while standbys.copies not in seen:
        seen.append([*standbys.copies])
        standbys.improve()
    return standbys.all_copies()


def _warmest(state: PlacementState, task: int, held: tuple[int, ...]) -> tuple[int, ...]:
    """Return the standbys that a task keeps while no member may be given anything: the warmest, as many as wanted."""
    request, others = state.request, tuple(member for member in held if member != state.owner[task])
    wanted = request.num_standby_replicas if request.table.stateful[task] else 0
    if len(others) <= wanted:
        return others
    known = request.warmth([task], others).get(task, {})
    ranked = sorted((known.get(member, NO_STATE), member) for member in others)
    return tuple(sorted(member for _, member in ranked[:wanted]))


_Missing = Mapping[tuple[int | None, int], list[int]]
"""Tasks that lack copies, by the kind of member that these go to (None: wherever tags want them), and how many."""


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
        lacks = np.full(len(state.owner), request.num_standby_replicas)
        for task, kept in self._kept_apart.items():
            lacks[task] -= len(kept)
        self._wanted = np.where(standing, np.minimum(lacks, others), 0)
        self._there = list(self.copies)
        self._owned = state.count(self._owner[standing])
        actives = state.count(self._owner)
        self._actives: list[int] = actives.tolist()
        room = np.minimum(state.limit - actives, state.stateful_limit - self._owned)
        self._most = np.minimum(np.maximum(0, room), int(standing.sum()) - self._owned)
        self._most[~state.may_be_target[:-1]] = 0
        # The most standbys of one owner's tasks that another member should have.
        self._part: list[int] = (
            -(-self._owned * request.num_standby_replicas // max(1, len(state.eligible) - 1))
        ).tolist()
        self._weighs_pairs = len(state.capacity) <= _SINGLE
        self._is_small = int(self._wanted.sum()) * len(state.eligible) <= _SMALL
        self._busy: set[int] = set()
        self._pairs: dict[int, Counter[int]] = {}
        self._count_copies()

    def _set_apart(self) -> dict[int, tuple[int, ...]]:
        """Take the copies of missing members out of what is placed, and return by task those that stay.

        A member that may get others keeps its copies as any other does.
        """
        request = self._state.request
        missing = {index for index, one in enumerate(request.members) if one.keeps_copies and not one.may_be_target}
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

    def improve(self) -> None:
        """Drop the copies that cannot stay, and exchange once.

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
        every, have = np.array(self._state.eligible), self._count.copy()
        have[every[0]] += sum(amount * len(tasks) for (_, amount), tasks in missing.items())
        quota = self._quota([every], have)
        floors = np.array(quota.floors)
        level = (floors <= self._count) & (self._count <= floors + quota.fractional)
        if not missing and level[self._state.eligible].all():
            return
        bent = self._tags.kinds > 1 and (self._state.limited or self._state.restricted)
        if not bent and not self._is_small:
            self._exchange(missing, quota, everybody=False)
            if self.copies != self._there:
                return
        self._exchange(missing, quota, everybody=True)

    def _count_copies(self) -> None:
        """Index all copies, and number the tasks: equal numbers if tags and topology epochs do not tell them apart."""
        self._lengths = np.fromiter(map(len, self.copies), np.int64, len(self.copies))
        self._task = np.repeat(np.arange(len(self.copies)), self._lengths)
        self._holder = np.fromiter(chain.from_iterable(self.copies), np.int64, len(self._task))
        self._owners = self._owner[self._task]
        self._count = self._state.count(self._holder)
        self._pattern = self._alike(self._tags.kind) if self._tags.kinds > 1 else np.zeros(len(self._owner), np.int64)
        if self._state.restricted:
            self._pattern = numbered(self._pattern, self._need)

    def _alike(self, kinds: Sequence[int]) -> Ints:
        """Number the tasks: the same number if the owners, and the other copies, are on members of equal kinds."""
        kind = np.array([*kinds, -1])
        order = np.lexsort((kind[self._holder], self._task))
        task, holders = self._task[order], kind[self._holder[order]]
        turn = np.arange(len(task)) - np.searchsorted(task, task)
        others = np.full((int(turn.max(initial=-1)) + 1, len(self.copies)), -1)
        others[turn, task] = holders
        return numbered(kind[self._owner], *others)

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
            misplaced[some] |= per_class(self._pattern[some], some, self._is_misplaced) > 0
        dropped = np.flatnonzero(misplaced).tolist()
        if not dropped:
            return
        wanted = self._wanted.tolist()
        known = state.request.warmth([task for task in dropped if wanted[task]], state.eligible)
        for each in dropped:
            kept = self._kept(each, known.get(each, {})) if wanted[each] else []
            for member in self.copies[each]:
                self._count[member] -= member not in kept
            self.copies[each] = tuple(sorted(kept))
        self._count_copies()

    def _kinds_of(self, task: int) -> tuple[int, tuple[int, ...]]:
        kind = self._tags.kind
        return kind[self._state.owner[task]], tuple(sorted([kind[member] for member in self.copies[task]]))

    def _is_misplaced(self, task: int) -> int:
        owner, others = self._kinds_of(task)
        return not self._tags.are_apart((owner,), others)

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

    def _missing(self) -> _Missing:
        """Return what tasks lack. If one lacks several copies, kinds are chosen here: those that stay lowest.

        They are not chosen where limits or topology epochs may bring two copies to one kind.
        """
        state, tags, kind = self._state, self._tags, self._tags.kind
        missing = defaultdict[tuple[int | None, int], list[int]](list)
        amounts = np.maximum(0, self._wanted - self._lengths)
        level, width = [0.0] * tags.kinds, [0.0] * tags.kinds
        for member in state.eligible:
            width[kind[member]] += state.capacity[member]
        for member in state.eligible:
            level[kind[member]] += self._count[member] / width[kind[member]]
        is_chosen = (amounts > 1) & (tags.kinds > 1 and not state.limited and not state.restricted)
        is_plain = (amounts > 0) & ~is_chosen
        for amount in dict.fromkeys(amounts[is_plain].tolist()):
            missing[None, amount] = np.flatnonzero(is_plain & (amounts == amount)).tolist()
        lacking = np.flatnonzero(is_chosen)
        for task, amount in zip(lacking.tolist(), amounts[lacking].tolist(), strict=True):
            owner, others = self._kinds_of(task)
            ways = tags.ways((owner, *others), amount)
            if not ways:
                missing[None, amount].append(task)
                continue
            way = min(
                ways,
                key=lambda way: sorted([level[each] + way.count(each) / width[each] for each in way], reverse=True),
            )
            for each, some in sorted(Counter(way).items()):
                level[each] += some / width[each]
                missing[each, some].append(task)
        return missing

    def _quota(self, parts: Sequence[Ints], have: Ints) -> Quotas:
        """Return how many standbys each member should hold, as level as possible in each part of the members."""
        state, actives, most = self._state, self._actives, self._most.tolist()

        def divide(members: Sequence[int], some: int) -> Quotas:
            load, capacity = [actives[member] for member in members], [state.capacity[member] for member in members]
            may = [most[member] for member in members]
            return level_quotas(load, capacity, [0] * len(may), may, min(some, sum(may)))

        return in_parts(parts, have, np.array(actives), state.capacity, divide)

    def _exchange(self, missing: _Missing, quota: Quotas, *, everybody: bool) -> None:
        state, floors = self._state, np.array(quota.floors)
        gives = takes = state.may_be_target[:-1]
        if not everybody:
            warm = self._warm_for([*chain.from_iterable(missing.values())])
            gives = gives & (warm | (self._count > floors))
            takes = takes & (warm | (self._count < floors + quota.fractional))
        self._blocks = Blocks(state, self._tags, np.flatnonzero(takes).tolist(), strict=not everybody)
        self._busy = set()
        self._pairs = {}
        self._sort(missing, gives, takes)
        counts, even = self._evenness()
        may_bend = everybody and (self._tags.kinds > 1 or state.restricted)
        exchange = Exchange(
            have=self._count.copy(),
            quota=quota,
            most=self._most,
            ceiling=self._ceiling,
            cold=self._wishes.cold,
            blocks=self._blocks,
            counts=counts,
            even=even,
            width=state.width,
            solver=state.solver,
            divide=self._quota if may_bend else None,
            suits=self.suits,
            note=self.note,
            parts=[np.array(state.eligible)],
        )
        exchange.solve(self._classes)
        self._count_copies()

    def _ceiling(self, quota: Quotas) -> dict[str, Ints]:
        """Return the cost per member of one standby more than the floor: the ceiling goes to the lowest."""
        heights = (np.array(self._actives) + quota.floors + 1) / np.array(self._state.capacity)
        return {"part": ranks(heights)}

    def _warm_for(self, lacking: Sequence[int]) -> Marks:
        """Return for every member whether it has state of a task that lacks a copy."""
        state = self._state
        warm = np.zeros(len(state.capacity), np.bool_)
        homes = state.home[lacking]
        warm[homes[(homes != UNASSIGNED) & (homes != self._owner[lacking])]] = True
        for known in self._elsewhere(lacking, state.eligible).values():
            warm[[*known]] = True
        return warm

    def _elsewhere(self, tasks: Collection[int], members: Collection[int], besides: Collection[int] = ()) -> Copies:
        """Return how warm members are for tasks of which they have no copy, or are among those ``besides``."""

        def here(task: int) -> Collection[int]:
            return self._state.owner[task], *[member for member in self.copies[task] if member not in besides]

        return self._state.request.warmth(tasks, members, here)

    def _evenness(self) -> tuple[Ints, Floats]:
        """Return how many of each owner's copies members have, and how many would be even, if the group weighs that."""
        state, members = self._state, len(self._state.capacity)
        if not self._weighs_pairs:
            return self._count[:, None], np.zeros((members, 1))
        counts = np.bincount(self._holder * members + self._owners, minlength=members**2).reshape(members, members)
        width = np.where(state.may_be_target[:-1], state.width, 0)[:, None] * ~np.eye(members, dtype=np.bool_)
        whole = self._owned * state.request.num_standby_replicas
        return counts, width * whole / np.maximum(width.sum(axis=0), 1e-9)

    def _sort(self, missing: _Missing, gives: Marks, takes: Marks) -> None:
        """Sort the missing copies, and those that members could give, into classes."""
        state, lacking = self._state, np.zeros(len(self.copies), np.bool_)
        lacking[[*chain.from_iterable(missing.values())]] = True
        # A task that lacks a copy keeps its others where they are, except those above a limit.
        above = (self._count > self._most) & gives
        offered = above[self._holder] | (gives[self._holder] & ~lacking[self._task])
        given, sources = self._task[offered], self._holder[offered]
        tasks = {*np.flatnonzero(lacking).tolist(), *given.tolist()}
        besides = np.flatnonzero(above).tolist()
        self._wishes = Wishes(self._elsewhere(tasks, np.flatnonzero(takes | above).tolist(), besides))
        special = self._special(takes)
        self._classes: dict[TaskClass, list[int]] = {}
        # Missing copies of one owner's tasks are alike if no member has, or had, a copy of the task.
        there = np.fromiter(map(len, self._there), np.int64, len(self._there))
        known = special | (self._lengths + self._had + there > 0)
        for (kind, amount), some_tasks in missing.items():
            some = np.array(some_tasks)
            reaches = self._reach_of_missing(some, kind)
            for each in grouped(
                self._owner[some], reaches, self._first_alike(some, reaches, known[some], missing=True)
            ):
                self._sort_in(some[each].tolist(), UNASSIGNED, int(reaches[each[0]]), amount, wait=1)
        # Copies of one member are alike if no other one differs from the rest for them; in a small group, if the other
        # copies are on the same members too.
        reaches = self._reach_of_copies(given, sources)
        alone = special[given] | above[sources]
        columns = [sources, reaches, self._first_alike(given, numbered(sources, reaches), alone, missing=False)]
        columns += [self._owner[given]] if self._weighs_pairs else []
        columns += [self._alike(range(len(state.capacity)))[given]] if self._is_small else []
        for each in grouped(*columns):
            source = int(sources[each[0]])
            wait, excludes = 1 if above[source] else HAS_PLACE, self._is_small or bool(alone[each[0]])
            self._sort_in(given[each].tolist(), source, int(reaches[each[0]]), wait=wait, excludes=excludes)

    def _first_alike(self, tasks: Ints, reaches: Ints, alone: Marks, *, missing: bool) -> Ints:
        """Return for each task that stands alone the first one for which members differ in the same way; else -1."""
        first, known = np.full(len(tasks), -1), dict[tuple[object, ...], int]()
        owner, copies, warm = self._state.owner, self.copies, self._wishes.copies
        first[alone] = [
            known.setdefault(
                (
                    *(reach, owner[task], copies[task], frozenset(self._left(task, missing=missing))),
                    *warm.get(task, {}).items(),
                ),
                task,
            )
            for task, reach in zip(tasks[alone].tolist(), reaches[alone].tolist(), strict=True)
        ]
        return first

    def _left(self, task: int, *, missing: bool) -> set[int]:
        """Return the members where a copy costs nothing: a moving active leaves it, or it was to be replaced."""
        request = self._state.request
        left = {request.home[task], *((*request.standbys[task], *self._there[task]) if missing else ())}
        return left - {UNASSIGNED, self._state.owner[task], *self.copies[task]}

    def _special(self, takes: Marks) -> Marks:
        """Return for every task whether some member that takes copies differs from the others for it."""
        state = self._state
        special: Marks = takes[state.home] & (state.home != UNASSIGNED) & (state.home != self._owner)
        taking = {*np.flatnonzero(takes).tolist()}
        for task, known in self._wishes.copies.items():
            if not taking.isdisjoint(known.keys() - {state.owner[task], *self.copies[task]}):
                special[task] = True
        return special

    def _sort_in(
        self, tasks: list[int], source: int, reach: int, amount: int = 1, *, wait: int, excludes: bool = True
    ) -> None:
        """Add copies that are alike to their class. It ``excludes`` the members with other copies of the task."""
        task, owner, wishes = tasks[0], self._state.owner[tasks[0]], self._wishes
        here = {owner, *self.copies[task]}
        there = self._left(task, missing=source == UNASSIGNED)
        member_wishes: list[Wish] = []
        for member in sorted({*wishes.copies.get(task, ())} - here | there):
            price = self._blocks.price(reach, member)
            if price != BARRED:
                wish = Wish(member) if member in there else wishes.wish(task, member)
                member_wishes.append(wish._replace(apart=price) if price else wish)
        barred = {wish.member for wish in member_wishes if wish.cold > 1 or amount > 1}
        excluded = frozenset(here | barred) if excludes else frozenset[int]()
        part, turn = (owner, 0) if self._weighs_pairs else (0, owner if source == UNASSIGNED else 0)
        give = wishes.chill(task, source) if wait != HAS_PLACE and source != UNASSIGNED else 0
        apiece = PLENTY if self._weighs_pairs or source != UNASSIGNED else self._part[owner]
        alike = TaskClass(source, part, reach, amount, give, wait, turn, tuple(member_wishes), excluded, apiece)
        self._classes.setdefault(alike, []).extend(tasks)

    def _reach_of_copies(self, tasks: Ints, holders: Ints) -> Ints:
        """Return for each existing copy the set of blocks that may have it instead."""
        kinds = np.array(self._tags.kind)[holders]

        def reach(place: int) -> int:
            task, holder = int(tasks[place]), int(holders[place])
            others = [member for member in self.copies[task] if member != holder]
            return self._blocks.of(task, self._state.owner[task], others, moves=True)

        return per_class(numbered(self._pattern[tasks], kinds), np.arange(len(tasks)), reach)

    def _reach_of_missing(self, tasks: Ints, kind: int | None) -> Ints:
        """Return for each missing copy the set of blocks that may have it."""
        owner = self._state.owner
        return per_class(
            self._pattern[tasks], tasks, lambda task: self._blocks.of(task, owner[task], self.copies[task], kind=kind)
        )

    # These methods choose, for the exchange, among tasks and members that are alike for it.

    def _pairs_of(self, owner: int) -> Counter[int]:
        """Return how many copies of an owner's tasks each member has."""
        # No `functools.cache` of a method: it would be in a circle with this, and with it the group that is placed.
        pairs = self._pairs.get(owner)
        if pairs is None:
            pairs = self._pairs[owner] = Counter(self._holder[self._owners == owner].tolist())
        return pairs

    def suits(self, move: Move) -> bool | None:
        """Say whether a member suits a copy. It does not if it has the task already, or many of the owner's copies."""
        task, source, target = move
        if source != UNASSIGNED and task in self._busy:
            return None
        if target == UNASSIGNED:
            return True
        owner = self._state.owner[task]
        if target == owner or target in self.copies[task]:
            return None
        return self._pairs_of(owner).get(target, 0) < self._part[owner]

    def note(self, move: Move) -> None:
        """Move a copy to a member from another."""
        task, source, target = move
        if source == target:
            return  # It goes on waiting.
        self._busy.add(task)
        pairs, copies = self._pairs_of(self._state.owner[task]), self.copies[task]
        if source != UNASSIGNED:
            pairs[source] -= 1
            copies = tuple([member for member in copies if member != source])
        if target != UNASSIGNED:
            pairs[target] = pairs.get(target, 0) + 1
            copies = tuple(sorted((*copies, target)))
        self.copies[task] = copies
