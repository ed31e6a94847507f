"""One task, and which member owned which task when."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from starlette.responses import Response

from batonpass.dashboard.request_context import RequestContext
from batonpass.dashboard.view_models.grid import natural, tasks_of
from batonpass.dashboard.view_models.timeline import axis, axis_of, lane, look_of, stretch

LANES: Final = 16
HISTORY: Final = 100
RUNS: Final = 20
SORTS: Final = ("what changed last", "name")
"""By what the tasks of the timeline can be sorted."""


async def show_task(context: RequestContext) -> Response:
    """Show a task: where it is, why, what it waits for, its copies, and who had it before."""
    name = str(context.request.path_params["task"])
    task = await context.client.get(context.at("tasks", name), limit=HISTORY)
    have = (
        task["owner"],
        task["target"],
        task["pin"],
        *(one["member"] for one in task["copies"]),
    )
    order = await _order(context, [task], have)
    along = axis_of(task["runs"], context.now, context.zone)
    return context.show(
        "task.html",
        title=name,
        task=task,
        runs=context.part(task["runs"], RUNS),
        history=HISTORY,
        lane=lane(name, task["runs"], along, order, context.client.names),
        owners=[(look_of(member, order), member) for member in order],
        axis=along,
    )


async def show_timeline(context: RequestContext) -> Response:
    """Show which member owned which task when, some tasks a page, on one axis."""
    group, events = await asyncio.gather(context.client.get(context.at()), context.client.newest_events(context.group))
    text, by = context.asked("q"), context.asked("sort")
    known = [one for one in tasks_of(group["topology"]) if text in one]
    by = by if by in SORTS else SORTS[0]
    last = {one["task"]: -one["position"] for one in reversed(events["events"]) if one["task"]}
    tasks = context.part(known if by == SORTS[1] else sorted(known, key=lambda one: last.get(one, 0)), LANES)
    span, begin, end = stretch(context.asked("span"), context.asked("until"), context.now)
    found = await asyncio.gather(
        *(context.client.get(context.at("tasks", one), limit=HISTORY) for one in tasks.entries)
    )
    along = axis(begin, end, context.zone)
    order = await _order(context, found)
    return context.show(
        "timeline.html",
        lanes=[lane(one["task"], one["runs"], along, order, context.client.names) for one in found],
        owners=[(look_of(member, order), member) for member in order],
        axis=along,
        span=span,
        live="until" not in context.request.query_params,
        tasks=tasks,
        q=text,
        sort=by,
        sorts=SORTS,
    )


async def _order(context: RequestContext, tasks: Sequence[Any], more: Iterable[str | None] = ()) -> list[str]:
    """Return the members that ran some tasks in an order that fixes their colours; learn the names of ``more``, too."""
    ran = {run["member"] for task in tasks for run in task["runs"]}
    await context.client.know(context.group, {*ran, *more})
    return sorted(ran, key=lambda member: (natural(context.client.names(member)), member))
