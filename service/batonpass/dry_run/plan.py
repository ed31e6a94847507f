"""The dry run: what the core would decide about a group, and what is so when that step is complete. It changes nothing.

``assignment`` is the result of one step; ``target`` is where all steps lead. If the assignment becomes the new state
and the dry run is repeated, the group comes to rest.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from batonpass.core.handover.copies import HeldBack, TaskPlan
from batonpass.core.handover.step import StepPlan, plan_step
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId, task_sort_key
from batonpass.core.state.model import ActiveState, Group, Role, Task
from batonpass.core.state.reasons import Held, Reason, Why
from batonpass.core.target.reach import with_targets
from batonpass.core.target.retarget import plan_target, try_to_plan
from batonpass.dry_run.snapshot import Snapshot, to_group
from batonpass.placement.flow import Solver, minimum_flow

Roles = Mapping[str, tuple[TaskId, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a group should become.

    Attributes:
        target: per member, the tasks that belong there, as ``active`` and ``standby``.
        assignment: per member, what it should hold when the next step is complete: ``active``, ``standby``, ``warmup``.
        moves: stateful tasks whose target owner is not their present owner, including tasks without an owner.
        lower_bound: the fewest moves that any balanced placement needs.
        at_rest: the assignment is what the members hold now, it equals the target, and every copy in it is caught up.
        probing_needed: there is something left to do.
        held_back: stateful tasks that are not with their target owner after the step, and have no copy there.
        reasons: one per task, in order.
        placement_failed: why no new target was found, so that the target is the one that the group has. Empty: it was.
    """

    target: Mapping[MemberId, Roles]
    assignment: Mapping[MemberId, Roles]
    moves: int
    lower_bound: int
    at_rest: bool
    probing_needed: bool
    held_back: tuple[HeldBack, ...]
    reasons: tuple[Reason, ...]
    placement_failed: str = ""


def plan_snapshot(snapshot: Snapshot, solver: Solver = minimum_flow) -> Plan:
    """Return the plan for a snapshot without contradictions, with a new target if there is one."""
    before = View(*to_group(snapshot), snapshot.now_ms, as_if_complete=True)
    found = try_to_plan(before, solver, plan_target)
    failed, changes = (found, {}) if isinstance(found, str) else ("", found.changes)
    view = with_targets(before, changes)
    lower_bound = 0 if isinstance(found, str) else found.placed.lower_bound
    answer = _answer(view, plan_step(view, view.group.table.ids), lower_bound)
    return replace(answer, placement_failed=failed) if failed else answer


def _answer(view: View, step: StepPlan, lower_bound: int) -> Plan:
    group, task_plans, held = view.group, step.task_plans, step.held
    tasks = [plan.task for plan in task_plans]
    moves = sum(
        task.target.owner is not None and _present_owner(task) != task.target.owner and view.is_stateful(task.id)
        for task in tasks
    )
    is_complete = all(_is_as_aimed(plan) and _is_ready(view, plan) for plan in task_plans)
    there = {plan.task.id for plan in task_plans if plan.task.target.owner in (plan.choice.active or "", *plan.copies)}
    return Plan(
        target=roles_by_member(group, TARGET_ROLES, targets_of(tasks)),
        assignment=roles_by_member(group, tuple(Role), holders_of(task_plans)),
        moves=moves,
        # Moves that find no room are not counted, so the bound must not count them either.
        lower_bound=min(lower_bound, moves),
        # Without members nothing can change, but a task that waits for a member is not at rest.
        at_rest=is_complete and all(map(_holds_already, task_plans)) and bool(group.members or not held),
        probing_needed=not is_complete,
        # A task that failed where it belongs, or waits beside a ready copy, has a reason but is not on this list.
        held_back=tuple(entry for entry in held if view.is_stateful(entry.task) and entry.task not in there),
        reasons=tuple([_reason(view, plan) for plan in task_plans]),
    )


TARGET_ROLES: Final = (Role.ACTIVE, Role.STANDBY)
_Held = tuple[MemberId, str, TaskId]
"""A member, and a task that it has in a role."""


def targets_of(tasks: Iterable[Task]) -> Iterator[_Held]:
    for task in tasks:
        if task.target.owner is not None:
            yield task.target.owner, Role.ACTIVE, task.id
        yield from ((member_id, Role.STANDBY, task.id) for member_id in task.target.standbys)


