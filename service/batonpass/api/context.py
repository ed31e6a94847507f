"""One request on its way: what it asks for, who makes it, and how it is answered."""

import asyncio
import contextlib
import itertools
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from batonpass.api.calls import Call
from batonpass.api.limits import Limits
from batonpass.api.problems import PROBLEM_JSON, BadHead, problem_headers
from batonpass.codec.answers import problem_body, status_and_body, to_json
from batonpass.codec.bodies import WaitMs
from batonpass.codec.shape import AtOnce, HasFaults
from batonpass.core.state.errors import ProtocolError, TooLarge
from batonpass.core.state.replies import Answer, DrainProgress
from batonpass.runtime.access import Principal
from batonpass.runtime.history import Asked

T = TypeVar("T")

JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final = (b"content-type", PROBLEM_JSON.encode())
HEADER: Final = b"x-request-id"
FORWARDED: Final = b"batonpass-forwarded-for"
"""The header of a request that another coordinator forwarded: its caller's address. It is not forwarded again."""

GONE_STATUS: Final = 499
"""The status in metrics of a call whose caller disconnected before the answer. It is never sent."""

UNCOUNTED_BYTES: Final = 32_768
"""So much of a body counts for no limit on all of them, so that no large ones keep others' heartbeats out. The server
holds as much of each connection's before it is asked for it."""

TASKS_WRITTEN_AT_ONCE: Final = 5_000
"""A reply with more tasks than this is written beside the event loop: that takes longer than others should wait."""

_VERSIONS: Final = ("1.0", "1.1")

CONTEXT: Final = "batonpass.context"
"""The key of a request's context in its scope."""


