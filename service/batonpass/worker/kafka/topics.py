"""Whether the topics that a task needs exist, and how long they keep deletions. Workers do not create them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable

from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest

log = logging.getLogger("batonpass.worker.kafka")

SAY_AGAIN_S = 30.0


class MissingPartition(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """A topic, or a partition of one, does not exist. It is looked for again, because it may be about to be created."""

    def __str__(self) -> str:
        return ", ".join(map(str, self.args))


class TopicsMissing(Exception):
    """Topics were missing for so long that the task counts as failed."""


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


async def deletions_kept_ms(client: AIOKafkaClient, topics: Iterable[str], *, unless_told: int) -> dict[str, float]:
    """Return for how long each topic keeps the record that a key was deleted, in milliseconds (`delete.retention.ms`).

    That is for ever (`math.inf`) where nothing is compacted: such a topic forgets only from its beginning. It is
    ``unless_told`` where the cluster does not let this client know.

    Raises:
        KafkaError: when the cluster cannot be asked.
    """
    names = ["cleanup.policy", "delete.retention.ms"]
    asked = DescribeConfigsRequest([(ConfigResourceType.TOPIC, topic, names) for topic in sorted(set(topics))])
    answer = await client.send(client.get_random_node(), asked)
    kept: dict[str, float] = {}
    for code, message, _, topic, entries in answer.resources:
        if code:
            log.warning(
                "how long %s keeps deletions is not to be known (%s); %s ms are taken for it. Allow this client "
                "DescribeConfigs on it, or set delete_retention_ms", topic, message or for_code(code).__name__, unless_told,
            )  # fmt: skip
            kept[topic] = unless_told
            continue
        settings = {name: value for name, value, *_ in entries}
        kept[topic] = int(settings["delete.retention.ms"]) if "compact" in settings["cleanup.policy"] else math.inf
    return kept


class Said:
    """What was logged last, so that a lasting problem is not logged again and again."""

    def __init__(self) -> None:
        self._last = ""
        self._at = 0.0

    def is_news(self, words: str) -> bool:
        """Whether something is to be logged, because it is new or was last logged a while ago."""
        now = time.monotonic()
        if words == self._last and now - self._at < SAY_AGAIN_S:
            return False
        self._last, self._at = words, now
        return True