def holders_of(task_plans: Iterable[TaskPlan]) -> Iterator[_Held]:
    """Yield where tasks and their copies are when a step is complete."""
    for plan in task_plans:
        if plan.choice.active is not None:
            yield plan.choice.active, Role.ACTIVE, plan.task.id
        yield from ((member_id, role, plan.task.id) for member_id, role in plan.copies.items())


def roles_by_member(group: Group, roles: tuple[str, ...], held: Iterable[_Held]) -> dict[MemberId, Roles]:
    """Return, for every member, its tasks in each role, in order."""
    found: dict[MemberId, dict[str, list[TaskId]]] = {
        member_id: {str(role): [] for role in roles} for member_id in sorted(group.members)
    }
    for member_id, role, task_id in held:
        found[member_id][role].append(task_id)
    return {
        member_id: {role: tuple(in_order(group, tasks)) for role, tasks in by_role.items()}
        for member_id, by_role in found.items()
    }


def in_order(group: Group, task_ids: Collection[TaskId]) -> list[TaskId]:
    """Return tasks in the order of the topology. Tasks that it has dropped come where they would be in that order."""
    index_of = group.table.index_of
    if all(task_id in index_of for task_id in task_ids):
        return sorted(task_ids, key=index_of.__getitem__)
    return sorted(task_ids, key=task_sort_key)


def _present_owner(task: Task) -> MemberId | None:
    """Return the member that runs the task now: the last owner, until its revocation is confirmed."""
    return task.handover.unreleased[0].member_id if task.handover.unreleased else task.owner


def _holds_already(plan: TaskPlan) -> bool:
    task = plan.task
    return task.owner == plan.choice.active and not task.handover.unreleased and task.holders == plan.copies


def _is_as_aimed(plan: TaskPlan) -> bool:
    target = plan.task.target
    return plan.choice.active == target.owner and plan.copies == dict.fromkeys(target.standbys, Role.STANDBY)


def _is_ready(view: View, plan: TaskPlan) -> bool:
    """Say whether every copy of the task is caught up, and its active runs."""
    task, active = plan.task, plan.choice.active
    if task.state is ActiveState.FAILED and active == task.owner:
        return False
    if not view.is_stateful(task.id):
        return True
    if active is not None and not view.copy(task, active).is_caught_up:
        return False
    return all(member_id == task.owner or view.copy(task, member_id).is_caught_up for member_id in plan.copies)


_DETAIL: Mapping[str, str] = {
    Why.STAYS: "runs on {active} and stays there",
    Why.HANDOVER: "{target} is caught up: {owner} hands over",
    Why.HANDOVER_UNDER_WAY: "{active} gets it as soon as the last owner has confirmed",
    Why.FAILOVER: "{active} has the most caught-up copy and takes over",
    Why.TAKEOVER: "{active} takes over from a suspected owner",
    Why.COLD_START: "no copy anywhere: {active} restores it",
    Why.DEADLINE: "the drain's deadline is over: {active} takes it as it is",
    Why.STUCK: "{owner} does not come to run it: {active} takes over",
    Why.LOST_STATE: "{owner} lost its state: {active} restores it",
    Why.STATELESS: "no state to restore: {active} takes it at once",
}


def _reason(view: View, plan: TaskPlan) -> Reason:
    task, choice, back = plan.task, plan.choice, plan.held
    if back is not None and back.reason is Held.FAILED:
        return Reason(back.reason, task.id, None, f"failed on {choice.active}, and no other member is ready to take it")
    if back is not None:
        return Reason(back.reason, task.id, back.to, f"is to go to {back.to}" if back.to else "waits for a member")
    if choice.why is Why.STAYS and task.target.owner is not None and task.target.owner != choice.active:
        if choice.held is not None:
            return Reason(choice.held, task.id, task.target.owner, f"is to go to {task.target.owner}")
        copy = view.copy(task, task.target.owner)
        lag = "unknown" if copy.lag is None else str(copy.lag)
        return Reason(
            Why.WARMING, task.id, task.target.owner, f"runs on {choice.active}; {task.target.owner} warms up, lag {lag}"
        )
    detail = _DETAIL[choice.why].format(active=choice.active, target=task.target.owner, owner=task.owner)
    return Reason(choice.why, task.id, choice.active, detail)
