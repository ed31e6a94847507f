"""The line between one member and a coordinator in the same process, which can fail."""

import asyncio
import json
from dataclasses import dataclass, field

import httpx2 as httpx

from batonpass.worker.testing.http import Answerer, Reply


@dataclass(slots=True)
class Line:
    """A connection as a test wants it. Everything may be changed at any time.

    ``loses_answers``: calls arrive and are carried out, but their answers are lost. ``refuses_with``: a status that
    something on the way answers instead of the coordinator. ``delay_s`` applies on the way there, and again on the way
    back.
    """

    loses_answers: bool = False
    refuses_with: int | None = None
    delay_s: float = 0
    _cut: asyncio.Event = field(default_factory=asyncio.Event)
    # Every call that was made, as method and target.
    calls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_cut(self) -> bool:
        """Whether nothing goes through."""
        return self._cut.is_set()

    def cut(self) -> None:
        """Break the calls under way, and refuse every connection from now on."""
        self._cut.set()

    def mend(self) -> None:
        """Let calls through again."""
        self._cut = asyncio.Event()

    async def until_cut(self) -> None:
        """Wait until it is cut."""
        await self._cut.wait()


class LocalTransport(httpx.AsyncBaseTransport):
    """Carries the calls of one member over its line."""

    def __init__(self, answer: Answerer, line: Line) -> None:
        self._answer = answer
        self.line = line

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make one call.

        Raises:
            httpx.ConnectError: when the line is cut.
            httpx.ReadError: when the line is cut during the call, or loses the answer.
        """
        line, target = self.line, request.url.raw_path.decode("ascii")
        if line.is_cut:
            raise httpx.ConnectError("the line is cut", request=request)
        line.calls.append((request.method, target))
        await asyncio.sleep(line.delay_s)
        if line.refuses_with is not None:
            return _response(request, _refusal(line.refuses_with))
        answering = asyncio.ensure_future(self._answer(request.method, target, await request.aread()))
        cutting = asyncio.ensure_future(line.until_cut())
        try:
            await asyncio.wait((answering, cutting), return_when=asyncio.FIRST_COMPLETED)
            reply = answering.result() if answering.done() else None
        finally:
            # By this the coordinator learns that the caller of an unanswered call went away.
            answering.cancel()
            cutting.cancel()
        await asyncio.sleep(line.delay_s)
        if reply is None or line.loses_answers or line.is_cut:
            raise httpx.ReadError("the connection broke", request=request)
        return _response(request, reply)


def _response(request: httpx.Request, reply: Reply) -> httpx.Response:
    headers = {"content-type": reply.content_type} if reply.body else {}
    return httpx.Response(reply.status, headers=headers, content=reply.body, request=request)


def _refusal(status: int) -> Reply:
    kind = "store-unavailable" if status == 503 else "limit-exceeded" if status == 429 else "forbidden"
    problem = {"type": kind, "title": kind, "status": status, "detail": "the test wants it so", "action": "retry"}
    return Reply(status, json.dumps(problem).encode())
