"""Servers whose connections may take so much: how many there are, bytes of a head, requests that wait, time to arrive.

Uvicorn parses and answers; it bounds none of this (decision 0031). An answer that is not read is bounded on the socket
(``sockets.bound_unread``). The coordinator and the dashboard are both served behind these limits.
"""

import asyncio
import contextlib
import logging
import math
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from batonpass.background import Background
from batonpass.sockets import AHEAD_BYTES, UNREAD_S, bound_unread

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn._types import ASGISendEvent

log = logging.getLogger("batonpass.connections")

KEEP_ALIVE_S: Final = 75
"""How long an idle connection stays open: longer than load balancers keep one, and than members usually wait between
two heartbeats, so that no request meets a connection that is just being closed."""

HANDSHAKE_S = 10.0
"""How long a handshake of TLS may take; until it has ended, it counts as a connection."""

ACCEPT_AGAIN_S: Final = 0.1
"""How long no connection is accepted after one could not be."""

PIECE_BYTES: Final = 4_096
"""How much is parsed before the limits are looked at again: by so much a head may exceed its limit."""

FOR_PROBES: Final = 64
"""How many more connections than may be open are kept while all are busy: so probes and scrapes are answered."""


def _refusal(status: bytes, sentence: bytes) -> bytes:
    return (
        b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
        % (status, len(sentence), sentence)
    )


