"""Groups of Kafka Streams applications: their members do not heartbeat, Kafka's group leader speaks for all of them.

At every rebalance the leader says who is in the group and what each process has, and is answered who is to have what
(KIP-924). Between two rebalances nothing is heard, and nothing can be changed: no lease runs, no timer moves anything,
and what operators ask for waits for the next rebalance.

What is answered is taken to be done, until the next rebalance says otherwise, but for one thing: who is to give an
active up still runs it. Kafka makes a move of two rebalances, and only the second one tells that the task is free. So
the group takes the same steps as any other, with the report of the leader in place of heartbeats:

1. whoever is not in the report has left, whoever is new joins, and a process that changed its threads or tags is a new
   run of its own (``_take_members``);
2. what each process has is taken as its heartbeat: releases are confirmed, lags are measured (``_take_reports``);
3. what Kafka gave to somebody by itself is that process's own (``_adopt``): it ran before it asked us, an answer was
   lost, or the plug-in fell back;
4. the target is placed, and steps are taken until only revoked actives are waited for (``_take_steps``).

A leader in ``shadow`` follows Kafka's own assignor: the target is placed and shown, and no step is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from batonpass.core import membership, reports
from batonpass.core.budget import HeldBack
from batonpass.core.commands import require_size
from batonpass.core.copies import TaskPlan
from batonpass.core.decision_draft import DecisionDraft
from batonpass.core.errors import InvalidRequest, ProtocolError, TooLarge
from batonpass.core.ids import InstanceId, MemberId, TaskId
from batonpass.core.inputs import Heartbeat, Join, OtherAssignment, StreamsProcess, StreamsRebalance
from batonpass.core.lag import level_in_ms
from batonpass.core.liveness import end_pause_if_over, find_stalls, forget_gone
from batonpass.core.model import ActiveState, Cause, Member, Role, Task
from batonpass.core.policy import parse_config
from batonpass.core.probing import is_at_rest
from batonpass.core.reasons import Reason
from batonpass.core.records import (
    ActiveReported,
    ConfigChanged,
    GroupDeclared,
    MemberGone,
    ProbeScheduled,
    Record,
    TargetPlaced,
    TaskReleased,
    TasksAdopted,
    TopologyChanged,
)
from batonpass.core.replies import Reply, StreamsAdvice
from batonpass.core.retarget import place_now
from batonpass.core.soft import TaskReport
from batonpass.core.step import plan_step, take_step
from batonpass.core.topology import next_topology
from batonpass.core.view import View

NUDGE_MS = 150
"""After a rebalance that takes an active away, everybody is to come back this soon: Streams tells only the next owner
at once, and whoever neither gives nor takes would hear of it by its heartbeat, up to 3 s later."""

SOONEST_MS = 1_000
UNKNOWN_MS = 2_000
"""When to ask again while copies restore: no sooner than the first, and after the second while nothing is known of how
fast they are."""

OTHER_ASSIGNOR = "other-assignor"
"""The code of the reason that says what Kafka's own assignor decided instead."""


def rebalance(draft: DecisionDraft, item: StreamsRebalance) -> Reply:
    """Take what the leader of a rebalance says, and answer what everybody is to have."""
    # Whatever may be refused is refused before anything is recorded.
    refused = _too_large(draft, item) or _declare(draft, item)
    if refused is not None:
        return refused
    _take_members(draft, item)
    _take_reports(draft, item)
    _adopt(draft, item)
    end_pause_if_over(draft)
    find_stalls(draft)
    forget_gone(draft)
    place_now(draft)
    assignor = "" if item.other is None else item.other.assignor
    if draft.soft.other_assignor != assignor:
        draft.soft = replace(draft.soft, other_assignor=assignor)
    if item.other is not None:
        _explain_other(draft, item.other)
    else:
        _take_steps(draft)
    return _answer(draft, item)


def _too_large(draft: DecisionDraft, item: StreamsRebalance) -> TooLarge | None:
    policy = draft.policy
    if len(item.processes) > policy.max_members:
        return TooLarge(f"the application has {len(item.processes)} processes, the limit is {policy.max_members}")
    most = max(len(process.tasks) for process in item.processes)
    if most > policy.max_tasks_per_heartbeat:
        return TooLarge(f"a process may have {policy.max_tasks_per_heartbeat} tasks; one of these has {most}")
    return None


