"""What brokers say of a cluster and its topics, asked so that asking changes nothing and goes on when brokers move."""

import asyncio
import base64
import contextlib
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from io import BytesIO
from types import MappingProxyType
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from batonpass.worker.forked import close_in_children

T = TypeVar("T")

AWAY_PAUSE_S = 0.5
"""How long a client waits after none of its brokers has answered, and the addresses it began with neither."""

GONE_PAUSE_S = 0.2
"""How long a client waits after a topic that it uses was not there: otherwise it would ask again at once, for ever."""


PROTOCOL_TIMEOUT_MS = 10_000
"""How long whoever carries the protocol waits for a broker; aiokafka would wait 40 s, and leases end meanwhile."""

RECORD_BYTES_MAX = 8_388_608
"""How large a record of the protocol may be, as a body over HTTP: what a member of 20,000 tasks says has 1.5 MB."""

PARTITIONS_AT_ONCE = 2_000
"""About how many partitions are asked about at once: an answer is decoded in one go, in up to 7 microseconds each."""
UNCOUNTED = 100
"""How many partitions a topic is taken to have before that is known."""
NONE_KNOWN: Mapping[str, int] = MappingProxyType({})

LATELY_S = 2.0
"""How long what one task was told of a topic counts for the others."""

SILENT_FROM_S = 1.0
SILENT_S = 30.0
"""A broker that has let a request wait for longer than the first, and failed, is asked last for the second."""


class MetadataClient(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's client, but for five things about metadata.

    - Brokers that were silent lately are asked last, and where one does not answer the next one is asked.
    - While it uses no topic it asks about none; aiokafka would ask about all that the cluster has.
    - A broker makes no topic because it is asked about one (`auto.create.topics.enable`).
    - Where none of the known brokers answers, it begins anew with the addresses that it was given (KIP-1102): brokers
      may have moved, all at once.
    - It waits before it asks again after a topic that is gone.
    """

    async def _metadata_update(self, cluster_metadata: ClusterMetadata, topics: Iterable[str] | None) -> bool:
        request = MetadataRequest(None if topics is None else list(topics), allow_auto_topic_creation=False)
        answer = None
        try:
            try:
                answer = await self.ask_any(request)
            except KafkaError:
                await self.bootstrap()
                answer = await self.ask_any(request)
        except KafkaError:
            await asyncio.sleep(AWAY_PAUSE_S)
        if answer is None or not answer.brokers:
            cluster_metadata.failed_update(None)
            return False
        cluster_metadata.update_metadata(answer)
        if any(error_code for error_code, *_ in answer.topics):
            await asyncio.sleep(GONE_PAUSE_S)
        return True

    async def ask_any(self, request: Any) -> Any:
        """Return the answer of the first broker that gives one.

        Raises:
            KafkaError: when none does.
        """
        nodes: list[Any] = [broker.nodeId for broker in self.cluster.brokers()]
        random.shuffle(nodes)
        if ("bootstrap", ConnectionGroup.DEFAULT) in self._conns or not nodes:
            # A cluster without any topic names no brokers; aiokafka keeps its first connection then.
            nodes.append("bootstrap")
        *others, last = sorted(nodes, key=self.is_silent)
        for node in others:
            with contextlib.suppress(KafkaError):
                return await self.send(node, request)
        return await self.send(last, request)

    def get_random_node(self) -> Any:
        """Return a broker that was not silent lately, if there is one; None where none is known."""
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        random.shuffle(nodes)
        return min(nodes, key=self.is_silent, default=None)

    async def send(self, node_id: Any, request: Any, **more: Any) -> Any:
        """Send a request as aiokafka does, and note whether that broker is silent."""
        began = time.monotonic()
        try:
            answer = await super().send(node_id, request, **more)
        except KafkaError:
            if time.monotonic() - began > SILENT_FROM_S:
                self.silent_until[node_id] = time.monotonic() + SILENT_S
            raise
        self.silent_until.pop(node_id, None)
        return answer

    def is_silent(self, node: Any) -> bool:
        """Whether a broker has not answered lately."""
        return bool(time.monotonic() < self.silent_until.get(node, 0.0))


def adopt(client: AIOKafkaClient) -> None:
    """Make a client that aiokafka has made, and that is not connected yet, one that can be relied on.

    It is a `MetadataClient`, and its connections are closed in children that this process forks.
    """
    client.__class__ = MetadataClient
    client.silent_until = {}
    close_in_children(client, _descriptors)


def _descriptors(client: AIOKafkaClient) -> Iterator[int]:
    for connection in list(client._conns.values()):  # noqa: SLF001 - aiokafka (0.14) shows them nowhere
        writer = connection._writer  # noqa: SLF001
        if writer is not None and not writer.is_closing():
            yield writer.get_extra_info("socket").fileno()


async def partition_counts(client: MetadataClient, topics: Iterable[str]) -> dict[str, int]:
    """Return how many partitions each topic has; one that does not exist is left out, and not made.

    Raises:
        KafkaError: when the cluster cannot be asked.
    """
    answer = await described(client, topics)
    return {topic: len(partitions) for error_code, topic, _, partitions in answer.topics if not error_code}


async def described(client: MetadataClient, topics: Iterable[str], counts: Mapping[str, int] = NONE_KNOWN) -> Any:
    """Return what brokers say of topics, and of the cluster; it asks even if there are no topics.

    ``counts`` are the partitions that topics are known to have.

    Raises:
        KafkaError: when the cluster cannot be asked.
    """
    answers = [
        await client.ask_any(MetadataRequest(part, allow_auto_topic_creation=False))
        for part in in_parts(sorted(set(topics)), counts)
    ]
    answers[-1].topics = [topic for answer in answers for topic in answer.topics]
    return answers[-1]


def in_parts(topics: Iterable[str], counts: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield topics in parts to ask about, at least one, each with ``PARTITIONS_AT_ONCE`` partitions or one topic."""
    part: list[str] = []
    room = PARTITIONS_AT_ONCE
    for topic in topics:
        size = counts.get(topic, UNCOUNTED)
        if part and size > room:
            yield part
            part, room = [], PARTITIONS_AT_ONCE
        part.append(topic)
        room -= size
    yield part


class Lately:
    """What brokers have said lately, for all tasks of a worker: each would ask about all partitions of its topics."""

    def __init__(self) -> None:
        self._said: dict[object, tuple[float, Any]] = {}

    async def known(self, about: object, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what is known, or ask.

        Raises:
            Exception: what asking raises.
        """
        now = time.monotonic()
        at, said = self._said.get(about, (-math.inf, None))
        if now - at > LATELY_S:
            said = await ask()
            self._said[about] = now, said
        answer: T = said
        return answer


def first_look(every_s: float) -> float:
    """Return when a task that begins is taken to have looked, so that not all look at the same time."""
    return time.monotonic() - every_s / 2 * random.random()  # noqa: S311 - no secret


async def raise_if_repartitioned(consumer: AIOKafkaConsumer, written: Collection[str] = ()) -> None:
    """Raise when a topic has other partitions than a consumer reads of it, or is gone: its user has to connect anew.

    So has whoever writes to topics (``written``) of which one is gone. Nobody tells a reader whose partitions are
    assigned by hand, and writers use new ones as soon as they know of them.

    Raises:
        KafkaError: naming the topic, or when the cluster cannot be asked.
    """
    read = Counter(partition.topic for partition in consumer.assignment())
    counts = await partition_counts(consumer._client, [*read, *written])  # noqa: SLF001 - one connection less
    for topic in written:
        if topic not in counts:
            raise KafkaError(f"topic {topic} is gone")
    for topic, number in read.items():
        if counts.get(topic, 0) != number:
            raise KafkaError(f"topic {topic} has {counts.get(topic, 0)} partitions by now, and {number} are read")


# --- topic ids (KIP-516), which aiokafka (0.14) does not ask for ------------------------------------------------------


class _Uuid(AbstractType[str]):  # type: ignore[misc]  # aiokafka has no types
    """16 bytes, written as Kafka's own tools write them."""

    @classmethod
    def encode(cls, value: str) -> bytes:
        return base64.urlsafe_b64decode(value + "==")

    @classmethod
    def decode(cls, data: BytesIO) -> str:
        return base64.urlsafe_b64encode(data.read(16)).decode().rstrip("=")


_NO_ID = "A" * 22


class _Answer(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 11
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32), ("host", CompactString()), ("port", Int32), ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16), ("topic", CompactString()), ("topic_id", _Uuid), ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16), ("partition", Int32), ("leader", Int32), ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)), ("isr", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)), ("tags", TaggedFields),
                    ),
                ),
                ("operations", Int32), ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )  # fmt: skip


