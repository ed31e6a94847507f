"""What happens because time passes: leases and deadlines end. Also the guards for a coordinator that was silent itself.

A tick asks what is due; it decides nothing itself. So a tick that comes too early or too often changes nothing.
"""

import math
from dataclasses import replace

from batonpass.core.arrivals import storm
from batonpass.core.arrivals.answers import Taken
from batonpass.core.arrivals.kept_out import let_in_when_over
from batonpass.core.arrivals.membership import release
from batonpass.core.arrivals.reports import clear_suspicion, explain_distrust, park
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.turns import last_came_on
from batonpass.core.handover.view import Availability, View
from batonpass.core.state import records as r
from batonpass.core.state.failures import distrust_ends
from batonpass.core.state.inputs import PollBroken, PollOpened, Started, Tick
from batonpass.core.state.model import Cause, Drain, Group, Member, OnLeaseLost
from batonpass.core.state.reasons import Happened, Held
from batonpass.core.state.replies import Done, Reply
from batonpass.core.state.set_back import ahead_ms
from batonpass.core.state.soft import Soft
from batonpass.placement.types import Readiness


def started(draft: DecisionDraft, item: Started) -> Reply:
    """Judge no member for the largest session timeout: the coordinator was not there to hear them (L3, L5).

    After the clock has moved, a lease whose end is stored may still run although that instant is over. By then it ends.
    If it went back, so do the instants of the group. Soft state is full of instants too, and is learnt anew.
    """
    group, now_ms = draft.group, draft.now_ms
    set_back_ms = ahead_ms(group, now_ms)
    judge_from_ms = now_ms + group.longest_session_ms
    soft = Soft() if item.clock_moved or set_back_ms else draft.soft
    draft.soft = soft._replace(started_ms=now_ms, judge_from_ms=judge_from_ms, listens_since_ms=now_ms)
    may_run_on = item.clock_moved and _may_run_on(group, item.ran_until_ms) and judge_from_ms > group.grants_from_ms
    if may_run_on or set_back_ms:
        why = "the clock of the database has moved, or no coordinator was there to see that it did not"
        draft.record(r.GrantsHeld(judge_from_ms, why, set_back_ms=set_back_ms))
    return Taken(is_news=True)


def _may_run_on(group: Group, since_ms: int) -> bool:
    """Whether a lease whose end is stored may still run, if those are over that ended by an instant; 0: not known."""
    if not since_ms:
        return group.version > 0
    ends = [unreleased.free_at_ms or 0 for task in group.tasks.values() for unreleased in task.handover.unreleased]
    return max([*ends, group.grants_from_ms]) > since_ms


def notice_own_silence(draft: DecisionDraft) -> None:
    """Postpone all judgement if this decision comes much later than it was due: the coordinator was away (L5)."""
    due_ms = draft.soft.wake_ms
    if due_ms is not None and draft.now_ms - due_ms > draft.policy.coordinator_lease_ms:
        judge_from_ms = draft.now_ms + draft.group.longest_session_ms
        draft.soft = draft.soft._replace(judge_from_ms=judge_from_ms, listens_since_ms=draft.now_ms)


def notice_return(draft: DecisionDraft, before: Soft, member: Member) -> bool:
    """Say whether a member is heard again that was overdue in the soft state ``before``: some moves wait for that.

    If the present target gives it nothing new because it was not there, the group is placed anew.
    """
    was_overdue = View(draft.group, before, draft.now_ms).availability(member.id) is Availability.OVERDUE
    missing = draft.soft.placed_without
    if not was_overdue and member.id not in missing:
        return False
    if not draft.view().is_heard(member.id):
        return False
    if member.id in missing:
        draft.soft = draft.soft._replace(placed_without=missing - {member.id})
        if draft.group.placement_due_ms is None:
            draft.schedule(r.HEARD_AGAIN)
    return was_overdue


