"""Where a job begins that begins at the end of its input: one place for all tasks, committed before any of them runs.

Each task would begin at the end of its own first start otherwise. What one subtopology had written by then for another,
and had committed as done, would be left out.
"""

import asyncio
import random
from collections.abc import Collection, Mapping
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced
from aiokafka.structs import OffsetAndMetadata

from batonpass.worker.kafka.commits import metadata_of
from batonpass.worker.kafka.connection import KafkaConnection, disconnect, hang_up, in_time, to_its_end
from batonpass.worker.kafka.metadata import adopt, partition_counts
from batonpass.worker.kafka.topics import log_ends, look_up

LIMIT_S: Final = 30.0


async def begin_at_end(connection: KafkaConnection, group: str, topics: Collection[str]) -> None:
    """Commit where each topic ends of which the group has no offset yet; one that does not exist is left out.

    Raises:
        KafkaError: when the cluster does not answer, or does not allow it.
    """
    consumer = connection.consumer({}, group_id=group)
    try:
        await to_its_end(consumer.start())
        client = consumer._client  # noqa: SLF001 - nothing public asks for ends
        counts = await partition_counts(client, topics)
        await look_up(client, counts)
        lacking = f"where group {group} begins was not committed"
        while await in_time(_unread(consumer, counts), lacking, LIMIT_S):
            # The workers of a job start together. Who is fenced looks again: nobody sets a later offset back.
            try:
                await in_time(_commit(connection, group, consumer, counts), lacking, LIMIT_S)
            except ProducerFenced:
                await asyncio.sleep(random.random())  # noqa: S311 - no secret
    finally:
        await disconnect(consumer)


async def _unread(consumer: AIOKafkaConsumer, counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions of topics of which no offset is committed. A partition that came later is whole new."""
    partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    found = await consumer._coordinator.fetch_committed_offsets(partitions)  # noqa: SLF001 - as `Clients` does
    read = {one.topic for one, committed in found.items() if committed.offset >= 0}
    return [one for one in partitions if one.topic not in read]


async def _commit(
    connection: KafkaConnection, group: str, consumer: AIOKafkaConsumer, counts: Mapping[str, int]
) -> None:
    producer = AIOKafkaProducer(**connection.client_options(), transactional_id=f"{group}-begin")
    adopt(producer.client)
    try:
        await producer.start()
        # From here on nobody else commits it, and no task runs before its worker has been here.
        if partitions := await _unread(consumer, counts):
            ends = await log_ends(consumer._client, partitions)  # noqa: SLF001 - as above
            async with producer.transaction():
                said = {one: OffsetAndMetadata(ends[one], metadata_of({}, counts)) for one in partitions}
                await producer.send_offsets_to_transaction(said, group)
    finally:
        await hang_up(producer)
