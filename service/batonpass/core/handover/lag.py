"""How far each copy of a task has come: the one definition of *caught up*.

Readiness is a class before it is a number: running < caught up < behind by n < cold < unknown. A copy of unknown lag
is never promoted, and is not dropped because its lag is unknown, except a warmup that others wait for (``turns``).
Until it is reported, an active counts as running and any other copy as unknown, so that tasks stay where they are.

Lag is in records, summed over the task's changelogs. These rules avoid the defects D5, D6, D17 and D26 of Kafka's
assignor (``docs/decisions/0003-kafka-defects.md``).

Readers of committed records get as far as the first open transaction (the last stable offset), although others commit
more behind it. If one stays open, a member that takes the task over has to wait there, so no running owner hands the
task over meanwhile.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from batonpass.core.state.durations import duration
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import ACTIVE, FAILED, LOST, RUNNING, Group, Member, Task
from batonpass.core.state.numbers import WHOLE_MAX
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.soft import EndOffset, Log, MeasuredReport, MemberSoft, Positions, Soft, TaskReport
from batonpass.placement.types import Readiness

LEAST_RATE: Final = 0.001
"""Records a second. A slower copy counts as one that reads nothing: halved with each report, the rate of a copy that
has stopped would get ever smaller for a thousand reports, and its time to catch up longer than a number can say."""


class Copy(NamedTuple):
    """What one member has of a task. ``lag`` is None if unknown. ``on_disk``: state that the member does not tail."""

    readiness: Readiness
    lag: int | None = None
    on_disk: bool = False
    rate: float | None = None

    @property
    def is_caught_up(self) -> bool:
        """Say whether the copy's lag is acceptable. A task that no owner runs may go to it at once."""
        return self.readiness <= _CAUGHT_UP

    @property
    def is_ready_for_handover(self) -> bool:
        """Say whether a running owner may hand the task over to this copy.

        State on disk that the member does not tail falls further behind with everything that the owner writes. It
        counts only once a report says that the member tails it.
        """
        return self.is_caught_up and not self.on_disk


_CAUGHT_UP: Final = Readiness.CAUGHT_UP
COLD_COPY = Copy(Readiness.COLD)
CAUGHT_UP_COPY = Copy(Readiness.CAUGHT_UP, 0)
UNREPORTED = Copy(Readiness.UNKNOWN)
ASSUMED_RUNNING = Copy(Readiness.RUNNING)


def changelogs_of(group: Group, task_id: TaskId) -> list[Log]:
    """Return the changelogs of a task: none if the topology has dropped it, or if it is no name of a task."""
    name, _, partition = task_id.rpartition("_")
    for part in group.topology.subtopologies:
        if part.id == name and partition.isdecimal():
            return [(topic, int(partition)) for topic in part.changelog_topics]
    return []


def log_of(name: str, logs: list[Log]) -> Log | None:
    """Return which of a task's changelogs a report means: a position without a name is in the only one."""
    if name == "" and len(logs) == 1:
        return logs[0]
    return next((log for log in logs if log[0] == name), None)


def open_transactions(group: Group, soft: Soft) -> Mapping[Log, EndOffset]:
    """Return the ends of those changelog partitions of a group in which a transaction stays open, in order."""
    topics = {topic for part in group.topology.subtopologies for topic in part.changelog_topics}
    return dict(sorted([(log, end) for log, end in soft.end_offsets.items() if end.is_held_up and log[0] in topics]))


def open_transactions_of(group: Group, soft: Soft, task_id: TaskId) -> Mapping[Log, EndOffset]:
    """Return the ends of those changelogs of a task in which a transaction stays open."""
    ends = {log: soft.end_offsets.get(log) for log in changelogs_of(group, task_id)}
    return {log: end for log, end in ends.items() if end is not None and end.is_held_up}


def place_in_words(log: Log, end: EndOffset, now_ms: int) -> str:
    """Return where the transaction that stays open there begins, and for how long it has been seen open."""
    topic, partition = log
    open_ms = now_ms - (end.open_since_ms or 0)
    return f"offset {end.offset} of {topic}, partition {partition} (open for at least {duration(open_ms)})"


def end_after(
    before: EndOffset | None, offset: int, high_watermark: int, read_ms: int, topic_id: str = ""
) -> EndOffset:
    """Return the end of a changelog partition after another read; ``before`` is the end of the read before.

    A transaction is the same as long as it begins at the same offset: nothing else can be there.
    """
    log_end = max(offset, high_watermark)
    open_since_ms = None
    if log_end > offset:
        open_since_ms = read_ms
        if before is not None and before.offset == offset and before.open_since_ms is not None:
            open_since_ms = before.open_since_ms
    shrunk = before is not None and log_end < before.log_end
    topic_id = topic_id or (before.topic_id if before is not None else "")
    return EndOffset(offset, read_ms, shrunk, log_end - offset, open_since_ms, topic_id)


