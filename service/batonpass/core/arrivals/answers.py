"""Answers to members: the assignment, the status codes, and the errors for ids that are no longer members."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from batonpass.core.state.errors import Fenced, FencedInstanceId, Gone, ProtocolError, UnknownGroup, UnknownMember
from batonpass.core.state.ids import MemberId
from batonpass.core.state.model import Cause, Group, Member
from batonpass.core.state.replies import Answer, Done, DrainProgress
from batonpass.core.state.soft import Soft
from batonpass.core.state.topology import is_ready, why_not_ready

_HOW_GONE: Mapping[Cause, str] = {
    Cause.EXPIRED: "its lease ran out",
    Cause.EVICTED: "an operator evicted it",
    Cause.REPLACED: "a newer run of the same worker replaced it",
    Cause.FENCED: "it did not confirm a revocation within rebalance_timeout_ms",
}


@dataclass(frozen=True, slots=True)
class Taken(Done):
    """The input was taken in.

    Attributes:
        ignored: a status entry for each thing in a report that the group does not have.
        is_news: something may let a task move that is not recorded. What is recorded is news in any case.
        is_estimated: the catch-up of a warmup can be estimated from now on, because its rate has become known.
    """

    ignored: tuple[tuple[str, str], ...] = ()
    is_news: bool = False
    is_estimated: bool = False


class Late(Done):
    """The message was late or a duplicate, so its report was ignored. The answer has the whole assignment."""


def refusal(group: Group, member_id: MemberId) -> ProtocolError:
    """Return the error for an id that is not a member: it left, was fenced or taken over, or is unknown."""
    if not group.declared:
        return UnknownGroup(f"no group {group.id!r} is declared; declare it with PUT /v1/groups/{group.id}")
    gone = group.gone.get(member_id)
    if gone is None:
        if member_id in group.members:
            return Gone(f"member {member_id!r} left to restart; join with a new id")
        return UnknownMember(
            f"group {group.id!r} has never seen member {member_id!r}; stop every active without committing, then join with a new id"
        )
    if gone.cause in (Cause.LEFT, Cause.RESTARTED, Cause.GRACE_OVER):
        return Gone(f"member {member_id!r} has left; join with a new id")
    if gone.cause is Cause.TAKEN_OVER:
        return FencedInstanceId(
            f"a newer run of instance {gone.instance_id!r} took over from member {member_id!r}; stop for good"
        )
    how = _HOW_GONE[gone.cause]
    return Fenced(
        f"member {member_id!r} is fenced: {how}; stop every active without committing, then join with a new id and replaces"
    )


def no_such_task(group: Group, task: str) -> str:
    """Return what to say of a name that no task of the group has."""
    names = f"; its tasks have names like {group.table.ids[0]}" if group.table.ids else ""
    return f"group {group.id} has no task {task}{names}"


def answer(
    group: Group, soft: Soft, member: Member, known_epoch: int, extra: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """Return the answer to a member that has seen ``known_epoch``, with its assignment unless that epoch is current."""
    known, config, epoch = soft.of(member.id), group.config, member.epoch
    if is_full_report_awaited(group, soft, member.id):
        # The log lost commits, so its entry for this member may be outdated. The member's full report comes first (L3).
        epoch = known_epoch = known_epoch if known_epoch >= 0 else known.echoed
    return Answer(
        member_id=member.id,
        seq=max(0, known.seq),
        member_epoch=epoch,
        generation=group.generation,
        heartbeat_interval_ms=group.heartbeat_interval_ms,
        session_timeout_ms=config.session_timeout_ms,
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        acceptable_catchup_ms=config.acceptable_catchup_ms,
        report=None if known.full else "full",
        assignment=None if known_epoch == epoch else member.assignment,
        status=(*status(group, soft, member), *extra),
        report_interval_ms=group.report_interval_ms,
        topology_epoch=member.topology_epoch,
    )


def is_full_report_awaited(group: Group, soft: Soft, member_id: MemberId) -> bool:
    """Say whether the store lost commits and the member has not sent its full report since."""
    member_soft = soft.members.get(member_id)
    return member_soft is not None and not member_soft.full and member_soft.heard_ms < group.recovering_until_ms


def status(group: Group, soft: Soft, member: Member) -> Iterator[tuple[str, str]]:
    """Yield all that the member should know besides its assignment. The list is complete in every answer."""
    if member.drain is not None:
        yield _drain_status(group, member)
    if group.pause is not None:
        yield "group-paused", group.pause.reason or f"moves are held ({group.pause.scope.value})"
    if not is_ready(group.topology):
        yield "topology-not-ready", why_not_ready(group.topology)
    epoch, newest = member.topology_epoch, group.table.newest_epoch
    if epoch < newest:
        yield "stale-topology", f"this member knows topology epoch {epoch}, tasks need {newest}"
    for task, measured in soft.of(member.id).reports.items():
        if measured.other_incarnation:
            # Members cannot see that these positions cannot belong to the present changelog.
            why = f"the state of {task} is of another incarnation of its changelog; restore it from the start"
            yield "state-unknown", why


def _drain_status(group: Group, member: Member) -> tuple[str, str]:
    remaining, left = len(member.actives), len(member.may_run)
    if not left:
        kept_out = "this instance is kept out: none of its runs gets a task until an operator lets it in"
        return ("drained", kept_out if member.gets_nothing else "this member has no active task left and may leave")
    blocked = why_drain_is_blocked(group, member)
    if remaining and blocked:
        return ("drain-blocked", f"{remaining} tasks {HOW_BLOCKED[blocked]}")
    return ("draining", f"{left} active tasks are left")


HOW_BLOCKED: Mapping[str, str] = {
    "no-eligible-member": "have nowhere to go: no other member can take them",
    "placement-failed": "have nowhere to go yet: placement found no answer, and is tried again at the next change or probe",
    "drain-deadline": "are left after the deadline of the drain: no member could take them; they end with this member",
    "drain-timeout": "were not handed over within drain_timeout_ms",
}


def drain_progress(group: Group, member: Member) -> DrainProgress:
    """Return how far the drain of a member is."""
    remaining = tuple(group.table.in_order(member.may_run))
    why = why_drain_is_blocked(group, member)
    return DrainProgress(remaining, tuple((task, why) for task in remaining) if why else (), member.drain is None)


def why_drain_is_blocked(group: Group, member: Member) -> str:
    """Return why a drain is blocked: no member can take its tasks, placement failed, or its time is over.

    Return "" if it is not blocked.
    """
    if member.drain is None:
        return ""
    others = any(
        other.drain is None and other.away_until_ms is None for other in group.members.values() if other.id != member.id
    )
    if not others:
        return "no-eligible-member"
    has_nowhere_to_go = any(group.tasks[task_id].target.owner in (None, member.id) for task_id in member.actives)
    return "placement-failed" if group.placement_failed and has_nowhere_to_go else member.drain.blocked


def answer_to_poll(group: Group, soft: Soft, member_id: MemberId, after: int) -> Answer | ProtocolError | None:
    """Return the long-poll's answer; None if the poll has to go on waiting.

    It is answered when the member's epoch differs from ``after``, and refused when the id is no longer a member. An
    ``after`` above the member's epoch is answered too: the store may have lost commits. A long-poll is no heartbeat and
    changes nothing.
    """
    member = group.present_member(member_id)
    if member is None:
        return refusal(group, member_id)
    if after == member.epoch or (after < member.epoch and is_full_report_awaited(group, soft, member_id)):
        return None
    return answer(group, soft, member, after)
