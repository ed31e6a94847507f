"""One group: how it is, why, what moves, when that is over, and who has what."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from batonpass.dashboard.desk import Visit
from batonpass.dashboard.pages.looking import Board, board
from batonpass.dashboard.shapes.grid import LEGEND, LISTED_MAX, listing
from batonpass.dashboard.shapes.happenings import happenings
from batonpass.dashboard.shapes.health import health, lease_over, stuck_tasks

EVENTS_SHOWN: Final = 12
WARMUPS_SHOWN: Final = 8
STUCK_SHOWN: Final = 8


async def show_group(visit: Visit) -> Response:
    """Show a group."""
    seen, explained, events = await asyncio.gather(
        board(visit),
        visit.line.get(visit.at("explain"), limit=100),
        visit.line.get(visit.at("events"), newest="true", limit=EVENTS_SHOWN),
    )
    names = visit.line.names
    found = health(
        explained,
        names,
        members=seen.group["members"],
        tasks=seen.group["tasks"],
        lease_over_at=lease_over(seen.members, seen.group["config"]),
    )
    return visit.show(
        "group.html",
        title=visit.group,
        tab="group",
        seen=seen,
        explained=explained,
        health=found,
        stuck=stuck_tasks(explained, names)[:STUCK_SHOWN],
        happenings=happenings(events["events"], names),
        warmups=seen.warmups[:WARMUPS_SHOWN],
        warmups_more=max(len(seen.warmups) - WARMUPS_SHOWN, 0),
        **grid_context(seen),
    )


def grid_context(seen: Board) -> dict[str, Any]:
    """Return what the grid of a group needs: a matrix where one can be read, else tiles."""
    shown = seen.matrix()
    is_listed = shown is None and len(seen.tasks) <= LISTED_MAX
    rows = listing(seen.tasks, seen.copies) if is_listed else []
    return {"matrix": shown, "rows": rows, "tally": seen.tally(), "legend": LEGEND}
