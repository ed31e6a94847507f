"""HTTP on a socket: uvicorn's own protocol, with short ways for the two calls that members make all the time.

A heartbeat is offered to ``Express`` as soon as its body is here, and a long-poll to ``Parking``, before anything is
made for them. Everything else, and every one of them that is not served there, is served as uvicorn serves it.

A heartbeat whose head was parsed before, to the byte, is not parsed again. What httptools made of it then it would
make of it now, and the parser stays where it was: between two requests. Many clients send head and body one after the
other, so a known head waits for its body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from batonpass.api.arrival import ARRIVAL_S, Timely
from batonpass.api.express import AHEAD, HEAD_END, Ahead

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from batonpass.api.express import Express, Known
    from batonpass.api.parking import Parking, Stay

HELD_BYTES_MAX: Final = 64 * 1024
"""How much of a body is waited for before the request is let go on the long way, which takes it as it comes."""


class Wire(Timely):
    """One connection. ``express`` and ``parking`` are given by ``wire_for``; the class has none."""

    express: Express
    parking: Parking
    heads: Heads
    _held: bytes | None = None
    _whole: bytes | None = None
    _begun: tuple[Known, bytes] | None = None
    _ahead: Ahead | None = None
    _stay: Stay | None = None
    _answered_at = 0.0

    def data_received(self, data: bytes) -> None:
        """Take what has arrived; of a request that may be a heartbeat, until it is whole."""
        if self._stay is not None:
            # Whoever sends on before the answer came is served by uvicorn, which knows how to make it wait.
            self._stay.unpark()
        if self._begun is not None:
            data = self._begun[1] + data
        if self._is_between():
            if self._is_answered(data):
                return
            self._whole = data
        elif self._whole is not None:
            self._whole = self._whole + data if self._held is not None else None
        super().data_received(data)
        self._ahead = None
        if self._held is None:
            self._whole = None
        elif len(self._held) > HELD_BYTES_MAX and not self.transport.is_closing():
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the connection is gone, and a long-poll with it."""
        stay, self._stay = self._stay, None
        super().connection_lost(exc)
        if stay is not None:
            stay.break_off()

    def shutdown(self) -> None:
        """End what waits, and close the connection as soon as it is answered."""
        if self._stay is not None:
            self._stay.end()
        super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if nothing was asked on it for so long, on the short way either."""
        left_s = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if self._begun is not None:
            left_s = self.timeout_keep_alive
        if left_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def on_message_begin(self) -> None:
        """Begin to read a request; what is parked before it, in the same piece, goes the long way."""
        if self._stay is not None:
            self._stay.unpark()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hold a request back that may go a short way, unless answers are under way that must come before its own."""
        before: RequestResponseCycle | None = self.cycle
        is_free = before is None or before.response_complete
        is_hot = self.express.takes(self.url) or self.parking.takes(self.url)
        if is_hot and is_free and self._may_be_held() and self._has_room():
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
        """Serve what was held back, or let it go on."""
        held = self._held
        if held is None:
            super().on_message_complete()
            return
        self.is_arriving = False
        found: bytes | Ahead | None = self._ahead
        whole, self._whole, self._ahead = self._whole, None, None
        if found is None and self.parser.should_keep_alive() and not self.flow.write_paused:
            method = self.parser.get_method()
            if method == b"POST" and self.express.takes(self.url):
                found = self.express.answer(self.url, self.headers, held)
            elif method == b"GET" and not held and self._is_parked():
                return
        if isinstance(found, bytes):
            self._held = None
            self._write(200, found)
            if whole is not None:
                self.express.remember(whole, self.url, self.headers, held)
            return
        self._go_on()
        if found is not None:
            cast("dict[str, Any]", self.scope)[AHEAD] = found
        super().on_message_complete()

    def answer_poll(self, status: int, rest: bytes) -> None:
        """Answer the long-poll that is parked here."""
        self._stay = None
        if not self.transport.is_closing():
            self._write(status, rest)

    def unpark(self) -> None:
        """Have uvicorn serve the long-poll that is parked here."""
        self._stay = None
        if not self.transport.is_closing():
            self._go_on()
            super().on_message_complete()

    def _is_parked(self) -> bool:
        """Begin a long-poll, if it may go the short way; say whether it does."""
        stay = self.parking.enter(self.url, self.headers, self)
        if stay is None:
            return False
        self._held, self._stay = None, stay
        stay.begin()
        return True

    def _write(self, status: int, rest: bytes) -> None:
        self.transport.write(self.heads.of(status, self.server_state.default_headers) + rest)
        self.on_response_complete()

    def _may_be_held(self) -> bool:
        """Whether nothing has to be said before the body comes, and nothing else than HTTP is asked for."""
        return not self.expect_100_continue and not self.parser.should_upgrade()

    def _is_missing(self) -> bool:
        return self._stay is None and (self._begun is not None or super()._is_missing())

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
        """Answer a heartbeat whose head is known, without parsing it; say whether nothing is left to be done now."""
        self._begun = None
        end = data.find(HEAD_END) + len(HEAD_END)
        known = self.express.recognise(data[:end])
        if known is None or len(data) - end > known.length or self.transport.is_closing():
            return False
        if self.flow.write_paused or not self._has_room():
            return False
        if len(data) - end < known.length:
            self._begun = known, data
            self.expect()
            return True
        found = self.express.answer_known(known, data[end:])
        if not isinstance(found, bytes):
            self._ahead = found
            return False
        self.server_state.total_requests += 1
        self._answered_at = self.loop.time()
        self.transport.write(self.heads.of(200, self.server_state.default_headers) + found)
        if self._late is not None:
            self.expect()
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
    """The headers that every answer has, as a text for each status; uvicorn makes a new list of them once a second."""

    def __init__(self) -> None:
        self._made_of: list[tuple[bytes, bytes]] | None = None
        self._texts: dict[int, bytes] = {}

    def of(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return the status line of an answer, and these headers."""
        if headers is not self._made_of:
            self._texts, self._made_of = {}, headers
        text = self._texts.get(status)
        if text is None:
            text = STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % header for header in headers)
            self._texts[status] = text
        return text


def wire_for(express: Express, parking: Parking, *, arrival_s: float = ARRIVAL_S) -> type[Wire]:
    """Return the protocol of a server with these short ways, on which requests arrive within ``arrival_s``."""
    given = {"express": express, "parking": parking, "heads": Heads(), "arrival_s": arrival_s}
    return type("ExpressWire", (Wire,), given)
