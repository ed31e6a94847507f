"""Which moves are allowed: whom a change interrupts, who may take over, and how many copies it costs (L6, L7, L8).

Part of ``invariants``. Readiness is computed here from what the member said and from the ends that were read, not taken
from what the decision made of it.
"""

from __future__ import annotations

from typing import NamedTuple

from batonpass.core import records as r
from batonpass.core.ids import MemberId, TaskId, split_task_id
from batonpass.core.invariants.ledger import Ledger, Transition, Violation
from batonpass.core.model import ActiveState, Group, Member, Role, Task
from batonpass.core.soft import MeasuredReport, Positions, Soft


def check_interruptions(transition: Transition, ledger: Ledger, record: r.AssignmentChanged) -> list[Violation]:
    """Return what an assignment takes from a member that no move concerns, or for somebody who is not ready."""
    violations: list[Violation] = []
    member = ledger.member(record.member_id)
    if member is None:
        return []
    for task_id in (*record.revoked, *record.demoted):
        task = transition.after.tasks.get(task_id)
        if task is None or task_id not in transition.after.table.index_of or task.parked:
            continue
        held = ledger.grant(member.id, task_id)
        if held is None:
            violations.append(Violation("L6", "revoked, but it does not hold the task", task_id, member.id))
        elif held.role is Role.ACTIVE:
            violations += [] if ledger.is_suspected(member.id) else _check_handover(transition, member, task)
        elif _is_meant_for(task, member.id) and not _has_reason_to_drop(transition, task, member.id):
            violations.append(
                Violation("L6", f"its {held.role} is taken although the target wants it", task_id, member.id)
            )
    return violations


def _is_meant_for(task: Task, member_id: MemberId) -> bool:
    return member_id == task.target or member_id in task.target_standbys


def _has_reason_to_drop(transition: Transition, task: Task, member_id: MemberId) -> bool:
    """Say whether a copy that the target wants may go all the same: it stalled, or its state is gone."""
    stalled = any(stall.member_id == member_id and stall.until_ms > transition.now_ms for stall in task.stalls)
    measured = _report(transition.soft_after, member_id, task.id)
    return stalled or (measured is not None and measured.report.lost)


def _check_handover(transition: Transition, owner: Member, task: Task) -> list[Violation]:
    """An active is taken from an owner that is alive and willing only for a copy that is caught up."""
    before = transition.before.tasks.get(task.id)
    measured = _report(transition.soft_after, owner.id, task.id)
    state = before.state if before is not None and before.owner == owner.id else task.state
    if measured is not None and measured.report.state is not None:
        state = measured.report.state
    if state is ActiveState.LOST or _said_lost(transition, owner.id, task.id):
        return []
    if _is_past_deadline(transition, owner):
        return []
    next_owner = task.next_owner
    if next_owner is None or next_owner == owner.id:
        return [Violation("L6", "its active is taken, but nobody is to get it", task.id, owner.id)]
    if not transition.after.table.stateful[transition.after.table.index_of[task.id]]:
        return (
            []
            if next_owner == task.target
            else [Violation("L8", f"goes to {next_owner}, not to its target", task.id, owner.id)]
        )
    violations = []
    failed, runs = state is ActiveState.FAILED, state is ActiveState.RUNNING
    keeps = (
        before is not None
        and next_owner == before.previous_owner
        and _still_has_its_copy(transition, next_owner, task.id)
    )
    if not keeps and not is_caught_up_copy(
        transition.after, transition.soft_after, next_owner, task.id, on_disk=not runs
    ):
        violations.append(Violation("L7", f"taken for {next_owner}, whose copy is not caught up", task.id, owner.id))
    if runs and next_owner != task.target:
        violations.append(
            Violation("L8", f"taken for {next_owner}, which is not its target {task.target}", task.id, owner.id)
        )
    on_its_way_out = (transition.after.members.get(owner.id) or owner).drain is not None
    may_go_back = runs or failed or on_its_way_out
    if (
        not may_go_back
        and before is not None
        and next_owner == before.previous_owner
        and not _is_stuck(transition, before)
    ):
        violations.append(
            Violation("L8", f"a handover is taken back for its last owner {next_owner}", task.id, owner.id)
        )
    return violations


def _is_stuck(transition: Transition, task: Task) -> bool:
    """Say whether the owner has had a task for so long without running it that somebody else may be tried."""
    return transition.now_ms - task.since_ms >= transition.before.config.warmup_stall_timeout_ms


def _is_past_deadline(transition: Transition, owner: Member) -> bool:
    # The decision that begins a drain may find its deadline to be over already.
    drain = (transition.after.members.get(owner.id) or owner).drain
    return drain is not None and drain.deadline_ms is not None and drain.deadline_ms <= transition.now_ms


def _report(soft: Soft, member_id: MemberId, task_id: TaskId) -> MeasuredReport | None:
    member = soft.members.get(member_id)
    return member.reports.get(task_id) if member is not None else None


