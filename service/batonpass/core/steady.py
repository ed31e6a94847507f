"""The heartbeat that says again, word for word, what the last one said: most of all heartbeats, and the cheapest.

Members at rest repeat themselves for hours. Such a report changes nothing about any copy, so none of them is looked
at: what was found by the last one holds. The rule is one of values, not of time or chance, so that a decision made
again comes out the same (L10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from batonpass.core.answers import is_awaited
from batonpass.core.model import ActiveState, Group, Member
from batonpass.core.replies import Answer
from batonpass.core.soft import MemberSoft, Report, Soft, TaskReport
from batonpass.core.topology import is_ready

if TYPE_CHECKING:
    from batonpass.core.ids import TaskId
    from batonpass.core.inputs import Heartbeat
    from batonpass.core.policy import GroupConfig, Policy


def is_steady(reports: Mapping[TaskId, Report], config: GroupConfig) -> bool:
    """Say whether saying the same again would say nothing: actives run, copies are caught up in records."""
    limit = config.acceptable_recovery_lag
    for report in reports.values():
        said = report.said
        if said.lost or report.other_incarnation:
            return False
        if said.role == "active":
            if said.state is not ActiveState.RUNNING:
                return False
        elif report.lag is None or report.lag > limit:
            return False
    return True


def answer_to_repeated(
    group: Group, soft: Soft, item: Heartbeat, now_ms: int, policy: Policy
) -> tuple[Soft, Answer] | None:
    """Return soft state and answer for a heartbeat that repeats the last one; None when it has to be looked into."""
    member, heard = group.members.get(item.member_id), soft.members.get(item.member_id)
    if member is None or heard is None or heard.steady_at != (member.epoch, group.revision):
        return None
    if item.seq <= heard.seq or not item.member_epoch == member.epoch == heard.echoed or item.unknown_fields:
        return None
    if soft.wake_ms is not None and now_ms - soft.wake_ms > policy.coordinator_lease_ms:
        return None  # The coordinator was silent itself, which is judged first (L5).
    if len(heard.reports) > policy.max_tasks_per_heartbeat or is_awaited(group, soft, member.id):
        return None
    if not (_is_ordinary(group, member, heard, now_ms) and _repeats(heard, item.tasks)):
        return None
    config = group.config
    # Spelled out, because `replace` costs more than all of the rest.
    kept = MemberSoft(
        now_ms,
        item.seq,
        heard.echoed,
        heard.full,
        heard.timeouts,
        heard.reports,
        heard.poll_broken_ms,
        heard.tails_all,
        heard.level_at,
        heard.steady_at,
        heard.said,
    )
    after = Soft(
        soft.started_ms,
        soft.judge_from_ms,
        soft.members.having(member.id, kept),
        soft.end_offsets,
        soft.begin_offsets,
        soft.wake_ms,
        soft.bound_target,
        soft.rest,
        soft.goodbyes,
        soft.agenda,
    )
    reply = Answer(
        member_id=member.id,
        seq=item.seq,
        member_epoch=member.epoch,
        generation=group.generation,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        session_timeout_ms=config.session_timeout_ms,
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        acceptable_catchup_ms=config.acceptable_catchup_ms,
        report=None,
        assignment=None,
    )
    return after, reply


def _is_ordinary(group: Group, member: Member, heard: MemberSoft, now_ms: int) -> bool:
    """Whether nothing is going on that an answer would have to tell, or that a heartbeat could end."""
    return (
        member.away_until_ms is None
        and member.drain is None
        and not member.suspected
        and not member.revoking
        and heard.poll_broken_ms is None
        and heard.timeouts[-1:] == ((member.epoch, group.config.session_timeout_ms),)
        and group.pause is None
        and group.recovering_until_ms <= now_ms
        and member.topology_epoch >= group.table.newest_epoch
        and is_ready(group.topology)
    )


def _repeats(heard: MemberSoft, tasks: Mapping[TaskId, TaskReport] | None) -> bool:
    if tasks is None or tasks is heard.said:
        return tasks is not None
    reports = heard.reports
    if len(tasks) != len(reports):
        return False
    for task_id, said in tasks.items():
        report = reports.get(task_id)
        if report is None or report.said != said:
            return False
    return True
