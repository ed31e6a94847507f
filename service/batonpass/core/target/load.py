"""Balance by load: when a member has been too hot for long enough, and which tasks then leave it.

Placement says which tasks have to move so that no member has more than ``WITHIN`` above the average, by their measured
weights. A task that was moved for load lately stays, and so does one whose restore reads more than its move is worth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.turns import last_came_on
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Group, Task
from batonpass.core.state.policy import BalanceBy
from batonpass.core.state.reasons import NoChange, Reason, Why
from batonpass.core.state.soft import Soft
from batonpass.core.state.topology import by_load
from batonpass.core.target.retarget import TargetPlan, plan_target, record_of, try_to_plan
from batonpass.core.target.targets import build_request, loads_of
from batonpass.placement.flow import Solver
from batonpass.placement.place import place
from batonpass.placement.types import UNASSIGNED

WITHIN: Final = 0.1
"""How far above the average a member may stay. A step of a load is as large, so less than this is not known."""
TRIES: Final = 4
"""How often other moves are looked for in place of those that would not be worth it."""
RESTORED_PER_SECOND: Final = 20_000
"""The exchange rate: a restore of so many records costs a member as much as one second of all its load."""


def by_measured(group: Group) -> Group:
    """Return the group as if its tasks weighed what was measured."""
    is_so = group.config.balance_by is BalanceBy.MEASURED
    return group if is_so else replace(group, table=by_load(group.table, group.loads))


def loads_by_member(group: Group) -> dict[MemberId, float]:
    """Return the weight of the tasks whose target each member is, per unit of its capacity. None drains."""
    load = dict.fromkeys((member.id for member in group.members.values() if member.drain is None), 0.0)
    for task_id, weight in zip(group.table.ids, group.table.weight, strict=True):
        owner = group.tasks[task_id].target.owner
        if owner in load:
            load[owner] += weight
    return {member_id: amount / group.members[member_id].capacity for member_id, amount in load.items()}


def imbalance(group: Group, by_member: Mapping[MemberId, float] | None = None) -> float:
    """Return by how much the highest load per capacity is above the average: 0.25 is a quarter.

    ``by_member`` are the ``loads_by_member``, where they are known: a group has many tasks.
    """
    loads, members = loads_by_member(group) if by_member is None else by_member, group.members
    capacity = sum(members[member_id].capacity for member_id in loads)
    whole = sum(load * members[member_id].capacity for member_id, load in loads.items())
    return max(loads.values()) * capacity / whole - 1 if whole else 0.0


def due_ms(group: Group, soft: Soft) -> int | None:
    """Return when it is next decided what moves for load; None while no member is too hot."""
    if group.hot_since_ms is None:
        return None
    return max(group.hot_since_ms, soft.load_tried_ms) + group.config.load_patience_ms


def balance_by_load(draft: DecisionDraft) -> None:
    """Note whether a member is too hot, and move what should leave it, or (in shadow) only say so."""
    _note(draft)
    at_ms = due_ms(draft.group, draft.soft)
    if at_ms is None or draft.now_ms < at_ms or not _is_calm(draft.view()):
        return
    draft.soft = draft.soft._replace(load_tried_ms=draft.now_ms)
    view = View(by_measured(draft.group), draft.soft, draft.now_ms)
    plan = try_to_plan(view, draft.solver, plan_for_load)
    if isinstance(plan, str):
        draft.explain(NoChange.PLACEMENT_FAILED, detail=plan)
        return
    moved = moved_by(draft.group, plan) if plan is not None else {}
    if not moved or plan is None:
        draft.explain(NoChange.NOTHING_COOLS)
    elif draft.group.config.balance_by is BalanceBy.SHADOW:
        draft.reasons += [Reason(NoChange.SHADOW, task_id, to) for task_id, to in moved.items()]
    else:
        draft.record(record_of(draft, plan), r.MovedForLoad(tuple(moved), draft.now_ms))
        draft.reasons += [Reason(Why.HOT, task_id, to) for task_id, to in moved.items()]
        _note(draft)


def _note(draft: DecisionDraft) -> None:
    """Record since when a member is too hot, or that none is, after what may change that."""
    group = draft.group
    if not any(isinstance(record, r.LoadsMeasured | r.TargetPlaced) for record in draft.records):
        return
    is_counted = group.config.balance_by is not BalanceBy.DECLARED and bool(group.loads) and bool(group.members)
    is_hot = is_counted and imbalance(by_measured(group)) > group.config.load_imbalance
    if is_hot is (group.hot_since_ms is None):
        draft.record(r.ImbalanceNoted(draft.now_ms if is_hot else None))


def _is_calm(view: View) -> bool:
    """Say whether nothing else is going on: every member is there and was heard in full, and no move comes closer."""
    group = view.group
    if group.placement_due_ms is not None or view.why_moves_are_held(for_balance=True) is not None:
        return False
    for member in group.members.values():
        known = view.member_softs.get(member.id)
        is_there = member.gets_nothing or view.is_heard(member.id)
        if not is_there or known is None or not known.full:
            return False
    return not any(_is_coming(view, task) for task in view.tasks.pick(list(group.unsettled)))


def _is_coming(view: View, task: Task) -> bool:
    """Say whether a task is on its way to its target, and was not tried there in vain since its owner has it."""
    to = task.target.owner
    if to in (None, task.owner) or task.marks.parked:
        return False
    if any(stall.member_id == to and stall.until_ms > task.since_ms for stall in task.marks.stalls):
        return False
    target = view.present_member(to)
    if target is None or target.id not in task.holders:
        return True
    return view.now_ms - last_came_on(view.soft, task.id, target)[0] < view.config.warmup_stall_timeout_ms


def moved_by(group: Group, plan: TargetPlan) -> dict[TaskId, MemberId]:
    """Return the tasks that a plan gives another owner, in order, each with that owner."""
    return {
        task_id: target.owner
        for task_id, target in plan.changes.items()
        if target.owner is not None and target.owner != group.tasks[task_id].target.owner
    }


def plan_for_load(view: View, solver: Solver) -> TargetPlan | None:
    """Return the target with the moves that are worth it for load alone; None if there are none."""
    moves = _worthwhile(view, solver)
    return plan_target(view, solver, moves) if moves else None


def _worthwhile(view: View, solver: Solver) -> dict[int, int]:
    """Return the tasks that should move for load, with the member to which each does, by their indexes.

    What is not worth a restore from nothing stays, unless another member has state of it. A restore of unknown size
    counts as none.
    """
    tolerance = min(WITHIN, view.group.config.load_imbalance)
    request = replace(build_request(view), balance_held=False, balance_tolerance=tolerance)
    home, size, ms = request.home, request.state_size, view.group.config.load_cooldown_ms
    load = loads_of(request.table.weight, home, request.bound, len(request.members))
    stays = {index for index, member in enumerate(request.members) if member.may_be_target}
    average = sum(load[index] for index in stays) / sum(request.members[index].capacity for index in stays)

    def repays(task: int, records: int) -> bool:
        """Say whether a move, until the next one, takes more off a member than the restore of so many records costs."""
        off = request.table.weight[task] / request.members[home[task]].capacity * ms / 1_000
        return records * average <= off * RESTORED_PER_SECOND

    index_of, load_moves = view.group.table.index_of, view.group.load_moves
    stay = {index_of[one.task] for one in load_moves if one.at_ms + ms > view.now_ms and one.task in index_of}
    large = [task for task in request.table.stateful_indexes if not repays(task, size.get(task, 0))]
    warm = request.warmth(large, range(len(request.members)))
    stay.update(task for task in large if warm.get(task, {}).keys() <= {home[task]})
    bound = {task: home[task] for task in stay if home[task] != UNASSIGNED} | dict(request.bound)

    def is_worth_it(task: int, to: int) -> bool:
        copy = warm.get(task, {}).get(to)
        return repays(task, size.get(task, 0) if copy is None else copy.lag)

    moves, in_vain = dict[int, int](), dict[int, int]()
    for _ in range(TRIES):
        placed = place(replace(request, bound=bound), solver).owner
        moves = {task: to for task, to in enumerate(placed) if task not in bound and to not in (UNASSIGNED, home[task])}
        moves = {task: to for task, to in moves.items() if home[task] in stays}
        in_vain = {task: home[task] for task, to in moves.items() if not is_worth_it(task, to)}
        bound |= in_vain
        if not in_vain:
            break
    return _without(moves, set(in_vain), home)


def _without(moves: Mapping[int, int], stay: set[int], home: Sequence[int]) -> dict[int, int]:
    """Return the moves that are left if some tasks stay: none goes to a member that was to give one of these away."""
    left: dict[int, int] = dict(moves)
    while left.keys() & stay:
        left = {task: to for task, to in moves.items() if task not in stay}
        keep = {home[task] for task in stay}
        stay = stay | {task for task, to in left.items() if to in keep}
    return left
