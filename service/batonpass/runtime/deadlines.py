"""One wake-up per group: at the instant that the last decision named, an input ``Tick`` is posted.

A due deadline decides nothing; the core looks again at what is due. So an early one is harmless, and the only duty here
is never to be so late that a clock which was set forward goes unnoticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from batonpass.runtime.ports import Clock

DELAY_MS_MIN = 1
DELAY_MS_MAX = 30_000
"""No sleep is longer, because the coordinator's clock may be set while it lasts."""


class Deadline:
    """The wake-up of one group."""

    def __init__(self, clock: Clock, tick: Callable[[], None]) -> None:
        self._clock = clock
        self._tick = tick
        self._timer: asyncio.TimerHandle | None = None
        self.wake_at_ms: int | None = None

    def set(self, wake_at_ms: int | None) -> None:
        """Wake at ``wake_at_ms`` instead of whenever was said before; None: not at all."""
        if wake_at_ms == self.wake_at_ms and (self._timer is not None or wake_at_ms is None):
            return
        self.cancel()
        self.wake_at_ms = wake_at_ms
        if wake_at_ms is not None:
            self._arm(wake_at_ms - self._clock.now_ms())

    def postpone(self, delay_ms: int) -> None:
        """Wake after ``delay_ms``, because what was due could not be done now."""
        self.cancel()
        self.wake_at_ms = self._clock.now_ms() + delay_ms
        self._arm(delay_ms)

    def cancel(self) -> None:
        """Wake no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.wake_at_ms = None

    def _arm(self, delay_ms: int) -> None:
        delay_ms = min(max(delay_ms, DELAY_MS_MIN), DELAY_MS_MAX)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._due)

    def _due(self) -> None:
        self._timer = self.wake_at_ms = None
        self._tick()
