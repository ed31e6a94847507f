"""Which members hold a copy of each task beside its active: standbys, warmups, and the last owner's copy.

A wanted copy that exists is kept, at no cost. A wanted copy that is missing is requested (``CopyRequest``). Up to
``num_standby_replicas`` copies beside the active are standbys and need no slot. Each further copy is a warmup, and
``budget`` decides when it gets a slot. A copy that is no longer wanted stays until enough wanted copies are caught up.
So a standby moves as an active does: the old copy goes when the new one is ready.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from batonpass.core.handover.owner import Choice, choose_active, stay
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import LOST, RUNNING, STANDBY, WARMUP, Role, Task
from batonpass.core.state.reasons import Held, Hold
from batonpass.placement.types import Readiness


class CopyRequest(NamedTuple):
    """A copy of ``task`` that is wanted on ``member_id``, so that its active or a standby can move there.

    ``for_drain``: it takes a slot of the drain budget. ``needs_no_slot``: the task has fewer copies than it should, so
    this one is free.
    """

    task: Task
    member_id: MemberId
    for_drain: bool
    needs_no_slot: bool

    @property
    def for_active(self) -> bool:
        return self.member_id == self.task.target.owner


class HeldBack(NamedTuple):
    """A task that is held back, and why.

    It is not at its target and has no copy there; or its copy there is ready, and the move is held; or it failed where
    it is; or it cannot be granted yet. A move to a ready copy that a pause or a storm holds has no entry: the group's
    state shows that. ``to`` is None if no member can have the task; ``until_ms`` is as in ``Hold``.
    """

    task: TaskId
    to: MemberId | None
    reason: Held
    until_ms: int | None = None


@dataclass(slots=True)
class TaskPlan:
    """One task after this step: its active, its other copies by member, and the copies that it requests.

    The copy for a move of the active, if requested, comes first. Whoever stops a move says so in ``held``.
    """

    task: Task
    choice: Choice
    copies: dict[MemberId, Role]
    requests: tuple[CopyRequest, ...] = ()
    held: HeldBack | None = None

    def hold(self, to: MemberId | None, hold: Hold) -> None:
        self.held = HeldBack(self.task.id, to, *hold)

    @property
    def waits_for_copy(self) -> bool:
        """Whether its active is to move to a member that has no copy yet."""
        return bool(self.requests) and self.requests[0].for_active


def plan_task(view: View, task: Task, hold: Hold | None = None) -> TaskPlan:
    """Return what members should hold of ``task`` when this step is complete, before slots are given.

    With a ``hold`` it stays where it is, or waits: what other tasks take in the same step leaves it no move.
    """
    choice = choose_active(view, task) if hold is None else stay(view, task, hold)
    plan = _plan(view, task, choice)
    _say_what_holds(view, plan)
    return plan


def _say_what_holds(view: View, plan: TaskPlan) -> None:
    """Say why the task is not to go to its target, unless a copy there is wanted: ``budget`` speaks for that."""
    task, choice = plan.task, plan.choice
    is_at_target = task.target.owner is not None and choice.active == task.target.owner
    if (is_at_target and (choice.hold is None or choice.held is not Held.FAILED)) or plan.waits_for_copy:
        return
    has_copy = task.target.owner in plan.copies
    if choice.hold is not None:
        # The group's state shows what holds every move. A task that failed at its target waits for it to recover.
        is_shown = has_copy and choice.active is not None and choice.held in (Held.PAUSED, Held.STORM)
        if not is_shown:
            plan.hold(None if is_at_target else task.target.owner, choice.hold)
    elif not view.is_stateful(task.id):
        return
    elif task.target.owner is None and task.target.waiting_reason:
        plan.hold(None, Hold(Held(task.target.waiting_reason)))
    elif task.target.owner is not None and not has_copy:
        until_ms = view.stalled_until_ms(task, task.target.owner)
        if until_ms is not None:
            plan.hold(task.target.owner, Hold(Held.STALLED, until_ms))


def _plan(view: View, task: Task, choice: Choice) -> TaskPlan:
    active = choice.active
    if task.marks.parked or not view.is_stateful(task.id):
        return TaskPlan(task, choice, {})
    if active is None:
        # No member can have the task now, so every copy may be needed.
        return TaskPlan(task, choice, task.holders)
    wanted = [member_id for member_id in task.target.standbys if member_id != active and member_id not in view.away]
    has_copies = task.standbys or task.warmups or (task.owner is not None and task.owner != active)
    return _with_requests(view, task, choice, _kept(view, task, choice, wanted) if has_copies else {}, wanted)


def lacking(task: Task) -> list[MemberId]:
    """Return the members where a queued task should have a copy and has none, its target first."""
    owner, target = task.owner, task.target
    missing = [member_id for member_id in target.standbys if member_id not in task.standbys and member_id != owner]
    return [target.owner, *missing] if target.owner is not None and target.owner != owner else missing


def _kept(view: View, task: Task, choice: Choice, wanted: list[MemberId]) -> dict[MemberId, Role]:
    """Return the copies that stay, with their new roles. The first row that fits a copy decides.

    | the copy | |
    |---|---|
    | of the last owner, until the next one runs | stays as a standby |
    | a warmup that stalled, a standby that gave way | goes, unless its member must not stop anything now |
    | wanted | stays; a warmup becomes a standby once it is caught up |
    | of the target | stays as it is |
    | any other with state, while no member is ready to run the task | stays |
    | any other standby, while wanted copies are not caught up | as many stay, the warmest first |
    | of a member that must not stop anything now | stays |
    | of a draining member | stays until it is replaced |
    | any other | goes |
    """
    owner, target = task.owner, task.target.owner
    is_giving_way = owner is not None and owner != choice.active
    holders = _copy_holders(task, choice.active)
    stalled = [name for name in holders if name != owner and view.is_stalled(task, name)] if task.marks.stalls else ()
    for member_id in stalled:
        is_standby = holders[member_id] is STANDBY and member_id in task.target.standbys
        if not is_standby and member_id not in view.must_not_stop_now:
            del holders[member_id]
    previous_owner = owner if is_giving_way else task.handover.previous_owner
    has_run = not is_giving_way or task.state is RUNNING
    kept: dict[MemberId, Role] = {}
    if previous_owner is not None and previous_owner in holders and has_run and not view.as_if_complete:
        kept[previous_owner] = STANDBY
    there = [member_id for member_id in wanted if member_id in holders]
    for member_id in there:
        is_standby = holders[member_id] is STANDBY or view.copy(task, member_id).is_caught_up
        kept[member_id] = STANDBY if is_standby else WARMUP
    if target is not None and target in holders and target != owner:
        # If another member has the task instead of the target, the target's copy counts as one of the wanted ones.
        kept.setdefault(target, holders[target])
        there.append(target)
    # If an owner gives way although it is the target, ``_with_requests`` requests a copy on it.
    surplus = {
        member_id: holders[member_id]
        for member_id in holders
        if member_id not in kept and not (member_id == owner == target)
    }
    if surplus:
        missing = len(task.target.standbys) - sum([view.copy(task, member_id).is_caught_up for member_id in there])
        kept.update(_surplus_kept(view, task, surplus, missing=missing, is_ready=choice.ready))
        kept.update({member_id: role for member_id, role in surplus.items() if member_id in view.must_not_stop_now})
        unwanted = {member_id: role for member_id, role in surplus.items() if member_id not in kept}
        if unwanted and not view.as_if_complete:
            _keep_on_drained(view, task, kept, unwanted)
    return kept


def _copy_holders(task: Task, active: MemberId | None) -> dict[MemberId, Role]:
    """Return the copies beside the next active. An owner that gives way has one, unless it lost its state."""
    holders = task.holders
    if task.owner is not None and task.state is not LOST:
        holders[task.owner] = STANDBY
    if active in holders:
        del holders[active]
    return holders


def _keep_on_drained(view: View, task: Task, kept: dict[MemberId, Role], unwanted: dict[MemberId, Role]) -> None:
    """Keep standbys on draining members until they are replaced.

    If all members drain, nothing moves, and copies that are ready for a move stay ready.
    """
    leaving = [member_id for member_id, role in unwanted.items() if role is STANDBY and member_id in view.draining]
    for member_id in sorted(leaving, key=lambda member_id: (*_warmth(view, task, member_id), member_id)):
        if len(kept) < view.config.num_standby_replicas:
            kept[member_id] = STANDBY
    if len(view.draining) == len(view.members):
        kept.update(
            {member_id: role for member_id, role in unwanted.items() if view.copy(task, member_id).is_caught_up}
        )


def _surplus_kept(
    view: View, task: Task, surplus: dict[MemberId, Role], *, missing: int, is_ready: bool
) -> dict[MemberId, Role]:
    """Return the unwanted copies that stay for now: as many standbys as wanted copies are not caught up.

    While no member is ready to run the task, every copy with state stays, because each may be needed.
    """
    ranked = [*surplus]
    if len(ranked) > 1:
        ranked.sort(key=lambda member_id: (*_warmth(view, task, member_id), member_id))
    if is_ready:
        stay = [member_id for member_id in ranked if surplus[member_id] is STANDBY][: max(0, missing)]
    else:
        stay = [member_id for member_id in ranked if view.copy(task, member_id).readiness is not Readiness.COLD]
    return {member_id: surplus[member_id] for member_id in stay}


def _warmth(view: View, task: Task, member_id: MemberId) -> tuple[int, int]:
    copy = view.copy(task, member_id)
    return (copy.readiness, copy.lag or 0)


def is_for_drain(view: View, task: Task, active: MemberId | None, copies: Mapping[MemberId, Role]) -> bool:
    """Say whether a task's extra copies exist because a member drains: its owner, or its last owner.

    A member that gives up the task completely, in this step or before, does not count: it does not wait for a copy.
    """
    owner = task.owner if task.owner == active or task.owner in copies else None
    return owner in view.draining or task.handover.previous_owner in view.draining


def _with_requests(
    view: View, task: Task, choice: Choice, copies: dict[MemberId, Role], wanted: list[MemberId]
) -> TaskPlan:
    target = view.present_member(task.target.owner) if task.target.owner != choice.active else None
    places = wanted if target is None else [target.id, *wanted]
    missing = [member_id for member_id in places if member_id not in copies and not view.is_stalled(task, member_id)]
    if not missing:
        return TaskPlan(task, choice, copies)
    free = view.config.num_standby_replicas - len(copies)
    if free >= len(missing) and view.limited.isdisjoint(missing) and not view.why_moves_are_held(for_balance=False):
        # No other task can compete for these copies.
        for member_id in missing:
            copies[member_id] = STANDBY
        return TaskPlan(task, choice, copies)
    for_drain = is_for_drain(view, task, choice.active, copies)
    requests = [
        CopyRequest(task, member_id, for_drain, needs_no_slot=number < free) for number, member_id in enumerate(missing)
    ]
    return TaskPlan(task, choice, copies, tuple(requests))
