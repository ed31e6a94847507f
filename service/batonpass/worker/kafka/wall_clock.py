"""Functions that are called every so often by the clock, whether records come or not.

Each is called at the multiples of its interval, and once where several have passed. When it was last called is kept
nowhere: what falls into a handover is left out.
"""

from collections.abc import Awaitable, Callable, Mapping

from batonpass.worker.kafka.transaction import Context

Punctuation = Callable[[int, "Context"], Awaitable[None]]
"""A function that is called every so often, with the time that has come: a multiple of its interval."""

ByClock = Mapping[str, tuple[int, Punctuation]]
"""Such functions by their names, each with its interval in milliseconds."""


def next_multiple(now_ms: int, every_ms: int) -> int:
    """Return the first multiple of an interval after a time."""
    return (now_ms // every_ms + 1) * every_ms


class WallClock:
    """When the functions of one task are next due. Times are milliseconds since 1970."""

    def __init__(self, by_clock: ByClock, now_ms: int) -> None:
        self._by_clock = by_clock
        self._passed_ms = now_ms

    def _due_ms(self, now_ms: int) -> dict[str, int]:
        # Once the clock is set back, it counts from there: nothing waits until it is again where it was.
        self._passed_ms = min(self._passed_ms, now_ms)
        return {name: next_multiple(self._passed_ms, every_ms) for name, (every_ms, _) in self._by_clock.items()}

    def left_ms(self, now_ms: int) -> int | None:
        """Return how long it is until one is due, 0 if one is; None if there are none."""
        due_ms = self._due_ms(now_ms).values()
        return max(0, min(due_ms) - now_ms) if due_ms else None

    async def call(self, now_ms: int, context: Context) -> bool:
        """Call what is due; return whether anything was. It stays due until `passed`: a transaction may be dropped."""
        due = [name for name, due_ms in self._due_ms(now_ms).items() if due_ms <= now_ms]
        for name in due:
            every_ms, function = self._by_clock[name]
            with context.calling_for_time(f"while it called {name}, every {every_ms} ms"):
                await function(next_multiple(now_ms, every_ms) - every_ms, context)
        return bool(due)

    def passed(self, now_ms: int) -> None:
        """Note that what was due by then is done."""
        self._passed_ms = now_ms