def _declare(draft: DecisionDraft, item: StreamsRebalance) -> ProtocolError | None:
    """Declare the group, or change it to what the application is now."""
    group = draft.group
    if group.declared and not group.config.kafka_streams:
        message = f"group {group.id!r} is one of members that heartbeat; name another group for the application"
        return InvalidRequest(message, errors=[("path.group", message)])
    try:
        epoch = max(1, group.topology.epoch)
        topology = next_topology(group.topology, replace(item.topology, epoch=epoch))
        config = parse_config({**item.config, "kafka_streams": True}, group.config if group.declared else None)
        require_size(draft, topology)
    except ProtocolError as refused:
        return refused
    if not group.declared:
        draft.record(GroupDeclared(topology, config, draft.now_ms))
        return None
    if topology != group.topology:
        draft.record(TopologyChanged(topology))
    if config != group.config:
        draft.record(ConfigChanged(config))
    return None


def _take_members(draft: DecisionDraft, item: StreamsRebalance) -> None:
    processes = {process.id: process for process in item.processes}
    for member in sorted(draft.group.members.values(), key=lambda one: one.id):
        if member.instance_id is None or member.instance_id not in processes:
            draft.record(MemberGone(member.id, Cause.LEFT, at_ms=draft.now_ms, lease_end_ms=draft.now_ms))
            draft.schedule("leave")
    for process in item.processes:
        present_id = draft.group.instances.get(process.id)
        present = None if present_id is None else draft.group.members[present_id]
        if present is not None and _is_same_run(present, process):
            continue
        membership.join(
            draft,
            Join(
                _unused_id(draft, process.name or process.id),
                instance_id=process.id,
                replaces=present_id,
                capacity=process.capacity,
                client_tags=process.client_tags,
                endpoint=process.endpoint,
            ),
        )


def _is_same_run(member: Member, process: StreamsProcess) -> bool:
    """Say whether a process is what its member joined as: its threads, its tags and its address are the same."""
    return (member.capacity, member.client_tags, member.endpoint) == (
        process.capacity,
        process.client_tags,
        process.endpoint,
    )


def _unused_id(draft: DecisionDraft, name: str) -> MemberId:
    """Return an id for a new run of a process: the name itself, then numbered, since no id is used twice."""
    group, number, found = draft.group, 1, MemberId(name)
    while found in group.members or found in group.gone:
        number += 1
        found = MemberId(f"{name}.{number}")
    return found


def _take_reports(draft: DecisionDraft, item: StreamsRebalance) -> None:
    """Take what each process has as the heartbeat of its member, which knows its present assignment."""
    for process in item.processes:
        member = draft.group.members[draft.group.instances[process.id]]
        known = draft.member_soft(member.id)
        tasks = {task_id: _in_its_role(member, task_id, report) for task_id, report in process.tasks.items()}
        seq = 0 if known is None else known.seq + 1
        reports.heartbeat(draft, Heartbeat(member.id, max(0, seq), member.epoch, tasks))


def _in_its_role(member: Member, task_id: TaskId, report: TaskReport) -> TaskReport:
    """Return the report of a copy in the role that it was given: Kafka tells no standby from what was left behind."""
    grant = member.assignment.get(task_id)
    if report.role == "active" or grant is None or grant.role is Role.ACTIVE:
        return report
    return report._replace(role=grant.role.value)


def _adopt(draft: DecisionDraft, item: StreamsRebalance) -> None:
    """Make what a process runs its own although the group gave it to somebody else, or to nobody.

    Who was to give a task up and has been answered since that it is to have it goes on without a break. In ``shadow``
    what nobody runs is taken to be what Kafka's own assignor gives it to.
    """
    runners: dict[TaskId, list[MemberId]] = {}
    for process in item.processes:
        for task_id, report in process.tasks.items():
            if report.role == "active" and task_id in draft.group.table.index_of:
                runners.setdefault(task_id, []).append(draft.group.instances[process.id])
    for process_id, tasks in sorted(item.other.actives.items()) if item.other is not None else ():
        for task_id in tasks:
            if task_id in draft.group.table.index_of and process_id in draft.group.instances:
                runners.setdefault(task_id, [draft.group.instances[process_id]])
    adopted: dict[MemberId, dict[TaskId, int]] = {}
    released: list[Record] = []
    for task_id, members in sorted(runners.items()):
        task = draft.group.tasks[task_id]
        giving_up = {entry.member_id for entry in task.unreleased} - {task.next_owner}
        known = {task.owner} if task.next_owner is None else {task.owner, *giving_up}
        if known.isdisjoint(members):
            adopted.setdefault(min(members), {})[task_id] = max(task.token, draft.group.tokens_from) + 1
            released += [TaskReleased(task_id, task.owner, at_ms=draft.now_ms)] if task.owner is not None else []
    draft.record(*(TasksAdopted(one, tokens, (), draft.now_ms) for one, tokens in sorted(adopted.items())), *released)


