"""Which requested copies get a slot. Extra copies cost disk and network, so their number in a group is limited.

Every warmup needs a slot, and so does every copy of a task beyond ``1 + num_standby_replicas``. A task uses as many
slots as the larger of these two counts. Copies up to that number, and a takeover of a task without an owner, need no
slot and are never queued. Drains have a budget of their own. The slot of a handover is free once the new owner runs:
until then the last owner keeps its copy (``copies``), which may be one beyond the number.

Order: members on which no copy stalled or gave way first, the others by when one last did; then tasks in the same way.
So each has its turn (``turns``), and neither a bad member nor a slow task is always the first. Then copies for drains,
then actives before standbys, then the owner with the highest load for its capacity, then the shortest estimated
catch-up, then the least lag, then the tasks' order. A step that frees a slot gives it out again.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import Final, NamedTuple

from batonpass.core.handover.copies import CopyRequest, TaskPlan, is_for_drain, lacking, plan_task
from batonpass.core.handover.copy_capacity import CopyCapacity
from batonpass.core.handover.lag import level_in_ms
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import STANDBY, WARMUP, Role, Task
from batonpass.core.state.reasons import Held, Hold

_NEVER: Final = 2**62


class Slots:
    """What is left of one step's budgets, and of the room that members have."""

    def __init__(self, view: View, task_plans: list[TaskPlan], copy_capacity: CopyCapacity) -> None:
        config, stateful = view.config, len(view.group.table.stateful_indexes)
        self._view = view
        self.balance = self._balance_left = config.warmup_budget(stateful)
        self.drains = self._drain_left = config.drain_budget(stateful)
        self.per_member = config.max_warmups_per_member
        self._warmups: defaultdict[MemberId, int] = defaultdict(int)
        self.copy_capacity = copy_capacity
        waiting = _waiting_for_their_grant(view, task_plans)
        replicas = config.num_standby_replicas
        for plan in task_plans:
            copies = plan.copies
            if len(copies) > replicas or WARMUP in copies.values() or plan.task.id in waiting:
                self._count(plan, waits_for_grant=plan.task.id in waiting)

    def _count(self, plan: TaskPlan, *, waits_for_grant: bool) -> None:
        """Subtract the slots that a task's copies use."""
        warming = [member_id for member_id, role in plan.copies.items() if role is WARMUP]
        if waits_for_grant and plan.choice.active is not None:
            warming.append(plan.choice.active)
        used = max(len(warming), len(plan.copies) - self._view.config.num_standby_replicas)
        if is_for_drain(self._view, plan.task, plan.choice.active, plan.copies):
            self._drain_left -= used
        else:
            self._balance_left -= used
        for member_id in warming:
            self._warmups[member_id] += 1

    def left(self, *, for_drain: bool) -> int:
        """Return how many slots are left.

        The sum of both budgets limits it too, because a move under way changes its budget when its owner begins to
        drain, or stops draining.
        """
        return min(self._drain_left if for_drain else self._balance_left, self._drain_left + self._balance_left)

    @property
    def used(self) -> tuple[int, int]:
        """How many slots are taken, and how many of those for drains."""
        return self.balance - self._balance_left, self.drains - self._drain_left

    @property
    def full_members(self) -> tuple[MemberId, ...]:
        """The members that have no slot left."""
        return tuple(sorted(member_id for member_id, count in self._warmups.items() if count >= self.per_member))

    @property
    def are_overdrawn(self) -> bool:
        """Whether both budgets together are used up, so that neither gives anything."""
        return self._drain_left + self._balance_left <= 0

    def are_given(self, *, for_drain: bool) -> bool:
        """Say whether a slot is left, and moves are not held."""
        return self.left(for_drain=for_drain) > 0 and self._view.why_moves_are_held(for_balance=not for_drain) is None

    def are_left_for(self, order: "_Order") -> bool:
        """Say whether copies of this order may still be given."""
        return not order.needs_slot or self.are_given(for_drain=not order.for_balance)

    def why_not(self, request: CopyRequest) -> Hold | None:
        """Return why a copy cannot be given now; None if it can. A refused copy is refused for the rest of the step."""
        hold = self._view.why_moves_are_held(for_balance=not (request.for_drain or request.needs_no_slot))
        if hold is not None:
            return hold
        if not self.copy_capacity.allows(request.member_id, request.task.id):
            return Hold(Held.NO_CAPACITY)
        if request.needs_no_slot:
            return None
        if not request.for_drain and self._view.is_new_for(request.task, request.member_id):
            return Hold(Held.NEW_MEMBER, self._view.newcomers[request.member_id])
        if self.left(for_drain=request.for_drain) <= 0:
            return Hold(Held.DRAIN_BUDGET if request.for_drain else Held.WARMUP_BUDGET)
        if self._warmups[request.member_id] >= self.per_member:
            return Hold(Held.MEMBER_WARMUP_BUDGET)
        return None

    def hold_refused(self, task_plans: Iterable[TaskPlan]) -> None:
        """Say why moves wait whose copy was not given."""
        for plan in task_plans:
            is_without = plan.waits_for_copy and plan.requests[0].member_id not in plan.copies
            if is_without and (hold := self.why_not(plan.requests[0])) is not None:
                plan.hold(plan.task.target.owner, hold)

    def may_begin(self, member_id: MemberId) -> bool:
        """Say whether the member, which has no limit of its own, is present and may begin one more warmup."""
        return self._warmups[member_id] < self.per_member and self._view.present_member(member_id) is not None

    def take(self, request: CopyRequest) -> Role:
        """Give the requested copy, and return its role."""
        self.copy_capacity.take(request.member_id, request.task.id)
        if request.needs_no_slot:
            return STANDBY
        if request.for_drain:
            self._drain_left -= 1
        else:
            self._balance_left -= 1
        self._warmups[request.member_id] += 1
        return WARMUP


