"""Where a group stands, for tests that have no coordinator."""

from __future__ import annotations

from batonpass.core.handover.planner import plan_step
from batonpass.core.handover.view import View
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import Soft
from batonpass.explain.status import GroupStatus, status_of


def describe_group(group: Group, soft: Soft, now_ms: int, policy: Policy) -> GroupStatus:
    """Return where the group stands at ``now_ms``."""
    view = View(group, soft, now_ms, policy)
    return status_of(view, plan_step(view).held)
