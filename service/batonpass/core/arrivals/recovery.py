"""What happens after the store lost commits (L3), by an asynchronous failover or a restore from a backup.

The sign is a member that reports an epoch or a fencing token above those in the log. It is not fenced for that. The
coordinator raises epochs and tokens above the highest reported, adopts the tasks that members run as theirs, and raises
an alarm. It grants nothing for the longest session timeout of the group: by then every member that runs a task has
reported it. That time grows with each further member that is ahead of the log, and with each silent member that may run
a task that another member reports.

A report alone does not take tasks from others. If the log gives a task to another live member that reports running it
too, the task stays with that member. Until that member has reported, or its lease is over, nothing is decided.
"""

from collections.abc import Mapping
from dataclasses import replace

from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.state import records as r
from batonpass.core.state.errors import InvalidRequest
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Heartbeat, StoreRecovered
from batonpass.core.state.model import Group, Member, Role
from batonpass.core.state.replies import Done, Reply
from batonpass.core.state.soft import TaskReport

TOKEN_LEAP = 1 << 20
"""How far new fencing tokens leap. The lost commits cannot have granted one task more often than this."""

PLAUSIBLE_LEAP_MAX = 1 << 40
"""How far an epoch or a token that a member reports may lie above the log's and still be believed."""

LOST_COMMITS = "store-lost-commits"


def knows_more_than_the_log(group: Group, member: Member, epoch: int, reports: Mapping[TaskId, TaskReport]) -> bool:
    """Say whether a member echoes an epoch, or reports a token, that the log has never given out."""
    return epoch > member.epoch or any(
        report.role == "active"
        and report.token is not None
        and task_id in group.tasks
        and report.token > max(group.tasks[task_id].token, group.tokens_from)
        for task_id, report in reports.items()
    )


def believe(draft: DecisionDraft, member: Member, item: Heartbeat) -> None:
    """Recover after a heartbeat that is ahead of the log: raise epochs and tokens, hold grants, ask for full reports.

    The member's epoch becomes the one that it reports. Its assignment in the log is outdated and must not be sent to
    it. Its next assignment, at the next epoch, is made from its own full report (``adopt``). Tokens that
    cannot be believed are left out before (``without_implausible_tokens``).

    Raises:
        InvalidRequest: for an epoch that cannot be believed.
    """
    if item.member_epoch > member.epoch + PLAUSIBLE_LEAP_MAX:
        # No store can have lost so many commits. The numbers are stored with 64 bits, so there would be no room above.
        reason = f"{item.member_epoch} is more than {PLAUSIBLE_LEAP_MAX} above the epoch that is known, {member.epoch}"
        raise InvalidRequest(f"member_epoch: {reason}", errors=[("member_epoch", reason)])
    begun = draft.group.recovering_until_ms > draft.now_ms
    _hold_grants(
        draft, f"member {member.id} reports epoch {item.member_epoch} or a token above ours; the log has {member.epoch}"
    )
    reported = max((report.token or 0 for report in (item.tasks or {}).values()), default=0)
    tokens_from = max(reported, draft.group.tokens_from if begun else _tokens_from(draft.group))
    draft.record(r.EpochsRaised({member.id: item.member_epoch}, tokens_from))
    if not begun:
        _ask_for_full_reports(draft)
    known = draft.member_soft(member.id)
    if known is not None:
        draft.set_member_soft(member.id, replace(known, full=False, reports={}))


def without_implausible_tokens(group: Group, item: Heartbeat) -> tuple[Heartbeat, tuple[tuple[str, str], ...]]:
    """Return the heartbeat without tokens too far above the log's, and the path and reason of each that is left out."""
    tasks = dict(item.tasks or {})
    faults: list[tuple[str, str]] = []
    for task_id, report in tasks.items():
        known = max(group.task(task_id).token, group.tokens_from)
        if report.token is not None and report.token > known + PLAUSIBLE_LEAP_MAX:
            reason = f"{report.token} is more than {PLAUSIBLE_LEAP_MAX} above the highest token that is known, {known}"
            faults.append((f"tasks.{task_id}.fencing_token", reason))
            tasks[task_id] = report._replace(token=None)
    return (replace(item, tasks=tasks) if faults else item), tuple(faults)


def notice_lost_join(draft: DecisionDraft, item: Heartbeat) -> None:
    """Take active tasks reported by an unknown member as a sign that the store lost the commit of its join."""
    group = draft.group
    never_seen = group.declared and item.member_id not in group.gone and item.member_id not in group.members
    runs_something = any(report.role == "active" for report in (item.tasks or {}).values())
    if never_seen and item.member_epoch > 0 and runs_something and group.recovering_until_ms <= draft.now_ms:
        what = f"of whom the log knows nothing, reports active tasks at epoch {item.member_epoch}"
        _recover(draft, f"member {item.member_id}, {what}")


def store_recovered(draft: DecisionDraft, _item: StoreRecovered) -> Reply:
    """Act on an operator's statement that commits were lost."""
    _recover(draft, "an operator says that the store lost commits")
    return Done()


def _recover(draft: DecisionDraft, why: str) -> None:
    _hold_grants(draft, why)
    draft.record(r.EpochsRaised({}, _tokens_from(draft.group)))
    _ask_for_full_reports(draft)


