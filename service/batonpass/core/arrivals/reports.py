"""Heartbeats: what a member reports, confirms and echoes, and what follows from it.

A heartbeat without news costs the same in a group of any size: it touches the member's own soft state and nothing else.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from batonpass.core.arrivals import recovery
from batonpass.core.arrivals.answers import Late, Taken, refusal
from batonpass.core.arrivals.doubts import end_doubts, is_doubted, is_to_be_doubted
from batonpass.core.arrivals.loads import read_loads, smoothed_loads
from batonpass.core.arrivals.report_bounds import bounded, invalid_numbers, too_many_unassigned
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.lag import (
    changelogs_of,
    end_after,
    is_acceptable_lag,
    is_still_level,
    measure_lag,
    measured_report,
)
from batonpass.core.state import records as r
from batonpass.core.state.errors import StaleMemberEpoch, TooLarge
from batonpass.core.state.failures import blamed, faults_in_words, host_of
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import EndOffsets, Heartbeat, Join
from batonpass.core.state.model import ActiveState, Cause, Group, Member, Role
from batonpass.core.state.reasons import Happened, Held, NoChange
from batonpass.core.state.replies import Reply
from batonpass.core.state.soft import EndOffset, Log, MeasuredReport, MemberSoft, Positions, Soft, TaskReport


def heartbeat(draft: DecisionDraft, item: Heartbeat) -> Reply:
    """Take a member's report (protocol 4.2 to 4.4). Unless it is refused, its answer waits for the whole decision."""
    group = draft.group
    member = group.present_member(item.member_id)
    if member is None:
        refused = refusal(group, item.member_id)
        recovery.notice_lost_join(draft, item)
        disprove_death(draft, item.member_id)
        raise refused
    if item.tasks is not None and len(item.tasks) > draft.policy.max_tasks_per_heartbeat:
        limit = draft.policy.max_tasks_per_heartbeat
        raise TooLarge(f"a heartbeat may report {limit} tasks; this one reports {len(item.tasks)}")
    known = draft.member_soft(member.id) or MemberSoft(draft.now_ms)
    if item.seq <= known.seq:
        draft.set_member_soft(member.id, known.heard(draft.now_ms))
        draft.explain(NoChange.DUPLICATE)
        return Late()
    if item.member_epoch < known.echoed:
        draft.set_member_soft(member.id, known.heard(draft.now_ms))
        raise StaleMemberEpoch(
            f"member epoch {item.member_epoch} is below {known.echoed}, which this member has echoed before; take the assignment in answer"
        )
    kept, news = _what_is_new(draft, member, known, item)
    if recovery.knows_more_than_the_log(group, member, item.member_epoch, news):
        plausible, faults = recovery.without_implausible_tokens(group, item)
        if faults:
            outcome = heartbeat(draft, plausible)
            ignored = invalid_numbers(faults)
            return replace(outcome, ignored=(*outcome.ignored, *ignored)) if isinstance(outcome, Taken) else outcome
        recovery.believe(draft, member, item)
        # Once the log has caught up with the member, the heartbeat is taken like any other.
        return heartbeat(draft, item)
    heard = _with_heartbeat(known, item, draft.now_ms)
    read_loads(draft)
    if member.suspected:
        clear_suspicion(draft, member)
    repeats_the_last = kept and not news and len(kept) == len(known.reports)
    if item.tasks is None or repeats_the_last:
        draft.set_member_soft(member.id, heard)
        return Taken()
    tasks, ignored = bounded(group, news, draft.policy)
    if group.recovering_until_ms <= draft.now_ms:
        known_too = tasks | {task_id: measured.report for task_id, measured in kept.items()}
        excess, unassigned, why = too_many_unassigned(group, draft.soft, member.id, known_too, draft.policy)
        for task_id in excess:
            kept.pop(task_id, None)
            tasks.pop(task_id, None)
        heard, ignored = replace(heard, unassigned=unassigned), (*ignored, *why)
    is_news, is_estimated = _take_report(draft, item, (known, heard), kept, tasks)
    return Taken(ignored, is_news, is_estimated)


