"""Who gets a slot: extra copies cost the members that run them disk and network, so a group has only so many at once.

Inside the budget is every warmup and every copy of a task beyond ``1 + num_standby_replicas``; a task uses as many
slots as the larger of the two. Outside, and never queued: the takeover of a task without an owner, and copies up to
that number. Drains have a budget of their own.

Order: what leaves a draining member, then actives before standbys, then the most overloaded owner, then the shortest
estimated catch-up, then task id. A slot that comes free is given away in the same step that frees it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import Final, NamedTuple

from batonpass.core.copies import Ask, Staged, is_for_drain, lacking, stage_queued
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.lag import catch_up_ms
from batonpass.core.model import Role, Task
from batonpass.core.reasons import Held
from batonpass.core.room import Room
from batonpass.core.view import View

_NEVER: Final = 2**62
_THOUGH_READY = (Held.FAILED, Held.MEMBER_OVERDUE)
"""What holds back a task though its target is ready, with nothing else to be seen of it."""


class HeldBack(NamedTuple):
    """A task that is not where its target says and has no copy there yet, or that failed where it is, with why.

    ``to`` is None where nobody can have it.
    """

    task: TaskId
    to: MemberId | None
    reason: Held


class Slots:
    """What is left of the budgets of one step, and of the room that members have."""

    __slots__ = ("_balance", "_drain", "_per_member", "_view", "_warmups", "room")

    def __init__(self, view: View, staged: list[Staged]) -> None:
        config, stateful = view.config, len(view.group.table.stateful_ranks)
        self._view = view
        self._balance = config.warmup_budget(stateful)
        self._drain = config.drain_budget(stateful)
        self._per_member = config.max_warmups_per_member
        self._warmups: defaultdict[MemberId, int] = defaultdict(int)
        self.room = Room(view, staged)
        waiting = _waiting_for_their_grant(view, staged)
        replicas, warmup = config.num_standby_replicas, Role.WARMUP
        for one in staged:
            copies = one.copies
            if len(copies) > replicas or warmup in copies.values() or one.task.id in waiting:
                self._count(one, waits_for_grant=one.task.id in waiting)

    def _count(self, one: Staged, *, waits_for_grant: bool) -> None:
        """Take off what the copies of a task use."""
        warming = [member_id for member_id, role in one.copies.items() if role is Role.WARMUP]
        if waits_for_grant and one.choice.active is not None:
            warming.append(one.choice.active)
        used = max(len(warming), len(one.copies) - self._view.config.num_standby_replicas)
        if is_for_drain(self._view, one.task):
            self._drain -= used
        else:
            self._balance -= used
        for member_id in warming:
            self._warmups[member_id] += 1

    def left(self, *, draining: bool) -> int:
        """Return how many slots are left.

        A move under way whose owner begins to drain, or stays after all, changes budgets: their sum holds too.
        """
        return min(self._drain if draining else self._balance, self._drain + self._balance)

    def are_given(self, *, draining: bool) -> bool:
        """Say whether any slot is left, and moves are not held."""
        return self.left(draining=draining) > 0 and self._view.moves_held(draining=draining) is None

    def refuse(self, ask: Ask) -> Held | None:
        """Return why the ask cannot be met now; None when it can. What is refused once stays so in this step."""
        held = self._view.moves_held(draining=ask.draining or ask.free)
        if held is not None:
            return held
        if not self.room.allows(ask.member_id):
            return Held.NO_CAPACITY
        if ask.free:
            return None
        if self.left(draining=ask.draining) <= 0:
            return Held.DRAIN_BUDGET if ask.draining else Held.WARMUP_BUDGET
        if self._warmups[ask.member_id] >= self._per_member:
            return Held.MEMBER_WARMUP_BUDGET
        return None

    def may_begin(self, member_id: MemberId) -> bool:
        """Say whether the member is here, and may begin one more warmup."""
        is_full = self._warmups[member_id] >= self._per_member or not self.room.allows(member_id)
        return not is_full and self._view.member(member_id) is not None

    def take(self, ask: Ask) -> Role:
        """Meet the ask; return the role of the copy."""
        self.room.take(ask.member_id)
        if ask.free:
            return Role.STANDBY
        if ask.draining:
            self._drain -= 1
        else:
            self._balance -= 1
        self._warmups[ask.member_id] += 1
        return Role.WARMUP


def _waiting_for_their_grant(view: View, staged: list[Staged]) -> set[TaskId]:
    """Return the tasks that one of their warmups is to have, but not yet: its member must give something up first.

    Until it has, the copy is a warmup like any other.
    """
    chosen = [one for one in staged if one.task.warmups and _is_free_for_a_warmup(one)]
    if not chosen or view.complete:
        return set()
    giving_up = {member.id for member in view.members.values() if member.revoking}
    for one in staged:
        task, active = one.task, one.choice.active
        if task.owner is not None and task.owner != active:
            giving_up.add(task.owner)
        giving_up.update(holder for holder in view.holders(task) if holder != active and holder not in one.copies)
    return {one.task.id for one in chosen if one.choice.active in giving_up}


def _is_free_for_a_warmup(one: Staged) -> bool:
    """Say whether nobody has the task and it goes to a warmup, which was not promised it before."""
    task, active = one.task, one.choice.active
    return active in task.warmups and task.owner is None and not task.claims and task.heir != active


def extra_copies(one: Staged, num_standby_replicas: int) -> int:
    """Return the slots that a task uses: its warmups, or its copies beyond the wanted number, whichever are more."""
    warmups = [*one.copies.values()].count(Role.WARMUP)
    return max(warmups, len(one.copies) - num_standby_replicas)


_Order = tuple[bool, bool, bool, float]


def fund(view: View, staged: list[Staged], queue: Iterable[Task] = ()) -> Slots:
    """Give slots to what asks for them, in order, and add the copies to ``staged``; return what is left of them.

    ``queue`` are the tasks that wait for a slot and were not staged (``Pending.QUEUED``); those that get one are added
    to ``staged``. It is not looked at where no slot is left.
    """
    slots = Slots(view, staged)
    asking: defaultdict[_Order, list[tuple[Ask, Staged]]] = defaultdict(list)
    for one in staged:
        for ask in one.asks:
            asking[_order(view, slots, ask)].append((ask, one))
    queued = _in_line(view, slots, queue)
    served: dict[TaskId, Staged] = {}
    for order in sorted({*asking, *queued}):
        alike = asking.get(order, [])
        for task, member_id in queued.get(order, ()) if slots.are_given(draining=not order[1]) else ():
            if task.id not in served:
                served[task.id] = stage_queued(view, task)
            one = served[task.id]
            alike += [(ask, one) for ask in one.asks if ask.member_id == member_id]
        _grant(view, slots, alike)
    staged.extend(one for one in served.values() if len(one.copies) > len(one.task.standbys))
    return slots


def _in_line(view: View, slots: Slots, queue: Iterable[Task]) -> dict[_Order, list[tuple[Task, MemberId]]]:
    """Return what the tasks of the queue ask for of members that may begin another warmup, by who is served first."""
    found: defaultdict[_Order, list[tuple[Task, MemberId]]] = defaultdict(list)
    leaving = {member.id for member in view.members.values() if member.drain is not None}
    has_slots, has_drain_slots = slots.are_given(draining=False), slots.are_given(draining=True)
    if not has_slots and not (leaving and has_drain_slots):
        return found
    may_begin: dict[MemberId, bool] = {}
    for task in queue:
        owner = task.owner
        if owner is None or not (has_drain_slots if owner in leaving else has_slots):
            continue
        for member_id in lacking(task):
            if member_id not in may_begin:
                may_begin[member_id] = slots.may_begin(member_id)
            if may_begin[member_id]:
                found[True, owner not in leaving, member_id != task.target, -view.load(owner)].append((task, member_id))
    return found


def _order(view: View, slots: Slots, ask: Ask) -> _Order:
    """Return by what slots are given first, up to how soon a copy is caught up."""
    if ask.free and not slots.room.is_limited:
        return (False, False, False, 0.0)
    owner = ask.task.owner
    overload = inf if owner is None else view.load(owner)
    return (not ask.free, not ask.draining, not ask.for_active, -overload)


def _grant(view: View, slots: Slots, alike: list[tuple[Ask, Staged]]) -> None:
    """Meet what can be met of asks that differ only in how soon a copy is caught up."""
    met = [(ask, one) for ask, one in alike if slots.refuse(ask) is None]
    if len(met) > 1 and (slots.room.is_limited or not met[0][0].free):
        met.sort(key=lambda pair: _nearness(view, pair[0]))
    for ask, one in met:
        if slots.refuse(ask) is None:
            one.copies[ask.member_id] = slots.take(ask)


def _nearness(view: View, ask: Ask) -> tuple[float, float, int]:
    """Return how soon a copy is caught up, as far as anybody knows; the task decides between equals."""
    copy = view.copy(ask.task, ask.member_id)
    soon = catch_up_ms(copy)
    return (
        _NEVER if soon is None else soon,
        _NEVER if copy.lag is None else copy.lag,
        view.group.table.rank[ask.task.id],
    )


def held_back(view: View, slots: Slots, staged: Iterable[Staged]) -> list[HeldBack]:
    """Return which moves of actives are held back once slots are given, one entry a task, in the order of tasks."""
    found = [_for_want_of_a_slot(slots, one) or _for_another_reason(view, one) for one in staged]
    rank = view.group.table.rank
    return sorted([entry for entry in found if entry is not None], key=lambda entry: rank[entry.task])


def _for_want_of_a_slot(slots: Slots, one: Staged) -> HeldBack | None:
    ask = one.asks[0] if one.asks else None
    if ask is None or not ask.for_active or ask.member_id in one.copies:
        return None
    reason = slots.refuse(ask)
    return None if reason is None else HeldBack(ask.task.id, ask.member_id, reason)


def _for_another_reason(view: View, one: Staged) -> HeldBack | None:
    task, choice, table = one.task, one.choice, view.group.table
    if choice.active == task.target is not None and choice.held is not Held.FAILED:
        return None
    rank = table.rank.get(task.id)
    if rank is None or (not table.stateful[rank] and choice.held is None) or (one.asks and one.asks[0].for_active):
        return None
    has_copy = task.target in one.copies
    if choice.held is not None and (not has_copy or choice.held in _THOUGH_READY):
        # What failed where it belongs waits for its owner to recover.
        return HeldBack(task.id, task.target if task.target != choice.active else None, choice.held)
    if task.target is None:
        return HeldBack(task.id, None, Held(task.waiting)) if task.waiting else None
    return HeldBack(task.id, task.target, Held.STALLED) if not has_copy and view.is_stalled(task, task.target) else None
