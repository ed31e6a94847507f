"""When to look again: a deadline while something is still to come, none at rest.

Whatever can be known at once is acted upon at once: joins, leaves, commands, confirmations, and the heartbeat that
says that a warmup has caught up. The timer is the safety net for what nobody reports. It belongs to the group and
survives a restart of the coordinator, unlike Kafka's, which lives on one member (D11, D12, D21).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from batonpass.core.ids import MemberId
from batonpass.core.lag import catch_up_ms
from batonpass.core.model import Member, Role
from batonpass.core.reasons import Quiet
from batonpass.core.records import ProbeScheduled
from batonpass.core.soft import Rest
from batonpass.core.view import View
from batonpass.core.work import Work

_JITTER_SHARE = 10
"""Up to a tenth of the interval is added, so that groups that began together do not go on together."""


def is_at_rest(view: View) -> bool:
    """Say whether every task is where its target says, with every copy caught up and nothing due.

    Nothing is passed over while a task is unsettled. Else the cost is a look at the members of whom there is news since
    the last look, and at the copies of those that are not known to be level.
    """
    return _is_settled(view) and not _look_at_members(view).behind


def _is_settled(view: View) -> bool:
    group = view.group
    return not group.unsettled and group.due_ms is None and group.declared


class _Look(NamedTuple):
    """What a look at the members found: who is behind, who is level, and who is and has yet to say a word."""

    behind: list[MemberId]
    level: list[Member]
    unheard: list[MemberId]


def _look_at_members(view: View) -> _Look:
    """Return what there is to say of the members that are not known to be level.

    The pass has no early end: what is noted must not depend on the order of members.
    """
    found = _Look([], [], [])
    for member in _to_look_at(view):
        if view.is_noted_level(member):
            continue
        if not _is_level(view, member):
            found.behind.append(member.id)
        elif member.id in view.heard:
            found.level.append(member)
        else:
            found.unheard.append(member.id)
    return found


def _to_look_at(view: View) -> Iterable[Member]:
    """Return every member that need not be as level as it was at the last look; without one, everybody."""
    rest, members, doubtful = view.soft.rest, view.group.members, view.soft.members.marked()
    if rest is None or doubtful is None or rest.revision != view.group.revision:
        view.expect(len(members))
        return view.members.values()
    ids = {*rest.doubtful, *doubtful, *members.changed_since(rest.members)}
    found = (members.get(one) for one in sorted(ids))
    return [member for member in found if member is not None]


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
    found = _look_at_members(view)
    heard, group = work.soft.members, view.group
    noted = {one.id: replace(heard[one.id], level_at=(one.epoch, group.revision)) for one in found.level}
    rest = Rest(group.members, group.revision, tuple(sorted([*found.behind, *found.unheard])))
    work.soft = replace(work.soft, members=heard.updated(noted), rest=rest)
    return not found.behind


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
    for task_id in view.group.open_tasks():
        task = view.group.tasks[task_id]
        for member_id in task.warmups:
            soon = catch_up_ms(view.copy(task, member_id))
            if soon is not None:
                delay_ms = min(delay_ms, max(soon, config.heartbeat_interval_ms))
    return delay_ms
