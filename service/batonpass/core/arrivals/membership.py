"""Which members are in the group: join, return, leave, drain, evict.

Laws kept here: a member id is never used twice. An instance id has one living holder. A task that a member may still be
running stays unreleased until the member confirmed, left, was vouched for as dead, or its lease ran out (L1). Expiry,
and everything else that happens because time passes, is in ``liveness``.
"""

from collections.abc import Callable
from dataclasses import replace

from batonpass.core.arrivals import storm
from batonpass.core.arrivals.answers import Late, Taken, refusal
from batonpass.core.arrivals.doubts import inherit_doubts
from batonpass.core.arrivals.kept_out import drain_of_newcomer, instance_named, keep_out, let_in, run_named
from batonpass.core.arrivals.report_bounds import bounded, too_many_unassigned
from batonpass.core.arrivals.reports import disprove_death, measurement
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.lag import measured_report
from batonpass.core.state import records as r
from batonpass.core.state.errors import Gone, InstanceIdInUse, InvalidRequest, LimitExceeded
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import DrainRequest, DrainReversal, Eviction, Join, Leave
from batonpass.core.state.model import Cause, Member, Unreleased
from batonpass.core.state.pmap import PMap
from batonpass.core.state.replies import Done, DrainProgress, Reply
from batonpass.core.state.soft import MemberSoft

FIRST_EPOCH = 1
"""The epoch of a member's first assignment, which is empty."""

LEFT_BEFORE_JOINING_MAX = 100
"""How many ids are remembered whose leave came before their join."""


def join(draft: DecisionDraft, item: Join) -> Reply:
    """Let a new run of a worker in. Answer a join whose reply was lost with the present assignment.

    A new member is answered ``Taken``, because its assignment is known only when the whole decision stands.
    """
    group = draft.group
    if not group.declared:
        raise refusal(group, item.member_id)
    present = group.members.get(item.member_id)
    if present is not None and present.away_until_ms is None:
        return _answer_repeated_join(draft, present)
    if item.member_id in draft.soft.left_before_joining:
        raise Gone(f"member {item.member_id!r} left before its join arrived; join with a new id")
    if present is not None or item.member_id in group.gone:
        raise Gone(f"member id {item.member_id!r} was used before; join with a new id")
    predecessors = _predecessors(draft, item)
    if not predecessors and len(group.members) >= draft.policy.max_members:
        raise LimitExceeded(
            f"group {group.id!r} has {len(group.members)} members, the limit is {draft.policy.max_members}"
        )
    is_first = not group.members
    draft.record(r.MemberJoined(_new_member(draft, item)))
    on_disk, ignored = bounded(group, item.tasks, draft.policy)
    excess, unassigned, why = too_many_unassigned(draft.group, draft.soft, item.member_id, on_disk, draft.policy)
    item = replace(item, tasks={task_id: report for task_id, report in on_disk.items() if task_id not in excess})
    same_place = [_inherit(draft, item, old) for old in predecessors]
    if item.replaces is not None or item.takeover:
        release(draft, lambda entry: _vouches_for(draft, item, entry.member_id))
    inherit_doubts(draft, item)
    _take_state_on_disk(draft, item, unassigned)
    was_missed = any(old.id in draft.soft.placed_without for old in predecessors)
    if same_place != [True] or was_missed or _waits_for_a_missing_member(draft):
        draft.schedule("join", group.config.initial_rebalance_delay_ms if is_first else None)
    storm.end_if_back(draft)
    return Taken((*ignored, *why))


def _answer_repeated_join(draft: DecisionDraft, member: Member) -> Late:
    """A repeated join counts as a heartbeat: it renews the lease and changes nothing else."""
    known = draft.member_soft(member.id) or MemberSoft(draft.now_ms)
    draft.set_member_soft(member.id, known.heard(draft.now_ms))
    return Late()


def _new_member(draft: DecisionDraft, item: Join) -> Member:
    group = draft.group
    return Member(
        id=item.member_id,
        joined_ms=draft.now_ms,
        instance_id=item.instance_id,
        capacity=item.capacity,
        max_tasks=item.max_tasks,
        client_tags=dict(sorted(item.client_tags.items())),
        topology_epoch=group.topology.epoch if item.topology_epoch is None else item.topology_epoch,
        on_lease_lost=item.on_lease_lost,
        endpoint=item.endpoint,
        epoch=FIRST_EPOCH,
        drain=drain_of_newcomer(draft, item.instance_id),
        max_disk_bytes=item.max_disk_bytes,
    )


