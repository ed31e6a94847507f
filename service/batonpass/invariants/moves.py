"""Which moves are allowed: which member is interrupted, which copy may take over, how many copies it costs (L6 to L8).

Part of ``invariants``. Readiness is computed here from the members' reports and the ends that were read, and not taken
from the decision.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId, split_task_id
from batonpass.core.state.model import ACTIVE, FAILED, LOST, RUNNING, WARMUP, Group, Member, Task
from batonpass.core.state.soft import MeasuredReport, Positions, Soft
from batonpass.invariants.ledger import Ledger, Transition, Violation


def check_interruptions(transition: Transition, ledger: Ledger, record: r.AssignmentChanged) -> Iterator[Violation]:
    """Yield what an assignment takes from a member without a move, or for a copy that is not ready."""
    member = ledger.member(record.member_id)
    if member is None:
        return
    for task_id in (*record.revoked, *record.demoted):
        task = transition.after.tasks.get(task_id)
        if task is None or task_id not in transition.after.table.index_of or task.marks.parked:
            continue
        held = ledger.grant(member.id, task_id)
        if held is None:
            yield Violation("L6", "revoked, but it does not hold the task", task_id, member.id)
        elif held.role is ACTIVE:
            if not member.suspected:
                yield from _check_handover(transition, ledger, member, task)
        elif member.id in (task.target.owner, *task.target.standbys) and not _has_reason_to_drop(
            transition, task, member.id
        ):
            yield Violation("L6", f"its {held.role} is taken although the target wants it", task_id, member.id)


def _has_reason_to_drop(transition: Transition, task: Task, member_id: MemberId) -> bool:
    """Say whether a copy that the target wants may be dropped: it stalled, or its state is gone."""
    stalled = any(stall.member_id == member_id and stall.until_ms > transition.now_ms for stall in task.marks.stalls)
    return stalled or _reported_lost(transition, member_id, task.id)


def _check_handover(transition: Transition, ledger: Ledger, owner: Member, task: Task) -> Iterator[Violation]:
    """Check that an owner loses its active only to a caught-up copy.

    A lost state, or the end of a drain's deadline, needs no such copy. The caller leaves suspected owners out. If the
    owner was adopted just now, it is none of those that were to have the task before.
    """
    before = None if task.id in ledger.adopted else transition.before.tasks.get(task.id)
    after, soft = transition.after, transition.soft_after
    measured = soft.report_of(owner.id, task.id)
    state = before.state if before is not None and before.owner == owner.id else task.state
    if measured is not None and measured.report.state is not None:
        state = measured.report.state
    if state is LOST or _reported_lost(transition, owner.id, task.id):
        return
    if _is_past_deadline(transition, owner):
        return
    next_owner = task.handover.next_owner
    if next_owner is None or next_owner == owner.id:
        yield Violation("L6", "its active is taken, but no next owner is chosen", task.id, owner.id)
        return
    if not after.table.stateful[after.table.index_of[task.id]]:
        if next_owner != task.target.owner:
            yield Violation("L8", f"goes to {next_owner}, not to its target", task.id, owner.id)
        return
    failed, runs = state is FAILED, state is RUNNING
    returns = before is not None and next_owner == before.handover.previous_owner
    keeps = returns and _still_has_its_copy(transition, next_owner, task.id)
    if not keeps and not is_caught_up_copy(after, soft, next_owner, task.id, on_disk=not runs):
        yield Violation("L7", f"taken for {next_owner}, whose copy is not caught up", task.id, owner.id)
    if runs and next_owner != task.target.owner:
        detail = f"taken for {next_owner}, which is not its target {task.target.owner}"
        yield Violation("L8", detail, task.id, owner.id)
    may_go_back = runs or failed or (after.members.get(owner.id) or owner).drain is not None
    # An owner that has had the task for so long without running it is stuck: another member may be tried.
    stuck_after_ms = transition.before.config.warmup_stall_timeout_ms
    is_stuck = before is not None and transition.now_ms - before.since_ms >= stuck_after_ms
    if returns and not may_go_back and not is_stuck:
        yield Violation("L8", f"a handover is taken back for its last owner {next_owner}", task.id, owner.id)


def _is_past_deadline(transition: Transition, owner: Member) -> bool:
    # The decision that begins a drain may find its deadline over already.
    drain = (transition.after.members.get(owner.id) or owner).drain
    return drain is not None and drain.deadline_ms is not None and drain.deadline_ms <= transition.now_ms


def _reported_lost(transition: Transition, member_id: MemberId, task_id: TaskId) -> bool:
    measured = transition.soft_after.report_of(member_id, task_id)
    return measured is not None and measured.report.lost


def _still_has_its_copy(transition: Transition, previous_owner: MemberId, task_id: TaskId) -> bool:
    """Say whether the last owner still has all state, as when it stopped: no report of it says otherwise."""
    member_soft = transition.soft_after.of(previous_owner)
    member = transition.after.members.get(previous_owner)
    if not member_soft.full or member is None or member.suspected:
        return False
    measured = member_soft.reports.get(task_id)
    return measured is None or not (measured.report.lost or measured.other_incarnation or measured.lag is not None)


def is_caught_up_copy(group: Group, soft: Soft, member_id: MemberId, task_id: TaskId, *, on_disk: bool) -> bool:
    """Say whether the member's state of the task is as good as the owner's.

    State on disk that the member does not tail counts only with ``on_disk``: when no owner runs.
    """
    member = group.members.get(member_id)
    grant = member.assignment.get(task_id) if member is not None else None
    measured = soft.report_of(member_id, task_id)
    if member is None or member.suspected or measured is None or measured.report.lost or measured.other_incarnation:
        return False
    if task_id in member.doubts:
        return False
    if not on_disk and (grant is None or grant.role is ACTIVE):
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
    """Return the lag by every known end offset: as the member reported it, by its own ends, and by those read."""
    report = measured.report
    lags = [report.lag] if report.lag is not None else []
    if not report.positions:
        return lags
    own = _behind(report.positions, dict(report.end_offsets))
    subtopology, partition = split_task_id(task_id)
    topics = next((part.changelog_topics for part in group.topology.subtopologies if part.id == subtopology), ())
    read: dict[str, int] = {}
    for topic in topics:
        end = soft.end_offsets.get((topic, partition))
        if end is not None and not end.shrunk:
            read[topic] = end.level_at
            if len(topics) == 1:
                read[""] = end.level_at
    coordinators = _behind(report.positions, read)
    return lags + [lag for lag in (own, coordinators) if lag is not None]


def _behind(positions: Positions, ends: dict[str, int]) -> int | None:
    if any(topic not in ends for topic, _ in positions):
        return None
    return sum(max(0, ends[topic] - offset) for topic, offset in positions)


def check_budgets(transition: Transition, ledger: Ledger) -> Iterator[Violation]:
    """Yield where a step made copies beyond a budget. Copies may stay when a budget is lowered or an owner is lost."""
    new, after = _new_copies(transition, ledger), transition.after
    config = after.config
    task_ids = dict.fromkeys(chain.from_iterable(new.values()))
    known, wanted = after.tasks.for_reads(len(task_ids)), config.num_standby_replicas
    tasks = [task for task in map(known.get, task_ids) if task and (task.warmups or len(task.standbys) > wanted)]
    grown = sorted(task.id for task in tasks if _grew(transition, task))
    if not grown:
        return
    spent, of_drains_spent = _spent(after)
    stateful = len(after.table.stateful_indexes)
    normal, drains = config.warmup_budget(stateful), config.drain_budget(stateful)
    of_drains = [task_id for task_id in grown if is_of_a_drain(after, after.tasks[task_id])]
    if len(of_drains) < len(grown) and spent > normal:
        yield Violation("L8", f"{spent} extra copies; max_warmup_replicas allows {normal}", grown[0])
    total = spent + of_drains_spent
    if of_drains and total > normal + drains:
        yield Violation("L8", f"{total} extra copies; with drains, {normal + drains} are allowed", grown[0])
    yield from _check_member_budgets(transition, new)


def _spent(group: Group) -> tuple[int, int]:
    """Return the slots in use, for moves without a drain and for moves of drains.

    Only unsettled tasks count, because a settled task has no copy too many.
    """
    normal, drains = 0, 0
    for task in group.tasks.pick(group.unsettled):
        extra = slots_used(group, task)
        if extra and is_of_a_drain(group, task):
            drains += extra
        else:
            normal += extra
    return normal, drains


def slots_used(group: Group, task: Task) -> int:
    """Return how many copies of the task the budgets count: its warmups, or those beyond the wanted number.

    A warmup on the next owner has nothing left to restore, so it counts as the active.
    """
    copies = len(task.standbys) + len(task.warmups) + (task.owner is not None)
    return max(
        len(task.warmups) - (task.handover.next_owner in task.warmups), copies - 1 - group.config.num_standby_replicas
    )


def is_of_a_drain(group: Group, task: Task) -> bool:
    """Say whether a draining member has a copy of the task, so that the drain budget may pay for it."""
    holders = (task.owner, task.handover.previous_owner, *task.standbys, *task.warmups)
    members = [group.members.get(holder) for holder in holders if holder is not None]
    return any(member is not None and member.drain is not None for member in members)


def check_capacity(transition: Transition) -> Iterator[Violation]:
    """Yield the members that a step gave more than they take.

    ``max_tasks`` bounds all copies together, ``max_disk_bytes`` the expected size of all state on the disk.
    """
    for record in transition.records:
        member = transition.after.members.get(record.member_id) if isinstance(record, r.AssignmentChanged) else None
        if member is None:
            continue
        before = transition.before.members.get(member.id)
        held = before.assignment.plain() if before is not None else {}
        if member.max_tasks is not None and len(member.assignment) > max(member.max_tasks, len(held)):
            detail = f"holds {len(member.assignment)} tasks; its max_tasks is {member.max_tasks}"
            yield Violation("L8", detail, None, member.id)
        if member.max_disk_bytes is None:
            continue
        new = [task_id for task_id in member.assignment if task_id not in held]
        if _brings_state(transition, member.id, new):
            to_be = _bytes_to_be(transition, member)
            if to_be > member.max_disk_bytes:
                detail = f"its state would take {to_be} bytes; its max_disk_bytes is {member.max_disk_bytes}"
                yield Violation("L8", detail, None, member.id)


def _brings_state(transition: Transition, member_id: MemberId, task_ids: list[TaskId]) -> bool:
    """Say whether any of these tasks has state elsewhere and, as far as known, none on the member yet."""
    there = transition.soft_after.of(member_id).reports
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
    """Return the largest size that any member reports for the state of a task."""
    reports = [transition.soft_after.report_of(member_id, task_id) for member_id in transition.soft_after.members]
    return max([report.report.disk_bytes or 0 for report in reports if report is not None], default=0)


def _bytes_to_be(transition: Transition, member: Member) -> int:
    """Return the size of a member's state on disk once each task that it holds is as large as on other members."""
    reports = transition.soft_after.of(member.id).reports
    there = {task: measured.report.disk_bytes or 0 for task, measured in reports.items()}
    sizes = {task: _size_of(transition, task) for task in member.assignment if _is_stateful(transition, task)}
    return sum(max(there.get(task, 0), sizes.get(task, 0)) for task in {*there, *sizes})


