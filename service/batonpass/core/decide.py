"""``decide`` turns state, inputs and the time into records, replies, a wake-up time and reasons.

This file is the protocol's table of contents. ``_apply`` passes each input to the file that handles it. Then, once for
all inputs together: ``retarget`` places what is due, ``step`` takes the group one step towards its target
(``handover``, ``copies``, ``budget``, ``reconcile``), ``probing`` sets the next look, and ``answers`` makes the
replies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, assert_never

from batonpass.core import streams
from batonpass.core.arrivals import commands, liveness, membership, recovery, reports
from batonpass.core.arrivals.answers import Late, Taken, answer, refusal, why_drain_is_blocked
from batonpass.core.arrivals.kept_out import run_named
from batonpass.core.arrivals.report_bounds import invalid_numbers
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.probing import probe_sooner, schedule_probe
from batonpass.core.handover.room import has_limits
from batonpass.core.handover.step import take_step
from batonpass.core.handover.turns import give_way
from batonpass.core.state import inputs as i
from batonpass.core.state.errors import InvalidRequest, ProtocolError, StaleMemberEpoch, UnknownGroup
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import ActiveState, Group, Member
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import NoChange, Reason
from batonpass.core.state.records import Record
from batonpass.core.state.replies import Done, DrainProgress, Reply
from batonpass.core.state.soft import Soft
from batonpass.core.target.reach import is_nothing_under_way
from batonpass.core.target.retarget import place_now
from batonpass.placement.flow import Solver, minimum_flow


class Decision(NamedTuple):
    """What follows from the inputs.

    Attributes:
        records: the facts to persist, all or none, before anything else happens (L2).
        after: the group that the records lead to. Without records it is the same object that came in.
        soft: the soft state afterwards.
        replies: one for each input, in the order of the inputs. They are sent once the records are persisted.
        wake_at_ms: when a tick is due at the latest. None: never. An early tick is harmless.
        reasons: why tasks moved, why others are held back, and why a look changed nothing.
    """

    records: tuple[Record, ...]
    after: Group
    soft: Soft
    replies: tuple[Reply, ...]
    wake_at_ms: int | None
    reasons: tuple[Reason, ...]


def decide(  # noqa: PLR0917 - the state, the inputs, the time, and the two things that stay the same
    group: Group,
    soft: Soft,
    inputs: Sequence[i.Input],
    now_ms: int,
    policy: Policy,
    solver: Solver = minimum_flow,
) -> Decision:
    """Decide on all inputs together, as if they came one after another at this instant.

    Pure: the same arguments give the same decision (L10), and no argument is changed. A refused input does not affect
    the others. ``solver`` may be any that gives the same flows as the default. If it raises, the target stays.
    """
    draft = DecisionDraft(group, soft, now_ms, policy, solver)
    liveness.notice_own_silence(draft)
    outcomes, concerned = _apply_all(draft, inputs)
    if draft.needs_step:
        _advance_group(draft, inputs, concerned)
    for member_id in draft.estimated:
        probe_sooner(draft, member_id)
    if draft.group.config.kafka_streams:
        draft.wake_ms = None  # Nothing is due between two rebalances.
    elif any(isinstance(item, i.Tick | i.Started) for item in inputs):
        liveness.find_wake(draft)
    replies = tuple([_reply(draft, item, outcome) for item, outcome in zip(inputs, outcomes, strict=True)])
    if draft.wake_ms != draft.soft.wake_ms:
        draft.soft = draft.soft._replace(wake_ms=draft.wake_ms)
    return Decision(tuple(draft.records), draft.group, draft.soft, replies, draft.wake_ms, tuple(draft.reasons))


def _apply_all(draft: DecisionDraft, inputs: Sequence[i.Input]) -> tuple[list[Reply], set[TaskId] | None]:
    """Apply every input. Return the outcome of each, and the tasks that they may bring news of (None: all)."""
    outcomes: list[Reply] = []
    concerned: set[TaskId] | None = set()
    was_touched = False
    for item in inputs:
        before, draft.needs_step = draft.soft, False
        outcomes.append(_apply(draft, item))
        member = (
            draft.group.members.get(item.member_id) if isinstance(item, i.Join | i.Heartbeat | i.PollOpened) else None
        )
        if member is not None:
            liveness.notice_return(draft, before, member)
        if draft.needs_step:
            was_touched = True
            more = _concerned_by(draft, before, item)
            concerned = None if concerned is None or more is None else concerned | more
    draft.needs_step = was_touched
    return outcomes, concerned


def _apply(draft: DecisionDraft, item: i.Input) -> Reply:
    if draft.group.declared and draft.group.config.kafka_streams and isinstance(item, _NOT_FOR_KAFKA_STREAMS):
        return _turn_away(draft, item)
    match item:
        case i.Heartbeat():
            return reports.heartbeat(draft, item)
        case i.Tick():
            liveness.pass_time(draft)
            return Done()
        case i.Join():
            return membership.join(draft, item)
        case i.Leave():
            return membership.leave(draft, item)
        case i.PollBroken():
            return liveness.poll_broken(draft, item)
        case i.PollOpened():
            return liveness.poll_opened(draft, item)
        case i.DrainRequest():
            return membership.drain(draft, item)
        case i.DrainReversal():
            return membership.undrain(draft, item)
        case i.Eviction():
            return membership.evict(draft, item)
        case i.EndOffsets():
            return reports.end_offsets(draft, item)
        case i.Started():
            return liveness.started(draft, item)
        case i.StoreRecovered():
            return recovery.store_recovered(draft, item)
        case i.StreamsRebalance():
            return streams.rebalance(draft, item)
        case _:
            return _command(draft, item)


_NOT_FOR_KAFKA_STREAMS = (i.Tick, i.Join, i.Heartbeat, i.Leave)


def _turn_away(draft: DecisionDraft, item: i.Input) -> Reply:
    """Refuse the calls of members, and ignore ticks: a Kafka Streams group changes by rebalances only (``streams``)."""
    if isinstance(item, i.Join | i.Heartbeat | i.Leave):
        message = (
            f"the members of group {draft.group.id!r} are those of a Kafka Streams application; Kafka says who they are"
        )
        return InvalidRequest(message, errors=[("path.group", message)])
    return Done()


_Command = (
    i.GroupDeclaration
    | i.GroupDeletion
    | i.PartitionCounts
    | i.ProbeRequest
    | i.PauseRequest
    | i.ResumeRequest
    | i.PinRequest
    | i.ReleaseRequest
    | i.TrustRequest
    | i.RefusedRebalance
)


def _command(draft: DecisionDraft, item: _Command) -> Reply:
    match item:
        case i.GroupDeclaration():
            return commands.declare(draft, item)
        case i.GroupDeletion():
            return commands.delete(draft, item)
        case i.PartitionCounts():
            return commands.partition_counts(draft, item)
        case i.PauseRequest():
            return commands.pause(draft, item)
        case i.ResumeRequest():
            return commands.resume(draft)
        case i.PinRequest():
            return commands.pin(draft, item)
        case i.ReleaseRequest():
            return commands.release(draft, item)
        case i.TrustRequest():
            return commands.trust(draft, item)
        case i.RefusedRebalance():
            return streams.refuse(draft, item)
        case i.ProbeRequest():
            if not draft.group.declared:
                return UnknownGroup(f"no group {draft.group.id!r} is declared")
            draft.needs_step = True
            return Done()
        case _ as never:
            assert_never(never)


def _concerned_by(draft: DecisionDraft, before: Soft, item: i.Input) -> set[TaskId] | None:
    """Return the tasks that an input may bring news of: what its member has, had or reports. None: all tasks."""
    member = draft.group.members.get(item.member_id) if isinstance(item, i.Join | i.Heartbeat) else None
    if member is None:
        return None
    concerned = {*member.assignment, *member.revoking}
    for known in (before.members.get(member.id), draft.member_soft(member.id)):
        concerned.update(known.reports if known is not None else ())
    return concerned


def _advance_group(draft: DecisionDraft, inputs: Sequence[i.Input], concerned: set[TaskId] | None) -> None:
    """Take the group as far as it can go now, and schedule the next look."""
    group = draft.group
    if not group.declared or group.config.kafka_streams:
        return
    generation = group.generation
    is_tick = any(isinstance(item, i.Tick) for item in inputs)
    is_look = is_tick and group.placement_due_ms is None and _probe_is_due(draft)
    if _is_due(draft) or is_look or any(isinstance(item, i.ProbeRequest) for item in inputs):
        # Placement goes first: the step below moves towards the target that it sets.
        place_now(draft)
    elif draft.soft.target_is_provisional and group.placement_due_ms is None and _is_to_rest(group):
        # The target had to respect a temporary condition. Place anew before the group rests on it, and before copies
        # are dropped for it.
        place_now(draft)
    take_step(draft, concerned, explains_all=concerned is None or draft.group.generation != generation)
    if is_tick:
        liveness.note_blocked_drains(draft)
        give_way(draft)
    schedule_probe(draft)
    if not draft.records:
        draft.explain(NoChange.UNCHANGED)


def _is_to_rest(group: Group) -> bool:
    """Say whether the group would rest now: only copies are missing, or full members block all that is left."""
    return _only_copies_are_left(group) or (is_nothing_under_way(group) and has_limits(group))


def _only_copies_are_left(group: Group) -> bool:
    """Say whether every task runs where its target says."""
    unsettled = (group.tasks[task_id] for task_id in group.unsettled)
    return all(task.owner == task.target and task.state is ActiveState.RUNNING for task in unsettled)


def _is_due(draft: DecisionDraft) -> bool:
    """Say whether a placement is due.

    If it is set for later than any delay allows, the clock has gone back since, and the placement is due now.
    """
    group = draft.group
    if group.placement_due_ms is None:
        return False
    longest_ms = max(group.config.initial_rebalance_delay_ms, group.config.rebalance_batch_ms)
    return not draft.now_ms < group.placement_due_ms <= draft.now_ms + longest_ms


def _probe_is_due(draft: DecisionDraft) -> bool:
    due_ms = draft.group.next_probe_ms
    return due_ms is not None and due_ms <= draft.now_ms


def _reply(draft: DecisionDraft, item: i.Input, outcome: Reply) -> Reply:
    """Return the reply to an input, now that the whole decision stands."""
    if isinstance(outcome, ProtocolError) and not isinstance(outcome, StaleMemberEpoch):
        return outcome
    match item:
        case i.Join() | i.Heartbeat():
            return _answer(draft, item, outcome)
        case i.DrainRequest():
            return outcome if isinstance(outcome, DrainProgress) else _drain_progress(draft, item)
        case _:
            return outcome


def _answer(draft: DecisionDraft, item: i.Join | i.Heartbeat, outcome: Reply) -> Reply:
    member = draft.group.members.get(item.member_id)
    if member is None or member.away_until_ms is not None:
        # A later input removed the member, or the step did.
        return refusal(draft.group, item.member_id)
    if isinstance(outcome, StaleMemberEpoch):
        return StaleMemberEpoch(outcome.detail, answer=answer(draft.group, draft.soft, member, -1))
    reports.note_answered_timeout(draft, member)
    extra = tuple(
        [("unknown-field", f"{name} is not known to this coordinator and was ignored") for name in item.unknown_fields]
    )
    extra += invalid_numbers(item.invalid_numbers)
    if isinstance(outcome, Late):
        return answer(draft.group, draft.soft, member, -1, extra)
    if isinstance(outcome, Taken):
        extra += outcome.ignored
    if isinstance(item, i.Join):
        return answer(draft.group, draft.soft, member, -1, extra)._replace(created=True)
    return answer(draft.group, draft.soft, member, _epoch_to_answer(item, member), extra)


def _drain_progress(draft: DecisionDraft, item: i.DrainRequest) -> Reply:
    member = run_named(draft.group, item)
    if member is None or member.away_until_ms is not None:
        return refusal(draft.group, item.member_id)
    remaining = draft.actives_left(member)
    why = why_drain_is_blocked(draft.group, member)
    return DrainProgress(remaining, tuple((task, why) for task in remaining) if why else ())


def _epoch_to_answer(item: i.Heartbeat, member: Member) -> int:
    """Return the epoch that the member has seen.

    Return -1 if the member runs a task outside its assignment, so that it gets the whole assignment again.
    """
    assignment = member.assignment.plain()
    for task, report in (item.tasks or {}).items():
        if report.role == "active" and task not in assignment:
            return -1
    return item.member_epoch
