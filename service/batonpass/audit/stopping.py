"""What ends an audit before it is done, and that it is heard of while it is not.

A signal to stop becomes an exception where the audit is, so that everything that is open is closed and the run's row
says how it ended. A process that is killed outright can say nothing: that is seen by its silence (``beating``).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

BEAT_S: Final = 60.0
"""So often a run says that it is at work."""

ENDS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What Ctrl-C, a scheduler, a container or a closed terminal sends."""


class Stopped(SystemExit):
    """The audit was told to stop by a signal; the exit code is the one that shells have for it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        told = f"told to stop ({signal.Signals(number).name})"
        self.reason = f"the audit was {'interrupted' if number == signal.SIGINT else told}"


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn signals to stop, Ctrl-C among them, into ``Stopped``, wherever the audit waits.

    Spark's own way to take Ctrl-C asks its JVM first, which is busy, and shows where it was. Only the main thread hears
    signals; in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        heard.append(number)
        raise Stopped(number)

    before = {one: signal.signal(one, stop) for one in ENDS}
    try:
        yield
    except BaseException as error:
        # What is closed on the way out may fail in its turn: Spark's own processes are told to stop as well, mostly.
        if heard and not isinstance(error, Stopped):
            raise Stopped(heard[0]) from None
        raise
    finally:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)


@contextmanager
def beating(beat: Callable[[], None], every_s: float = BEAT_S) -> Iterator[None]:
    """Do something again and again, in a thread of its own, until the end."""
    over = threading.Event()

    def again() -> None:
        while not over.wait(every_s):
            beat()

    thread = threading.Thread(target=again, name="audit-pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        # One that hangs at the database must not hold up the word of how the run ended.
        thread.join(timeout=min(every_s, 2.0))
