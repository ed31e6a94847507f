"""When to look again: a deadline while something is still to come, none at rest.

Whatever can be known at once is acted upon at once: joins, leaves, commands, confirmations, and the heartbeat that
says that a warmup has caught up. The timer is the safety net for what nobody reports. It belongs to the group and
survives a restart of the coordinator, unlike Kafka's, which lives on one member (D11, D12, D21).
"""

from __future__ import annotations

from dataclasses import replace

from batonpass.core.ids import MemberId
from batonpass.core.lag import catch_up_ms
from batonpass.core.model import Member, Role
from batonpass.core.reasons import Quiet
from batonpass.core.records import ProbeScheduled
from batonpass.core.view import View
from batonpass.core.work import Work

_JITTER_SHARE = 10
"""Up to a tenth of the interval is added, so that groups that began together do not go on together."""


def is_at_rest(view: View) -> bool:
    """Say whether every task is where its target says, with every copy caught up and nothing due.

    The cost is one pass over the members, and over the copies of those that are not known to be level: nothing is
    passed over while a task is unsettled.
    """
    return _is_settled(view) and _find_level(view)[0]


def _is_settled(view: View) -> bool:
    group = view.group
    return not group.unsettled and group.due_ms is None and group.declared


def _find_level(view: View) -> tuple[bool, list[Member]]:
    """Return whether every member is level, and those found so of whom it was not noted before.

    The pass has no early end: what is noted must not depend on the order of members.
    """
    view.expect(len(view.group.members))
    all_level = True
    found: list[Member] = []
    for member in view.members.values():
        if view.is_noted_level(member):
            continue
        if not _is_level(view, member):
            all_level = False
        elif member.id in view.heard:
            found.append(member)
    return all_level, found


def _is_level(view: View, member: Member) -> bool:
    """Say whether a member is here, has nothing to give up, and is caught up on every copy that it holds."""
    if member.away_until_ms is not None or member.revoking:
        return False
    tasks = view.group.tasks
    return all(
        grant.role is Role.ACTIVE or view.copy(tasks[task_id], member.id).is_caught_up
        for task_id, grant in member.picture.items()
    )


def _note_rest(work: Work) -> bool:
    """Say whether the group is at rest, and note which members were found level, so that the next look is short."""
    view = work.view()
    if not _is_settled(view):
        return False
    at_rest, found = _find_level(view)
    if found:
        heard, revision = work.soft.members, view.group.revision
        noted = {one.id: replace(heard[one.id], level_at=(one.epoch, revision)) for one in found}
        work.soft = replace(work.soft, members=heard.updated(noted))
    return at_rest


def reschedule(work: Work) -> None:
    """Set the next look: none at rest, else after the interval, or when the first warmup should have caught up.

    A look that is already set for later than now stands, so that a busy group is not looked at ever later.
    """
    group, now_ms = work.group, work.now_ms
    view = work.view()
    is_due = group.next_probe_ms is not None and group.next_probe_ms <= now_ms
    # A standby that falls behind and catches up must not write twice each time: the timer follows what is recorded.
    may_write = bool(work.records or group.unsettled or is_due)
    if not group.members or _note_rest(work):
        if group.next_probe_ms is not None:
            work.record(ProbeScheduled(None))
        work.explain(Quiet.AT_REST if group.members else Quiet.NO_MEMBERS)
        return
    interval_ms = group.config.probing_rebalance_interval_ms
    is_set = group.next_probe_ms is not None and now_ms < group.next_probe_ms <= now_ms + 2 * interval_ms
    if not is_set and may_write:
        at_ms = now_ms + _delay_ms(view)
        work.record(ProbeScheduled(at_ms))
        work.wake(at_ms)


def bring_forward(work: Work, member_id: MemberId) -> None:
    """Look sooner where the warmups of a member should have caught up in less than half of the time that is left.

    Halving bounds what is written, however often estimates change.
    """
    now_ms, due_ms = work.now_ms, work.group.next_probe_ms
    if due_ms is None:
        return
    view, member = work.view(), work.group.members[member_id]
    warming = [task_id for task_id, grant in member.picture.items() if grant.role is Role.WARMUP]
    estimates = [catch_up_ms(view.copy(work.group.tasks[task_id], member_id)) for task_id in warming]
    soonest_ms = min((estimate for estimate in estimates if estimate is not None), default=due_ms)
    at_ms = now_ms + max(soonest_ms, work.group.config.heartbeat_interval_ms)
    if 2 * (at_ms - now_ms) < due_ms - now_ms:
        work.record(ProbeScheduled(at_ms))
        work.wake(at_ms)


def _delay_ms(view: View) -> int:
    """Return how long to wait: the interval with its jitter, or less where a warmup should catch up before."""
    config = view.config
    interval_ms = config.probing_rebalance_interval_ms
    seed = sum(ord(letter) * (index + 1) for index, letter in enumerate(view.group.id)) + 7919 * view.group.version
    delay_ms = interval_ms + seed % max(1, interval_ms // _JITTER_SHARE)
    for task_id in view.group.unsettled:
        task = view.group.tasks[task_id]
        for member_id in task.warmups:
            soon = catch_up_ms(view.copy(task, member_id))
            if soon is not None:
                delay_ms = min(delay_ms, max(soon, config.heartbeat_interval_ms))
    return delay_ms