_TOO_LATE: Final = _refusal(b"408 Request Timeout", b"The request did not arrive in time.\n")
_TOO_LARGE: Final = _refusal(b"431 Request Header Fields Too Large", b"The head of the request is too large.\n")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of every connection of a server.

    ``head_bytes``: the request line and all headers; it also bounds trailers, and what stands between two parts of a
    chunked body. ``waiting``: requests sent ahead while an earlier one is being answered. ``arrival_s``: the time for a
    request to arrive, head and body, and for a new connection to begin one. ``open``: connections at once; for one more
    the one is closed that has been without a request for the longest. ``unread_bytes``: of answers whose callers do not
    keep up, on all connections; for more the one is closed whose caller is behind for the longest.
    """

    head_bytes: int = 32_768
    waiting: int = 16
    arrival_s: float = 60.0
    open: float = math.inf
    unread_bytes: int = 67_108_864


class _EndsWithConnection(RequestResponseCycle):
    """An answer that ends with its connection where its length is not known, as HTTP/1.0 has it (RFC 9112, 6.1).

    Uvicorn would send it in chunks, which a client of HTTP/1.0 takes for the answer itself.
    """

    _has_length = True

    async def send(self, message: "ASGISendEvent") -> None:
        if message["type"] == "http.response.start":
            self._has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            self.chunked_encoding = None if self._has_length else False
        elif message["type"] == "http.response.body" and not self._has_length:
            # Each piece is as long as it is; the whole has no length to be held against.
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class _Parser(httptools.HttpRequestParser):
    """Parses a request that asks for another protocol as any other one (RFC 9110, 7.8: a server may ignore that).

    The library would take its body for what the other protocol says, and then for the next request.
    """

    def __init__(self, connection: "BoundedConnection") -> None:
        super().__init__(connection)
        self._connection = connection
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # As uvicorn does.

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # uvicorn has bytes alone
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as asked:
            self.feed_data(self._connection.head_without_upgrade() + data[asked.args[0] :])


class _Outgoing:
    """The transport of a connection, which is given all at once that is written in one turn of the loop.

    So the head of an answer goes with its body: one call of the system, and one packet. TLS is given no more than it
    can pass on, so that what waits is known: it hands all that it has to the connection below whenever that takes
    anything, and tells nobody what waits there.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._at_once = AHEAD_BYTES if transport.get_extra_info("sslcontext") is not None else None
        self._left = bytearray()
        self._may_write = True
        self._is_ending = False

    def write(self, data: bytes) -> None:
        if not self._left:
            self._loop.call_soon(self._go_on)
        self._left += data

    def pause(self) -> None:
        self._may_write = False

    def resume(self) -> bool:
        """Go on, and return whether nothing is left."""
        self._may_write = True
        self._go_on()
        return not self._left

    def _go_on(self) -> None:
        if self._transport.is_closing():
            self._left.clear()
        while self._left and self._may_write:
            piece = self._left[: self._at_once]
            del self._left[: self._at_once]
            self._transport.write(piece)
        if self._is_ending and not self._left:
            self._transport.close()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + len(self._left)

    def close(self) -> None:
        self._is_ending = True
        self._go_on()

    def is_closing(self) -> bool:
        return self._is_ending or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedConnection(HttpToolsProtocol):
    """Uvicorn's connection within limits, which ``bounded`` gives it. One that exceeds them is closed.

    Before that the client is sent the reason (408, 431), unless an answer is under way on the connection.
    """

    limits = ConnectionLimits()
    idle: "dict[BoundedConnection, None]"
    """Those of the server that have no request whose head has arrived, the one that has had none for longest first."""
    unread: "dict[BoundedConnection, int]"
    """How many bytes wait on those of the server whose callers do not keep up, the one behind for longest first."""

    @staticmethod
    def cut(reason: str) -> None:
        """Called with the limit for which a connection is closed."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        del self.parser  # Each refers to the other, and without a handshake of TLS the connection is never lost.
        self._is_arriving = True
        self._late: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._unanswered: list[RequestResponseCycle] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in the class above
        """Expect a first request."""
        transport.set_write_buffer_limits(AHEAD_BYTES)
        self.parser = _Parser(self)
        self._outgoing = _Outgoing(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", self._outgoing))
        self._start_timer()
        self.idle[self] = None
        self._make_room()

    def _make_room(self) -> None:
        """Close a connection if there are too many: who sends nothing keeps nobody out who asks for something."""
        over = len(self.connections) - self.limits.open
        longest = next(iter(self.idle))
        if over > 0 and (longest is not self or over > FOR_PROBES):
            del self.idle[longest]
            self.cut("too-many")
            longest.transport.abort()  # What it has not read of an answer would keep it open.

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark every unanswered request as disconnected; uvicorn does that only for the last one."""
        self._stop_timer()
        self.idle.pop(self, None)
        self.unread.pop(self, None)
        self.pipeline.clear()
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self._unanswered.clear()
        super().connection_lost(exc)
        # Uvicorn leaves its timer behind where the connection was reset, and with it the last request.
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        """Count what waits for the caller to read on, and close connections if that is too much of all of them."""
        super().pause_writing()
        self._outgoing.pause()
        self.unread[self] = self.transport.get_write_buffer_size()
        while len(self.unread) > 1 and sum(self.unread.values()) > self.limits.unread_bytes:
            longest = next(iter(self.unread))
            del self.unread[longest]
            self.cut("too-much-unread")
            longest.transport.abort()

    def resume_writing(self) -> None:
        """Count it no more, if that was all."""
        if self._outgoing.resume():
            self.unread.pop(self, None)
            super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, piece by piece, as long as it is within the limits."""
        if self.transport.is_closing():  # Under TLS more is read, as long as an answer waits for its caller.
            return
        if not self._unanswered:
            self._is_arriving = True
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            self._head_bytes += len(piece)
            super().data_received(piece)
            if self.transport.is_closing():
                return
            if self._head_bytes > self.limits.head_bytes:
                self.cut("head-too-large")
                self._end(_TOO_LARGE)
                return
            if len(self.pipeline) > self.limits.waiting:
                self.cut("too-many-ahead")
                self.transport.close()
                return
        if not self._is_arriving:
            self._stop_timer()
        elif self._late is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        """Note that a request is arriving."""
        self._is_arriving = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Count the next head from here on, and the request as unanswered."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise httptools.HttpParserError("this is no proxy")
            return  # It comes again without that.
        self._head_bytes = 0
        super().on_headers_complete()
        self.headers = []  # A trailer's fields go here, and not among the request's, which have been looked at.
        self._unanswered.append(self.cycle)
        self.idle.pop(self, None)
        if self.scope["http_version"] == "1.0":
            self.cycle.__class__ = _EndsWithConnection

    def on_body(self, body: bytes) -> None:
        """Count from here on: a body has a limit of its own, which the application checks."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait no longer for this request."""
        if self.parser.should_upgrade():
            return
        self._head_bytes = 0
        self._is_arriving = False
        self._stop_timer()
        super().on_message_complete()

    def head_without_upgrade(self) -> bytes:
        """Return the last head as it would be without the protocol that it asks for."""
        fields = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, fields)

    def on_response_complete(self) -> None:
        """Count one request less that waits for its answer."""
        if self._unanswered:
            del self._unanswered[0]
        if not self._unanswered:
            self.idle[self] = None
        super().on_response_complete()

    def _start_timer(self) -> None:
        self._late = self.loop.call_later(self.limits.arrival_s, self._end_if_late)

    def _stop_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end_if_late(self) -> None:
        self._late = None
        if self.flow.read_paused:
            # What is missing has not been read from the socket, because the application is slow to take the rest.
            self._start_timer()
        elif not self.transport.is_closing():
            self.cut("too-late")
            self._end(_TOO_LATE)

    def _end(self, refusal: bytes) -> None:
        """Send the refusal, unless another answer is under way or owed on the connection, and close it."""
        last = self._unanswered[-1] if self._unanswered and self._unanswered[-1].more_body else None
        owed = self._unanswered[:-1] if last is not None else self._unanswered
        if not owed and (last is None or not last.response_started):
            self.transport.write(refusal)
        self.transport.close()


