"""The records of a task's sources, in the order in which they are processed: by their timestamps.

Within a partition the order is the log's. Between partitions a record is processed when each of the others has one to
compare it with, or has been read to its end. So a second run over the same input meets the records in the same order
(KIP-353, KIP-695).
"""

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from batonpass.worker.kafka.reading import place_of

Batches = Mapping[TopicPartition, Sequence[ConsumerRecord]]

AHEAD = 5_000
AHEAD_BYTES = 32 << 20
"""How many records of one partition wait here for those of others before no more are asked for, and how large they are
together."""


class Inputs:
    """What was read of some partitions and is still to be processed.

    ``tables`` are the topics that are read to their end once before anything else is processed. A partition without
    records holds the others up for ``idle_ms`` after it was read to its end.
    """

    def __init__(
        self, consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition], tables: Collection[str], idle_ms: int
    ) -> None:
        self._consumer = consumer
        self._waiting: dict[TopicPartition, deque[ConsumerRecord]] = {one: deque() for one in sorted(partitions)}
        self._unread = {one for one in self._waiting if one.topic in tables}
        self._idle_s = idle_ms / 1_000
        self._ended_at: dict[TopicPartition, float] = {}
        self._taken: list[ConsumerRecord] = []

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, batches: Batches) -> None:
        for partition, records in batches.items():
            self._waiting[partition].extend(records)
            self._ended_at.pop(partition, None)

    def wanted(self) -> list[TopicPartition]:
        """Return the partitions of which more may be read; none of them is far ahead of the others."""
        return [
            one
            for one, records in self._waiting.items()
            if len(records) < AHEAD and sum(len(record.value or b"") for record in records) < AHEAD_BYTES
        ]

    @property
    def is_ready(self) -> bool:
        """Whether it is known which record is next."""
        return self._next() is not None

    @property
    def is_filling(self) -> bool:
        """Whether tables are not read to their end yet, so that nothing else is to be done."""
        self._unread = {one for one in self._unread if self._waiting[one] or not self._is_at_end(one)}
        return bool(self._unread)

    def take(self) -> ConsumerRecord:
        """Return the next record.

        Raises:
            LookupError: when it is not known which it is.
        """
        records = self._next()
        if records is None:
            raise LookupError("no record is ready")
        self._taken.append(records.popleft())
        return self._taken[-1]

    def done(self) -> Sequence[ConsumerRecord]:
        """Return what was taken since this was last called: it was committed."""
        taken, self._taken = self._taken, []
        return taken

    def put_back(self) -> int:
        """Take back what was taken and is not done, and return how many records that is."""
        count = len(self._taken)
        while self._taken:
            self.put_back_last()
        return count

    def put_back_last(self) -> None:
        record = self._taken.pop()
        self._waiting[TopicPartition(record.topic, record.partition)].appendleft(record)

    def _next(self) -> deque[ConsumerRecord] | None:
        """Return the records of the partition that is next; None while that is not known."""
        if len(self._waiting) == 1:
            [records] = self._waiting.values()
            return records or None
        first: deque[ConsumerRecord] | None = None
        is_filling = self.is_filling
        for partition, records in self._waiting.items():
            if is_filling and partition not in self._unread:
                continue
            if not records:
                if not self._may_pass(partition):
                    return None
            elif first is None or records[0].timestamp < first[0].timestamp:
                first = records
        return first

    def ready_in_s(self) -> float | None:
        """Return when what waits may be processed without another record, in seconds; None if only records help."""
        waits = [
            self._ended_at[one] + self._idle_s - time.monotonic()
            for one, records in self._waiting.items()
            if not records and one in self._ended_at
        ]
        return max(0.0, *waits) if waits and len(self) else None

    def _may_pass(self, partition: TopicPartition) -> bool:
        """Say whether the others need not wait for a partition that has no record here."""
        if not self._is_at_end(partition):
            self._ended_at.pop(partition, None)
            return False
        now = time.monotonic()
        return now - self._ended_at.setdefault(partition, now) >= self._idle_s

    def _is_at_end(self, partition: TopicPartition) -> bool:
        """Say whether everything that can be read of a partition now was read, as far as its broker has answered."""
        place, stable = place_of(self._consumer, partition), self._consumer.last_stable_offset(partition)
        end = self._consumer.highwater(partition) if stable is None or stable < 0 else stable
        return place is not None and end is not None and place >= end >= 0
