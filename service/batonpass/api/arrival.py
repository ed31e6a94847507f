"""Requests that never arrive: a connection that begins none, or sends one byte by byte, is closed in time.

Uvicorn closes connections that are idle after an answer, and waits for ever for a first request, for the end of a head
or for the end of a body. Whoever opens connections and sends next to nothing could so use up all that a process has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

ARRIVAL_S: Final = 60.0
_SENTENCE: Final = b"The request did not arrive in time.\n"
_TOO_LATE: Final = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_SENTENCE), _SENTENCE)
)


class Timely(HttpToolsProtocol):
    """A connection on which every request, head and body, arrives within ``arrival_s``, or none does any more.

    What arrives in one piece costs a flag; a timer runs only while something is missing.
    """

    arrival_s: float = ARRIVAL_S
    is_arriving = False
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in the class above
        """Expect a first request."""
        super().connection_made(transport)
        self._late = self.loop.call_later(self.arrival_s, self._end_if_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        super().connection_lost(exc)
        self._forget()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, and give what is missing its time."""
        super().data_received(data)
        self.expect()

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        self.is_arriving = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Note that it is whole."""
        self.is_arriving = False
        super().on_message_complete()

    def expect(self) -> None:
        """Begin to count where something is missing of a request, and stop where nothing is."""
        if not self._is_missing():
            if self._late is not None:
                self._forget()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(self.arrival_s, self._end_if_late)

    def _is_missing(self) -> bool:
        """Say whether this side waits for the other, without uvicorn's own timer for idle connections."""
        if self.is_arriving:
            return True
        cycle: RequestResponseCycle | None = self.cycle
        return self.timeout_keep_alive_task is None and (cycle is None or cycle.response_complete)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end_if_late(self) -> None:
        """Close the connection, with a word unless an answer is under way on it."""
        self._late = None
        if self.transport.is_closing() or not self._is_missing():
            return
        if self.flow.read_paused:
            # What is missing has not been read from the socket yet, because the application is slow to take it.
            self.expect()
            return
        cycle: RequestResponseCycle | None = self.cycle
        is_of_this_request = cycle is not None and cycle.more_body and not self.pipeline
        if cycle is None or cycle.response_complete or (is_of_this_request and not cycle.response_started):
            self.transport.write(_TOO_LATE)
        self.transport.close()