def bounded(limits: ConnectionLimits, cut: Callable[[str], None] = lambda _reason: None) -> type[BoundedConnection]:
    """Return the class of connections within ``limits``, for uvicorn's ``http`` setting.

    ``cut`` is called with the limit that a connection exceeds.
    """
    own = {"limits": limits, "cut": staticmethod(cut), "idle": {}, "unread": {}}
    return type("BoundedConnection", (BoundedConnection,), own)


class BoundedServer(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(
        self,
        app: "ASGIApp",
        connections: type[BoundedConnection],
        listening: Callable[[], None],
        *,
        stop_s: float,
        unread_s: float = UNREAD_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Serve an application. Connections of which nothing is read for ``unread_s`` end; a stop takes ``stop_s``."""
        config = uvicorn.Config(
            app,
            http=connections,
            ws="none",
            log_config=None,
            log_level="warning",
            # The paths hold names of groups and members; what is refused is logged by who refuses it.
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=round(stop_s),
            server_header=False,
            # Callers are known by their tokens; an address that the caller itself may write is not worth a layer.
            proxy_headers=False,
        )
        super().__init__(config)
        self._listening = listening
        self._unread_s = unread_s
        self._connections = connections
        self._tls = tls
        self._background = Background()
        self._handshakes: dict[asyncio.Task[None], None] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        for listener in sockets or []:
            bound_unread(listener, self._unread_s)
            listener.listen(self.config.backlog)
            listener.setblocking(False)
            self._background.begin("connections", partial(self._accept, listener))
        if self.started:
            self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting requests, and end what is under way."""
        await self._background.end()
        for handshake in self._handshakes:
            handshake.cancel()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        """Accept connections, each time all that wait.

        uvloop accepts one in a turn of the loop, so that behind many with much to do a probe would wait for them all.
        And asyncio's servers know of no connection before its handshake has ended, and end none.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
                self._begin(accepted)
                for _ in range(self.config.backlog):
                    self._begin(listener.accept()[0])
            except BlockingIOError:
                pass
            except OSError:  # It is gone already, or too many files are open.
                await asyncio.sleep(ACCEPT_AGAIN_S)

    def _begin(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        handshake = asyncio.get_running_loop().create_task(self._shake_hands(accepted))
        self._handshakes[handshake] = None
        handshake.add_done_callback(lambda ended: self._handshakes.pop(ended, None))
        if len(self._handshakes) + len(self.server_state.connections) > self._connections.limits.open + FOR_PROBES:
            self._connections.cut("too-many")
            longest = next(iter(self._handshakes))
            del self._handshakes[longest]
            longest.cancel()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        made = partial(
            self._connections, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        limit_s = HANDSHAKE_S if self._tls else None
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                made, accepted, ssl=self._tls, ssl_handshake_timeout=limit_s
            )
