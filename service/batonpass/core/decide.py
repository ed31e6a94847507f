"""``decide`` turns state, inputs and the time into records, replies, a wake-up time and reasons.

This file is the protocol's table of contents. ``HANDLERS`` names the file that handles each input. Then, once for
all inputs together: ``retarget`` places what is due, ``step`` takes the group one step towards its target
(``handover``, ``copies``, ``budget``, ``reconcile``), ``probing`` sets the next probe, ``answers`` makes the
replies, and ``wakeups`` says when to look again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Never, cast

from batonpass.core import streams
from batonpass.core.arrivals import commands, liveness, membership, recovery, reports
from batonpass.core.arrivals.answers import Taken, answer, drain_progress, refusal
from batonpass.core.arrivals.kept_out import run_named
from batonpass.core.arrivals.report_bounds import invalid_numbers
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.probing import probe_sooner, schedule_probe
from batonpass.core.handover.step import take_step
from batonpass.core.handover.turns import give_way
from batonpass.core.state import inputs as i
from batonpass.core.state import records as r
from batonpass.core.state.errors import InvalidRequest, ProtocolError, StaleMemberEpoch, UnknownGroup
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import Group, Member
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import NoChange, Reason
from batonpass.core.state.replies import Done, DrainProgress, Reply
from batonpass.core.state.soft import Soft
from batonpass.core.target.load import balance_by_load
from batonpass.core.target.reach import is_to_rest
from batonpass.core.target.retarget import place_now
from batonpass.core.wakeups import next_wake_ms
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

    records: tuple[r.Record, ...]
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
    outcomes, is_news, concerned = _apply_all(draft, inputs)
    if is_news:
        _advance_group(draft, inputs, concerned)
    for item, outcome in zip(inputs, outcomes, strict=True):
        if isinstance(item, i.Heartbeat) and isinstance(outcome, Taken) and outcome.is_estimated:
            probe_sooner(draft, item.member_id)
    replies = tuple([_reply(draft, item, outcome) for item, outcome in zip(inputs, outcomes, strict=True)])
    wake_ms = next_wake_ms(draft, (group, soft), inputs)
    if wake_ms != draft.soft.wake_ms:
        draft.soft = draft.soft._replace(wake_ms=wake_ms)
    return Decision(tuple(draft.records), draft.group, draft.soft, replies, wake_ms, tuple(draft.reasons))


def _apply_all(draft: DecisionDraft, inputs: Sequence[i.Input]) -> tuple[list[Reply], bool, set[TaskId] | None]:
    """Apply every input. Return the outcome of each, whether any is news, and of which tasks (None: all).

    A handler raises its refusal. That is its outcome: what it has recorded by then stands.
    """
    outcomes: list[Reply] = []
    is_news = is_about_all = False
    concerned = set[TaskId]()
    for item in inputs:
        before, known = draft.soft, len(draft.records)
        try:
            outcome = _handle(draft, item)
        except ProtocolError as refused:
            outcome = refused.with_traceback(None)
        outcomes.append(outcome)
        sender = item.member_id if isinstance(item, _OF_A_MEMBER) else None
        member = draft.group.members.get(sender) if sender is not None else None
        is_back = member is not None and liveness.notice_return(draft, before, member)
        if is_back or len(draft.records) > known or (isinstance(outcome, Taken) and outcome.is_news):
            is_news, is_about_all = True, is_about_all or member is None or isinstance(item, i.PollOpened)
            concerned.update(_tasks_of(draft, before, member) if member is not None else ())
    return outcomes, is_news, None if is_about_all else concerned


def _handle(draft: DecisionDraft, item: i.Input) -> Reply:
    if not draft.group.declared and isinstance(item, _FOR_A_GROUP):
        raise UnknownGroup(f"no group {draft.group.id!r} is declared")
    is_streams = draft.group.declared and draft.group.config.kafka_streams
    if not is_streams or not isinstance(item, i.Tick | i.Join | i.Heartbeat | i.Leave):
        handle = cast("Callable[[DecisionDraft, i.Input], Reply]", HANDLERS[type(item)])
        return handle(draft, item)
    # A Kafka Streams group changes by rebalances only (``streams``).
    if isinstance(item, i.Tick):
        return Done()
    message = (
        f"the members of group {draft.group.id!r} are those of a Kafka Streams application; Kafka says who they are"
    )
    raise InvalidRequest(message, errors=[("path.group", message)])


_OF_A_MEMBER: Final = i.Join | i.Heartbeat | i.PollOpened
_FOR_A_GROUP: Final = i.PauseRequest | i.ResumeRequest | i.ProbeRequest | i.PinRequest | i.ReleaseRequest
HANDLERS: Final[Mapping[type[i.Input], Callable[[DecisionDraft, Never], Reply]]] = {
    i.Heartbeat: reports.heartbeat,
    i.Tick: liveness.pass_time,
    i.Join: membership.join,
    i.Leave: membership.leave,
    i.PollBroken: liveness.poll_broken,
    i.PollOpened: liveness.poll_opened,
    i.DrainRequest: membership.drain,
    i.DrainReversal: membership.undrain,
    i.Eviction: membership.evict,
    i.EndOffsets: reports.end_offsets,
    i.Started: liveness.started,
    i.StoreRecovered: recovery.store_recovered,
    i.StreamsRebalance: streams.rebalance,
    i.GroupDeclaration: commands.declare,
    i.GroupDeletion: commands.delete,
    i.PartitionCounts: commands.partition_counts,
    i.PauseRequest: commands.pause,
    i.ResumeRequest: commands.resume,
    i.PinRequest: commands.pin,
    i.ReleaseRequest: commands.release,
    i.TrustRequest: commands.trust,
    i.ProbeRequest: commands.probe,
    i.RefusedRebalance: streams.refuse,
}
"""What takes each input in. A handler says of what it does not record whether it is news (``Taken``)."""


def _tasks_of(draft: DecisionDraft, before: Soft, member: Member) -> set[TaskId]:
    """Return the tasks that a member's message may bring news of: what it has, had or reports."""
    tasks = {*member.assignment, *member.revoking}
    return tasks.union(before.of(member.id).reports, draft.soft.of(member.id).reports)


