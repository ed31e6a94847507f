"""The member's clock: milliseconds that go on while the machine sleeps, because the coordinator's do too."""

import sys
import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns milliseconds from any fixed point on. They never go back, and suspended time counts."""


def system_clock() -> Clock:
    """Return the clock of this machine that counts suspended time."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        # Linux's monotonic clock stands still while the machine is suspended. That of Windows does not.
        source = time.CLOCK_BOOTTIME
    elif sys.platform == "darwin":
        # Nor does that of macOS, but `time.monotonic` uses another source there.
        source = time.CLOCK_MONOTONIC
    else:
        return lambda: time.monotonic_ns() // 1_000_000
    return lambda: time.clock_gettime_ns(source) // 1_000_000
