"""HTTP on a socket: uvicorn's own protocol, with a short way for heartbeats that are answered as they arrive.

A heartbeat whose head and body come in one piece is offered to ``Express`` before anything is made for it. Everything
else, and every heartbeat that is not answered there, is served as uvicorn serves it.

A heartbeat whose head was parsed before, to the byte, is not parsed again. What httptools made of it then it would
make of it now, and the parser stays where it was: between two requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from batonpass.api.arrival import ARRIVAL_S, Timely
from batonpass.api.express import AHEAD, HEAD_END, Ahead

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from batonpass.api.express import Express

_OK: Final = b"HTTP/1.1 200 OK\r\n"


class Wire(Timely):
    """One connection. ``express`` is given by ``wire_for``; the class has none."""

    express: Express
    heads: Heads
    _held: bytes | None = None
    _whole: bytes | None = None
    _ahead: Ahead | None = None
    _answered_at = 0.0

    def data_received(self, data: bytes) -> None:
        """Take what has arrived. What is held back and not whole by now is let go on the long way."""
        self._whole = None
        if self._is_between():
            if self._is_answered(data):
                return
            self._whole = data
        super().data_received(data)
        self._ahead = None
        if self._held is not None and not self.transport.is_closing():
            self._go_on()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if nothing was asked on it for so long, on the short way either."""
        left_s = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

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
        found: bytes | Ahead | None = self._ahead
        whole, self._whole, self._ahead = self._whole, None, None
        if found is None and self.parser.get_method() == b"POST" and self.parser.should_keep_alive():
            found = None if self.flow.write_paused else self.express.answer(self.url, self.headers, held)
        if isinstance(found, bytes):
            self._held = None
            self.transport.write(self.heads.of(self.server_state.default_headers) + found)
            if whole is not None:
                self.express.remember(whole, self.url, self.headers, held)
            self.on_response_complete()
            return
        self._go_on()
        if found is not None:
            cast("dict[str, Any]", self.scope)[AHEAD] = found
        super().on_message_complete()

    def _is_between(self) -> bool:
        """Whether a new request begins with what arrives now, and nothing else is under way."""
        before: RequestResponseCycle | None = self.cycle
        # The timer runs where the last answer is complete and nothing of the next request has come.
        return (
            self.timeout_keep_alive_task is not None
            and not self.is_arriving
            and (before is None or before.response_complete)
        )

    def _is_answered(self, data: bytes) -> bool:
        """Answer a heartbeat whose head is known, without parsing it; say whether it was."""
        end = data.find(HEAD_END) + len(HEAD_END)
        known = self.express.recognise(data[:end])
        if known is None or len(data) - end != known.length or self.flow.write_paused or not self._has_room():
            return False
        if self.transport.is_closing():
            return False
        found = self.express.answer_known(known, data[end:])
        if not isinstance(found, bytes):
            self._ahead = found
            return False
        self.server_state.total_requests += 1
        self._answered_at = self.loop.time()
        self.transport.write(self.heads.of(self.server_state.default_headers) + found)
        return True

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