class Disconnected(Exception):
    """The caller disconnected before it was answered."""


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request, from its arrival to its answer. Routes of the framework find it in the scope, under ``CONTEXT``."""

    scope: Scope
    receive: Receive
    _send: Send
    call: Call
    _limits: Limits
    headers: dict[bytes, bytes] = field(init=False)
    parts: list[str] = field(init=False)
    principal: Principal | None = None
    request_id: str = ""
    started: bool = False
    is_misled: bool = False
    """Whether the caller is better off at another coordinator, and so with another connection."""
    status: int = 0
    _body_bytes: int = 0

    def __post_init__(self) -> None:
        self.headers = dict(self.scope["headers"])
        self.parts = self.scope["path"].split("/")

    @property
    def address(self) -> str:
        """The address that the request was made from, as far as it is known."""
        passed_on = self.headers.get(FORWARDED)
        if passed_on is not None:
            return passed_on.decode("latin-1")[:100]
        return self.peer

    @property
    def peer(self) -> str:
        """The address at the other end of the connection, not from any header."""
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def who(self) -> str:
        """Who asks: the name of the token, and without one the address. Of one unknown, no header counts for that."""
        return self.peer if self.principal is None else self.principal.name or self.address

    @property
    def asked(self) -> Asked:
        """Who asks, for the records."""
        return Asked(who=self.who, cause=self.request_id)

    def check_head(self) -> None:
        """Refuse a head that is ambiguous (RFC 9112, 3.2), or that asks for something that is not supported.

        Raises:
            BadHead: naming what is wrong (400).
        """
        version = self.scope["http_version"]
        if version not in _VERSIONS:
            raise BadHead(f"HTTP/{version} is not spoken here; HTTP/1.1 is")
        names = [name for name, _ in self.scope["headers"]]
        if names.count(b"authorization") > 1:
            raise BadHead("there are several Authorization headers; send one")
        if names.count(b"host") > 1 or (version == "1.1" and b"host" not in names):
            raise BadHead("a request has one Host header")
        if self.headers.get(b"expect", b"100-continue").lower() != b"100-continue":
            raise BadHead("of Expect nothing but 100-continue is known")

    def query(self) -> dict[str, str]:
        """Return the parameters of the query by name; if a name occurs twice, the last one counts."""
        return dict(parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True))

    @property
    def wait_s(self) -> float:
        """For how many seconds the call may wait for news before it is answered; 0 if it does not wait.

        It is read as the route reads it, so that no spelling of a number waits without a place.
        """
        if self.call.wait_ms is None:
            return 0.0
        try:
            wait_ms: int = msgspec.convert(self.query().get("wait_ms", self.call.wait_ms), WaitMs, strict=False)
        except msgspec.ValidationError:
            return 0.0  # The route refuses it at once.
        return wait_ms / 1_000

    async def body(self) -> bytes:
        """Return the whole body. But for the first, its bytes count towards what all bodies may take, until ``end``.

        Raises:
            TooLarge: when its Content-Length, or what has arrived of it, is larger than one may be (413).
            LimitExceeded: when bodies that arrived earlier, of all callers or of this one, take too much (429).
            Disconnected: when the caller disconnects meanwhile.
        """
        bytes_max = self._limits.body_bytes_max
        if int(self.headers.get(b"content-length", 0)) > bytes_max:
            raise _too_large(bytes_max)
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            if (more := size - UNCOUNTED_BYTES - self._body_bytes) > 0:
                self._limits.bodies.take(self.who, more)
                self._body_bytes += more
            if not message.get("more_body", False):
                return b"".join((*parts, part)) if parts else part
            parts.append(part)

    async def read(self, read: Callable[[bytes], T]) -> T:
        """Return what ``read`` makes of the whole body; otherwise as ``body``."""
        return await self.read_beside(read, await self.body())

    async def read_beside(self, read: Callable[[bytes], T], body: bytes) -> T:
        """Return what ``read`` makes of a body; of a large one, or one with faults, beside the event loop."""
        if len(body) <= UNCOUNTED_BYTES:
            with contextlib.suppress(HasFaults):
                return read(AtOnce(body))
        return await self.coded(partial(read, body), is_large=True)

    async def coded(self, work: Callable[[], T], *, is_large: bool) -> T:
        """Return what ``work`` returns, which reads a body or writes one; if that is large, beside the event loop."""
        return await self._limits.coding.do(self.who, work) if is_large else work()

    async def written(self, reply: Answer | DrainProgress) -> tuple[int, bytes]:
        """Return the status and the body of the reply to a member's call."""
        tasks = reply.remaining if isinstance(reply, DrainProgress) else reply.assignment or ()

        def write() -> tuple[int, bytes]:
            status, body = status_and_body(reply)
            return status, to_json(body)

        return await self.coded(write, is_large=len(tasks) > TASKS_WRITTEN_AT_ONCE)

    def history(self) -> AbstractContextManager[None]:
        """Take a place of those who read the history. Raises LimitExceeded when there is none for this caller (429)."""
        return self._limits.history.place(self.who)

    def end(self) -> None:
        """Count the bytes of the body no more."""
        if self._body_bytes:
            self._limits.bodies.free(self.who, self._body_bytes)

    async def unless_gone(self, work: Awaitable[T]) -> T:
        """Return what ``work`` returns; cancel it when the caller disconnects. To be used once the body was read.

        Raises:
            Disconnected: when the caller disconnected first.
        """

        def break_off(gone: asyncio.Task[None]) -> None:
            if not gone.cancelled():
                with contextlib.suppress(RuntimeError):  # The work ended in this very moment.
                    timeout.reschedule(0.0)

        watching, timeout = asyncio.create_task(until_gone(self.receive)), asyncio.timeout(None)
        try:
            async with timeout:
                watching.add_done_callback(break_off)
                return await work
        except TimeoutError:
            if timeout.expired():
                raise Disconnected from None
            raise
        finally:
            watching.cancel()

    async def answer(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Send a whole answer; every status but 204 states the length."""
        if status != 204:
            headers = [*headers, (b"content-length", b"%d" % len(body))]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, error: ProtocolError, *, is_last: bool = False) -> None:
        """Answer with an error; ``is_last``: the connection ends with it."""
        headers = [(name.encode(), value.encode()) for name, value in problem_headers(error).items()]
        headers += [(b"connection", b"close")] if is_last else []
        await self.answer(error.status, to_json(problem_body(error)), [_PROBLEM, *headers])

    async def send(self, message: Message) -> None:
        """Send a part of the answer; its head gets the id of the request."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (HEADER, self.request_id.encode())]
        await self._send(message)


async def until_gone(receive: Receive) -> None:
    """Return when the caller has disconnected; what it sends until then is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"a body may have at most {bytes_max} bytes")


def context_of(request: Request) -> RequestContext:
    context: RequestContext = request.scope[CONTEXT]
    return context


_GIVEN: Final = re.compile(rb"[\x21-\x7e]{1,128}")
# https://www.w3.org/TR/trace-context: version, trace id, parent id, flags
_TRACE: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NO_TRACE: Final = b"0" * 32


class RequestIds:
    """Gives a request the id that it, its log lines and its records share.

    It takes the id that the caller has given, or makes one that no other process makes.
    """

    def __init__(self) -> None:
        self._start = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def of(self, request_id: bytes | None, traceparent: bytes | None) -> str:
        """Return ``X-Request-Id``, else the trace id of ``traceparent``, else an id of our own.

        An id that is too long, or has a blank or anything unprintable in it, is ignored.
        """
        if request_id is not None and _GIVEN.fullmatch(request_id):
            return request_id.decode()
        if traceparent is not None and (trace := _TRACE.match(traceparent)) and trace[1] != _NO_TRACE:
            return trace[1].decode()
        return f"{self._start}-{next(self._numbers):x}"
