"""Asks Kafka how many partitions topics have and where these begin and end; makes the coordinator's own topics."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, KafkaError, RequestTimedOutError
from aiokafka.protocol.offset import OffsetRequest, OffsetResetStrategy

from batonpass.core.state.policy import IsolationLevel
from batonpass.worker.kafka.connection import KafkaConnection, in_words
from batonpass.worker.kafka.metadata import (
    PARTITIONS_AT_ONCE,
    PROTOCOL_TIMEOUT_MS,
    TopicIds,
    adopt,
    described,
    ids_in,
    in_parts,
    partition_counts,
)
from batonpass.worker.kafka.said import Said, write_once
from batonpass.worker.kafka.topics import administering, make

log = logging.getLogger("batonpass.kafka")

Partition = tuple[str, int]
ISOLATION: Final = {IsolationLevel.READ_UNCOMMITTED: 0, IsolationLevel.READ_COMMITTED: 1}

PARTITIONS: Final = 8
KNOWN_FOR_S: Final = 0.001
"""How long what is known of a partition counts: to read it again takes some ten microseconds of the event loop. Of a
thousand partitions that is as good as always, of many more it would take much of a core."""


class TopicReader:
    """Asks a cluster about topics, over connections that are made when they are first needed.

    Each broker is asked about the partitions that it leads. Those of one that does not answer are left out, as are
    partitions without a leader, so that they hold up nobody else.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        write_once(self)
        self._connection = connection
        self._client: AIOKafkaClient | None = None
        self._counts: dict[str, int] = {}
        self._leaders: dict[Partition, int] = {}
        """Which broker leads each partition (-1: none)."""
        self._known_until = 0.0
        """Until when both count, on the monotonic clock; no longer once a leader did not say all that it was asked."""
        self._said = Said()

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return the partition count of each topic that exists, not older than a millisecond for each partition.

        It asks even if ``topics`` is empty, so that a refused login shows at once, and a cluster that goes away.

        Raises:
            KafkaError: when no broker answers.
        """
        if self._counts.keys() == set(topics) and time.monotonic() < self._known_until:
            return self._counts
        client = await self._connected()
        try:
            answer = await described(client, topics, self._counts)
        except KafkaConnectionError:
            # A broker closes a connection when its login expires, as tokens do. The next call makes a new one.
            answer = await described(client, topics, self._counts)
        found = {topic: partitions for error_code, topic, _, partitions in answer.topics if not error_code}
        # The client has to know the brokers only, and would take a while to note 100,000 partitions.
        answer.topics = []
        client.cluster.update_metadata(answer)
        self._leaders = {
            (topic, number): leader for topic, partitions in found.items() for _, number, leader, *_ in partitions
        }
        self._counts = {topic: len(partitions) for topic, partitions in found.items()}
        self._known_until = time.monotonic() + len(self._leaders) * KNOWN_FOR_S
        return self._counts

    async def ends(self, partitions: Collection[Partition], isolation: IsolationLevel) -> dict[Partition, int]:
        """Return where each partition ends for a reader of that isolation level.

        For readers of committed records that is the last stable offset: what an open transaction wrote lies beyond it.
        Offsets also count transaction markers and compacted records, as positions of readers do.

        Raises:
            KafkaError: when the cluster cannot be asked.
        """
        return await self._offsets(partitions, OffsetResetStrategy.LATEST, isolation)

    async def begins(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return where each partition begins, the same for every reader: records before that were deleted.

        Compaction moves no beginning.

        Raises:
            KafkaError: when the cluster cannot be asked.
        """
        return await self._offsets(partitions, OffsetResetStrategy.EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    async def ids(self, partitions: Iterable[Partition]) -> dict[str, str]:
        """Return the id of each topic (KIP-516), which another topic of the same name does not have.

        A leader is asked, since it has the records: others may not have heard of a topic that was made anew. All are
        left out where the brokers are older than Kafka 2.8.

        Raises:
            KafkaError: when the cluster cannot be asked.
        """
        client, first = await self._connected(), dict[str, int]()
        for topic, number in partitions:
            leader = self._leaders.get((topic, number), -1)
            if leader >= 0 and not client.is_silent(leader):
                first[topic] = min(number, first.get(topic, number))
        led: dict[int, list[str]] = defaultdict(list)
        for topic, number in first.items():
            led[self._leaders[topic, number]].append(topic)
        # An answer has all partitions of a topic, whoever leads them.
        asked = {leader: [TopicIds(part) for part in in_parts(topics, self._counts)] for leader, topics in led.items()}
        return ids_in(await self._ask_leaders(asked))

    async def _offsets(
        self, partitions: Collection[Partition], at: int, isolation: IsolationLevel
    ) -> dict[Partition, int]:
        led: dict[int, list[Partition]] = defaultdict(list)
        for partition in partitions:
            led[self._leaders.get(partition, -1)].append(partition)
        led.pop(-1, None)
        asked: dict[int, list[Any]] = defaultdict(list)
        for leader, some in led.items():
            for begin in range(0, len(some), PARTITIONS_AT_ONCE):
                wanted: dict[str, list[tuple[int, int]]] = defaultdict(list)
                for topic, number in some[begin : begin + PARTITIONS_AT_ONCE]:
                    wanted[topic].append((number, at))
                asked[leader].append(OffsetRequest(-1, ISOLATION[isolation], list(wanted.items())))

        # An error is that of one partition, for example of another leader by now: it is asked again with the next look.
        found = {
            (topic, number): offset
            for answer in await self._ask_leaders(asked)
            for topic, answered in answer.topics
            for number, error_code, *_, offset in answered
            if not error_code
        }
        if len(found) < len(partitions):
            self._known_until = 0.0
        return found

    async def _ask_leaders(self, asked: Mapping[int, Iterable[Any]]) -> list[Any]:
        """Ask each leader its questions, one after the other; return the answers that there are."""
        client, answers = await self._connected(), list[Any]()

        async def ask(leader: int) -> None:
            for question in asked[leader]:
                try:
                    if client.is_silent(leader):
                        raise RequestTimedOutError
                    answers.append(await client.send(leader, question))
                except IncompatibleBrokerVersion:
                    pass  # The broker has no such version of the request.
                except KafkaError as error:
                    if self._said.is_news(f"{leader}"):
                        log.warning("broker %s does not say where the partitions end that it leads: %r", leader, error)

        await asyncio.gather(*map(ask, asked))
        return answers

    async def _connected(self) -> AIOKafkaClient:
        if self._client is None:
            options = self._connection.client_options() | {"request_timeout_ms": PROTOCOL_TIMEOUT_MS}
            made = AIOKafkaClient(**options, retry_backoff_ms=50)
            adopt(made)
            try:
                await made.bootstrap()
            except BaseException:
                await made.close()
                raise
            self._client = made
        return self._client

    async def why(self, error: Exception) -> str:
        """Return an error in words, with what the brokers say when they refuse the login."""
        return await in_words(error, self._connection)

    async def close(self) -> None:
        """Disconnect; the next call connects anew."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def make_topics(options: dict[str, Any], settings: Mapping[str, dict[str, str]]) -> None:
    """Make those of the named topics that are missing, with their settings; a cluster that forbids it must have them.

    Raises:
        KafkaError: when one is missing and cannot be made.
    """
    async with administering(options) as admin:
        known = await partition_counts(admin._client, settings)  # noqa: SLF001 - makes none
        if missing := {topic: PARTITIONS for topic in settings if topic not in known}:
            await make(admin, missing, settings)
