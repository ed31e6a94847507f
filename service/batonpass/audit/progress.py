"""Says how far Spark has come with what it is at, for as long as that takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from batonpass.audit.stopping import beating
from batonpass.audit.verdict import amount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S: Final = 5.0


@contextmanager
def followed(session: SparkSession, tell: Callable[[str], None], every_s: float = EVERY_S) -> Iterator[None]:
    """Tell every few seconds how many parts are done, where that has changed; nothing more once Spark has gone.

    That it has is for those to tell who wait for what it was at.
    """
    tracker = session.sparkContext.statusTracker()
    last = [0]
    gone = threading.Event()

    def look() -> None:
        if gone.is_set():
            return
        try:
            count()
        # Whatever a bridge to a JVM raises when that was killed: errors of the bridge, of sockets, of Python.
        except Exception:  # noqa: BLE001
            gone.set()

    def count() -> None:
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        done = sum(one.numCompletedTasks for one in stages if one is not None)
        whole = sum(one.numTasks for one in stages if one is not None)
        # Between two stages there is nothing to count.
        if done not in {last[0], 0}:
            last[0] = done
            tell(f"{done:,} of {amount(whole, 'part')}")

    with beating(look, every_s):
        yield
