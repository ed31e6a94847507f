"""The event stream: page by page, or live as server-sent events."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import context_of
from batonpass.api.histories import event_body
from batonpass.api.openapi import route
from batonpass.api.service import group_of, json_response, query, service_of
from batonpass.api.stream import EVENT_STREAM, EventStream
from batonpass.codec.bodies import OFFSET_MAX
from batonpass.codec.queries import EventsQuery
from batonpass.codec.shape import refusal
from batonpass.core.errors import UnknownGroup

if TYPE_CHECKING:
    from batonpass.api.access import Gate
    from batonpass.core.ids import GroupId

router = APIRouter(prefix="/v1", tags=["history"])
_POSITION: Final = re.compile(r"\d{1,19}", re.ASCII)
_ANSWERS: Final = {
    200: "Events, oldest first, or newest first; with `Accept: text/event-stream`, live until either side ends it."
}


@route(
    router,
    "GET",
    "/groups/{group}/events",
    query=EventsQuery,
    answers=_ANSWERS,
    schema="events_get",
    texts=("text/event-stream",),
)
async def group_events(request: Request) -> Response:
    """Tell what happened to a group: a page of events after a position, or a stream that goes on."""
    group_id = group_of(request)
    if not await service_of(request).coordinator.knows(group_id):
        raise UnknownGroup(f"there is no group {group_id}, and there never was")
    return await _events(request, group_id)


@route(router, "GET", "/events", query=EventsQuery, answers=_ANSWERS, schema="events_get", texts=("text/event-stream",))
async def all_events(request: Request) -> Response:
    """Tell what happened to all groups: a page of events after a position, or a stream that goes on."""
    return await _events(request, None)


async def _events(request: Request, group_id: GroupId | None) -> Response:
    coordinator = service_of(request).coordinator
    asked = query(request, EventsQuery)
    after = None if asked.after is UNSET else asked.after
    if after is not None and (asked.newest or asked.before is not UNSET):
        raise refusal([("query.after", "a page is read forwards from after, or backwards from before or the newest")])
    if _wants_stream(request):
        follower = await coordinator.feed.follow(group_id, after=_last_event_id(request, after))
        is_head = context_of(request).scope["method"] == "HEAD"
        return EventStream(coordinator.feed, follower, is_admitted=partial(_is_admitted, request), is_head=is_head)
    backwards = asked.newest or asked.before is not UNSET
    if backwards:
        before = None if asked.before is UNSET else asked.before
        found = await coordinator.archive.events_before(group_id, before=before, limit=asked.limit + 1)
    else:
        found = await coordinator.archive.events(group_id, after=after or 0, limit=asked.limit + 1)
    shown = found[: asked.limit]
    upto = shown[-1].position if shown else 0 if backwards else after or 0
    page = {"events": [event_body(one) for one in shown], "next": upto, "more": len(found) > asked.limit}
    return json_response(page)


async def _is_admitted(request: Request) -> bool:
    gate: Gate | None = request.app.state.policy.gate
    context = context_of(request)
    return gate is None or await gate.still_admits(context.headers.get(b"authorization"), context.peer)


def _wants_stream(request: Request) -> bool:
    """Say whether the caller asked for a stream (RFC 9110, 12.5.1): by its name, not by a wildcard."""
    for entry in request.headers.get("accept", "").split(","):
        kind, _, parameters = entry.partition(";")
        if kind.strip().lower() == EVENT_STREAM and not re.search(r"q=0(\.0*)?\s*$", parameters):
            return True
    return False


def _last_event_id(request: Request, after: int | None) -> int | None:
    """Return the position that a broken stream had come to; without one, ``after``.

    Raises:
        InvalidRequest: when the header is no position.
    """
    said = request.headers.get("last-event-id", "").strip()
    if not said:
        return after
    if _POSITION.fullmatch(said) is None or int(said) > OFFSET_MAX:
        raise refusal([("header.Last-Event-ID", "not a position of an event; leave it out to begin now")])
    return int(said)
