"""A TCP proxy that does to connections what networks and disks do: delay, cut, refuse, forget."""

import asyncio
from types import TracebackType
from typing import Self


class Proxy:
    """Stands before a server on this machine.

    Attributes:
        delay_s: how long every piece of an answer is held back, as a disk that is slow to commit would.
        refuses: whether new connections are closed at once.
        hangs: whether answers are held back for ever, as by a server that hangs.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._forgotten: set[asyncio.StreamWriter] = set()
        self.delay_s = 0.0
        self.refuses = False
        self.hangs = False

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and cut what is left."""
        assert self._server is not None
        self._server.close()
        self.cut()

    @property
    def port(self) -> int:
        """The port to connect to."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        """Break every connection without a word."""
        for writer in self._open:
            writer.transport.abort()

    def forget(self) -> None:
        """Pass nothing on over the connections that are open, and end none, as when a machine dies."""
        self._forgotten |= self._open

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, inner_writer}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, inner_writer, is_answer=False))
                both.create_task(self._pass(inner_reader, writer, is_answer=True))
        except* OSError:
            pass
        finally:
            self._open -= {writer, inner_writer}
            for one in (writer, inner_writer):
                one.transport.abort()

    async def _pass(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while piece := await self._next(source, is_answer=is_answer):
            if is_answer and self.delay_s:
                await asyncio.sleep(self.delay_s)
            while is_answer and self.hangs:
                await asyncio.sleep(0.05)
            if to not in self._forgotten:
                to.write(piece)
                await to.drain()
        to.transport.abort()

    async def _next(self, source: asyncio.StreamReader, *, is_answer: bool) -> bytes:  # noqa: ARG002 - for heirs
        """Return what is to be passed on next; nothing at the end."""
        return await source.read(65_536)
