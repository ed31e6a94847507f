"""Whether this process lives, whether it is ready to serve, and what it counts."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.edge import edge_of
from batonpass.api.openapi import route
from batonpass.api.service import json_response

router = APIRouter(tags=["health"])


@route(router, "GET", "/livez", answers={200: "The event loop turns.", 503: "It stood still for too long."})
async def livez(request: Request) -> Response:
    """Say whether the process lives, and how long ago its event loop last turned."""
    edge = edge_of(request)
    age_ms = edge.loop_age_ms()
    lives = age_ms <= edge.loop_age_max_ms
    body = {"status": "ok" if lives else "stalled", "loop_age_ms": round(age_ms, 1)}
    return json_response(body, 200 if lives else 503)


@route(router, "GET", "/readyz", answers={200: "Ready.", 503: "Not ready, with the reasons."})
async def readyz(request: Request) -> Response:
    """Say whether requests are served, and if not, why."""
    reasons = edge_of(request).readiness.reasons()
    return json_response({"status": "not-ready" if reasons else "ready", "reasons": reasons}, 503 if reasons else 200)


@route(router, "GET", "/metrics", answers={200: "The metrics, in OpenMetrics' or in Prometheus' text, by Accept."})
async def metrics(request: Request) -> Response:
    """Show the metrics for Prometheus."""
    body, content_type = await edge_of(request).scrape(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})
