"""What tests of workers need: a coordinator in the same process, time that passes at once, and a conformance kit.

`LocalCoordinator` makes the real decisions on a record log in memory. `run` runs a test on virtual time, so that a
session timeout costs nothing. `Line` is what lies between a member and the coordinator, and can fail. The conformance
kit (`python -m batonpass.worker.testing.conformance`) puts a client in any language through the protocol's hard cases.
"""

from batonpass.worker.testing.coordinator import LocalCoordinator
from batonpass.worker.testing.http import HttpServer
from batonpass.worker.testing.line import Line, LocalTransport
from batonpass.worker.testing.virtual_time import VirtualClock, VirtualTimeLoop, run

__all__ = ["HttpServer", "Line", "LocalCoordinator", "LocalTransport", "VirtualClock", "VirtualTimeLoop", "run"]