def _waiting_for_their_grant(view: View, task_plans: list[TaskPlan]) -> set[TaskId]:
    """Return the tasks that will be granted to one of their warmups, but not before its member confirms a revocation.

    Until then the copy counts as a warmup.
    """
    chosen = [plan for plan in task_plans if plan.task.warmups and _is_free_for_a_warmup(plan)]
    if not chosen or view.as_if_complete:
        return set()
    giving_up = {member.id for member in view.members.values() if member.revoking}
    for plan in task_plans:
        task, active = plan.task, plan.choice.active
        if task.owner is not None and task.owner != active:
            giving_up.add(task.owner)
        giving_up.update(holder for holder in task.holders if holder != active and holder not in plan.copies)
    return {plan.task.id for plan in chosen if plan.choice.active in giving_up}


def _is_free_for_a_warmup(plan: TaskPlan) -> bool:
    """Say whether the task has no owner and goes to a warmup that was not chosen as next owner before."""
    task, active = plan.task, plan.choice.active
    return (
        active in task.warmups
        and task.owner is None
        and not task.handover.unreleased
        and task.handover.next_owner != active
    )


class _Order(NamedTuple):
    """The order in which slots are given, before the estimated catch-up: smaller values first."""

    needs_slot: bool
    member_tried_ms: int
    task_tried_ms: int
    for_balance: bool
    for_standby: bool
    owner_load: float
    """The owner's load for its capacity, negated, so that the highest comes first."""


_Line = defaultdict[_Order, list[tuple[Task, MemberId, TaskPlan | None]]]
"""By order, the copies that wait for a slot: of which task, on which member, and the plan that it has already."""


def give_slots(
    view: View, task_plans: list[TaskPlan], copy_capacity: CopyCapacity, queue: Iterable[Task] = ()
) -> Slots:
    """Give slots to the requested copies, in order, and add these copies to ``task_plans``. Return the slots left.

    ``queue`` are the tasks that wait for a slot and have no plan yet (``Pending.QUEUED``). Those that get a slot are
    added to ``task_plans``. The queue is not read if no slot is left.
    """
    slots = Slots(view, task_plans, copy_capacity)
    in_line: _Line = defaultdict(list)
    for plan in task_plans:
        for request in plan.requests:
            in_line[_order(view, request)].append((plan.task, request.member_id, plan))
    _line_up(in_line, view, slots, queue)
    served: dict[TaskId, TaskPlan] = {}
    for order in filter(slots.are_left_for, sorted(in_line)):
        alike = in_line[order]
        if order.needs_slot or view.limited:
            alike.sort(key=lambda one: _catch_up_order(view, one[0], one[1]))
        for task, member_id, planned in alike:
            if not slots.are_left_for(order):
                break
            if planned is None and task.id not in served:
                served[task.id] = plan_task(view, task)
            plan = planned or served[task.id]
            for request in plan.requests:
                if request.member_id == member_id and slots.why_not(request) is None:
                    plan.copies[member_id] = slots.take(request)
    task_plans.extend(plan for plan in served.values() if len(plan.copies) > len(plan.task.standbys))
    slots.hold_refused(task_plans)
    return slots


def _line_up(in_line: _Line, view: View, slots: Slots, queue: Iterable[Task]) -> None:
    """Add the copies that queued tasks want on members that may begin another warmup."""
    leaving = view.draining
    has_slots, has_drain_slots = slots.are_given(for_drain=False), slots.are_given(for_drain=True)
    if not has_slots and not (leaving and has_drain_slots):
        return
    may_begin: dict[MemberId, bool] = {}
    for task in queue:
        owner = task.owner
        if owner is None or not (has_drain_slots if owner in leaving else has_slots):
            continue
        for member_id in lacking(task):
            if member_id not in may_begin:
                may_begin[member_id] = slots.may_begin(member_id)
            if may_begin[member_id] and not view.is_new_for(task, member_id):
                since_ms, for_standby = view.members[member_id].tried_ms, member_id != task.target.owner
                order = _Order(True, since_ms, 0, owner not in leaving, for_standby, -view.load(owner))
                in_line[order].append((task, member_id, None))


def _order(view: View, request: CopyRequest) -> _Order:
    if request.needs_no_slot and not view.limited:
        return _Order(False, 0, 0, False, False, 0.0)
    owner = request.task.owner
    overload = inf if owner is None else view.load(owner)
    member_ms = task_ms = 0
    if not request.needs_no_slot:
        member_ms = view.members[request.member_id].tried_ms
        task_ms = max([stall.until_ms for stall in request.task.marks.stalls], default=0)
    for_balance, for_standby = not request.for_drain, not request.for_active
    return _Order(not request.needs_no_slot, member_ms, task_ms, for_balance, for_standby, -overload)


def _catch_up_order(view: View, task: Task, member_id: MemberId) -> tuple[float, float, int]:
    """Return how soon a copy is caught up, as far as known. The order of tasks decides among equals."""
    copy = view.copy(task, member_id)
    soon = level_in_ms(copy)
    return (
        _NEVER if soon is None else soon,
        _NEVER if copy.lag is None else copy.lag,
        view.group.table.index_of[task.id],
    )