class _Question(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 11
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("topic", CompactString()), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicIds(Request[_Question]):  # type: ignore[misc]
    """Asks for the ids of topics."""

    API_KEY = 3

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = sorted(set(topics))

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class([(_NO_ID, topic, {}) for topic in self._topics], False, False, {})


async def topic_ids(
    client: AIOKafkaClient, partitions: Iterable[TopicPartition], lately: Lately | None = None
) -> dict[str, str]:
    """Return the id of the topic of each partition (KIP-516), as Kafka's tools show it; one made anew has another.

    A partition's leader is asked, since it has the records; others may not have heard of a topic that was made anew.
    Topics without a leader are left out, and all of them where the brokers are older than Kafka 2.8. With ``lately`` it
    may be what another task was answered.

    Raises:
        KafkaError: when the cluster cannot be asked.
    """
    lately = lately or Lately()
    leaders: dict[str, int] = {}
    for partition in partitions:
        leader = client.cluster.leader_for_partition(partition)
        if leader is not None and leader >= 0:
            leaders.setdefault(partition.topic, leader)
    found: dict[str, str] = {}

    async def ask(leader: int, topics: list[str]) -> dict[str, str]:
        return ids_in([await client.send(leader, TopicIds(topics))])

    for leader in dict.fromkeys(leaders.values()):
        led = sorted(topic for topic, at in leaders.items() if at == leader)
        # The broker may have no such version of the request.
        with contextlib.suppress(IncompatibleBrokerVersion, RuntimeError):
            found |= await lately.known((leader, *led), partial(ask, leader, led))
    return found


def ids_in(answers: Iterable[Any]) -> dict[str, str]:
    """Return the ids of topics that brokers have answered with."""
    return {
        topic: topic_id for answer in answers for error_code, topic, topic_id, *_ in answer.topics if not error_code
    }
