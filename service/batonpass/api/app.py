"""The HTTP application: routes, errors and life cycle around a coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from batonpass import __version__
from batonpass.api import archive, audits, events, groups, health, members, openapi, operators, problems, tokens
from batonpass.api.aside import Aside
from batonpass.api.calls import Calls
from batonpass.api.edge import Edge
from batonpass.api.front import Front
from batonpass.api.service import Service
from batonpass.api.visit import GONE_STATUS, Disconnected

ROUTERS = tuple(part.router for part in (groups, members, operators, archive, events, audits, tokens, health))


def create_app(service: Service, edge: Edge, *, running: Callable[[], AbstractAsyncContextManager[None]]) -> Front:
    """Return the application that serves ``service`` behind ``edge``, while what it stands on is ``running``."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with running():
            yield

    app = FastAPI(
        title="Batonpass",
        version=__version__,
        description="Warm handovers for stateful stream processing.",
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.service = service
    app.state.edge = edge
    app.state.aside = Aside()
    for router in ROUTERS:
        app.include_router(router)
    problems.install(app, ROUTERS)
    # Left to the framework, a caller that breaks off would count as a failure of the program.
    app.add_exception_handler(Disconnected, _gone)
    openapi.install(app)
    return Front(app, service, edge, Calls(served(ROUTERS)))


def served(routers: tuple[APIRouter, ...]) -> list[tuple[str, str]]:
    """Return the method and path of every route."""
    return [
        (method, one.path)
        for router in routers
        for one in router.routes
        for method in sorted(getattr(one, "methods", None) or ())
        if hasattr(one, "path")
    ]


async def _gone(_request: Request, _error: Exception) -> Response:
    """Answer a caller that went away: nothing reaches it, but the call is counted."""
    return Response(status_code=GONE_STATUS)
