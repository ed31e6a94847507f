"""Joining (protocol 3.1), leaving, draining, evicting (protocol 9.1 to 9.4) and showing members.

Heartbeats and long-polls are in `heartbeats`.
"""

import asyncio
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import context_of
from batonpass.api.offload import aside, show, size_of
from batonpass.api.openapi import route
from batonpass.api.service import (
    command_without_answer,
    group_of,
    json_response,
    member_of,
    read_query,
    reason_of,
    service_of,
    view_of,
)
from batonpass.codec.bodies import DrainQuery, EvictQuery, JoinBody, LeaveQuery, PageQuery, ReasonBody
from batonpass.codec.requests import drain_of, eviction_of, leave_of, naming_query, read_join
from batonpass.codec.views import member_body, next_owners_of
from batonpass.core.arrivals.answers import drain_progress, refusal
from batonpass.core.arrivals.kept_out import run_named
from batonpass.core.state.errors import NotSafeToStop
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import DrainRequest, DrainReversal, TrustRequest
from batonpass.core.state.model import Group, Member
from batonpass.core.state.replies import Answer, DrainProgress
from batonpass.dry_run.load import load_status
from batonpass.explain.safe_to_stop import reasons_to_stay

router = APIRouter(prefix="/v1", tags=["members"])
MEMBER = "/groups/{group}/members/{member}"


@route(
    router,
    "PUT",
    MEMBER,
    body=JoinBody,
    query=ReasonBody,
    answers={201: "Joined.", 200: "Had joined before; the present assignment."},
    schema="member_answer",
)
async def join(request: Request) -> Response:
    """Join a group with a fresh member id."""
    service = service_of(request)
    group_id, member_id = group_of(request), member_of(request)
    limit = service.coordinator.policy.max_tasks_per_heartbeat
    said = await context_of(request).read(partial(read_join, member_id, tasks_max=limit))
    wanted = naming_query(said, request.query_params, known=("reason",))
    answer = await service.ask(group_id, wanted, Answer, context_of(request).asked)
    return await _answered(request, answer)


@route(router, "DELETE", MEMBER, body=ReasonBody, query=LeaveQuery, answers={204: "Left."})
async def leave(request: Request) -> Response:
    """Leave for good, or to restart under the same instance id; after the actives have been stopped."""
    asked = read_query(request, LeaveQuery)
    return await command_without_answer(request, leave_of(member_of(request), asked), asked.reason)


@route(
    router,
    "POST",
    MEMBER + "/drain",
    body=ReasonBody,
    query=DrainQuery,
    answers={200: "The member has no active left.", 202: "Under way when the wait was over."},
    schema="drain_answer",
)
async def drain(request: Request) -> Response:
    """Hand over everything that the member has, while it keeps processing; `until_undone` holds for its instance."""
    service = service_of(request)
    asked = read_query(request, DrainQuery)
    end = asyncio.get_running_loop().time() + asked.wait_ms / 1_000
    reason = await reason_of(request, asked.reason)
    wanted = drain_of(member_of(request), asked)
    if asked.only_wait:
        progress = await _progress(request, wanted)
    else:
        progress = await service.command(request, wanted, DrainProgress, reason=reason)
    while progress.remaining and not progress.undone:
        left_s = end - asyncio.get_running_loop().time()
        if left_s <= 0:
            break
        news = service.coordinator.news(group_of(request), wanted.member_id, wait_s=left_s)
        if not await context_of(request).unless_gone(news):
            break
        progress = await _progress(request, wanted)
    return await _answered(request, progress)


async def _progress(request: Request, wanted: DrainRequest) -> DrainProgress:
    """Return how far a drain is. Not by asking for it again: that would drain a member whose drain was taken back."""
    group = (await view_of(request)).group
    member = run_named(group, wanted)
    if member is None:
        raise refusal(group, wanted.member_id)
    return drain_progress(group, member)


@route(router, "DELETE", MEMBER + "/drain", body=ReasonBody, query=ReasonBody, answers={204: "The member stays."})
async def undrain(request: Request) -> Response:
    """Let a draining member stay, and its instance have tasks again; also by instance id, without a member."""
    return await command_without_answer(request, DrainReversal(member_of(request)))


@route(router, "POST", MEMBER + "/evict", body=ReasonBody, query=EvictQuery, answers={204: "Evicted."})
async def evict(request: Request) -> Response:
    """Remove a member; its tasks are free when its lease is over, or at once if the caller vouches for its death.

    With `until_undone`, no run of its instance gets a task until the drain of that instance is taken back.
    """
    asked = read_query(request, EvictQuery)
    return await command_without_answer(request, eviction_of(member_of(request), asked), asked.reason)


@route(router, "POST", MEMBER + "/trust", body=ReasonBody, query=ReasonBody, answers={204: "Trusted again."})
async def trust(request: Request) -> Response:
    """Forget what is held against a member on which tasks failed; also by instance id, without a member."""
    return await command_without_answer(request, TrustRequest(member_of(request)))


@route(
    router,
    "GET",
    "/groups/{group}/members",
    query=PageQuery,
    answers={200: "A page of members; `next` is where to go on, or null."},
    schema="members_get",
)
async def list_members(request: Request) -> Response:
    """List the members of a group by id."""
    asked = read_query(request, PageQuery)
    view = await view_of(request)
    group = view.group

    def work() -> dict[str, object]:
        names, next_owners = sorted(name for name in group.members if name > asked.after), next_owners_of(group)
        load = load_status(group, view.soft)
        shown = [member_body(view, group.members[name], next_owners, load) for name in names[: asked.limit]]
        return {"members": shown, "next": names[asked.limit - 1] if len(names) > asked.limit else None}

    return await show(request, size_of(group), work)


@route(router, "GET", MEMBER, answers={200: "The member."}, schema="member_get")
async def show_member(request: Request) -> Response:
    """Show a member: what it may hold, what it must give up, and what it last said."""
    view = await view_of(request)
    group, member = view.group, _present(view.group, member_of(request))
    size = size_of(group) if group.loads else len(group.unsettled) + len(member.assignment)
    return await show(
        request, size, lambda: member_body(view, member, next_owners_of(group), load_status(group, view.soft))
    )


@route(
    router,
    "GET",
    MEMBER + "/safe-to-stop",
    answers={200: "Stopping it now leaves no task without a ready copy."},
    schema="safe_to_stop_get",
)
async def safe_to_stop(request: Request) -> Response:
    """Say whether a member can be stopped now (for a preStop hook, a deployment gate); if not, 409 with the reasons."""
    view = await view_of(request)
    member = _present(view.group, member_of(request))
    work = partial(reasons_to_stay, view, member)
    reasons = await aside(request, len(member.assignment) + len(member.revoking), work)
    if reasons:
        detail = f"stopping member {member.id} now would interrupt {len(reasons)} tasks; drain it first, or wait"
        raise NotSafeToStop(detail, errors=reasons)
    return json_response({"member_id": member.id, "safe_to_stop": True})


async def _answered(request: Request, reply: Answer | DrainProgress) -> Response:
    status, content = await context_of(request).written(reply)
    return Response(content, status, media_type="application/json")


def _present(group: Group, member_id: MemberId) -> Member:
    member = group.members.get(member_id)
    if member is None:
        raise refusal(group, member_id)
    return member
