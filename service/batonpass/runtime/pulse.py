"""Detects that the coordinator itself stood still: a paused process, a frozen machine, a blocked event loop.

During such a gap it was the coordinator that was silent, so no member may expire for it (L5). The engine asks
``stalls`` before each decision, so that it knows of the gap before it looks at deadlines that came due meanwhile.
"""

import asyncio
from collections.abc import Callable

from batonpass.runtime.clocks import boot_ms

BEAT_MS = 200
STALL_MS = 2_000
"""A gap beyond this is a stall. Shorter ones are noise that every session timeout has room for."""


class Pulse:
    """Counts the stalls of this process."""

    def __init__(self, stalled: Callable[[float], None], *, boot: Callable[[], float] = boot_ms) -> None:
        self._stalled = stalled
        self._boot_ms = boot
        self._last = boot()
        self._stalls = 0

    def stalls(self) -> int:
        """Return how often the process has stood still so far, including a gap that ends just now."""
        now = self._boot_ms()
        gap_ms = now - self._last
        self._last = now
        if gap_ms > STALL_MS:
            self._stalls += 1
            self._stalled(gap_ms)
        return self._stalls

    def age_ms(self) -> float:
        """Return how long ago the process was last seen to run."""
        return self._boot_ms() - self._last

    async def run(self) -> None:
        """Look for stalls every ``BEAT_MS`` until cancelled."""
        self._last = self._boot_ms()
        while True:
            self.stalls()
            await asyncio.sleep(BEAT_MS / 1_000)
