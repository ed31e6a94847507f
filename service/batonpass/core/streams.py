"""Groups of Kafka Streams applications, whose members do not heartbeat: Kafka's group leader reports for all of them.

At every rebalance the leader reports which processes are in the group and what each of them has. The answer is the
assignment (KIP-924). Between two rebalances the coordinator hears nothing and can change nothing: no lease runs, no
timer moves a task, and operators' commands wait for the next rebalance.

The answer counts as carried out until the next rebalance shows otherwise, with one exception: a member that must give
up an active still runs it. Kafka needs two rebalances for such a move, and the second one shows that the task is free.
So the group takes the same steps as any other, with the leader's report in place of heartbeats:

1. A process that is not in the report has left; a new one joins; one that changed its threads, tags or address is the
   same member, with all that operators said of it (``_take_members``).
2. What each process has counts as its heartbeat: releases are confirmed and lags measured (``_take_reports``).
3. What Kafka assigned by itself is adopted (``_adopt``): it happens before the first request, when an answer is lost,
   and when the plug-in falls back.
4. The target is placed, and steps are taken until only revoked actives are left to wait for (``_take_steps``).

The application's tasks are those of the report. What it has no longer, and what another task has the id of, ends at
once (``_end``): no process runs it after the rebalance. A refused report changes nothing, and is remembered until one
is taken (``refuse``), or, if it is another application's, for as long as that asks.

A leader in ``shadow`` follows Kafka's own assignor: the target is placed and shown, and no step is taken.
"""

from collections.abc import Mapping

from batonpass.core.arrivals import membership, reports
from batonpass.core.arrivals.commands import record_declared, require_size
from batonpass.core.arrivals.kept_out import let_in_when_over
from batonpass.core.arrivals.liveness import end_pause_if_over, find_stalls, forget_gone
from batonpass.core.handover.copies import TaskPlan
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.lag import level_in_ms
from batonpass.core.handover.probing import is_at_rest
from batonpass.core.handover.reconcile import reconcile
from batonpass.core.handover.step import plan_step, take_step
from batonpass.core.handover.turns import give_way
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.application import others_refusals
from batonpass.core.state.errors import InvalidRequest, TooLarge
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import Heartbeat, Join, OtherAssignment, RefusedRebalance, StreamsRebalance
from batonpass.core.state.model import ActiveState, Cause, Group, Member, Role, Task, Topology
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import WHOSE_GROUP, GroupConfig, parse_config, within_ranges
from batonpass.core.state.replies import Done, Reply, StreamsAdvice
from batonpass.core.state.soft import Refused, TaskReport
from batonpass.core.state.topology import ended_tasks, reported_topology
from batonpass.core.target.reach import is_to_rest
from batonpass.core.target.retarget import place_now
from batonpass.core.wakeups import hold_ends_ms

NUDGE_MS = 150
"""The delay until every process should rejoin after a rebalance that takes an active away. Kafka Streams notifies only
the next owner at once. A process that neither gives nor takes would learn of it by its heartbeat, up to 3 s later."""

SOONEST_MS = 1_000
UNKNOWN_MS = 2_000
"""The delays until the next request while copies restore: at least the first, and the second while their rate is
unknown."""

OTHER_ASSIGNOR = "other-assignor"
"""The code of the reason that shows the decision of Kafka's own assignor."""


def rebalance(draft: DecisionDraft, item: StreamsRebalance) -> Reply:
    """Take in the leader's report of a rebalance, and answer with the assignment of every process."""
    # Everything that may be refused comes before the first record.
    config, topology = _checked(draft, item)
    if draft.soft.refused is not None and not draft.soft.refused.is_another:
        draft.soft = draft.soft._replace(refused=None)
    if draft.group.declared:
        _end(draft, ended_tasks(draft.group.topology, topology))
    record_declared(draft, topology, config)
    let_in_when_over(draft)
    _take_members(draft, item)
    _take_reports(draft, item)
    _adopt(draft, item)
    end_pause_if_over(draft)
    find_stalls(draft)
    forget_gone(draft)
    place_now(draft)
    if item.other is not None:
        _explain_other(draft, item.other)
    else:
        _take_steps(draft)
        if give_way(draft):
            place_now(draft)
            _take_steps(draft)
        # What restores is begun last: no copy takes over in this rebalance what this rebalance gives.
        draft.record(*_started(draft, ActiveState.RESTORING))
        if draft.soft.target_is_provisional and is_to_rest(draft.view()):
            place_now(draft)
    return _answer(draft, item)


