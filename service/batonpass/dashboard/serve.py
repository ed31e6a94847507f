"""Serving the dashboard until it is told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import uvicorn

from batonpass.connections import ConnectionLimits, bounded
from batonpass.dashboard.app import make_app
from batonpass.dashboard.config import Config
from batonpass.dashboard.request_context import Dashboard
from batonpass.sockets import UNREAD_S, end_unread, room_for, url_of
from batonpass.terminal import log_to_stderr

CONNECTIONS_MAX: Final = 10_000
STOP_S: Final = 3
KEEP_ALIVE_S: Final = 65
"""Longer than load balancers keep an idle connection, so that none is closed while a request is under way."""


class _Server(uvicorn.Server):
    """A server that reports when it listens, and that ends the streams of open pages instead of waiting for them."""

    def __init__(self, config: uvicorn.Config, dashboard: Dashboard, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._dashboard = dashboard
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept requests."""
        for listener in sockets or ():
            end_unread(listener, UNREAD_S)
        await super().startup(sockets)
        self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting requests, and end those that have no end of their own."""
        self._dashboard.closing.set()
        await super().shutdown(sockets)


def serve(
    config: Config,
    listeners: list[socket.socket],
    *,
    listening: Callable[[str], None],
    certificate: tuple[str, str] | None = None,
) -> None:
    """Serve on sockets that are bound, until interrupted; ``listening`` is called with the base URL of the first.

    ``certificate`` has the files of a certificate and of its key.

    Raises:
        OSError: when a file of the certificate cannot be read, or too few files may be open.
    """
    log_to_stderr("WARNING", "%(levelname)s %(message)s")
    app = make_app(config)
    settings = uvicorn.Config(
        app,
        http=bounded(ConnectionLimits(open=room_for(CONNECTIONS_MAX))),
        log_config=None,
        log_level="warning",
        # The addresses of pages hold names of groups and members, and nothing else in the log would be of use.
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
        server_header=False,
        proxy_headers=False,
        ws="none",
        ssl_certfile=certificate[0] if certificate else None,
        ssl_keyfile=certificate[1] if certificate else None,
    )
    base = url_of(listeners[0], is_tls=certificate is not None) + config.root_path
    server = _Server(settings, app.state.dashboard, lambda: listening(base))
    asyncio.run(server.serve(sockets=listeners))
