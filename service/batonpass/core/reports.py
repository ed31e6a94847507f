"""What members say: a heartbeat's epochs, confirmations and progress, and what follows from them.

A heartbeat that says nothing new costs the same in a group of any size: it touches the member's own soft state and
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from batonpass.core.answers import answer, refusal
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
from batonpass.core.steady import is_steady
from batonpass.core.work import Work


def heartbeat(work: Work, item: Heartbeat) -> Reply:
    """Take a member's word. Unless it is refused or changes nothing, its answer waits for the whole decision."""
    group = work.group
    member = group.members.get(item.member_id)
    if not group.declared or member is None or member.away_until_ms is not None:
        refused: ProtocolError = refusal(group, item.member_id)
        notice_unknown(work, item)
        return refused
    if item.tasks is not None and len(item.tasks) > work.policy.max_tasks_per_heartbeat:
        limit = work.policy.max_tasks_per_heartbeat
        return TooLarge(f"a heartbeat may report {limit} tasks; this one reports {len(item.tasks)}")
    heard = work.heard(member.id) or MemberSoft(work.now_ms)
    renewed = replace(heard, heard_ms=work.now_ms, poll_broken_ms=None)
    if item.seq <= heard.seq:
        work.set_heard(member.id, renewed)
        work.explain(Quiet.DUPLICATE)
        return answer(work.group, work.soft, member, -1)
    if item.member_epoch < heard.echoed:
        work.set_heard(member.id, renewed)
        stale = answer(work.group, work.soft, member, -1)
        return StaleMemberEpoch(
            f"member epoch {item.member_epoch} is below {heard.echoed}, which this member has echoed before; take the picture in answer",
            answer=stale,
        )
    if is_ahead(work.group, member, item):
        if (unbelievable := beyond_belief(work.group, member, item)) is not None:
            return unbelievable
        recover(work, member, item)
        member = work.group.members[member.id]
        renewed = replace(renewed, full=False, reports={}, steady_at=None)
    work.set_heard(member.id, _echo(renewed, item))
    if member.suspected:
        work.record(SuspicionCleared(member.id))
        work.schedule("suspicion-cleared")
    if item.tasks is not None:
        _take_report(work, item, item.tasks)
    return Done()


def _echo(heard: MemberSoft, item: Heartbeat) -> MemberSoft:
    """Remember the epoch echoed, and by which session timeouts the lease may still run.

    Answers given before the epoch that the member echoes cannot be the last that it has seen; the timeouts in them
    no longer count.
    """
    timeouts = heard.timeouts
    if item.member_epoch > heard.echoed:
        timeouts = tuple(entry for entry in timeouts if entry[0] >= item.member_epoch)
    return replace(heard, seq=item.seq, echoed=item.member_epoch, timeouts=timeouts)


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


def note_answered(work: Work, member: Member) -> None:
    """Remember that the present session timeout is answered to the member now: its lease may run by it."""
    heard = work.heard(member.id)
    timeout_ms = work.group.config.session_timeout_ms
    if heard is None or (
        heard.timeouts and heard.timeouts[-1][1] == timeout_ms and heard.timeouts[-1][0] == member.epoch
    ):
        return
    kept = [entry for entry in heard.timeouts if entry != (member.epoch, timeout_ms)]
    # One entry an epoch and timeout; of many epochs with the same timeout the newest says as much as all of them.
    kept = [entry for entry in kept if entry[1] != timeout_ms]
    work.set_heard(member.id, replace(heard, timeouts=(*kept, (member.epoch, timeout_ms))))


def _take_report(work: Work, item: Heartbeat, tasks: Mapping[TaskId, TaskReport]) -> None:
    group = work.group
    member = group.members[item.member_id]
    if group.recovering_until_ms > work.now_ms:
        adopt(work, member, item)
        group, member = work.group, work.group.members[item.member_id]
    heard = work.heard(member.id)
    before = heard.reports if heard is not None else {}
    reports, news = _digest_all(work, before, tasks)
    heard = heard or MemberSoft(work.now_ms)
    news = news or not heard.full
    is_recovering = group.recovering_until_ms > work.now_ms
    kept = replace(
        heard,
        said=tasks,
        reports=reports,
        full=True,
        tails_all=all(said.role != "none" for said in tasks.values()),
        level_at=None if news or is_recovering else heard.level_at,
        steady_at=None,
    )
    work.set_heard(member.id, kept)
    records: list[Record] = list(_confirmations(member, item, tasks, work.now_ms))
    records.extend(_states(work, item, tasks))
    if records:
        work.record(*records)
        _park_poisoned(work, tasks)
        if any(isinstance(record, ActiveReported) and record.state is ActiveState.FAILED for record in records):
            # Whatever has no state may start elsewhere at once, and a copy is not kept ready where the task failed.
            work.schedule("task-failed")
        news = True
    if news:
        work.touched = True
    elif not is_recovering and len(reports) == len(tasks) and is_steady(reports, group.config):
        work.set_heard(member.id, replace(kept, steady_at=(member.epoch, group.revision)))


