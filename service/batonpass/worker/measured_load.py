"""How much a task uses, as it is measured here: what `load` says where a worker says nothing itself (protocol 4.11).

A coroutine uses the time for which it keeps the event loop busy, a thread the processor's time. Of the former a second
has one, so the loads of a worker's tasks add up to 1 where it can do no more.
"""

import asyncio
import threading
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from batonpass.worker.protocol.types import Role
from batonpass.worker.tasks import Task

T = TypeVar("T")

EVERY_S: Final = 10.0
"""A load is measured over so long: the time after which a coordinator wants to hear of it anyway (protocol 4.10)."""
_IS_NEWS: Final = 0.05
_LEAST_NEWS: Final = 0.000_5


class LoadMeter:
    """Turns a count of used seconds into loads to be said."""

    def __init__(self, used_s: float, now_s: float) -> None:
        self._used_s = used_s
        self._since_s = now_s
        self._said: float | None = None

    def look(self, used_s: float, now_s: float) -> float | None:
        """Return the load of the last ``EVERY_S`` seconds, if they are over and it is another than the last one.

        A twentieth more or less is none: a task at rest gives no cause for a longer heartbeat.
        """
        if now_s - self._since_s < EVERY_S:
            return None
        load = max(0.0, used_s - self._used_s) / (now_s - self._since_s)
        self._used_s, self._since_s = used_s, now_s
        if self._said is not None and abs(load - self._said) <= max(_LEAST_NEWS, _IS_NEWS * self._said):
            return None
        self._said = float(f"{load:.3g}")
        return self._said


class BusyTime:
    """For how many seconds coroutines kept the event loop busy. What they wait for does not count."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @types.coroutine
    def of(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await a coroutine, and add for how long it does anything."""
        step: Callable[[Any], Any] = work.send
        given: Any = None
        while True:
            began = time.perf_counter()
            try:
                awaited = step(given)
            except StopIteration as end:
                value: T = end.value
                return value
            finally:
                self.seconds += time.perf_counter() - began
            try:
                given, step = (yield awaited), work.send
            except BaseException as error:  # noqa: BLE001 - it is raised where the coroutine waits
                given, step = error, work.throw


class ThreadTime:
    """How much processor time one thread has used."""

    def __init__(self) -> None:
        self._clock: int | None = None

    def begin(self) -> None:
        """Take the thread that calls this."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())

    def seconds(self) -> float | None:
        """Return the seconds so far; None before it began, after it ended, and where the system does not tell."""
        try:
            return None if self._clock is None else time.clock_gettime(self._clock)
        except OSError:
            return None


async def tell_load(task: Task, used: ThreadTime) -> None:
    """Report the load of a task over and over, until cancelled."""
    meter: LoadMeter | None = None
    while True:
        await asyncio.sleep(EVERY_S)
        used_s = used.seconds()
        if used_s is None or (task.role is Role.ACTIVE and not task.has_run):
            continue
        if meter is None:
            # What it has used until now was for its restore.
            meter = LoadMeter(used_s, time.monotonic())
        elif (load := meter.look(used_s, time.monotonic())) is not None:
            task.load_measured(load)
