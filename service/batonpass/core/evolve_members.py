"""How records about the group and its members change it. Private to ``evolve``."""

from __future__ import annotations

from batonpass.core import records as r
from batonpass.core.draft import Draft, changes_without, failed, involved, minus, plus, stopped, without
from batonpass.core.ids import InstanceId, MemberId, TaskId
from batonpass.core.model import (
    ActiveState,
    Cause,
    Claim,
    Drain,
    Failure,
    GoneMember,
    Loss,
    Role,
    Task,
    Topology,
)
from batonpass.core.pmap import PMap
from batonpass.core.topology import build_table


def declared(draft: Draft, record: r.GroupDeclared) -> None:
    """The group exists; what stood before under its name lives on in epochs, tokens and the ids of gone members."""
    longest = max(draft.group.longest_session_ms, record.config.session_timeout_ms)
    draft.change(
        declared=True,
        revision=draft.group.revision + 1,
        config=record.config,
        longest_session_ms=longest,
        generation_epoch=0,
    )
    _set_topology(draft, record.topology)


def _set_topology(draft: Draft, topology: Topology) -> None:
    table = build_table(topology)
    dropped = [task_id for task_id in draft.group.table.ids if task_id not in table.rank]
    draft.change(topology=topology, table=table)
    for task_id in table.ids:
        draft.tasks[task_id] = draft.task(task_id)
    for task_id in dropped:
        # Whoever holds it is told to give it up; the token outlives the task, should it ever come back.
        draft.tasks[task_id] = draft.task(task_id)._replace(target=None, target_standbys=(), pin=None, heir=None)
    if draft.group.pins:
        draft.change(pins=draft.group.pins.updated(dict.fromkeys(dropped)))


def topology_changed(draft: Draft, record: r.TopologyChanged) -> None:
    """The tasks are those of the new topology."""
    draft.change(revision=draft.group.revision + 1)
    _set_topology(draft, record.topology)


def config_changed(draft: Draft, record: r.ConfigChanged) -> None:
    """The settings are new; the longest session timeout ever answered is kept, because leases may still run by it."""
    longest = max(draft.group.longest_session_ms, record.config.session_timeout_ms)
    draft.change(revision=draft.group.revision + 1, config=record.config, longest_session_ms=longest)


def deleted(draft: Draft, record: r.GroupDeleted) -> None:
    """A tombstone stays: epochs, generation, tokens and the ids of members."""
    for task_id in draft.every_task():
        draft.tasks[task_id] = Task(task_id, token=draft.task(task_id).token)
    gone_now: dict[MemberId, GoneMember | None] = {}
    for member_id, member in draft.every_member():
        draft.members[member_id] = None
        gone_now[member_id] = GoneMember(record.at_ms, Cause.EVICTED, record.lease_end_ms, member.instance_id)
    nobody: PMap[InstanceId, MemberId] = PMap()
    nowhere: PMap[TaskId, MemberId] = PMap()
    draft.change(
        declared=False,
        revision=draft.group.revision + 1,
        topology=Topology(),
        table=build_table(Topology()),
        gone=draft.group.gone.updated(gone_now),
        instances=nobody,
        pins=nowhere,
        due_ms=None,
        triggers=(),
        next_probe_ms=None,
        pause=None,
        storm_since_ms=None,
        losses=(),
        grants_from_ms=max(draft.group.grants_from_ms, record.lease_end_ms),
    )


def joined(draft: Draft, record: r.MemberJoined) -> None:
    """A member runs; its instance id, if it has one, is its own."""
    member = record.member
    draft.members[member.id] = member
    if member.instance_id is not None:
        draft.change(instances=draft.group.instances.having(member.instance_id, member.id))


def gone(draft: Draft, record: r.MemberGone) -> None:
    """A member is no more: nothing is meant for it, and it may run its actives until its lease ends."""
    member = draft.member(record.member_id)
    if member is None:
        return
    concerned = involved(draft, member)
    for task_id in concerned:
        task = draft.task(task_id)
        after = _left_by(task, record)
        if after is not task:
            draft.tasks[task_id] = after
    draft.members[member.id] = None
    _move_pins(draft, member.id, None)
    if member.instance_id is not None and draft.group.instances.get(member.instance_id) == member.id:
        draft.change(instances=draft.group.instances.without(member.instance_id))
    entry = GoneMember(record.at_ms, record.cause, record.lease_end_ms, member.instance_id)
    draft.change(gone=draft.group.gone.having(member.id, entry))
    if record.cause is Cause.EXPIRED:
        group = draft.group
        oldest = record.at_ms - group.config.session_timeout_ms
        recent = tuple(loss for loss in group.losses if loss.at_ms > oldest or group.storm_since_ms is not None)
        draft.change(losses=(*recent, Loss(member.id, record.at_ms)))


def _left_by(task: Task, record: r.MemberGone) -> Task:
    member_id, claims = record.member_id, task.claims
    if claims:
        claims = tuple(claim for claim in claims if claim.member_id != member_id)
    ran = task.owner == member_id
    if record.lease_end_ms > record.at_ms and (ran or len(claims) != len(task.claims)):
        claims = (*claims, Claim(member_id, record.lease_end_ms))
    changes = changes_without(task, member_id, claims)
    stop = stopped(task, claims, member_id, record.at_ms, record.cause.value)
    if stop is not task.stop:
        changes["stop"] = stop
    if ran:
        # It may have written since it last spoke: where the one before it stopped is not where the changelog ends.
        changes |= {"since_ms": record.at_ms, "final": ()}
        if record.cause is Cause.EXPIRED and task.state is ActiveState.RUNNING:
            changes["failures"] = failed(task, Failure(member_id, record.at_ms))
    if task.target == member_id:
        changes["target"] = None
    if member_id in task.target_standbys:
        changes["target_standbys"] = minus(task.target_standbys, member_id)
    if task.pin == member_id:
        changes["pin"] = None
    if task.awaits == member_id:
        changes["awaits"] = None
    return task._replace(**changes) if changes else task  # type: ignore[arg-type]