def _explain_other(draft: DecisionDraft, other: OtherAssignment) -> None:
    """Say how many tasks Kafka's own assignor moves, which is the one that is followed."""
    tasks, table = draft.group.tasks, draft.group.table
    members = draft.group.instances
    moved = [
        task_id
        for process_id, actives in sorted(other.actives.items())
        for task_id in actives
        if task_id in table.index_of
        and table.stateful[table.index_of[task_id]]
        and tasks[task_id].owner != members.get(process_id)
    ]
    tasks_moved = f"{len(moved)} task{'' if len(moved) == 1 else 's'}: {', '.join(moved)}" if moved else "no task"
    detail = f"{other.assignor} decides, and moves {tasks_moved}"
    draft.explain(OTHER_ASSIGNOR, detail=detail, tasks=len(moved))


def _take_steps(draft: DecisionDraft) -> None:
    """Take steps until what is still to come waits for revoked actives, copies, or slots.

    In one rebalance Kafka takes copies away and gives new ones, and starts what nobody runs. Each step does more of
    that: what one of them took away, the next one may give.
    """
    while draft.needs_step or draft.group.unsettled:
        before = len(draft.records)
        draft.needs_step = False
        take_step(draft)
        carried_out = _carried_out(draft)
        draft.record(*carried_out)
        if len(draft.records) == before:
            break
    draft.needs_step = False


def _carried_out(draft: DecisionDraft) -> list[Record]:
    """Return what this rebalance does at once: copies that are revoked go, tasks that are granted start."""
    group = draft.group
    done: list[Record] = [
        TaskReleased(task_id, member.id, at_ms=draft.now_ms)
        for member in sorted(group.members.values(), key=lambda one: one.id)
        for task_id, revocation in sorted(member.revoking.items())
        if not revocation.active
    ]
    for task_id in sorted(group.unsettled):
        task = group.tasks[task_id]
        if task.owner is not None and task.state is ActiveState.GRANTED:
            index = group.table.index_of.get(task_id)
            runs = task.ready_grant or (index is not None and not group.table.stateful[index])
            state = ActiveState.RUNNING if runs else ActiveState.RESTORING
            done.append(ActiveReported(task_id, task.owner, state, draft.now_ms))
    return done


def _answer(draft: DecisionDraft, item: StreamsRebalance) -> StreamsAdvice:
    view = draft.view()
    task_plans, held = plan_step(view)
    delay_ms, is_for_everybody = _follow_up(view)
    at_ms = None if delay_ms is None else draft.now_ms + delay_ms
    if at_ms != draft.group.next_probe_ms:
        draft.record(ProbeScheduled(at_ms))
    placed = [record for record in draft.records if isinstance(record, TargetPlaced)]
    return StreamsAdvice(
        generation=draft.group.generation,
        assignment=_assignment(view, item, {plan.task.id: plan for plan in task_plans}),
        follow_up_ms=delay_ms,
        follow_up_by_everybody=is_for_everybody,
        at_rest=is_at_rest(draft.view()),
        moves=sum(record.moves for record in placed),
        lower_bound=sum(record.lower_bound for record in placed),
        held_back=tuple([(entry.task, _process(view, entry), entry.reason.value) for entry in held]),
        reasons=_first_of_each(draft.reasons),
    )


def _process(view: View, entry: HeldBack) -> InstanceId | None:
    member = None if entry.to is None else view.members.get(entry.to)
    return None if member is None else member.instance_id


