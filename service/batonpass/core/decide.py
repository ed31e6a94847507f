"""``decide``: state, an input and the time go in; records, a reply, a wake-up time and reasons come out.

The protocol's table of contents. One input is taken by the file that knows it; then, for every input alike: what is
due is placed (``retarget``), the group is taken one step towards its target (``handover``, ``copies``, ``budget``,
``reconcile``), and the next look is set (``probing``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from batonpass.core import commands, liveness, membership, recovery, reports
from batonpass.core import inputs as i
from batonpass.core.answers import answer, why_drain_is_blocked
from batonpass.core.errors import ProtocolError, UnknownGroup
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import ActiveState, Group
from batonpass.core.policy import Policy
from batonpass.core.probing import bring_forward, reschedule
from batonpass.core.reach import has_limits, is_quiet
from batonpass.core.reasons import Quiet, Reason
from batonpass.core.records import Record
from batonpass.core.replies import Answer, Done, DrainProgress, Reply
from batonpass.core.retarget import place_now
from batonpass.core.soft import Soft
from batonpass.core.steady import answer_to_repeated
from batonpass.core.step import advance
from batonpass.core.work import Work


@dataclass(frozen=True, slots=True)
class Decision:
    """The consequences of one input.

    Attributes:
        records: the facts to persist, all or none, before anything else happens (L2).
        after: the group that they lead to; the very group that came in when there are none.
        soft: the soft state afterwards.
        reply: what the caller is told once the records are persisted.
        wake_at_ms: when a tick is due at the latest; None: never. A tick too early is harmless.
        reasons: why what moved moved, why what is held back is held back, and why a look changed nothing.
    """

    records: tuple[Record, ...]
    after: Group
    soft: Soft
    reply: Reply
    wake_at_ms: int | None
    reasons: tuple[Reason, ...]


def decide(group: Group, soft: Soft, item: i.Input, now_ms: int, policy: Policy) -> Decision:
    """Decide on one input. Pure: the same arguments give the same decision (L10), and none of them is changed."""
    if isinstance(item, i.Heartbeat):
        repeated = answer_to_repeated(group, soft, item, now_ms, policy)
        if repeated is not None:
            return Decision((), group, repeated[0], repeated[1], soft.wake_ms, ())
    work = Work(group, soft, now_ms, policy)
    liveness.notice_own_silence(work)
    reply = _take(work, item)
    if work.touched:
        _go_on(work, item, _news(work, soft, item))
    if work.has_estimate and isinstance(item, i.Heartbeat):
        bring_forward(work, item.member_id)
    if isinstance(item, (i.Tick, i.Started)):
        liveness.find_wake(work)
    reply = _final_reply(work, item, reply)
    if work.wake_ms != work.soft.wake_ms:
        work.soft = replace(work.soft, wake_ms=work.wake_ms)
    return Decision(tuple(work.records), work.group, work.soft, reply, work.wake_ms, tuple(work.reasons))


def _take(work: Work, item: i.Input) -> Reply:
    match item:
        case i.Heartbeat():
            return reports.heartbeat(work, item)
        case i.Tick():
            liveness.pass_time(work)
            return Done()
        case i.Join():
            return membership.join(work, item)
        case i.Leave():
            return membership.leave(work, item)
        case i.PollBroken():
            return liveness.poll_broken(work, item)
        case i.PollOpened():
            return liveness.poll_opened(work, item)
        case i.DrainRequest():
            return membership.drain(work, item)
        case i.DrainReversal():
            return membership.undrain(work, item)
        case i.Eviction():
            return membership.evict(work, item)
        case i.EndOffsets():
            return reports.end_offsets(work, item)
        case i.Started():
            return liveness.started(work, item)
        case i.StoreRecovered():
            return recovery.store_recovered(work, item)
        case _:
            return _command(work, item)


_Command = (
    i.GroupDeclaration
    | i.GroupDeletion
    | i.PartitionCounts
    | i.ProbeRequest
    | i.PauseRequest
    | i.ResumeRequest
    | i.PinRequest
    | i.ReleaseRequest
)


def _command(work: Work, item: _Command) -> Reply:
    match item:
        case i.GroupDeclaration():
            return commands.declare(work, item)
        case i.GroupDeletion():
            return commands.delete(work, item)
        case i.PartitionCounts():
            return commands.partition_counts(work, item)
        case i.PauseRequest():
            return commands.pause(work, item)
        case i.ResumeRequest():
            return commands.resume(work)
        case i.PinRequest():
            return commands.pin(work, item)
        case i.ReleaseRequest():
            return commands.release(work, item)
        case i.ProbeRequest():
            if not work.group.declared:
                return UnknownGroup(f"no group {work.group.id!r} is declared")
            work.touched = True
            return Done()
        case _ as never:
            assert_never(never)


def _news(work: Work, before: Soft, item: i.Input) -> set[TaskId] | None:
    """Return the tasks of which a member's word may bring news: what it has, had or reports. None: of any task."""
    member = work.group.members.get(item.member_id) if isinstance(item, (i.Join, i.Heartbeat)) else None
    if member is None:
        return None
    named = {*member.picture, *member.revoking}
    for heard in (before.members.get(member.id), work.heard(member.id)):
        named.update(heard.reports if heard is not None else ())
    return named


