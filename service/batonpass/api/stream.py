"""Server-sent events (the EventSource protocol of the HTML standard): a response without an end of its own."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from batonpass.api.histories import event_body
from batonpass.codec.answers import to_json
from batonpass.runtime.feed import Missed
from batonpass.runtime.ports import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import Receive, Scope, Send

    from batonpass.runtime.feed import Feed, Follower
    from batonpass.runtime.history import StoredEvent

EVENT_STREAM: Final = "text/event-stream"
KEEP_ALIVE_S: Final = 15.0
"""How long a stream is silent at most: shorter than proxies let an idle connection live."""

CHECK_S: Final = 10.0
"""How often a stream asks whether its caller's token is still good."""

RECONNECT_MS: Final = 2_000
"""When a client whose stream broke comes back (``retry:``)."""

STORE_AGAIN_S: Final = 1.0

_HEADERS: Final = [
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-store"),
    # nginx would collect the events otherwise.
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """Sends what a follower is told, as it comes, until the caller goes away or the coordinator stops."""

    def __init__(
        self,
        feed: Feed,
        follower: Follower,
        *,
        is_admitted: Callable[[], Awaitable[bool]],
        is_head: bool = False,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        """Take the follower over: its place is given back when the stream ends.

        ``is_admitted`` says whether the caller may still follow; it is asked from time to time.
        An answer to HEAD ends at once.
        """
        super().__init__(media_type=EVENT_STREAM)
        self._is_admitted = is_admitted
        self._is_head = is_head
        self._feed = feed
        self._follower = follower
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI has it so
        """Serve the stream."""
        gone = asyncio.ensure_future(_gone(receive))
        # One wait for both, events and a caller that goes away: a task less for each stream that is parked.
        gone.add_done_callback(lambda _: self._follower.woken.set())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await _send(send, b"retry: %d\n%b" % (RECONNECT_MS, _place(self._follower.position)))
            check_at = time.monotonic() + CHECK_S
            while not (self._is_head or self._feed.is_closed or gone.done()):
                await self._step(send, gone)
                if time.monotonic() >= check_at:
                    if not await self._is_admitted():
                        break
                    check_at = time.monotonic() + CHECK_S
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._follower.leave()

    async def _step(self, send: Send, gone: asyncio.Future[None]) -> None:
        """Send what there is; where there is nothing, wait, and after a while say that the stream lives."""
        follower = self._follower
        try:
            found = await follower.next()
        except StoreUnavailable:
            # It can be asked again: nothing is lost, and the caller need not come back for it.
            await asyncio.wait((gone,), timeout=STORE_AGAIN_S)
            return
        if found:
            await _send(send, b"".join(frames(found)))
            return
        if gone.done() or self._feed.is_closed:
            return
        try:
            async with asyncio.timeout(self._keep_alive_s):
                await follower.woken.wait()
        except TimeoutError:
            await _send(send, b": keep-alive\n" + _place(follower.position))


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
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
