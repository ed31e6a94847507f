"""What the processes of the demo log: warnings, and repeated messages of a Kafka client only now and then.

A client whose broker is away logs that some ten times a second, and a worker has dozens of clients.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from batonpass.terminal import log_to_stderr

AGAIN_S: Final = 30.0
"""How often one message of a Kafka client is logged at most, whatever it is about."""

KEPT_MOST: Final = 500
"""How many different messages are remembered; when there are more, all are forgotten."""


class RepeatFilter(logging.Filter):
    """Passes each message of a Kafka client now and then, with how often it was held back since; all else at once."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = monotonic
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("aiokafka"):
            return True
        if len(self._said) > KEPT_MOST:
            self._said.clear()
        # Compared before its values are filled in: otherwise each connection and node would make a new message.
        what = (record.name, str(record.msg))
        at, held = self._said.get(what, (None, 0))
        if at is not None and self._now() - at < AGAIN_S:
            self._said[what] = (at, held + 1)
            return False
        self._said[what] = (self._now(), 0)
        if held:
            record.msg = f"{record.msg} (and {held} times more in the last {self._now() - (at or 0):.0f} s)"
        return True


def configure() -> None:
    """Log warnings and errors of this process and its clients to standard error."""
    log_to_stderr("WARNING", "%(asctime)s %(levelname)s %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatFilter())
