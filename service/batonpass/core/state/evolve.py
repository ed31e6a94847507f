"""The only place where hard state changes: ``evolve`` folds records into a group.

The live service, loading, the simulator and the audit all use it, so they agree on what the records mean. Folding
does not look at the time, refuses nothing, and depends only on the group and the record. Besides what the records say,
it keeps one index: the tasks that steps have to look at (``pending`` in ``model``).

One ``GroupBuilder`` folds a batch. The new group shares everything that did not change with the old one. The table at
the end says what each record changes. Where that takes a function, its docstring says what holds afterwards.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, Never, cast

from batonpass.core.state import model as m
from batonpass.core.state import records as r
from batonpass.core.state.failures import (
    charged,
    faults_of,
    host_of,
    may_be_the_host,
    ran_well,
    with_failure,
)
from batonpass.core.state.ids import HostId, InstanceId, MemberId, TaskId
from batonpass.core.state.newcomers import stay_began_ms
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import BalanceBy
from batonpass.core.state.set_back import moved_back
from batonpass.core.state.topology import by_load, table_of


def evolve(group: m.Group, records: Iterable[r.Record]) -> m.Group:
    """Return the group that ``records`` lead to; without records, ``group`` itself.

    Its version has grown by the number of records.
    """
    builder = GroupBuilder(group)
    count = 0
    for record in records:
        builder.fold(record)
        count += 1
    return builder.finish(group.version + count) if count else group


def without_ended(group: m.Group) -> m.Group:
    """Return a group without the tasks that have ended, which were kept once."""
    builder = GroupBuilder(group)
    builder.tasks |= {task_id: task for task_id, task in group.tasks.items() if task_id not in group.table.index_of}
    return builder.finish(group.version) if builder.tasks else group


class GroupBuilder:
    """The group under construction: its plain fields, and the tasks and members that differ from before."""

    def __init__(self, before: m.Group) -> None:
        self.before = before
        self.group = before
        self.tasks: dict[TaskId, m.Task | None] = {}
        self.members: dict[MemberId, m.Member | None] = {}
        self._naming: dict[MemberId | None, list[TaskId]] | None = None

    def task(self, task_id: TaskId) -> m.Task:
        """Return the task as it stands (``Group.task``)."""
        return (self.tasks[task_id] or m.Task(task_id)) if task_id in self.tasks else self.before.task(task_id)

    def tasks_as_they_stand(self, task_ids: Collection[TaskId]) -> list[m.Task]:
        """Return several tasks, as ``task`` returns one."""
        tasks, before = self.tasks, self.before.tasks.for_reads(len(task_ids))
        found = [(tasks if task_id in tasks else before).get(task_id) for task_id in task_ids]
        return [task or m.Task(task_id) for task_id, task in zip(task_ids, found, strict=True)]

    def member(self, member_id: MemberId) -> m.Member | None:
        """Return the member as it stands; None if it is not in the group."""
        if member_id in self.members:
            return self.members[member_id]
        return self.before.members.get(member_id)

    def every_task(self) -> list[TaskId]:
        return list(dict.fromkeys([*self.before.tasks, *self.tasks]))

    def every_member(self) -> list[tuple[MemberId, m.Member]]:
        ids = dict.fromkeys([*self.before.members, *self.members])
        members = [(member_id, self.member(member_id)) for member_id in ids]
        return [(member_id, member) for member_id, member in members if member is not None]

    def tasks_naming(self, member_id: MemberId) -> list[TaskId]:
        """Return the tasks that name the member in any field, and are unsettled or have changed.

        One pass finds them for all members, because many may leave at once. The result is reused until a record other
        than a departure is folded (``fold``): departures add no member to a task.
        """
        if self._naming is None:
            self._naming = {}
            for task in self.tasks_as_they_stand(dict.fromkeys([*self.before.unsettled, *self.tasks])):
                for named in _named_in(task):
                    self._naming.setdefault(named, []).append(task.id)
        return self._naming.get(member_id, [])

    def fold(self, record: r.Record) -> None:
        if not isinstance(record, r.MemberGone | r.MemberAway):
            self._naming = None
        cast("Callable[[GroupBuilder, r.Record], None]", _FOLD[type(record)])(self, record)

    def change_member(self, member_id: MemberId, **fields: object) -> None:
        """Change fields of a member. Nothing happens if it is gone."""
        member = self.member(member_id)
        if member is not None:
            self.members[member_id] = replace(member, **fields)  # type: ignore[arg-type]

    def change_standing(self, member_id: MemberId, **fields: object) -> None:
        """Change fields of a member on which it depends whether its tasks are settled."""
        self.change_member(member_id, **fields)
        member = self.member(member_id)
        if member is not None:
            self.tasks |= {task_id: self.task(task_id) for task_id in member.actives}

    def mark(self, task_id: TaskId, **marks: object) -> None:
        self.tasks[task_id] = self.task(task_id).with_marks(**marks)

    def change(self, **fields: object) -> None:
        self.group = replace(self.group, **fields)  # type: ignore[arg-type]

    def set_back(self, by_ms: int) -> None:
        """Have every instant earlier by ``by_ms``."""
        self.group = moved_back(self.group, by_ms)
        self.tasks = {task_id: moved_back(self.task(task_id), by_ms) for task_id in self.every_task()}
        self.members |= {member_id: moved_back(member, by_ms) for member_id, member in self.every_member()}

    def forget_ended(self) -> None:
        """Forget the tasks that are of no topology and that nobody holds. New tokens lie above theirs.

        This is done at the end, and before another topology, so that it does not matter which records come together.
        """
        index_of = self.group.table.index_of
        ended = [task for task_id, task in self.tasks.items() if task_id not in index_of and task and not task.is_held]
        if ended:
            self.tasks |= dict.fromkeys(task.id for task in ended)
            self.change(tokens_from=max(self.group.tokens_from, *(task.token for task in ended)))

    def finish(self, version: int) -> m.Group:
        """Return the group with everything folded in, at ``version``."""
        self.forget_ended()
        before, group = self.before, self.group
        fields: dict[str, object] = {"version": version}
        if self.tasks:
            fields["tasks"] = before.tasks.updated(self.tasks)
        if self.members:
            fields["members"] = before.members.updated(self.members)
        fields["unsettled"] = before.unsettled.updated(self._unsettled())
        return replace(group, **fields)  # type: ignore[arg-type]

    def _unsettled(self) -> dict[TaskId, m.Pending | None]:
        """Return the tasks whose entry in ``unsettled`` changes, with their new entry."""
        table, replicas = self.group.table, self.group.config.num_standby_replicas
        index_of, stateful, tasks = table.index_of, table.stateful, self.tasks
        known = self.before.unsettled.for_reads(len(tasks))
        if replicas != self.before.config.num_standby_replicas:
            tasks = {task_id: self.before.tasks.get(task_id) for task_id in self.before.unsettled} | tasks
        ids = {task.owner for task in tasks.values() if task is not None and task.owner is not None}
        owners = [member for member in map(self.member, ids) if member is not None]
        suspects = {member.id for member in owners if member.suspected}
        # At the deadline of its drain such a member gives up what it runs, whether copies are ready or not.
        leaving = {member.id for member in owners if member.drain is not None and member.drain.deadline_ms is not None}
        changes: dict[TaskId, m.Pending | None] = {}
        for task_id, task in tasks.items():
            task_index = index_of.get(task_id)
            if task is None:
                mark = None
            elif task_index is None:
                mark = m.MOVING
            else:
                mark = m.pending(task, replicas=replicas if stateful[task_index] else None)
                if task.owner in suspects or (task.owner in leaving and mark is m.QUEUED):
                    mark = m.MOVING
            if mark is not known.get(task_id):
                changes[task_id] = mark
        return changes


# The group and its members.


def _declared(builder: GroupBuilder, record: r.GroupDeclared) -> None:
    """The group exists. Epochs, tokens and the ids of gone members continue from an earlier group of this name."""
    longest = max(builder.group.longest_session_ms, record.config.session_timeout_ms)
    builder.change(
        declared=True,
        revision=builder.group.revision + 1,
        config=record.config,
        longest_session_ms=longest,
        generation_epoch=0,
    )
    _set_topology(builder, record.topology)


def _set_topology(builder: GroupBuilder, topology: m.Topology) -> None:
    builder.forget_ended()
    known = builder.group.table.ids
    builder.change(topology=topology)
    builder.change(table=table_of(builder.group))
    table = builder.group.table
    dropped = [task_id for task_id in known if task_id not in table.index_of]
    for task_id in table.ids:
        builder.tasks[task_id] = builder.task(task_id)
    for task_id in dropped:
        # Its holders are told to give it up.
        builder.tasks[task_id] = builder.task(task_id).with_target(m.NOWHERE).with_marks(pin=None)
    _forget_dropped(builder, dropped)


def _forget_dropped(builder: GroupBuilder, task_ids: Iterable[TaskId]) -> None:
    """Forget what is kept of tasks by their ids, which are others' or nobody's from now on."""
    group, gone = builder.group, dict.fromkeys(task_ids)
    if group.pins:
        builder.change(pins=group.pins.updated(gone))
    if group.loads:
        builder.change(loads=group.loads.updated(gone))


def _topology_changed(builder: GroupBuilder, record: r.TopologyChanged) -> None:
    """The tasks are those of the new topology."""
    builder.change(revision=builder.group.revision + 1)
    _set_topology(builder, record.topology)


def _tasks_ended(builder: GroupBuilder, record: r.TasksEnded) -> None:
    """Only their tokens are left. Nobody holds them any more."""
    for task_id in record.tasks:
        builder.tasks[task_id] = m.Task(task_id, token=builder.task(task_id).token)
    _forget_dropped(builder, record.tasks)


def _config_changed(builder: GroupBuilder, record: r.ConfigChanged) -> None:
    """The settings are new. The longest session timeout so far is kept, because leases may still run by it."""
    longest = max(builder.group.longest_session_ms, record.config.session_timeout_ms)
    builder.change(revision=builder.group.revision + 1, config=record.config, longest_session_ms=longest)
    if builder.group.loads:
        builder.change(table=table_of(builder.group))


def _deleted(builder: GroupBuilder, record: r.GroupDeleted) -> None:
    """A tombstone stays: epochs, generation, highest token and ids of members, and nothing that is not named here."""
    for task_id in builder.every_task():
        builder.tasks[task_id] = m.Task(task_id, token=builder.task(task_id).token)
    gone_now: dict[MemberId, m.GoneMember | None] = {}
    for member_id, member in builder.every_member():
        builder.members[member_id] = None
        gone_now[member_id] = _gone_entry(member, record.at_ms, m.Cause.EVICTED, record.lease_end_ms)
    group = builder.group
    builder.group = m.Group(
        id=group.id,
        version=group.version,
        revision=group.revision + 1,
        config=group.config,
        group_epoch=group.group_epoch,
        generation=group.generation,
        generation_epoch=group.generation_epoch,
        members=group.members,
        tasks=group.tasks,
        gone=group.gone.updated(gone_now),
        unsettled=group.unsettled,
        grants_from_ms=max(group.grants_from_ms, record.lease_end_ms),
        recovering_until_ms=group.recovering_until_ms,
        longest_session_ms=group.longest_session_ms,
        tokens_from=group.tokens_from,
        placed_ms=group.placed_ms,
    )


def _joined(builder: GroupBuilder, record: r.MemberJoined) -> None:
    """The member is in the group, and holds its instance id if it has one."""
    member = record.member
    builder.members[member.id] = member
    if member.instance_id is not None:
        builder.change(instances=builder.group.instances.having(member.instance_id, member.id))


def _gone(builder: GroupBuilder, record: r.MemberGone) -> None:
    """The member is not in the group. No target or pin names it. It may run its actives until its lease ends."""
    member = builder.member(record.member_id)
    if member is None:
        return
    entry = _gone_entry(member, record.at_ms, record.cause, record.lease_end_ms)
    builder.change(gone=builder.group.gone.having(member.id, entry))
    if record.cause is m.Cause.EXPIRED:
        _note_death(builder, member, record)
    _change_alike(builder, _tasks_involving(builder, member), lambda task: _left_by(task, record))
    builder.members[member.id] = None
    _move_pins(builder, member.id, None)
    if member.instance_id is not None and builder.group.instances.get(member.instance_id) == member.id:
        builder.change(instances=builder.group.instances.without(member.instance_id))
    if member.instance_id is None and host_of(member) in builder.group.hosts:
        builder.change(hosts=builder.group.hosts.without(host_of(member)))
    if record.cause is m.Cause.EXPIRED and (member.assignment or member.revoking):
        _note_loss(builder, member, record.at_ms)


def _note_loss(builder: GroupBuilder, member: m.Member, at_ms: int) -> None:
    """Note a member that was lost, and with it copies: one without any adds no load to the others.

    In a storm, one that came back and is lost again has been counted already.
    """
    group = builder.group
    if group.storm_since_ms is None:
        oldest = at_ms - group.config.session_timeout_ms
        recent = tuple(loss for loss in group.losses if loss.at_ms > oldest)
        builder.change(losses=(*recent, m.Loss(member.id, at_ms)))
    elif member.joined_ms < group.storm_since_ms:
        builder.change(losses=(*group.losses, m.Loss(member.id, at_ms)))


def _gone_entry(member: m.Member, at_ms: int, cause: m.Cause, lease_end_ms: int) -> m.GoneMember:
    return m.GoneMember(at_ms, cause, lease_end_ms, member.instance_id, stay_began_ms(member), member.doubts.plain())


def _note_death(builder: GroupBuilder, member: m.Member, record: r.MemberGone) -> None:
    """Note with each task that a member ran when its lease expired that it died: the task may be what ended it.

    It still ran what it was to give up and did not confirm. What was taken over from it while it was suspected has that
    noted already (``_give_up``).
    """
    at_ms, ran_until_ms = record.at_ms, record.heard_ms
    if ran_until_ms is None:
        ran_until_ms = at_ms - builder.group.config.session_timeout_ms
    host = host_of(member)
    known = builder.group.hosts.get(host)
    if known is not None:
        # Nobody can tell later what it ran well until then.
        well_ms = _well_ms(builder, host, known, ran_until_ms)
        faults = tuple(fault for fault in known.faults if fault.at_ms > well_ms)
        known = known._replace(faults=faults, times=known.times if faults else 0)
        builder.change(hosts=builder.group.hosts.having(host, known))
    for task_id in (*member.actives, *member.revoking):
        task = builder.task(task_id)
        had = task.owner == member.id or any(entry.member_id == member.id for entry in task.handover.unreleased)
        if had and task.state is m.RUNNING:
            _fail(builder, task, member, m.Outcome.DIED, (at_ms, ran_until_ms))
    for task_id in member.revoking:
        _charge_hosts(builder, builder.task(task_id), at_ms)


def _fail(
    builder: GroupBuilder, task: m.Task, member: m.Member, outcome: m.Outcome, at: tuple[int, int], *, detail: str = ""
) -> None:
    """Note that a task did not run well on a member: when that counts from, and until when it ran at the most.

    The death of a member that drains was announced: whoever told it to go ended it.
    """
    config, (at_ms, ran_until_ms) = builder.group.config, at
    well_ms = ran_until_ms if ran_well(task, ran_until_ms, config) else task.well_ms
    failures = task.marks.failures
    if outcome is not m.Outcome.DIED or member.drain is None:
        failures = with_failure(task, member, outcome, at_ms, config, ran_until_ms=ran_until_ms)
        failures = (*failures[:-1], failures[-1]._replace(detail=detail))
    builder.tasks[task.id] = task._replace(well_ms=well_ms, marks=task.marks._replace(failures=failures))


def _charge_hosts(builder: GroupBuilder, task: m.Task, now_ms: int) -> None:
    """Charge the hosts on which a task failed lately, if it runs elsewhere now."""
    runs_on = builder.member(task.owner) if task.owner is not None else None
    if not task.marks.failures or runs_on is None or task.state is not m.RUNNING:
        return
    hosts, config = builder.group.hosts, builder.group.config
    for host, fault in faults_of(task, runs_on, builder.group, now_ms):
        known = hosts.get(host) or m.HostFaults()
        hosts = hosts.having(host, charged(known, fault, config, now_ms, _well_ms(builder, host, known, now_ms)))
    if hosts is not builder.group.hosts:
        builder.change(hosts=hosts)


def _well_ms(builder: GroupBuilder, host: HostId, known: m.HostFaults, now_ms: int) -> int:
    """Return the last fault of a host after which it ran any task well. 0: there is none."""
    member_id = builder.group.instances.get(InstanceId(host)) or MemberId(host)
    member, config = builder.member(member_id), builder.group.config
    if member is None:
        return 0
    runs = [builder.task(task_id) for task_id in member.actives]
    refuted = [
        fault.at_ms
        for fault in known.faults
        if any(ran_well(task, now_ms, config, from_ms=fault.at_ms) for task in runs)
    ]
    return max(refuted, default=0)


def _change_alike(builder: GroupBuilder, task_ids: Collection[TaskId], change: Callable[[m.Task], m.Task]) -> None:
    """Change tasks by what they have besides their id: tasks that differ in nothing else change alike, and at once."""
    known: dict[tuple[object, ...], m.Task] = {}
    for task in builder.tasks_as_they_stand(task_ids):
        fields = task[1:]
        after = known.get(fields)
        if after is None:
            after = known[fields] = change(task)
        if after[1:] != fields:
            builder.tasks[task.id] = m.Task._make((task.id, *after[1:]))


def _left_by(task: m.Task, record: r.MemberGone) -> m.Task:
    """Return a task without a member that is gone.

    If the member may still run the task until its lease ends, it stays unreleased until then.
    """
    member_id, target, unreleased = record.member_id, task.target, task.handover.unreleased
    may_run = task.owner == member_id or any(entry.member_id == member_id for entry in unreleased)
    unreleased = _without(unreleased, member_id)
    if may_run and record.lease_end_ms > record.at_ms:
        unreleased = (*unreleased, m.Unreleased(member_id, record.lease_end_ms))
    away_owner = None if task.handover.away_owner == member_id else task.handover.away_owner
    departure = m.Stop(member_id, None, record.cause, record.heard_ms)
    task = _without_departed(task, unreleased, departure, record.at_ms, away_owner=away_owner)
    if target.owner == member_id or member_id in target.standbys:
        owner = None if target.owner == member_id else target.owner
        task = task._replace(target=target._replace(owner=owner, standbys=_removed(target.standbys, member_id)))
    return task.with_marks(pin=None) if task.marks.pin == member_id else task


def _away(builder: GroupBuilder, record: r.MemberAway) -> None:
    """The member stopped in order to restart. It holds nothing, and keeps its place."""
    member = builder.member(record.member_id)
    if member is None:
        return
    departure = m.Stop(member.id, None, m.Cause.RESTARTED)

    def left(task: m.Task) -> m.Task:
        unreleased = _without(task.handover.unreleased, member.id)
        away_owner = member.id if task.owner == member.id else task.handover.away_owner
        return _without_departed(task, unreleased, departure, record.at_ms, away_owner=away_owner)

    _change_alike(builder, _tasks_involving(builder, member), left)
    builder.change_member(
        member.id, assignment=PMap(), revoking=PMap(), away_until_ms=record.until_ms, suspected=False, drain=None
    )


def _member_changed(builder: GroupBuilder, record: r.MemberChanged) -> None:
    """The member has other threads, tags or another address, and everything else as before."""
    changed = {"capacity": record.capacity, "client_tags": dict(record.client_tags), "endpoint": record.endpoint}
    builder.change_member(record.member_id, **changed)


def _inherited(builder: GroupBuilder, record: r.PlaceInherited) -> None:
    """Every target and pin of the member belongs to its successor, which goes on with its stay."""
    old, successor = record.member_id, record.successor
    member = builder.member(old)
    if member is None:
        return
    for task_id in _tasks_involving(builder, member):
        task = builder.task(task_id)
        target = successor if task.target.owner == old else task.target.owner
        standbys = _removed(task.target.standbys, old)
        if standbys != task.target.standbys:
            standbys = _added(standbys, successor)
        if target == successor:
            # The successor may take the place of two members, one of which was a standby of a task of the other.
            standbys = _removed(standbys, successor)
        after = task._replace(target=m.Target(target, standbys, task.target.waiting_reason))
        if task.marks.pin == old:
            after = after.with_marks(pin=successor)
        if after != task:
            builder.tasks[task_id] = after
    known, new = builder.group.hosts.get(host_of(member)), builder.member(successor)
    stays = [stay_began_ms(one) for one in (member, new) if one is not None]
    builder.change_member(successor, place_since_ms=min(stays))
    _move_pins(builder, old, successor)
    if known is not None and new is not None:
        builder.change(hosts=builder.group.hosts.having(host_of(new), known))


def _trusted(builder: GroupBuilder, record: r.MemberTrusted) -> None:
    """Nothing is held against the host of the member: neither its faults, nor failures of tasks on it."""
    member = builder.member(record.member_id)
    if member is None and record.instance_id is not None:
        member = m.Member(record.member_id, 0, record.instance_id)
    if member is None:
        return
    builder.change(hosts=builder.group.hosts.without(host_of(member)))
    for task_id in builder.every_task():
        task = builder.task(task_id)
        if task.marks.failures:
            builder.tasks[task_id] = _forgiven(builder, task, member)


def _forgiven(builder: GroupBuilder, task: m.Task, member: m.Member) -> m.Task:
    """Return a task without its failures on the host of a member."""
    config = builder.group.config
    failures = tuple(failure for failure in task.marks.failures if not may_be_the_host(failure, member, config))
    return task if len(failures) == len(task.marks.failures) else task.with_marks(failures=failures)


def _move_pins(builder: GroupBuilder, old: MemberId, successor: MemberId | None) -> None:
    """Keep the index of pins in step: the pins of ``old`` go to the successor, or are removed."""
    changes = {task_id: successor for task_id, pin in builder.group.pins.items() if pin == old}
    if changes:
        builder.change(pins=builder.group.pins.updated(changes))


def _drain_started(builder: GroupBuilder, record: r.DrainStarted) -> None:
    """The member hands over everything, and ``blocked`` says whether its time is over."""
    member = builder.member(record.member_id)
    kept_out = member is not None and member.drain is not None and member.drain.kept_out
    drain = m.Drain(record.since_ms, record.deadline_ms, record.gives_up_ms, record.blocked, kept_out)
    builder.change_standing(record.member_id, drain=drain)


def _keeping_out_changed(builder: GroupBuilder, record: r.InstanceKeptOut | r.InstanceLetIn) -> None:
    """Runs of the instance that join from now on get nothing, or are like any other."""
    entry = m.KeptOut(record.since_ms, record.until_ms) if isinstance(record, r.InstanceKeptOut) else None
    builder.change(kept_out=builder.group.kept_out.updated({record.instance_id: entry}))


def _rebalance_scheduled(builder: GroupBuilder, record: r.RebalanceScheduled) -> None:
    """The group epoch has grown. A placement that is due earlier stays due then (``DecisionDraft.schedule``)."""
    group = builder.group
    due = record.due_ms if group.placement_due_ms is None else min(group.placement_due_ms, record.due_ms)
    triggers = group.triggers if record.trigger in group.triggers else (*group.triggers, record.trigger)
    builder.change(group_epoch=group.group_epoch + 1, placement_due_ms=due, triggers=triggers)


def _grants_held(builder: GroupBuilder, record: r.GrantsHeld) -> None:
    """Nothing is granted for a while. A later hold never shortens this one. The clock may have gone back before."""
    if record.set_back_ms:
        builder.set_back(record.set_back_ms)
    builder.change(grants_from_ms=max(builder.group.grants_from_ms, record.until_ms))
    if record.adopting:
        builder.change(recovering_until_ms=max(builder.group.recovering_until_ms, record.until_ms))


def _epochs_raised(builder: GroupBuilder, record: r.EpochsRaised) -> None:
    """Epochs and tokens lie above all that the lost commits may have given out."""
    for member_id, epoch in record.epochs.items():
        member = builder.member(member_id)
        if member is not None and member.epoch < epoch:
            builder.change_member(member_id, epoch=epoch)
    builder.change(tokens_from=max(builder.group.tokens_from, record.tokens_from))


def _loads_measured(builder: GroupBuilder, record: r.LoadsMeasured) -> None:
    """Tasks have these loads, and weigh them if the group is balanced by them."""
    group = builder.group
    loads = group.loads.updated(record.loads)
    is_counted = group.config.balance_by is BalanceBy.MEASURED
    builder.change(loads=loads, table=by_load(group.table, loads) if is_counted else group.table)


def _moved_for_load(builder: GroupBuilder, record: r.MovedForLoad) -> None:
    """These tasks rest from now on. Those that have rested are forgotten."""
    group = builder.group
    resting = [one for one in group.load_moves if one.at_ms + group.config.load_cooldown_ms > record.at_ms]
    builder.change(load_moves=(*resting, *(m.LoadMove(task_id, record.at_ms) for task_id in record.tasks)))


def _gone_forgotten(builder: GroupBuilder, record: r.GoneForgotten) -> None:
    """Old ids are no longer remembered, nor the faults of instances whose last run they were."""
    gone = builder.group.gone.updated(dict.fromkeys(record.member_ids))
    builder.change(gone=gone)
    if builder.group.hosts:
        here = {host_of(member) for _, member in builder.every_member()}
        here |= {HostId(entry.instance_id) for entry in gone.values() if entry.instance_id is not None}
        builder.change(
            hosts=builder.group.hosts.updated(dict.fromkeys(host for host in builder.group.hosts if host not in here))
        )


def _heard_again(builder: GroupBuilder, record: r.SuspicionCleared) -> None:
    """The member is not suspected. If it is gone already, it did not die."""
    builder.change_standing(record.member_id, suspected=False)
    gone = builder.group.gone
    if record.member_id in gone:
        builder.change(gone=gone.having(record.member_id, gone[record.member_id]._replace(heard_again=True)))


# Its tasks.


def _target_placed(builder: GroupBuilder, record: r.TargetPlaced) -> None:
    """The target answers the group epoch. A next owner stays chosen as long as its task has a target."""
    for task in builder.tasks_as_they_stand(record.changes):
        builder.tasks[task.id] = task.with_target(record.changes[task.id])
    builder.change(
        generation=record.generation,
        generation_epoch=record.group_epoch,
        placement_failed=record.failed,
        placement_due_ms=None,
        triggers=(),
        placed_ms=record.at_ms,
    )


def _assignment_changed(builder: GroupBuilder, record: r.AssignmentChanged) -> None:
    """The member has a new assignment and a new epoch. It may still hold what it must give up."""
    member = builder.member(record.member_id)
    if member is None:
        return
    assignment: dict[TaskId, m.Grant | None] = {}
    revoking: dict[TaskId, m.Revocation | None] = {}
    demoted = frozenset(record.demoted)
    ready = frozenset(record.ready)
    for task_id in record.revoked:
        assignment[task_id] = None
        revoking[task_id] = _give_up(builder, member, task_id, record)
    for task_id in [task_id for task_id in record.granted if task_id in demoted] if demoted else ():
        revoking[task_id] = _give_up(builder, member, task_id, record)
        task = builder.task(task_id)
        if task.state is m.RUNNING:
            builder.tasks[task_id] = task.with_handover(previous_owner=member.id)
    assignment.update(record.granted)
    for task, grant in zip(builder.tasks_as_they_stand(record.granted), record.granted.values(), strict=True):
        is_given_over = grant.role is m.ACTIVE and task.handover is not m.NO_HANDOVER
        before = _passed_over(builder, task, member.id, record.at_ms) if is_given_over else task
        builder.tasks[task.id] = _taken_up(before, member.id, grant, ready=task.id in ready)
    builder.change_member(
        member.id,
        epoch=record.epoch,
        assignment=member.assignment.updated(assignment),
        revoking=member.revoking.updated(revoking),
    )


def _give_up(builder: GroupBuilder, member: m.Member, task_id: TaskId, record: r.AssignmentChanged) -> m.Revocation:
    task = builder.task(task_id)
    was_active = task.owner == member.id
    handover, since_ms = task.handover, task.since_ms
    if was_active:
        has_run = task.state is m.RUNNING
        if task_id in record.stuck or (member.suspected and has_run):
            outcome = m.Outcome.STUCK if task_id in record.stuck else m.Outcome.DIED
            _fail(builder, task, member, outcome, (record.at_ms, record.at_ms))
            task = builder.task(task_id)
        stop = m.Stop(member.id, None, m.SUSPECTED if member.suspected else m.REVOKED) if has_run else handover.stop
        handover, since_ms = _unreleased_by(task, member.id, stop), record.at_ms
    builder.tasks[task_id] = _without_member(task, member.id, handover, since_ms)
    return m.Revocation(record.epoch, record.at_ms, was_active)


def _taken_up(task: m.Task, member_id: MemberId, grant: m.Grant, *, ready: bool) -> m.Task:
    """Return the task once the member holds it in the role of the grant."""
    _, owner, state, ready_grant, since_ms, token, ran_ms, well_ms, standbys, warmups, target, handover, marks = task
    if standbys or warmups:
        standbys, warmups = _removed(standbys, member_id), _removed(warmups, member_id)
    if grant.role is m.STANDBY:
        standbys = _added(standbys, member_id)
    elif grant.role is m.WARMUP:
        warmups = _added(warmups, member_id)
    else:
        owner, state, ready_grant, since_ms, token = member_id, m.GRANTED, ready, grant.since_ms, grant.token
        if handover is not m.NO_HANDOVER:
            previous_owner = None if handover.previous_owner == member_id else handover.previous_owner
            handover = m.shared(handover._replace(next_owner=None, previous_owner=previous_owner, away_owner=None))
    # A constructor takes half the time of ``_replace``, and a first generation takes up every task and every copy.
    return m.Task(
        task.id, owner, state, ready_grant, since_ms, token, ran_ms, well_ms, standbys, warmups, target, handover, marks
    )


def _released(builder: GroupBuilder, record: r.TaskReleased) -> None:
    """The member no longer runs the task. Its final position is kept for the next owner."""
    task = builder.task(record.task)
    unreleased = _without(task.handover.unreleased, record.member_id)
    if len(unreleased) != len(task.handover.unreleased) or record.final_position:
        stop = _stop_completed(task.handover.stop, unreleased, record.at_ms)
        builder.tasks[record.task] = task.with_handover(
            unreleased=unreleased, final_position=record.final_position, stop=stop
        )
    _note_good_end(builder, task, record)
    member = builder.member(record.member_id)
    if member is not None and record.task in member.revoking:
        builder.change_member(member.id, revoking=member.revoking.without(record.task))


def _note_good_end(builder: GroupBuilder, before: m.Task, record: r.TaskReleased) -> None:
    """Note that a task ran well if its owner handed it over while it ran, and had not failed it since it got it.

    What it failed there before is over then. Who confirms has not died, even if it was suspected.
    """
    member, stop = builder.member(record.member_id), before.handover.stop
    if member is None:
        return
    is_end = stop is not None and stop.cause == m.REVOKED and stop.member_id == member.id
    ran = is_end and (member.id, before.token) not in {(one.member_id, one.token) for one in before.marks.failures}
    if ran or any(one.member_id == member.id and one.outcome is m.Outcome.DIED for one in before.marks.failures):
        task = _forgiven(builder, builder.task(record.task), member)
        if ran:
            builder.tasks[task.id] = task._replace(well_ms=max(task.well_ms, record.at_ms))
            return
        # It was silent, and no more than that. If it is so again and again, it is not tried again each time.
        silent = [
            one._replace(outcome=m.Outcome.SILENT)
            for one in before.marks.failures
            if one.member_id == member.id and one.outcome is m.Outcome.DIED
        ]
        builder.tasks[task.id] = task.with_marks(failures=(*task.marks.failures, *silent))


def _release_waived(builder: GroupBuilder, record: r.ReleaseWaived) -> None:
    """The task no longer waits for the suspected member, which still has to confirm."""
    task = builder.task(record.task)
    unreleased, stop = _without(task.handover.unreleased, record.member_id), task.handover.stop
    if stop is not None and stop.member_id == record.member_id and stop.at_ms is None:
        stop = stop._replace(heard_ms=record.heard_ms)
    stop = _stop_completed(stop, unreleased, task.since_ms)
    builder.tasks[record.task] = task.with_handover(unreleased=unreleased, final_position=(), stop=stop)


def _passed_over(builder: GroupBuilder, task: m.Task, taker: MemberId, at_ms: int) -> m.Task:
    """Return a task that another member gets than its next owner. If that is in the group, it was not heard."""
    next_owner = task.handover.next_owner
    passed_over = builder.member(next_owner) if next_owner not in (None, taker) else None
    if passed_over is None or passed_over.away_until_ms is not None:
        return task
    return task.with_marks(failures=with_failure(task, passed_over, m.Outcome.SILENT, at_ms, builder.group.config))


def _next_owner_chosen(builder: GroupBuilder, record: r.NextOwnerChosen) -> None:
    task = builder.task(record.task)
    task = _passed_over(builder, task, record.next_owner, task.since_ms)
    builder.tasks[record.task] = task.with_handover(next_owner=record.next_owner)


def _active_reported(builder: GroupBuilder, record: r.ActiveReported) -> None:
    """The owner has reported its state. Once it runs, the previous owner's copy is no longer needed."""
    task = builder.task(record.task)
    if task.owner != record.member_id:
        return
    member = builder.member(record.member_id)
    lost_what_it_had = record.state is m.LOST and (task.ready_grant or task.state is m.RUNNING)
    if member is not None and (record.state is m.FAILED or lost_what_it_had):
        outcome = m.Outcome.LOST if lost_what_it_had else m.Outcome.FAILED
        _fail(builder, task, member, outcome, (record.at_ms, record.at_ms), detail=record.detail)
        task = builder.task(record.task)
    handover, ran_since_ms = task.handover, task.ran_since_ms
    if record.state is m.RUNNING:
        ran_since_ms = ran_since_ms if task.state is m.RUNNING else record.at_ms
        if handover is not m.NO_HANDOVER:
            handover = m.shared(handover._replace(previous_owner=None, final_position=(), stop=None))
    elif task.state is m.RUNNING:
        handover = handover._replace(stop=m.Stop(record.member_id, record.at_ms, record.state.value))
    task = task._replace(state=record.state, ran_since_ms=ran_since_ms, handover=handover)
    builder.tasks[record.task] = task
    _charge_hosts(builder, task, record.at_ms)