def clear_suspicion(draft: DecisionDraft, member: Member) -> None:
    """Note that a suspected member is heard, and look at what was taken from it.

    What was placed without it is known (``liveness.notice_return``), but not to a coordinator that had not heard it.
    """
    draft.record(r.SuspicionCleared(member.id))
    if draft.member_soft(member.id) is None:
        draft.schedule("suspicion-cleared")


def _what_is_new(
    draft: DecisionDraft, member: Member, known: MemberSoft, item: Heartbeat
) -> tuple[dict[TaskId, MeasuredReport], dict[TaskId, TaskReport]]:
    """Return the measured reports that stay as they are, and the reports in the heartbeat that are to be examined.

    A report that repeats the last one of its task is not examined again if nothing in it depends on the time: its
    active runs, or its copy is caught up. (The lag of other copies depends on the time, and on the ends of changelogs.)
    Every report is examined if the heartbeat echoes an epoch for the first time, if it may confirm a revocation, and as
    long as tasks are adopted after lost commits.
    """
    tasks, is_recovering = item.tasks or {}, draft.group.recovering_until_ms > draft.now_ms
    if not known.full or item.member_epoch != known.echoed or member.revoking or is_recovering:
        return {}, dict(tasks)
    index_of, limit = draft.group.table.index_of, draft.group.config.acceptable_recovery_lag
    kept = {
        task_id: before
        for task_id, report in tasks.items()
        if (before := known.reports.get(task_id)) is not None and before.report == report
        if task_id in index_of and _is_settled(before, limit)
    }
    return kept, {task_id: report for task_id, report in tasks.items() if task_id not in kept}


def _is_settled(measured: MeasuredReport, acceptable_lag: int) -> bool:
    """Say whether the same report again would mean the same at any later time."""
    report, lag = measured.report, measured.lag
    if report.role == "active":
        return report.state is ActiveState.RUNNING and not report.lost and not measured.other_incarnation
    return lag is not None and lag <= acceptable_lag


