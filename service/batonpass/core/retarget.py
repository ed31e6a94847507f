"""A new target: where placement would have everything, as far as it can be reached, and the record of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from batonpass.core.decision_draft import DecisionDraft
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.placement import PlacementError, place
from batonpass.core.placement_types import MoveReason, Placed, PlacementRequest
from batonpass.core.reach import as_it_is, look_ahead, wanted_at
from batonpass.core.reasons import Held, Quiet, Reason
from batonpass.core.records import TargetPlaced
from batonpass.core.targets import Change, build_request, differences
from batonpass.core.topology import is_ready
from batonpass.core.view import View


@dataclass(frozen=True, slots=True)
class Aim:
    """What a group is to come to.

    Attributes:
        request: what placement was asked.
        placed: what it answered.
        changes: the tasks whose target is another than before.
        kept: the tasks that stay although placement would move them, with the full member that has no room for them.
        waits: some tasks wait for room that may yet be made.
    """

    request: PlacementRequest
    placed: Placed
    changes: Mapping[TaskId, Change]
    kept: Mapping[TaskId, MemberId | None]
    waits: bool


_CODE: Final[Mapping[MoveReason, str]] = {why: why.value for why in MoveReason}


def aim(view: View) -> Aim:
    """Return where the group's tasks belong, as far as members that are full let them get there."""
    request = build_request(view)
    placed = place(request)
    changes = differences(view, request, placed)
    outlook = look_ahead(view, changes)
    kept: dict[TaskId, MemberId | None] = {}
    for one in outlook.stuck:
        stays = as_it_is(view, one)
        if stays is not None:
            task = view.group.tasks[one.task.id]
            changes.pop(task.id, None)
            if stays != (task.target, task.target_standbys, task.waiting):
                changes[task.id] = stays
            kept[task.id] = wanted_at(one, view.group.members)
    return Aim(request, placed, changes, kept, outlook.waits)


def place_now(draft: DecisionDraft) -> None:
    """Place the group's tasks anew and record what differs from the target before.

    Without a difference the generation stays; nothing at all is recorded when the group epoch had been answered
    already. A target that had to respect what lasts only for a while (a handover under way, a place that is kept, a
    copy that nobody can read, a member that is still full) is noted as bound: it is placed anew when the group would
    rest on it.
    """
    group = draft.group
    is_bound = False
    if not group.members or not is_ready(group.topology):
        draft.explain(Quiet.NO_MEMBERS if not group.members else Quiet.NOT_READY)
        changes: Mapping[TaskId, Change] = {}
        moves = lower_bound = 0
    else:
        try:
            found = aim(draft.view())
        except PlacementError as problem:
            _keep(draft, str(problem))
            return
        request, placed, changes = found.request, found.placed, found.changes
        is_bound = found.waits or any(
            group.tasks[group.table.ids[rank]].pin != request.members[index].id for rank, index in request.bound.items()
        )
        moves = placed.moves - _count_stateful(draft, placed, found.kept)
        lower_bound = min(placed.lower_bound, moves) if found.kept else placed.lower_bound
        _explain(draft, found)
    if draft.soft.bound_target is not is_bound:
        draft.soft = replace(draft.soft, bound_target=is_bound)
    if not changes:
        draft.explain(Quiet.SAME_TARGET)
        if group.due_ms is None and group.generation_epoch == group.group_epoch:
            return
    generation = group.generation + (1 if changes else 0)
    draft.record(TargetPlaced(generation, group.group_epoch, draft.now_ms, changes, moves, lower_bound))
    draft.touched = True


def _keep(draft: DecisionDraft, problem: str) -> None:
    """Keep the target that there is, and say why; recorded once for each change that was to be answered.

    It is placed anew at the next change of members, topology or settings, when a probe is due, or when asked for.
    """
    group = draft.group
    detail = f"the target stays what it was, and is placed anew at the next change or probe: {problem}"
    draft.explain(Quiet.PLACEMENT_FAILED, detail=detail)
    if draft.soft.bound_target:
        draft.soft = replace(draft.soft, bound_target=False)
    if group.due_ms is not None or group.generation_epoch != group.group_epoch:
        draft.record(TargetPlaced(group.generation, group.group_epoch, draft.now_ms, {}, failed=detail))


def _count_stateful(draft: DecisionDraft, placed: Placed, kept: Collection[TaskId]) -> int:
    """Return how many of the moves that placement counted are not made."""
    table = draft.group.table
    return sum(table.stateful[rank] for rank in map(table.rank.__getitem__, kept) if rank in placed.why)


def _explain(draft: DecisionDraft, found: Aim) -> None:
    """Add why tasks get another target, and why what is pinned or would be moved is not."""
    group, changes, kept = draft.group, found.changes, found.kept
    ids = group.table.ids
    moved = [(_CODE[why], ids[rank]) for rank, why in found.placed.why.items() if ids[rank] in changes]
    draft.reasons.extend([Reason(why, task, changes[task][0]) for why, task in moved if task not in kept])
    for task, pin in sorted(group.pins.items()):
        # On a member that drains a pin is suspended, and asks for no room.
        is_in_force = pin in group.members and group.members[pin].drain is None
        if is_in_force and task in group.table.rank and group.table.rank[task] not in found.request.bound:
            draft.explain(Held.NO_CAPACITY, task, pin, "it is pinned there, and there is no room for it")
    for task, full in kept.items():
        draft.explain(
            Held.NO_CAPACITY, task, full, "it stays as it is: there is no room for it, and none will come free there"
        )
