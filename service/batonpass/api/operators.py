"""What operators do to a group beside declaring it: probing, pausing, pinning, releasing."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.openapi import route
from batonpass.api.service import nothing, query, service_of, task_of
from batonpass.codec.bodies import PauseBody, PinBody, ReasonBody, ReasonQuery
from batonpass.codec.requests import read_pause
from batonpass.codec.shape import Shape
from batonpass.core.ids import MemberId
from batonpass.core.inputs import Input, PinRequest, ProbeRequest, ReleaseRequest, ResumeRequest
from batonpass.core.replies import Done

_REASON = Shape(ReasonQuery)
_PIN = Shape(PinBody)
router = APIRouter(prefix="/v1/groups/{group}", tags=["operators"])


async def _order(request: Request, item: Input) -> Response:
    """Carry out a command whose body and query hold nothing but the reason."""
    service = service_of(request)
    reason = await service.reason(request, query(request, _REASON).reason)
    await service.command(request, item, Done, reason=reason)
    return nothing()


@route(router, "POST", "/probe", body=ReasonBody, query=ReasonQuery, answers={204: "Looked."})
async def probe(request: Request) -> Response:
    """Look now whether warmups have caught up."""
    return await _order(request, ProbeRequest())


@route(router, "POST", "/pause", body=PauseBody, query=ReasonQuery, answers={204: "Paused."})
async def pause(request: Request) -> Response:
    """Hold moves: those for balance only, or all of them."""
    service = service_of(request)
    asked = query(request, _REASON)
    wanted = read_pause(await service.body(request), reason=asked.reason)
    await service.command(request, wanted, Done, reason=wanted.reason)
    return nothing()


@route(router, "POST", "/resume", body=ReasonBody, query=ReasonQuery, answers={204: "Resumed."})
async def resume(request: Request) -> Response:
    """End a pause, and a storm."""
    return await _order(request, ResumeRequest())


@route(router, "PUT", "/tasks/{task}/pin", body=PinBody, query=ReasonQuery, answers={204: "Pinned."})
async def pin(request: Request) -> Response:
    """Bind a task to a member: it stays there, or moves there, warm."""
    service = service_of(request)
    asked = query(request, _REASON)
    said = _PIN.parse(await service.body(request)).value
    wanted = PinRequest(task_of(request), MemberId(said.member))
    await service.command(request, wanted, Done, reason=said.reason or asked.reason)
    return nothing()


@route(router, "DELETE", "/tasks/{task}/pin", body=ReasonBody, query=ReasonQuery, answers={204: "Unpinned."})
async def unpin(request: Request) -> Response:
    """Take the pin off a task."""
    return await _order(request, PinRequest(task_of(request), None))


@route(router, "POST", "/tasks/{task}/release", body=ReasonBody, query=ReasonQuery, answers={204: "Released."})
async def release(request: Request) -> Response:
    """Let a parked task be tried again."""
    return await _order(request, ReleaseRequest(task_of(request)))
