"""The coordinator's clock. Nobody else reads the time to decide by it."""

import time


class SystemClock:
    """Milliseconds since 1970 that never go back.

    The wall clock is read once, at the start; from then on the monotonic clock counts. So setting the wall clock
    expires nobody, and time for which this machine was suspended does not count against the members (L5).
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return the present instant."""
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000
