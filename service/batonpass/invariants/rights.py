"""What licenses a record that gives or ends a member's right to run a task (L1, L3, L5).

Part of ``invariants``. A grant needs a task that no other member can be running, a token above all earlier ones, and an
instant at which grants are not held. A task is released only by a confirmation, a leave, a vouched death, the end of a
lease, or, for fenced outputs, by suspicion. A member leaves only by its own request, an operator's, another run's, by
its own silence, or by a revocation left unconfirmed.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import (
    Eviction,
    GroupDeletion,
    Heartbeat,
    Input,
    Join,
    Leave,
    Started,
    StoreRecovered,
    StreamsProcess,
    StreamsRebalance,
)
from batonpass.core.state.model import ACTIVE, Cause, GoneMember, Group, Member, OnLeaseLost
from batonpass.invariants.ledger import Ledger, Transition, Violation


def check_right(transition: Transition, ledger: Ledger, record: r.Record) -> Iterable[Violation]:
    """Return what is wrong with a record, given the ledger as it stands just before the record."""
    match record:
        case r.AssignmentChanged():
            return _check_assignment(transition, ledger, record)
        case r.TaskReleased():
            return _check_release(transition, ledger, record)
        case r.ReleaseWaived(task=task_id, member_id=member_id):
            return _check_waiver(ledger, task_id, member_id)
        case r.MemberSuspected(member_id=member_id):
            return _check_suspicion(transition, ledger, member_id)
        case r.MemberGone():
            return _check_departure(transition, ledger, record)
        case r.MemberAway(member_id=member_id):
            return _check_away(transition, ledger, member_id)
        case r.GroupDeleted():
            return _check_deletion(transition, record)
        case r.TasksAdopted():
            return _check_adoption(transition, ledger, record)
        case _:
            return ()


def lease_floor_ms(transition: Transition, member_id: MemberId) -> int:
    """Return the earliest instant at which a member's lease can be over, by what the coordinator has heard of it.

    A member not heard since the coordinator started may have been heard just before, with the longest timeout.
    """
    member_soft = transition.soft.members.get(member_id) or transition.soft_after.members.get(member_id)
    if member_soft is None:
        started_ms = max(transition.soft.started_ms, transition.soft_after.started_ms)
        # The instant from which members may be judged was set with the longest timeout at the start. A timeout that was
        # declared later has not reached a member that was not heard since.
        counted_ms = transition.soft.judge_from_ms - transition.soft.started_ms
        longest_ms = transition.before.longest_session_ms
        return started_ms + (min(counted_ms, longest_ms) if counted_ms > 0 else longest_ms)
    since = [timeout for epoch, timeout in member_soft.timeouts if epoch >= member_soft.echoed]
    return member_soft.heard_ms + max(since, default=transition.before.longest_session_ms)


def _check_assignment(transition: Transition, ledger: Ledger, record: r.AssignmentChanged) -> Iterator[Violation]:
    member_id = record.member_id
    member = ledger.member(member_id)
    if member is None:
        yield Violation("L2", "an assignment for an id that is not a member", None, member_id)
        return
    if record.epoch != member.epoch + 1:
        detail = f"epoch {record.epoch} follows {member.epoch}; each change of an assignment adds one"
        yield Violation("L2", detail, None, member_id)
    if record.revoked or record.demoted:
        new = [task for task in record.granted if task not in record.demoted and _is_more(ledger, record, task)]
        if new:
            yield Violation("L1", f"gives a task up and grants {new[0]} in one epoch", new[0], member_id)
    yield from _check_grants(transition, ledger, record)


def _is_more(ledger: Ledger, record: r.AssignmentChanged, task_id: TaskId) -> bool:
    """Say whether the entry lets the member hold a task that it did not hold, or run one that it did not run."""
    held = ledger.grant(record.member_id, task_id)
    return held is None or (record.granted[task_id].role is ACTIVE and held.role is not ACTIVE)


def _check_grants(transition: Transition, ledger: Ledger, record: r.AssignmentChanged) -> Iterator[Violation]:
    before, member_id, now_ms = transition.before, record.member_id, transition.now_ms
    floor = max(before.tokens_from, transition.after.tokens_from)
    is_kept_out = _is_kept_out(transition, member_id)
    for task_id, grant in record.granted.items():
        if grant.epoch != record.epoch:
            yield Violation("L2", "an entry announced under another epoch than its assignment", task_id, member_id)
        if grant.role is not ACTIVE:
            continue
        task, owner, unreleased = ledger.rights(task_id)
        if owner is not None:
            yield Violation("L1", f"granted while {owner} holds the grant", task_id, member_id)
        if unreleased and (others := unreleased.keys() - {member_id}):
            yield Violation("L1", f"granted while {', '.join(sorted(others))} may still run it", task_id, member_id)
        highest = floor if task is None else max(floor, task.token)
        if grant.token <= highest:
            yield Violation("L1", f"token {grant.token} is not above {highest}", task_id, member_id)
        if now_ms < before.grants_from_ms:
            yield Violation("L3", f"granted at {now_ms}, before {before.grants_from_ms}", task_id, member_id)
        if is_kept_out:
            yield Violation("L8", "granted to a run of an instance that is kept out", task_id, member_id)


def _is_kept_out(transition: Transition, member_id: MemberId) -> bool:
    """Say whether an operator kept the member's instance out, before and after, since before the member joined."""
    member = transition.before.members.get(member_id)
    if member is None or member.instance_id is None:
        return False
    entries = [group.kept_out.get(member.instance_id) for group in (transition.before, transition.after)]
    return all(entry is not None and entry.since_ms < member.joined_ms for entry in entries)


