"""What tests of workers need: a coordinator in the same process, time that passes at once, and a conformance kit.

`LocalCoordinator` makes the real decisions on a record log in memory, and `Fleet` has workers of an `App` beside it.
`run` runs a test on virtual time, so that a
session timeout costs nothing. `Line` is the line between a member and the coordinator, and can fail. The conformance
kit (`python -m batonpass.worker.testing.conformance`) puts a client in any language through the protocol's hard cases.

The coordinator needs the core and its solver, so it is imported on first use: the kit starts a client for each case,
and a client needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from batonpass.worker.testing.http import HttpServer
from batonpass.worker.testing.line import Line, LocalTransport
from batonpass.worker.testing.virtual_time import VirtualClock, VirtualTimeLoop, run

if TYPE_CHECKING:
    from batonpass.worker.testing.coordinator import LocalCoordinator
    from batonpass.worker.testing.fleet import Fleet

__all__ = [
    "Fleet",
    "HttpServer",
    "Line",
    "LocalCoordinator",
    "LocalTransport",
    "VirtualClock",
    "VirtualTimeLoop",
    "run",
]


if not TYPE_CHECKING:
    # Hidden from type checkers: for them it would make every name a name of this package.
    def __getattr__(name: str) -> object:
        """Import the coordinator, or the fleet."""
        if name in ("Fleet", "LocalCoordinator"):
            home = "fleet" if name == "Fleet" else "coordinator"
            return getattr(import_module(f"{__name__}.{home}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
