"""How long balance waits before it moves tasks to a new member, while members keep coming and going.

An autoscaler that cannot make up its mind starts members and stops them again. Each time, tasks would be restored on
the new members and then again on the old ones. So where this has happened repeatedly, balance copies nothing to a new
member before that has stayed longer than those did: a quarter longer than the longest of their stays.

A *short stay* ended with a leave (or a restart from which nobody came back) within ``newcomer_wait_ms`` of the join,
and in the last six times that long. It has happened repeatedly once two short stays came one after the other: members
that come and go together count once. A run that takes the place of another one (a restart, a replacement, a takeover of
its instance) goes on with its stay. So rolling deploys, crashes, and a scale-out that is taken back once hold nothing.
"""

from collections.abc import Iterable
from typing import Final

from batonpass.core.state.ids import MemberId
from batonpass.core.state.model import Cause, Group, Member

REMEMBERED: Final = 6
"""For how many times ``newcomer_wait_ms`` a short stay counts."""
_REPEATEDLY: Final = 2
_IN_GOOD_ORDER: Final = (Cause.LEFT, Cause.GRACE_OVER)


def stay_began_ms(member: Member) -> int:
    """Return since when the member has its place in the group: its join, or that of the run that had it before."""
    return member.joined_ms if member.place_since_ms is None else member.place_since_ms


def new_until_ms(group: Group, now_ms: int, members: Iterable[Member]) -> dict[MemberId, int]:
    """Return which of these members count as new, and until when. Their age is worked out for all of them together."""
    began = {member.id: stay_began_ms(member) for member in members}
    young = {member_id: at_ms for member_id, at_ms in began.items() if at_ms > now_ms - group.config.newcomer_wait_ms}
    # Another coordinator, whose clock is a little ahead, may have let a member in: that alone does not make it new.
    age_ms = newcomer_age_ms(group, now_ms) if young else 0
    return {member_id: at_ms + age_ms for member_id, at_ms in young.items() if age_ms and at_ms + age_ms > now_ms}


def newcomer_age_ms(group: Group, now_ms: int) -> int:
    """Return the age up to which a member counts as new, and gets nothing for balance. 0: no member does."""
    most_ms = group.config.newcomer_wait_ms
    if most_ms == 0 or group.config.kafka_streams:
        # Of a Kafka Streams application, a closed instance is not told from one that restarts.
        return 0
    oldest_ms = now_ms - REMEMBERED * most_ms
    stays = sorted(
        (gone.at_ms, gone.since_ms)
        for gone in group.gone.values()
        if gone.cause in _IN_GOOD_ORDER
        and gone.since_ms is not None
        and oldest_ms < gone.at_ms <= now_ms
        and gone.at_ms - gone.since_ms <= most_ms
    )
    in_turn, last_left_ms = 0, 0
    for left_ms, since_ms in stays:
        if since_ms >= last_left_ms:
            in_turn, last_left_ms = in_turn + 1, left_ms
    if in_turn < _REPEATEDLY:
        return 0
    longest_ms = max(left_ms - since_ms for left_ms, since_ms in stays)
    return min(most_ms, longest_ms + longest_ms // 4)
