"""What `batonpass up` starts beside its coordinator: the dashboard, and the nightly audit."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final

from batonpass.cli.crew import Program
from batonpass.sockets import free_port

PORT: Final = 8421
HOST: Final = "127.0.0.1"
NEEDS: Final = ("jinja2", "starlette", "uvicorn")
AUDIT_NEEDS: Final = ("pyspark", "pyarrow", "adbc_driver_postgresql", "duckdb", "jinja2", "plotly")


def dashboard_port(wanted: int | None) -> int:
    """Return the port for the dashboard: as wanted, else the usual one, or any free one where that is taken."""
    return wanted or (free_port(PORT) if wanted is None else free_port(0))


def dashboard_program(url: str, port: int) -> tuple[str, Program]:
    """Return the dashboard of a coordinator as a program, with its name."""
    return "dashboard", Program("batonpass", ["dashboard", "--server", url, "--host", HOST, "--port", str(port)])


def lacking() -> str | None:
    """Return the package without which there is no dashboard; None where all is there."""
    return next((name for name in NEEDS if importlib.util.find_spec(name) is None), None)


def audit_program(database_url: str, folder: Path) -> tuple[str, Program]:
    """Return the nightly audit of a database as a program, with its name; reports go to a folder."""
    env = {"BATONPASS_DATABASE_URL": database_url}
    return "audit", Program("batonpass", ["audit", "--nightly", "--out", str(folder)], env)


def audit_lacks() -> str | None:
    """Return what there is to install before a day can be audited here, and how; None where all is there."""
    if lacking := [name for name in AUDIT_NEEDS if importlib.util.find_spec(name) is None]:
        return f"{lacking[0]}: `make audit` in a clone, or pip install 'batonpass[audit]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        return "Java 17: openjdk-17-jre-headless on Debian, or set JAVA_HOME"
    return None
