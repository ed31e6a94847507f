"""Which members hold a copy of each task beside its active: standbys, warmups, the last owner until the new one runs.

What is kept costs nothing new; what is missing is asked for. Copies up to ``1 + num_standby_replicas`` are granted
freely as standbys; everything beyond is a warmup and needs a slot of the budget (``budget``). A copy that is no
longer wanted stays until as many wanted ones are caught up: a standby moves as an active does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from batonpass.core.handover import Choice, choose_active
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.lag import Readiness
from batonpass.core.model import ActiveState, Role, Task
from batonpass.core.reasons import Why
from batonpass.core.view import View


class CopyRequest(NamedTuple):
    """A copy that is wanted of ``task`` on ``member_id``, for its move as active or as standby.

    ``needs_no_slot``: those that bring the task up to its number of copies and need no slot.
    """

    task: Task
    member_id: MemberId
    for_active: bool
    draining: bool
    needs_no_slot: bool


class TaskPlan(NamedTuple):
    """One task after this step: its active, its other copies by member, and the copies that it asks for.

    The copy that it asks for to move its active comes first.
    """

    task: Task
    choice: Choice
    copies: dict[MemberId, Role]
    requests: tuple[CopyRequest, ...] = ()


HELD: Final = slice(Task._fields.index("standbys"), Task._fields.index("previous_owner") + 1)
NOTHING_HELD: Final = Task(TaskId(""))[HELD]


def plan_task(view: View, task: Task) -> TaskPlan:
    """Return what the members should hold of ``task`` when this step is complete, budgets apart."""
    if task.owner is None and view.is_calm and _begins(view, task):
        # It begins where it belongs, with all of its copies, none of which costs a slot.
        return TaskPlan(task, Choice(task.target, Why.COLD_START), dict.fromkeys(task.target_standbys, Role.STANDBY))
    choice, table = choose_active(view, task), view.group.table
    task_index = table.index_of.get(task.id)
    if task.parked or task_index is None or not table.stateful[task_index]:
        return TaskPlan(task, choice, {})
    active, members = choice.active, view.members
    if active is None:
        # Nobody can have it now: whatever copies there are may yet be what saves it.
        return TaskPlan(task, choice, view.holders(task))
    wanted = [one for one in task.target_standbys if one != active and members[one].away_until_ms is None]
    return _with_requests(view, task, choice, _kept(view, task, choice, wanted), wanted)


def _begins(view: View, task: Task) -> bool:
    """Say whether nobody has, had or was promised anything of a task that has a target."""
    if task.target is None or task[HELD] != NOTHING_HELD or task.away_owner is not None or task.parked:
        return False
    is_complete = len(task.target_standbys) <= view.config.num_standby_replicas
    return is_complete and view.is_stateful(task.id) and not view.on_disk(task.id)


def plan_queued_task(view: View, task: Task) -> TaskPlan:
    """Return the plan of a task that waits for a slot: all stays, and it asks for the copies that it lacks."""
    plan = TaskPlan(task, Choice(task.owner, Why.STAYS, ready=True), view.holders(task))
    draining = is_for_drain(view, plan)
    requests = [
        CopyRequest(task, member_id, for_active=member_id == task.target, draining=draining, needs_no_slot=False)
        for member_id in lacking(task)
        if view.present_member(member_id) is not None
    ]
    return plan._replace(requests=tuple(requests))


def lacking(task: Task) -> list[MemberId]:
    """Return where a task that waits for a slot is to have a copy and has none, its target first."""
    owner, standbys = task.owner, task.standbys
    wanted = task.target_standbys
    found = [one for one in wanted if one not in standbys and one != owner] if wanted != standbys else []
    return [task.target, *found] if task.target is not None and task.target != owner else found


def _kept(view: View, task: Task, choice: Choice, wanted: list[MemberId]) -> dict[MemberId, Role]:
    active, owner = choice.active, task.owner
    previous_owner = owner if owner not in (None, active) else task.previous_owner
    if previous_owner is None and not task.standbys and not task.warmups:
        return {}
    holders = view.holders(task)
    holders.pop(active, None)  # type: ignore[arg-type]
    kept: dict[MemberId, Role] = {}
    if previous_owner is not None and previous_owner != active and view.present_member(previous_owner) is not None:
        if owner == previous_owner and task.state is not ActiveState.LOST:
            holders[previous_owner] = Role.STANDBY
        was_running = owner != previous_owner or task.state is ActiveState.RUNNING
        if previous_owner in holders and was_running and not view.as_if_released:
            kept[previous_owner] = Role.STANDBY
    held = [one for one in wanted if one in holders]
    for member_id in held:
        settled = holders[member_id] is Role.STANDBY or _is_caught_up(view, task, member_id)
        kept[member_id] = Role.STANDBY if settled else Role.WARMUP
    target = task.target
    if target is not None and target not in (active, owner) and target in holders and not view.is_stalled(task, target):
        kept.setdefault(target, holders[target])
        held.append(target)
    if len(kept) == len(holders):
        return kept
    surplus = [one for one in holders if one not in kept and (one != target or one != owner)]
    if surplus:
        runs = owner == active and task.state is ActiveState.RUNNING
        # While the owner keeps the task for its target, the target's copy is one of those that are wanted beside it.
        missing = max(len(wanted), len(task.target_standbys)) - len(held)
        if missing < len(surplus):
            # Only a copy that is caught up makes another one superfluous.
            missing += sum([not _is_caught_up(view, task, one) for one in held])
        for member_id in _surplus_kept(view, task, surplus, missing=missing, runs=runs or choice.ready):
            kept[member_id] = holders[member_id]
        if not view.as_if_released:
            _keep_on_drained(view, task, kept, {one: holders[one] for one in surplus if one not in kept})
    return kept


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


def _surplus_kept(view: View, task: Task, surplus: list[MemberId], *, missing: int, runs: bool) -> list[MemberId]:
    """Return the unwanted copies that stay for now: as many standbys as wanted ones are missing.

    While nobody is ready to run the task, all of them stay that hold any state.
    """
    holders = view.holders(task)
    ranked = sorted(surplus, key=lambda one: (*_warmth(view, task, one), one)) if len(surplus) > 1 else surplus
    if not runs:
        return [one for one in ranked if view.copy(task, one).readiness is not Readiness.COLD]
    standing = [one for one in ranked if holders.get(one, Role.STANDBY) is Role.STANDBY]
    return standing[: max(0, missing)]


def _warmth(view: View, task: Task, member_id: MemberId) -> tuple[int, int]:
    if _was_running_on(task, member_id):
        return (Readiness.RUNNING, 0)
    copy = view.copy(task, member_id)
    return (copy.readiness, copy.lag or 0)


def is_for_drain(view: View, plan: TaskPlan) -> bool:
    """Say whether the extra copies of a task are there because a member drains: its owner, or its last one.

    A member that gives the task up altogether in this step, or has done so, waits for none of its copies.
    """
    task, members = plan.task, view.members
    owner = task.owner if task.owner == plan.choice.active or task.owner in plan.copies else None
    return any(one in members and members[one].drain is not None for one in (owner, task.previous_owner) if one)


def _with_requests(
    view: View, task: Task, choice: Choice, copies: dict[MemberId, Role], wanted: list[MemberId]
) -> TaskPlan:
    needs: dict[MemberId, bool] = {}
    if task.target != choice.active:
        target = view.present_member(task.target)
        if target is not None and target.id not in copies and not view.is_stalled(task, target.id):
            needs[target.id] = True
    for member_id in wanted:
        if member_id not in copies:
            needs.setdefault(member_id, False)
    if not needs:
        return TaskPlan(task, choice, copies)
    free = view.config.num_standby_replicas - len(copies)
    if free >= len(needs) and view.grants_freely(needs):
        # Nothing that any other task asks for can stand in their way.
        copies.update(dict.fromkeys(needs, Role.STANDBY))
        return TaskPlan(task, choice, copies)
    plan = TaskPlan(task, choice, copies)
    draining = is_for_drain(view, plan)
    requests = [
        CopyRequest(task, member_id, for_active, draining, number < free)
        for number, (member_id, for_active) in enumerate(needs.items())
    ]
    return plan._replace(requests=tuple(requests))