def away(draft: Draft, record: r.MemberAway) -> None:
    """A member stopped to restart: it holds nothing, its place stays what it was."""
    member = draft.member(record.member_id)
    if member is None:
        return
    for task_id in involved(draft, member):
        task = draft.task(task_id)
        after = without(task, member.id, tuple(claim for claim in task.claims if claim.member_id != member.id))
        stop = stopped(task, after.claims, member.id, record.at_ms, Cause.RESTARTED.value)
        if stop is not task.stop:
            after = after._replace(stop=stop)
        if task.owner == member.id:
            after = after._replace(since_ms=record.at_ms, final=(), awaits=member.id)
        if after != task:
            draft.tasks[task_id] = after
    draft.change_member(
        member.id, picture=PMap(), revoking=PMap(), away_until_ms=record.until_ms, suspected=False, drain=None
    )


def inherited(draft: Draft, record: r.PlaceInherited) -> None:
    """Whatever was meant for one member is meant for its heir."""
    old, heir = record.member_id, record.heir
    member = draft.member(old)
    if member is None:
        return
    for task_id in involved(draft, member):
        task = draft.task(task_id)
        target = heir if task.target == old else task.target
        standbys = minus(task.target_standbys, old)
        if standbys != task.target_standbys:
            standbys = plus(standbys, heir)
        if target == heir:
            # It may stand in the place of two members, of which one was to stand by the other.
            standbys = minus(standbys, heir)
        after = task._replace(target=target, target_standbys=standbys, pin=heir if task.pin == old else task.pin)
        if after != task:
            draft.tasks[task_id] = after
    _move_pins(draft, old, heir)


def _move_pins(draft: Draft, old: MemberId, heir: MemberId | None) -> None:
    """Keep the index of pins in step: those of ``old`` are the heir's, or nobody's."""
    changes = {task_id: heir for task_id, pin in draft.group.pins.items() if pin == old}
    if changes:
        draft.change(pins=draft.group.pins.updated(changes))


def drain_started(draft: Draft, record: r.DrainStarted) -> None:
    """The member is on its way out, and may have come to the end of its time."""
    drain = Drain(record.since_ms, record.deadline_ms, record.gives_up_ms, record.blocked)
    draft.change_member(record.member_id, drain=drain)
    _look_again(draft, record.member_id)


def drain_cancelled(draft: Draft, record: r.DrainCancelled) -> None:
    """The member stays."""
    draft.change_member(record.member_id, drain=None)
    _look_again(draft, record.member_id)


def suspected(draft: Draft, record: r.MemberSuspected) -> None:
    """The member may be dead: whatever it runs may have to go elsewhere."""
    draft.change_member(record.member_id, suspected=True)
    _look_again(draft, record.member_id)


def suspicion_cleared(draft: Draft, record: r.SuspicionCleared) -> None:
    """The member spoke."""
    draft.change_member(record.member_id, suspected=False)
    _look_again(draft, record.member_id)


def _look_again(draft: Draft, member_id: MemberId) -> None:
    """Have it judged anew which of a member's tasks are settled: nothing about the tasks themselves has changed."""
    member = draft.member(member_id)
    if member is not None:
        for task_id, grant in member.picture.items():
            if grant.role is Role.ACTIVE:
                draft.tasks[task_id] = draft.task(task_id)


def rebalance_scheduled(draft: Draft, record: r.RebalanceScheduled) -> None:
    """The group epoch grows; the earliest of the due times counts."""
    group = draft.group
    due = record.due_ms if group.due_ms is None else min(group.due_ms, record.due_ms)
    triggers = group.triggers if record.trigger in group.triggers else (*group.triggers, record.trigger)
    draft.change(group_epoch=group.group_epoch + 1, due_ms=due, triggers=triggers)


def paused(draft: Draft, record: r.Paused) -> None:
    """Moves are held."""
    draft.change(pause=record.pause)


def resumed(draft: Draft, _record: r.Resumed) -> None:
    """Moves go on."""
    draft.change(pause=None)


def storm_began(draft: Draft, record: r.StormBegan) -> None:
    """Too many members vanished."""
    draft.change(storm_since_ms=record.at_ms)


def storm_ended(draft: Draft, _record: r.StormEnded) -> None:
    """The storm is over; its losses no longer count."""
    draft.change(storm_since_ms=None, losses=())


def grants_held(draft: Draft, record: r.GrantsHeld) -> None:
    """Nothing is granted for a while; a hold never gets shorter."""
    draft.change(grants_from_ms=max(draft.group.grants_from_ms, record.until_ms))
    if record.adopting:
        draft.change(recovering_until_ms=max(draft.group.recovering_until_ms, record.until_ms))


def epochs_raised(draft: Draft, record: r.EpochsRaised) -> None:
    """Epochs and tokens lie above whatever the lost commits may have given out."""
    for member_id, epoch in record.epochs.items():
        member = draft.member(member_id)
        if member is not None and member.epoch < epoch:
            draft.change_member(member_id, epoch=epoch)
    draft.change(tokens_from=max(draft.group.tokens_from, record.tokens_from))


def probe_scheduled(draft: Draft, record: r.ProbeScheduled) -> None:
    """The time of the next look survives a restart."""
    draft.change(next_probe_ms=record.at_ms)


def gone_forgotten(draft: Draft, record: r.GoneForgotten) -> None:
    """Old ids are no longer remembered."""
    draft.change(gone=draft.group.gone.updated(dict.fromkeys(record.member_ids)))
