"""Forwards a request to the coordinator that owns its group, and its answer back, as it comes (protocol 1.6).

There is one hop at most: a forwarded request is not forwarded again. The caller's token goes along, so the owner checks
it again. If the caller disconnects, the call to the owner ends too: a long-poll that breaks here breaks there.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

import httpx2 as httpx

from batonpass.api.context import FORWARDED, HEADER, Disconnected
from batonpass.http_clients import http_client
from batonpass.runtime.ports import NotOwner, StoreUnavailable

if TYPE_CHECKING:
    from batonpass.api.context import RequestContext

CONNECT_TIMEOUT_S: Final = 2.0
WRITE_TIMEOUT_S: Final = 10.0
IDLE_S: Final = 30.0
"""How long an idle connection to another coordinator is kept: well below the time after which the other closes it."""

IDLE_MAX: Final = 200
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


class Forwarder:
    """The connections to the other coordinators."""

    def __init__(self, *, verify: ssl.SSLContext | bool = True) -> None:
        """Connect on first use. ``verify`` is how the others' certificates are checked."""
        # A long-poll holds its connection for as long as it waits, so connections have no limit of their own here.
        self._client = http_client(
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S, write=WRITE_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=IDLE_MAX, keepalive_expiry=IDLE_S),
            verify=verify,
        )
        self._waiting: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def forward(self, context: RequestContext, owner: str, *, body_bytes_max: int) -> None:
        """Have the owner answer.

        Raises:
            NotOwner: when it cannot be reached, or breaks off before it answers (503).
            StoreUnavailable: when this coordinator stops while the call waits for news there (503).
            TooLarge: when the body is larger than this coordinator takes (413).
            Disconnected: when the caller disconnects.
        """
        work = self._pass(context, owner, await context.body(body_bytes_max))
        await context.unless_gone(self._until_stopping(work) if context.call.waits else work)

    async def _until_stopping(self, work: Coroutine[Any, Any, None]) -> None:
        passing = asyncio.create_task(work)
        self._waiting.add(passing)
        try:
            await passing
        except asyncio.CancelledError:
            if passing in self._waiting:
                raise  # Cancelled by the caller, and not by ``end_waits``.
            raise StoreUnavailable("the coordinator is stopping; try again", retry_after_ms=RETRY_AFTER_MS) from None
        finally:
            self._waiting.discard(passing)

    def end_waits(self) -> None:
        """End every call now that waits at another coordinator for news."""
        while self._waiting:
            self._waiting.pop().cancel()

    async def ask_all(self, context: RequestContext, others: Sequence[str]) -> list[Any]:
        """Send the same request to all other coordinators, and return their answers.

        Raises:
            NotOwner: when one of them does not answer (503), because the other answers would look complete.
        """
        return list(await asyncio.gather(*(self._ask(context, other) for other in others)))

    async def _ask(self, context: RequestContext, other: str) -> Any:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                answer = await self._client.get(_target(context, other), headers=_headers(context))
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            detail = f"the coordinator at {other} does not answer ({type(error).__name__}); try again"
            raise NotOwner(detail, retry_after_ms=RETRY_AFTER_MS) from error

    async def _pass(self, context: RequestContext, owner: str, body: bytes) -> None:
        request = self._client.build_request(
            context.scope["method"], _target(context, owner), headers=_headers(context), content=body
        )
        try:
            answer = await self._client.send(request, stream=True)
        except httpx.TransportError as error:
            raise NotOwner(
                f"the coordinator at {owner}, which owns the group, cannot be reached ({type(error).__name__}); try again",
                retry_after_ms=RETRY_AFTER_MS,
            ) from error
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


def _target(context: RequestContext, owner: str) -> str:
    raw: bytes = context.scope.get("raw_path") or context.scope["path"].encode()
    query: bytes = context.scope["query_string"]
    return owner.rstrip("/") + (raw + b"?" + query if query else raw).decode("latin-1")


def _headers(context: RequestContext) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in context.scope["headers"] if name not in _NOT_PASSED_ON]
    return [
        *kept,
        (HEADER, context.request_id.encode()),
        (FORWARDED, context.address.encode("latin-1", "replace") or b"?"),
    ]
