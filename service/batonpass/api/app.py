"""The HTTP application: routes, errors and life cycle around a coordinator."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter, FastAPI

from batonpass.api import (
    archive,
    audits,
    events,
    groups,
    health,
    heartbeats,
    members,
    openapi,
    operators,
    problems,
    streams,
    tokens,
)
from batonpass.api.admission import Admission, AdmissionPolicy
from batonpass.api.calls import Calls
from batonpass.api.health import Health
from batonpass.api.service import Service
from batonpass.api.turns import Offload

ROUTERS = tuple(part.router for part in (groups, members, streams, operators, archive, events, audits, tokens, health))


def create_app(
    service: Service,
    policy: AdmissionPolicy,
    health: Health,
    *,
    running: Callable[[], AbstractAsyncContextManager[None]],
) -> Admission:
    """Return the application that serves ``service`` to callers that ``policy`` admits, inside the context ``running``.

    ``Admission`` stands in front of the framework, so that a heartbeat passes none of the framework's middleware.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with running():
            yield

    app = FastAPI(
        lifespan=lifespan,
        redirect_slashes=False,
        # The framework's page would fetch its script from a host on the internet.
        docs_url=None,
        redoc_url=None,
        # The framework's telemetry would read the environment for each request, and our own metrics say the same.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = service
    app.state.policy = policy
    app.state.health = health
    app.state.reads, app.state.dry_runs = Offload(policy.limits.reads), Offload(policy.limits.dry_runs)
    for router in ROUTERS:
        app.include_router(router)
    problems.install(app)
    openapi.install(app)
    return Admission(
        app,
        policy,
        Calls(served(ROUTERS)),
        heartbeats.routes(service, policy.limits, policy.gate),
    )


def served(routers: tuple[APIRouter, ...]) -> list[tuple[str, str]]:
    """Return the method and path of every route of these routers."""
    return [
        (method, route.path)
        for router in routers
        for route in router.routes
        for method in sorted(getattr(route, "methods", None) or ())
        if hasattr(route, "path")
    ]
