"""One request on its way: what it asks for, who makes it, and how it is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from batonpass.api.calls import GROUP_PART
from batonpass.api.causes import HEADER
from batonpass.api.problems import PROBLEM_JSON, problem_headers
from batonpass.codec.answers import problem_body, to_json
from batonpass.core.errors import TooLarge
from batonpass.runtime.history import Asked

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from batonpass.api.calls import Call
    from batonpass.core.errors import ProtocolError
    from batonpass.runtime.access import Principal

JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final = (b"content-type", PROBLEM_JSON.encode())
FORWARDED: Final = b"batonpass-forwarded-for"
"""The header of a request that another coordinator passed on: who made it, by address. Such a one goes no further."""

GONE_STATUS: Final = 499
"""What a call counts as whose caller went away before it was answered; nobody reads it as an answer."""

VISIT: Final = "batonpass.visit"
"""Where the scope of a request keeps the request as it came in, for the calls that need to know who asks."""


_NOTHING: Final[dict[bytes, bytes]] = {}


class Disconnected(Exception):
    """The caller went away before it was answered."""


class Visit:
    """One request, from its arrival to its answer."""

    __slots__ = ("call", "cause", "headers", "parts", "principal", "receive", "scope", "send", "started", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send, call: Call) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.call = call
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.parts: list[str] = []
        self.principal: Principal | None = None
        self.cause = ""
        self.started = False
        self.status = 0

    @property
    def group(self) -> str | None:
        """The group that the path names, where the call is about one."""
        return self.parts[GROUP_PART] if self.call.on_group else None

    @property
    def address(self) -> str:
        """The address that the request was made from, as far as it is known."""
        passed_on = self.headers.get(FORWARDED)
        if passed_on is not None:
            return passed_on.decode("latin-1")[:100]
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def who(self) -> str:
        """Who asks: the name of the token, and without one the address."""
        return (self.principal.name if self.principal else "") or self.address

    @property
    def asked(self) -> Asked:
        """Who asks, for the records."""
        return Asked(who=self.who, cause=self.cause)

    def is_method(self, method: str) -> bool:
        """Say whether a call of this method was made; HEAD is GET without a body (RFC 9110, 9.3.2)."""
        made = self.scope["method"]
        return bool(made == method or (made == "HEAD" and method == "GET"))

    def query(self) -> dict[str, str]:
        """Return the parameters of the query by name; of one that stands there twice, the last."""
        return dict(parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True))

    async def body(self, bytes_max: int) -> bytes:
        """Return the whole body.

        Raises:
            TooLarge: as soon as it is larger than ``bytes_max`` (413).
            Disconnected: when the caller goes away meanwhile.
        """
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > bytes_max:
                raise TooLarge(f"a body may have at most {bytes_max} bytes")
            if not message.get("more_body", False):
                return b"".join((*parts, part)) if parts else part
            parts.append(part)

    def settle(self) -> None:
        """Let go of what was needed to find out what is asked for: the answer may be minutes away."""
        passed_on = self.headers.get(FORWARDED)
        self.headers = _NOTHING if passed_on is None else {FORWARDED: passed_on}
        self.parts = []

    async def gone(self) -> None:
        """Return when the caller goes away."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Answer, with the id of the request beside the other headers."""
        self.started = True
        self.status = status
        headers = [*headers, (HEADER, self.cause.encode())]
        if status != 204:
            headers.append((b"content-length", b"%d" % len(body)))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": b"" if self.scope["method"] == "HEAD" else body})

    async def refuse(self, error: ProtocolError) -> None:
        """Answer with a problem."""
        headers = [(name.encode(), value.encode()) for name, value in problem_headers(error).items()]
        await self.answer(error.status, to_json(problem_body(error)), [_PROBLEM, *headers])

    async def pass_answer(self, message: Message) -> None:
        """Send on what the app answers, with the id of the request."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (HEADER, self.cause.encode())]
        await self.send(message)


class Headless:
    """Answers HEAD as GET would be answered, without a body; an answer without an end ends at once."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._done = asyncio.Event()

    async def receive(self) -> Message:
        """Return what the caller sends; once it was answered, that it went away."""
        if self._done.is_set():
            return {"type": "http.disconnect"}
        receiving = asyncio.ensure_future(self._receive())
        done = asyncio.ensure_future(self._done.wait())
        try:
            await asyncio.wait((receiving, done), return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else {"type": "http.disconnect"}
        finally:
            receiving.cancel()
            done.cancel()

    async def send(self, message: Message) -> None:
        """Send the beginning of an answer, and nothing of what follows."""
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b""})
            self._done.set()


class unless_gone:  # noqa: N801 - it is used as asyncio.timeout is
    """Break off what happens in the block when the caller goes away: it is cancelled, and ``Disconnected`` comes out.

    The block runs in the task of the request itself, so that a parked long-poll costs one task more and not two.
    """

    __slots__ = ("_is_gone", "_task", "_watching")

    def __init__(self, visit: Visit) -> None:
        self._watching = asyncio.ensure_future(visit.gone())
        self._task = asyncio.current_task()
        self._is_gone = False

    async def __aenter__(self) -> None:
        """Begin to watch."""
        self._watching.add_done_callback(self._break_off)

    def _break_off(self, watching: asyncio.Future[None]) -> None:
        if not watching.cancelled() and self._task is not None:
            self._is_gone = True
            self._task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop watching."""
        self._watching.cancel()
        # As asyncio.timeout does: a cancellation that came from elsewhere as well goes on.
        if self._is_gone and self._task is not None and self._task.uncancel() <= 0 and kind is asyncio.CancelledError:
            raise Disconnected
