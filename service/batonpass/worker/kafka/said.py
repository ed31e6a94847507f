"""What is logged once in a while only: what lasts would be logged again and again, by aiokafka many times a second."""

import logging
import time
from weakref import WeakSet

from aiokafka import ConsumerRecord

SAY_AGAIN_S = 30.0


class Said:
    """What was logged lately, so that a lasting problem is not logged again and again."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def is_news(self, words: str) -> bool:
        """Whether something is to be logged, because it is new or was last logged a while ago."""
        now = time.monotonic()
        self._at = {said: at for said, at in self._at.items() if now - at < SAY_AGAIN_S}
        return self._at.setdefault(words, now) == now


class UnreadableRecords:
    """Records of the protocol's topics that say nothing: counted, and each topic's first is logged, now and then."""

    def __init__(self, log: logging.Logger) -> None:
        self.count = 0
        self._log = log
        self._said = Said()

    def skip(self, record: ConsumerRecord, why: object) -> None:
        self.count += 1
        if self._said.is_news(record.topic):
            place = f"{record.topic}-{record.partition}@{record.offset}"
            self._log.warning("%s is skipped: %.200s (%d records could not be read so far)", place, why, self.count)


_users: WeakSet[object] = WeakSet()


class Repeats(logging.Filter):
    """Lets the same line of one of aiokafka's loggers pass once in half a minute."""

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
