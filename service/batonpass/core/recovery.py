"""After the store lost commits (L3): an asynchronous failover, or a restore from a backup.

The proof is a member that reports an epoch or a fencing token above ours. It is never fenced for that. Epochs and
tokens rise above the highest reported, what members run is adopted as theirs, nothing is granted for one session
timeout (who else runs something will have said so by then), and an alarm is raised.

A member's word is no licence to take tasks, though: what another live member, to whom the log gives a task, says that
it runs is not adopted away from it, and before that member has spoken (or its lease is over) nothing is decided.
"""

from __future__ import annotations

from dataclasses import replace

from batonpass.core.decision_draft import DecisionDraft
from batonpass.core.errors import InvalidRequest
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.inputs import Heartbeat, StoreRecovered
from batonpass.core.model import Group, Member, Role
from batonpass.core.records import EpochsRaised, GrantsHeld, Record, TasksAdopted
from batonpass.core.replies import Done, Reply

TOKEN_LEAP = 1 << 20
"""How far new fencing tokens leap: more grants of one task than this cannot have been lost with the commits."""

PLAUSIBLE_LEAP_MAX = 1 << 40
"""How far an epoch or a token that a member reports may lie above ours and still be believed."""

LOST_COMMITS = "store-lost-commits"


def knows_more_than_the_log(group: Group, member: Member, item: Heartbeat) -> bool:
    """Say whether the heartbeat knows more than the log: an epoch that was never given, or a token that was not."""
    return item.member_epoch > member.epoch or any(
        report.role == Role.ACTIVE
        and report.token is not None
        and task_id in group.tasks
        and report.token > max(group.tasks[task_id].token, group.tokens_from)
        for task_id, report in (item.tasks or {}).items()
    )


def refuse_implausible(group: Group, member: Member, item: Heartbeat) -> InvalidRequest | None:
    """Return the refusal of an epoch or a token so far above ours that no store can have lost so much.

    To believe it would leave no room above it: the numbers are 64 bits wide wherever they are kept.
    """
    if item.member_epoch > member.epoch + PLAUSIBLE_LEAP_MAX:
        reason = f"{item.member_epoch} is more than {PLAUSIBLE_LEAP_MAX} above the epoch that is known, {member.epoch}"
        return InvalidRequest(f"member_epoch: {reason}", errors=[("member_epoch", reason)])
    for task_id, report in (item.tasks or {}).items():
        task = group.tasks.get(task_id)
        known = max(task.token if task is not None else 0, group.tokens_from)
        if report.token is not None and report.token > known + PLAUSIBLE_LEAP_MAX:
            reason = f"{report.token} is more than {PLAUSIBLE_LEAP_MAX} above the highest token that is known, {known}"
            path = f"tasks.{task_id}.fencing_token"
            return InvalidRequest(f"{path}: {reason}", errors=[(path, reason)])
    return None


def recover(draft: DecisionDraft, member: Member, item: Heartbeat) -> None:
    """Answer a member that is ahead of us: raise epochs and tokens, hold grants, ask for full reports.

    Its epoch becomes exactly the one that it reports. The assignment that the log has of it is of the past, and it must
    not be told that; the next assignment is made of its own full report (``adopt``).
    """
    begun = draft.group.recovering_until_ms > draft.now_ms
    _hold_grants(
        draft, f"member {member.id} reports epoch {item.member_epoch} or a token above ours; the log has {member.epoch}"
    )
    reported = max((report.token or 0 for report in (item.tasks or {}).values()), default=0)
    tokens_from = max(reported, draft.group.tokens_from if begun else _tokens_from(draft.group))
    draft.record(EpochsRaised({member.id: item.member_epoch}, tokens_from))
    if not begun:
        _ask_for_full_reports(draft)


def _hold_grants(draft: DecisionDraft, why: str) -> None:
    until_ms = draft.now_ms + draft.group.longest_session_ms
    if until_ms > draft.group.recovering_until_ms:
        draft.record(GrantsHeld(until_ms, why, adopting=True))
    draft.explain(LOST_COMMITS, detail=why)
    draft.wake(until_ms)


def _tokens_from(group: Group) -> int:
    highest = max((group.tasks[task_id].token for task_id in group.tasks), default=0)
    return max(highest, group.tokens_from) + TOKEN_LEAP


def _ask_for_full_reports(draft: DecisionDraft) -> None:
    """Forget every report of a copy: it is unknown until its member has spoken again.

    What a member said that it runs, at an epoch that the log knows, still counts.
    """
    members = draft.group.members
    member_softs = {}
    for member_id, one in draft.soft.members.items():
        is_known = member_id in members and one.echoed <= members[member_id].epoch
        running = {task: said for task, said in one.reports.items() if is_known and said.report.role == "active"}
        member_softs[member_id] = replace(one, full=False, reports=running)
    draft.soft = replace(draft.soft, members=draft.soft.members.updated(member_softs))
    draft.needs_step = True


