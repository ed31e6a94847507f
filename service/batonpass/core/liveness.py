"""What only time brings: leases that run out, deadlines, and the guards against acting on our own silence.

A tick is a question, never an order: what is due is looked up again, so a tick too early or too often changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.inputs import PollBroken, PollOpened, Started
from batonpass.core.lag import Readiness
from batonpass.core.model import Cause, Drain, Member, OnLeaseLost, Role
from batonpass.core.reasons import Held
from batonpass.core.records import (
    DrainStarted,
    GoneForgotten,
    MemberGone,
    MemberSuspected,
    Record,
    Resumed,
    StormBegan,
    SuspicionCleared,
    TaskReleased,
    WarmupStalled,
)
from batonpass.core.replies import Done, Reply
from batonpass.core.reports import park
from batonpass.core.work import Work


def started(work: Work, _item: Started) -> Reply:
    """Judge nobody for one (the largest) session timeout: the silence until now was the coordinator's own (L3, L5)."""
    judge_from_ms = work.now_ms + work.group.longest_session_ms
    work.soft = replace(work.soft, started_ms=work.now_ms, judge_from_ms=judge_from_ms)
    work.wake_ms = None
    work.touched = True
    find_wake(work)
    return Done()


def notice_own_silence(work: Work) -> None:
    """Start judging afresh when this very look comes much later than it was due: it was us who were not there (L5)."""
    due_ms = work.soft.wake_ms
    if due_ms is not None and work.now_ms - due_ms > work.policy.coordinator_lease_ms:
        judge_from_ms = work.now_ms + work.group.longest_session_ms
        work.soft = replace(work.soft, judge_from_ms=judge_from_ms)
        work.wake(judge_from_ms)


def poll_broken(work: Work, item: PollBroken) -> Reply:
    """Note that a member's long-poll broke off; unless it speaks, it is suspected after ``suspect_timeout_ms``."""
    member = work.group.members.get(item.member_id)
    heard = work.heard(item.member_id)
    timeout_ms = work.group.config.suspect_timeout_ms
    if member is None or heard is None or timeout_ms == 0 or member.on_lease_lost is not OnLeaseLost.CONTINUE:
        return Done()
    work.set_heard(member.id, replace(heard, poll_broken_ms=work.now_ms))
    work.wake(work.now_ms + timeout_ms)
    return Done()


def poll_opened(work: Work, item: PollOpened) -> Reply:
    """Drop a suspicion: the member made a request."""
    heard = work.heard(item.member_id)
    member = work.group.members.get(item.member_id)
    if heard is not None and heard.poll_broken_ms is not None:
        work.set_heard(item.member_id, replace(heard, poll_broken_ms=None))
    if member is not None and member.suspected:
        work.record(SuspicionCleared(member.id))
        work.schedule("suspicion-cleared")
    return Done()


def pass_time(work: Work) -> None:
    """Do whatever is due by now, in the order in which one thing may spare another."""
    group, now_ms = work.group, work.now_ms
    _drop_departed(work)
    if group.pause is not None and group.pause.expires_ms is not None and group.pause.expires_ms <= now_ms:
        work.record(Resumed())
        work.schedule("pause-over")
    _set_clock_back(work)
    _expire(work)
    _suspect(work)
    _end_grace(work)
    _fence_slow(work)
    _end_claims(work)
    _find_stalls(work)
    _forget(work)
    work.touched = True


def _drop_departed(work: Work) -> None:
    """Forget what was heard of members that are gone.

    It is dropped here, and not by the decision that let them go: were its records refused, they would still be members.
    """
    departed = {member_id: None for member_id in work.soft.members if member_id not in work.group.members}
    if departed:
        work.soft = replace(work.soft, members=work.soft.members.updated(departed))