def _predecessors(draft: DecisionDraft, item: Join) -> list[Member]:
    """Return the members whose place the newcomer takes: the one in ``replaces``, and the holder of its instance id.

    Raises:
        InstanceIdInUse: when the holder is alive, or ``replaces`` names a run of another instance.
    """
    group = draft.group
    replaced = group.members.get(item.replaces) if item.replaces is not None else None
    if replaced is not None and replaced.instance_id is not None and replaced.instance_id != item.instance_id:
        raise InstanceIdInUse(
            f"replaces names member {replaced.id!r}, a run of instance {replaced.instance_id!r}; "
            "it can only be replaced by that instance",
            retry_after_ms=_lease_left_ms(draft, replaced),
        )
    holder_id = group.instances.get(item.instance_id) if item.instance_id is not None else None
    holder = group.members.get(holder_id) if holder_id is not None else None
    if holder is None or holder.away_until_ms is not None or holder is replaced or item.takeover:
        predecessors = [replaced] if replaced is not None else []
        return [*predecessors, holder] if holder is not None and holder is not replaced else predecessors
    raise InstanceIdInUse(
        f"instance {item.instance_id!r} is held by live member {holder.id!r}; "
        "wait for its lease, or join with takeover if it is dead",
        retry_after_ms=_lease_left_ms(draft, holder),
    )


def _lease_left_ms(draft: DecisionDraft, member: Member) -> int:
    return max(1, draft.view().lease_end_ms(member) - draft.now_ms)


def _inherit(draft: DecisionDraft, item: Join, old: Member) -> bool:
    """Put the newcomer in the place of ``old``. Return whether the target can stay as it is.

    A run of an instance that is kept out takes nothing over, so the place of ``old`` is free.
    """
    cause = Cause.REPLACED
    if old.away_until_ms is not None:
        cause = Cause.RESTARTED
    elif old.id != item.replaces:
        cause = Cause.TAKEN_OVER
    new = draft.group.members[item.member_id]
    if new.drain is None:
        draft.record(r.PlaceInherited(old.id, new.id))
    draft.record(draft.gone(old.id, cause))
    same = (
        new.capacity == old.capacity
        and (new.max_tasks, new.max_disk_bytes) == (old.max_tasks, old.max_disk_bytes)
        and new.client_tags == old.client_tags
        and new.topology_epoch == old.topology_epoch
        and old.drain is None
        and new.drain is None
    )
    came_without_state = cause is Cause.RESTARTED and not item.tasks
    return same and not came_without_state


def _vouches_for(draft: DecisionDraft, item: Join, member_id: MemberId) -> bool:
    """Say whether the join vouches that a departed run is stopped: by ``replaces``, or by takeover of its instance."""
    gone = draft.group.gone.get(member_id)
    if gone is None or gone.instance_id not in (None, item.instance_id):
        return False
    return member_id == item.replaces or (item.takeover and gone.instance_id is not None)


def release(draft: DecisionDraft, is_over: Callable[[Unreleased], bool]) -> bool:
    """Release what members may still have been running, where that is over now. Return whether anything is."""
    freed = [
        r.TaskReleased(task_id, entry.member_id, at_ms=draft.now_ms)
        for task_id in sorted(draft.group.moving_tasks())
        for entry in draft.group.tasks[task_id].handover.unreleased
        if is_over(entry)
    ]
    draft.record(*freed)
    return bool(freed)


def _take_state_on_disk(draft: DecisionDraft, item: Join, unassigned: int) -> None:
    """Keep what the newcomer reports of its disk. Its lease begins now."""
    group, soft, now_ms = draft.group, draft.soft, draft.now_ms
    member = group.members[item.member_id]
    reports = {
        task_id: measured_report(
            report, None, now_ms, measurement(group, soft, member, (task_id, report, None), now_ms)
        )
        for task_id, report in item.tasks.items()
    }
    timeouts = ((FIRST_EPOCH, group.config.session_timeout_ms),)
    new = MemberSoft(now_ms, full=True, timeouts=timeouts, reports=reports, unassigned=unassigned)
    draft.set_member_soft(item.member_id, new)


def leave(draft: DecisionDraft, item: Leave) -> Reply:
    """Remove a member that has stopped its actives. With ``restart``, keep its place for ``rejoin_grace_ms``.

    Its tasks are free at once. Ready standbys take them over; other tasks with state wait for the instance to return.
    What has no state, and what members that drain were to hand over to it, goes to members that are there.
    """
    group = draft.group
    if group.declared and item.member_id not in group.members and item.member_id not in group.gone:
        _note_left_before_joining(draft, item.member_id)
    member = group.present_member(item.member_id)
    if member is None:
        disprove_death(draft, item.member_id)
        raise refusal(group, item.member_id)
    if item.restart and member.instance_id is None:
        message = "mode=restart needs a member that joined with an instance_id; leave without it"
        raise InvalidRequest(message, errors=[("mode", message)])
    grace_ms = group.config.rejoin_grace_ms
    if item.restart and grace_ms > 0 and member.drain is None:
        draft.record(r.MemberAway(member.id, draft.now_ms + grace_ms, draft.now_ms))
        if _waits_for_a_missing_member(draft):
            draft.schedule("restart")
        return Done()
    draft.record(draft.gone(member.id, Cause.LEFT))
    draft.schedule("leave")
    return Done()


