"""Where a group stands, for tests that have no coordinator."""

from batonpass.core.handover.step import plan_step
from batonpass.core.handover.view import View
from batonpass.explain.status import GroupStatus, status_of


def describe_group(view: View) -> GroupStatus:
    """Return where the group stands."""
    return status_of(view, plan_step(view).held)
