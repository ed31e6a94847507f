"""How the measured load of a group lies on its members, and which tasks would move for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Group
from batonpass.core.state.policy import BalanceBy
from batonpass.core.state.soft import MemberSoft, Soft
from batonpass.core.target.load import by_measured, imbalance, loads_by_member, moved_by, plan_for_load
from batonpass.core.target.retarget import try_to_plan
from batonpass.placement.flow import Solver

TOO_HOT_ALONE: Final = 0.9
"""Of the largest member: a task that takes more of it is as much as one member can do, wherever it runs."""


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """How the measured load lies on the members of a group.

    Attributes:
        by_member: of each member, per unit of its capacity; none of one that drains.
        standbys: what the standbys of each member use, as it was said last, per unit of capacity; only where it was.
        imbalance: by how much the highest of ``by_member`` is above the average: 0.25 is a quarter.
        members_needed: how many members of average capacity all of it would fill, with the standbys.
        standbys_need: the part of it that standbys would fill.
        hottest: the task with the highest load.
        hottest_share: its load, as a share of the capacity of the largest member.
    """

    by_member: Mapping[MemberId, float]
    standbys: Mapping[MemberId, float]
    imbalance: float
    members_needed: float
    standbys_need: float
    hottest: TaskId
    hottest_share: float


def load_status(group: Group, soft: Soft) -> LoadStatus | None:
    """Return how the load lies; None while nothing is measured, or there is no member to have it."""
    if group.config.balance_by is BalanceBy.DECLARED or not group.loads or not group.members:
        return None
    by = by_measured(group)
    by_member = loads_by_member(by)
    capacities = [member.capacity for member in group.members.values()]
    of_standbys = {
        member_id: said
        for member_id, known in soft.members.items()
        if member_id in group.members and (said := _of_standbys(known))
    }
    standbys_need = sum(of_standbys.values()) * len(capacities) / sum(capacities)
    weight, hottest = max(zip(by.table.weight, by.table.ids, strict=True), key=lambda one: one[0])
    return LoadStatus(
        by_member=by_member,
        standbys={member_id: said / group.members[member_id].capacity for member_id, said in of_standbys.items()},
        imbalance=imbalance(by, by_member),
        members_needed=sum(by.table.weight) * len(capacities) / sum(capacities) + standbys_need,
        standbys_need=standbys_need,
        hottest=hottest,
        hottest_share=weight / max(capacities),
    )


def _of_standbys(known: MemberSoft) -> float:
    reports = (measured.report for measured in known.reports.values())
    return sum(report.load for report in reports if report.role == "standby" and report.load is not None)


def moves_for_load(view: View, solver: Solver) -> dict[TaskId, MemberId]:
    """Return what would move for load if it had been as it is for long enough, in order, each with its new owner."""
    group, found = view.group, load_status(view.group, view.soft)
    if found is None or found.imbalance <= group.config.load_imbalance:
        return {}
    plan = try_to_plan(View(by_measured(group), view.soft, view.now_ms), solver, plan_for_load)
    return {} if plan is None or isinstance(plan, str) else moved_by(group, plan)