def _said_lost(transition: Transition, member_id: MemberId, task_id: TaskId) -> bool:
    measured = _report(transition.soft_after, member_id, task_id)
    return measured is not None and measured.report.lost


def _still_has_its_copy(transition: Transition, previous_owner: MemberId, task_id: TaskId) -> bool:
    """Say whether the last owner, which had everything when it stopped, has said nothing to the contrary since."""
    member_soft = transition.soft_after.members.get(previous_owner)
    member = transition.after.members.get(previous_owner)
    if member_soft is None or not member_soft.full or member is None or member.suspected:
        return False
    measured = member_soft.reports.get(task_id)
    return measured is None or not (measured.report.lost or measured.other_incarnation or measured.lag is not None)


def is_caught_up_copy(group: Group, soft: Soft, member_id: MemberId, task_id: TaskId, *, on_disk: bool) -> bool:
    """Say whether the member's state of the task is as good as the owner's.

    State on disk that nobody tails counts only with ``on_disk``: where no owner runs that it must keep up with.
    """
    member = group.members.get(member_id)
    grant = member.assignment.get(task_id) if member is not None else None
    measured = _report(soft, member_id, task_id)
    if member is None or member.suspected or measured is None or measured.report.lost or measured.other_incarnation:
        return False
    if not on_disk and (grant is None or grant.role is Role.ACTIVE):
        return False
    lags = recomputed_lags(group, soft, measured, task_id)
    if not lags:
        return False
    lag, config = min(lags), group.config
    if lag <= config.acceptable_recovery_lag:
        return True
    within, rate = config.acceptable_catchup_ms, measured.rate
    return within is not None and rate is not None and rate > 0 and lag * 1000 / rate <= within


def recomputed_lags(group: Group, soft: Soft, measured: MeasuredReport, task_id: TaskId) -> list[int]:
    """Return the lag by every end offset that is known: as the member said it, by its own ends, and by those read."""
    report = measured.report
    lags = [report.lag] if report.lag is not None else []
    if not report.positions:
        return lags
    own = _behind(report.positions, dict(report.end_offsets))
    subtopology, partition = split_task_id(task_id)
    topics = next((one.changelog_topics for one in group.topology.subtopologies if one.id == subtopology), ())
    read: dict[str, int] = {}
    for topic in topics:
        end = soft.end_offsets.get((topic, partition))
        if end is not None and not end.shrunk:
            read[topic] = end.offset
            if len(topics) == 1:
                read[""] = end.offset
    coordinators = _behind(report.positions, read)
    return lags + [lag for lag in (own, coordinators) if lag is not None]


def _behind(positions: Positions, ends: dict[str, int]) -> int | None:
    if any(topic not in ends for topic, _ in positions):
        return None
    return sum(max(0, ends[topic] - offset) for topic, offset in positions)


def check_budgets(transition: Transition, touched: list[TaskId]) -> list[Violation]:
    """Return where a step made copies beyond a budget. Lowering a budget, or losing an owner, leaves what is there."""
    new = _new_copies(transition)
    grown = [one for one in touched if one in transition.after.tasks and one in new and _grew(transition, one)]
    if not grown:
        return []
    after = transition.after
    in_use = spent(after)
    violations = []
    stateful, config = len(after.table.stateful_indexes), after.config
    normal, drains = config.warmup_budget(stateful), config.drain_budget(stateful)
    of_drains = [one for one in grown if is_of_a_drain(after, after.tasks[one])]
    if len(of_drains) < len(grown) and in_use.normal > normal:
        violations.append(
            Violation("L8", f"{in_use.normal} extra copies; max_warmup_replicas allows {normal}", grown[0])
        )
    total = in_use.normal + in_use.drains
    if of_drains and total > normal + drains:
        violations.append(
            Violation("L8", f"{total} extra copies; with drains, {normal + drains} are allowed", grown[0])
        )
    return violations + _check_member_budgets(transition, new)


class Spent(NamedTuple):
    """Slots in use: for moves of tasks that no drain has to do with, and for those of drains."""

    normal: int
    drains: int


def spent(group: Group) -> Spent:
    """Return the slots in use: those of the unsettled tasks, since a settled one has no copy too many."""
    replicas, normal, drains = group.config.num_standby_replicas, 0, 0
    for task in group.tasks.pick(group.unsettled):
        if task.warmups or len(task.standbys) > replicas:
            extra = slots_used(group, task)
            if extra and is_of_a_drain(group, task):
                drains += extra
            else:
                normal += extra
    return Spent(normal, drains)


def slots_used(group: Group, task: Task) -> int:
    """Return how many copies of the task the budgets count: its warmups, or what lies above the wanted number.

    A warmup that has been chosen as the next owner has nothing left to restore: it counts as the active to be.
    """
    copies = len(task.standbys) + len(task.warmups) + (task.owner is not None)
    return max(len(task.warmups) - (task.next_owner in task.warmups), copies - 1 - group.config.num_standby_replicas)


