"""Virtual time: what is to happen, in the order in which it falls due."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    """A clock that stands still between events. What falls on one instant happens in the order of asking."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._asked = 0

    @property
    def next_ms(self) -> int | None:
        """When the next event is due; None when there is none."""
        return self._queue[0][0] if self._queue else None

    def after(self, in_ms: int, act: Callable[..., None], *arguments: object) -> None:
        """Let `act` happen in so many milliseconds, and never in the past."""
        self._asked += 1
        heapq.heappush(self._queue, (self.now_ms + max(0, in_ms), self._asked, act, arguments))

    def step(self) -> None:
        """Go to the next event and let it happen.

        Raises:
            IndexError: There is none.
        """
        self.now_ms, _, act, arguments = heapq.heappop(self._queue)
        act(*arguments)

    def leap(self, by_ms: int) -> None:
        """Go on so much later, with everything that is to happen as far ahead as it was."""
        self.now_ms += by_ms
        self._queue = [(at_ms + by_ms, asked, act, arguments) for at_ms, asked, act, arguments in self._queue]

    def pass_to(self, to_ms: int) -> None:
        """Let time pass; nothing happens on the way, so nothing may be due before."""
        self.now_ms = max(self.now_ms, to_ms)
