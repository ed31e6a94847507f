"""State of a changelog that was deleted and made again: it is never promoted until it is restored from the start.

Nothing but the copy itself can tell such state from good state once the new changelog has grown past its position. So a
doubt is a fact of the group (``Member.doubts``), which time does not remove: it lasts until the copy's position falls,
its member says ``lost``, or it holds nothing of the task any more. A later run of the same instance inherits it.

These raise a doubt, when the coordinator reads the end of a changelog:

| what is read | the doubted copies |
|---|---|
| the topic has another id (KIP-516); or its end fell, and ids are not known | all but those that began anew since |
| the end fell, and the topic has the same id: its last records are lost | those with a position beyond the end |
| the end lies below a position that was reported before, in two reads | that copy |

One read below a position only makes the lag unknown: the read may have been the older of the two.
"""

from collections.abc import Mapping

from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.lag import log_of
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Join
from batonpass.core.state.model import Member
from batonpass.core.state.soft import EndOffset, Log, MeasuredReport, Positions, TaskReport


def is_doubted(member: Member, task_id: TaskId, report: TaskReport) -> bool:
    """Say whether the copy is doubted, and this report does not end that."""
    at = member.doubts.get(task_id)
    return at is not None and outlasts(at, report)


def outlasts(doubted: Positions, report: TaskReport) -> bool:
    """Say whether a doubt of a copy at these positions goes on after a report: no position fell, nothing is lost."""
    now = dict(report.positions)
    return not report.lost and all(now.get(name, offset) >= offset for name, offset in doubted)


def end_doubts(draft: DecisionDraft, member_id: MemberId, reports: Mapping[TaskId, MeasuredReport]) -> None:
    """Trust each doubted copy of a member again that its full report shows to have begun anew, or to be no more."""
    member = draft.group.members[member_id]
    over = tuple(
        task_id
        for task_id in sorted(member.doubts)
        if task_id not in reports or not is_doubted(member, task_id, reports[task_id].report)
    )
    if over:
        draft.record(r.StateTrusted(member_id, over))


def inherit_doubts(draft: DecisionDraft, item: Join) -> None:
    """Doubt the state on a newcomer's disk that was doubted when the runs before it went."""
    doubted: dict[TaskId, Positions] = {}
    # Few of them had any: there may be tens of thousands, and each join asks.
    before = [
        gone
        for member_id, gone in draft.group.gone.items()
        if gone.doubts
        and (member_id == item.replaces or (gone.instance_id is not None and gone.instance_id == item.instance_id))
    ]
    for gone in sorted(before, key=lambda one: one.at_ms):
        doubted |= gone.doubts
    kept = {
        task_id: at
        for task_id, at in sorted(doubted.items())
        if task_id in item.tasks and outlasts(at, item.tasks[task_id])
    }
    if kept:
        draft.record(r.StateDoubted(item.member_id, kept))


def is_to_be_doubted(
    measured: MeasuredReport, logs: list[Log], before: Mapping[Log, EndOffset], read: Mapping[Log, EndOffset]
) -> bool:
    """Say whether what was read raises a doubt of a copy (the table above). ``before`` has the reads before."""
    for name, position in measured.report.positions:
        log = log_of(name, logs)
        if log is None or (now := read.get(log)) is None:
            continue
        known = before.get(log)
        if known is not None and _is_made_anew(known, now) and measured.began_ms < known.read_ms:
            return True
        if position > now.log_end and (now.shrunk or measured.other_incarnation):
            return True
    return False


def _is_made_anew(before: EndOffset, after: EndOffset) -> bool:
    return before.topic_id != after.topic_id if before.topic_id else after.shrunk