def _check_release(transition: Transition, ledger: Ledger, record: r.TaskReleased) -> Iterator[Violation]:
    task_id, member_id = record.task, record.member_id
    revocation = ledger.revocation(member_id, task_id)
    unreleased = ledger.unreleased_of(task_id)
    if any(
        isinstance(item, StreamsRebalance) and not _runs(_process(transition, ledger, item, member_id), task_id)
        for item in transition.inputs or ()
    ):
        return
    free_at = unreleased.get(member_id)
    if free_at is not None:
        if free_at > transition.now_ms and not _is_vouched_dead(transition, ledger, member_id):
            detail = f"released at {transition.now_ms}; its lease runs until {free_at}"
            yield Violation("L1", detail, task_id, member_id)
    elif (member_id in unreleased or revocation is not None) and transition.inputs is not None:
        is_confirmed = revocation is not None and any(
            _confirms(item, member_id, task_id, revocation.epoch) for item in transition.inputs
        )
        if not is_confirmed:
            yield Violation("L1", "released without a confirmation", task_id, member_id)


def _confirms(item: object, member_id: MemberId, task_id: TaskId, epoch: int) -> bool:
    if (
        not isinstance(item, Heartbeat)
        or item.member_id != member_id
        or item.tasks is None
        or item.member_epoch < epoch
    ):
        return False
    report = item.tasks.get(task_id)
    return report is None or report.role != ACTIVE


def _process(
    transition: Transition, ledger: Ledger, item: StreamsRebalance, member_id: MemberId
) -> StreamsProcess | None:
    member = ledger.member(member_id) or transition.before.members.get(member_id)
    named = [] if member is None else [process for process in item.processes if process.id == member.instance_id]
    return named[0] if named else None


def _runs(process: StreamsProcess | None, task_id: TaskId) -> bool:
    """Say whether a process is reported to run a task. Its other copies go with the rebalance that revokes them."""
    report = process.tasks.get(task_id) if process is not None else None
    return report is not None and report.role == ACTIVE


def _is_given_by_kafka(item: StreamsRebalance, process: StreamsProcess | None, task_id: TaskId) -> bool:
    """Say whether Kafka's own assignor, which is followed, gives a task that no process runs to this process."""
    is_free = not any(_runs(other, task_id) for other in item.processes)
    return (
        is_free and item.other is not None and process is not None and task_id in item.other.actives.get(process.id, ())
    )


def _is_vouched_dead(transition: Transition, ledger: Ledger, member_id: MemberId) -> bool:
    """Say whether the sender of an input vouches that the member no longer runs anything."""
    # It may have joined by this very decision.
    known = (
        ledger.member(member_id) or transition.before.members.get(member_id) or transition.before.gone.get(member_id)
    )
    return transition.inputs is None or any(_vouches(item, member_id, known) for item in transition.inputs)


def _vouches(item: Input, member_id: MemberId, known: Member | GoneMember | None) -> bool:
    match item:
        case Eviction(member_id=named, dead=dead):
            return named == member_id and dead
        case Leave(member_id=named):
            return named == member_id
        case Join(replaces=replaces, takeover=takeover, instance_id=instance_id):
            if replaces == member_id:
                return True
            return takeover and instance_id is not None and known is not None and known.instance_id == instance_id
        case StreamsRebalance(processes=processes):
            return isinstance(known, Member) and all(process.id != known.instance_id for process in processes)
        case _:
            return False


def _check_waiver(ledger: Ledger, task_id: TaskId, member_id: MemberId) -> Iterator[Violation]:
    member = ledger.member(member_id)
    if member is None or not member.suspected or member.on_lease_lost is not OnLeaseLost.CONTINUE:
        yield Violation("L1", "its release is waived, but it is not suspected with fenced outputs", task_id, member_id)


