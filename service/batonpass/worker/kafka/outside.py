"""Topics of a job from outside of it: to give it something to do, and to see what came of that."""

from collections.abc import Collection
from typing import TypeVar

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition

from batonpass.worker.kafka.connection import KafkaConnection, disconnect, to_its_end
from batonpass.worker.kafka.reading import Reading
from batonpass.worker.kafka.topics import look_up
from batonpass.worker.kafka.typed import Headers, Record, Topic, check_topic, pairs_of

K = TypeVar("K")
V = TypeVar("V")

POLL_MS = 200


class AppProducer:
    """Writes to topics of a job as others do, outside of its transactions; `App.producer` makes it."""

    def __init__(self, producer: AIOKafkaProducer, topics: Collection[str]) -> None:
        self._producer = producer
        self._topics = topics

    async def send(
        self, topic: Topic[K, V], value: V, *, key: K, timestamp_ms: int | None = None, headers: Headers = ()
    ) -> None:
        """Write a record, and wait until the cluster has it. Its partition is the key's, as in the job.

        ``timestamp_ms`` is in milliseconds since 1970; None: now.

        Raises:
            TypeError: when key or value is not what the topic says, or a header is no name with bytes.
            ValueError: when it is no topic of the job.
            KafkaError: when the cluster does not take it.
        """
        check_topic(topic, self._topics)
        value_bytes, key_bytes = topic.value.dump(value), topic.key.dump(key)
        await self._producer.send_and_wait(
            topic.name, value_bytes, key=key_bytes, timestamp_ms=timestamp_ms, headers=pairs_of(headers)
        )


async def records_of(connection: KafkaConnection, topic: Topic[K, V]) -> list[Record[K, V]]:
    """Return the committed records that a topic has now, those of each partition in their order.

    Raises:
        MissingPartition: when the topic does not exist.
        KafkaError: when the cluster does not answer.
        ValueError: when a record is not what the topic says.
    """
    found: list[ConsumerRecord] = []
    consumer = connection.consumer({})
    try:
        await to_its_end(consumer.start())
        known = await look_up(consumer._client, [topic.name])  # noqa: SLF001 - aiokafka makes its client itself
        partitions = [TopicPartition(topic.name, number) for number in sorted(known[topic.name])]
        consumer.assign(partitions)
        ends, reading = await consumer.end_offsets(partitions), Reading(consumer, partitions)
        await consumer.seek_to_beginning(*partitions)
        while unread := [one for one in partitions if await consumer.position(one) < ends[one]]:
            batches = await consumer.getmany(*unread, timeout_ms=POLL_MS)
            reading.look(batches)
            found += [record for batch in batches.values() for record in batch]
    finally:
        await disconnect(consumer)
    return [topic.record(raw) for raw in found]