def _stalled(builder: GroupBuilder, record: r.WarmupStalled) -> None:
    """The member is not tried again for a while, and other members have their turn first."""
    task = builder.task(record.task)
    builder.change_member(record.member_id, tried_ms=record.until_ms)
    others = tuple(stall for stall in task.marks.stalls if stall.member_id != record.member_id)
    builder.mark(record.task, stalls=(*others, m.Stall(record.member_id, record.until_ms, record.gave_way)))


def _doubts_changed(builder: GroupBuilder, record: r.StateDoubted | r.StateTrusted) -> None:
    """The member's state of these tasks is never promoted, whatever it reports of it; or its reports count again."""
    member = builder.member(record.member_id)
    if member is not None:
        doubts = record.tasks if isinstance(record, r.StateDoubted) else dict.fromkeys(record.tasks)
        builder.change_member(member.id, doubts=member.doubts.updated(doubts))


def _pinned(builder: GroupBuilder, record: r.TaskPinned) -> None:
    """The task is pinned to a member, or no longer. Its failures there are forgotten, unless it fails there now."""
    task = builder.task(record.task)
    member = builder.member(record.member_id) if record.member_id is not None else None
    if member is not None and (task.owner != record.member_id or task.state is not m.FAILED):
        task = _forgiven(builder, task, member)
    builder.tasks[record.task] = task.with_marks(pin=record.member_id)
    builder.change(pins=builder.group.pins.updated({record.task: record.member_id}))


