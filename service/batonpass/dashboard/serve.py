"""Serving the dashboard until it is told to stop."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from batonpass.connections import BoundedServer, ConnectionLimits, bounded
from batonpass.dashboard.app import make_app
from batonpass.dashboard.config import Config
from batonpass.dashboard.request_context import Dashboard
from batonpass.sockets import room_for, url_of
from batonpass.terminal import log_to_stderr

CONNECTIONS_MAX: Final = 10_000
STOP_S: Final = 3


class _Server(BoundedServer):
    """A server that ends the streams of open pages when it is told to stop, instead of waiting for them."""

    dashboard: Dashboard

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting requests, and end those that have no end of their own."""
        self.dashboard.closing.set()
        await super().shutdown(sockets)


def serve(
    config: Config,
    listeners: list[socket.socket],
    *,
    listening: Callable[[str], None],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve on sockets that are bound, until interrupted; ``listening`` is called with the base URL of the first.

    Raises:
        OSError: when too few files may be open.
    """
    log_to_stderr("WARNING", "%(levelname)s %(message)s")
    base = url_of(listeners[0], is_tls=tls is not None) + config.root_path
    app, limits = make_app(config), ConnectionLimits(open=room_for(CONNECTIONS_MAX))
    server = _Server(app, bounded(limits), lambda: listening(base), stop_s=STOP_S, tls=tls)
    server.dashboard = app.state.dashboard
    # It warns of requests that are none, which any caller can send over and over.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    asyncio.run(server.serve(sockets=listeners))