def waits_for_others(draft: DecisionDraft, member: Member, item: Heartbeat) -> bool:
    """Say whether the member says that it runs something of which others, who may run it too, have yet to speak.

    Until they have, or their leases are over, the member is told no assignment and goes on as it is; nothing is granted
    meanwhile.
    """
    silent = {
        other: until_ms
        for task in _claimed(member, item)
        for other, until_ms in _others_with(draft, member, task).items()
        if not _has_spoken(draft, other)
    }
    if not silent:
        return False
    until_ms = max(silent.values()) + draft.group.longest_session_ms
    if until_ms > draft.group.recovering_until_ms:
        draft.record(GrantsHeld(until_ms, f"what {', '.join(sorted(silent))} run is not known yet", adopting=True))
        draft.wake(until_ms)
    return True


def _claimed(member: Member, item: Heartbeat) -> list[TaskId]:
    """Return what the member says that it runs and has not been told to give up since the epoch that it echoes."""
    reports = item.tasks or {}
    told = {task for task, one in member.revoking.items() if one.active and one.epoch > item.member_epoch}
    return [task for task in sorted(reports) if reports[task].role == "active" and task not in told]


def _others_with(draft: DecisionDraft, member: Member, task_id: TaskId) -> dict[MemberId, int]:
    """Return who else may be running the task by the log, and until when unless it is heard of again.

    They are its owner and those that have not released it, the fenced among them until their leases are over.
    """
    task, members = draft.group.tasks[task_id], draft.group.members
    until = {entry.member_id: entry.free_at_ms or 0 for entry in task.unreleased}
    for holder in (task.owner, *until):
        if holder is not None and holder in members:
            other = members[holder]
            until[holder] = draft.lease_end_ms(other) if other.away_until_ms is None else 0
    return {other: at_ms for other, at_ms in until.items() if other != member.id and at_ms > draft.now_ms}


def _has_spoken(draft: DecisionDraft, other: MemberId) -> bool:
    known = draft.member_soft(other)
    return known is not None and (known.full or bool(known.reports))


def _is_running(draft: DecisionDraft, other: MemberId, task_id: TaskId) -> bool:
    known = draft.member_soft(other)
    said = known.reports.get(task_id) if known is not None else None
    return said is not None and said.report.role == "active"


def adopt(draft: DecisionDraft, member: Member, item: Heartbeat) -> None:
    """Make what the member says that it runs its own, and take from it what it has given up since.

    What somebody else of the log says that it runs stays as the log has it. Where the log gives the task to somebody
    else and the reported token is none that it has lost (those are newer than its last), the token is a new one, so
    that whoever had the old one is fenced.
    """
    reports = item.tasks or {}
    tasks = draft.group.tasks
    running = []
    for task in _claimed(member, item):
        others = [one for one in _others_with(draft, member, task) if _is_running(draft, one, task)]
        if others:
            detail = f"member {member.id} says that it runs it, and so does {others[0]}, who has it in the log"
            draft.explain(LOST_COMMITS, task, detail=detail)
        else:
            running.append(task)
    has = {task: grant for task, grant in member.assignment.items() if grant.role is Role.ACTIVE}
    # What it has been granted and has not heard of yet, it cannot be running: that grant stands.
    dropped = sorted(task for task, grant in has.items() if grant.epoch <= item.member_epoch and task not in running)
    member_soft = draft.member_soft(member.id)
    if not dropped and all(task in has for task in running) and member_soft is not None and member_soft.full:
        return
    tokens: dict[TaskId, int] = {}
    for task_id in running:
        reported, last = reports[task_id].token or 0, tasks[task_id].token
        if task_id not in has and reported <= last:
            tokens[task_id] = max(last, draft.group.tokens_from) + 1
        else:
            tokens[task_id] = max(reported, last)
    records: list[Record] = [TasksAdopted(member.id, tokens, tuple(dropped), draft.now_ms)]
    epoch = max(member.epoch, item.member_epoch) + 1
    records.insert(0, EpochsRaised({member.id: epoch}, draft.group.tokens_from))
    draft.record(*records)
    draft.needs_step = True


def notice_lost_join(draft: DecisionDraft, item: Heartbeat) -> None:
    """Take the actives of a member that nobody knows as a sign that its join was lost with the store's last commits."""
    group = draft.group
    never_seen = group.declared and item.member_id not in group.gone and item.member_id not in group.members
    runs_something = any(report.role == "active" for report in (item.tasks or {}).values())
    if never_seen and item.member_epoch > 0 and runs_something and group.recovering_until_ms <= draft.now_ms:
        _hold_grants(
            draft,
            f"member {item.member_id}, of whom the log knows nothing, reports active tasks at epoch {item.member_epoch}",
        )
        draft.record(EpochsRaised({}, _tokens_from(group)))
        _ask_for_full_reports(draft)


def store_recovered(draft: DecisionDraft, _item: StoreRecovered) -> Reply:
    """Take an operator's word that commits were lost."""
    _hold_grants(draft, "an operator says that the store lost commits")
    draft.record(EpochsRaised({}, _tokens_from(draft.group)))
    _ask_for_full_reports(draft)
    return Done()