def refuse(draft: DecisionDraft, item: RefusedRebalance) -> Done:
    """Remember that a question was refused, by this group or before it came here: nothing moves before one is answered.

    What another application was refused is remembered while the group's own is not refused.
    """
    group, known = draft.group, draft.soft.refused
    is_another = _of_another(group, item.config) is not None
    if is_another:
        if group.config.kafka_streams and known is not None and not known.is_another:
            return Done()
        known = others_refusals(group, draft.soft, draft.now_ms)
    if known is None or known.is_another != is_another:
        known = Refused(item.why, draft.now_ms, draft.now_ms, 0, is_another)
    known = known._replace(why=item.why, last_ms=draft.now_ms, times=known.times + 1)
    draft.soft = draft.soft._replace(refused=known)
    return Done()


def _of_another(group: Group, said: Mapping[str, object]) -> InvalidRequest | None:
    """Return the refusal of an application that is not the one whose group this is."""
    if group.declared and not group.config.kafka_streams:
        message = f"group {group.id!r} is one of members that heartbeat; name another group for the application"
        return InvalidRequest(message, errors=[("path.group", message)])
    for name in WHOSE_GROUP if group.declared else ():
        known = getattr(group.config, name)
        if known and said.get(name) and known != said[name]:
            message = (
                f"group {group.id!r} is that of another application: its {name} is {known!r}, and not {said[name]!r}. "
                f"Give each application a name of its own (batonpass.group). If this one has taken the other's place, "
                f'delete the group, or set its {name} to ""'
            )
            return InvalidRequest(message, errors=[(name, message)])
    return None


def _checked(draft: DecisionDraft, item: StreamsRebalance) -> tuple[GroupConfig, Topology]:
    """Return what the application makes of the group.

    Raises:
        ProtocolError: when the group is not the application's, or when it is too large or has settings of a wrong type.
    """
    group, policy = draft.group, draft.policy
    if another := _of_another(group, item.config):
        raise another
    if len(item.processes) > policy.max_members:
        raise TooLarge(f"the application has {len(item.processes)} processes, the limit is {policy.max_members}")
    most = max(len(process.tasks) for process in item.processes)
    if most > policy.max_tasks_per_heartbeat:
        raise TooLarge(f"a process may have {policy.max_tasks_per_heartbeat} tasks; one of these has {most}")
    other_assignor = "" if item.other is None else item.other.assignor
    said = {**within_ranges(item.config), "kafka_streams": True, "other_assignor": other_assignor}
    config = parse_config(said, group.config if group.declared else None)
    topology = reported_topology(group.topology, item.topology)
    require_size(draft, topology)
    return config, topology


def _end(draft: DecisionDraft, ended: tuple[TaskId, ...]) -> None:
    """Let go of tasks that the application has no longer: of who holds them, and of what is said of them."""
    if not ended:
        return
    for member in sorted(draft.group.members.values(), key=lambda member: member.id):
        if revoked := tuple(task_id for task_id in ended if task_id in member.assignment):
            draft.record(r.AssignmentChanged(member.id, member.epoch + 1, draft.now_ms, revoked=revoked))
        held = draft.group.members[member.id].revoking
        draft.record(*(r.TaskReleased(task_id, member.id, at_ms=draft.now_ms) for task_id in ended if task_id in held))
    draft.record(r.TasksEnded(ended))
    # What was measured under an id may be of another task. All of them are reported anew in a moment.
    draft.soft = draft.soft._replace(members=PMap())


