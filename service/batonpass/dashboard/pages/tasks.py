"""One task, and which member owned which task when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from starlette.responses import Response

from batonpass.dashboard.request_context import RequestContext
from batonpass.dashboard.view_models.generations import because
from batonpass.dashboard.view_models.grid import natural, tasks_of
from batonpass.dashboard.view_models.timeline import SPANS, axis, axis_of, lane, look_of, stretch
from batonpass.dashboard.words import Names

LANES: Final = 16
HISTORY: Final = 100
RUNS: Final = 20
EVENTS_SEARCHED: Final = 1_000
SORTS: Final = ("what changed last", "name")
"""By what the tasks of the timeline can be sorted."""


async def show_task(context: RequestContext) -> Response:
    """Show a task: where it is, why, what it waits for, its copies, and who had it before."""
    name = str(context.request.path_params["task"])
    task, members, _ = await asyncio.gather(
        context.client.get(context.at("tasks", name), limit=HISTORY),
        context.client.members(context.group),
        context.client.newest_events(context.group, limit=EVENTS_SEARCHED),
    )
    along = axis_of(task["runs"], datetime.now(UTC), context.zone)
    order = _order([task], members, context.client.names)
    return context.show(
        "task.html",
        title=name,
        tab="grid",
        task=task,
        runs=context.part(task["runs"], RUNS),
        history=HISTORY,
        lane=lane(name, task["runs"], along, order, context.client.names),
        owners=_owners([task], order),
        because=because,
        axis=along,
    )


async def show_timeline(context: RequestContext) -> Response:
    """Show which member owned which task when, some tasks a page, on one axis."""
    group, members, events = await asyncio.gather(
        context.client.get(context.at()),
        context.client.members(context.group),
        context.client.newest_events(context.group, limit=EVENTS_SEARCHED),
    )
    text, by = context.asked("q"), context.asked("sort")
    known = [one for one in tasks_of(group["topology"]) if text in one]
    by = by if by in SORTS else SORTS[0]
    last = {one["task"]: -one["position"] for one in reversed(events["events"]) if one["task"]}
    tasks = context.part(known if by == SORTS[1] else sorted(known, key=lambda one: last.get(one, 0)), LANES)
    span, begin, end = stretch(context.asked("span"), context.asked("until"), datetime.now(UTC))
    found = await asyncio.gather(
        *(context.client.get(context.at("tasks", one), limit=HISTORY) for one in tasks.entries)
    )
    along = axis(begin, end, context.zone)
    order = _order(found, members, context.client.names)
    return context.show(
        "timeline.html",
        title="Timeline",
        tab="timeline",
        lanes=[lane(one["task"], one["runs"], along, order, context.client.names) for one in found],
        owners=_owners(found, order),
        axis=along,
        spans=SPANS,
        span=span,
        live="until" not in context.request.query_params,
        tasks=tasks,
        q=text,
        sort=by,
        sorts=SORTS,
    )


def _order(tasks: list[Mapping[str, Any]], members: list[dict[str, Any]], names: Names) -> list[str]:
    """Return the members that ran some tasks, and the present ones, in a fixed order, which fixes their colours."""
    found = {run["member"] for task in tasks for run in task["runs"]} | {one["member_id"] for one in members}
    return sorted(found, key=lambda member: (natural(names(member)), member))


def _owners(tasks: list[Mapping[str, Any]], order: list[str]) -> list[tuple[str, str]]:
    """Return the members that ran some tasks, each with its colour."""
    ran = {run["member"] for task in tasks for run in task["runs"]}
    return [(look_of(member, order), member) for member in order if member in ran]
