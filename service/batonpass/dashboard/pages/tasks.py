"""One task, and who owned which task when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from starlette.responses import Response

from batonpass.dashboard.desk import Visit
from batonpass.dashboard.shapes.grid import tasks_of
from batonpass.dashboard.shapes.timeline import SPANS, axis, axis_of, lane

LANES: Final = 16
HISTORY: Final = 100
SPAN_USUAL: Final = "30 min"


async def show_task(visit: Visit) -> Response:
    """Show a task: where it is, why, what it waits for, its copies, and who had it before."""
    name = str(visit.request.path_params["task"])
    task, _ = await asyncio.gather(
        visit.line.get(visit.at("tasks", name), limit=HISTORY), visit.line.members(visit.group)
    )
    along = axis_of(task["runs"], datetime.now(UTC))
    order = _order([task])
    return visit.show(
        "task.html",
        title=name,
        tab="grid",
        task=task,
        lane=lane(name, task["runs"], along, order, visit.line.names),
        axis=along,
    )


async def show_timeline(visit: Visit) -> Response:
    """Show who owned which task when, some tasks a page, on one axis."""
    group, _ = await asyncio.gather(visit.line.get(visit.at()), visit.line.members(visit.group))
    tasks = tasks_of(group["topology"])
    begin = visit.asked_number("begin", 0, most=max(len(tasks) - 1, 0))
    length = visit.asked("span", SPAN_USUAL)
    shown = tasks[begin : begin + LANES]
    found = await asyncio.gather(*(visit.line.get(visit.at("tasks", one), limit=HISTORY) for one in shown))
    now = datetime.now(UTC)
    along = axis(now - SPANS.get(length, SPANS[SPAN_USUAL]), now)
    order = _order(found)
    return visit.show(
        "timeline.html",
        title="Timeline",
        tab="timeline",
        lanes=[lane(one["task"], one["runs"], along, order, visit.line.names) for one in found],
        owners=[(f"own-{place % 8}", member) for place, member in enumerate(order)],
        axis=along,
        spans=list(SPANS),
        span=length if length in SPANS else SPAN_USUAL,
        begin=begin,
        page=LANES,
        total=len(tasks),
    )


def _order(tasks: list[Mapping[str, Any]]) -> list[str]:
    """Return the members of some tasks' runs in a fixed order, which gives each its colour."""
    return sorted({run["member"] for task in tasks for run in task["runs"]})