def _take_members(draft: DecisionDraft, item: StreamsRebalance) -> None:
    """Take the processes that are there. One that has other threads, tags or another address is the same member."""
    processes = {process.id for process in item.processes}
    for member in sorted(draft.group.members.values(), key=lambda member: member.id):
        if member.instance_id not in processes:
            draft.record(draft.gone(member.id, Cause.LEFT))
            draft.schedule("leave")
    for process in item.processes:
        member_id = draft.group.instances.get(process.id)
        threads, tags, endpoint = process.capacity, process.client_tags, process.endpoint
        if member_id is None:
            new_id = _unused_id(draft, process.name or process.id)
            new = Join(new_id, instance_id=process.id, capacity=threads, client_tags=tags, endpoint=endpoint)
            membership.join(draft, new)
            continue
        member = draft.group.members[member_id]
        if (threads, tags, endpoint) != (member.capacity, member.client_tags, member.endpoint):
            draft.record(r.MemberChanged(member_id, threads, tags, endpoint))
            draft.schedule("member-changed")


def _unused_id(draft: DecisionDraft, name: str) -> MemberId:
    """Return an id for a new run of a process: the name itself, then numbered, because no id is used twice."""
    group, number, member_id = draft.group, 1, MemberId(name)
    while member_id in group.members or member_id in group.gone:
        number += 1
        member_id = MemberId(f"{name}.{number}")
    return member_id


def _take_reports(draft: DecisionDraft, item: StreamsRebalance) -> None:
    """Take what each process has as its member's heartbeat, at the member's present epoch."""
    for process in item.processes:
        member = draft.group.members[draft.group.instances[process.id]]
        known = draft.member_soft(member.id)
        tasks = {task_id: _in_its_role(member, task_id, report) for task_id, report in process.tasks.items()}
        reports.heartbeat(draft, Heartbeat(member.id, 0 if known is None else known.seq + 1, member.epoch, tasks))


def _in_its_role(member: Member, task_id: TaskId, report: TaskReport) -> TaskReport:
    """Return the report of a copy in its assigned role: Kafka does not tell standbys from other state on disk."""
    grant = member.assignment.get(task_id)
    if report.role == "active" or grant is None or grant.role is Role.ACTIVE:
        return report
    return report._replace(role=grant.role.value)


def _adopt(draft: DecisionDraft, item: StreamsRebalance) -> None:
    """Adopt tasks that run on a process although the group gave them to another member, or to none.

    Who has been evicted and may still run a task does so under another name, if at all: the report has all processes.

    A member that had to give a task up, and has become its next owner since, goes on without a break. In ``shadow``, a
    task that no process runs counts as running where Kafka's own assignor puts it.
    """
    index_of, instances = draft.group.table.index_of, draft.group.instances
    runners: dict[TaskId, dict[MemberId, ActiveState | None]] = {}
    for process in item.processes:
        for task_id, report in process.tasks.items():
            if report.role == "active" and task_id in index_of:
                runners.setdefault(task_id, {})[instances[process.id]] = report.state
    for process_id, tasks in sorted(item.other.actives.items()) if item.other is not None else ():
        for task_id in tasks:
            if task_id in index_of and process_id in instances:
                runners.setdefault(task_id, {instances[process_id]: None})
    adopted: dict[MemberId, dict[TaskId, int]] = {}
    more: list[r.Record] = [
        r.TaskReleased(task.id, entry.member_id, at_ms=draft.now_ms)
        for task in draft.group.tasks.pick(sorted(draft.group.unsettled))
        for entry in task.handover.unreleased
        if entry.member_id not in draft.group.members
    ]
    for task_id, members in sorted(runners.items()):
        task, runner = draft.group.tasks[task_id], min(members)
        giving_up = {entry.member_id for entry in task.handover.unreleased} - {task.handover.next_owner}
        known = {task.owner} if task.handover.next_owner is None else {task.owner, *giving_up}
        if known.isdisjoint(members):
            adopted.setdefault(runner, {})[task_id] = max(task.token, draft.group.tokens_from) + 1
            more += [r.TaskReleased(task_id, task.owner, at_ms=draft.now_ms)] if task.owner is not None else []
            if members[runner] is ActiveState.RESTORING:
                more.append(r.ActiveReported(task_id, runner, ActiveState.RESTORING, draft.now_ms))
    draft.record(
        *(r.TasksAdopted(member_id, tokens, (), draft.now_ms) for member_id, tokens in sorted(adopted.items())), *more
    )


