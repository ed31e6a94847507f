"""A client that costs little: one request at a time on a connection, no more of HTTP than is answered here."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, cast

HEAD_END = b"\r\n\r\n"


class Answer(NamedTuple):
    """To one request."""

    status: int
    body: bytes


class Wire(asyncio.Protocol):
    """One kept-alive connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._received = b""

    @classmethod
    async def open(cls, port: int) -> "Wire":
        """Connect to a port of this machine."""
        _, wire = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take a piece of an answer."""
        self._received = self._received + data if self._received else data
        head_end = self._received.find(HEAD_END)
        if head_end < 0 or self._waiting is None:
            return
        head = self._received[:head_end].lower()
        status = int(head[9:12])
        at = head.find(b"content-length:")
        length = int(head[at + 15 : head.find(b"\r", at) if head.find(b"\r", at) > 0 else None]) if at >= 0 else 0
        whole = head_end + 4 + length
        if len(self._received) >= whole:
            body, self._received = self._received[head_end + 4 : whole], self._received[whole:]
            waiting, self._waiting = self._waiting, None
            if not waiting.done():
                waiting.set_result(Answer(status, body))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        """Wake the tasks that wait."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionResetError("the server closed the connection"))

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a request; the future is its answer."""
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.close()


def request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """Return a request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + HEAD_END + body
