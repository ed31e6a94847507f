"""What each request passes first: its id, who makes it and whether it may, how often, which coordinator serves it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from batonpass.api.access import Gate, check, check_local
from batonpass.api.calls import GROUP_PART, HEARTBEAT, LONG_POLL, OPEN, UNKNOWN, Call, Calls
from batonpass.api.context import CONTEXT, FORWARDED, GONE_STATUS, Disconnected, RequestContext, RequestIds
from batonpass.api.forward import Forwarder
from batonpass.api.limits import Limits, too_early
from batonpass.api.problems import TooManyConnections, UnknownPath, not_allowed
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId
from batonpass.runtime.access import AccessRole, Principal
from batonpass.runtime.ports import Defect, NotOwner, Observer, Ownership, StoreUnavailable

EVERYBODY: Final = Principal("", AccessRole.ADMIN)
"""The caller of every request when tokens are off."""

_UNCOUNTED: Final = frozenset(chain.from_iterable(OPEN[name] for name in ("livez", "readyz")))
"""Calls without a rate limit: if a probe is refused, the platform ends a healthy process."""

_ALWAYS: Final = _UNCOUNTED.union(OPEN["metrics"])
"""Calls that are answered however many connections there are: operators learn of too many by a scrape."""

RETRY_AFTER_MS: Final = 500


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """How requests are admitted.

    Without a ``gate`` there are no tokens, and only requests from this machine are served. Calls of ``open_paths`` are
    answered without a token.
    """

    gate: Gate | None
    ownership: Ownership
    forwarder: Forwarder
    observer: Observer
    limits: Limits
    open_paths: frozenset[str] = frozenset()


class Admission:
    """The outermost ASGI application. It answers every error that comes out of a route, as a problem."""

    def __init__(
        self,
        app: ASGIApp,
        policy: AdmissionPolicy,
        calls: Calls,
        routes: Mapping[Call, Callable[[RequestContext], Awaitable[None]]],
    ) -> None:
        """Serve the calls of ``routes`` by the functions given there, and all others by ``app``."""
        self._app = app
        self._routes = routes
        self._policy = policy
        self._calls = calls
        self._request_ids = RequestIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        context = RequestContext(scope, receive, send, UNKNOWN, self._policy.limits)
        headers = context.headers
        context.request_id = self._request_ids.of(headers.get(b"x-request-id"), headers.get(b"traceparent"))
        try:
            await self._serve(context)
        except Disconnected:
            context.status = context.status or GONE_STATUS
        except ProtocolError as error:
            # Frames that hold their error would be held by it, and freed by nothing but the garbage collector.
            await self._refuse(context, error.with_traceback(None))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect, and the next request is served
            self._policy.observer.failed(error, f"{scope['method']} {context.call.path}", context.request_id)
            if not context.started:
                await context.refuse(Defect("the coordinator failed on this request; its log says how"))
        finally:
            context.end()
        call = context.call
        self._policy.observer.answered(call.method, call.path, context.status, perf_counter() - began)

    async def _serve(self, context: RequestContext) -> None:
        context.check_head()
        scope = context.scope
        calls = self._calls.at(context.parts)
        # HEAD is GET without a body (RFC 9110, 9.3.2): served as one, and the server leaves the body out.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        call = context.call = calls.get(method, UNKNOWN)
        if call.path not in _ALWAYS:
            self._policy.limits.connections.check()
        group = context.parts[GROUP_PART] if call.on_group else None
        await self._admit(context, group)
        if call is not HEARTBEAT:  # It may have news, so its own route limits it.
            self._limit(context)
        if not calls:
            raise UnknownPath(f"nothing is served at {scope['path']}; /docs lists what is")
        if call is UNKNOWN:
            raise not_allowed(scope["method"], scope["path"], sorted(calls))
        if context.wait_s:
            with self._policy.limits.polls.place(context.who):
                await self._answer(context, group)
        else:
            await self._answer(context, group)

    async def _answer(self, context: RequestContext, group: str | None) -> None:
        """Have a call answered that was admitted: by the owner of its group, by a route of its own, or by the app."""
        call, scope = context.call, context.scope
        if group is not None and not call.is_everywhere:
            owner = self._policy.ownership.owner_url(GroupId(group))
            if owner is not None:
                await self._forward(context, group, owner)
                return
        serve = self._routes.get(call)
        if serve is not None:
            await serve(context)
            return
        served = scope if scope["method"] == call.method else {**scope, "method": call.method}
        served[CONTEXT] = context
        try:
            await self._app(served, context.receive, context.send)
        finally:
            del served[CONTEXT]  # Scope and context refer to each other; else only the garbage collector frees them.

    async def _admit(self, context: RequestContext, group: str | None) -> None:
        """Find out who calls, and refuse a caller that may not make the call."""
        gate = self._policy.gate
        if gate is None:
            check_local(context.headers, context.peer)
            context.principal = EVERYBODY
            return
        authorization = context.headers.get(b"authorization")
        context.principal = gate.remembered(authorization)
        if context.call.path in self._policy.open_paths:
            return
        context.principal = context.principal or await gate.find(authorization, context.peer)
        check(context.principal, context.call, group)

    def _limit(self, context: RequestContext) -> None:
        """Refuse a call that comes too early. Each caller counts by token or address; on members, for each of them."""
        call, limits = context.call, self._policy.limits
        if call.path in _UNCOUNTED:
            return
        if call.on_member:
            early, whose = limits.member.take((context.who, context.scope["path"], call.method)), "this member"
        else:
            early, whose = limits.operator.take(context.who), context.who or "this caller"
        if early:
            raise too_early(early, whose)

    async def _forward(self, context: RequestContext, group: str, owner: str) -> None:
        """Have the other coordinator that owns the group answer."""
        if FORWARDED in context.headers:
            detail = f"the coordinators do not agree yet on who owns group {group}; try again"
            raise NotOwner(detail, retry_after_ms=RETRY_AFTER_MS)
        try:
            await self._policy.forwarder.forward(context, owner)
        except StoreUnavailable:
            if context.call is not LONG_POLL or context.started:
                raise
            # The same answer that every long-poll gets that still waits when a coordinator stops.
            await context.answer(204, b"", [])
        except NotOwner:
            context.is_misled = self._policy.forwarder.is_cut_off(owner)
            raise

    async def _refuse(self, context: RequestContext, error: ProtocolError) -> None:
        call = f"{context.scope['method']} {context.call.path}"
        self._policy.observer.refused(error, call, context.who, context.request_id)
        if not context.started:
            is_away = error.status == HTTPStatus.SERVICE_UNAVAILABLE and self._policy.ownership.sends_away()
            is_misled = is_away or context.is_misled
            await context.refuse(error, is_last=is_misled or isinstance(error, TooManyConnections))