def _explain_other(draft: DecisionDraft, other: OtherAssignment) -> None:
    """Add how many tasks Kafka's own assignor moves. Its decision is the one that is followed."""
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
    words = f"{len(moved)} task{'' if len(moved) == 1 else 's'}: {', '.join(moved)}" if moved else "no task"
    draft.explain(OTHER_ASSIGNOR, detail=f"{other.assignor} decides, and moves {words}", tasks=len(moved))


def _take_steps(draft: DecisionDraft) -> None:
    """Take steps until only revoked actives, copies or slots are left to wait for.

    In one rebalance Kafka takes copies away, gives new ones, and starts tasks without an owner. So several steps are
    possible: what one step took away, the next may give.
    """
    before = -1
    while len(draft.records) != before:
        before = len(draft.records)
        take_step(draft)
        draft.record(*_released(draft), *_started(draft, ActiveState.RUNNING))


def _released(draft: DecisionDraft) -> list[r.Record]:
    """Return the copies that members give up: they go at once.

    What a member gives up as a copy it may still run: it was the owner until the step before.
    """
    group = draft.group
    return [
        r.TaskReleased(task_id, member.id, at_ms=draft.now_ms)
        for member in sorted(group.members.values(), key=lambda member: member.id)
        for task_id, revocation in sorted(member.revoking.items())
        if not revocation.active and member.id not in dict(group.task(task_id).handover.unreleased)
    ]


def _started(draft: DecisionDraft, state: ActiveState) -> list[r.Record]:
    """Return the granted tasks that start in this rebalance, in this state: what is ready, or has no state, runs."""
    table, granted = draft.group.table, draft.group.tasks.pick(sorted(draft.group.unsettled))
    runs = state is ActiveState.RUNNING
    return [
        r.ActiveReported(task.id, task.owner, state, draft.now_ms)
        for task in granted
        if task.owner is not None and task.state is ActiveState.GRANTED
        if runs is (task.ready_grant or not table.stateful[table.index_of[task.id]])
    ]


def _answer(draft: DecisionDraft, item: StreamsRebalance) -> StreamsAdvice:
    view = draft.view()
    step = plan_step(view)
    delay_ms, is_for_everybody = _follow_up(draft, view)
    if item.other is None and not is_for_everybody and reconcile(view, step.task_plans):
        # The target is another one now that this rebalance has ended what it had to respect.
        delay_ms = SOONEST_MS
    at_ms = None if delay_ms is None else draft.now_ms + delay_ms
    if at_ms != draft.group.next_probe_ms:
        draft.record(r.ProbeScheduled(at_ms))
    placed = [record for record in draft.records if isinstance(record, r.TargetPlaced)]
    process_of: dict[MemberId | None, InstanceId | None] = {one.id: one.instance_id for one in view.members.values()}
    # Later steps see only the consequences of the first, so of each task the first reason is told.
    first = {reason.task: reason for reason in reversed(draft.reasons) if reason.task is not None}
    return StreamsAdvice(
        generation=draft.group.generation,
        assignment=_assignment(view, item, {plan.task.id: plan for plan in step.task_plans}),
        follow_up_ms=delay_ms,
        follow_up_by_everybody=is_for_everybody,
        at_rest=is_at_rest(draft.view()),
        moves=sum(record.moves for record in placed),
        lower_bound=sum(record.lower_bound for record in placed),
        held_back=tuple([(entry.task, process_of.get(entry.to), entry.reason.value) for entry in step.held]),
        reasons=tuple(first[task_id] for task_id in sorted(first)),
    )


