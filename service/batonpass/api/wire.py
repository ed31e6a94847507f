"""HTTP on a socket: uvicorn's own protocol, with a short way for heartbeats that are answered as they arrive.

A heartbeat whose head and body come in one piece is offered to ``Express`` before anything is made for it. Everything
else, and every heartbeat that is not answered there, is served as uvicorn serves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from batonpass.api.arrival import ARRIVAL_S, Timely
from batonpass.api.express import AHEAD, Ahead

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from batonpass.api.express import Express

_OK: Final = b"HTTP/1.1 200 OK\r\n"


class Wire(Timely):
    """One connection. ``express`` is given by ``wire_for``; the class has none."""

    express: Express
    heads: Heads
    _held: bytes | None = None

    def data_received(self, data: bytes) -> None:
        """Take what has arrived. What is held back and not whole by now is let go on the long way."""
        super().data_received(data)
        if self._held is not None and not self.transport.is_closing():
            self._go_on()

    def on_headers_complete(self) -> None:
        """Hold a heartbeat back until its body is here, unless answers are under way that must come before its own."""
        before: RequestResponseCycle | None = self.cycle
        is_free = before is None or before.response_complete
        if is_free and self.express.takes(self.url) and not self.parser.should_upgrade() and self._has_room():
            self._held = b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        if self._held is None:
            super().on_body(body)
        else:
            self._held += body

    def on_message_complete(self) -> None:
        """Answer a heartbeat that was held back, or let it go on."""
        held = self._held
        if held is None:
            super().on_message_complete()
            return
        self.is_arriving = False
        found: bytes | Ahead | None = None
        if self.parser.get_method() == b"POST" and self.parser.should_keep_alive() and not self.flow.write_paused:
            found = self.express.answer(self.url, self.headers, held)
        if isinstance(found, bytes):
            self._held = None
            self.transport.write(self.heads.of(self.server_state.default_headers) + found)
            self.on_response_complete()
            return
        self._go_on()
        if found is not None:
            cast("dict[str, Any]", self.scope)[AHEAD] = found
        super().on_message_complete()

    def _go_on(self) -> None:
        """Have uvicorn serve what was held back, as if it had arrived just now."""
        held, self._held = self._held, None
        super().on_headers_complete()
        if held:
            super().on_body(held)

    def _has_room(self) -> bool:
        """Whether uvicorn would serve another request, and not refuse it for being one too many."""
        most = self.limit_concurrency
        return most is None or (len(self.connections) < most and len(self.tasks) < most)


class Heads:
    """The headers that every answer has, as one text; uvicorn makes a new list of them once a second."""

    def __init__(self) -> None:
        self._made_of: list[tuple[bytes, bytes]] | None = None
        self._text = b""

    def of(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return the status line of an answer that went well, and these headers."""
        if headers is not self._made_of:
            self._text = _OK + b"".join(b"%b: %b\r\n" % header for header in headers)
            self._made_of = headers
        return self._text


def wire_for(express: Express, *, arrival_s: float = ARRIVAL_S) -> type[Wire]:
    """Return the protocol of a server whose heartbeats ``express`` answers; requests arrive within ``arrival_s``."""
    return type("ExpressWire", (Wire,), {"express": express, "heads": Heads(), "arrival_s": arrival_s})