def _set_clock_back(work: Work) -> None:
    """Count leases from now where the clock has gone back behind the last word of a member."""
    late = {
        member_id: replace(heard, heard_ms=work.now_ms)
        for member_id, heard in work.soft.members.items()
        if heard.heard_ms > work.now_ms
    }
    if late:
        work.soft = replace(work.soft, members=work.soft.members.updated(late))
    latest_ms = work.now_ms + work.group.longest_session_ms
    if work.soft.judge_from_ms > latest_ms:
        work.soft = replace(work.soft, judge_from_ms=latest_ms)
    if work.soft.started_ms > work.now_ms:
        work.soft = replace(work.soft, started_ms=work.now_ms)


def _expire(work: Work) -> None:
    if work.now_ms < work.soft.judge_from_ms:
        return
    now_ms = work.now_ms
    overdue = [
        member_id
        for member_id in sorted(work.group.members)
        if work.group.members[member_id].away_until_ms is None
        and work.lease_end_ms(work.group.members[member_id]) <= now_ms
    ]
    if not overdue:
        return
    ran: list[TaskId] = []
    for member_id in overdue:
        picture = work.group.members[member_id].picture
        ran.extend(task for task, grant in picture.items() if grant.role is Role.ACTIVE)
        work.record(MemberGone(member_id, Cause.EXPIRED, at_ms=now_ms, lease_end_ms=now_ms))
        work.explain("expired", to=member_id)
    _guard_against_storm(work)
    park(work, sorted(ran))
    work.schedule("expiry")


def _guard_against_storm(work: Work) -> None:
    """Stop balance moves and cold takeovers when too large a share of the group vanished within a session timeout."""
    group = work.group
    recent = len(group.losses)
    size = len(group.members) + recent
    if group.storm_since_ms is None and recent > group.config.max_lost_share * size:
        work.record(StormBegan(work.now_ms))
        work.explain(Held.STORM, detail=f"{recent} of {size} members vanished within a session timeout")


def _suspect(work: Work) -> None:
    group, now_ms = work.group, work.now_ms
    if group.storm_since_ms is not None or now_ms < work.soft.judge_from_ms:
        return
    for member_id in sorted(work.soft.members):
        heard = work.soft.members[member_id]
        member = group.members.get(member_id)
        if heard.poll_broken_ms is None or member is None or member.suspected or member.away_until_ms is not None:
            continue
        if now_ms - heard.poll_broken_ms >= group.config.suspect_timeout_ms:
            work.record(MemberSuspected(member_id))
            work.explain("suspected", to=member_id)


def _end_grace(work: Work) -> None:
    for member_id in sorted(work.group.members):
        member = work.group.members[member_id]
        if member.away_until_ms is not None and member.away_until_ms <= work.now_ms:
            work.record(MemberGone(member_id, Cause.GRACE_OVER, at_ms=work.now_ms, lease_end_ms=work.now_ms))
            work.schedule("grace-over")


def _fence_slow(work: Work) -> None:
    """Fence members that did not confirm a revocation in time; what they run is free when their lease is over."""
    timeout_ms = work.group.config.rebalance_timeout_ms
    if work.now_ms < work.soft.judge_from_ms:
        return
    for member_id in sorted(work.group.members):
        member = work.group.members[member_id]
        if not any(work.now_ms - one.since_ms >= timeout_ms for one in member.revoking.values()):
            continue
        end_ms = max(work.now_ms, work.lease_end_ms(member))
        work.record(MemberGone(member_id, Cause.FENCED, at_ms=work.now_ms, lease_end_ms=end_ms))
        work.explain("fenced", to=member_id, detail="a revocation was not confirmed within rebalance_timeout_ms")
        work.schedule("fenced")


def _end_claims(work: Work) -> None:
    over: list[Record] = []
    for task_id in sorted(work.group.open_tasks()):
        over.extend(
            TaskReleased(task_id, claim.member_id, at_ms=work.now_ms)
            for claim in work.group.tasks[task_id].claims
            if claim.free_at_ms is not None and claim.free_at_ms <= work.now_ms
        )
    if over:
        work.record(*over)


