"""Which members hold a copy of each task beside its active: standbys, warmups, the last owner until the new one runs.

A copy that is there and wanted is kept, at no cost. One that is missing is requested (``CopyRequest``). Copies up to
``1 + num_standby_replicas`` of a task are standbys and need no slot; each one beyond that number is a warmup, and
``budget`` decides when it gets a slot. A copy that is wanted no longer stays until enough wanted ones are caught up:
so a standby moves as an active does, the old one goes when the new one is ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from batonpass.core.handover import Choice, choose_active
from batonpass.core.ids import MemberId
from batonpass.core.lag import Readiness
from batonpass.core.model import ActiveState, Role, Task
from batonpass.core.reasons import Why
from batonpass.core.view import View


class CopyRequest(NamedTuple):
    """A copy that is wanted of ``task`` on ``member_id``, for its move as active or as standby.

    ``for_drain``: the slot is one of those for drains. ``needs_no_slot``: the task has fewer copies than it
    should have, and this one is free.
    """

    task: Task
    member_id: MemberId
    for_active: bool
    for_drain: bool
    needs_no_slot: bool


class TaskPlan(NamedTuple):
    """One task after this step: its active, its other copies by member, and the copies that it asks for.

    The copy that it asks for to move its active comes first.
    """

    task: Task
    choice: Choice
    copies: dict[MemberId, Role]
    requests: tuple[CopyRequest, ...] = ()


def plan_task(view: View, task: Task) -> TaskPlan:
    """Return what the members should hold of ``task`` when this step is complete, budgets apart."""
    choice = choose_active(view, task)
    active, members = choice.active, view.members
    if task.parked or not view.is_stateful(task.id):
        return TaskPlan(task, choice, {})
    if active is None:
        # Nobody can have it now: whatever copies there are may yet be what saves it.
        return TaskPlan(task, choice, view.holders(task))
    wanted = [one for one in task.target_standbys if one != active and members[one].away_until_ms is None]
    is_held = task.standbys or task.warmups or (task.owner is not None and task.owner != active)
    return _with_requests(view, task, choice, _kept(view, task, choice, wanted) if is_held else {}, wanted)


def plan_queued_task(view: View, task: Task) -> TaskPlan:
    """Return the plan of a task that waits for a slot: all stays, and it asks for the copies that it lacks."""
    copies = view.holders(task)
    for_drain = is_for_drain(view, task, task.owner, copies)
    requests = [
        CopyRequest(task, member_id, for_active=member_id == task.target, for_drain=for_drain, needs_no_slot=False)
        for member_id in lacking(task)
        if view.present_member(member_id) is not None
    ]
    return TaskPlan(task, Choice(task.owner, Why.STAYS, ready=True), copies, tuple(requests))


def lacking(task: Task) -> list[MemberId]:
    """Return where a task that waits for a slot is to have a copy and has none, its target first."""
    owner, standbys = task.owner, task.standbys
    wanted = task.target_standbys
    found = [one for one in wanted if one not in standbys and one != owner] if wanted != standbys else []
    return [task.target, *found] if task.target is not None and task.target != owner else found


def _kept(view: View, task: Task, choice: Choice, wanted: list[MemberId]) -> dict[MemberId, Role]:
    """Return the copies that stay, with their roles from now on.

    These are the copy of whoever ran the task last, until the next owner runs it; those that are ``wanted`` and there;
    the target's; and of the surplus what nothing makes superfluous yet.
    """
    owner, target = task.owner, task.target
    is_giving_way = owner is not None and owner != choice.active
    holders = _holders_beside(view, task, choice.active)
    last_owner = owner if is_giving_way else task.previous_owner
    has_run = not is_giving_way or task.state is ActiveState.RUNNING
    kept: dict[MemberId, Role] = {}
    if last_owner is not None and last_owner in holders and has_run and not view.as_if_released:
        kept[last_owner] = Role.STANDBY
    there = [one for one in wanted if one in holders]
    for member_id in there:
        is_standby = holders[member_id] is Role.STANDBY or _is_caught_up(view, task, member_id)
        kept[member_id] = Role.STANDBY if is_standby else Role.WARMUP
    if target is not None and target in holders and target != owner and not view.is_stalled(task, target):
        # While another has the task for it, the target's copy is one of those that are wanted beside the active.
        kept.setdefault(target, holders[target])
        there.append(target)
    # An owner that gives way although it is the target is asked for a copy as the target (``_with_requests``).
    surplus = {one: holders[one] for one in holders if one not in kept and not (one == owner == target)}
    if surplus:
        missing = len(task.target_standbys) - sum([_is_caught_up(view, task, one) for one in there])
        kept.update(_surplus_kept(view, task, surplus, missing=missing, is_ready=choice.ready))
        if not view.as_if_released:
            kept.update({one: role for one, role in surplus.items() if one in view.next_owners})
            _keep_on_drained(view, task, kept, {one: role for one, role in surplus.items() if one not in kept})
    return kept


def _holders_beside(view: View, task: Task, active: MemberId | None) -> dict[MemberId, Role]:
    """Return the copies that there are beside the next active; an owner that gives way has one unless it lost it."""
    holders = view.holders(task)
    if task.owner is not None and task.state is not ActiveState.LOST:
        holders[task.owner] = Role.STANDBY
    return {member_id: role for member_id, role in holders.items() if member_id != active}


def _keep_on_drained(view: View, task: Task, kept: dict[MemberId, Role], rest: dict[MemberId, Role]) -> None:
    """Keep what stands by on draining members as long as nobody else can: it goes with its member, not before.

    Where all drain nothing moves, and what is ready for a move stays ready for it.
    """
    leaving = [one for one, role in rest.items() if role is Role.STANDBY and view.members[one].drain is not None]
    for member_id in sorted(leaving, key=lambda one: (*_warmth(view, task, one), one)):
        if len(kept) < view.config.num_standby_replicas:
            kept[member_id] = Role.STANDBY
    if all(member.drain is not None for member in view.members.values()):
        kept.update({one: role for one, role in rest.items() if _is_caught_up(view, task, one)})


def _is_caught_up(view: View, task: Task, member_id: MemberId) -> bool:
    """An owner that ran the task has everything until it says otherwise: it has just been told to stop."""
    return _was_running_on(task, member_id) or view.copy(task, member_id).is_caught_up


def _was_running_on(task: Task, member_id: MemberId) -> bool:
    return member_id == task.owner and task.state is ActiveState.RUNNING


def _surplus_kept(
    view: View, task: Task, surplus: dict[MemberId, Role], *, missing: int, is_ready: bool
) -> dict[MemberId, Role]:
    """Return the unwanted copies that stay for now: as many standbys as caught-up wanted ones are missing.

    While nobody is ready to run the task, all of them stay that hold any state: each may yet be what saves the task.
    """
    ranked = sorted(surplus, key=lambda one: (*_warmth(view, task, one), one)) if len(surplus) > 1 else [*surplus]
    if is_ready:
        stay = [one for one in ranked if surplus[one] is Role.STANDBY][: max(0, missing)]
    else:
        stay = [one for one in ranked if view.copy(task, one).readiness is not Readiness.COLD]
    return {one: surplus[one] for one in stay}


def _warmth(view: View, task: Task, member_id: MemberId) -> tuple[int, int]:
    if _was_running_on(task, member_id):
        return (Readiness.RUNNING, 0)
    copy = view.copy(task, member_id)
    return (copy.readiness, copy.lag or 0)


def is_for_drain(view: View, task: Task, active: MemberId | None, copies: Mapping[MemberId, Role]) -> bool:
    """Say whether the extra copies of a task are there because a member drains: its owner, or its last one.

    A member that gives the task up altogether in this step, or has done so, waits for none of its copies.
    """
    members = view.members
    owner = task.owner if task.owner == active or task.owner in copies else None
    return any(one in members and members[one].drain is not None for one in (owner, task.previous_owner) if one)


def _with_requests(
    view: View, task: Task, choice: Choice, copies: dict[MemberId, Role], wanted: list[MemberId]
) -> TaskPlan:
    missing = [one for one in wanted if one not in copies]
    target = view.present_member(task.target) if task.target != choice.active else None
    if target is not None and target.id not in copies and not view.is_stalled(task, target.id):
        missing.insert(0, target.id)
    if not missing:
        return TaskPlan(task, choice, copies)
    free = view.config.num_standby_replicas - len(copies)
    if free >= len(missing) and view.grants_freely(missing):
        # Nothing that any other task asks for can stand in their way.
        for member_id in missing:
            copies[member_id] = Role.STANDBY
        return TaskPlan(task, choice, copies)
    for_drain = is_for_drain(view, task, choice.active, copies)
    requests = [
        CopyRequest(task, member_id, member_id == task.target, for_drain, number < free)
        for number, member_id in enumerate(missing)
    ]
    return TaskPlan(task, choice, copies, tuple(requests))
