"""Virtual time: a queue of events in the order in which they are due."""

import heapq
from collections.abc import Callable


class Clock:
    """A clock that stands still between events. Events due at one instant happen in the order in which they came."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._asked = 0

    @property
    def next_ms(self) -> int | None:
        return self._queue[0][0] if self._queue else None

    def after(self, in_ms: int, act: Callable[..., None], *arguments: object) -> None:
        """Call `act` in so many milliseconds; a negative number counts as 0."""
        self._asked += 1
        heapq.heappush(self._queue, (self.now_ms + max(0, in_ms), self._asked, act, arguments))

    def step(self) -> None:
        """Go to the next event and let it happen.

        Raises:
            IndexError: There is no event.
        """
        self.now_ms, _, act, arguments = heapq.heappop(self._queue)
        act(*arguments)

    def leap(self, by_ms: int) -> None:
        """Move the time and every event ahead by so much, so that each event is as far away as before."""
        self.now_ms += by_ms
        self._queue = [(at_ms + by_ms, asked, act, arguments) for at_ms, asked, act, arguments in self._queue]

    def pass_to(self, to_ms: int) -> None:
        """Let time pass. No event happens on the way, so none may be due before `to_ms`."""
        self.now_ms = max(self.now_ms, to_ms)
