"""Whether this process lives, and whether it is ready to serve."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.openapi import route
from batonpass.api.service import json_response, service_of

router = APIRouter(tags=["health"])


@route(router, "GET", "/livez", answers={200: "The event loop turns."})
async def livez(request: Request) -> Response:
    """Say that the process lives, and how long ago its event loop last turned."""
    age_ms: Callable[[], float] = request.app.state.loop_age_ms
    return json_response({"status": "ok", "loop_age_ms": round(age_ms(), 1)})


@route(router, "GET", "/readyz", answers={200: "Ready.", 503: "Not ready, with the reasons."})
async def readyz(request: Request) -> Response:
    """Say whether requests are served, and if not, why."""
    if service_of(request).coordinator.is_ready:
        return json_response({"status": "ready", "reasons": []})
    return json_response({"status": "not-ready", "reasons": ["the groups are being read from the record log"]}, 503)
