"""How long a member's lease runs, as the coordinator counts it (protocol 7.5)."""

from __future__ import annotations

from batonpass.core.state.model import Group, Member
from batonpass.core.state.soft import Soft


def heard_since_ms(soft: Soft, member: Member) -> int:
    """Return when a member was heard last, as far as this coordinator was there to hear it.

    What came before its start, or before it stood still, is no silence of the member's.
    """
    member_soft = soft.members.get(member.id)
    return max(member.joined_ms if member_soft is None else member_soft.heard_ms, soft.listens_since_ms)


def is_overdue(group: Group, soft: Soft, now_ms: int, member: Member) -> bool:
    """Say whether a member has missed a heartbeat, and may be about to expire.

    That is after twice the heartbeat interval, or twice the time between its own heartbeats if they come more slowly.
    """
    return now_ms - heard_since_ms(soft, member) > max(group.overdue_ms, 2 * soft.of(member.id).rhythm_ms)


def fenced_by_ms(group: Group, soft: Soft, now_ms: int, member: Member, since_ms: int) -> tuple[int, bool]:
    """Return the instant until which a member that must give something up since ``since_ms`` can delay others.

    The second value is true if the member is silent, and its lease ends before it would be fenced for not confirming.
    """
    fenced_ms = since_ms + group.config.rebalance_timeout_ms
    is_silent = member.id in soft.members and is_overdue(group, soft, now_ms, member)
    expires = expires_ms(group, soft, now_ms, member)
    return (expires, True) if is_silent and expires < fenced_ms else (fenced_ms, False)


def expires_ms(group: Group, soft: Soft, now_ms: int, member: Member) -> int:
    """Return when a member expires if it is not heard again: with its lease, but not before members may be judged."""
    return max(lease_end_ms(group, soft, now_ms, member), soft.judge_from_ms)


def lease_end_ms(group: Group, soft: Soft, now_ms: int, member: Member) -> int:
    """Return when a member's lease ends as this coordinator counts it: from receipt, by the largest timeout.

    The present timeout always counts: an answer to a long-poll may have carried it, and such answers are not noted.
    """
    member_soft = soft.members.get(member.id)
    if member_soft is None:
        # A coordinator whose clock was ahead may have recorded the join. No member joined later than now.
        joined_ms = min(member.joined_ms, now_ms)
        return max(soft.judge_from_ms, joined_ms + group.longest_session_ms)
    answered_ms = max((timeout for _, timeout in member_soft.timeouts), default=group.longest_session_ms)
    return member_soft.heard_ms + max(answered_ms, group.config.session_timeout_ms)
