"""Tells an open page when to ask for itself again, and whether the coordinator's event stream is open."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from batonpass.dashboard.request_context import Dashboard
from batonpass.dashboard.sessions import Session

KEEP_ALIVE_S: Final = 10.0
GATHER_S: Final = 0.25
"""Events that come within this time count as one change."""

RECONNECT_MS: Final = 1_000
OPENING_S: Final = 1.0
"""How long the first message waits until the event stream is open: a page that just appears need not alarm."""


_POSITION: Final = re.compile(r"[0-9]{1,19}")


async def live(request: Request) -> Response:
    """Stream `change` whenever an event of the named group comes, and `standing` when the event stream opens or breaks.

    `standing` is said again after a while without either, so that a page knows a silent connection from a dead one.
    Each message has the position of the newest event as its id; a page that comes back with an older one gets `change`
    at once. The stream ends with the session.
    """
    dashboard: Dashboard = request.app.state.dashboard
    session = dashboard.session_of(request)
    if session is None:
        return Response(status_code=401)
    if session.client.events.is_crowded:
        return Response(status_code=429)
    seen = request.headers.get("last-event-id", "")
    frames = _frames(
        dashboard,
        session,
        request.query_params.get("group", ""),
        int(seen) if _POSITION.fullmatch(seen) else 0,
    )
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=headers)
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)


async def _frames(dashboard: Dashboard, session: Session, group: str, seen: int) -> AsyncIterator[str]:
    events = session.client.events
    listener = events.listen()
    closing, ended = (asyncio.ensure_future(event.wait()) for event in (dashboard.closing, session.ended))
    news: asyncio.Future[bool] = asyncio.ensure_future(listener.wait())
    try:
        yield f"retry: {RECONNECT_MS}\n\n"
        standing = ""
        if events.lost_at is not None:
            await asyncio.wait((news, closing, ended), timeout=OPENING_S, return_when=asyncio.FIRST_COMPLETED)
        while not (dashboard.closing.is_set() or session.ended.is_set()):
            listener.clear()
            now = json.dumps({"live": events.lost_at is None, "since": events.lost_at, "why": events.why})
            if now != standing:
                standing = now
                yield f"event: standing\ndata: {now}\n\n"
            latest = events.latest.get(group, 0) if group else max(events.latest.values(), default=0)
            if latest > seen:
                seen = latest
                yield f"event: change\nid: {latest}\ndata: {latest}\n\n"
            if news.done():
                news = asyncio.ensure_future(listener.wait())
            await asyncio.wait((news, closing, ended), timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if news.done():
                await asyncio.sleep(GATHER_S)
            else:
                standing = ""  # Said again: a comment would not reach the page's script.
    finally:
        for waiting in (closing, ended, news):
            waiting.cancel()
        events.leave(listener)
