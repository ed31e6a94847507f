"""What the routes share: reading bodies, queries and names, asking the coordinator, and answering in JSON."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from batonpass.codec.answers import to_json
from batonpass.codec.bodies import ReasonBody
from batonpass.codec.requests import checked_name
from batonpass.codec.shape import Shape
from batonpass.core.errors import ProtocolError, TooLarge
from batonpass.core.ids import GroupId, MemberId, TaskId
from batonpass.core.inputs import Input
from batonpass.core.replies import Answer, Declared, Done, DrainProgress
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.ports import Defect

T = TypeVar("T", bound=Struct)
R = TypeVar("R", Answer, Declared, Done, DrainProgress)

_REASON = Shape(ReasonBody)


@dataclass(frozen=True, slots=True)
class Service:
    """What the API serves, and within which limits.

    ``commanded`` hears of every mutating call of an operator that was accepted: group, call, who asked, and why.
    """

    coordinator: Coordinator
    body_bytes_max: int
    commanded: Callable[[str, str, str, str], None]

    async def ask(self, group_id: GroupId, item: Input, kind: type[R]) -> R:
        """Have an input carried out and return its reply, which is of the ``kind`` that this input has.

        Raises:
            ProtocolError: when it is refused.
        """
        reply = await self.coordinator.ask(group_id, item)
        if isinstance(reply, kind):
            return reply
        raise reply if isinstance(reply, ProtocolError) else Defect(f"the reply is of an unexpected kind: {reply!r}")

    async def body(self, chunks: AsyncIterable[bytes]) -> bytes:
        """Return a whole body.

        Raises:
            TooLarge: as soon as it is larger than this service takes (413).
        """
        parts, size = [], 0
        async for chunk in chunks:
            size += len(chunk)
            if size > self.body_bytes_max:
                raise TooLarge(f"a body may have at most {self.body_bytes_max} bytes")
            parts.append(chunk)
        return b"".join(parts)

    async def command(self, request: Request, item: Input, kind: type[R], *, reason: str = "") -> R:
        """Have an operator's command on the group of the path carried out, and tell who asked for it and why.

        Raises:
            ProtocolError: when it is refused.
        """
        group_id = group_of(request)
        reply = await self.ask(group_id, item, kind)
        self.commanded(group_id, type(item).__name__, request.client.host if request.client else "", reason)
        return reply

    async def reason(self, request: Request, in_query: str = "") -> str:
        """Return why a command was given, from its body (which may be absent) or its query.

        Raises:
            InvalidRequest: when the body holds anything else.
        """
        body = await self.body(request.stream())
        return _REASON.parse(body).value.reason or in_query


def query(request: Request, wanted: Shape[T]) -> T:
    """Return the query as its shape says.

    Raises:
        InvalidRequest: naming every fault, unknown parameters included.
    """
    return wanted.read(request.query_params, prefix="query")


def service_of(request: Request) -> Service:
    """Return what the app serves."""
    service: Service = request.app.state.service
    return service


def group_of(request: Request) -> GroupId:
    """Return the group that the path names."""
    return GroupId(checked_name("group", request.path_params["group"]))


def member_of(request: Request) -> MemberId:
    """Return the member that the path names."""
    return MemberId(checked_name("member", request.path_params["member"]))


def task_of(request: Request) -> TaskId:
    """Return the task that the path names."""
    return TaskId(checked_name("task", request.path_params["task"]))


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response with a JSON body."""
    return Response(to_json(body), status_code=status, headers=headers, media_type="application/json")


def nothing() -> Response:
    """Return the response of a command that has nothing to add."""
    return Response(status_code=204)