def measure_lag(
    report: TaskReport,
    at_ms: int,
    ends: PMap[Log, EndOffset],
    logs: list[Log],
    *,
    doubted: bool = False,
) -> tuple[int | None, bool]:
    """Return the lag of a reported copy (None: unknown), and whether its state is of another incarnation.

    ``ends`` are the offsets that the coordinator read. The lag is up to the larger of this end and the one that the
    member reports: logs only grow, so the smaller one is older, or does not show what lies behind an open transaction.
    A position beyond a log's end that was read after the report arrived cannot belong to this changelog. A position
    beyond an older end is just newer, so its lag is 0. If the copy's last report was of another incarnation
    (``doubted``), it stays so until its position lies within the log's end. What lasts longer is in ``doubts``.
    """
    if report.lost:
        return None, False
    if report.lag is not None:
        return report.lag, False
    if not report.positions:
        return None, False
    own_ends, behind, named = dict(report.end_offsets), 0, 0
    for name, position in report.positions:
        log = log_of(name, logs)
        end = ends.get(log) if log is not None else None
        own_end = own_ends.get(name)
        if end is not None:
            if end.shrunk or (position > end.log_end and (doubted or end.read_ms > at_ms)):
                return None, True
            behind += max(0, end.level_at - position, (own_end or 0) - position)
        elif own_end is not None:
            behind += max(0, own_end - position)
        else:
            return None, False
        named += log is not None
    is_whole = named == len(logs) or report.positions[0][0] == ""
    return (min(behind, WHOLE_MAX) if is_whole else None), False


def measured_report(
    report: TaskReport,
    before: MeasuredReport | None,
    now_ms: int,
    measurement: tuple[int | None, bool],
    *,
    is_new: bool = False,
) -> MeasuredReport:
    """Return the report to keep, with its lag, how fast the copy comes closer, and when it last did and read on.

    ``is_new``: without a report before, the member had nothing of the task.
    """
    lag, other = measurement
    if before is None:
        return MeasuredReport(report, now_ms, lag, other, now_ms, None, lag, now_ms, now_ms if is_new else 0)
    progress_ms, rate = before.progress_ms, before.rate
    least_lag, closer_ms = before.least_lag, before.closer_ms
    if report.role != before.report.role or (lag is not None and (least_lag is None or lag < least_lag)):
        least_lag, closer_ms = lag, now_ms
    if lag is not None and before.lag is not None and now_ms > before.at_ms:
        speed = (before.lag - lag) * 1000 / (now_ms - before.at_ms)
        rate = speed if rate is None else (rate + speed) / 2
        if abs(rate) < LEAST_RATE:
            rate = 0.0
    has_fallen, has_grown = _moved(before.report.positions, report.positions)
    if has_grown or _made_progress(report, lag, before):
        progress_ms = now_ms
    began_ms = now_ms if report.lost or has_fallen else before.began_ms
    return MeasuredReport(report, now_ms, lag, other, progress_ms, rate, least_lag, closer_ms, began_ms)


def _moved(before: Positions, now: Positions) -> tuple[bool, bool]:
    """Say whether the position in some changelog fell, as when a copy begins anew, and whether their sum grew."""
    if now == before:
        return False, False
    known, has_fallen, grown = dict(before), False, 0
    for name, offset in now:
        step = offset - known.pop(name, 0)
        has_fallen, grown = has_fallen or step < 0, grown + step
    return has_fallen, grown > sum(known.values())


def _made_progress(report: TaskReport, lag: int | None, before: MeasuredReport) -> bool:
    """Say whether a copy reads on though its position did not grow: its lag fell, or it is level.

    A copy that reads no faster than its changelog is written makes progress too, although it may never be level. It is
    kept as long as nobody waits for what it holds (``turns``): another member would have to start from the beginning,
    and is seldom faster.
    """
    if lag == 0 or before.lag == 0 or report.role != before.report.role:
        # A copy that was level until now has only just fallen behind, however old its last report is.
        return True
    return lag is not None and before.lag is not None and lag < before.lag


def is_acceptable_lag(lag: int | None, rate: float | None, config: GroupConfig) -> bool:
    """Say whether a lag is acceptable: in records, or in time if a rate is known. An unknown lag is not."""
    if lag is None:
        return False
    if lag <= config.acceptable_recovery_lag:
        return True
    limit = config.acceptable_catchup_ms
    return limit is not None and rate is not None and rate > 0 and lag * 1000 <= limit * rate


