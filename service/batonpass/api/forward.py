"""Forwards a request to the coordinator that owns its group, and its answer back, as it comes (protocol 1.6).

There is one hop at most: a forwarded request is not forwarded again. Path and query go on byte for byte, so that the
owner reads what was checked here. The caller's token goes along, so the owner checks it again. If the caller
disconnects, the call to the owner ends too: a long-poll that breaks here breaks there. An owner that is silent for
longer than the call may take, or whose lease is over, is waited for no longer.
"""

import asyncio
import contextlib
import math
import ssl
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2 as httpx

from batonpass.api.context import FORWARDED, HEADER, Disconnected, RequestContext
from batonpass.core.state.errors import ProtocolError
from batonpass.http_clients import http_client
from batonpass.runtime.ports import NotOwner, StoreUnavailable

CONNECT_TIMEOUT_S: Final = 2.0
WRITE_TIMEOUT_S: Final = 10.0
IDLE_S: Final = 30.0
"""How long an idle connection to another coordinator is kept: well below the time after which the other closes it."""

POOLS: Final = 64
"""Over how many pools the connections are spread: for each call the library looks at every connection of a pool."""

IDLE_MAX: Final = 3
"""How many idle connections a pool keeps."""

CUT_OFF_S: Final = 10.0
"""After so long without an answer an owner that keeps its lease is cut off from here, and may not be from elsewhere."""

ANSWER_S: Final = 30.0
ASK_TIMEOUT_S: Final = 5.0
RETRY_AFTER_MS: Final = 500
# RFC 9110, 7.6.1: what concerns one connection only. The host is the owner's, the length is counted anew.
_OF_CONNECTION: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_PASSED_ON: Final = _OF_CONNECTION | {b"host", b"content-length", HEADER, FORWARDED}
_NOT_PASSED_BACK: Final = _OF_CONNECTION | {b"date", b"server", HEADER}


@dataclass(slots=True)
class _Passing:
    """A call that is being passed on, and the error by which it was ended here, if it was."""

    owner: str
    wait_s: float
    ended_by: ProtocolError | None = None

    def end(self, task: asyncio.Task[None], error: ProtocolError) -> None:
        """End the call with an error, unless it has been ended."""
        if self.ended_by is None:
            self.ended_by = error
            task.cancel()


