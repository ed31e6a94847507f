"""A group as people and scripts see it: where it stands, what is left to do, and why it is not there yet.

It changes nothing and uses no stored decision. It asks the files that decide what is held back now, and why.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from batonpass.core.handover.copies import HeldBack, TaskPlan
from batonpass.core.handover.lag import caught_up_in_ms
from batonpass.core.handover.owner import Choice
from batonpass.core.handover.probing import is_at_rest
from batonpass.core.handover.state_size import state_sizes
from batonpass.core.handover.step import plan_step
from batonpass.core.handover.view import View
from batonpass.core.state.application import Application, application_of, others_refusals, rebalance_due_ms
from batonpass.core.state.ids import MemberId, TaskId, task_sort_key
from batonpass.core.state.model import ActiveState, Group, Role, Task
from batonpass.core.state.reasons import Why
from batonpass.core.state.soft import MeasuredReport, Refused
from batonpass.core.state.topology import is_ready, why_not_ready
from batonpass.dry_run.plan import TARGET_ROLES, Roles, holders_of, in_order, roles_by_member, targets_of
from batonpass.dry_run.snapshot import Snapshot, SnapshotCopy, SnapshotMember, SnapshotTask


class GroupState(StrEnum):
    """The state of a group in one word."""

    EMPTY = "empty"
    NOT_READY = "not-ready"
    BALANCING = "balancing"
    AT_REST = "at-rest"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Where a group stands.

    Attributes:
        detail: what a group that is not ready waits for, why it is paused, or why its application is refused.
        eta_ms: when all present warmups should be caught up; None if there are none, or a rate is unknown. Moves that
            are held back come later.
        moves_pending: the tasks that are not with their target owner.
        next_probe_ms: an instant; None at rest, and while Kafka's own assignor decides.
        application: what is known of the Kafka Streams application; None for a group whose members heartbeat.
        others_refusals: those of another application that asks under the group's name; None: there is none.
    """

    state: GroupState
    detail: str
    at_rest: bool
    warmups: int
    moves_pending: int
    eta_ms: int | None
    next_probe_ms: int | None
    held_back: tuple[HeldBack, ...]
    application: Application | None
    others_refusals: Refused | None


def status_of(view: View, held: Sequence[HeldBack]) -> GroupStatus:
    """Return where the group stands, given what the present step holds back."""
    group = view.group
    application = application_of(group, view.soft, view.now_ms)
    refused = None if application is None else application.refused
    at_rest = is_ready(group.topology) and is_at_rest(view) and not idle_tasks(view) and refused is None
    waits = [group.tasks[task_id] for task_id in group.unsettled if task_id in group.table.index_of]
    etas = [
        caught_up_in_ms(view.copy(task, member_id), group.config)
        for task in waits
        for member_id in task.warmups
        if view.present_member(member_id) is not None
    ]
    known = [eta for eta in etas if eta is not None]
    state, detail = _state(group, refused, at_rest=at_rest)
    return GroupStatus(
        state=state,
        detail=detail,
        at_rest=at_rest,
        warmups=len(etas),
        moves_pending=sum(task.owner != task.target.owner for task in waits if task.target.owner is not None),
        eta_ms=max(known) if known and len(known) == len(etas) else None,
        next_probe_ms=None if at_rest else rebalance_due_ms(group),
        held_back=tuple(held) if group.members else (),
        application=application,
        others_refusals=others_refusals(group, view.soft, view.now_ms),
    )


def idle_tasks(view: View) -> list[TaskId]:
    """Return the tasks that ran, and that their owners now report as not running, in order.

    No task moves for that: an owner whose lease was over may start it again. Meanwhile the group is not at rest.
    """
    idle = []
    for member_id, member_soft in view.soft.members.items():
        member = view.present_member(member_id)
        if member is not None and member_soft.full:
            idle += [task.id for task in view.tasks.pick(member.actives) if is_idle(view, task)]
    return sorted(idle, key=task_sort_key)


def is_idle(view: View, task: Task) -> bool:
    """Say whether a task ran on its owner, which reports now that it does not: not started again, or given up.

    A Kafka Streams application reports nothing between the rebalance that grants a task and the next one.
    """
    if view.config.kafka_streams:
        return False
    if task.owner is None or task.state is not ActiveState.RUNNING or not view.soft.of(task.owner).full:
        return False
    member_soft = view.soft.of(task.owner)
    grant, measured = view.members[task.owner].assignment[task.id], member_soft.reports.get(task.id)
    return member_soft.echoed >= grant.epoch and (measured is None or measured.report.role != Role.ACTIVE)


