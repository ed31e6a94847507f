"""A new target: what placement wants, as far as the group can reach it, and the record of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Group, Target
from batonpass.core.state.reasons import Held, NoChange, Reason, Why
from batonpass.core.state.topology import is_ready
from batonpass.core.target.reach import Reachability, find_unreachable
from batonpass.core.target.targets import build_request, last_resorts, target_changes
from batonpass.placement.flow import PlacementError, Solver
from batonpass.placement.place import place
from batonpass.placement.types import Moves, Placed, PlacementRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """The target that a group is to reach.

    Attributes:
        request: the request to placement.
        placed: its answer, without the moves that are not made.
        changes: the tasks whose target changes.
        reach: what of its answer the group cannot reach, or not yet.
    """

    request: PlacementRequest
    placed: Placed
    changes: Mapping[TaskId, Target]
    reach: Reachability


def plan_target(view: View, solver: Solver, moves: Mapping[int, int] | None = None) -> TargetPlan:
    """Return where the group's tasks belong, as far as they can get there past members that are full.

    With ``moves``, members by tasks, these move, and every other task keeps its target.
    """
    request = build_request(view)
    if moves is not None:
        number = {member.id: index for index, member in enumerate(request.members)}
        targets = [view.group.tasks[task_id].target.owner for task_id in view.group.table.ids]
        stay = {task: number[owner] for task, owner in enumerate(targets) if owner is not None}
        request = replace(request, bound={**stay, **request.bound, **moves})
    placed = last_resorts(view, request, place(request, solver))
    changes = target_changes(view, request, placed)
    reach = find_unreachable(view, changes)
    for task_id, target in reach.kept.items():
        changes.pop(task_id, None)
        if target != view.group.tasks[task_id].target:
            changes[task_id] = target
    if reach.full:
        why = dict(placed.why)
        not_made = [task for task in map(view.group.table.index_of.__getitem__, reach.full) if why.pop(task, None)]
        made = placed.moves - sum([request.table.stateful[task] for task in not_made])
        placed = replace(placed, why=why, moves=made, lower_bound=min(placed.lower_bound, made))
    return TargetPlan(request, placed, changes, reach)


def try_to_plan(view: View, solver: Solver, plan: Callable[[View, Solver], T]) -> T | str:
    """Return what a plan finds, or why placement found nothing: leases and takeovers wait for none."""
    try:
        return plan(view, solver)
    except PlacementError as problem:
        return str(problem)
    except Exception as problem:  # noqa: BLE001 - whatever it is
        return f"{type(problem).__name__}: {problem}"


def place_now(draft: DecisionDraft) -> None:
    """Place the group's tasks anew and record what changes about the target.

    Without changes the generation stays the same. If also no placement was due, and the present group epoch was placed
    already, nothing is recorded. A target is provisional if it had to respect something temporary: a handover under
    way, a place kept for an away member, a copy without a known lag, a member that is still full. The group is placed
    anew before it rests on such a target. What it respects of members that are missing is kept until they are heard
    again or gone (``Soft.placed_without``).
    """
    group = draft.group
    is_provisional = False
    if not group.members or not is_ready(group.topology):
        draft.explain(NoChange.NO_MEMBERS if not group.members else NoChange.NOT_READY)
        changes: Mapping[TaskId, Target] = {}
        found = r.TargetPlaced(group.generation, group.group_epoch, draft.now_ms, {})
    else:
        target_plan = try_to_plan(draft.view(), draft.solver, plan_target)
        if isinstance(target_plan, str):
            _keep(draft, target_plan)
            return
        request, changes = target_plan.request, target_plan.changes
        # What a member keeps that is missing or distrusted is placed anew once that is over (`liveness`). One that
        # drains keeps nothing if others stay.
        may_move = {member.id for member in request.members if member.may_be_target}
        may_move |= {member.id for member in group.members.values() if member.drain is not None and may_move}
        is_provisional = target_plan.reach.may_free_up or any(
            request.members[index].id in may_move
            and group.tasks[group.table.ids[task_index]].marks.pin != request.members[index].id
            for task_index, index in request.bound.items()
        )
        _note_missing(draft, request, changes)
        _explain(draft, target_plan)
        found = record_of(draft, target_plan)
    if draft.soft.target_is_provisional is not is_provisional:
        draft.soft = draft.soft._replace(target_is_provisional=is_provisional)
    if not changes:
        draft.explain(NoChange.SAME_TARGET)
        if group.placement_due_ms is None and group.generation_epoch == group.group_epoch:
            return
    draft.record(found)


def record_of(draft: DecisionDraft, target_plan: TargetPlan) -> r.TargetPlaced:
    group, placed, changes = draft.group, target_plan.placed, target_plan.changes
    generation = group.generation + (1 if changes else 0)
    return r.TargetPlaced(generation, group.group_epoch, draft.now_ms, changes, placed.moves, placed.lower_bound)


def _note_missing(draft: DecisionDraft, request: PlacementRequest, changes: Mapping[TaskId, Target]) -> None:
    """Note the members that this placement gave nothing new because they were not there.

    A placement that changes nothing, and follows no change but that somebody is heard again, had nothing to give. If it
    counted, a group in which some member is always overdue would be placed without end.
    """
    missing = frozenset([MemberId(member.id) for member in request.members if member.keeps_copies])
    had_to_give = bool(changes) or any(trigger != r.HEARD_AGAIN for trigger in draft.group.triggers)
    noted = missing if had_to_give else missing & draft.soft.placed_without
    if noted != draft.soft.placed_without:
        draft.soft = draft.soft._replace(placed_without=noted)


def _keep(draft: DecisionDraft, problem: str) -> None:
    """Keep the present target after a failed placement, and say why. This is recorded once for each change.

    Placement is tried again at the next change of members, topology or settings, when a probe is due, and on request.
    """
    group = draft.group
    detail = f"the target stays unchanged, and is placed anew at the next change or probe: {problem}"
    draft.explain(NoChange.PLACEMENT_FAILED, detail=detail)
    if draft.soft.target_is_provisional:
        draft.soft = draft.soft._replace(target_is_provisional=False)
    if group.placement_due_ms is not None or group.generation_epoch != group.group_epoch:
        draft.record(r.TargetPlaced(group.generation, group.group_epoch, draft.now_ms, {}, failed=detail))


def _why_bound(group: Group, task: TaskId, target: MemberId | None) -> Why:
    if group.pins.get(task) == target:
        return Why.PINNED
    return Why.NO_OWNER if group.tasks[task].owner is None else Why.FAILED_ON_OWNER


def _explain(draft: DecisionDraft, target_plan: TargetPlan) -> None:
    """Add why targets change, and why some pins and moves of placement are not followed."""
    group, changes = draft.group, target_plan.changes
    takers = [member.id for member in target_plan.request.members if member.may_be_target]
    ids, codes = group.table.ids, {why: Why(why) for why in Moves}
    draft.reasons += [
        Reason(_why_bound(group, task, changes[task][0]) if why is Moves.PINNED else codes[why], task, changes[task][0])
        for task_index, why in target_plan.placed.why.items()
        if (task := ids[task_index]) in changes
    ]
    for task, pin in sorted(group.pins.items()):
        # While its member drains or is missing, a pin is suspended and needs no room.
        is_in_force = pin in takers
        if is_in_force and group.table.index_of[task] not in target_plan.request.bound:
            draft.explain(Held.NO_CAPACITY, task, pin, "it is pinned there, and there is no room for it")
    for task, full in target_plan.reach.full.items():
        draft.explain(
            Held.NO_CAPACITY, task, full, "it stays as it is: there is no room for it, and none will come free there"
        )