def _first_of_each(reasons: list[Reason]) -> tuple[Reason, ...]:
    """Return the first reason of each task: the steps after the first one only find that it is so."""
    first: dict[TaskId, Reason] = {}
    for reason in reasons:
        if reason.task is not None:
            first.setdefault(reason.task, reason)
    return tuple(first[task] for task in sorted(first))


def _assignment(
    view: View, item: StreamsRebalance, task_plans: Mapping[TaskId, TaskPlan]
) -> dict[InstanceId, dict[str, tuple[TaskId, ...]]]:
    """Return what each process is to have. Every task has one active: Kafka silently leaves out what has none.

    Who is to give an active up keeps its state on disk, and is not told to stand by for the moment until it is free.
    """
    found: dict[InstanceId, dict[str, list[TaskId]]] = {
        process.id: {"active": [], "standby": [], "warmup": []} for process in item.processes
    }
    process_of = {member_id: process_id for process_id, member_id in view.group.instances.items()}
    for task in view.tasks.pick(view.group.table.ids):
        active = _active(view, task, task_plans.get(task.id))
        beside = {active, *(entry.member_id for entry in task.unreleased)}
        found[process_of[active]][Role.ACTIVE].append(task.id)
        for role, members in ((Role.STANDBY, task.standbys), (Role.WARMUP, task.warmups)):
            for member_id in members:
                if member_id not in beside:
                    found[process_of[member_id]][role].append(task.id)
    return {process_id: {role: tuple(tasks) for role, tasks in roles.items()} for process_id, roles in found.items()}


def _active(view: View, task: Task, plan: TaskPlan | None) -> MemberId:
    """Return who is to run a task: its owner, who gets it next, who still runs it, or whoever is warmest."""
    planned = plan.choice.active if plan is not None else None
    chosen = task.owner or task.next_owner or planned or (task.unreleased[0].member_id if task.unreleased else None)
    if chosen is not None and chosen in view.members:
        return chosen
    return min(view.members, key=lambda one: (view.copy(task, one).readiness, view.copy(task, one).lag or 0, one))


def _follow_up(view: View) -> tuple[int | None, bool]:
    """Return how soon the leader is to ask again, and whether everybody is to come then; None at rest.

    An active that was taken away is free as soon as its owner has come back. Whatever restores is looked at when it
    should be done, and ever more seldom where that does not come true. What waits for an operator is looked at after
    the probing interval.
    """
    group, now_ms = view.group, view.now_ms
    tasks = [task for task in view.tasks.pick(group.unsettled) if task.id in group.table.index_of]
    since = [view.members[one.member_id].revoking[task.id].since_ms for task in tasks for one in task.unreleased]
    if since:
        return max(NUDGE_MS, (now_ms - min(since)) // 2), True
    interval_ms = view.config.probing_rebalance_interval_ms
    waits = [_restored_in_ms(view, task, one) for task in tasks for one in _restoring(view, task)]
    if not tasks and not is_at_rest(view):
        behind = [(task, member.id) for member in group.members.values() for task in view.tasks.pick(member.assignment)]
        waits = [_restored_in_ms(view, task, one) for task, one in behind if not view.copy(task, one).is_caught_up]
    if waits:
        return min(*waits, interval_ms), False
    is_to_move = any(task.target not in (None, task.owner) or task.next_owner is not None for task in tasks)
    return (interval_ms if is_to_move else None), False


def _restoring(view: View, task: Task) -> list[MemberId]:
    """Return who has a copy of an unsettled task that is still to come, its owner included."""
    restores = task.owner is not None and task.state is ActiveState.RESTORING
    copies = [one for one in (*task.standbys, *task.warmups) if not view.copy(task, one).is_caught_up]
    return [*copies, *([task.owner] if restores and task.owner is not None else [])]


def _restored_in_ms(view: View, task: Task, member_id: MemberId) -> int:
    """Return when to look whether a copy is restored: when it should be, but for a share of the time that it has taken.

    So what never comes true is asked for ever more seldom.
    """
    estimate_ms = level_in_ms(view.copy(task, member_id))
    taken_ms = view.now_ms - view.members[member_id].assignment[task.id].since_ms
    if estimate_ms is None:
        return max(UNKNOWN_MS, taken_ms // 2)
    return max(SOONEST_MS, estimate_ms, taken_ms // 16)
