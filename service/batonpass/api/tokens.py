"""Making, listing and revoking tokens, for admins. A secret is shown once, in the answer that makes it."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import context_of
from batonpass.api.openapi import route
from batonpass.api.problems import UnknownPath
from batonpass.api.service import json_response, no_content, read_body, read_query, reason_of, service_of
from batonpass.codec.answers import rfc3339
from batonpass.codec.bodies import ReasonBody, TokenBody
from batonpass.codec.shape import refusal
from batonpass.core.state.ids import GroupId
from batonpass.runtime.access import AccessRole, Principal, StoredToken

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])


@route(
    router,
    "POST",
    "",
    body=TokenBody,
    query=ReasonBody,
    answers={201: "Made; `secret` is shown here and never again."},
    schema="token_post",
)
async def create_token(request: Request) -> Response:
    """Make a token. One of role worker is bound to a group; one of role admin is bound to none."""
    service = service_of(request)
    asked = read_query(request, ReasonBody)
    said = await read_body(request, TokenBody)
    role = AccessRole(said.role)
    if role is AccessRole.WORKER and said.group is None:
        raise refusal([("group", "a worker's token is bound to a group: name it")])
    if role is AccessRole.ADMIN and said.group is not None:
        raise refusal([("group", "an admin's token is bound to no group")])
    now_ms = service.coordinator.now_ms()
    expires_ms = None if said.expires_in_ms is None else now_ms + said.expires_in_ms
    wanted = Principal(said.name, role, None if said.group is None else GroupId(said.group), expires_ms)
    command = context_of(request).asked._replace(command="create-token", reason=said.reason or asked.reason)
    made, secret = await service.tokens.create(wanted, command)
    service.coordinator.observer.commanded(made.group or "", command)
    return json_response(token_body(made, now_ms) | {"secret": secret}, 201, {"cache-control": "no-store"})


@route(router, "GET", "", answers={200: "Every token, without its secret."}, schema="tokens_get")
async def list_tokens(request: Request) -> Response:
    """List the tokens, oldest first, revoked and expired ones too."""
    service = service_of(request)
    now_ms = service.coordinator.now_ms()
    return json_response({"tokens": [token_body(one, now_ms) for one in await service.tokens.list()]})


@route(
    router,
    "DELETE",
    "/{token}",
    body=ReasonBody,
    query=ReasonBody,
    answers={204: "Revoked; it is refused within seconds."},
)
async def revoke_token(request: Request) -> Response:
    """Revoke a token. It may be taken for some seconds more: for as long as coordinators remember it."""
    token_id: str = request.path_params["token"]
    service = service_of(request)
    command = context_of(request).asked._replace(command="revoke-token", reason=await reason_of(request))
    if not await service.tokens.revoke(token_id, command):
        raise UnknownPath(f"there is no token {token_id}; GET /v1/tokens lists them")
    service.coordinator.observer.commanded("", command)
    return no_content()


def token_body(token: StoredToken, now_ms: int) -> dict[str, Any]:
    is_over = token.expires_ms is not None and token.expires_ms <= now_ms
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "group": token.group,
        "last_four": token.last_four,
        "status": "revoked" if token.revoked_ms is not None else "expired" if is_over else "valid",
        "created_at": rfc3339(token.created_ms),
        "expires_at": None if token.expires_ms is None else rfc3339(token.expires_ms),
        "revoked_at": None if token.revoked_ms is None else rfc3339(token.revoked_ms),
    }