def is_of_a_drain(group: Group, task: Task) -> bool:
    """Say whether a member on its way out has a copy of the task, so that the drain's budget may pay."""
    holders = (task.owner, task.previous_owner, *task.standbys, *task.warmups)
    members = [group.members.get(one) for one in holders if one is not None]
    return any(member is not None and member.drain is not None for member in members)


def check_capacity(transition: Transition) -> list[Violation]:
    """Return the members that a step gave more than they take.

    ``max_tasks`` bounds all copies together, ``max_disk_bytes`` what all state on the disk will come to.
    """
    violations = []
    for record in transition.records:
        member = transition.after.members.get(record.member_id) if isinstance(record, r.AssignmentChanged) else None
        if member is None:
            continue
        before = transition.before.members.get(member.id)
        held = before.assignment.plain() if before is not None else {}
        if member.max_tasks is not None and len(member.assignment) > max(member.max_tasks, len(held)):
            detail = f"holds {len(member.assignment)} tasks; its max_tasks is {member.max_tasks}"
            violations.append(Violation("L8", detail, None, member.id))
        new = [task_id for task_id in member.assignment if task_id not in held]
        if member.max_disk_bytes is not None and _brings_state(transition, member.id, new):
            to_be = _bytes_to_be(transition, member)
            if to_be > member.max_disk_bytes:
                detail = f"its state would take {to_be} bytes; its max_disk_bytes is {member.max_disk_bytes}"
                violations.append(Violation("L8", detail, None, member.id))
    return violations


def _brings_state(transition: Transition, member_id: MemberId, task_ids: list[TaskId]) -> bool:
    """Say whether any of these tasks has state elsewhere and, as far as anybody knows, none on the member yet."""
    member_soft = transition.soft_after.members.get(member_id)
    there = member_soft.reports if member_soft is not None else {}
    before = transition.before.members.get(member_id)
    leaving = before.revoking if before is not None else {}
    return any(
        _size_of(transition, task_id) and (task_id not in there or there[task_id].report.lost)
        for task_id in task_ids
        if task_id not in leaving and _is_stateful(transition, task_id)
    )


def _is_stateful(transition: Transition, task_id: TaskId) -> bool:
    table = transition.after.table
    return task_id in table.index_of and table.stateful[table.index_of[task_id]]


def _size_of(transition: Transition, task_id: TaskId) -> int:
    """Return the most bytes that anybody says the state of a task takes."""
    said = [_report(transition.soft_after, one, task_id) for one in transition.soft_after.members]
    return max([one.report.disk_bytes or 0 for one in said if one is not None], default=0)


def _bytes_to_be(transition: Transition, member: Member) -> int:
    """Return what the state on a member's disk will come to once all that it holds is as large as elsewhere."""
    member_soft = transition.soft_after.members.get(member.id)
    there = {task: one.report.disk_bytes or 0 for task, one in member_soft.reports.items()} if member_soft else {}
    sizes = {task: _size_of(transition, task) for task in member.assignment if _is_stateful(transition, task)}
    return sum(max(there.get(task, 0), sizes.get(task, 0)) for task in {*there, *sizes})


def _new_copies(transition: Transition) -> dict[TaskId, list[MemberId]]:
    """Return the members that this step gave a standby or a warmup which they had in no role, by task."""
    new: dict[TaskId, list[MemberId]] = {}
    for record in transition.records:
        if isinstance(record, r.AssignmentChanged):
            member = transition.before.members.get(record.member_id)
            for task_id, grant in record.granted.items():
                if grant.role is not Role.ACTIVE and (member is None or task_id not in member.assignment):
                    new.setdefault(task_id, []).append(record.member_id)
    return new


def _grew(transition: Transition, task_id: TaskId) -> bool:
    before = transition.before.tasks.get(task_id) or Task(task_id)
    used = slots_used(transition.after, transition.after.tasks[task_id])
    return used > 0 and used > slots_used(transition.before, before)


def _check_member_budgets(transition: Transition, new: dict[TaskId, list[MemberId]]) -> list[Violation]:
    violations = []
    most = transition.after.config.max_warmups_per_member
    for member_id in sorted({one for members in new.values() for one in members}):
        member = transition.after.members.get(member_id)
        if member is None:
            continue
        warm = sorted(
            task
            for task, grant in member.assignment.items()
            if grant.role is Role.WARMUP and transition.after.tasks[task].next_owner != member_id
        )
        if len(warm) > most and any(member_id in new.get(task, ()) for task in warm):
            violations.append(
                Violation("L8", f"{len(warm)} warmups; max_warmups_per_member allows {most}", warm[-1], member_id)
            )
    return violations