def poll_broken(draft: DecisionDraft, item: PollBroken) -> Reply:
    """Note that a member's long-poll broke. It is suspected after ``suspect_timeout_ms`` without another request."""
    member = draft.group.members.get(item.member_id)
    member_soft = draft.member_soft(item.member_id)
    timeout_ms = draft.group.config.suspect_timeout_ms
    if member is None or member_soft is None or timeout_ms == 0 or member.on_lease_lost is not OnLeaseLost.CONTINUE:
        return Done()
    draft.set_member_soft(member.id, replace(member_soft, poll_broken_ms=draft.now_ms))
    return Done()


def poll_opened(draft: DecisionDraft, item: PollOpened) -> Reply:
    """Drop a suspicion, because the member made a request."""
    member_soft = draft.member_soft(item.member_id)
    member = draft.group.members.get(item.member_id)
    if member_soft is not None and member_soft.poll_broken_ms is not None:
        draft.set_member_soft(item.member_id, replace(member_soft, poll_broken_ms=None))
    if member is not None and member.suspected:
        clear_suspicion(draft, member)
    return Done()


def pass_time(draft: DecisionDraft, _item: Tick) -> Reply:
    """Do everything that is due by now.

    The order matters, because an earlier item may make a later one unnecessary. A pause that is over holds nothing, and
    a member that has expired is neither suspected nor fenced.
    """
    _drop_departed(draft)
    end_pause_if_over(draft)
    let_in_when_over(draft)
    _expire(draft)
    storm.end_if_over(draft)
    _suspect(draft)
    _end_absences(draft)
    _fence_unconfirmed(draft)
    release(draft, lambda entry: entry.free_at_ms is not None and entry.free_at_ms <= draft.now_ms)
    find_stalls(draft)
    _end_distrust(draft)
    forget_gone(draft)
    return Taken(is_news=True)


def end_pause_if_over(draft: DecisionDraft) -> None:
    pause = draft.group.pause
    if pause is not None and pause.expires_ms is not None and pause.expires_ms <= draft.now_ms:
        draft.record(r.Resumed())
        draft.schedule("pause-over", 0)  # As `commands.resume` does.


def _drop_departed(draft: DecisionDraft) -> None:
    """Forget the soft state of members that are gone.

    The decision that removed them cannot do this: if its records are refused, they are still members.
    """
    departed = {member_id: None for member_id in draft.soft.members if member_id not in draft.group.members}
    if departed:
        draft.soft = draft.soft._replace(members=draft.soft.members.updated(departed))


def _expire(draft: DecisionDraft) -> None:
    if draft.now_ms < draft.soft.judge_from_ms:
        return
    expired = [
        member
        for _, member in sorted(draft.group.members.items())
        if member.away_until_ms is None and draft.view().lease_end_ms(member) <= draft.now_ms
    ]
    if not expired:
        return
    ran = [task_id for member in expired for task_id in (*member.actives, *member.revoking)]
    for member in expired:
        draft.explain(Happened.EXPIRED, to=member.id)
    distrusted = draft.view().distrusted
    draft.record(*(draft.gone(member.id, Cause.EXPIRED) for member in expired))
    storm.guard(draft)
    park(draft, sorted(ran))
    explain_distrust(draft, distrusted)
    draft.schedule("expiry")


def _end_distrust(draft: DecisionDraft) -> None:
    """Have the group placed anew if a member may be given tasks again since the last placement."""
    group = draft.group
    over = [at_ms for at_ms in distrust_ends(group) if group.placed_ms < at_ms <= draft.now_ms]
    if over and group.placement_due_ms is None:
        draft.schedule("member-trusted")


