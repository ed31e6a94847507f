"""What every request passes first: its id, who makes it and whether it may, how often, and which coordinator answers.

The two calls that every member makes all the time, heartbeat and long-poll, are served right here, as plain ASGI: the
framework's path through routing, dependencies and response classes costs several times what the call itself does
(`docs/decisions` has the figures). Everything else goes on to the app.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final

from batonpass.api.access import Forbidden, Unauthenticated, check
from batonpass.api.calls import OPEN, UNKNOWN, Call, Calls
from batonpass.api.causes import Causes
from batonpass.api.edge import EVERYBODY, Edge
from batonpass.api.express import AHEAD, Ahead, Express
from batonpass.api.limits import has_news, too_early
from batonpass.api.parking import FAILED, POLL, Parking
from batonpass.api.problems import REFUSED, not_allowed
from batonpass.api.visit import FORWARDED, GONE_STATUS, JSON, VISIT, Disconnected, Headless, Visit, unless_gone
from batonpass.codec.answers import answer_body, to_json
from batonpass.codec.requests import checked_name, naming_query, read_heartbeat
from batonpass.core.errors import LimitExceeded, ProtocolError
from batonpass.core.ids import GroupId, MemberId
from batonpass.core.replies import Answer
from batonpass.runtime.ports import NotOwner, StoreUnavailable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from batonpass.api.service import Service
    from batonpass.core.inputs import Heartbeat

# /v1/groups/{group}/members/{member}/{call}
_PARTS: Final = 7
_UNCOUNTED: Final = frozenset(OPEN.values())
"""Calls without a limit: probes and scrapes come from the platform, and often."""

_AT_THE_DOOR: Final = (Unauthenticated, Forbidden, LimitExceeded)
RETRY_AFTER_MS: Final = 500


Serve = Callable[[Visit], Awaitable[None]]


class Front:
    """Serves heartbeats and long-polls, and hands everything else to the app behind it."""

    def __init__(self, app: ASGIApp, service: Service, edge: Edge, calls: Calls) -> None:
        self._app = app
        self._service = service
        self._edge = edge
        self._calls = calls
        self._causes = Causes()
        self.express = Express(service, edge, calls.heartbeat, self._causes)
        self.parking = Parking(service, edge, calls.assignment, self._causes)
        self._hot: dict[str, tuple[Call, Serve]] = {
            "heartbeat": (calls.heartbeat, self._heartbeat),
            "assignment": (calls.assignment, self._assignment),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        visit = Visit(scope, receive, send, UNKNOWN)
        visit.cause = self._causes.of(visit.headers.get(b"x-request-id"), visit.headers.get(b"traceparent"))
        try:
            serve = await self._enter(visit)
            if serve is not None:
                await serve(visit)
        except Disconnected:
            visit.status = visit.status or GONE_STATUS
        except ProtocolError as error:
            await self._refuse(visit, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect, and the next request is served
            self._edge.journal.failed(error, f"{scope['method']} {visit.call.path}", visit.cause)
            if not visit.started:
                await visit.refuse(FAILED)
        self._edge.meter.answered(visit.call.method, visit.call.path, visit.status, perf_counter() - began)

    async def _refuse(self, visit: Visit, error: ProtocolError) -> None:
        self._edge.meter.refused(error.type)
        if isinstance(error, _AT_THE_DOOR):
            self._edge.journal.refused(error, f"{visit.scope['method']} {visit.call.path}", visit.who, visit.cause)
        if not visit.started:
            await visit.refuse(error)

    async def _enter(self, visit: Visit) -> Serve | None:
        """Find out what is asked for and let pass who may; return what serves it here, None when another has done so.

        Nothing of this stays behind while a long-poll waits.
        """
        scope = visit.scope
        parts = visit.parts = scope["path"].split("/")
        hot = self._hot.get(parts[-1]) if len(parts) == _PARTS else None
        if hot is not None and (parts[1], parts[2], parts[4]) == ("v1", "groups", "members"):
            visit.call, serve = hot
        else:
            visit.call, serve = self._calls.find(scope["method"], parts), self._pass_to_app
        await self._admit(visit)
        if hot is not None and not visit.is_method(visit.call.method):
            raise not_allowed(scope["method"], scope["path"], [visit.call.method])
        if visit.call is not self._calls.heartbeat:
            self._limit(visit)
        return None if await self._forwarded(visit) else serve

    async def _admit(self, visit: Visit) -> None:
        """Find out who calls, and refuse who may not."""
        gate = self._edge.gate
        if gate is None:
            visit.principal = EVERYBODY
            return
        authorization = visit.headers.get(b"authorization")
        found = gate.remembered(authorization)
        if found is None:
            if gate.is_open(visit.call):
                return
            found = await gate.find(authorization)
        visit.principal = found
        check(found, visit.call, visit.group)

    def _limit(self, visit: Visit) -> None:
        """Refuse who calls too often: a member by its path, everybody else by the token, or the address."""
        if visit.call.path in _UNCOUNTED:
            return
        if visit.call.on_member:
            early = self._edge.limits.member.take((visit.scope["path"], visit.call.method))
            whose = "this member"
        else:
            early = self._edge.limits.operator.take(visit.who)
            whose = visit.who or "this caller"
        if early:
            raise too_early(early, whose)

    async def _forwarded(self, visit: Visit) -> bool:
        """Have the owner of the group answer where that is another coordinator; say whether it was so."""
        call = visit.call
        if not call.on_group or call.is_everywhere:
            return False
        owner = self._edge.ownership.owner_url(GroupId(visit.parts[3]))
        if owner is None:
            return False
        if FORWARDED in visit.headers:
            detail = f"the coordinators do not agree yet on who owns group {visit.parts[3]}; try again"
            raise NotOwner(detail, retry_after_ms=RETRY_AFTER_MS)
        try:
            await self._edge.forwarder.forward(visit, owner, body_bytes_max=self._service.body_bytes_max)
        except StoreUnavailable:
            if call is not self._calls.assignment or visit.started:
                raise
            # As every long-poll is answered that still waits when a coordinator stops.
            await visit.answer(204, b"", [])
        return True

    async def _pass_to_app(self, visit: Visit) -> None:
        scope = visit.scope
        scope[VISIT] = visit
        receive, send = visit.receive, visit.pass_answer
        if scope["method"] == "HEAD":
            headless = Headless(visit.receive, visit.pass_answer)
            scope, receive, send = {**scope, "method": "GET"}, headless.receive, headless.send
        await self._app(scope, receive, send)
        if REFUSED in scope:
            self._edge.meter.refused(scope[REFUSED])

    async def _heartbeat(self, visit: Visit) -> None:
        group_id, member_id = _named(visit)
        early = self._edge.limits.member.take(visit.scope["path"])
        ahead: Ahead | None = visit.scope.get(AHEAD)
        if ahead is None:
            said = await self._said(visit, member_id)
        else:
            said = ahead.said
            if ahead.refusal is not None:
                raise ahead.refusal
        if early and not await self._is_urgent(visit, group_id, said):
            raise too_early(early, "this member")
        answer = await self._service.ask(group_id, said, Answer, visit.asked)
        await visit.answer(200, to_json(answer_body(answer)), [JSON])

    async def _said(self, visit: Visit, member_id: MemberId) -> Heartbeat:
        body = await visit.body(self._service.body_bytes_max)
        said = read_heartbeat(member_id, body, tasks_max=self._service.coordinator.policy.max_tasks_per_heartbeat)
        return naming_query(said, visit.query()) if visit.scope["query_string"] else said

    async def _is_urgent(self, visit: Visit, group_id: GroupId, said: Heartbeat) -> bool:
        try:
            group, soft = await self._service.coordinator.look(group_id)
        except ProtocolError:
            return False
        return has_news(group, soft, said) and not self._edge.limits.urgent.take(visit.scope["path"])

    async def _assignment(self, visit: Visit) -> None:
        group_id, member_id = _named(visit)
        asked = POLL.read(visit.query(), prefix="query")
        coordinator = self._service.coordinator
        self._edge.limits.polls.take()
        visit.settle()
        try:
            async with unless_gone(visit):
                found = await coordinator.poll(group_id, member_id, after=asked.after, wait_ms=asked.wait_ms)
        finally:
            self._edge.limits.polls.give_back()
        if isinstance(found, ProtocolError):
            raise found
        if found is None:
            await visit.answer(204, b"", [])
        else:
            await visit.answer(200, to_json(answer_body(found)), [JSON])


def _named(visit: Visit) -> tuple[GroupId, MemberId]:
    """Return the group and the member that the path of a member's call names."""
    parts = visit.parts
    return GroupId(checked_name("group", parts[3])), MemberId(checked_name("member", parts[5]))