def _adopted(builder: GroupBuilder, record: r.TasksAdopted) -> None:
    """The member owns the tasks that it runs, whatever the surviving log says. Other holders must give them up."""
    member = builder.member(record.member_id)
    if member is None:
        return
    assignment: dict[TaskId, m.Grant | None] = {}
    revoking: dict[TaskId, m.Revocation | None] = {}
    for task_id in record.dropped:
        task = builder.task(task_id)
        assignment[task_id] = None
        revoking[task_id] = m.Revocation(member.epoch, record.at_ms, active=True)
        stop = task.handover.stop or m.Stop(member.id, record.at_ms, m.REVOKED)
        handover = _unreleased_by(task, member.id, stop)
        builder.tasks[task_id] = _without_member(task, member.id, handover, task.since_ms)
    for task_id, token in record.tokens.items():
        task = builder.task(task_id)
        if task.owner is not None and task.owner != member.id:
            _dispossess(builder, task_id, record)
            task = builder.task(task_id)
        grant = m.Grant(m.ACTIVE, member.epoch, record.at_ms, max(token, task.token))
        assignment[task_id] = grant
        revoking[task_id] = None
        taken_up = _taken_up(task, member.id, grant, ready=True)
        builder.tasks[task_id] = taken_up._replace(state=m.RUNNING, ran_since_ms=record.at_ms).with_handover(
            unreleased=_without(task.handover.unreleased, member.id), previous_owner=None, stop=None
        )
    builder.change_member(
        member.id,
        assignment=member.assignment.updated(assignment),
        revoking=member.revoking.updated(revoking),
    )