def _new_copies(transition: Transition, ledger: Ledger) -> dict[MemberId, list[TaskId]]:
    """Return, by member, the tasks that this step gave it a copy of, and that it neither held nor ran by itself."""
    new: defaultdict[MemberId, list[TaskId]] = defaultdict(list)
    for record in transition.records:
        if isinstance(record, r.AssignmentChanged):
            member = transition.before.members.get(record.member_id)
            held = member.assignment.for_reads(len(record.granted)) if member is not None else {}
            new[record.member_id] += [
                task_id
                for task_id, grant in record.granted.items()
                if grant.role is not ACTIVE and task_id not in held and ledger.adopted.get(task_id) != record.member_id
            ]
    return new


def _grew(transition: Transition, task: Task) -> bool:
    used = slots_used(transition.after, task)
    return used > 0 and used > slots_used(transition.before, transition.before.task(task.id))


def _check_member_budgets(transition: Transition, new: dict[MemberId, list[TaskId]]) -> Iterator[Violation]:
    most = transition.after.config.max_warmups_per_member
    for member_id, task_ids in sorted(new.items()):
        member = transition.after.members.get(member_id)
        if member is None:
            continue
        warm = sorted(
            task
            for task, grant in member.assignment.items()
            if grant.role is WARMUP and transition.after.tasks[task].handover.next_owner != member_id
        )
        if len(warm) > most and not {*task_ids}.isdisjoint(warm):
            yield Violation("L8", f"{len(warm)} warmups; max_warmups_per_member allows {most}", warm[-1], member_id)
