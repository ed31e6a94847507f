"""How the measured load of a group lies on its members, and which tasks would move for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Group
from batonpass.core.state.policy import BalanceBy
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
        imbalance: by how much the highest of them is above the average: 0.25 is a quarter.
        members_needed: how many members of average capacity all of it would fill.
        hottest: the task with the highest load.
        hottest_share: its load, as a share of the capacity of the largest member.
    """

    by_member: Mapping[MemberId, float]
    imbalance: float
    members_needed: float
    hottest: TaskId
    hottest_share: float


def load_status(group: Group) -> LoadStatus | None:
    """Return how the load lies; None while nothing is measured, or there is no member to have it."""
    if group.config.balance_by is BalanceBy.DECLARED or not group.loads or not group.members:
        return None
    by = by_measured(group)
    by_member = loads_by_member(by)
    capacities = [member.capacity for member in group.members.values()]
    weight, hottest = max(zip(by.table.weight, by.table.ids, strict=True), key=lambda one: one[0])
    return LoadStatus(
        by_member=by_member,
        imbalance=imbalance(by, by_member),
        members_needed=sum(by.table.weight) * len(capacities) / sum(capacities),
        hottest=hottest,
        hottest_share=weight / max(capacities),
    )


def moves_for_load(view: View, solver: Solver) -> dict[TaskId, MemberId]:
    """Return what would move for load if it had been as it is for long enough, in order, each with its new owner."""
    group, found = view.group, load_status(view.group)
    if found is None or found.imbalance <= group.config.load_imbalance:
        return {}
    plan = try_to_plan(View(by_measured(group), view.soft, view.now_ms), solver, plan_for_load)
    return {} if plan is None or isinstance(plan, str) else moved_by(group, plan)