class Forwarder:
    """The connections to the other coordinators."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, answer_s: float = ANSWER_S) -> None:
        """Connect on first use. ``tls`` is how the others' certificates are checked, and which one they are shown.

        ``answer_s`` is how long an owner may be silent, in seconds, beside the time that a call itself waits for news.
        """
        self.tls = tls or ssl.create_default_context()
        self._answer_s = answer_s
        # A long-poll holds its connection for as long as it waits, so connections have no limit of their own here.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=IDLE_MAX, keepalive_expiry=IDLE_S)
        timeout = httpx.Timeout(answer_s, connect=CONNECT_TIMEOUT_S, write=WRITE_TIMEOUT_S)
        self._calls = {http_client(timeout=timeout, limits=limits, verify=self.tls): 0 for _ in range(POOLS)}
        self._passing: dict[asyncio.Task[None], _Passing] = {}
        self._silent_since: dict[str, float] = {}

    def is_cut_off(self, owner: str) -> bool:
        """Whether a coordinator has given no answer for long; if it were dead, it would own no group any more."""
        return time.monotonic() - self._silent_since.get(owner, math.inf) >= CUT_OFF_S

    async def close(self) -> None:
        for client in self._calls:
            await client.aclose()

    @contextlib.contextmanager
    def _client(self) -> Iterator[httpx.AsyncClient]:
        """Lend the client that has the fewest calls under way."""
        client = min(self._calls, key=self._calls.__getitem__)
        self._calls[client] += 1
        try:
            yield client
        finally:
            self._calls[client] -= 1

    async def forward(self, context: RequestContext, owner: str) -> None:
        """Have the owner answer.

        Raises:
            NotOwner: when it cannot be reached, breaks off before it answers, does not answer in time, or when its
                lease ends meanwhile (503).
            StoreUnavailable: when this coordinator stops while the call waits for news there (503).
            TooLarge, LimitExceeded: when the body is larger than this coordinator takes, or too many arrive (413, 429).
            Disconnected: when the caller disconnects.
        """
        body = await context.body()
        await context.unless_gone(self._until_ended(_Passing(owner, context.wait_s), context, body))

    async def _until_ended(self, call: _Passing, context: RequestContext, body: bytes) -> None:
        with self._client() as client:
            passing = asyncio.create_task(self._pass(client, context, call, body))
            self._passing[passing] = call
            try:
                await passing
            except asyncio.CancelledError:
                if call.ended_by is None:
                    raise  # By the caller.
                raise call.ended_by from None
            finally:
                del self._passing[passing]
                call.ended_by = None  # An error that refers to itself by its frame is freed by the collector only.

    def end_waits(self) -> None:
        """End every call now that waits at another coordinator for news."""
        stopping = "the coordinator is stopping; try again"
        for passing, call in self._passing.items():
            if call.wait_s:
                call.end(passing, StoreUnavailable(stopping, retry_after_ms=RETRY_AFTER_MS))

    def end_calls_beside(self, living: Collection[str]) -> None:
        """End every call now to a coordinator that is not among the ``living``: others take its groups over."""
        self._silent_since = {owner: since for owner, since in self._silent_since.items() if owner in living}
        for passing, call in self._passing.items():
            if call.owner not in living:
                detail = f"the lease of the coordinator at {call.owner}, which owned the group, is over; try again"
                call.end(passing, NotOwner(detail, retry_after_ms=RETRY_AFTER_MS))

    async def ask_all(self, context: RequestContext, others: Sequence[str]) -> list[Any]:
        """Send the same request to all other coordinators, and return their answers; none if one of them sent it here.

        Raises:
            NotOwner: when one of them does not answer (503), because the other answers would look complete.
        """
        if FORWARDED in context.headers:
            return []
        return list(await asyncio.gather(*(self._ask(context, other) for other in others)))

    async def _ask(self, context: RequestContext, other: str) -> Any:
        try:
            with self._client() as client:
                async with asyncio.timeout(ASK_TIMEOUT_S):
                    answer = await client.send(self._request(client, context, other))
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            detail = f"the coordinator at {other} does not answer ({type(error).__name__}); try again"
            raise NotOwner(detail, retry_after_ms=RETRY_AFTER_MS) from error

    def _request(
        self,
        client: httpx.AsyncClient,
        context: RequestContext,
        to: str,
        body: bytes | None = None,
        *,
        silent_s: float | None = None,
    ) -> httpx.Request:
        """Return the request as it is sent to another coordinator.

        The target is set as bytes: the client would leave out dot segments of a URL and quote what it thinks should be.
        """
        raw: bytes = context.scope.get("raw_path") or context.scope["path"].encode()
        query: bytes = context.scope["query_string"]
        base = httpx.URL(to)
        target = base.raw_path.rstrip(b"/") + (raw + b"?" + query if query else raw)
        timeout = httpx.Timeout(silent_s or self._answer_s, connect=CONNECT_TIMEOUT_S, write=WRITE_TIMEOUT_S)
        return client.build_request(
            context.scope["method"],
            base,
            headers=_headers(context),
            content=body,
            timeout=timeout,
            extensions={"target": target},
        )

    async def _pass(self, client: httpx.AsyncClient, context: RequestContext, call: _Passing, body: bytes) -> None:
        request = self._request(client, context, call.owner, body, silent_s=self._answer_s + call.wait_s)
        try:
            answer = await client.send(request, stream=True)
        except httpx.TransportError as error:
            self._silent_since.setdefault(call.owner, time.monotonic())
            raise NotOwner(
                f"the coordinator at {call.owner}, which owns the group, gives no answer ({type(error).__name__}); "
                "try again",
                retry_after_ms=RETRY_AFTER_MS,
            ) from error
        self._silent_since.pop(call.owner, None)
        try:
            await context.send(
                {
                    "type": "http.response.start",
                    "status": answer.status_code,
                    "headers": [(n.lower(), v) for n, v in answer.headers.raw if n.lower() not in _NOT_PASSED_BACK],
                }
            )
            async for chunk in answer.aiter_raw():
                await context.send({"type": "http.response.body", "body": chunk, "more_body": True})
            await context.send({"type": "http.response.body", "body": b""})
        except httpx.TransportError as error:
            # The beginning was sent already, so this answer can only break off too.
            raise Disconnected from error
        finally:
            await answer.aclose()


def _headers(context: RequestContext) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in context.scope["headers"] if name not in _NOT_PASSED_ON]
    return [
        *kept,
        (HEADER, context.request_id.encode()),
        (FORWARDED, context.address.encode("latin-1", "replace") or b"?"),
    ]
