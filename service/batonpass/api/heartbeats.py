"""Heartbeats (protocol 4.1) and long-polls (protocol 6.1), the two calls that members make all the time.

``Admission`` hands their requests to these functions directly: the framework's middleware, routing and response classes
cost several times as much as these calls do (decision 0055 has the figures).
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from batonpass.api.access import Gate, Unauthenticated
from batonpass.api.calls import GROUP_PART, HEARTBEAT, LONG_POLL, MEMBER_PART, Call
from batonpass.api.context import JSON, RequestContext
from batonpass.api.limits import Limits, too_early
from batonpass.api.service import Service
from batonpass.codec.bodies import PollQuery
from batonpass.codec.requests import checked_name, naming_query, read_heartbeat
from batonpass.codec.shape import Shape
from batonpass.core.arrivals.reports import has_news
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import Heartbeat
from batonpass.core.state.replies import Answer
from batonpass.runtime.coordinator import Coordinator

_POLL = Shape(PollQuery)


def routes(
    service: Service, limits: Limits, gate: Gate | None
) -> Mapping[Call, Callable[[RequestContext], Awaitable[None]]]:
    """Return the function that serves each of the two calls."""
    return {HEARTBEAT: partial(_heartbeat, service, limits), LONG_POLL: partial(_long_poll, service, gate)}


async def _heartbeat(service: Service, limits: Limits, context: RequestContext) -> None:
    """Serve a heartbeat. Unlike other calls, one above the member's rate passes if it has news."""
    group_id, member_id = _named(context)
    early = limits.member.take((context.scope["path"], HEARTBEAT.method))
    tasks_max = service.coordinator.policy.max_tasks_per_heartbeat
    heartbeat = await context.read(partial(read_heartbeat, member_id, tasks_max=tasks_max))
    if context.scope["query_string"]:
        heartbeat = naming_query(heartbeat, context.query())
    if early and not await _is_urgent(service.coordinator, limits, context, group_id, heartbeat):
        raise too_early(early, "this member")
    answer = await service.ask(group_id, heartbeat, Answer, context.asked)
    await context.answer(*await context.written(answer), [JSON])


async def _is_urgent(
    coordinator: Coordinator, limits: Limits, context: RequestContext, group_id: GroupId, heartbeat: Heartbeat
) -> bool:
    try:
        group, soft = await coordinator.look(group_id)
    except ProtocolError:
        return False
    return has_news(group, soft, heartbeat, coordinator.now_ms()) and not limits.urgent.take(context.scope["path"])


async def _long_poll(service: Service, gate: Gate | None, context: RequestContext) -> None:
    """Answer with a member's assignment as soon as there is another one than the caller has.

    If the caller disconnects while it waits, the poll counts as broken (``Coordinator.poll``). A caller whose token was
    revoked meanwhile gets 401 instead of the answer.
    """
    group_id, member_id = _named(context)
    asked = _POLL.read(context.query(), prefix="query")
    poll = service.coordinator.poll(group_id, member_id, after=asked.after, wait_ms=asked.wait_ms)
    found = await context.unless_gone(poll)
    if found is None:
        await context.answer(204, b"", [])
        return
    if gate is not None and not await gate.still_admits(context.headers.get(b"authorization"), context.peer):
        raise Unauthenticated("the token was revoked, or has expired, while this call waited")
    if isinstance(found, ProtocolError):
        raise found
    await context.answer(*await context.written(found), [JSON])


def _named(context: RequestContext) -> tuple[GroupId, MemberId]:
    """Return the group and the member that the path names."""
    parts = context.parts
    return GroupId(checked_name("group", parts[GROUP_PART])), MemberId(checked_name("member", parts[MEMBER_PART]))
