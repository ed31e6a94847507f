"""aiokafka's warnings, each once in a while: it repeats the same one many times a second while something lasts."""

from __future__ import annotations

import logging
import time
from weakref import WeakSet

EVERY_S = 30.0
LINES_MAX = 1_000

_users: WeakSet[object] = WeakSet()


class Repeats(logging.Filter):
    """Lets the same line of a logger pass once in `EVERY_S`, with how many there were in between."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written: warnings now and then, and all where somebody looks for mistakes, at DEBUG."""
        logger = logging.getLogger(record.name)
        if not _users or logger.isEnabledFor(logging.DEBUG):
            return True
        if record.levelno < logging.WARNING:
            # A dozen lines for each task that begins, between the two that say what it does.
            return False
        line, now = record.getMessage(), time.monotonic()
        at, held = self._seen.get(line, (-EVERY_S, 0))
        if now - at < EVERY_S:
            self._seen[line] = (at, held + 1)
            return False
        if len(self._seen) >= LINES_MAX:
            self._seen.clear()
        self._seen[line] = (now, 0)
        if held:
            record.msg, record.args = f"{line} (and {held} times since it was last written)", ()
        return True


def write_once(user: object) -> None:
    """Have all of aiokafka's loggers write the same line once in a while, for as long as there is this user of it."""
    _users.add(user)
    for name in [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "aiokafka"]:
        logger = logging.getLogger(name)
        if not any(isinstance(each, Repeats) for each in logger.filters):
            logger.addFilter(Repeats())
