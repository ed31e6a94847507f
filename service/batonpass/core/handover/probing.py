"""When to look again: a deadline while there is something left to do, none at rest.

The group acts at once on what an input reports: joins, leaves, commands, confirmations, and the heartbeat that
reports a warmup caught up. The timer is the safety net for what no input reports. It belongs to the group and survives
a restart of the coordinator, unlike Kafka's, which lives on one member (D11, D12 and D21 in
``docs/decisions/0003-kafka-defects.md``).
"""

from bisect import bisect
from collections.abc import Iterable, Iterator

from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.lag import copy_as_reported, level_in_ms
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId
from batonpass.core.state.model import ACTIVE, WARMUP, Group, Member, Task
from batonpass.core.state.reasons import NoChange

_JITTER_SHARE = 10
"""Up to a tenth of the interval is added, so that groups that began together are not all probed together."""


def is_at_rest(view: View) -> bool:
    """Say whether every task is at its target, every copy is caught up, nothing is due, and no placement failed."""
    return not _has_work(view.group) and _restless(view) is None


def _has_work(group: Group) -> bool:
    return bool(group.unsettled or group.placement_due_ms is not None or group.placement_failed or not group.declared)


def _restless(view: View) -> MemberId | None:
    """Return a member that is on its way back, gives something up or has a copy that is behind; None if there is none.

    The one that was found last is looked at first, and then those after it, so that heartbeats of a large group do not
    pass over all copies again and again.
    """
    members, last = view.group.members, view.soft.restless
    if last is not None and last in members and _is_restless(view, members[last]):
        return last
    ids = sorted(members)
    start = bisect(ids, last or "")
    return next((one for one in (*ids[start:], *ids[:start]) if _is_restless(view, members[one])), None)


def _is_restless(view: View, member: Member) -> bool:
    return member.away_until_ms is not None or bool(member.revoking) or any(copies_behind(view, member))


def copies_behind(view: View, member: Member) -> Iterator[Task]:
    """Yield the tasks of which a member has a copy that is not caught up."""
    copies = [task_id for task_id, grant in member.assignment.items() if grant.role is not ACTIVE]
    group, known = view.group, view.member_softs.get(member.id)
    return (task for task in view.tasks.pick(copies) if not copy_as_reported(group, known, task, member).is_caught_up)


def schedule_probe(draft: DecisionDraft) -> None:
    """Schedule the next probe: none at rest, else after the interval, or when the first warmup should be level.

    A probe that is already scheduled for later than now stays, so that a busy group does not postpone it for ever.
    """
    group, now_ms = draft.group, draft.now_ms
    view = draft.view()
    is_due = group.next_probe_ms is not None and group.next_probe_ms <= now_ms
    # No record is written only because a standby falls behind and catches up: the timer is set beside other records.
    may_write = bool(draft.records or group.unsettled or is_due)
    if group.next_probe_ms is None and not may_write and not draft.reasons:
        return  # Nothing can come of a look at every copy, and each heartbeat of a large group may lead here.
    restless = None if _has_work(group) else _restless(view)
    draft.soft = draft.soft._replace(restless=restless)
    if not group.members or (restless is None and not _has_work(group)):
        if group.next_probe_ms is not None:
            draft.record(r.ProbeScheduled(None))
        draft.explain(NoChange.AT_REST if group.members else NoChange.NO_MEMBERS)
        return
    interval_ms = group.config.probing_rebalance_interval_ms
    is_set = group.next_probe_ms is not None and now_ms < group.next_probe_ms <= now_ms + 2 * interval_ms
    if not is_set and may_write:
        draft.record(r.ProbeScheduled(now_ms + _delay_ms(view)))


def probe_sooner(draft: DecisionDraft, member_id: MemberId) -> None:
    """Probe sooner if a member's warmups should be level in less than half of the time until the probe.

    The factor of two bounds the number of writes, however often estimates change.
    """
    now_ms, due_ms = draft.now_ms, draft.group.next_probe_ms
    member = draft.group.members.get(member_id)
    if due_ms is None or member is None:
        return
    view = draft.view()
    warming = [task_id for task_id, grant in member.assignment.items() if grant.role is WARMUP]
    soonest_ms = _soonest_ms(view, ((task, member_id) for task in view.tasks.pick(warming)), default=due_ms)
    at_ms = now_ms + max(soonest_ms, draft.group.look_again_ms)
    if 2 * (at_ms - now_ms) < due_ms - now_ms:
        draft.record(r.ProbeScheduled(at_ms))


def _delay_ms(view: View) -> int:
    """Return the delay: the interval with its jitter, or less if a warmup should be level earlier."""
    config = view.config
    interval_ms = config.probing_rebalance_interval_ms
    seed = sum(ord(letter) * (index + 1) for index, letter in enumerate(view.group.id)) + 7919 * view.group.version
    delay_ms = interval_ms + seed % max(1, interval_ms // _JITTER_SHARE)
    moving = view.tasks.pick(view.group.moving_tasks())
    soonest_ms = _soonest_ms(
        view, ((task, member_id) for task in moving for member_id in task.warmups), default=delay_ms
    )
    return min(delay_ms, max(soonest_ms, view.group.look_again_ms))


def _soonest_ms(view: View, copies: Iterable[tuple[Task, MemberId]], default: int) -> int:
    """Return in what time the first of these copies should be level; the default if that is not known of any.

    One that is caught up is not asked: the step has seen it. What holds its move ends with an input, or at an instant
    that has a wake-up of its own (``wakeups``).
    """
    found = [view.copy(task, member_id) for task, member_id in copies]
    estimates = [level_in_ms(copy) for copy in found if not copy.is_caught_up]
    return min((estimate for estimate in estimates if estimate is not None), default=default)
