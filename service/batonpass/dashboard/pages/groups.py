"""All groups, those that need attention first; and one group: its health, its moves, their end, and its copies."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from batonpass.client import Refused, path
from batonpass.dashboard.pages.group_state import GroupState, group_state
from batonpass.dashboard.request_context import RequestContext
from batonpass.dashboard.view_models.events import event_lines
from batonpass.dashboard.view_models.grid import LEGEND, LISTED_MAX, listing
from batonpass.dashboard.view_models.health import group_line, health, lease_over, stuck_tasks, worst_first

PAGE: Final = 200
EXPLAINED_MAX: Final = 40
"""How many groups that are not at rest are asked for an explanation; for the others the list says enough."""

EVENTS_SHOWN: Final = 12
WARMUPS_SHOWN: Final = 8
STUCK_SHOWN: Final = 8


async def show_groups(context: RequestContext) -> Response:
    """Show every group with its health."""
    if context.session.bound_to:
        return RedirectResponse(context.dashboard.config.root_path + path("groups", context.session.bound_to), 303)
    after = context.asked("after")
    listed = await context.client.get("/groups", limit=PAGE, after=after)
    groups = listed["groups"]
    busy = [one["group"] for one in groups if one["state"] != "at-rest"][:EXPLAINED_MAX]
    found = await asyncio.gather(*(_explained(context, name) for name in busy))
    explained = dict(zip(busy, found, strict=True))
    lines = worst_first([group_line(one, explained.get(one["group"]), context.client.names) for one in groups])
    return context.show("groups.html", title="Groups", lines=lines, next=listed["next"], after=after)


async def _explained(context: RequestContext, group: str) -> dict[str, Any] | None:
    """Return the explanation of a group; None if it was deleted just now."""
    try:
        found: dict[str, Any] = await context.client.get(path("groups", group, "explain"), limit=1)
    except Refused:
        return None
    return found


async def show_group(context: RequestContext) -> Response:
    """Show a group."""
    seen, explained, events = await asyncio.gather(
        group_state(context),
        context.client.get(context.at("explain"), limit=100),
        context.client.newest_events(context.group, limit=EVENTS_SHOWN),
    )
    names = context.client.names
    found = health(
        explained,
        names,
        members=seen.group["members"],
        tasks=seen.group["tasks"],
        lease_over_at=lease_over(seen.members, seen.group["config"]),
    )
    return context.show(
        "group.html",
        title=context.group,
        tab="group",
        seen=seen,
        explained=explained,
        health=found,
        stuck=stuck_tasks(explained, names)[:STUCK_SHOWN],
        event_lines=event_lines(events["events"], names),
        warmups=seen.warmups[:WARMUPS_SHOWN],
        warmups_more=max(len(seen.warmups) - WARMUPS_SHOWN, 0),
        **grid_context(seen),
    )


def grid_context(seen: GroupState) -> dict[str, Any]:
    """Return what the grid of a group needs: a matrix if it is readable, else tiles."""
    shown = seen.matrix()
    is_listed = shown is None and len(seen.tasks) <= LISTED_MAX
    rows = listing(seen.tasks, seen.copies) if is_listed else []
    return {"matrix": shown, "rows": rows, "tally": seen.tally(), "legend": LEGEND}
