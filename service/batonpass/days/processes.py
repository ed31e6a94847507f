"""Processes that work side by side, report their progress, and end at once with the process that started them.

They ignore Ctrl-C, which a terminal sends to all. The process that started them handles it, and they end with that
process, even if it is killed. What they have not committed by then was never written.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from typing import Any, Final, TypeVar

LOOK_EVERY_S: Final = 0.2

Part = TypeVar("Part")
Progress = TypeVar("Progress")

_spawning = get_context("spawn")
# Where this process reports its progress; each process has its own.
_reports: SimpleQueue[Any] | None = None


def carry_out(
    work: Callable[[Part, Callable[[Progress], None]], None],
    parts: Sequence[Part],
    *,
    heard: Callable[[Progress], None],
    workers: int,
) -> None:
    """Call ``work`` with each part, in so many processes; ``heard`` is called in this one with their progress.

    With one worker everything happens here. The first error ends the rest at once, and so does Ctrl-C.

    Raises:
        BrokenProcessPool: when a process was ended from outside.
    """
    if workers <= 1:
        for part in parts:
            work(part, heard)
        return
    reports: SimpleQueue[Progress] = _spawning.SimpleQueue()
    # Nothing is ever sent: a reader finds the end of the pipe when this process has ended, for whatever reason.
    lifeline, ours = _spawning.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=_spawning, initializer=_begin, initargs=(reports, lifeline))
    try:
        with _without_interrupts():
            waiting: set[Future[None]] = {pool.submit(_work, work, part) for part in parts}
        while waiting:
            done, waiting = wait(waiting, timeout=LOOK_EVERY_S)
            _pass_on(reports, heard)
            for one in done:
                one.result()
    except BaseException:
        ours.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        ours.close()
        lifeline.close()
        reports.close()


def _pass_on(reports: SimpleQueue[Progress], heard: Callable[[Progress], None]) -> None:
    while not reports.empty():
        heard(reports.get())


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Have processes that are started meanwhile ignore Ctrl-C from their first instruction on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# What happens in the processes.


def _begin(reports: SimpleQueue[Any], lifeline: Connection) -> None:
    global _reports  # noqa: PLW0603 - a process of the pool has no other place
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _reports = reports
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(1)


def _work(work: Callable[[Any, Callable[[Any], None]], None], part: Any) -> None:
    if _reports is None:
        raise RuntimeError("this process was not started by `carry_out`")
    work(part, _reports.put)