def _assignment(
    view: View, item: StreamsRebalance, task_plans: Mapping[TaskId, TaskPlan]
) -> dict[InstanceId, dict[str, list[TaskId]]]:
    """Return what each process should have. Every task has one active, because Kafka silently drops a task without one.

    A member that gives up an active keeps its state on disk. It is not made a standby for the short time until the
    active is free.
    """
    by_process: dict[InstanceId, dict[str, list[TaskId]]] = {
        process.id: {"active": [], "standby": [], "warmup": []} for process in item.processes
    }
    process_of = {member_id: process_id for process_id, member_id in view.group.instances.items()}
    for task in view.tasks.pick(view.group.table.ids):
        active = _active(view, task, task_plans.get(task.id))
        running = {active, *(entry.member_id for entry in task.handover.unreleased)}
        by_process[process_of[active]][Role.ACTIVE].append(task.id)
        for role, members in ((Role.STANDBY, task.standbys), (Role.WARMUP, task.warmups)):
            for member_id in members:
                if member_id not in running:
                    by_process[process_of[member_id]][role].append(task.id)
    return by_process


def _active(view: View, task: Task, plan: TaskPlan | None) -> MemberId:
    """Return the member that should run a task: owner, next owner, planned owner, present runner, or the warmest."""
    planned = plan.choice.active if plan is not None else None
    chosen = (
        task.owner
        or task.handover.next_owner
        or planned
        or (task.handover.unreleased[0].member_id if task.handover.unreleased else None)
    )
    if chosen is not None and chosen in view.members:
        return chosen
    return min(
        view.members,
        key=lambda member_id: (
            view.members[member_id].gets_nothing,
            view.copy(task, member_id).readiness,
            view.copy(task, member_id).lag or 0,
            member_id,
        ),
    )


def _follow_up(draft: DecisionDraft, view: View) -> tuple[int | None, bool]:
    """Return how soon the leader should ask again (None at rest), and whether every process should rejoin then.

    A revoked active is free as soon as its owner has rejoined. A restoring copy is examined when it should be done, and
    ever less often if it is not. What is held is examined when its hold ends, since no timer of the group does that.
    What waits for an operator, or for a placement that found no answer, is examined after the probing interval.
    """
    group, now_ms = view.group, view.now_ms
    tasks = [task for task in view.tasks.pick(group.unsettled) if task.id in group.table.index_of]
    since = [
        view.members[entry.member_id].revoking[task.id].since_ms for task in tasks for entry in task.handover.unreleased
    ]
    if since:
        return max(NUDGE_MS, (now_ms - min(since)) // 2), True
    if not tasks and not is_at_rest(view):
        tasks = view.tasks.pick(group.table.ids)  # All is in its place, and a copy has fallen behind.
    interval_ms = view.config.probing_rebalance_interval_ms
    waits = [_restored_in_ms(view, task, member_id) for task in tasks for member_id in _restoring(view, task)]
    if any(task.warmups or task.handover.next_owner or task.target.owner not in (None, task.owner) for task in tasks):
        waits.append(interval_ms)
    waits += [max(SOONEST_MS, at_ms - now_ms) for at_ms in hold_ends_ms(draft)]
    return (min([*waits, interval_ms]) if waits or group.placement_failed else None), False


def _restoring(view: View, task: Task) -> list[MemberId]:
    """Return the members whose copy of a task is not ready yet, including a restoring owner.

    State that was on disk before this rebalance is not ready, however small its lag, until it is tailed.
    """
    copies = [*task.standbys, *task.warmups]
    unready = [member_id for member_id in copies if not view.copy(task, member_id).is_ready_for_handover]
    return [*unready, *([task.owner] if task.owner is not None and task.state is ActiveState.RESTORING else [])]


def _restored_in_ms(view: View, task: Task, member_id: MemberId) -> int:
    """Return when to examine a copy: when it should be restored, but at least a share of the time that it has taken.

    So a copy that never gets there is examined ever less often.
    """
    estimate_ms = level_in_ms(view.copy(task, member_id))
    taken_ms = view.now_ms - view.members[member_id].assignment[task.id].since_ms
    if estimate_ms is None:
        return max(UNKNOWN_MS, taken_ms // 2)
    return max(SOONEST_MS, estimate_ms, taken_ms // 16)
