"""Declaring, changing and deleting groups."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.openapi import route
from batonpass.api.service import group_of, json_response, nothing, query, service_of
from batonpass.codec.bodies import DeletionQuery, GroupBody, ReasonQuery
from batonpass.codec.requests import etag, read_declaration, read_if_match
from batonpass.codec.shape import Shape
from batonpass.core.errors import UnknownGroup
from batonpass.core.inputs import GroupDeletion
from batonpass.core.replies import Declared, Done

router = APIRouter(prefix="/v1", tags=["groups"])
_REASON = Shape(ReasonQuery)
_DELETION = Shape(DeletionQuery)
GROUP = "/groups/{group}"


@route(router, "PUT", GROUP, body=GroupBody, query=ReasonQuery, answers={201: "Created.", 200: "Changed."})
async def declare(request: Request) -> Response:
    """Create a group, or change it; a change needs If-Match with the last ETag."""
    service = service_of(request)
    group_id = group_of(request)
    asked = query(request, _REASON)
    body = await service.body(request.stream())
    if_match = read_if_match(request.headers.get("if-match"), await _revision(request))
    wanted = read_declaration(group_id, body, if_match=if_match)
    declared = await service.command(request, wanted, Declared, reason=asked.reason)
    return json_response({"group": group_id}, 201 if declared.created else 200, {"etag": etag(declared.revision)})


@route(router, "DELETE", GROUP, query=DeletionQuery, answers={204: "Deleted."})
async def delete(request: Request) -> Response:
    """Delete a group without members, or with them when forced; its epochs and fencing tokens are kept."""
    asked = query(request, _DELETION)
    await service_of(request).command(request, GroupDeletion(force=asked.force), Done, reason=asked.reason)
    return nothing()


async def _revision(request: Request) -> int | None:
    """Return the present revision of the group; None when it is not declared."""
    try:
        group, _ = await service_of(request).coordinator.look(group_of(request))
    except UnknownGroup:
        return None
    return group.revision
