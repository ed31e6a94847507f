"""Looking back: generations, handovers, events, and the audit trail."""

import asyncio
from typing import Any, Final

from starlette.responses import Response

from batonpass.client import Refused, instant
from batonpass.dashboard.pages.group_state import lags
from batonpass.dashboard.request_context import LISTED, RequestContext
from batonpass.dashboard.view_models.events import TONE_WORDS, event_lines
from batonpass.dashboard.view_models.gaps import gaps_of, summaries
from batonpass.dashboard.view_models.generations import because, flows, reasons
from batonpass.dashboard.view_models.timeline import axis, stretch
from batonpass.dashboard.view_models.trend import said, trend
from batonpass.dashboard.words import counted

PAGE: Final = 50
FLOWS: Final = 30
EVENTS_PAGE: Final = 1_000
EVENTS_PAGES: Final = 3


async def show_generations(context: RequestContext) -> Response:
    before = context.asked_number("before") or None
    found = await context.client.get(context.at("generations"), limit=PAGE, before=before)
    return context.show(
        "generations.html",
        generations=found["generations"],
        next=found["next"],
        before=before,
        live=before is None,
    )


async def show_generation(context: RequestContext) -> Response:
    """Show one generation: why it was made, what it moved, and from where to where."""
    number = str(context.request.path_params["number"])
    found, latest = await asyncio.gather(
        context.client.get(context.at("generations", number)), context.client.get(context.at("generations"), limit=1)
    )
    moved = (
        one for row in found["diff"] for one in (row["from"], row["to"], *row["standbys"], *row["standbys_before"])
    )
    await context.client.know(context.group, moved)
    return context.show(
        "generation.html",
        title=f"Generation {number}",
        live=False,
        one=found,
        newest=max((one["generation"] for one in latest["generations"]), default=0),
        because=because(found["triggers"]),
        flows=context.part(flows(found["diff"]), FLOWS, "flow"),
        reasons=reasons(found, context.client.names),
        diff=context.part(found["diff"]),
    )


async def show_gaps(context: RequestContext) -> Response:
    """Show how long no member ran a task, for each recent change of hands."""
    events = await _newest(context)
    gaps = gaps_of(events)
    asked, until = context.asked("span"), context.asked("until")
    span, begin, end = stretch(asked, until, context.now)
    if asked or until:
        gaps = [gap for gap in gaps if (at := instant(gap.event["at"])) and begin <= at <= end]
    else:
        begin = min((at for gap in gaps if (at := instant(gap.event["at"]))), default=begin)
    along = axis(begin, end, context.zone)
    marks = trend(events, await lags(context, begin, end), along, context.client.names)
    return context.show(
        "gaps.html",
        gaps=context.part(gaps),
        summaries=summaries(gaps),
        marks=marks,
        shows=said(marks),
        axis=along,
        span=span if asked or until else "",
        searched=len(events),
        since=events[-1]["at"] if events else None,
    )


async def _newest(context: RequestContext) -> list[dict[str, Any]]:
    """Return the newest events of a group, newest first: a few thousand, or all."""
    found: list[dict[str, Any]] = []
    before = None
    for _ in range(EVENTS_PAGES):
        page = await context.client.newest_events(context.group, limit=EVENTS_PAGE, before=before)
        found += page["events"]
        if not page["more"]:
            break
        before = page["next"]
    return found


async def show_events(context: RequestContext) -> Response:
    """Show what happened to a group, newest first: page by page, or what of it has a text or a tone."""
    before, text, tone = context.asked_number("before") or None, context.asked("q"), context.asked("tone")
    is_searched = bool(text or tone)
    page = await context.client.newest_events(context.group, limit=LISTED, before=before)
    events = await _newest(context) if is_searched else page["events"]
    lines = event_lines(events, context.client.names)
    fitting = [
        one for one in lines if text.casefold() in f"{one.words} {one.event['type']} {one.event['member']}".casefold()
    ]
    found = context.part([one for one in fitting if tone in ("", one.tone)])
    return context.show(
        "events.html",
        event_lines=found.entries,
        found=found if is_searched else None,
        searched=len(events),
        since=events[-1]["at"] if events else None,
        tones=counted(TONE_WORDS, (one.tone for one in fitting)),
        tone=tone,
        q=text,
        next=page["next"] if page["more"] and not is_searched else None,
        before=before,
        live=before is None,
    )


async def show_trail(context: RequestContext) -> Response:
    """Show who asked for what, when, and why; for operators."""
    before = context.asked_number("before") or None
    try:
        found = await context.client.get(context.at("commands"), limit=PAGE, before=before)
    except Refused as refused:
        if refused.status != 403:
            raise
        found = None
    return context.show(
        "trail.html",
        title="Audit trail",
        commands=None if found is None else found["commands"],
        next=None if found is None else found["next"],
        before=before,
        live=before is None,
    )