def _waits_for_a_missing_member(draft: DecisionDraft) -> bool:
    """Say whether the target gives a task to a member that is not there, although another one may have it."""
    view = draft.view()
    tasks = view.tasks.pick(draft.group.unsettled)
    return any(view.is_missing(task.target.owner) and view.kept_at(task) is None for task in tasks)


def _note_left_before_joining(draft: DecisionDraft, member_id: MemberId) -> None:
    """Remember an id that left before its join arrived. Otherwise the join adds a member that never sends a heartbeat.

    The join follows its leave soon. So the newest such ids are enough, and a restart of the process may lose them.
    """
    known = {**draft.soft.left_before_joining, member_id: draft.now_ms}
    oldest_ms = draft.now_ms - draft.policy.gone_retention_ms
    kept = sorted((at_ms, left_id) for left_id, at_ms in known.items() if at_ms >= oldest_ms)[-LEFT_BEFORE_JOINING_MAX:]
    draft.soft = draft.soft._replace(left_before_joining=PMap({left_id: at_ms for at_ms, left_id in kept}))


def evict(draft: DecisionDraft, item: Eviction) -> Reply:
    """Remove a member. Its tasks are free when its lease is over, or at once if the caller vouches that it is dead.

    The caller can still vouch for a member that was fenced earlier, as long as that member holds tasks back. An
    instance without a member can still be kept out. Who vouches for a run vouches for no other run of its instance.
    """
    group = draft.group
    member = run_named(group, item)
    if not group.declared:
        raise refusal(group, item.member_id)
    if member is None and (not item.until_undone or instance_named(group, item.member_id) is None):
        if item.dead and release(draft, lambda entry: entry.member_id == item.member_id):
            return Done()
        raise refusal(group, item.member_id)
    keep_out(draft, item)
    is_dead = item.dead and member is not None and member.id == item.member_id
    if item.dead and not is_dead:
        release(draft, lambda entry: entry.member_id == item.member_id)
    if member is None:
        return Done()
    now_ms = draft.now_ms
    end_ms = now_ms if is_dead or member.away_until_ms is not None else max(now_ms, draft.view().lease_end_ms(member))
    draft.record(draft.gone(member.id, Cause.EVICTED, lease_end_ms=end_ms))
    draft.schedule("evict")
    return Done()


def drain(draft: DecisionDraft, item: DrainRequest) -> Reply:
    """Let a member hand over everything while it goes on processing. A second request may set another deadline.

    An instance that is away, or has no member, can still be kept out. Its place is then free.
    """
    group = draft.group
    member = run_named(group, item)
    is_there = group.declared and member is not None and member.away_until_ms is None
    if not is_there and (not group.declared or not item.until_undone or instance_named(group, item.member_id) is None):
        raise refusal(group, item.member_id)
    keep_out(draft, item)
    now_ms = draft.now_ms
    if member is None or not is_there:
        if member is not None:
            draft.record(draft.gone(member.id, Cause.EVICTED))
            draft.schedule("drain")
        return DrainProgress((), ())
    if member.drain is None or item.deadline_ms is not None:
        since = now_ms if member.drain is None else member.drain.since_ms
        deadline_ms = None if item.deadline_ms is None else now_ms + item.deadline_ms
        gives_up_ms = since + group.config.drain_timeout_ms
        draft.record(r.DrainStarted(member.id, since, deadline_ms, gives_up_ms))
        if member.drain is None:
            draft.schedule("drain")
    return Done()


def undrain(draft: DecisionDraft, item: DrainReversal) -> Reply:
    """Let a draining member stay, and an instance in. Handovers whose revocation was sent are completed."""
    group = draft.group
    member, instance_id = group.present_member(item.member_id), instance_named(group, item.member_id)
    if instance_id is not None and instance_id in group.kept_out:
        let_in(draft, instance_id, "undrain")
        return Done()
    if member is None:
        raise refusal(group, item.member_id)
    if member.drain is not None:
        draft.record(r.DrainCancelled(member.id))
        draft.schedule("undrain")
    return Done()
