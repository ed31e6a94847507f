"""The HTTP application: routes, errors and life cycle around a coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp

from batonpass import __version__
from batonpass.api import groups, health, members, openapi, operators, problems
from batonpass.api.front import Front
from batonpass.api.service import Service
from batonpass.runtime.pulse import Pulse


def create_app(service: Service, pulse: Pulse) -> ASGIApp:
    """Return the application that serves ``service``; it starts and stops the coordinator with itself."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        beating = asyncio.create_task(pulse.run(), name="pulse")
        try:
            await service.coordinator.start()
            yield
        finally:
            await service.coordinator.stop()
            beating.cancel()

    app = FastAPI(
        title="Batonpass",
        version=__version__,
        description="Warm handovers for stateful stream processing.",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.loop_age_ms = pulse.age_ms
    routers = [part.router for part in (groups, members, operators, health)]
    for router in routers:
        app.include_router(router)
    problems.install(app, routers)
    openapi.install(app)
    return Front(app, service)