def _go_on(work: Work, item: i.Input, news: set[TaskId] | None) -> None:
    """Take the group as far as it can go now, and set the next look."""
    group = work.group
    if not group.declared:
        return
    generation = group.generation
    is_due = _is_due(work)
    is_look = isinstance(item, i.Tick) and group.due_ms is None and _probe_is_due(work)
    if is_due or is_look or isinstance(item, i.ProbeRequest):
        # First where, then how: a step towards a target that is about to change would have to be taken back.
        place_now(work)
    elif work.soft.bound_target and group.due_ms is None and _is_to_rest(group):
        # What was bound for a while is placed anew before the group rests on it, and before copies are dropped for it.
        place_now(work)
    advance(work, news, tells_all=news is None or work.group.generation != generation)
    if isinstance(item, i.Tick):
        liveness.end_drains(work)
    reschedule(work)
    if not work.records:
        work.explain(Quiet.UNCHANGED)


def _is_to_rest(group: Group) -> bool:
    """Say whether all that is left to come are copies, or the group has run out of room and nothing else goes on."""
    return _only_copies_are_left(group) or (is_quiet(group) and has_limits(group))


def _only_copies_are_left(group: Group) -> bool:
    """Say whether every task runs where its target says."""
    waiting = (group.tasks[task_id] for task_id in group.unsettled)
    return all(task.owner == task.target and task.state is ActiveState.RUNNING for task in waiting)


def _is_due(work: Work) -> bool:
    """Say whether a placement is due; one set for later than any delay allows was set before the clock went back."""
    group = work.group
    if group.due_ms is None:
        return False
    longest_ms = max(group.config.initial_rebalance_delay_ms, group.config.rebalance_batch_ms)
    return not work.now_ms < group.due_ms <= work.now_ms + longest_ms


def _probe_is_due(work: Work) -> bool:
    due_ms = work.group.next_probe_ms
    return due_ms is not None and due_ms <= work.now_ms


def _final_reply(work: Work, item: i.Input, reply: Reply) -> Reply:
    """Make the answers that show the member's picture: they are due only now that the whole decision stands."""
    if isinstance(reply, DrainProgress) and isinstance(item, i.DrainRequest):
        draining = work.group.members[item.member_id]
        remaining = work.remaining(draining)
        why = why_drain_is_blocked(work.group, draining)
        return DrainProgress(remaining, tuple((task, why) for task in remaining) if why else ())
    if not isinstance(item, (i.Join, i.Heartbeat)) or isinstance(reply, ProtocolError):
        return reply
    member = work.group.members[item.member_id]
    reports.note_answered(work, member)
    extra = tuple(
        ("unknown-field", f"{name} is not known to this coordinator and was ignored") for name in item.unknown_fields
    )
    if isinstance(reply, Answer):
        # Late, doubled, or a join whose reply was lost: nothing was taken from it, what was not understood is named.
        return replace(reply, status=(*reply.status, *extra)) if extra else reply
    extra += _unknown_tasks(work, item)
    if isinstance(item, i.Join):
        return replace(answer(work.group, work.soft, member, -1, extra), created=True)
    return answer(work.group, work.soft, member, _seen(work, item, member.id), extra)


def _unknown_tasks(work: Work, item: i.Join | i.Heartbeat) -> tuple[tuple[str, str], ...]:
    rank = work.group.table.rank
    unknown = (task for task in (item.tasks or {}) if task not in rank)
    return tuple(("unknown-task", f"{task} is not a task of this group") for task in unknown)


def _seen(work: Work, item: i.Heartbeat, member_id: MemberId) -> int:
    """Return the epoch that the member has seen.

    It is -1 where the member runs what is not in its picture: it had better look again.
    """
    picture = work.group.members[member_id].picture
    for task, said in (item.tasks or {}).items():
        if said.role == "active" and task not in picture:
            return -1
    return item.member_epoch
