"""Notice that the coordinator itself stood still: a paused process, a frozen machine, a loop that was blocked.

After such a gap the silence of every member is the coordinator's own, and nobody may be expired for it (L5). Whoever is
about to decide asks ``stalls`` first, so that no deadline that came due meanwhile is looked at before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

BEAT_MS = 200
STALL_MS = 2_000
"""A gap beyond this is a stall. Shorter ones are noise that every session timeout has room for."""


class Pulse:
    """Counts the stalls of this process."""

    def __init__(self, stalled: Callable[[float], None], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stalled = stalled
        self._monotonic = monotonic
        self._last = monotonic()
        self._stalls = 0

    def stalls(self) -> int:
        """Return how often the process has stood still so far, a gap that ends just now included."""
        now = self._monotonic()
        gap_ms = (now - self._last) * 1_000
        self._last = now
        if gap_ms > STALL_MS:
            self._stalls += 1
            self._stalled(gap_ms)
        return self._stalls

    def age_ms(self) -> float:
        """Return how long ago the process was last seen to run."""
        return (self._monotonic() - self._last) * 1_000

    async def run(self) -> None:
        """Beat until cancelled."""
        self._last = self._monotonic()
        while True:
            self.stalls()
            await asyncio.sleep(BEAT_MS / 1_000)