def _hold_grants(draft: DecisionDraft, why: str) -> None:
    until_ms = draft.now_ms + draft.group.longest_session_ms
    if until_ms > draft.group.recovering_until_ms:
        # What runs in a group of Kafka Streams is adopted at each rebalance anyway, by what the leader says of it.
        draft.record(r.GrantsHeld(until_ms, why, adopting=not draft.group.config.kafka_streams))
    draft.explain(LOST_COMMITS, detail=why)


def _tokens_from(group: Group) -> int:
    highest = max((group.tasks[task_id].token for task_id in group.tasks), default=0)
    return max(highest, group.tokens_from) + TOKEN_LEAP


def _ask_for_full_reports(draft: DecisionDraft) -> None:
    """Forget every report of a copy, so that it is unknown until its member reports again.

    Reports of running tasks, from members at an epoch that the log knows, are kept.
    """
    members = draft.group.members
    member_softs = {}
    for member_id, member_soft in draft.soft.members.items():
        is_known = member_id in members and member_soft.echoed <= members[member_id].epoch
        running = {
            task: measured
            for task, measured in member_soft.reports.items()
            if is_known and measured.report.role == "active"
        }
        member_softs[member_id] = replace(member_soft, full=False, reports=running)
    draft.soft = draft.soft._replace(members=draft.soft.members.updated(member_softs))


def adopt(draft: DecisionDraft, member: Member, epoch: int, reports: Mapping[TaskId, TaskReport]) -> bool:
    """Give the member the tasks that it reports as running, and take from it those that it no longer runs.

    ``epoch`` is the epoch that the member echoes. Return False if nothing is decided yet, because other members that
    may run one of these tasks have yet to report.

    A task that another member in the log reports as running stays with that member. If the log gives the task to
    another member, and the reported token is not one of the lost ones (which are above the log's last), the task gets a
    new token, so that the holder of the old one is fenced.
    """
    claimed = _claimed(member, epoch, reports)
    if _waits_for_others(draft, member, claimed):
        return False
    tasks = draft.group.tasks
    running = []
    for task in claimed:
        there = [(other, draft.soft.report_of(other, task)) for other in _others_with(draft, member, task)]
        others = [other for other, known in there if known is not None and known.report.role == "active"]
        if others:
            detail = f"member {member.id} says that it runs it, and so does {others[0]}, who has it in the log"
            draft.explain(LOST_COMMITS, task, detail=detail)
        else:
            running.append(task)
    has = {task: grant for task, grant in member.assignment.items() if grant.role is Role.ACTIVE}
    # It cannot be running a task whose grant it has not seen yet, so that grant stands.
    dropped = sorted(task for task, grant in has.items() if grant.epoch <= epoch and task not in running)
    member_soft = draft.member_soft(member.id)
    if not dropped and all(task in has for task in running) and member_soft is not None and member_soft.full:
        return True
    tokens: dict[TaskId, int] = {}
    for task_id in running:
        reported, last = reports[task_id].token or 0, tasks[task_id].token
        if task_id not in has and reported <= last:
            tokens[task_id] = max(last, draft.group.tokens_from) + 1
        else:
            tokens[task_id] = max(reported, last)
    raised = r.EpochsRaised({member.id: max(member.epoch, epoch) + 1}, draft.group.tokens_from)
    draft.record(raised, r.TasksAdopted(member.id, tokens, tuple(dropped), draft.now_ms))
    return True


def _waits_for_others(draft: DecisionDraft, member: Member, claimed: list[TaskId]) -> bool:
    """Say whether another member that may run one of the ``claimed`` tasks has yet to report.

    Until all of them have reported, or their leases are over, the member gets no assignment and goes on as it is.
    Nothing is granted meanwhile.
    """
    silent = {
        other: until_ms
        for task in claimed
        for other, until_ms in _others_with(draft, member, task).items()
        if not draft.soft.of(other).full and not draft.soft.of(other).reports
    }
    if not silent:
        return False
    until_ms = max(silent.values()) + draft.group.longest_session_ms
    if until_ms > draft.group.recovering_until_ms:
        draft.record(r.GrantsHeld(until_ms, f"what {', '.join(sorted(silent))} run is not known yet", adopting=True))
    return True


def _claimed(member: Member, epoch: int, reports: Mapping[TaskId, TaskReport]) -> list[TaskId]:
    """Return the tasks that the member reports as running, except those revoked since the epoch that it echoes."""
    revoked_since = {
        task for task, revocation in member.revoking.items() if revocation.active and revocation.epoch > epoch
    }
    return [task for task in sorted(reports) if reports[task].role == "active" and task not in revoked_since]


def _others_with(draft: DecisionDraft, member: Member, task_id: TaskId) -> dict[MemberId, int]:
    """Return the other members that may be running the task by the log, each with the instant until which it may.

    They are its owner and the members that have not released it. Fenced members count until their leases are over.
    """
    task, members = draft.group.tasks[task_id], draft.group.members
    until = {entry.member_id: entry.free_at_ms or 0 for entry in task.handover.unreleased}
    for holder in (task.owner, *until):
        if holder is not None and holder in members:
            until[holder] = draft.view().lease_end_ms(members[holder])
    return {other: at_ms for other, at_ms in until.items() if other != member.id and at_ms > draft.now_ms}
