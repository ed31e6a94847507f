"""What members say of the load of their tasks: smoothed with each report, and compared with the recorded one at times.

Heartbeats are the clock: where nobody says anything, there is nothing to compare. So this needs no wake-up.
"""

from collections.abc import Mapping
from typing import Final

from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.state import records as r
from batonpass.core.state.ids import TaskId
from batonpass.core.state.loads import LEAST, SmoothedLoad, begun, has_left, least_load, step_of, weight_of_new
from batonpass.core.state.model import ActiveState, Member, Role
from batonpass.core.state.policy import BalanceBy
from batonpass.core.state.soft import MeasuredReport, MemberSoft

READ_SHARE: Final = 10
"""Loads are compared ten times in a half-life, for all tasks together: the weights of a group change as a whole."""


def smoothed_loads(
    draft: DecisionDraft, member: Member, known: MemberSoft, reports: Mapping[TaskId, MeasuredReport]
) -> Mapping[TaskId, SmoothedLoad]:
    """Return the loads of the actives that a member runs, after a report; ``known`` is what it had said before.

    A load holds from the heartbeat before on, and the last one went on until then.
    """
    group, now_ms, half_life_ms = draft.group, draft.now_ms, draft.group.config.load_half_life_ms
    if group.config.balance_by is BalanceBy.DECLARED:
        return {}
    loads: dict[TaskId, SmoothedLoad] = {}
    for task_id, measured in reports.items():
        report, grant = measured.report, member.assignment.get(task_id)
        is_running = report.role == "active" and report.state is ActiveState.RUNNING
        if report.load is None or not is_running or grant is None or grant.role is not Role.ACTIVE:
            continue
        before = known.loads.get(task_id)
        if before is None:
            loads[task_id] = begun(group.loads.get(task_id), now_ms, report.load)
        else:
            loads[task_id] = (
                before.until(known.heard_ms, half_life_ms)._replace(last=report.load).until(now_ms, half_life_ms)
            )
    return loads


def read_loads(draft: DecisionDraft) -> None:
    """Record the loads, if it is time to look and one of them has left its step."""
    group, now_ms, half_life_ms = draft.group, draft.now_ms, draft.group.config.load_half_life_ms
    if group.config.balance_by is BalanceBy.DECLARED:
        return
    if 0 <= now_ms - draft.soft.loads_read_ms < half_life_ms // READ_SHARE:
        return
    draft.soft = draft.soft._replace(loads_read_ms=now_ms)
    least, median, averages = least_load(group.loads), weight_of_new(group.loads) or LEAST, dict[TaskId, float]()
    for member_id, member_soft in draft.soft.members.items():
        for task_id, load in member_soft.loads.items():
            average = load.until(now_ms, half_life_ms).counted(median)
            if average is not None and group.task(task_id).owner == member_id:
                averages[task_id] = average
    if any(has_left(group.loads.get(task_id), average, least) for task_id, average in averages.items()):
        steps = {task_id: step_of(average, least) for task_id, average in sorted(averages.items())}
        draft.record(r.LoadsMeasured({one: step for one, step in steps.items() if step != group.loads.get(one)}))
