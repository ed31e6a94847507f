"""Whether this process lives, whether it is ready to serve, and its metrics."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.openapi import route
from batonpass.api.service import json_response

router = APIRouter(tags=["health"])


class Readiness:
    """Whether this process should be sent requests, and if not, why. Each check returns its reason, or ""."""

    def __init__(self, *checks: Callable[[], str]) -> None:
        self._checks = checks
        self.is_stopping = False

    def reasons(self) -> list[str]:
        """Return why requests should go elsewhere; nothing if this process is ready."""
        found = [reason for check in self._checks if (reason := check())]
        return ["the coordinator is stopping", *found] if self.is_stopping else found


@dataclass(frozen=True, slots=True)
class Health:
    """What the platform asks a process.

    ``loop_age_ms`` says how long ago the event loop last turned. ``scrape`` returns the metrics in the form that an
    ``Accept`` header prefers, with their content type.
    """

    readiness: Readiness
    loop_age_ms: Callable[[], float]
    loop_age_max_ms: int
    scrape: Callable[[str], Awaitable[tuple[bytes, str]]]


@route(
    router,
    "GET",
    "/livez",
    answers={200: "The event loop turns.", 503: "It stood still for too long."},
    schema="livez_get",
)
async def livez(request: Request) -> Response:
    """Say whether the process lives, and how long ago its event loop last turned."""
    health = _health(request)
    age_ms = health.loop_age_ms()
    lives = age_ms <= health.loop_age_max_ms
    body = {"status": "ok" if lives else "stalled", "loop_age_ms": round(age_ms, 1)}
    return json_response(body, 200 if lives else 503)


@route(router, "GET", "/readyz", answers={200: "Ready.", 503: "Not ready, with the reasons."}, schema="readyz_get")
async def readyz(request: Request) -> Response:
    """Say whether requests are served, and if not, why."""
    reasons = _health(request).readiness.reasons()
    return json_response({"status": "not-ready" if reasons else "ready", "reasons": reasons}, 503 if reasons else 200)


@route(
    router,
    "GET",
    "/metrics",
    answers={200: "The metrics, in OpenMetrics' or in Prometheus' text, by Accept."},
    texts=("application/openmetrics-text", "text/plain"),
)
async def metrics(request: Request) -> Response:
    """Show the metrics for Prometheus."""
    body, content_type = await _health(request).scrape(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})


def _health(request: Request) -> Health:
    health: Health = request.app.state.health
    return health
