"""The member's clock: milliseconds that go on while the machine sleeps, because the coordinator's do too."""

import sys
import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns milliseconds from any fixed point on. They never go back, and suspended time counts."""


def _clock() -> int:
    # Linux's monotonic clock stands still while the machine is suspended; this one does not. Those of macOS and
    # Windows count suspended time anyway.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _clock_of_darwin() -> int:
    # `time.monotonic` uses another source there, which stands still.
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


def _clock_elsewhere() -> int:
    return time.monotonic_ns() // 1_000_000


def system_clock() -> Clock:
    """Return the clock of this machine that counts suspended time."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return _clock
    return _clock_of_darwin if sys.platform == "darwin" else _clock_elsewhere