def _dispossess(builder: GroupBuilder, task_id: TaskId, record: r.TasksAdopted) -> None:
    task = builder.task(task_id)
    other = builder.member(task.owner) if task.owner is not None else None
    if other is None:
        return
    epoch = other.epoch + 1
    handover = _unreleased_by(task, other.id, task.handover.stop)
    builder.tasks[task_id] = _without_member(task, other.id, handover, task.since_ms)
    builder.change_member(
        other.id,
        epoch=epoch,
        assignment=other.assignment.without(task_id),
        revoking=other.revoking.having(task_id, m.Revocation(epoch, record.at_ms, active=True)),
    )


# What several folds share.


def _tasks_involving(builder: GroupBuilder, member: m.Member) -> list[TaskId]:
    """Return every task that names the member: tasks it holds or held, its pins, and tasks with it as target."""
    pinned = [task_id for task_id, pin in builder.group.pins.items() if pin == member.id]
    return list(dict.fromkeys([*member.assignment, *member.revoking, *builder.tasks_naming(member.id), *pinned]))


def _named_in(task: m.Task) -> set[MemberId | None]:
    target, handover = task.target, task.handover
    named = {task.owner, target.owner, task.marks.pin}
    named.update(task.standbys, task.warmups, target.standbys)
    if handover is not m.NO_HANDOVER:
        named.update((handover.next_owner, handover.previous_owner, handover.away_owner))
        named.update([entry.member_id for entry in handover.unreleased])
        if handover.stop is not None:
            named.add(handover.stop.member_id)
    named.discard(None)
    return named


