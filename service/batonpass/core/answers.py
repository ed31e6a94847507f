"""What members are answered: the assignment, the status codes, and the errors of ids that are no longer members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from batonpass.core.errors import Fenced, FencedInstanceId, Gone, ProtocolError, UnknownGroup, UnknownMember
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import Cause, Grant, Group, Member, Role
from batonpass.core.policy import Policy
from batonpass.core.replies import Answer, Done
from batonpass.core.soft import Soft
from batonpass.core.topology import is_ready, why_not_ready

_HOW_GONE: Mapping[Cause, str] = {
    Cause.EXPIRED: "its lease ran out",
    Cause.EVICTED: "an operator evicted it",
    Cause.REPLACED: "a newer run of the same worker replaced it",
    Cause.FENCED: "it did not confirm a revocation within rebalance_timeout_ms",
}


@dataclass(frozen=True, slots=True)
class Taken(Done):
    """A member's word was taken; ``ignored`` is what its status says of what it names and the group does not have."""

    ignored: tuple[tuple[str, str], ...]


class Late(Done):
    """Nothing was taken from a member's word, which came late or doubled: it is answered with its whole assignment."""


def refusal(group: Group, member_id: MemberId) -> ProtocolError:
    """Return the error for an id that is not a member: left, fenced, taken over, or never seen."""
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


def answer(
    group: Group, soft: Soft, member: Member, known_epoch: int, extra: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """Return the answer to a member that has seen ``known_epoch``: the whole assignment, unless it has seen it."""
    member_soft = soft.members.get(member.id)
    config = group.config
    epoch = member.epoch
    if is_full_report_awaited(group, soft, member.id):
        # The log lost commits, and what it says of this member may be of the past: its own report comes first (L3).
        epoch = known_epoch = (
            known_epoch if known_epoch >= 0 else max(0, member_soft.echoed if member_soft is not None else 0)
        )
    return Answer(
        member_id=member.id,
        seq=max(0, member_soft.seq) if member_soft is not None else 0,
        member_epoch=epoch,
        generation=group.generation,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        session_timeout_ms=config.session_timeout_ms,
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        acceptable_catchup_ms=config.acceptable_catchup_ms,
        report="full" if member_soft is None or not member_soft.full else None,
        assignment=None if known_epoch == epoch else assignment_in_order(group, member),
        status=(*status(group, soft, member), *extra),
    )


def is_full_report_awaited(group: Group, soft: Soft, member_id: MemberId) -> bool:
    """Say whether the store is known to have lost commits and the member has not made its full report since."""
    member_soft = soft.members.get(member_id)
    return member_soft is not None and not member_soft.full and member_soft.heard_ms < group.recovering_until_ms


def assignment_in_order(group: Group, member: Member) -> dict[TaskId, Grant]:
    """Return what the member may hold, in the order of tasks."""
    index_of = group.table.index_of
    last = len(index_of)
    return {
        task: member.assignment[task]
        for task in sorted(member.assignment, key=lambda one: (index_of.get(one, last), one))
    }


def status(group: Group, soft: Soft, member: Member) -> tuple[tuple[str, str], ...]:
    """Return what the member should know besides its assignment, always whole."""
    found: list[tuple[str, str]] = []
    if member.drain is not None:
        found.append(_drain_status(group, member))
    if group.pause is not None:
        found.append(("group-paused", group.pause.reason or f"moves are held ({group.pause.scope.value})"))
    if not is_ready(group.topology):
        found.append(("topology-not-ready", why_not_ready(group.topology)))
    if member.topology_epoch < group.table.newest_epoch:
        found.append(
            (
                "stale-topology",
                f"this member knows topology epoch {member.topology_epoch}, tasks need {group.table.newest_epoch}",
            )
        )
    found.extend(_state_unknown(soft, member))
    return tuple(found)


def _state_unknown(soft: Soft, member: Member) -> list[tuple[str, str]]:
    """Return the copies whose positions cannot belong to the present changelog: a position alone does not say so."""
    member_soft = soft.members.get(member.id)
    doubted = (
        []
        if member_soft is None
        else [task for task, measured in member_soft.reports.items() if measured.other_incarnation]
    )
    return [
        ("state-unknown", f"the state of {task} is of another incarnation of its changelog; restore it from the start")
        for task in doubted
    ]


def _drain_status(group: Group, member: Member) -> tuple[str, str]:
    remaining = sum(grant.role is Role.ACTIVE for grant in member.assignment.values())
    waiting = sum(revocation.active for revocation in member.revoking.values())
    if not remaining + waiting:
        return ("drained", "this member has no active task left and may leave")
    blocked = why_drain_is_blocked(group, member)
    if remaining and blocked:
        return ("drain-blocked", f"{remaining} tasks {_HOW_BLOCKED[blocked]}")
    return ("draining", f"{remaining + waiting} active tasks are left")


_HOW_BLOCKED: Mapping[str, str] = {
    "no-eligible-member": "have nowhere to go: no other member can take them",
    "drain-deadline": "are left after the deadline of the drain: nobody could take them; they end with this member",
    "drain-timeout": "were not handed over within drain_timeout_ms",
}


def why_drain_is_blocked(group: Group, member: Member) -> str:
    """Return why a drain does not get on, "" while it does: nobody is left to take its tasks, or its time is over."""
    if member.drain is None:
        return ""
    others = any(
        one.drain is None and one.away_until_ms is None for one in group.members.values() if one.id != member.id
    )
    if not others:
        return "no-eligible-member"
    return member.drain.blocked


def answer_to_poll(
    group: Group, soft: Soft, member_id: MemberId, after: int, _policy: Policy
) -> Answer | ProtocolError | None:
    """Return the long-poll's answer as things stand: None means wait on.

    It is answered when the assignment is another than ``after`` says (also when ``after`` is above it: the store may
    have lost commits), and refused when the member is no longer one. It is not a heartbeat, and changes nothing.
    """
    member = group.members.get(member_id)
    if not group.declared or member is None or member.away_until_ms is not None:
        return refusal(group, member_id)
    if after == member.epoch or (after < member.epoch and is_full_report_awaited(group, soft, member_id)):
        return None
    return answer(group, soft, member, after)
