"""aiokafka's warnings, each once in a while: it repeats the same one many times a second while something lasts."""

from __future__ import annotations

import logging
from weakref import WeakSet

from batonpass.worker.kafka.topics import Said

_users: WeakSet[object] = WeakSet()


class Repeats(logging.Filter):
    """Lets the same line of a logger pass once in half a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._said = Said()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written: warnings now and then, and all where somebody looks for mistakes, at DEBUG."""
        if not _users or logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            return True
        # Below that there are a dozen lines for each task that begins, between the two that say what it does.
        return record.levelno >= logging.WARNING and self._said.is_news(record.getMessage())


def write_once(user: object) -> None:
    """Have all of aiokafka's loggers write the same line once in a while, for as long as there is this user of it."""
    _users.add(user)
    for name in [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "aiokafka"]:
        logger = logging.getLogger(name)
        if not any(isinstance(each, Repeats) for each in logger.filters):
            logger.addFilter(Repeats())
