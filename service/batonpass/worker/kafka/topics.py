"""Whether the topics that a task needs exist and are fit for it, and where they end; and how topics are made."""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.errors import KafkaError, LeaderNotAvailableError, TopicAlreadyExistsError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.offset import OffsetRequest, OffsetResetStrategy

from batonpass.worker.kafka.metadata import adopt
from batonpass.worker.kafka.options import ActiveOptions
from batonpass.worker.kafka.said import Said

log = logging.getLogger("batonpass.worker.kafka")
_said = Said()

LEADER_TRIES = 10
LEADER_PAUSE_S = 0.1
"""How often, and how soon, a partition without a leader is asked for again: one is being elected."""

COPIES_MAX = 3
"""How many replicas a topic gets that is made here; fewer on a cluster with fewer brokers."""

LEAST_DELETIONS_KEPT_MS = 1_000
"""The least `delete.retention.ms` of a changelog: with less, a copy that reads all the time would be too old."""


class MissingPartition(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """A topic, or a partition of one, does not exist. It is looked for again, because it may be about to be created."""

    def __str__(self) -> str:
        return ", ".join(map(str, self.args))


class ChangelogRefused(Exception):
    """A topic's settings let it forget what a store needs; the message names the setting."""


@asynccontextmanager
async def administering(options: Mapping[str, Any]) -> AsyncIterator[AIOKafkaAdminClient]:
    """Lend a client that may change topics. Its own questions about topics make them; those to its client do not.

    Raises:
        KafkaError: when it cannot connect.
    """
    admin = AIOKafkaAdminClient(**options)
    adopt(admin._client)  # noqa: SLF001 - it does not show it
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def make(admin: AIOKafkaAdminClient, counts: Mapping[str, int], settings: Mapping[str, dict[str, str]]) -> None:
    """Make topics with these numbers of partitions; those without settings have the cluster's.

    Raises:
        KafkaError: when one cannot be made.
    """
    copies = min(COPIES_MAX, len((await admin.describe_cluster())["brokers"]))
    wanted = [NewTopic(name, count, copies, topic_configs=settings.get(name, {})) for name, count in counts.items()]
    for name, code, message in (await admin.create_topics(wanted)).topic_errors:
        # Another process may have made it meanwhile.
        if code and not issubclass(for_code(code), TopicAlreadyExistsError):
            raise for_code(code)(f"topic {name} is missing and cannot be made: {message}")


async def look_up(client: AIOKafkaClient, topics: Iterable[str]) -> dict[str, set[int]]:
    """Return the partitions of each topic, and let the client keep itself informed of them.

    Raises:
        MissingPartition: when a topic does not exist; the message says what to do.
        KafkaError: when the cluster cannot be asked.
    """
    wanted = sorted(set(topics))
    if any(client.cluster.partitions_for_topic(topic) is None for topic in wanted):
        for topic in wanted:
            client.add_topic(topic)
        await client.force_metadata_update()
    found = {topic: client.cluster.partitions_for_topic(topic) for topic in wanted}
    missing = [topic for topic, partitions in found.items() if partitions is None]
    if missing:
        raise MissingPartition(f"topic {' and '.join(missing)} does not exist, or may not be read: make it first")
    return {topic: set(partitions) for topic, partitions in found.items() if partitions is not None}


async def log_ends(client: AIOKafkaClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return where each partition's log ends (its high watermark), transactions that are still open included.

    The end that a reader of committed records gets from aiokafka is the last stable offset, which stands still for as
    long as anybody's transaction is open.

    Raises:
        KafkaError: when the cluster cannot be asked, or a partition has had no leader for a second.
    """
    for _ in range(LEADER_TRIES):
        try:
            return await _log_ends_once(client, partitions)
        except KafkaError as error:
            if not error.retriable:
                raise
            await client.force_metadata_update()
            await asyncio.sleep(LEADER_PAUSE_S)
    return await _log_ends_once(client, partitions)


async def _log_ends_once(client: AIOKafkaClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    asked: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for partition in partitions:
        leader = client.cluster.leader_for_partition(partition)
        if leader is None or leader < 0:
            raise LeaderNotAvailableError(partition)
        asked[leader][partition.topic].append((partition.partition, OffsetResetStrategy.LATEST))
    ends: dict[TopicPartition, int] = {}
    for leader, topics in asked.items():
        answer = await client.send(leader, OffsetRequest(-1, READ_UNCOMMITTED, list(topics.items())))
        for topic, answered in answer.topics:
            for number, code, *_, end in answered:
                if code:
                    raise for_code(code)(TopicPartition(topic, number))
                ends[TopicPartition(topic, number)] = end
    return ends


async def settings_of(
    client: AIOKafkaClient, topics: Iterable[str], names: list[str]
) -> dict[str, dict[str, str] | KafkaError]:
    """Return these settings of each topic, or why the cluster does not let this client know.

    Raises:
        KafkaError: when the cluster cannot be asked.
    """
    asked = DescribeConfigsRequest([(ConfigResourceType.TOPIC, topic, names) for topic in sorted(set(topics))])
    answer = await client.ask_any(asked)
    return {
        topic: for_code(code)(message) if code else {name: value for name, value, *_ in entries}
        for code, message, _, topic, entries in answer.resources
    }


async def deletions_kept_ms(client: AIOKafkaClient, topics: Iterable[str], options: ActiveOptions) -> dict[str, float]:
    """Return for how long each changelog keeps the record that a key was deleted, in milliseconds.

    That is the topic's `delete.retention.ms`, or the options' where the cluster does not let this client know. It is
    for ever (`math.inf`) for one that is not compacted, if the options allow that.

    Raises:
        ChangelogRefused: when one is not compacted, so that Kafka deletes state by its age, or keeps deletions for less
            than `LEAST_DELETIONS_KEPT_MS`.
        KafkaError: when the cluster cannot be asked.
    """
    found = await settings_of(client, topics, ["cleanup.policy", "delete.retention.ms"])
    kept: dict[str, float] = {}
    for topic, settings in found.items():
        if isinstance(settings, KafkaError):
            log.warning(
                "how long %s keeps deletions is not to be known (%s); %s ms are taken for it. Allow this client "
                "DescribeConfigs on it, or set delete_retention_ms", topic, settings, options.delete_retention_ms,
            )  # fmt: skip
            kept[topic] = options.delete_retention_ms
            continue
        policy = settings["cleanup.policy"]
        kept[topic] = int(settings["delete.retention.ms"]) if "compact" in policy else math.inf
        if "compact" in policy and "delete" in policy and _said.is_news(topic):
            log.warning(
                "changelog %s has cleanup.policy=%s: what is older than its retention is in the state until that is "
                "restored, and then no more", topic, policy,
            )  # fmt: skip
        if kept[topic] is math.inf and not options.uncompacted_changelogs:
            raise ChangelogRefused(
                f"changelog {topic} has cleanup.policy={policy}: Kafka deletes its records by their "
                "age, and state with them. Set cleanup.policy=compact, or say uncompacted_changelogs=True if it may forget"
            )
        if kept[topic] < LEAST_DELETIONS_KEPT_MS:
            raise ChangelogRefused(
                f"changelog {topic} has delete.retention.ms={kept[topic]:.0f}: a copy that reads on for longer may miss "
                f"that a key was deleted. Set at least {LEAST_DELETIONS_KEPT_MS}, better a day (86400000)"
            )
    return kept
