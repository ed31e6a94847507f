"""A storm: too many members vanish at once, so nothing moves for balance, and nothing is restored from nothing.

Usually the cause is the network and not the members, and those that are left could not take all load. It ends when so
many have joined that the others are no more than ``max_lost_share``; when an operator says so; or when it is plain that
the others do not come back: nobody has been lost for as long as a place is kept for an instance that restarts, and
those that are here are heard.
"""

from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.state import records as r
from batonpass.core.state.reasons import Held


def guard(draft: DecisionDraft) -> None:
    """Declare a storm if too large a share of the group vanished within a session timeout."""
    group = draft.group
    recent = len(group.losses)
    size = len(group.members) + recent
    if group.storm_since_ms is None and recent > group.config.max_lost_share * size:
        draft.record(r.StormBegan(draft.now_ms))
        draft.explain(Held.STORM, detail=f"{recent} of {size} members vanished within a session timeout")


def end_if_back(draft: DecisionDraft) -> None:
    """End a storm after a join, if enough members are back, or the time for them to come back is over."""
    group = draft.group
    since = group.storm_since_ms
    if since is None:
        return
    back = sum(member.joined_ms >= since for member in group.members.values())
    lost = len(group.losses)
    size = len(group.members) - back + lost
    if lost - back <= group.config.max_lost_share * size:
        _end(draft)
    else:
        end_if_over(draft)


def end_if_over(draft: DecisionDraft) -> None:
    """End a storm once nobody has been lost for a while, and every member that is here is heard."""
    over_ms = draft.group.storm_over_ms
    if over_ms is None or draft.now_ms < max(over_ms, draft.soft.judge_from_ms):
        return
    view = draft.view()
    here = [one.id for one in view.members.values() if one.away_until_ms is None and not one.suspected]
    if here and all(map(view.is_heard, here)):
        _end(draft)


def _end(draft: DecisionDraft) -> None:
    draft.record(r.StormEnded())
    draft.schedule("storm-ended")


def next_look_ms(draft: DecisionDraft) -> int | None:
    """Return when to look whether a storm is over. From its end on, that is until nobody is overdue."""
    over_ms = draft.group.storm_over_ms
    if over_ms is None or not draft.group.members:
        return None
    return over_ms if over_ms > draft.now_ms else draft.now_ms + draft.group.heartbeat_interval_ms
