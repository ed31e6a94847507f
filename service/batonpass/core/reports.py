"""What members say: a heartbeat's epochs, confirmations and progress, and what follows from them.

A heartbeat that says nothing new costs the same in a group of any size: it touches the member's own soft state and
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from batonpass.core.answers import Late, refusal
from batonpass.core.decision_draft import DecisionDraft
from batonpass.core.errors import ProtocolError, StaleMemberEpoch, TooLarge
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.inputs import EndOffsets, Heartbeat, Join
from batonpass.core.lag import changelogs_of, digest, is_within, measure
from batonpass.core.model import ActiveState, Group, Member, Role
from batonpass.core.reasons import Quiet
from batonpass.core.records import ActiveReported, Record, SuspicionCleared, TaskParked, TaskReleased
from batonpass.core.recovery import adopt, beyond_belief, is_ahead, notice_unknown, recover
from batonpass.core.replies import Done, Reply
from batonpass.core.soft import EndOffset, MemberSoft, Report, Soft, TaskReport


def heartbeat(draft: DecisionDraft, item: Heartbeat) -> Reply:
    """Take a member's word. Unless it is refused or late, its answer waits for the whole decision."""
    group = draft.group
    member = group.members.get(item.member_id)
    if not group.declared or member is None or member.away_until_ms is not None:
        refused: ProtocolError = refusal(group, item.member_id)
        notice_unknown(draft, item)
        return refused
    if item.tasks is not None and len(item.tasks) > draft.policy.max_tasks_per_heartbeat:
        limit = draft.policy.max_tasks_per_heartbeat
        return TooLarge(f"a heartbeat may report {limit} tasks; this one reports {len(item.tasks)}")
    known = draft.member_soft(member.id) or MemberSoft(draft.now_ms)
    if item.seq <= known.seq:
        draft.set_member_soft(member.id, replace(known, heard_ms=draft.now_ms, poll_broken_ms=None))
        draft.explain(Quiet.DUPLICATE)
        return Late()
    if item.member_epoch < known.echoed:
        draft.set_member_soft(member.id, replace(known, heard_ms=draft.now_ms, poll_broken_ms=None))
        return StaleMemberEpoch(
            f"member epoch {item.member_epoch} is below {known.echoed}, which this member has echoed before; take the picture in answer"
        )
    if is_ahead(group, member, item):
        if (unbelievable := beyond_belief(group, member, item)) is not None:
            return unbelievable
        recover(draft, member, item)
        member = draft.group.members[member.id]
        known = replace(known, full=False, reports={})
    draft.set_member_soft(member.id, _heard(known, item, draft.now_ms))
    if member.suspected:
        draft.record(SuspicionCleared(member.id))
        draft.schedule("suspicion-cleared")
    if item.tasks is not None and not _is_repeated(draft, member, known, item):
        _take_report(draft, item, item.tasks)
    return Done()


def _heard(known: MemberSoft, item: Heartbeat, now_ms: int) -> MemberSoft:
    """Return what is known of a member that speaks now: the epoch that it echoes, and how long its lease may run.

    Answers given before the epoch that the member echoes cannot be the last that it has seen; the timeouts in them
    no longer count.
    """
    timeouts = known.timeouts
    if item.member_epoch > known.echoed:
        timeouts = tuple(entry for entry in timeouts if entry[0] >= item.member_epoch)
    return replace(
        known, heard_ms=now_ms, poll_broken_ms=None, seq=item.seq, echoed=item.member_epoch, timeouts=timeouts
    )


def _is_repeated(draft: DecisionDraft, member: Member, known: MemberSoft, item: Heartbeat) -> bool:
    """Say whether a heartbeat repeats the last one, and nothing in it depends on when it is said.

    Then it changes nothing but when the member was heard. What still has to be looked into: an epoch echoed for the
    first time, a revocation that may be confirmed, adoption after lost commits, an active that does not run, and a copy
    that is not caught up, of which time and the ends of changelogs decide how far it is.
    """
    tasks, reports, limit = item.tasks or {}, known.reports, draft.group.config.acceptable_recovery_lag
    if not known.full or item.member_epoch != known.echoed or member.revoking or len(tasks) != len(reports):
        return False
    if draft.group.recovering_until_ms > draft.now_ms:
        return False
    rank = draft.group.table.rank
    for task_id, said in tasks.items():
        report = reports.get(task_id)
        if report is None or report.said != said or task_id not in rank or not _is_steady(report, limit):
            return False
    return True