def _suspect(draft: DecisionDraft) -> None:
    group, now_ms = draft.group, draft.now_ms
    if group.storm_since_ms is not None or now_ms < draft.soft.judge_from_ms:
        return
    for member_id, member_soft in sorted(draft.soft.members.items()):
        member = group.members.get(member_id)
        if member_soft.poll_broken_ms is None or member is None or member.suspected or member.away_until_ms is not None:
            continue
        if now_ms - member_soft.poll_broken_ms >= group.config.suspect_timeout_ms:
            draft.record(r.MemberSuspected(member_id))
            draft.explain(Happened.SUSPECTED, to=member_id)
            if not all(map(draft.view().is_stateful, member.actives)):
                # No copy takes a task without state over, so it needs another target.
                draft.schedule("suspected")


def _end_absences(draft: DecisionDraft) -> None:
    kept = draft.view().away
    over = [
        draft.gone(member_id, Cause.GRACE_OVER)
        for member_id in sorted(draft.group.members)
        if kept.get(member_id, math.inf) <= draft.now_ms
    ]
    if over:
        draft.record(*over)
        draft.schedule("grace-over")


def _fence_unconfirmed(draft: DecisionDraft) -> None:
    """Fence members that did not confirm a revocation in time. Their tasks are free when their lease is over."""
    timeout_ms = draft.group.config.rebalance_timeout_ms
    if draft.now_ms < draft.soft.judge_from_ms:
        return
    fenced: list[r.Record] = []
    for member_id, member in sorted(draft.group.members.items()):
        if not any(draft.now_ms - revocation.since_ms >= timeout_ms for revocation in member.revoking.values()):
            continue
        end_ms = max(draft.now_ms, draft.view().lease_end_ms(member))
        fenced.append(draft.gone(member_id, Cause.FENCED, lease_end_ms=end_ms))
        draft.explain(
            Happened.FENCED, to=member_id, detail="a revocation was not confirmed within rebalance_timeout_ms"
        )
    if fenced:
        draft.record(*fenced)
        draft.schedule("fenced")


def find_stalls(draft: DecisionDraft) -> None:
    """Free the slot of every warmup without progress for the stall timeout. A copy of unknown lag is not judged."""
    view = draft.view()
    timeout_ms = view.config.warmup_stall_timeout_ms
    stalled: list[r.Record] = []
    for task in view.tasks.pick(sorted(view.group.moving_tasks())):
        for member_id in task.warmups:
            copy = view.copy(task, member_id)
            if copy.is_caught_up or copy.readiness is Readiness.UNKNOWN or view.is_stalled(task, member_id):
                continue
            if draft.now_ms - last_came_on(draft.soft, task.id, view.group.members[member_id])[1] >= timeout_ms:
                stalled.append(r.WarmupStalled(task.id, member_id, draft.now_ms + 2 * timeout_ms))
                draft.explain(Held.STALLED, task.id, member_id)
    if stalled:
        draft.record(*stalled)
        draft.schedule("warmup-stalled")


def note_blocked_drains(draft: DecisionDraft) -> None:
    """Record once for each drain whose time is over that it is blocked, if the member still has active tasks.

    The drain goes on, and members that join later may still take the tasks.
    """
    for member_id, member in sorted(draft.group.members.items()):
        drain = member.drain
        why = _drain_time_over(drain, draft.now_ms) if drain is not None and not drain.blocked else ""
        if drain is not None and why and (left := len(member.actives)):
            draft.record(r.DrainStarted(member_id, drain.since_ms, drain.deadline_ms, drain.gives_up_ms, why))
            draft.explain(Happened.DRAIN_BLOCKED, to=member_id, detail=why, tasks=left)


def _drain_time_over(drain: Drain, now_ms: int) -> str:
    if drain.deadline_ms is not None and drain.deadline_ms <= now_ms:
        return "drain-deadline"
    return "drain-timeout" if drain.gives_up_ms <= now_ms else ""


def forget_gone(draft: DecisionDraft) -> None:
    """Forget the ids of members that left long ago. They may be used again."""
    oldest = draft.now_ms - draft.policy.gone_retention_ms
    old = sorted(member_id for member_id, gone in draft.group.gone.items() if gone.at_ms < oldest)
    if old:
        draft.record(r.GoneForgotten(tuple(old)))
