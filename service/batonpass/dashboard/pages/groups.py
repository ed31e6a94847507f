"""All groups, those that need attention first; and one group: its health, its moves, their end, and its copies."""

import asyncio
from typing import Final

from starlette.responses import RedirectResponse, Response

from batonpass.client import path
from batonpass.dashboard.pages.group_state import group_state, lags
from batonpass.dashboard.request_context import LISTED, RequestContext
from batonpass.dashboard.view_models.events import event_lines
from batonpass.dashboard.view_models.grid import LISTED_MAX, TONE_WORDS, rows_of
from batonpass.dashboard.view_models.timeline import axis, stretch
from batonpass.dashboard.view_models.trend import said, trend
from batonpass.dashboard.words import LEVEL_NAMES, count, counted
from batonpass.group_words import STANDING_STILL, further, health_of, only_named, worst_first

EVENTS_SHOWN: Final = 12
DRAWN: Final = 200
"""How many of the newest events are drawn along the axis."""

WARMUPS_SHOWN: Final = 8
STUCK_SHOWN: Final = 8


async def show_groups(context: RequestContext) -> Response:
    """Show every group with its health, the worst first, and those that nobody has deployed apart."""
    if context.session.bound_to:
        return RedirectResponse(context.dashboard.config.root_path + path("groups", context.session.bound_to), 303)
    level, name = context.asked("level"), context.asked("name")
    groups = await context.client.pages("/groups", "groups")
    levels = counted(LEVEL_NAMES, (one["health"]["level"] for one in worst_first(groups, name=name)))
    found = worst_first(groups, level, name)
    worst, called, amount = levels[0] if levels else ("", "", 0)
    return context.show(
        "groups.html",
        title="Groups",
        now=next((one["health"]["at"] for one in found), None),
        total=len(groups),
        groups=found,
        health_level=worst,
        headline=f"{count(amount, 'group')}: {called.lower()}" if worst else "",
        in_lines=only_named(found),
        levels=levels,
        level=level,
        name=name,
    )


async def show_group(context: RequestContext) -> Response:
    span, begin, end = stretch(context.asked("span"), context.asked("until"), context.now)
    seen, explained, lagging, events = await asyncio.gather(
        group_state(context),
        context.client.get(context.at("explain"), limit=LISTED),
        lags(context, begin, end),
        context.client.newest_events(context.group),
    )
    names, warmups = context.client.names, seen.warmups(events["events"], context.now)
    drawn = events["events"][:DRAWN]
    along = axis(begin, end, context.zone)
    marks = trend(drawn, lagging, along, names)
    worst_states = list(STANDING_STILL)
    stuck = [one for one in explained["waiting"] if one["state"] in STANDING_STILL]
    stuck.sort(key=lambda one: worst_states.index(one["state"]))
    health = health_of(explained)
    still = sum(amount for state, amount in health["tasks"].items() if state in STANDING_STILL)
    return context.show(
        "group.html",
        title=context.group,
        now=health["at"],
        seen=seen,
        explained=explained,
        health=health,
        health_level=health["level"],
        headline=f"{LEVEL_NAMES[health['level']]}: {health['sentence']}",
        reasons=[names.within(one) for one in further(explained)],
        stuck=stuck[:STUCK_SHOWN],
        stuck_more=max(still - STUCK_SHOWN, 0),
        event_lines=event_lines(events["events"][:EVENTS_SHOWN], names),
        marks=marks,
        shows=said(marks),
        axis=along,
        known_since=drawn[-1]["at"] if events["more"] or len(events["events"]) > DRAWN else None,
        span=span,
        warmups=warmups[:WARMUPS_SHOWN],
        warmups_more=max(len(warmups) - WARMUPS_SHOWN, 0),
        is_matrix=seen.fits,
        rows=rows_of(seen.tasks, seen.copies, seen.target) if seen.fits or len(seen.tasks) <= LISTED_MAX else [],
        tally=counted(TONE_WORDS, seen.tones.values()),
    )
