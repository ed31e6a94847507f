"""All groups, those that need somebody first."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from batonpass.client import Refused, path
from batonpass.dashboard.desk import Visit
from batonpass.dashboard.shapes.health import group_line, worst_first

PAGE: Final = 200
EXPLAINED_MAX: Final = 40
"""So many groups that are not at rest are asked what is the matter; of the others the list itself says enough."""


async def show_groups(visit: Visit) -> Response:
    """Show every group with how it is."""
    if visit.session.bound_to:
        return RedirectResponse(visit.desk.config.root_path + path("groups", visit.session.bound_to), 303)
    after = visit.asked("after")
    listed = await visit.line.get("/groups", limit=PAGE, after=after)
    groups = listed["groups"]
    busy = [one["group"] for one in groups if one["state"] != "at-rest"][:EXPLAINED_MAX]
    found = await asyncio.gather(*(_explained(visit, name) for name in busy))
    explained = dict(zip(busy, found, strict=True))
    lines = worst_first([group_line(one, explained.get(one["group"]), visit.line.names) for one in groups])
    return visit.show("groups.html", title="Groups", lines=lines, next=listed["next"], after=after)


async def _explained(visit: Visit, group: str) -> dict[str, Any] | None:
    """Return what a group says of itself; nothing where it was deleted just now."""
    try:
        found: dict[str, Any] = await visit.line.get(path("groups", group, "explain"), limit=1)
    except Refused:
        return None
    return found
