"""Advice to Kafka Streams applications: who is to have what after a rebalance (protocol 14.1)."""

from http import HTTPStatus

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import UNCOUNTED_BYTES, context_of
from batonpass.api.openapi import route
from batonpass.api.service import group_of, service_of
from batonpass.codec.answers import to_json
from batonpass.codec.streams import StreamsBody, advice_body, read_names, read_rebalance
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.inputs import RefusedRebalance
from batonpass.core.state.replies import StreamsAdvice

router = APIRouter(prefix="/v1", tags=["kafka streams"])


@route(
    router,
    "POST",
    "/groups/{group}/advice",
    body=StreamsBody,
    answers={200: "Who is to have what, and when to ask again."},
    schema="advice",
)
async def advise(request: Request) -> Response:
    """Take what the leader of a Kafka Streams group knows at a rebalance, and answer who is to have what."""
    service, group_id, context, body = service_of(request), group_of(request), context_of(request), b""
    try:
        body = await context.body()
        rebalance = await context.read_beside(read_rebalance, body)
        advice = await service.ask(group_id, rebalance, StreamsAdvice, context.asked)
    except ProtocolError as refused:
        # Whoever refuses it, the group shows why. That it is not served just now is no refusal.
        if refused.status != HTTPStatus.SERVICE_UNAVAILABLE:
            await service.coordinator.ask(group_id, RefusedRebalance(refused.detail, read_names(body)))
        raise
    mode = "assign" if rebalance.other is None else "shadow"

    def write() -> bytes:
        return to_json(advice_body(group_id, mode, advice))

    # The answer names each task, as the question did.
    content = await context.coded(write, is_large=len(body) > UNCOUNTED_BYTES)
    return Response(content, media_type="application/json")