def _is_steady(report: Report, limit: int) -> bool:
    """Say whether saying the same again says nothing: the active runs, or the copy is caught up, in records."""
    said, lag = report.said, report.lag
    if said.lost or report.other_incarnation:
        return False
    return said.state is ActiveState.RUNNING if said.role == "active" else lag is not None and lag <= limit


def count_as_heard(group: Group, soft: Soft, item: Heartbeat | Join, now_ms: int) -> Soft:
    """Return the soft state for a join or heartbeat whose records could not be persisted (answered 503).

    It still counts as received (L5), and as nothing more: its report will come again under the same ``seq``.
    """
    heard = soft.members.get(item.member_id)
    if heard is None:
        if item.member_id not in group.members:
            return soft
        heard = MemberSoft(now_ms)
    renewed = replace(heard, heard_ms=now_ms, poll_broken_ms=None)
    return replace(soft, members=soft.members.having(item.member_id, renewed))


def note_answered(draft: DecisionDraft, member: Member) -> None:
    """Remember that the present session timeout is answered to the member now: its lease may run by it."""
    heard = draft.member_soft(member.id)
    timeout_ms = draft.group.config.session_timeout_ms
    if heard is None or (
        heard.timeouts and heard.timeouts[-1][1] == timeout_ms and heard.timeouts[-1][0] == member.epoch
    ):
        return
    kept = [entry for entry in heard.timeouts if entry != (member.epoch, timeout_ms)]
    # One entry an epoch and timeout; of many epochs with the same timeout the newest says as much as all of them.
    kept = [entry for entry in kept if entry[1] != timeout_ms]
    draft.set_member_soft(member.id, replace(heard, timeouts=(*kept, (member.epoch, timeout_ms))))


def _take_report(draft: DecisionDraft, item: Heartbeat, tasks: Mapping[TaskId, TaskReport]) -> None:
    group = draft.group
    member = group.members[item.member_id]
    if group.recovering_until_ms > draft.now_ms:
        adopt(draft, member, item)
        group, member = draft.group, draft.group.members[item.member_id]
    known = draft.member_soft(member.id) or MemberSoft(draft.now_ms)
    reports, news = _digest_all(draft, known.reports, tasks, member.id)
    news = news or not known.full
    draft.set_member_soft(member.id, replace(known, reports=reports, full=True))
    records: list[Record] = list(_confirmations(member, item, tasks, draft.now_ms))
    records.extend(_states(draft, item, tasks))
    if records:
        draft.record(*records)
        _park_poisoned(draft, tasks)
        if any(isinstance(record, ActiveReported) and record.state is ActiveState.FAILED for record in records):
            # Whatever has no state may start elsewhere at once, and a copy is not kept ready where the task failed.
            draft.schedule("task-failed")
        news = True
    if news:
        draft.touched = True


def _digest_all(
    draft: DecisionDraft, before: Mapping[TaskId, Report], tasks: Mapping[TaskId, TaskReport], member_id: MemberId
) -> tuple[dict[TaskId, Report], bool]:
    """Return the reports to keep, and whether any of them may let a task move."""
    group, now_ms = draft.group, draft.now_ms
    rank, ends = group.table.rank, draft.soft.end_offsets
    reports: dict[TaskId, Report] = {}
    news = False
    for task_id, said in tasks.items():
        if task_id not in rank:
            continue
        old = before.get(task_id)
        if said.positions and said.lag is None:
            doubted = old is not None and old.other_incarnation
            measured = measure(said, now_ms, ends, changelogs_of(group, task_id), doubted=doubted)
        else:
            measured = (None if said.lost else said.lag, False)
        report = digest(said, old, now_ms, measured)
        reports[task_id] = report
        if news:
            continue
        if said.role != "active" or (old is not None and old.said.role != "active"):
            news = _standing(group, old) != _standing(group, report)
        elif said.state is ActiveState.RESTORING:
            # A ready copy waits only for an owner that gets on.
            news = bool(group.tasks[task_id].standbys or group.tasks[task_id].warmups)
        if said.role == Role.WARMUP and _comes_closer(report) and (old is None or not _comes_closer(old)):
            draft.estimated[member_id] = None
    return reports, news or not before.keys() <= reports.keys()


def _comes_closer(report: Report) -> bool:
    return report.rate is not None and report.rate > 0


