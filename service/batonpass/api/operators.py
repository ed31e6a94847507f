"""What operators do to a group beside declaring it: probing, pausing, pinning, releasing."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import context_of
from batonpass.api.openapi import route
from batonpass.api.service import command_without_answer, no_content, read_body, read_query, service_of, task_of
from batonpass.codec.bodies import PauseBody, PinBody, ReasonBody
from batonpass.codec.requests import read_pause
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import PinRequest, ProbeRequest, ReleaseRequest, ResumeRequest
from batonpass.core.state.replies import Done

router = APIRouter(prefix="/v1/groups/{group}", tags=["operators"])


@route(router, "POST", "/probe", body=ReasonBody, query=ReasonBody, answers={204: "Looked."})
async def probe(request: Request) -> Response:
    """Look now whether warmups have caught up."""
    return await command_without_answer(request, ProbeRequest())


@route(router, "POST", "/pause", body=PauseBody, query=ReasonBody, answers={204: "Paused."})
async def pause(request: Request) -> Response:
    """Hold moves: those for balance only, or all of them."""
    asked = read_query(request, ReasonBody)
    wanted = await context_of(request).read(partial(read_pause, reason=asked.reason))
    await service_of(request).command(request, wanted, Done, reason=wanted.reason)
    return no_content()


@route(router, "POST", "/resume", body=ReasonBody, query=ReasonBody, answers={204: "Resumed."})
async def resume(request: Request) -> Response:
    """End a pause, and a storm."""
    return await command_without_answer(request, ResumeRequest())


@route(router, "PUT", "/tasks/{task}/pin", body=PinBody, query=ReasonBody, answers={204: "Pinned."})
async def pin(request: Request) -> Response:
    """Bind a task to a member: it stays there, or moves there, warm."""
    asked = read_query(request, ReasonBody)
    said = await read_body(request, PinBody)
    wanted = PinRequest(task_of(request), MemberId(said.member))
    await service_of(request).command(request, wanted, Done, reason=said.reason or asked.reason)
    return no_content()


@route(router, "DELETE", "/tasks/{task}/pin", body=ReasonBody, query=ReasonBody, answers={204: "Unpinned."})
async def unpin(request: Request) -> Response:
    """Take the pin off a task."""
    return await command_without_answer(request, PinRequest(task_of(request), None))


@route(router, "POST", "/tasks/{task}/release", body=ReasonBody, query=ReasonBody, answers={204: "Released."})
async def release(request: Request) -> Response:
    """Let a parked task be tried again."""
    return await command_without_answer(request, ReleaseRequest(task_of(request)))
