"""Asks Kafka how many partitions topics have and where these begin and end; makes the coordinator's own topics."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError, TopicAlreadyExistsError, for_code

from batonpass.core.state.policy import IsolationLevel
from batonpass.worker.kafka.connection import KafkaConnection, in_words
from batonpass.worker.kafka.metadata import adopt, partition_counts, partition_leaders, topic_ids
from batonpass.worker.kafka.said import write_once

Partition = tuple[str, int]
REQUEST_TIMEOUT_MS = 10_000

PARTITIONS: Final = 8
COPIES: Final = 3
"""How many copies a topic that is made here has, if there are so many brokers."""


class TopicReader:
    """Asks a cluster about topics, over connections that are made when they are first needed.

    It joins no consumer group (manual assignment), so no rebalance can hold it up.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        write_once(self)
        self._connection = connection
        self._options = connection.client_options() | {"request_timeout_ms": REQUEST_TIMEOUT_MS, "retry_backoff_ms": 50}
        self._consumers: dict[IsolationLevel, AIOKafkaConsumer] = {}
        self._leaderless: frozenset[Partition] = frozenset()
        """Partitions that nobody could be asked about, as of the last call of ``partition_counts``."""

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return the partition count of each topic that exists.

        It asks even if ``topics`` is empty, so that a refused login shows at once, and a cluster that goes away.

        Raises:
            KafkaError: when the cluster cannot be asked.
        """
        client = (await self._consumer())._client  # noqa: SLF001 - one connection less
        try:
            found = await partition_leaders(client, topics)
        except KafkaConnectionError:
            # A broker closes a connection when its login expires, as tokens do. The next call makes a new one.
            found = await partition_leaders(client, topics)
        self._leaderless = frozenset(
            (topic, number) for topic, leaders in found.items() for number, leader in leaders.items() if leader < 0
        )
        return {topic: len(leaders) for topic, leaders in found.items()}

    async def ends(self, partitions: Iterable[Partition], isolation: IsolationLevel) -> dict[Partition, int]:
        """Return where each partition ends for a reader of that isolation level; the partitions must exist.

        For readers of committed records that is the last stable offset: what an open transaction wrote lies beyond it.
        Offsets also count transaction markers and compacted records, as positions of readers do. Partitions without a
        leader are left out: aiokafka would wait for one, and so would all other groups.

        Raises:
            KafkaError: when the cluster cannot be asked.
        """
        wanted = self._led(partitions)
        return _by_partition(await (await self._consumer(isolation)).end_offsets(wanted)) if wanted else {}

    async def begins(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return where each partition begins, the same for every reader: records before that were deleted.

        Compaction moves no beginning. The partitions must exist; those without a leader are left out.

        Raises:
            KafkaError: when the cluster cannot be asked.
        """
        wanted = self._led(partitions)
        return _by_partition(await (await self._consumer()).beginning_offsets(wanted)) if wanted else {}

    async def ids(self, partitions: Iterable[Partition]) -> dict[str, str]:
        """Return the id of each topic (KIP-516), which another topic of the same name does not have.

        Topics whose leader is not known are left out, and all of them where the brokers are older than Kafka 2.8.

        Raises:
            KafkaError: when the cluster cannot be asked.
        """
        client = (await self._consumer())._client  # noqa: SLF001 - one connection less
        return await topic_ids(client, _listed(partitions))

    async def _consumer(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> AIOKafkaConsumer:
        consumer = self._consumers.get(isolation)
        if consumer is None:
            made = AIOKafkaConsumer(**self._options, group_id=None, isolation_level=isolation.value)
            adopt(made._client)  # noqa: SLF001 - aiokafka makes its client itself
            consumer = self._consumers[isolation] = await _started(made)
        return consumer

    def _led(self, partitions: Iterable[Partition]) -> list[TopicPartition]:
        return _listed(set(partitions) - self._leaderless)

    async def why(self, error: Exception) -> str:
        """Return an error in words, with what the brokers say when they refuse the login."""
        return await in_words(error, self._connection)

    async def close(self) -> None:
        """Disconnect; the next call connects anew."""
        consumers, self._consumers = self._consumers, {}
        await asyncio.gather(*(consumer.stop() for consumer in consumers.values()))


def _listed(partitions: Iterable[Partition]) -> list[TopicPartition]:
    return [TopicPartition(*partition) for partition in sorted(partitions)]


def _by_partition(offsets: Mapping[TopicPartition, int]) -> dict[Partition, int]:
    return {(partition.topic, partition.partition): offset for partition, offset in offsets.items()}


async def _started(consumer: AIOKafkaConsumer) -> AIOKafkaConsumer:
    """Start a consumer; one that does not start is stopped, so that nothing of it stays."""
    try:
        await consumer.start()
    except BaseException:
        await consumer.stop()
        raise
    return consumer


async def make_topics(options: dict[str, Any], settings: Mapping[str, dict[str, str]]) -> None:
    """Make those of the named topics that are missing, with their settings; a cluster that forbids it must have them.

    Raises:
        KafkaError: when one is missing and cannot be made.
    """
    admin = AIOKafkaAdminClient(**options)
    try:
        await admin.start()
        # Not asked of the admin client, whose question would make them, with other settings.
        known = await partition_counts(admin._client, settings)  # noqa: SLF001
        missing = [topic for topic in settings if topic not in known]
        if missing:
            copies = min(COPIES, len((await admin.describe_cluster())["brokers"]))
            wanted = [NewTopic(name, PARTITIONS, copies, topic_configs=settings[name]) for name in missing]
            made = await admin.create_topics(wanted)
            for name, code, *_ in made.topic_errors:
                # Another coordinator may have made it meanwhile.
                if code and not issubclass(for_code(code), TopicAlreadyExistsError):
                    raise for_code(code)(f"topic {name} is missing and cannot be made")
    finally:
        await admin.close()
