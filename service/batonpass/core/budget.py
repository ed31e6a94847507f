"""Who gets a slot: extra copies cost the members that run them disk and network, so a group has only so many at once.

Inside the budget is every warmup and every copy of a task beyond ``1 + num_standby_replicas``; a task uses as many
slots as the larger of the two. Outside, and never queued: the takeover of a task without an owner, and copies up to
that number. Drains have a budget of their own.

Order: what leaves a draining member, then actives before standbys, then the most overloaded owner, then the shortest
estimated catch-up, then task id. A slot that comes free is given away in the same step that frees it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heapify, heappop
from math import inf
from typing import Final, NamedTuple, TypeAlias

from batonpass.core.copies import Ask, Staged, is_for_drain
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.lag import catch_up_ms
from batonpass.core.model import Role
from batonpass.core.reasons import Held
from batonpass.core.room import Room
from batonpass.core.view import View

_NEVER: Final = 2**62
_THOUGH_READY = (Held.FAILED, Held.MEMBER_OVERDUE)
"""What holds back a task though its target is ready, with nothing else to be seen of it."""
Pair = tuple[Ask, Staged]


class HeldBack(NamedTuple):
    """A task that is not where its target says and has no copy there yet, or that failed where it is, with why.

    ``to`` is None where nobody can have it.
    """

    task: TaskId
    to: MemberId | None
    reason: Held


Entry: TypeAlias = tuple[bool, bool, bool, float, float, float, int, int, Ask]
"""What asks for a slot, after what decides who gets it first; a task that asks for several names them in order."""


class Tally(NamedTuple):
    """What the copies of many tasks use of the budgets: slots for balance, those of drains, and warmups by member."""

    balance: int
    drain: int
    warmups: Mapping[MemberId, int]


class Slots:
    """What is left of the budgets of one step, and of the room that members have.

    ``known`` is what all tasks use, where that has been added up; only ``staged`` may have to be counted otherwise.
    """

    __slots__ = ("_known", "balance", "drain", "per_member", "room", "view", "warmups")

    def __init__(self, view: View, staged: list[Staged], room: Room, known: Tally | None = None) -> None:
        self.view = view
        stateful = len(view.group.table.stateful_ranks)
        self.balance = view.config.warmup_budget(stateful)
        self.drain = view.config.drain_budget(stateful)
        self.per_member = view.config.max_warmups_per_member
        self.warmups: dict[MemberId, int] = {}
        self._known: Mapping[MemberId, int] = {}
        self.room = room
        replicas, warmup = view.config.num_standby_replicas, Role.WARMUP
        waiting = _waiting_for_their_grant(view, staged)
        if known is not None:
            self.balance -= known.balance
            self.drain -= known.drain
            self._known = known.warmups
            for one in staged:
                if one.task.id in waiting:
                    self._count(one, usage(one, replicas), sign=1)
                    self._count(one, _usage_waiting(one, replicas), sign=-1)
            return
        for one in staged:
            copies = one.copies
            if one.task.id in waiting:
                self._count(one, _usage_waiting(one, replicas), sign=-1)
            elif copies and (len(copies) > replicas or warmup in copies.values()):
                self._count(one, usage(one, replicas), sign=-1)

    def _count(self, one: Staged, usage_of: tuple[int, tuple[MemberId, ...]], *, sign: int) -> None:
        used, warming = usage_of
        if is_for_drain(self.view, one.task):
            self.drain += sign * used
        else:
            self.balance += sign * used
        for member_id in warming:
            self.warmups[member_id] = self._warmups_of(member_id) - sign

    def _warmups_of(self, member_id: MemberId) -> int:
        found = self.warmups.get(member_id)
        return self._known.get(member_id, 0) if found is None else found

    def left(self, *, draining: bool) -> int:
        """Return how many slots are left.

        A move under way whose owner begins to drain, or stays after all, changes budgets: their sum holds too.
        """
        return min(self.drain if draining else self.balance, self.drain + self.balance)

    def refuse(self, ask: Ask) -> Held | None:
        """Return why the ask cannot be met now; None when it can."""
        held = self.view.moves_held(draining=ask.draining or ask.free)
        if held is not None:
            return held
        if not self.room.allows(ask.member_id):
            return Held.NO_CAPACITY
        if ask.free:
            return None
        if self.left(draining=ask.draining) <= 0:
            return self.refuse_for_want(ask)
        if self._warmups_of(ask.member_id) >= self.per_member:
            return Held.MEMBER_WARMUP_BUDGET
        return None

    @staticmethod
    def refuse_for_want(ask: Ask) -> Held:
        """Return why an ask is refused where no slot is left."""
        return Held.DRAIN_BUDGET if ask.draining else Held.WARMUP_BUDGET

    def take(self, ask: Ask) -> Role:
        """Meet the ask; return the role of the copy."""
        self.room.take(ask.member_id)
        if ask.free:
            return Role.STANDBY
        if ask.draining:
            self.drain -= 1
        else:
            self.balance -= 1
        self.warmups[ask.member_id] = self._warmups_of(ask.member_id) + 1
        return Role.WARMUP

    @property
    def are_gone(self) -> tuple[bool, bool]:
        """Say whether no slot is left for balance, and none for drains."""
        return self.left(draining=False) <= 0, self.left(draining=True) <= 0


def usage(one: Staged, replicas: int) -> tuple[int, tuple[MemberId, ...]]:
    """Return the slots that the copies of a task use, and the members of its warmups."""
    copies = one.copies
    warming = tuple([member_id for member_id, role in copies.items() if role is Role.WARMUP]) if copies else ()
    return max(0, len(warming), len(copies) - replicas), warming


def _usage_waiting(one: Staged, replicas: int) -> tuple[int, tuple[MemberId, ...]]:
    """Return the same of a task that goes to a warmup which has to wait for its grant, and is a warmup until then."""
    taker = one.choice.active
    warming = (*usage(one, replicas)[1], *((taker,) if taker is not None else ()))
    return max(len(warming), len(one.copies) - replicas), warming


def _waiting_for_their_grant(view: View, staged: list[Staged]) -> set[TaskId]:
    """Return the tasks that one of their warmups is to have, but not yet: its member must give something up first.

    Until it has, the copy is a warmup like any other.
    """
    chosen = [one for one in staged if one.task.warmups and is_free_for_a_warmup(one)]
    if not chosen or view.complete:
        return set()
    giving_up = {member.id for member in view.members.values() if member.revoking}
    for one in staged:
        task, active = one.task, one.choice.active
        if task.owner is not None and task.owner != active:
            giving_up.add(task.owner)
        giving_up.update(holder for holder in view.holders(task) if holder != active and holder not in one.copies)
    return {one.task.id for one in chosen if one.choice.active in giving_up}


def is_free_for_a_warmup(one: Staged) -> bool:
    """Say whether nobody has the task and it goes to a warmup, which was not promised it before."""
    task, active = one.task, one.choice.active
    return active in task.warmups and task.owner is None and not task.claims and task.heir != active


def extra_copies(one: Staged, num_standby_replicas: int) -> int:
    """Return the slots that a task uses: its warmups, or its copies beyond the wanted number, whichever are more."""
    warmups = [*one.copies.values()].count(Role.WARMUP)
    return max(warmups, len(one.copies) - num_standby_replicas)


def fund(view: View, staged: list[Staged]) -> list[HeldBack]:
    """Give slots to what asks for them, in order, adding the copies to ``staged``; return what is held back.

    Held back is reported for moves of actives only, one entry a task, in the order of tasks.
    """
    return fund_whole(view, staged)[0]


def fund_whole(view: View, staged: list[Staged]) -> tuple[list[HeldBack], tuple[bool, bool]]:
    """Do what ``fund`` does; return also whether no slot is left for balance, and none for drains.

    Where nothing asks for a slot, nobody knows, and both are said to be gone.
    """
    held: list[HeldBack] = []
    room, are_gone = Room(view, staged), (True, True)
    asks = [(ask, one) for one in staged if one.asks for ask in one.asks]
    if asks:
        slots = Slots(view, staged, room)
        ranked = _ranked(view, asks, is_limited=room.is_limited)
        for key in sorted(ranked):
            held += _grant(view, ranked[key], slots)
        are_gone = slots.are_gone
    held.extend(_waiting(view, staged))
    return _by_rank(view, held), are_gone


def _by_rank(view: View, held: list[HeldBack]) -> list[HeldBack]:
    rank = view.group.table.rank
    return sorted(held, key=lambda entry: rank[entry.task])


def entries_of(view: View, one: Staged) -> tuple[Entry, ...]:
    """Return what a task asks for, each with its place among all that ask, in a group without limits."""
    task = one.task
    overload = inf if task.owner is None else view.load(task.owner)
    found: list[Entry] = []
    for number, ask in enumerate(one.asks):
        soon, lag, rank = _nearness(view, ask)
        if ask.free:
            found.append((False, False, False, 0.0, 0.0, 0.0, rank, number, ask))
        else:
            found.append((True, not ask.draining, not ask.for_active, -overload, soon, lag, rank, number, ask))
    return tuple(found)


def fund_some(
    view: View, fresh: list[Staged], asking: list[Entry], slots: Slots
) -> tuple[dict[TaskId, dict[MemberId, Role]], list[HeldBack]]:
    """Give slots to those that ask, in order; return the copies given, by task, and what of ``fresh`` is held back."""
    given: dict[TaskId, dict[MemberId, Role]] = {}
    refused: dict[tuple[TaskId, MemberId], Held] = {}
    heapify(asking)
    while asking:
        ask = heappop(asking)[-1]
        if not ask.free and slots.are_gone == (True, True):
            break  # What is left is refused alike.
        refusal = slots.refuse(ask)
        if refusal is None:
            given.setdefault(ask.task.id, {})[ask.member_id] = slots.take(ask)
        else:
            refused[ask.task.id, ask.member_id] = refusal
    held = [
        HeldBack(ask.task.id, ask.member_id, refused.get((ask.task.id, ask.member_id)) or slots.refuse_for_want(ask))
        for one in fresh
        for ask in one.asks
        if ask.for_active and ask.member_id not in given.get(ask.task.id, ())
    ]
    held.extend(_waiting(view, fresh, given))
    return given, _by_rank(view, held)


def _ranked(view: View, asks: list[Pair], *, is_limited: bool) -> dict[tuple[bool, bool, bool, float], list[Pair]]:
    """Divide what is asked for by the order in which slots are given, up to how soon copies are caught up."""
    ranked: dict[tuple[bool, bool, bool, float], list[Pair]] = {}
    for pair in asks:
        ask = pair[0]
        if ask.free and not is_limited:
            key = (False, False, False, 0.0)
        else:
            owner = ask.task.owner
            overload = inf if owner is None else view.load(owner)
            key = (not ask.free, not ask.draining, not ask.for_active, -overload)
        ranked.setdefault(key, []).append(pair)
    return ranked


def _grant(view: View, alike: list[Pair], slots: Slots) -> list[HeldBack]:
    """Meet what can be met of asks that differ only in how soon a copy is caught up; return what is held back.

    Where only slots are scarce, and they are gone, all are refused alike, and who would have come first is not asked.
    """
    first = alike[0][0]
    is_limited = slots.room.is_limited
    if is_limited or (not first.free and slots.left(draining=first.draining) > 0):
        alike.sort(key=lambda pair: _nearness(view, pair[0]))
    held: list[HeldBack] = []
    for place, (ask, one) in enumerate(alike):
        refusal = slots.refuse(ask)
        if refusal is None:
            one.copies[ask.member_id] = slots.take(ask)
        elif is_limited or slots.left(draining=ask.draining) > 0:
            if ask.for_active:
                held.append(HeldBack(ask.task.id, ask.member_id, refusal))
        else:
            if ask.for_active:
                held += [HeldBack(rest.task.id, rest.member_id, refusal) for rest, _ in alike[place:]]
            break
    return held


def _nearness(view: View, ask: Ask) -> tuple[float, float, int]:
    """Return how soon a copy is caught up, as far as anybody knows; the task decides between equals."""
    copy = view.copy(ask.task, ask.member_id)
    soon = catch_up_ms(copy)
    return (
        _NEVER if soon is None else soon,
        _NEVER if copy.lag is None else copy.lag,
        view.group.table.rank[ask.task.id],
    )


def _waiting(
    view: View, staged: list[Staged], given: Mapping[TaskId, Collection[MemberId]] | None = None
) -> list[HeldBack]:
    """Return what is held back for another reason than a slot, once ``given`` copies were added."""
    held = []
    table = view.group.table
    for one in staged:
        task, choice = one.task, one.choice
        if choice.active == task.target is not None and choice.held is not Held.FAILED:
            continue
        rank = table.rank.get(task.id)
        if rank is None:
            continue
        if not table.stateful[rank] and choice.held is None:
            continue
        if one.asks and one.asks[0].for_active:
            continue
        has_copy = task.target in one.copies or (given is not None and task.target in given.get(task.id, ()))
        if choice.held is not None and (not has_copy or choice.held in _THOUGH_READY):
            # What failed where it belongs waits for its owner to recover.
            held.append(HeldBack(task.id, task.target if task.target != choice.active else None, choice.held))
        elif task.target is None:
            if task.waiting:
                held.append(HeldBack(task.id, None, Held(task.waiting)))
        elif not has_copy and view.is_stalled(task, task.target):
            held.append(HeldBack(task.id, task.target, Held.STALLED))
    return held