def _unreleased_by(task: m.Task, member_id: MemberId, stop: m.Stop | None) -> m.Handover:
    """Return the handover of a task that a member has yet to give up, and with it this end of its last run."""
    return task.handover._replace(unreleased=(*task.handover.unreleased, m.Unreleased(member_id, None)), stop=stop)


def _without_member(task: m.Task, member_id: MemberId, handover: m.Handover, since_ms: int) -> m.Task:
    """Return the task once the member holds nothing of it, except what ``handover`` says."""
    if handover.next_owner == member_id:
        handover = handover._replace(next_owner=None)
    if handover.previous_owner == member_id:
        handover = handover._replace(previous_owner=None)
    return task._replace(
        owner=None if task.owner == member_id else task.owner,
        since_ms=since_ms,
        standbys=_removed(task.standbys, member_id),
        warmups=_removed(task.warmups, member_id),
        handover=m.shared(handover),
    )


def _without_departed(
    task: m.Task, unreleased: tuple[m.Unreleased, ...], departure: m.Stop, at_ms: int, *, away_owner: MemberId | None
) -> m.Task:
    """Return the task without the member of ``departure``, which holds nothing of it any more but ``unreleased``."""
    member_id, stop, final_position = departure.member_id, task.handover.stop, task.handover.final_position
    since_ms, ran = task.since_ms, task.owner == member_id
    is_its_stop = stop is not None and stop.member_id == member_id and stop.at_ms is None
    if is_its_stop or (ran and task.state is m.RUNNING):
        stop = departure
    if ran:
        # The member may have written since its last report, so the final position of the owner before it is outdated.
        since_ms, final_position = at_ms, ()
    handover = task.handover._replace(
        unreleased=unreleased,
        final_position=final_position,
        away_owner=away_owner,
        stop=_stop_completed(stop, unreleased, at_ms),
    )
    return _without_member(task, member_id, handover, since_ms)


