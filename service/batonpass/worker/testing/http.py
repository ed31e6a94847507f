"""The answers of a coordinator for tests, and a small HTTP/1.1 server for them, which can break connections off."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self

import h11

_CHUNK_BYTES = 65_536


class Reply(NamedTuple):
    """A status and a body; refusals are problem objects."""

    status: int
    body: bytes = b""

    @property
    def content_type(self) -> str:
        return "application/json" if self.status < 400 else "application/problem+json"


Answerer = Callable[[str, str, bytes], Awaitable[Reply | None]]
"""Answers a method, a target and a body; None breaks the connection off. It is cancelled when its caller goes away."""


class HttpServer:
    """Serves one answerer on a port of this machine, for as long as its `async with` block lasts."""

    def __init__(
        self, answer: Answerer, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._answer = answer
        self._tls = tls
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Begin to listen.

        Raises:
            OSError: when the port is taken.
        """
        self._server = await asyncio.start_server(self._connected, self._host, self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, and break open connections off."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://{self._host}:{self._port}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            with contextlib.suppress(ConnectionError, h11.RemoteProtocolError):
                await _Connection(reader, writer, self._answer).serve()
        except asyncio.CancelledError:
            # The server closes; nothing else waits for this task.
            writer.transport.abort()
        finally:
            writer.close()


class _Connection:
    """One connection: a request at a time, each answered before the next is read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answerer) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        """Answer request after request until one side closes."""
        while True:
            request, body = await self._receive()
            if request is None:
                return
            method, target = request.method.decode("ascii"), request.target.decode("ascii")
            reply = await self._answered(method, target, body)
            if reply is None:
                self._writer.transport.abort()
                return
            await self._send(reply)
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _receive(self) -> tuple[h11.Request | None, bytes]:
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_CHUNK_BYTES))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return request, bytes(body)
            else:
                return None, b""

    async def _answered(self, method: str, target: str, body: bytes) -> Reply | None:
        """Return the answer; None when the caller goes away first, or the connection is to be broken off."""
        answering = asyncio.ensure_future(self._answer(method, target, body))
        leaving = asyncio.ensure_future(self._reader.read(_CHUNK_BYTES))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and (early := leaving.result()):
                # The caller did not go away: it sent its next request before this one was answered.
                self._http.receive_data(early)
                await asyncio.wait((answering,))
            return answering.result() if answering.done() else None
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _send(self, reply: Reply) -> None:
        headers = [("content-length", str(len(reply.body)))] if reply.status != 204 else []
        if reply.body:
            headers.append(("content-type", reply.content_type))
        out = self._http.send(h11.Response(status_code=reply.status, headers=headers)) or b""
        if reply.body:
            out += self._http.send(h11.Data(data=reply.body)) or b""
        out += self._http.send(h11.EndOfMessage()) or b""
        self._writer.write(out)
        await self._writer.drain()
