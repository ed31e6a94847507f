"""Handlers of signals that stay for as long as somebody waits; then the former ones are back.

Several members of a process may wait at the same time, and end in any order: each of them hears of each signal.
"""

import logging
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TypeVar

log = logging.getLogger("batonpass.worker")

T = TypeVar("T")

_waiting: defaultdict[int, list[Callable[[], object]]] = defaultdict(list)
_former: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}


def _tell(number: int, _frame: FrameType | None) -> None:
    for call in tuple(_waiting[number]):
        call()


def ends(on_sigterm: T, on_sigint: T) -> dict[signal.Signals, T]:
    """Return the signals that ask a process to end, with what each means.

    The end of its terminal means what SIGTERM does, unless something handles it, or ``nohup`` has it ignored.
    """
    meanings = {signal.SIGTERM: on_sigterm, signal.SIGINT: on_sigint}
    hangup: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) in (signal.SIG_DFL, _tell):
        meanings[hangup] = on_sigterm
    return meanings


@contextmanager
def handled(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Call these functions when their signals come: on the main thread, between any two steps of what runs there.

    Raises:
        ValueError: outside the main thread.
    """
    try:
        for number, call in handlers.items():
            _waiting[number].append(call)
            former = signal.signal(number, _tell)
            if former is not _tell:
                _former[number] = former
        yield
    finally:
        for number, call in handlers.items():
            with suppress(ValueError):
                _waiting[number].remove(call)
            if not _waiting[number] and signal.getsignal(number) is _tell:
                # None is a handler that was not set from Python, and cannot be set from there again.
                signal.signal(number, _former[number] or signal.SIG_DFL)


@contextmanager
def ended_by_signals(wake: Callable[[], object]) -> Iterator[list[signal.Signals]]:
    """Let the signals that ask for it end this block, and after it the process, unless they have a handler already.

    Gives a list of the signals that came; ``wake`` is called at each, and the block has to end then. Without a handler
    the system would end the process by itself, but not process 1 of a container, where the kernel drops such a signal.

    Raises:
        SystemExit: after the block, when a signal came. The exit code is the one that shells have for it.
    """
    came: list[signal.Signals] = []

    def note(number: signal.Signals) -> None:
        came.append(number)
        wake()

    is_main = threading.current_thread() is threading.main_thread()
    free = [number for number in ends(None, None) if is_main and signal.getsignal(number) is signal.SIG_DFL]
    with handled({number: partial(note, number) for number in free}):
        yield came
    if came:
        log.info("%s ends this process before the group knows its member", came[0].name)
        raise SystemExit(128 + came[0])