def _advance_group(draft: DecisionDraft, inputs: Sequence[i.Input], concerned: set[TaskId] | None) -> None:
    """Take the group as far as it can go now, and schedule the next probe."""
    group = draft.group
    if not group.declared or group.config.kafka_streams:
        return
    generation = group.generation
    is_tick = any(isinstance(item, i.Tick) for item in inputs)
    is_probe_due = group.next_probe_ms is not None and group.next_probe_ms <= draft.now_ms
    is_probe = is_tick and group.placement_due_ms is None and is_probe_due
    if _is_due(draft) or is_probe or any(isinstance(item, i.ProbeRequest) for item in inputs):
        # Placement goes first: the step below moves towards the target that it sets.
        place_now(draft)
    elif draft.soft.target_is_provisional and group.placement_due_ms is None and is_to_rest(draft.view()):
        # The target had to respect a temporary condition. Place anew before the group rests on it, and before copies
        # are dropped for it.
        place_now(draft)
    balance_by_load(draft)
    take_step(draft, concerned, explains_all=concerned is None or draft.group.generation != generation)
    if is_tick:
        liveness.note_blocked_drains(draft)
        give_way(draft)
    schedule_probe(draft)
    if not draft.records:
        draft.explain(NoChange.UNCHANGED)


def _is_due(draft: DecisionDraft) -> bool:
    """Say whether a placement is due.

    If it is set for later than any delay allows, the clock has gone back since, and the placement is due now.
    """
    group = draft.group
    if group.placement_due_ms is None:
        return False
    longest_ms = max(group.config.initial_rebalance_delay_ms, group.config.rebalance_batch_ms)
    return not draft.now_ms < group.placement_due_ms <= draft.now_ms + longest_ms


def _reply(draft: DecisionDraft, item: i.Input, outcome: Reply) -> Reply:
    """Return the reply to an input, now that the whole decision stands."""
    if isinstance(outcome, ProtocolError) and not isinstance(outcome, StaleMemberEpoch):
        return outcome
    if isinstance(item, i.Join | i.Heartbeat):
        return _answer(draft, item, outcome)
    if isinstance(item, i.DrainRequest) and not isinstance(outcome, DrainProgress):
        member = run_named(draft.group, item)
        return refusal(draft.group, item.member_id) if member is None else drain_progress(draft.group, member)
    return Done() if isinstance(outcome, Taken) else outcome


def _answer(draft: DecisionDraft, item: i.Join | i.Heartbeat, outcome: Reply) -> Reply:
    member = draft.group.present_member(item.member_id)
    if member is None:
        # A later input removed the member, or the step did.
        return refusal(draft.group, item.member_id)
    if isinstance(outcome, StaleMemberEpoch):
        return StaleMemberEpoch(outcome.detail, answer=answer(draft.group, draft.soft, member, -1))
    reports.note_answered_timeout(draft, member)
    extra = tuple(
        [("unknown-field", f"{name} is not known to this coordinator and was ignored") for name in item.unknown_fields]
    )
    extra += invalid_numbers(item.invalid_numbers)
    if not isinstance(outcome, Taken):  # It was ``Late``.
        return answer(draft.group, draft.soft, member, -1, extra)
    extra += outcome.ignored
    if isinstance(item, i.Join):
        return answer(draft.group, draft.soft, member, -1, extra)._replace(created=True)
    return answer(draft.group, draft.soft, member, _epoch_to_answer(item, member), extra)


def _epoch_to_answer(item: i.Heartbeat, member: Member) -> int:
    """Return the epoch that the member has seen.

    Return -1 if the member runs a task outside its assignment, so that it gets the whole assignment again.
    """
    tasks, assignment = item.tasks or {}, member.assignment.plain()
    is_astray = any(report.role == "active" for task_id, report in tasks.items() if task_id not in assignment)
    return -1 if is_astray else item.member_epoch