def _check_suspicion(transition: Transition, ledger: Ledger, member_id: MemberId) -> Iterator[Violation]:
    member = ledger.member(member_id)
    if member is None or member.on_lease_lost is not OnLeaseLost.CONTINUE:
        yield Violation("L1", "suspected, but its outputs are not fenced", None, member_id)
        return
    if transition.now_ms < transition.soft.judge_from_ms:
        yield Violation("L3", "suspected before the coordinator may judge members", None, member_id)
        return
    broken = transition.soft.of(member_id).poll_broken_ms
    wait = transition.before.config.suspect_timeout_ms
    if not wait or broken is None or transition.now_ms < broken + wait:
        yield Violation("L1", f"suspected without {wait} ms of silence after a broken poll", None, member_id)


def _check_departure(transition: Transition, ledger: Ledger, record: r.MemberGone) -> Iterator[Violation]:
    member_id = record.member_id
    member = ledger.member(member_id)
    if member is None:
        yield Violation("L2", "an id that is not a member is gone", None, member_id)
        return
    if member.away_until_ms is not None:
        if transition.now_ms < member.away_until_ms and record.cause is Cause.GRACE_OVER:
            yield Violation("L5", "its place is given up within its grace", None, member_id)
        return
    floor_ms = lease_floor_ms(transition, member_id)
    if record.lease_end_ms < floor_ms and not _is_vouched_dead(transition, ledger, member_id):
        detail = f"its tasks are free at {record.lease_end_ms}; its lease runs until {floor_ms}"
        yield Violation("L1", detail, None, member_id)
    if reason := _why_not_gone(transition, ledger, member, record):
        yield Violation("L5", f"{record.cause}: {reason}", None, member_id)


def _why_not_gone(transition: Transition, ledger: Ledger, member: Member, record: r.MemberGone) -> str:
    """Return what is missing for a running member to be gone for this cause; "" if nothing is."""
    member_id = record.member_id
    match record.cause:
        case Cause.EXPIRED:
            if transition.now_ms < max(transition.soft.judge_from_ms, transition.soft_after.judge_from_ms):
                return "the coordinator may not judge members yet"
            return "" if transition.now_ms >= lease_floor_ms(transition, member_id) else "its lease is not over"
        case Cause.FENCED:
            since = [revocation.since_ms for revocation in member.revoking.values()]
            wait = transition.before.config.rebalance_timeout_ms
            return "" if since and transition.now_ms >= min(since) + wait else "it confirmed every revocation in time"
        case Cause.GRACE_OVER | Cause.RESTARTED:
            return "it was not away"
        case Cause.EVICTED:
            is_evicted = transition.inputs is None or any(
                isinstance(item, Eviction | GroupDeletion) for item in transition.inputs
            )
            return "" if is_evicted else "no operator evicted it"
        case Cause.LEFT | Cause.REPLACED | Cause.TAKEN_OVER:
            return "" if _is_vouched_dead(transition, ledger, member_id) else "no input vouches that it has stopped"
        case _ as never:
            assert_never(never)


def _check_away(transition: Transition, ledger: Ledger, member_id: MemberId) -> Iterator[Violation]:
    if not _is_vouched_dead(transition, ledger, member_id):
        yield Violation("L1", "its tasks are free, but it did not report that it stopped them", None, member_id)


def _check_deletion(transition: Transition, record: r.GroupDeleted) -> Iterator[Violation]:
    """Check that nothing is granted under the name before the last lease of a deleted group is over.

    No lease runs in a group of Kafka Streams.
    """
    if transition.before.config.kafka_streams:
        return
    leases = [
        lease_floor_ms(transition, member_id)
        for member_id, member in transition.before.members.items()
        if member.away_until_ms is None and (member.assignment or member.revoking)
    ]
    end_ms, from_ms = max([*leases, *_ends_awaited(transition.before)], default=0), transition.after.grants_from_ms
    if from_ms < end_ms:
        yield Violation("L1", f"grants from {from_ms}; leases run until {end_ms} (record: {record.lease_end_ms})")