def _state(group: Group, refused: Refused | None, *, at_rest: bool) -> tuple[GroupState, str]:
    why_refused = "" if refused is None else f"rebalances are refused: {refused.why}"
    if not is_ready(group.topology):
        is_without = "no topic that the application reads is there, so it has no task"
        why = is_without if group.config.kafka_streams else why_not_ready(group.topology)
        return GroupState.NOT_READY, why_refused or why
    if not group.members:
        return GroupState.EMPTY, why_refused
    if group.pause is not None:
        return GroupState.PAUSED, group.pause.reason
    return (GroupState.AT_REST if at_rest else GroupState.BALANCING), why_refused


@dataclass(frozen=True, slots=True)
class Assignments:
    """Where tasks belong, where this step takes them, and which members hold them now.

    Each maps every member to its tasks by role. ``current`` has under ``revoking`` what a member has to give up.
    """

    target: Mapping[MemberId, Roles]
    intermediate: Mapping[MemberId, Roles]
    current: Mapping[MemberId, Roles]


def describe_assignments(view: View) -> Assignments:
    group = view.group
    tasks = group.tasks.pick(group.table.ids)
    step = {plan.task.id: plan for plan in plan_step(view).task_plans}
    still = [TaskPlan(task, Choice(task.owner, Why.STAYS), task.holders) for task in tasks if task.id not in step]
    return Assignments(
        target=roles_by_member(group, TARGET_ROLES, targets_of(tasks)),
        intermediate=roles_by_member(group, tuple(Role), holders_of([*step.values(), *still])),
        current=roles_by_member(group, (*Role, "revoking"), _held_now(group)),
    )


def _held_now(group: Group) -> Iterator[tuple[MemberId, str, TaskId]]:
    for member_id, member in group.members.items():
        yield from ((member_id, grant.role, task_id) for task_id, grant in member.assignment.items())
        yield from ((member_id, "revoking", task_id) for task_id in member.revoking)


def snapshot_of(view: View) -> Snapshot:
    """Return the group as a snapshot that leads to the same plan."""
    group, table = view.group, view.group.table
    tasks = tuple(
        SnapshotTask(
            task_id,
            stateful=table.stateful[task_index],
            weight=table.weight[task_index],
            revoking=_revoking(group.tasks[task_id]),
        )
        for task_index, task_id in enumerate(table.ids)
    )
    sizes = state_sizes(group, view.soft)
    members = tuple(_snapshot_member(view, member_id, sizes) for member_id in sorted(group.members))
    placed = [group.tasks[task_id] for task_id in table.ids]
    return Snapshot(
        config=group.config,
        tasks=tasks,
        members=members,
        now_ms=view.now_ms,
        target={
            task.id: (task.target.owner, task.target.standbys)
            for task in placed
            if task.target.owner or task.target.standbys
        },
        pins={task.id: task.marks.pin for task in placed if task.marks.pin is not None},
        paused=group.pause.scope if group.pause is not None else None,
    )


def _revoking(task: Task) -> MemberId | None:
    """Return the member that still has to confirm that it gave the task up; None once the task runs elsewhere."""
    waits = (entry.member_id for entry in task.handover.unreleased if entry.free_at_ms is None)
    return next(waits, None) if task.owner is None else None


def _snapshot_member(view: View, member_id: MemberId, sizes: Mapping[int, int]) -> SnapshotMember:
    group, member, reports = view.group, view.members[member_id], view.soft.of(member_id).reports
    copies: dict[TaskId, SnapshotCopy] = {}
    known = [task_id for task_id in {*member.assignment, *reports, *member.revoking} if task_id in group.table.index_of]
    for task_id in in_order(group, known):
        copy = _snapshot_copy(group.tasks[task_id], member_id, group, reports.get(task_id))
        copies[task_id] = replace(copy, end_offset=sizes.get(group.table.index_of[task_id]) or None)
    return SnapshotMember(
        id=member_id,
        capacity=member.capacity,
        max_tasks=member.max_tasks,
        client_tags=member.client_tags,
        draining=member.drain is not None,
        missing=not view.is_heard(member_id),
        tasks=copies,
    )


def _snapshot_copy(task: Task, member_id: MemberId, group: Group, measured: MeasuredReport | None) -> SnapshotCopy:
    member = group.members[member_id]
    grant = member.assignment.get(task.id)
    is_active = member_id == (task.owner or _revoking(task))
    role = "active" if is_active else (grant.role.value if grant is not None else "none")
    lag = measured.lag if measured is not None else None
    is_lost = (measured is not None and measured.report.lost) or (is_active and task.state is ActiveState.LOST)
    shown = {ActiveState.GRANTED: ActiveState.RESTORING, ActiveState.LOST: None}
    state = shown.get(task.state, task.state) if is_active else None
    progress_ms = measured.progress_ms if measured is not None and role == "warmup" else None
    return SnapshotCopy(role, state, lag, is_lost, progress_ms)
