"""What it means that a consumer read nothing: nothing is new, nobody answers, or a transaction holds records back."""

import asyncio
import math
import time
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaTimeoutError

from batonpass.worker.kafka.metadata import raise_if_repartitioned
from batonpass.worker.kafka.topics import MissingPartition

PARTITIONS_LOOK_S = 5.0
"""How often whoever reads all partitions of a topic looks whether these are all."""

PLACED_LOOKS, PLACED_LOOK_S = 100, 0.03
"""How often a new consumer is looked at, and how long between: three seconds, of which a lease of six has room."""

SILENT_S = 30.0
"""After this time without an answer of the broker, beside what it may wait for news, a reader is made anew."""

GONE_S = 2.0
"""After this time without an answer a topic that the cluster does not know any more counts as missing."""

HELD_BACK_S = 2.0
"""How long a transaction may be open before it is named. Workers write one in a piece and end it in milliseconds."""

NOT_READ_S = 5.0
"""A consumer from which nobody read for so long asks its broker nothing, so that a missing answer means nothing."""


def place_of(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int | None:
    """Return the offset that a consumer reads next in a partition, without waiting for one; None if it has no place."""
    state = consumer._subscription.subscription.assignment.state_value(partition)  # noqa: SLF001 - `position` waits for ever
    return state.position if state.has_valid_position else None


async def placed(consumer: AIOKafkaConsumer) -> None:
    """Wait until a consumer has a place in each of its partitions, but not for long: a leader may be out of reach."""
    for _ in range(PLACED_LOOKS):
        await asyncio.sleep(PLACED_LOOK_S)
        if all(place_of(consumer, partition) is not None for partition in consumer.assignment()):
            return


def raise_if_silent(consumer: AIOKafkaConsumer) -> None:
    """Raise when no broker has answered any of a consumer's reads for `SILENT_S`: its user has to connect anew.

    An unforeseen error in aiokafka's reader ends it, and nobody is told. A partition without a leader stops no other.

    Raises:
        KafkaTimeoutError: when that is so.
    """
    heard = [at for one in consumer.assignment() if (at := consumer.last_poll_timestamp(one)) is not None]
    # By the clock that the client notes it by, which may have been set.
    if heard and abs(time.time() * 1_000 - max(heard)) > SILENT_S * 1_000:
        raise KafkaTimeoutError(f"no broker has answered a read for {SILENT_S:.0f} s")


async def look_after(consumer: AIOKafkaConsumer, written: Collection[str] = ()) -> None:
    """Look again and again whether a consumer is answered and reads all partitions, beside whoever reads what comes.

    And whether the topics are there that its user writes to.

    Raises:
        KafkaError: when it is not, or does not, or the cluster cannot be asked: its user has to connect anew.
    """
    while True:
        await asyncio.sleep(PARTITIONS_LOOK_S)
        raise_if_silent(consumer)
        await raise_if_repartitioned(consumer, written)


class Reading:
    """Sees what the answers say to a consumer's reads of some partitions."""

    def __init__(self, consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition]) -> None:
        self._consumer = consumer
        self._partitions = tuple(partitions)
        # A broker may wait for news for as long as this client lets it.
        self._silent_s = SILENT_S + consumer._fetch_max_wait_ms / 1_000  # noqa: SLF001 - nothing public shows it
        self._looked_at = time.monotonic()
        self._answers = dict.fromkeys(self._partitions, (-1, self._looked_at))
        # Where an open transaction began, and since when it is known to be open.
        self._open: dict[TopicPartition, tuple[int, float]] = {}

    def look(self, came: Collection[TopicPartition]) -> None:
        """Look at what the last read has brought, which is records of the partitions in ``came``.

        Raises:
            KafkaTimeoutError: when a broker has not answered for `SILENT_S`.
            MissingPartition: when a partition does not exist any more.
        """
        now = time.monotonic()
        was_read, self._looked_at = now - self._looked_at < NOT_READ_S, now
        for partition in self._partitions:
            answer, at = self._answers[partition]
            latest = self._consumer.last_poll_timestamp(partition)
            # Nothing is asked for while records that have come were not handed out yet.
            has_more = partition in self._consumer._fetcher._records  # noqa: SLF001 - nothing public shows it
            if latest != answer or not was_read or partition in came or has_more:
                self._answers[partition] = (latest, now)
            elif now - at > GONE_S and not self._exists(partition):
                raise MissingPartition(f"{partition.topic} has no partition {partition.partition} any more")
            elif now - at > self._silent_s:
                raise KafkaTimeoutError(
                    f"no answer about {partition.topic}-{partition.partition} for {self._silent_s:.0f} s"
                )
            self._note_open(partition, now)

    def _note_open(self, partition: TopicPartition, now: float) -> None:
        stable, end = self._consumer.last_stable_offset(partition), self._consumer.highwater(partition)
        if stable is None or end is None or not 0 <= stable < end:
            self._open.pop(partition, None)
        elif self._open.get(partition, (-1, now))[0] != stable:
            self._open[partition] = (stable, now)

    def _exists(self, partition: TopicPartition) -> bool:
        return partition.partition in (self._consumer.partitions_for_topic(partition.topic) or ())

    def end(self, partition: TopicPartition, position: int) -> int | None:
        """Return where a partition ended at the last answer, for a reader at ``position``; None before the first one.

        That is the last stable offset, so that a job's own transactions do not make its copies late; or the log's end,
        where a transaction is open for too long, or the reader is itself beyond the stable end.
        """
        stable, end = self._consumer.last_stable_offset(partition), self._consumer.highwater(partition)
        if stable is None or end is None or stable < 0:
            return None
        return int(end if self._is_held_back(partition) or position > stable else stable)

    def held_back(self) -> str:
        """Return in words which transactions hold records back, and have for a while; empty if none does."""
        return "; ".join(
            f"a transaction that began at offset {self._open[partition][0]} of {partition.topic}-{partition.partition} is "
            "still open and holds back what follows (kafka-transactions.sh find-hanging names it)"
            for partition in self._partitions
            if self._is_held_back(partition)
        )

    def _is_held_back(self, partition: TopicPartition) -> bool:
        _, since = self._open.get(partition, (-1, math.inf))
        now = time.monotonic()
        # What was seen before anybody read on says nothing of now.
        return now - since > HELD_BACK_S and now - self._looked_at < NOT_READ_S