def _with_heartbeat(known: MemberSoft, item: Heartbeat, now_ms: int) -> MemberSoft:
    """Return the soft state of a member after this heartbeat.

    Only the timeouts of answers from the echoed epoch on still count: the member has seen a newer answer than all
    earlier ones.
    """
    timeouts = known.timeouts
    if item.member_epoch > known.echoed:
        timeouts = tuple(entry for entry in timeouts if entry[0] >= item.member_epoch)
    return replace(
        known,
        heard_ms=now_ms,
        seq=item.seq,
        echoed=item.member_epoch,
        timeouts=timeouts,
        poll_broken_ms=None,
        rhythm_ms=max(now_ms - known.heard_ms, known.rhythm_ms // 2),
        numbers={**known.numbers, **item.numbers} if item.numbers else known.numbers,
    )


def count_as_heard(group: Group, soft: Soft, item: Heartbeat | Join, now_ms: int) -> Soft:
    """Return the soft state after a join or heartbeat whose records could not be persisted (answered 503).

    The message renews the lease (L5) and does nothing else. The member sends its report again under the same ``seq``.
    """
    member_soft = soft.members.get(item.member_id)
    if member_soft is None:
        if item.member_id not in group.members:
            return soft
        member_soft = MemberSoft(now_ms)
    return soft._replace(members=soft.members.having(item.member_id, member_soft.heard(now_ms)))


def note_answered_timeout(draft: DecisionDraft, member: Member) -> None:
    """Remember that the answer to the member carries the present session timeout: it may count its lease by that."""
    member_soft, answered = draft.member_soft(member.id), (member.epoch, draft.group.config.session_timeout_ms)
    if member_soft is None or member_soft.timeouts[-1:] == (answered,):
        return
    # Of several epochs with the same timeout, the newest is enough: it counts for the longest time.
    kept = [entry for entry in member_soft.timeouts if entry[1] != answered[1]]
    draft.set_member_soft(member.id, replace(member_soft, timeouts=(*kept, answered)))


def _take_report(
    draft: DecisionDraft,
    item: Heartbeat,
    softs: tuple[MemberSoft, MemberSoft],
    kept: dict[TaskId, MeasuredReport],
    tasks: dict[TaskId, TaskReport],
) -> tuple[bool, bool]:
    """Take in the reports that are to be examined. Those in ``kept`` stay as they are.

    ``softs`` is what was known of the member before, and with this heartbeat.
    Return whether they may let a task move, and whether the catch-up of a warmup can now be estimated.
    """
    member, (known, heard) = draft.group.members[item.member_id], softs
    is_recovering = draft.group.recovering_until_ms > draft.now_ms
    is_undecided = is_recovering and not recovery.adopt(draft, member, item.member_epoch, tasks)
    member = draft.group.members[item.member_id]
    measured, is_news, is_estimated = _measure_all(draft, heard, tasks, member)
    reports = kept | measured
    loads = smoothed_loads(draft, member, known, reports)
    draft.set_member_soft(member.id, replace(heard, reports=reports, full=not is_undecided, loads=loads))
    if is_undecided:
        return False, is_estimated
    if member.doubts:
        end_doubts(draft, member.id, reports)
    is_news = is_news or not heard.full or not heard.reports.keys() <= reports.keys()
    # The records do not depend on the order in which the member lists its tasks (L10).
    changes = sorted(_state_changes(draft, item, tasks), key=lambda record: record.task)
    records: list[r.Record] = [*_confirmed_releases(member, item, tasks, draft.now_ms), *changes]
    if records:
        distrusted = draft.view().distrusted
        draft.record(*records)
        park(draft, sorted(task_id for task_id, report in tasks.items() if report.state is ActiveState.FAILED))
        explain_distrust(draft, distrusted)
        if any(isinstance(record, r.ActiveReported) and _is_target_to_change(draft, record) for record in records):
            draft.schedule("task-failed")
    return is_news, is_estimated


def _measure_all(
    draft: DecisionDraft,
    heard: MemberSoft,
    tasks: Mapping[TaskId, TaskReport],
    member: Member,
) -> tuple[dict[TaskId, MeasuredReport], bool, bool]:
    """Return the reports with their lag and rate, and the two answers of ``_take_report``."""
    group, now_ms = draft.group, draft.now_ms
    reports: dict[TaskId, MeasuredReport] = {}
    news = is_estimated = False
    for task_id, report in tasks.items():
        old = heard.reports.get(task_id)
        found = measurement(group, draft.soft, member, (task_id, report, old), now_ms)
        measured = measured_report(report, old, now_ms, found, is_new=heard.full)
        reports[task_id] = measured
        if report.role == "warmup" and _comes_closer(measured) and (old is None or not _comes_closer(old)):
            is_estimated = True
        if news:
            continue
        if report.role != "active" or (old is not None and old.report.role != "active"):
            news = _what_decides(group, old) != _what_decides(group, measured)
        elif report.state is ActiveState.RESTORING:
            # A ready copy takes over only if the owner makes no progress.
            news = bool(group.tasks[task_id].standbys or group.tasks[task_id].warmups)
    return reports, news, is_estimated


def measurement(
    group: Group, soft: Soft, member: Member, of: tuple[TaskId, TaskReport, MeasuredReport | None], now_ms: int
) -> tuple[int | None, bool]:
    """Return the lag of a reported copy (None: unknown), and whether its state is of another incarnation."""
    task_id, report, old = of
    if is_doubted(member, task_id, report):
        return None, True
    doubted = old is not None and old.other_incarnation
    return measure_lag(report, now_ms, soft.end_offsets, changelogs_of(group, task_id), doubted=doubted)


def has_news(group: Group, soft: Soft, item: Heartbeat, now_ms: int) -> bool:
    """Say whether others wait for what a heartbeat says, before it is taken in.

    It echoes an assignment for the first time, confirms a revocation, or reports of a warmup what may let its task
    move.
    """
    member, known = group.members.get(item.member_id), soft.members.get(item.member_id)
    if member is None or known is None or item.seq <= known.seq:
        return False
    if known.echoed < item.member_epoch <= member.epoch:
        return True
    if item.tasks is None:
        return False
    if any(_confirmed_releases(member, item, item.tasks, now_ms)):
        return True
    for task_id, report in item.tasks.items():
        old = known.reports.get(task_id)
        if report.role == "warmup":
            lag, _ = measurement(group, soft, member, (task_id, report, old), now_ms)
            rate = old.rate if old is not None else None
            if _what_decides(group, old) != _what_decides(group, MeasuredReport(report, now_ms, lag, rate=rate)):
                return True
    return False


def _comes_closer(measured: MeasuredReport) -> bool:
    return measured.rate is not None and measured.rate > 0


def _what_decides(group: Group, measured: MeasuredReport | None) -> tuple[bool, bool, bool] | None:
    """Return what matters about a copy: is it tailed, is its lag known, is it caught up. None if there is no copy."""
    if measured is None or measured.report.lost:
        return None
    lag = measured.lag
    return measured.report.role != "none", lag is not None, is_acceptable_lag(lag, measured.rate, group.config)


def _confirmed_releases(
    member: Member, item: Heartbeat, tasks: Mapping[TaskId, TaskReport], now_ms: int
) -> Iterator[r.TaskReleased]:
    """Yield the releases that the heartbeat confirms: those announced at an epoch that it echoes.

    ``tasks`` is what is kept of its reports. A task that it runs counts as held though the group has it no more.
    """
    for task_id, revocation in sorted(member.revoking.items()):
        if revocation.epoch > item.member_epoch:
            # The member reported this before it saw the revocation, so it may still start what it does not run yet.
            continue
        report = (item.tasks or tasks).get(task_id)
        held = report is not None and (report.role == "active" if revocation.active else report.role != "none")
        if not held:
            # A copy that is given up later may still carry the final position from its member's time as owner. It is
            # outdated, because other members have written since.
            final_position = tasks[task_id].final_position if task_id in tasks and revocation.active else ()
            yield r.TaskReleased(task_id, member.id, final_position, now_ms)


def _state_changes(
    draft: DecisionDraft, item: Heartbeat, tasks: Mapping[TaskId, TaskReport]
) -> Iterator[r.ActiveReported]:
    """Yield what changed about the member's actives. A report from before a grant does not count for it."""
    member = draft.group.members[item.member_id]
    assignment, known = member.assignment, draft.group.tasks
    for task_id, report in tasks.items():
        if report.role != "active":
            continue
        grant = assignment.get(task_id)
        if grant is None or grant.role is not Role.ACTIVE or item.member_epoch < grant.epoch:
            continue
        state = ActiveState.LOST if report.lost else report.state
        if state is not None and state is not known[task_id].state:
            yield r.ActiveReported(task_id, member.id, state, draft.now_ms, report.detail)


def _is_target_to_change(draft: DecisionDraft, record: r.ActiveReported) -> bool:
    """Say whether an owner's new state calls for another target.

    It does when the task fails: it is to go to a member where it has not. It also does when the task runs on a copy
    that took it over, and not where it was to go when it failed: it should then stay there.
    """
    task = draft.group.task(record.task)
    if record.state is not ActiveState.RUNNING or task.target.owner in (None, record.member_id):
        return record.state is ActiveState.FAILED
    avoided = draft.view().avoided_for(task)
    return task.target.owner in avoided or bool(avoided and record.member_id not in avoided)


def park(draft: DecisionDraft, suspects: list[TaskId]) -> None:
    """Park each of the tasks that failed on ``poison_members`` hosts lately, and ran well on none since."""
    config = draft.group.config
    for task_id in suspects:
        task = draft.group.task(task_id)
        if task.marks.parked:
            continue
        members = tuple(failure.member_id for failure in blamed(task, draft.group, draft.now_ms))
        if len(members) >= config.poison_members:
            draft.record(r.TaskParked(task_id, members))
            draft.explain(Held.PARKED, task_id, detail=f"failed on {', '.join(members)}")


def disprove_death(draft: DecisionDraft, member_id: MemberId) -> None:
    """Note that a member whose lease had expired is heard: it was suspended. What its death parked is tried again."""
    gone = draft.group.gone.get(member_id)
    if gone is None or gone.cause is not Cause.EXPIRED or gone.heard_again:
        return
    draft.record(r.SuspicionCleared(member_id))
    group = draft.group
    parked = [task for task in map(group.tasks.__getitem__, group.table.ids) if task.marks.parked]
    freed = [
        r.TaskUnparked(task.id)
        for task in parked
        if member_id in {failure.member_id for failure in task.marks.failures}
        and len(blamed(task, group, draft.now_ms)) < group.config.poison_members
    ]
    if freed:
        draft.record(*freed)
        draft.schedule("release")


def explain_distrust(draft: DecisionDraft, before: Collection[MemberId]) -> None:
    """Have the group placed anew if it distrusts other members than before, and say of each new one why."""
    view = draft.view()
    if view.distrusted == before:
        return
    for member_id in sorted(view.distrusted.difference(before)):
        known = draft.group.hosts[host_of(draft.group.members[member_id])]
        draft.explain(Happened.DISTRUSTED, to=member_id, detail=faults_in_words(known))
    draft.schedule("member-distrusted")


def end_offsets(draft: DecisionDraft, item: EndOffsets) -> Reply:
    """Take the ends and beginnings of changelogs that the coordinator read, and measure the affected copies anew."""
    known, is_news = draft.soft.end_offsets, False
    changes: dict[Log, EndOffset] = {}
    for key, offset in item.offsets.items():
        before = known.get(key)
        if before is not None and item.read_ms < before.read_ms:
            continue  # A later read has arrived before this one, so its offset is older, not lower.
        log_end, topic_id = item.high_watermarks.get(key, offset), item.topic_ids.get(key[0], "")
        after = end_after(before, offset, log_end, item.read_ms, topic_id)
        if before is not None and before.is_held_up and not after.is_held_up:
            is_news = True  # Moves were held for it, whatever the lags of the copies are.
        changes[key] = after
    ends = known.updated(changes)
    begins = draft.soft.begin_offsets.updated(item.begin_offsets)
    draft.soft = draft.soft._replace(end_offsets=ends, begin_offsets=begins)
    for member_id in sorted(draft.soft.members):
        is_news = _measure_anew(draft, member_id, known, changes) or is_news
    return Taken(is_news=is_news)


def _measure_anew(
    draft: DecisionDraft,
    member_id: MemberId,
    before: Mapping[Log, EndOffset],
    read: Mapping[Log, EndOffset],
) -> bool:
    """Measure the copies of a member whose changelogs were read, and doubt those that are of other changelogs.

    Return whether anything about them is different.
    """
    member_soft, member = draft.soft.members[member_id], draft.group.members.get(member_id)
    reports = dict(member_soft.reports)
    doubted: dict[TaskId, Positions] = {}
    for task_id, measured in member_soft.reports.items():
        report, logs = measured.report, changelogs_of(draft.group, task_id)
        if not report.positions or report.lag is not None or read.keys().isdisjoint(logs):
            continue
        lag, other = measure_lag(
            report, measured.at_ms, draft.soft.end_offsets, logs, doubted=measured.other_incarnation
        )
        if not other and is_still_level(measured, draft.group, draft.now_ms):
            lag = measured.lag
        if member is not None and not report.lost:
            if is_to_be_doubted(measured, logs, before, read) and task_id not in member.doubts:
                doubted[task_id] = report.positions
            if task_id in doubted or is_doubted(member, task_id, report):
                lag, other = None, True
        reports[task_id] = measured._replace(lag=lag, other_incarnation=other)
    if doubted:
        draft.record(r.StateDoubted(member_id, dict(sorted(doubted.items()))))
    if reports == member_soft.reports:
        return False
    draft.set_member_soft(member_id, replace(member_soft, reports=reports))
    return True