def _find_stalls(work: Work) -> None:
    """Free the slot of every warmup that came no closer for the stall timeout. An unreadable one is not judged."""
    view = work.view()
    timeout_ms = view.config.warmup_stall_timeout_ms
    stalled: list[Record] = []
    for task_id in sorted(view.group.open_tasks()):
        task = view.group.tasks[task_id]
        for member_id in task.warmups:
            copy = view.copy(task, member_id)
            if copy.is_caught_up or copy.readiness is Readiness.UNKNOWN or view.is_stalled(task, member_id):
                continue
            if work.now_ms - _progress_ms(work, task_id, view.group.members[member_id]) >= timeout_ms:
                stalled.append(WarmupStalled(task_id, member_id, work.now_ms + 2 * timeout_ms))
                work.explain(Held.STALLED, task_id, member_id)
    if stalled:
        work.record(*stalled)
        work.schedule("warmup-stalled")


def _progress_ms(work: Work, task_id: TaskId, member: Member) -> int:
    heard = work.heard(member.id)
    report = heard.reports.get(task_id) if heard is not None else None
    grant = member.picture[task_id]
    return max(grant.since_ms, work.soft.started_ms, report.progress_ms if report is not None else 0)


def end_drains(work: Work) -> None:
    """Note, once, of every drain whose time is over that tasks are left: those that stay where they are are blocked.

    It goes on all the same, and whoever joins later may still take them.
    """
    over = [
        (member.id, member, member.drain, why)
        for member in work.group.members.values()
        if member.drain is not None and not member.drain.blocked and (why := _time_over(member.drain, work.now_ms))
    ]
    for _, member, drain, why in sorted(over, key=itemgetter(0)):
        left = sum(grant.role is Role.ACTIVE for grant in member.picture.values())
        if left:
            work.record(DrainStarted(member.id, drain.since_ms, drain.deadline_ms, drain.gives_up_ms, why))
            work.explain("drain-blocked", to=member.id, detail=why, tasks=left)


def _time_over(drain: Drain, now_ms: int) -> str:
    if drain.deadline_ms is not None and drain.deadline_ms <= now_ms:
        return "drain-deadline"
    return "drain-timeout" if drain.gives_up_ms <= now_ms else ""


def _forget(work: Work) -> None:
    oldest = work.now_ms - work.policy.gone_retention_ms
    old: tuple[MemberId, ...] = tuple(sorted(one for one, gone in work.group.gone.items() if gone.at_ms < oldest))
    if old:
        work.record(GoneForgotten(old))


def find_wake(work: Work) -> None:
    """Find the first instant at which something is due, by looking at everything. Only a tick does this."""
    group, soft = work.group, work.soft
    at: list[int] = []
    pause_over = group.pause.expires_ms if group.pause is not None else None
    at.extend(
        instant for instant in (group.due_ms, group.next_probe_ms, pause_over, work.retry_ms) if instant is not None
    )
    if group.grants_from_ms > work.now_ms:
        at.append(group.grants_from_ms)
    for member_id, member in group.members.items():
        at.extend(_member_instants(work, member_id, member))
    stall_ms = group.config.warmup_stall_timeout_ms
    for task_id in group.open_tasks():
        task = group.tasks[task_id]
        at.extend(claim.free_at_ms for claim in task.claims if claim.free_at_ms is not None)
        at.extend(stall.until_ms for stall in task.stalls)
        at.extend(_progress_ms(work, task_id, group.members[member_id]) + stall_ms for member_id in task.warmups)
    work.wake_ms = min((instant for instant in at if instant > work.now_ms), default=None)
    if soft.judge_from_ms > work.now_ms and group.members:
        work.wake(soft.judge_from_ms)


def _member_instants(work: Work, member_id: MemberId, member: Member) -> list[int]:
    if member.away_until_ms is not None:
        return [member.away_until_ms]
    config = work.group.config
    at = [max(work.lease_end_ms(member), work.soft.judge_from_ms)]
    heard = work.heard(member_id)
    if heard is not None and heard.poll_broken_ms is not None:
        at.append(heard.poll_broken_ms + config.suspect_timeout_ms)
    if member.drain is not None:
        at.append(member.drain.gives_up_ms)
        if member.drain.deadline_ms is not None:
            at.append(member.drain.deadline_ms)
    at.extend(one.since_ms + config.rebalance_timeout_ms for one in member.revoking.values())
    return at