def _check_adoption(transition: Transition, ledger: Ledger, record: r.TasksAdopted) -> Iterator[Violation]:
    member_id = record.member_id
    for item in transition.inputs or ():
        if isinstance(item, StreamsRebalance):
            yield from _check_adoption_from_kafka(transition, ledger, record, item)
            return
    for task_id, token in sorted(record.tokens.items()):
        others = _others_with(ledger, task_id, member_id)
        # An owner keeps its own token, even if other members still have to release the task under an older one.
        if others and ledger.owner(task_id) != member_id and token <= transition.before.tasks[task_id].token:
            yield Violation("L3", f"taken from {others[0]} under the token {token} that it had", task_id, member_id)
        for other in others:
            if _reports_running(transition, ledger, other, task_id):
                yield Violation("L3", f"taken from {other}, which reports running it", task_id, member_id)
    if ledger.member(member_id) is None:
        yield Violation("L3", "tasks of an id that is not a member are adopted", None, member_id)
    held_from_ms = transition.now_ms + transition.before.config.session_timeout_ms
    if transition.after.grants_from_ms < held_from_ms and transition.now_ms >= transition.before.grants_from_ms:
        yield Violation("L3", "tasks are adopted while others may be granted them", None, member_id)


def _check_adoption_from_kafka(
    transition: Transition, ledger: Ledger, record: r.TasksAdopted, item: StreamsRebalance
) -> Iterator[Violation]:
    """Check what Kafka assigned by itself: the task is reported to run there, with its own token, and nowhere else."""
    for task_id, token in sorted(record.tokens.items()):
        process = _process(transition, ledger, item, record.member_id)
        if not _runs(process, task_id) and not _is_given_by_kafka(item, process, task_id):
            yield Violation("L1", "adopted, but no process reports running it", task_id, record.member_id)
        for other in _others_with(ledger, task_id, record.member_id):
            if _runs(_process(transition, ledger, item, other), task_id):
                yield Violation("L1", f"taken from {other}, which is reported to run it", task_id, record.member_id)
        known = transition.before.tasks.get(task_id)
        if known is not None and token <= known.token:
            yield Violation("L1", f"adopted under the token {token}, which was given", task_id)


def _others_with(ledger: Ledger, task_id: TaskId, member_id: MemberId) -> list[MemberId]:
    """Return the other members that may be running a task, by id."""
    may_run = {ledger.owner(task_id), *ledger.unreleased_of(task_id)}
    return sorted(other for other in may_run if other not in (None, member_id))


def _reports_running(transition: Transition, ledger: Ledger, member_id: MemberId, task_id: TaskId) -> bool:
    """Say whether a live member's last report before this batch, at an epoch of the log, was that it runs the task."""
    known, member = transition.soft.members.get(member_id), ledger.member(member_id)
    if known is None or member is None or transition.inputs is None:
        return False
    # A heartbeat in this same batch may say otherwise.
    if any(isinstance(item, Heartbeat) and item.member_id == member_id for item in transition.inputs):
        return False
    measured = known.reports.get(task_id)
    return (
        measured is not None
        and measured.report.role == "active"
        and known.echoed <= member.epoch
        and transition.now_ms < lease_floor_ms(transition, member_id)
    )


def _open_after(group: Group, instant_ms: int) -> bool:
    """Whether something waits for the end of a lease that is later than an instant, which may be 0: not known."""
    return instant_ms == 0 or max((group.grants_from_ms, *_ends_awaited(group))) > instant_ms


def _ends_awaited(group: Group) -> list[int]:
    """Return the ends of leases of members that may still be running a task."""
    unreleased = [entry for task in group.tasks.values() for entry in task.handover.unreleased]
    return [entry.free_at_ms for entry in unreleased if entry.free_at_ms is not None]


def check_start(transition: Transition) -> Iterator[Violation]:
    """Yield what is judged or granted too early after a start or a recovery (L3)."""
    before = transition.before
    starts = [item for item in transition.inputs or () if isinstance(item, Started)]
    is_set_back = any(isinstance(record, r.GrantsHeld) and record.set_back_ms for record in transition.records)
    has_clock_moved = is_set_back or any(_open_after(before, item.ran_until_ms) for item in starts if item.clock_moved)
    if is_set_back and not starts:
        yield Violation("L1", "instants are set back without a start")
    is_recovery = any(isinstance(item, StoreRecovered) for item in transition.inputs or ())
    if not starts and not is_recovery:
        return
    calm = transition.now_ms + before.longest_session_ms
    if starts and transition.soft_after.judge_from_ms < calm:
        yield Violation("L3", f"judges from {transition.soft_after.judge_from_ms}, before {calm}")
    is_held = (is_recovery and before.declared) or (has_clock_moved and before.version > 0)
    if is_held and transition.after.grants_from_ms < calm:
        yield Violation("L3", f"grants from {transition.after.grants_from_ms}, before {calm}")
    for record in transition.records:
        member = before.members.get(record.member_id) if isinstance(record, r.MemberGone) else None
        if member is not None and member.away_until_ms is None:
            yield Violation("L3", "gone by a start alone", None, member.id)