def _stop_completed(stop: m.Stop | None, unreleased: tuple[m.Unreleased, ...], at_ms: int) -> m.Stop | None:
    """Return ``stop`` with the instant from which no member can be running the task, once every member released it.

    If that instant was not recorded (0), nothing is known of the stop.
    """
    if stop is None or stop.at_ms is not None or unreleased:
        return stop
    return stop._replace(at_ms=at_ms) if at_ms else None


def _without(unreleased: tuple[m.Unreleased, ...], member_id: MemberId) -> tuple[m.Unreleased, ...]:
    return tuple([entry for entry in unreleased if entry.member_id != member_id]) if unreleased else ()


def _removed(members: tuple[MemberId, ...], member_id: MemberId) -> tuple[MemberId, ...]:
    if member_id not in members:
        return members
    return tuple([other_id for other_id in members if other_id != member_id]) if len(members) > 1 else ()


def _added(members: tuple[MemberId, ...], member_id: MemberId) -> tuple[MemberId, ...]:
    if not members:
        return (member_id,)
    if member_id > members[-1]:
        return (*members, member_id)
    return members if member_id in members else tuple(sorted((*members, member_id)))


_FOLD: Final[Mapping[type[r.Record], Callable[[GroupBuilder, Never], None]]] = {
    r.GroupDeclared: _declared,
    r.TopologyChanged: _topology_changed,
    r.TasksEnded: _tasks_ended,
    r.ConfigChanged: _config_changed,
    r.GroupDeleted: _deleted,
    r.MemberJoined: _joined,
    r.MemberGone: _gone,
    r.MemberAway: _away,
    r.MemberChanged: _member_changed,
    r.PlaceInherited: _inherited,
    r.DrainStarted: _drain_started,
    r.DrainCancelled: lambda builder, one: builder.change_standing(one.member_id, drain=None),
    r.InstanceKeptOut: _keeping_out_changed,
    r.InstanceLetIn: _keeping_out_changed,
    r.MemberSuspected: lambda builder, one: builder.change_standing(one.member_id, suspected=True),
    r.SuspicionCleared: _heard_again,
    r.MemberTrusted: _trusted,
    r.RebalanceScheduled: _rebalance_scheduled,
    r.Paused: lambda builder, one: builder.change(pause=one.pause),
    r.Resumed: lambda builder, _: builder.change(pause=None),
    r.StormBegan: lambda builder, one: builder.change(storm_since_ms=one.at_ms),
    r.StormEnded: lambda builder, _: builder.change(storm_since_ms=None, losses=()),
    r.GrantsHeld: _grants_held,
    r.EpochsRaised: _epochs_raised,
    r.ProbeScheduled: lambda builder, one: builder.change(next_probe_ms=one.at_ms),
    r.LoadsMeasured: _loads_measured,
    r.ImbalanceNoted: lambda builder, one: builder.change(hot_since_ms=one.since_ms),
    r.MovedForLoad: _moved_for_load,
    r.GoneForgotten: _gone_forgotten,
    r.TargetPlaced: _target_placed,
    r.AssignmentChanged: _assignment_changed,
    r.TaskReleased: _released,
    r.ReleaseWaived: _release_waived,
    r.NextOwnerChosen: _next_owner_chosen,
    r.ActiveReported: _active_reported,
    r.WarmupStalled: _stalled,
    r.StateDoubted: _doubts_changed,
    r.StateTrusted: _doubts_changed,
    r.TaskParked: lambda builder, one: builder.mark(one.task, parked=True),
    r.TaskUnparked: lambda builder, one: builder.mark(one.task, parked=False, failures=()),
    r.TaskPinned: _pinned,
    r.TasksAdopted: _adopted,
}
