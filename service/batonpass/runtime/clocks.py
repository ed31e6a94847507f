"""The clock of a coordinator: the database's, because an instant is judged by who wrote it.

Instants in the log outlive the coordinator that wrote them: the end of a lease, a hold on grants, a deadline. Machines
disagree about the time of day, so every coordinator on a database counts in the database's time. Between two readings
of it the machine's own clock counts on, one that nobody sets and that goes on while the machine is suspended.
"""

import time
from collections.abc import Callable
from typing import Final

from batonpass.runtime.ports import Clock

UNCERTAIN_MAX_MS: Final = 500.0
"""How far off the database's clock may be known, at most. Beyond that this coordinator owns no group."""

DRIFT: Final = 0.0005
"""By how much faster or slower than the database's clock this machine's may run: as fast as NTP corrects a clock."""

MOVED_MS: Final = 1_000.0
"""From which step on the database's clock counts as moved: it was set, or another server has taken over."""


def boot_ms() -> float:
    """Return the time of a clock that is never set, and that also counts while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) * 1_000


def wall_ms() -> float:
    """Return this machine's time of day, in milliseconds since 1970."""
    return time.time() * 1_000


class DatabaseClock(Clock):
    """The database's clock, as readings of it tell; its time lies between the sending of a request and the answer.

    Each reading narrows what the earlier ones say, and time widens it again (``DRIFT``). A reading that contradicts
    them counts alone; if it does so by far, the clock has moved, unless nobody could decide by it so far. Small
    corrections forwards are taken at once; for those backwards the clock stands still.
    """

    def __init__(self, *, boot: Callable[[], float] = boot_ms, wall: Callable[[], float] = wall_ms) -> None:
        """Show this machine's time of day until the first reading; nobody may decide by that."""
        self._boot = boot
        self._wall = wall
        self._offset_ms = wall() - boot()
        self._low_ms, self._high_ms = float("-inf"), float("inf")
        self._read_at_ms = boot()
        self._shown_ms = 0
        self._was_known = False

    def read(self, database_ms: float, *, sent_ms: float) -> None:
        """Take a reading, made for a request that was sent at ``sent_ms`` by ``boot`` and has just been answered."""
        now_ms = self._boot()
        low_ms, high_ms = database_ms - now_ms, database_ms - sent_ms
        drift_ms = (now_ms - self._read_at_ms) * DRIFT
        lowest_ms, highest_ms = self._low_ms - drift_ms, self._high_ms + drift_ms
        is_first = not self.is_read()
        apart_ms = max(low_ms - highest_ms, lowest_ms - high_ms)
        if apart_ms <= 0:
            low_ms, high_ms = max(low_ms, lowest_ms), min(high_ms, highest_ms)
        offset_ms = self._offset_ms
        if is_first or not low_ms <= offset_ms <= high_ms:
            offset_ms = (low_ms + high_ms) / 2
        has_moved = self._was_known and apart_ms > MOVED_MS
        self._low_ms, self._high_ms, self._read_at_ms, self._offset_ms = low_ms, high_ms, now_ms, offset_ms
        if not self._was_known or has_moved:
            self._shown_ms = 0
        self._was_known = self._was_known or self.is_known()
        if has_moved:
            self.moved_ms, self.ran_until_ms = self.now_ms(), 0

    def moved_before(self, at_ms: int, *, from_ms: int) -> None:
        """Take over that it was found to have moved at an instant. Until ``from_ms`` it ran on as it should."""
        self.moved_ms, self.ran_until_ms = at_ms, from_ms

    def now_ms(self) -> int:
        self._shown_ms = max(self._shown_ms, int(self._boot() + self._offset_ms))
        return self._shown_ms

    def is_read(self) -> bool:
        return self._low_ms != float("-inf")

    def uncertain_ms(self) -> float:
        """Return by how much ``now_ms`` may be wrong; infinite before the first reading."""
        return max(self._offset_ms - self._low_ms, self._high_ms - self._offset_ms)

    def is_known(self) -> bool:
        """Whether the clock is known well enough to decide by it."""
        return self.uncertain_ms() <= UNCERTAIN_MAX_MS

    def ahead_ms(self) -> float:
        """Return by how much the database's clock is ahead of this machine's; 0 before the first reading."""
        return self._boot() + self._offset_ms - self._wall() if self.is_read() else 0.0
