"""Tells an open page when to ask for itself again, and whether the coordinator's events are heard."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from batonpass.dashboard.desk import Desk
from batonpass.dashboard.line import Ear

KEEP_ALIVE_S: Final = 10.0
GATHER_S: Final = 0.25
"""Events that come within so long of one another make one change."""

RECONNECT_MS: Final = 1_000
OPENING_S: Final = 1.0
"""How long the first word waits for the stream of events to be opened: a page that just appears need not alarm."""


_POSITION: Final = re.compile(r"[0-9]{1,19}")


async def live(request: Request) -> Response:
    """Stream `change` whenever something happened to the group that is named, and `standing` when hearing is lost.

    Each has the position of the newest event as its id; whoever comes back with an older one is told at once.
    """
    desk: Desk = request.app.state.desk
    session = desk.sessions.find(request.cookies.get(desk.cookie, ""))
    if session is None:
        return Response(status_code=401)
    seen = request.headers.get("last-event-id", "")
    frames = _frames(
        desk, session.line.ear, request.query_params.get("group", ""), int(seen) if _POSITION.fullmatch(seen) else 0
    )
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)


async def _frames(desk: Desk, ear: Ear, group: str, seen: int) -> AsyncIterator[str]:
    listener = ear.listen()
    closing = asyncio.ensure_future(desk.closing.wait())
    news: asyncio.Future[bool] = asyncio.ensure_future(listener.wait())
    try:
        yield f"retry: {RECONNECT_MS}\n\n"
        standing = ""
        if ear.lost_at is not None:
            await asyncio.wait((news, closing), timeout=OPENING_S, return_when=asyncio.FIRST_COMPLETED)
        while not desk.closing.is_set():
            listener.clear()
            now = json.dumps({"live": ear.lost_at is None, "since": ear.lost_at, "why": ear.why})
            if now != standing:
                standing = now
                yield f"event: standing\ndata: {now}\n\n"
            latest = newest(ear, group)
            if latest > seen:
                seen = latest
                yield f"event: change\nid: {latest}\ndata: {latest}\n\n"
            if news.done():
                news = asyncio.ensure_future(listener.wait())
            await asyncio.wait((news, closing), timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if news.done():
                await asyncio.sleep(GATHER_S)
            else:
                yield ": still here\n\n"
    finally:
        closing.cancel()
        news.cancel()
        ear.leave(listener)


def newest(ear: Ear, group: str) -> int:
    """Return the position of the newest event of a group, or of all of them where none is named."""
    return ear.latest.get(group, 0) if group else max(ear.latest.values(), default=0)