def _digest_all(
    work: Work, before: Mapping[TaskId, Report], tasks: Mapping[TaskId, TaskReport]
) -> tuple[dict[TaskId, Report], bool]:
    """Return the reports to keep, and whether any of them may let a task move."""
    group, now_ms = work.group, work.now_ms
    rank, ends = group.table.rank, work.soft.end_offsets
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
        if said.role == Role.WARMUP and report.rate is not None and (old is None or old.rate is None or old.rate <= 0):
            work.has_estimate = work.has_estimate or report.rate > 0
    return reports, news or not before.keys() <= reports.keys()


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


def _states(work: Work, item: Heartbeat, tasks: Mapping[TaskId, TaskReport]) -> list[ActiveReported]:
    """Return what changed about the actives of the member. A report from before a grant says nothing about it."""
    found: list[ActiveReported] = []
    member = work.group.members[item.member_id]
    picture, known = member.picture, work.group.tasks
    for task_id, said in tasks.items():
        if said.role != "active":
            continue
        grant = picture.get(task_id)
        if grant is None or grant.role is not Role.ACTIVE or item.member_epoch < grant.epoch:
            continue
        state = ActiveState.LOST if said.lost else said.state
        if state is not None and state is not known[task_id].state:
            found.append(ActiveReported(task_id, member.id, state, work.now_ms, said.detail))
    # In whatever order the member lists its tasks, the records come out the same (L10).
    return sorted(found, key=lambda record: record.task)


def _park_poisoned(work: Work, tasks: Mapping[TaskId, TaskReport]) -> None:
    park(work, sorted(task_id for task_id, said in tasks.items() if said.state is ActiveState.FAILED))


def park(work: Work, suspects: list[TaskId]) -> None:
    """Park each of the tasks that failed on too many members of late (DESIGN 2.5, poison)."""
    oldest = work.now_ms - work.policy.poison_window_ms
    for task_id in suspects:
        task = work.group.tasks.get(task_id)
        if task is None or task.parked:
            continue
        members: dict[MemberId, None] = {}
        for failure in task.failures:
            if failure.at_ms > oldest:
                members[failure.member_id] = None
        if len(members) >= work.policy.poison_members:
            work.record(TaskParked(task_id, tuple(members)))
            work.explain("parked", task_id, detail=f"failed on {', '.join(members)}")


def end_offsets(work: Work, item: EndOffsets) -> Reply:
    """Take ends and beginnings of changelogs that the coordinator read; measure anew every copy that ends concern."""
    known = work.soft.end_offsets
    changes: dict[tuple[str, int], EndOffset | None] = {}
    for key, offset in item.offsets.items():
        before = known.get(key)
        if before is not None and item.read_ms < before.read_ms:
            continue  # It was overtaken by a later read: it is older than what is known, not lower.
        changes[key] = EndOffset(offset, item.read_ms, shrunk=before is not None and offset < before.offset)
    ends = known.updated(changes)
    begins = work.soft.begin_offsets.updated(item.begin_offsets)
    work.soft = replace(work.soft, end_offsets=ends, begin_offsets=begins)
    for member_id in sorted(work.soft.members):
        heard = work.soft.members[member_id]
        reports = dict(heard.reports)
        for task_id, report in heard.reports.items():
            if not report.said.positions or report.said.lag is not None:
                continue
            logs = changelogs_of(work.group, task_id)
            if any((topic, partition) in changes for topic, partition in logs.items()):
                lag, other = measure(report.said, report.at_ms, ends, logs, doubted=report.other_incarnation)
                reports[task_id] = report._replace(lag=lag, other_incarnation=other)
        if reports != heard.reports:
            work.set_heard(member_id, replace(heard, reports=reports, level_at=None, steady_at=None))
            work.touched = True
    return Done()
