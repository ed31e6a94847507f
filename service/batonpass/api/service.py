"""What the routes share: reading bodies, queries and names, asking the coordinator, and answering in JSON."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import context_of
from batonpass.codec.answers import to_json
from batonpass.codec.bodies import ReasonBody
from batonpass.codec.requests import checked_name
from batonpass.codec.shape import Parsed, Shape
from batonpass.core.handover.view import View
from batonpass.core.state.errors import ProtocolError, UnknownGroup
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import Input
from batonpass.core.state.replies import Answer, Declared, Done, DrainProgress, StreamsAdvice
from batonpass.placement.flow import Solver, minimum_flow
from batonpass.runtime.access import Tokens
from batonpass.runtime.audits import Audits
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.history import NOBODY_ASKED, Asked, command_of
from batonpass.runtime.ports import Defect

T = TypeVar("T", bound=Struct)
S = TypeVar("S")
R = TypeVar("R", Answer, Declared, Done, DrainProgress, StreamsAdvice)

_shape = cache(Shape)


@dataclass(frozen=True, slots=True)
class Service:
    """What the API serves; ``solver`` is for dry runs."""

    coordinator: Coordinator
    audits: Audits
    tokens: Tokens
    solver: Solver = minimum_flow

    async def ask(self, group_id: GroupId, item: Input, kind: type[R], asked: Asked = NOBODY_ASKED) -> R:
        """Carry out an input and return its reply, which is of the type ``kind``.

        Raises:
            ProtocolError: when it is refused.
        """
        reply = await self.coordinator.ask(group_id, item, asked)
        if isinstance(reply, kind):
            return reply
        raise reply if isinstance(reply, ProtocolError) else Defect(f"the reply is of an unexpected kind: {reply!r}")

    async def command(self, request: Request, item: Input, kind: type[R], *, reason: str = "") -> R:
        """Carry out a command on the group of the path; it leaves a row in the audit trail.

        Raises:
            ProtocolError: when it is refused.
        """
        group_id = group_of(request)
        asked = context_of(request).asked._replace(command=command_of(item), reason=reason)
        reply = await self.ask(group_id, item, kind, asked)
        self.coordinator.observer.commanded(group_id, asked)
        return reply


async def read_body(request: Request, kind: type[T]) -> T:
    """Return the body of a request as a ``kind``.

    Raises:
        InvalidRequest: naming every fault, unknown fields included.
        TooLarge, LimitExceeded, Disconnected: as ``RequestContext.body`` does.
    """
    parsed: Parsed[T] = await context_of(request).read(_shape(kind).parse)
    return parsed.value


def read_query(request: Request, kind: type[T]) -> T:
    """Return the query of a request as a ``kind``.

    Raises:
        InvalidRequest: naming every fault, unknown parameters included.
    """
    asked: T = _shape(kind).read(request.query_params, prefix="query")
    return asked


async def reason_of(request: Request, in_query: str | None = None) -> str:
    """Return the reason of a command whose body holds nothing else.

    ``in_query`` is that of a query that holds more than a reason, which the caller has read.

    Raises:
        InvalidRequest, TooLarge, LimitExceeded, Disconnected: as ``read_body`` does.
    """
    said = read_query(request, ReasonBody).reason if in_query is None else in_query
    return (await read_body(request, ReasonBody)).reason or said


async def command_without_answer(request: Request, item: Input, in_query: str | None = None) -> Response:
    """Carry out a command that has no answer; otherwise as ``reason_of`` and ``Service.command``."""
    await service_of(request).command(request, item, Done, reason=await reason_of(request, in_query))
    return no_content()


def page(
    name: str, found: Sequence[S], limit: int, body: Callable[[S], object], key: Callable[[S], object]
) -> Response:
    """Return the first ``limit`` items; ``next`` is the key of the last if there are more, else null."""
    shown = found[:limit]
    upto = key(shown[-1]) if len(found) > limit else None
    return json_response({name: [body(one) for one in shown], "next": upto})


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def group_of(request: Request) -> GroupId:
    return GroupId(checked_name("group", request.path_params["group"]))


async def known_group_of(request: Request) -> GroupId:
    """Return the group that the path names, which exists or existed.

    Raises:
        UnknownGroup: when no such group ever existed.
    """
    group_id = group_of(request)
    if not await service_of(request).coordinator.knows(group_id):
        raise UnknownGroup(f"there is no group {group_id}, and there never was")
    return group_id


async def view_of(request: Request) -> View:
    """Return the group that the path names, as it is now.

    Raises:
        UnknownGroup: when it is not declared.
        StoreUnavailable: when it cannot be read.
    """
    coordinator = service_of(request).coordinator
    group, soft = await coordinator.look(group_of(request))
    return View(group, soft, coordinator.now_ms())


def member_of(request: Request) -> MemberId:
    return MemberId(checked_name("member", request.path_params["member"]))


def task_of(request: Request) -> TaskId:
    return TaskId(checked_name("task", request.path_params["task"]))


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(body), status_code=status, headers=headers, media_type="application/json")


def no_content() -> Response:
    return Response(status_code=204)