def is_still_level(measured: MeasuredReport, group: Group, now_ms: int) -> bool:
    """Say whether a copy counts as caught up although its changelog has grown since it reported its position.

    A copy that reported an end too, and was caught up, need not report at once what it has read since (protocol 4.10).
    When it does not within that time, it has read nothing, and its position counts as the present one.
    """
    is_told = bool(measured.report.end_offsets) and is_acceptable_lag(measured.lag, measured.rate, group.config)
    return is_told and now_ms - measured.at_ms <= group.position_age_max_ms


def level_in_ms(copy: Copy) -> int | None:
    """Return the estimated time until the copy reaches the end of its changelog; None if lag or rate is unknown.

    Use it to compare copies, and to choose when to look at one again: by then the copy counts as caught up under any
    settings. People are shown ``caught_up_in_ms``: when a copy may take over at the earliest.
    """
    if copy.readiness is Readiness.RUNNING:
        return 0
    if copy.lag is None or copy.rate is None or copy.rate <= 0:
        return 0 if copy.lag == 0 else None
    return min(int(copy.lag * 1000 / copy.rate), WHOLE_MAX)


def caught_up_in_ms(copy: Copy, config: GroupConfig) -> int | None:
    """Return the estimated time until the copy counts as caught up: 0 if it does.

    None if lag or rate is unknown, and for state on a disk that the member does not read on.
    """
    if copy.is_caught_up:
        return 0
    if copy.on_disk or copy.lag is None or copy.rate is None or copy.rate <= 0:
        return None
    within = copy.lag - config.acceptable_recovery_lag
    soon_ms = within * 1_000 / copy.rate
    if config.acceptable_catchup_ms is not None:
        soon_ms = min(soon_ms, copy.lag * 1_000 / copy.rate - config.acceptable_catchup_ms)
    return min(max(0, int(soon_ms)), WHOLE_MAX)


def _copy_by_lag(measured: MeasuredReport, config: GroupConfig, *, on_disk: bool) -> Copy:
    lag = measured.lag
    if measured.report.lost:
        return COLD_COPY
    if lag == 0 and measured.rate is None and not on_disk:
        # Lag 0 satisfies every setting. Most copies report it, so they share this value.
        return CAUGHT_UP_COPY
    if lag is None:
        return Copy(Readiness.UNKNOWN, None, on_disk)
    readiness = Readiness.CAUGHT_UP if is_acceptable_lag(lag, measured.rate, config) else Readiness.BEHIND
    return Copy(readiness, lag, on_disk, measured.rate)


def copy_as_reported(group: Group, member_soft: MemberSoft | None, task: Task, member: Member) -> Copy:
    """Return what ``member`` has of ``task``, given its soft state.

    State on disk that the member does not tail is marked ``on_disk``: whether it counts as caught up depends on who
    else has the task.
    """
    task_id = task.id
    grant = member.assignment.get(task_id)
    if grant is not None and grant.role is ACTIVE and task.state is RUNNING:
        return ASSUMED_RUNNING
    measured = member_soft.reports.get(task_id) if member_soft is not None else None
    if grant is None:
        if measured is None or task_id in member.revoking:
            return COLD_COPY
        return _copy_by_lag(measured, group.config, on_disk=True)
    if grant.role is ACTIVE:
        return _active_copy(group, task, measured, reported=member_soft is not None and member_soft.full)
    if member.suspected or member_soft is None:
        # The member may be dead, and its last report outdated: it is handed nothing, and none of its copies is dropped.
        return UNREPORTED
    had_all = task.handover.previous_owner == member.id and member_soft.full
    if had_all and (measured is None or (measured.lag is None and not measured.report.lost)):
        # The member ran the task until it gave it up, so it had all state. Its next report with a lag counts instead.
        return CAUGHT_UP_COPY
    if measured is None:
        return COLD_COPY if member_soft.full else UNREPORTED
    # The last report may be from before the member was told to tail the copy: its role is then "none".
    return _copy_by_lag(measured, group.config, on_disk=measured.report.role == "none")


def _active_copy(group: Group, task: Task, measured: MeasuredReport | None, *, reported: bool) -> Copy:
    if task.state is LOST:
        return COLD_COPY
    if not reported:
        return ASSUMED_RUNNING
    if measured is None or measured.report.role != ACTIVE:
        if task.ready_grant:
            return Copy(Readiness.CAUGHT_UP, None if measured is None else measured.lag)
        return COLD_COPY if measured is None else _copy_by_lag(measured, group.config, on_disk=False)
    if measured.lag is None and task.ready_grant and task.state is not FAILED:
        return Copy(Readiness.CAUGHT_UP)
    return _copy_by_lag(measured, group.config, on_disk=False)
