"""The two calls that every member makes all the time, heartbeat and long-poll, as plain ASGI in front of the app.

The framework's path through routing, dependencies and response classes costs several times what the call itself does
(`docs/decisions` has the figures). Everything else goes on to the app.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from batonpass.api.problems import PROBLEM_JSON, not_allowed, problem_headers
from batonpass.api.service import Service
from batonpass.codec.answers import answer_body, problem_body, to_json
from batonpass.codec.bodies import PollQuery
from batonpass.codec.requests import checked_name, read_heartbeat
from batonpass.codec.shape import Shape
from batonpass.core.errors import ProtocolError
from batonpass.core.ids import GroupId, MemberId
from batonpass.core.replies import Answer
from batonpass.runtime.ports import Defect

_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", PROBLEM_JSON.encode())
_POLL = Shape(PollQuery)
# /v1/groups/{group}/members/{member}/{call}
_PARTS = 7


Serve = Callable[[GroupId, MemberId, Scope, Receive], Awaitable["Answer | None"]]


class Disconnected(Exception):
    """The caller went away before it was answered."""


class Front:
    """Serves heartbeats and long-polls, and hands everything else to the app behind it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._calls: dict[str, tuple[str, Serve]] = {
            "heartbeat": ("POST", self._heartbeat),
            "assignment": ("GET", self._assignment),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            parts = scope["path"].split("/")
            if len(parts) == _PARTS and parts[1] == "v1" and parts[2] == "groups" and parts[4] == "members":
                served = self._calls.get(parts[6])
                if served is not None:
                    return await self._guarded(served, (parts[3], parts[5]), scope, receive, send)
        await self._app(scope, receive, send)
        return None

    async def _guarded(
        self, call: tuple[str, Serve], names: tuple[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            serve = _served(call, scope)
            group_id = GroupId(checked_name("group", names[0]))
            member_id = MemberId(checked_name("member", names[1]))
            answer = await serve(group_id, member_id, scope, receive)
        except Disconnected:
            return
        except ProtocolError as error:
            headers = [_PROBLEM, *((name.encode(), value.encode()) for name, value in problem_headers(error).items())]
            await _respond(send, error.status, to_json(problem_body(error)), headers)
            return
        except Exception:
            defect = Defect("the coordinator failed on this request; its log says how")
            await _respond(send, defect.status, to_json(problem_body(defect)), [_PROBLEM])
            raise
        if answer is None:
            await _respond(send, 204, b"", [])
        else:
            await _respond(send, 200, to_json(answer_body(answer)), [_JSON])

    async def _heartbeat(
        self, group_id: GroupId, member_id: MemberId, _scope: Scope, receive: Receive
    ) -> Answer | None:
        body = await self._service.body(_chunks(receive))
        limit = self._service.coordinator.policy.max_tasks_per_heartbeat
        return await self._service.ask(group_id, read_heartbeat(member_id, body, tasks_max=limit), Answer)

    async def _assignment(
        self, group_id: GroupId, member_id: MemberId, scope: Scope, receive: Receive
    ) -> Answer | None:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        asked = _POLL.read(dict(pairs), prefix="query")
        coordinator = self._service.coordinator
        poll = asyncio.ensure_future(coordinator.poll(group_id, member_id, after=asked.after, wait_ms=asked.wait_ms))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((poll, gone), return_when=asyncio.FIRST_COMPLETED)
            if not poll.done():
                raise Disconnected
            found = poll.result()
        finally:
            # For a poll that still waits, this is how the coordinator learns that it broke.
            poll.cancel()
            gone.cancel()
        if isinstance(found, ProtocolError):
            raise found
        return found


def _served(call: tuple[str, Serve], scope: Scope) -> Serve:
    method, serve = call
    if scope["method"] != method:
        raise not_allowed(scope["method"], scope["path"], [method])
    return serve


async def _respond(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    if status != 204:
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
