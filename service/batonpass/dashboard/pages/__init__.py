"""The pages: each calls the coordinator, has a view model made from the answers, and renders a template."""

from collections.abc import Mapping
from typing import Final

from batonpass.dashboard.pages.audits import show_audit, show_audits
from batonpass.dashboard.pages.grid import find, show_grid, show_warmups
from batonpass.dashboard.pages.groups import show_group, show_groups
from batonpass.dashboard.pages.history import show_events, show_gaps, show_generation, show_generations, show_trail
from batonpass.dashboard.pages.members import show_member, show_members
from batonpass.dashboard.pages.plan import show_plan
from batonpass.dashboard.pages.tasks import show_task, show_timeline
from batonpass.dashboard.request_context import Page
from batonpass.dashboard.runbooks import show_runbook

PAGES: Final[Mapping[str, Page]] = {
    "/": show_groups,
    "/audits": show_audits,
    "/audits/{day}": show_audit,
    "/groups/{group}": show_group,
    "/groups/{group}/grid": show_grid,
    "/groups/{group}/find": find,
    "/groups/{group}/warmups": show_warmups,
    "/groups/{group}/members": show_members,
    "/groups/{group}/members/{member}": show_member,
    "/groups/{group}/tasks/{task}": show_task,
    "/groups/{group}/timeline": show_timeline,
    "/groups/{group}/gaps": show_gaps,
    "/groups/{group}/generations": show_generations,
    "/groups/{group}/generations/{number}": show_generation,
    "/groups/{group}/events": show_events,
    "/groups/{group}/trail": show_trail,
    "/groups/{group}/plan": show_plan,
    "/groups/{group}/audits": show_audits,
    "/groups/{group}/audits/{day}": show_audit,
    "/runbooks/{runbook}": show_runbook,
}
"""Every page by its path."""
