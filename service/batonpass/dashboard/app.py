"""The dashboard as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2 as httpx
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batonpass.client import CoordinatorClient, Refused
from batonpass.dashboard import commands, login
from batonpass.dashboard.config import Config
from batonpass.dashboard.live import live
from batonpass.dashboard.origins import is_served
from batonpass.dashboard.pages import PAGES
from batonpass.dashboard.request_context import Dashboard, RequestContext, choose_zone, guarded
from batonpass.dashboard.runbooks import show_runbook

HEADERS: Final = [
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
ZIPPED_FROM_BYTES: Final = 1_000


class _Safe:
    """Serves requests to names of this dashboard alone, and tells browsers to load things only from here."""

    def __init__(self, app: ASGIApp, config: Config) -> None:
        self._app = app
        self._root = config.root_path
        self._allowed_hosts = config.allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._root and scope["type"] == "http":
            path = scope["path"]
            whole = path if f"{path}/".startswith(f"{self._root}/") else self._root + path
            scope = {**scope, "path": whole, "root_path": self._root}

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", []))
                names = {name.lower() for name, _ in given}
                is_static = scope["path"].startswith(f"{self._root}/static/")
                caching = b"max-age=3600" if is_static else b"no-store"
                extra = [*HEADERS, *([] if b"cache-control" in names else [(b"cache-control", caching)])]
                message = {**message, "headers": [*given, *extra]}
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")
        is_probe = scope["path"] == f"{self._root}/livez"
        app = self._app if is_probe or is_served(host, self._allowed_hosts) else _elsewhere(host)
        await app(scope, receive, say)


def _elsewhere(host: str) -> Response:
    text = f"This dashboard is not served as {host[:100]!r}. If it should be, name the host in --allowed-hosts.\n"
    return PlainTextResponse(text, 403)


async def _livez(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _nowhere(context: RequestContext) -> Response:
    raise Refused(404, {"detail": f"There is no page {context.request.url.path[:200]}."})


def make_app(config: Config, *, transport: httpx.AsyncBaseTransport | None = None) -> Starlette:
    """Return the dashboard; ``transport`` is how it reaches the coordinator, by default over the network."""
    client = CoordinatorClient(
        config.server, patience_s=0, trusted=config.trusted, agent="batonpass-dashboard", transport=transport
    )
    dashboard = Dashboard(config, client)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        dashboard.closing.set()
        await dashboard.client.close()

    routes = [
        Route("/livez", _livez),
        Route("/login", login.ask, methods=["GET"]),
        Route("/login", login.sign_in, methods=["POST"]),
        Route("/logout", login.sign_out, methods=["POST"]),
        Route("/live", live),
        Route("/zone", guarded(choose_zone)),
        # Who cannot sign in, because no coordinator answers, needs runbooks most.
        *(Route(place, guarded(page, is_open=page is show_runbook)) for place, page in PAGES.items()),
        Route("/groups/{group}/do/{command}", guarded(commands.ask), methods=["GET"]),
        Route("/groups/{group}/do/{command}", guarded(commands.carry_out), methods=["POST"]),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
        Route("/{place:path}", guarded(_nowhere)),
    ]
    middleware = [
        Middleware(_Safe, config=config),
        Middleware(GZipMiddleware, minimum_size=ZIPPED_FROM_BYTES, compresslevel=6),
    ]
    app = Starlette(routes=routes, middleware=middleware, lifespan=lifespan)
    app.state.dashboard = dashboard
    return app
