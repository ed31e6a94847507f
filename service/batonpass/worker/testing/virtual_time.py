"""Time that passes only while everything waits: hours of a test take only as long as the work that is done in them.

`run` runs a coroutine on an event loop whose clock jumps to the next timer whenever nothing else is to be done. That
holds for everything that uses the loop's time (`asyncio.sleep`, `asyncio.timeout`, `Member`, `LocalCoordinator`), and
for nothing that reads another clock.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")

_GLANCE_S = 0.002
"""How long, in real time, to wait for a thread that still works before checking again."""


class _Jump(selectors.DefaultSelector):
    """A selector that does not wait: instead it moves the loop's time forward."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_for_threads = 0
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now; if nothing is, and no thread works, time passes."""
        if timeout is None or self.waits_for_threads:
            return super().select(_GLANCE_S if self.waits_for_threads else timeout)
        ready = super().select(0)
        if not ready:
            self.passed_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which begins at zero."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.passed_s

    def run_in_executor(  # type: ignore[override] # the same call, with the future that this loop makes of it
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in a thread; meanwhile no time passes."""
        future = super().run_in_executor(executor, func, *args)
        self._jump.waits_for_threads += 1
        future.add_done_callback(self._thread_is_done)
        return future

    async def shutdown_default_executor(self, *_limit: float | None) -> None:
        """Wait for the threads that are left. A limit on that (from Python 3.12 on) would be over at once."""
        await super().shutdown_default_executor()

    def _thread_is_done(self, _future: asyncio.Future[Any]) -> None:
        self._jump.waits_for_threads -= 1


class VirtualClock:
    """A clock of one machine on the running loop's time; pass it to `Member` as its ``clock``."""

    def __init__(self) -> None:
        self._suspended_ms = 0

    def __call__(self) -> int:
        """Return milliseconds since the loop began, with the time for which this machine was suspended."""
        return round(asyncio.get_running_loop().time() * 1_000) + self._suspended_ms

    def suspend(self, ms: int) -> None:
        """Let time pass for which this machine is suspended: its clock runs on, but its timers do not."""
        self._suspended_ms += ms


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on virtual time, as `asyncio.run` does on real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
