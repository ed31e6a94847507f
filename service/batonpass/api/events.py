"""The event stream: page by page, or live as server-sent events (the EventSource protocol of the HTML standard)."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from batonpass.api.access import Gate
from batonpass.api.context import context_of, until_gone
from batonpass.api.openapi import route
from batonpass.api.service import json_response, known_group_of, read_query, service_of
from batonpass.codec.answers import rfc3339, to_json
from batonpass.codec.bodies import EventsQuery, given
from batonpass.codec.shape import refusal
from batonpass.core.state.ids import GroupId
from batonpass.core.state.numbers import WHOLE_MAX
from batonpass.runtime.feed import Feed, Follower, Missed
from batonpass.runtime.history import StoredEvent
from batonpass.runtime.ports import Ownership, StoreUnavailable

router = APIRouter(prefix="/v1", tags=["history"])
_POSITION: Final = re.compile(r"\d{1,19}", re.ASCII)
EVENT_STREAM: Final = "text/event-stream"
KEEP_ALIVE_S: Final = 15.0
"""How long a stream is silent at most: shorter than proxies let an idle connection live."""

RECONNECT_MS: Final = 2_000
"""After how long a client whose stream broke connects again (``retry:``)."""

STORE_AGAIN_S: Final = 1.0

_HEADERS: Final = [
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-store"),
    # Otherwise nginx would buffer the events.
    (b"x-accel-buffering", b"no"),
]

_served_at: Final = partial(
    route,
    router,
    "GET",
    query=EventsQuery,
    answers={
        200: "Events, oldest first, or newest first; with `Accept: text/event-stream`, live until either side ends it."
    },
    schema="events_get",
    texts=(EVENT_STREAM,),
    headers=("Last-Event-ID",),
)


@_served_at("/groups/{group}/events")
async def group_events(request: Request) -> Response:
    """Tell what happened to a group: a page of events after a position, or a stream that goes on."""
    return await _events(request, await known_group_of(request))


@_served_at("/events")
async def all_events(request: Request) -> Response:
    """Tell what happened to all groups: a page of events after a position, or a stream that goes on."""
    return await _events(request, None)


async def _events(request: Request, group_id: GroupId | None) -> Response:
    coordinator = service_of(request).coordinator
    asked = read_query(request, EventsQuery)
    after, before = given(asked.after), given(asked.before)
    backwards = asked.newest or before is not None
    if after is not None and backwards:
        raise refusal([("query.after", "a page is read forwards from after, or backwards from before or the newest")])
    if _wants_stream(request):
        follower = await coordinator.feed.follow(
            group_id, after=_last_event_id(request, after), who=context_of(request).who
        )
        is_head = context_of(request).scope["method"] == "HEAD"
        ownership: Ownership = request.app.state.policy.ownership
        return EventStream(
            coordinator.feed,
            follower,
            is_admitted=partial(_is_admitted, request),
            is_over=lambda: is_head or ownership.sends_away(),
        )
    with context_of(request).history():
        if backwards:
            found = await coordinator.archive.events_before(group_id, before=before, limit=asked.limit + 1)
        else:
            found = await coordinator.archive.events(group_id, after=after or 0, limit=asked.limit + 1)
    shown = found[: asked.limit]
    upto = shown[-1].position if shown else 0 if backwards else after or 0
    page = {"events": [event_body(one) for one in shown], "next": upto, "more": len(found) > asked.limit}
    return json_response(page)


def event_body(stored: StoredEvent) -> dict[str, Any]:
    event = stored.event
    return {
        "position": stored.position,
        "group": stored.group,
        "type": event.type,
        "at": rfc3339(event.at_ms),
        "generation": event.generation,
        "member": event.member,
        "task": event.task,
        "body": dict(event.body),
    }


async def _is_admitted(request: Request) -> bool:
    gate: Gate | None = request.app.state.policy.gate
    context = context_of(request)
    return gate is None or await gate.still_admits(context.headers.get(b"authorization"), context.peer)


def _wants_stream(request: Request) -> bool:
    """Return whether the caller asked for a stream (RFC 9110, 12.5.1): by its name, not by a wildcard."""
    for entry in request.headers.get("accept", "").split(","):
        kind, _, parameters = entry.partition(";")
        if kind.strip().lower() == EVENT_STREAM and not re.search(r"q=0(\.0*)?\s*$", parameters):
            return True
    return False


def _last_event_id(request: Request, after: int | None) -> int | None:
    """Return the position that a broken stream had reached; without one, ``after``.

    Raises:
        InvalidRequest: when the header is no position.
    """
    said = request.headers.get("last-event-id", "").strip()
    if not said:
        return after
    if _POSITION.fullmatch(said) is None or int(said) > WHOLE_MAX:
        raise refusal([("header.Last-Event-ID", "not a position of an event; leave it out to begin now")])
    return int(said)


class EventStream(Response):
    """Sends a follower's events as they come, until the caller disconnects or the coordinator stops."""

    def __init__(
        self,
        feed: Feed,
        follower: Follower,
        *,
        is_admitted: Callable[[], Awaitable[bool]],
        is_over: Callable[[], bool],
    ) -> None:
        """Take the follower over: it leaves the feed when the stream ends.

        ``is_admitted`` says whether the caller may still follow; it is called before anything is sent. ``is_over`` says
        whether the stream is to end, as one that would be silent while another coordinator tells of events.
        """
        super().__init__(media_type=EVENT_STREAM)
        self._is_admitted = is_admitted
        self._is_over = is_over
        self._feed = feed
        self._follower = follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI has it so
        gone = asyncio.ensure_future(until_gone(receive))
        # One wait for both, events and a disconnect, saves a task for each stream that is idle.
        gone.add_done_callback(lambda _: self._follower.woken.set())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await _send(send, b"retry: %d\n%b" % (RECONNECT_MS, _place(self._follower.position)))
            while not (self._feed.is_closed or gone.done() or self._is_over()):
                found = await self._next(gone)
                if found and not await self._is_admitted():
                    break
                await _send(send, found)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._follower.leave()

    async def _next(self, gone: asyncio.Future[None]) -> bytes:
        """Return what to send: events, or a keep-alive after a while without events."""
        follower = self._follower
        try:
            found = await follower.next()
        except StoreUnavailable:
            # The follower can be asked again: nothing is lost, and the caller need not connect again.
            await asyncio.wait((gone,), timeout=STORE_AGAIN_S)
            return b""
        if found:
            return b"".join(frames(found))
        if gone.done() or self._feed.is_closed:
            return b""
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await follower.woken.wait()
        except TimeoutError:
            return b": keep-alive\n" + _place(follower.position)
        return b""


def frames(found: Iterable[StoredEvent | Missed]) -> Iterable[bytes]:
    """Yield each event as the protocol writes it; its position is the id from which a broken stream is resumed."""
    for one in found:
        if isinstance(one, Missed):
            body = to_json({"after": one.after, "upto": one.upto, "lost": one.lost})
            yield b"event: missed\nid: %d\ndata: %b\n\n" % (one.go_on, body)
        else:
            yield b"id: %d\ndata: %b\n\n" % (one.position, to_json(event_body(one)))


def _place(position: int) -> bytes:
    """Return a frame without data: it dispatches nothing, and moves the id from which a client resumes."""
    return b"id: %d\n\n" % position


async def _send(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
