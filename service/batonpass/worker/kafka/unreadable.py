"""Records of the protocol's topics that say nothing: skipped, counted, and logged now and then."""

from __future__ import annotations

import logging

from aiokafka import ConsumerRecord

from batonpass.worker.kafka.topics import Said


class UnreadableRecords:
    """Counts them. The log names the first of a topic, and then one every half minute at most, with their number."""

    def __init__(self, log: logging.Logger) -> None:
        self.count = 0
        self._log = log
        self._said = Said()

    def skip(self, record: ConsumerRecord, why: object) -> None:
        """Note that a record is skipped."""
        self.count += 1
        if self._said.is_news(record.topic):
            place = f"{record.topic}-{record.partition}@{record.offset}"
            self._log.warning("%s is skipped: %.200s (%d records could not be read so far)", place, why, self.count)