def _standing(group: Group, report: Report | None) -> tuple[bool, bool, bool, bool]:
    """Return what decides about a copy: is there one, is it tailed, is its lag known, is it caught up."""
    if report is None or report.said.lost:
        return (False, False, False, False)
    is_tailed = report.said.role != "none"
    return (True, is_tailed, report.lag is not None, is_within(report.lag, report.rate, group.config))


def _confirmations(member: Member, item: Heartbeat, tasks: Mapping[TaskId, TaskReport], now_ms: int) -> list[Record]:
    """Return the releases that the heartbeat confirms: only what was announced at an epoch that it echoes."""
    found: list[Record] = []
    for task_id in sorted(member.revoking):
        revocation = member.revoking[task_id]
        if revocation.epoch > item.member_epoch:
            continue
        said = tasks.get(task_id)
        held = said is not None and (said.role == "active" if revocation.active else said.role != "none")
        if not held:
            # A copy given up later may still carry where its member stopped as owner: others have written since.
            final = said.final if said is not None and revocation.active else ()
            found.append(TaskReleased(task_id, member.id, final, now_ms))
    return found


def _states(draft: DecisionDraft, item: Heartbeat, tasks: Mapping[TaskId, TaskReport]) -> list[ActiveReported]:
    """Return what changed about the actives of the member. A report from before a grant says nothing about it."""
    found: list[ActiveReported] = []
    member = draft.group.members[item.member_id]
    picture, known = member.picture, draft.group.tasks
    for task_id, said in tasks.items():
        if said.role != "active":
            continue
        grant = picture.get(task_id)
        if grant is None or grant.role is not Role.ACTIVE or item.member_epoch < grant.epoch:
            continue
        state = ActiveState.LOST if said.lost else said.state
        if state is not None and state is not known[task_id].state:
            found.append(ActiveReported(task_id, member.id, state, draft.now_ms, said.detail))
    # In whatever order the member lists its tasks, the records come out the same (L10).
    return sorted(found, key=lambda record: record.task)


def _park_poisoned(draft: DecisionDraft, tasks: Mapping[TaskId, TaskReport]) -> None:
    park(draft, sorted(task_id for task_id, said in tasks.items() if said.state is ActiveState.FAILED))


def park(draft: DecisionDraft, suspects: list[TaskId]) -> None:
    """Park each of the tasks that failed on too many members of late (DESIGN 2.5, poison)."""
    oldest = draft.now_ms - draft.policy.poison_window_ms
    for task_id in suspects:
        task = draft.group.tasks.get(task_id)
        if task is None or task.parked:
            continue
        members: dict[MemberId, None] = {}
        for failure in task.failures:
            if failure.at_ms > oldest:
                members[failure.member_id] = None
        if len(members) >= draft.policy.poison_members:
            draft.record(TaskParked(task_id, tuple(members)))
            draft.explain("parked", task_id, detail=f"failed on {', '.join(members)}")


def end_offsets(draft: DecisionDraft, item: EndOffsets) -> Reply:
    """Take ends and beginnings of changelogs that the coordinator read; measure anew every copy that ends concern."""
    known = draft.soft.end_offsets
    changes: dict[tuple[str, int], EndOffset | None] = {}
    for key, offset in item.offsets.items():
        before = known.get(key)
        if before is not None and item.read_ms < before.read_ms:
            continue  # It was overtaken by a later read: it is older than what is known, not lower.
        changes[key] = EndOffset(offset, item.read_ms, shrunk=before is not None and offset < before.offset)
    ends = known.updated(changes)
    begins = draft.soft.begin_offsets.updated(item.begin_offsets)
    draft.soft = replace(draft.soft, end_offsets=ends, begin_offsets=begins)
    for member_id in sorted(draft.soft.members):
        heard = draft.soft.members[member_id]
        reports = dict(heard.reports)
        for task_id, report in heard.reports.items():
            if not report.said.positions or report.said.lag is not None:
                continue
            logs = changelogs_of(draft.group, task_id)
            if any((topic, partition) in changes for topic, partition in logs.items()):
                lag, other = measure(report.said, report.at_ms, ends, logs, doubted=report.other_incarnation)
                reports[task_id] = report._replace(lag=lag, other_incarnation=other)
        if reports != heard.reports:
            draft.set_member_soft(member_id, replace(heard, reports=reports))
            draft.touched = True
    return Done()
