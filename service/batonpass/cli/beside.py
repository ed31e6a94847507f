"""The dashboard that `batonpass up` starts beside its coordinator."""

from __future__ import annotations

import importlib.util
import socket
from typing import Final

from batonpass.cli.crew import Program

PORT: Final = 8421
HOST: Final = "127.0.0.1"
NEEDS: Final = ("jinja2", "starlette", "uvicorn")


def dashboard_port(wanted: int | None) -> int:
    """Return the port for the dashboard: as wanted, else the usual one, or any free one where that is taken."""
    return wanted or (free_port(PORT) if wanted is None else free_port(0))


def dashboard_program(url: str, port: int) -> tuple[str, Program]:
    """Return the dashboard of a coordinator as a program, with its name."""
    return "dashboard", Program("batonpass", ["dashboard", "--server", url, "--host", HOST, "--port", str(port)])


def lacking() -> str | None:
    """Return the package without which there is no dashboard; None where all is there."""
    return next((name for name in NEEDS if importlib.util.find_spec(name) is None), None)


def free_port(wanted: int) -> int:
    """Return a port if nothing listens on it, else any that is free now."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return wanted
