"""The member's requests over HTTP: to one of several coordinators, and to the next one if that does not answer.

A request may reach a coordinator twice or not at all; by the protocol's design this costs nothing.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import httpx2 as httpx
import msgspec

from batonpass.client import NO_ANSWER, urls_in
from batonpass.http_clients import http_client
from batonpass.worker.forked import close_in_children, forks
from batonpass.worker.options import Options
from batonpass.worker.protocol import Request, RequestKind, http_target

log = logging.getLogger("batonpass.worker")

CONNECT_S = 2.0
"""How long to wait for a connection before another coordinator is tried."""

LINGER = 3
"""A heartbeat that waited too long is repeated, but its answer still counts: it is awaited this many times as long."""

_KEEP_ALIVE_S = 60


class Reply(NamedTuple):
    """An answer: its status, and its body if that was a JSON object."""

    status: int
    body: Mapping[str, object] | None

    @property
    def is_of_a_coordinator(self) -> bool:
        """Whether one has judged the request; a proxy whose coordinator is away answers too."""
        return self.status < 500 and (self.body is not None or self.status == 204)


class HttpCalls:
    """The connections of one member. It raises no error: the reply is None if a request is not sent or not answered."""

    def __init__(self, urls: Sequence[str], group: str, options: Options) -> None:
        """Use these base URLs in their order. One text may name several, with commas between them.

        Raises:
            ValueError: when one of them cannot be the URL of a coordinator, or there is none, or the proxy that the
                environment names for one of them cannot be used.
        """
        self._urls = urls_in(",".join(urls))
        self._group = group
        self._token = options.token
        self._answer_bytes_max = options.answer_bytes_max
        self._at = 0
        self._client = http_client(
            self._urls,
            verify=options.tls,
            headers=options.headers,
            transport=options.transport,
            limits=httpx.Limits(max_keepalive_connections=None, keepalive_expiry=_KEEP_ALIVE_S),
            timeout=None,  # every request says how long it waits
        )

    @property
    def url(self) -> str:
        """The coordinator that is asked next."""
        return self._urls[self._at]

    async def close(self) -> None:
        await self._client.aclose()

    async def exchange(self, request: Request) -> Reply | None:
        """Send a request and return the reply; None if no coordinator answers in time."""
        linger = 1 if request.kind is RequestKind.POLL else LINGER
        patience_s = request.timeout_ms * linger / 1_000
        try:
            async with asyncio.timeout(patience_s):
                return await self._ask_around(request, patience_s)
        except TimeoutError:
            log.debug("no answer to %s within %s s", request.kind, patience_s)
            return None

    async def _ask_around(self, request: Request, patience_s: float) -> Reply | None:
        reply: Reply | None = None
        again = True
        tries = len(self._urls)
        while tries > 0:
            tries -= 1
            at = self._at
            try:
                reply = await self._ask(at, request, patience_s)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                log.info("cannot reach %s: %s", self._urls[at], error)
            except (httpx.LocalProtocolError, UnicodeEncodeError):
                # The header holds a secret, and the error would show it.
                log.error("nothing can be sent to %s: is the token one word, and no more?", self._urls[at])  # noqa: TRY400
                return None
            except NO_ANSWER as error:
                log.info("%s broke off: %r", self._urls[at], error)
                # The other end may just have closed a connection that was kept open; a new connection will show that.
                tries, again = tries + again, False
            else:
                if reply.is_of_a_coordinator:
                    return reply
            self._leave(at)
        return reply

    async def _ask(self, at: int, request: Request, patience_s: float) -> Reply:
        method, target = http_target(request, self._group)
        loop = asyncio.get_running_loop()
        is_late = None
        if request.kind is not RequestKind.POLL:
            # The next request does not go to a coordinator that is late, though its answer still counts.
            is_late = loop.call_later(request.timeout_ms / 1_000, self._leave, at)
        try:
            async with self._client.stream(
                method,
                self._urls[at] + target,
                content=None if request.body is None else _encoded(request.body),
                headers=self._headers(request),
                timeout=httpx.Timeout(patience_s, connect=min(CONNECT_S, patience_s)),
                extensions={"trace": partial(_keep_from_children, forks())},
            ) as answer:
                content = await self._content(answer)
        finally:
            if is_late is not None:
                is_late.cancel()
        return Reply(answer.status_code, _body(answer, content))

    async def _content(self, answer: httpx.Response) -> bytes:
        """Return the whole body, unpacked; one that is too large is not read to its end, and counts as broken off."""
        content = bytearray()
        async for part in answer.aiter_bytes():
            content += part
            if len(content) > self._answer_bytes_max:
                raise httpx.RemoteProtocolError(f"an answer has more than {self._answer_bytes_max} bytes")
        return bytes(content)

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {} if request.body is None else {"content-type": "application/json"}
        token = self._token() if callable(self._token) else self._token
        # A token file often ends with a newline, which a header cannot have.
        if token and (token := token.strip()):
            headers["authorization"] = f"Bearer {token}"
        return headers

    def _leave(self, at: int) -> None:
        """Ask the next coordinator from now on, unless that is so already."""
        if self._at == at:
            self._at = (at + 1) % len(self._urls)


async def _keep_from_children(forks_before: int, event: str, about: Mapping[str, Any]) -> None:
    """Have a new connection closed in children; httpx calls this at every step of a request (its extension "trace").

    Raises:
        httpx.ConnectError: when a child was forked meanwhile: it may have a copy that is not closed.
    """
    if event.endswith((".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")):
        stream = about["return_value"]
        close_in_children(stream, _descriptors)
        if forks() != forks_before:
            await stream.aclose()
            raise httpx.ConnectError("this process was forked while it connected")


def _descriptors(stream: Any) -> list[int]:
    socket = stream.get_extra_info("socket")
    # A transport of the worker's own may go over something else.
    return [] if socket is None else [socket.fileno()]


def _encoded(body: Mapping[str, object]) -> bytes:
    """Return a body as JSON. What a worker's code said may hold what JSON cannot; the lease shall not end for that."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, UnicodeEncodeError):
        return json.dumps(body, ensure_ascii=False, default=lambda _: None).encode(errors="replace")


def _body(answer: httpx.Response, content: bytes) -> Mapping[str, object] | None:
    """Return the JSON object of an answer; if it names no time to wait, the one in the header is added."""
    try:
        found = msgspec.json.decode(content) if content else None
    except (msgspec.DecodeError, RecursionError):
        found = None
    body: dict[str, object] | None = found if isinstance(found, dict) else None
    wait = answer.headers.get("retry-after", "")
    if answer.status_code in {429, 503} and wait.isdecimal():
        body = {} if body is None else body
        body.setdefault("retry_after_ms", int(wait[:9]) * 1_000)
        if answer.status_code == 429:
            # A proxy's limit counts too, though a proxy does not speak the protocol.
            body.setdefault("type", "limit-exceeded")
    return body
