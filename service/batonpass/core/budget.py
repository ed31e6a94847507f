"""Who gets a slot: extra copies cost the members that run them disk and network, so a group has only so many at once.

Inside the budget is every warmup and every copy of a task beyond ``1 + num_standby_replicas``; a task uses as many
slots as the larger of the two. Outside, and never queued: the takeover of a task without an owner, and copies up to
that number. Drains have a budget of their own.

Order: what leaves a draining member, then actives before standbys, then the most overloaded owner, then the shortest
estimated catch-up, then task id. A slot that comes free is given away in the same step that frees it.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

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


class _Slots:
    """What is left of the budgets of one step, and of the room that members have."""

    __slots__ = ("balance", "drain", "per_member", "room", "view", "warmups")

    def __init__(self, view: View, staged: list[Staged], room: Room) -> None:
        self.view = view
        stateful = len(view.group.table.stateful_ranks)
        self.balance = view.config.warmup_budget(stateful)
        self.drain = view.config.drain_budget(stateful)
        self.per_member = view.config.max_warmups_per_member
        self.warmups: dict[MemberId, int] = {}
        self.room = room
        replicas, warmup = view.config.num_standby_replicas, Role.WARMUP
        waiting = _waiting_for_their_grant(view, staged)
        for one in staged:
            copies = one.copies
            if one.task.id in waiting or (copies and (len(copies) > replicas or warmup in copies.values())):
                self._count(one, replicas, waits=one.task.id in waiting)

    def _count(self, one: Staged, replicas: int, *, waits: bool) -> None:
        warming = [member_id for member_id, role in one.copies.items() if role is Role.WARMUP]
        if waits and one.choice.active is not None:
            warming.append(one.choice.active)
        used = max(len(warming), len(one.copies) - replicas)
        if is_for_drain(self.view, one.task):
            self.drain -= used
        else:
            self.balance -= used
        for member_id in warming:
            self.warmups[member_id] = self.warmups.get(member_id, 0) + 1

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
            return Held.DRAIN_BUDGET if ask.draining else Held.WARMUP_BUDGET
        if self.warmups.get(ask.member_id, 0) >= self.per_member:
            return Held.MEMBER_WARMUP_BUDGET
        return None

    def take(self, ask: Ask) -> Role:
        """Meet the ask; return the role of the copy."""
        self.room.take(ask.member_id)
        if ask.free:
            return Role.STANDBY
        if ask.draining:
            self.drain -= 1
        else:
            self.balance -= 1
        self.warmups[ask.member_id] = self.warmups.get(ask.member_id, 0) + 1
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


def fund(view: View, staged: list[Staged]) -> list[HeldBack]:
    """Give slots to what asks for them, in order, adding the copies to ``staged``; return what is held back.

    Held back is reported for moves of actives only, one entry a task, in the order of tasks.
    """
    held: list[HeldBack] = []
    room = Room(view, staged)
    asks = [(ask, one) for one in staged if one.asks for ask in one.asks]
    if asks:
        slots = _Slots(view, staged, room)
        ranked = _ranked(view, asks, is_limited=room.is_limited)
        for key in sorted(ranked):
            held += _grant(view, ranked[key], slots)
    held.extend(_waiting(view, staged))
    rank = view.group.table.rank
    held.sort(key=lambda entry: rank[entry.task])
    return held


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


def _grant(view: View, alike: list[Pair], slots: _Slots) -> list[HeldBack]:
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


def _waiting(view: View, staged: list[Staged]) -> list[HeldBack]:
    """Return what is held back for another reason than a slot."""
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
        has_copy = task.target in one.copies
        if choice.held is not None and (not has_copy or choice.held in _THOUGH_READY):
            # What failed where it belongs waits for its owner to recover.
            held.append(HeldBack(task.id, task.target if task.target != choice.active else None, choice.held))
        elif task.target is None:
            if task.waiting:
                held.append(HeldBack(task.id, None, Held(task.waiting)))
        elif not has_copy and view.is_stalled(task, task.target):
            held.append(HeldBack(task.id, task.target, Held.STALLED))
    return held
