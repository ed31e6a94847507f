"""What an active works with: a transactional producer and a reader of its input, connected before they are needed.

Connecting takes a dozen round trips, each of which waits while the broker is busy. A copy that may be promoted makes
them beforehand. After the grant only `Clients.fence` is left, one request; before it, the cluster knows no new owner.
Clients that are not needed any more are closed later, when no handover waits for that.
"""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from batonpass.loop_turns import LoopTurns
from batonpass.worker.kafka.commits import began_with_of, topic_ids_of
from batonpass.worker.kafka.connection import KafkaConnection, disconnect, in_time, to_its_end
from batonpass.worker.kafka.metadata import Lately, partition_counts, topic_ids
from batonpass.worker.kafka.metrics import Counts
from batonpass.worker.kafka.options import ActiveOptions
from batonpass.worker.kafka.reading import Reading, place_of
from batonpass.worker.kafka.said import SAY_AGAIN_S, Said
from batonpass.worker.kafka.subtopology import Subtopology, check_partitions
from batonpass.worker.kafka.topics import MissingPartition, log_ends, look_up, settings_of
from batonpass.worker.kafka.transaction import Producer
from batonpass.worker.tasks import happens

log = logging.getLogger("batonpass.worker.kafka")
_said = Said()

CLOSE_TIMEOUT_S = 5.0
CLOSE_DELAY_S = 1.0
"""How long clients that were given up stay connected: longer than the handover that they were given up for."""

LENT_WAIT_MS = 10
"""How long the broker may wait for more records while the consumer of the input is lent."""

BATCH_BYTES = 16_384
"""The largest batch of records, as aiokafka has it, unless a topic takes less."""

CONNECT_TIMEOUT_S = 30.0
"""How long connecting may take in all. Most that it waits for has a shorter limit, which says what is lacking."""

Close = Callable[[], Awaitable[None]]


class OffsetGone(Exception):
    """The input has not got the committed offset any more, or there is state and no offset that says what is in it.

    To go on anywhere would skip records, or count them twice.
    """


@dataclass(frozen=True, slots=True)
class Terms:
    """What all actives of a process share.

    ``limits`` has the largest message of the topics that refused a batch, ``counts`` what has happened by subtopology,
    ``changelogs`` all those of the job, ``fenced`` under which token the producer of a task was last fenced, and when.
    """

    connection: KafkaConnection
    group: str
    options: ActiveOptions
    closing: "Closing"
    counts: dict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))
    limits: dict[str, int] = field(default_factory=dict)
    changelogs: frozenset[str] = frozenset()
    fenced: dict[str, tuple[int | None, float]] = field(default_factory=dict)
    turns: LoopTurns = field(default_factory=LoopTurns)
    lately: Lately = field(default_factory=Lately)


class Clients:
    """What one try of an active works with."""

    def __init__(self, terms: Terms, task_id: str, part: Subtopology, partition: int) -> None:
        self._part = part
        self._group = terms.group
        self._partition = partition
        self._transactional_id = f"{terms.group}-{task_id}"
        self._lately = terms.lately
        self._options = options = terms.options
        producing: dict[str, Any] = (
            terms.connection.client_options()
            # Lingering records are sent when the transaction ends, or when there are enough of them.
            | {"linger_ms": options.transaction_timeout_ms, "retry_backoff_ms": 20, "request_timeout_ms": 15_000}
            | {"max_batch_size": BATCH_BYTES}
            | dict(options.producer_options)
        )
        self.batch_bytes: int = min([producing["max_batch_size"], *terms.limits.values()])
        self.producer = Producer(
            self._group,
            **(producing | {"max_batch_size": self.batch_bytes}),
            transactional_id=self._transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            enable_idempotence=True,
        )
        self.input = terms.connection.consumer(
            {"retry_backoff_ms": 200} | dict(options.input_options), group_id=self._group
        )
        self.partitions: list[TopicPartition] = []
        self._guess: dict[TopicPartition, int | None] = {}
        self._bounds: dict[TopicPartition, tuple[int, int]] = {}
        self._counts: dict[str, int] = {}
        self.topic_ids: dict[str, str] = {}
        """The ids of sources and changelogs, as far as brokers tell them."""
        self.committed_ids: dict[str, str] = {}
        """What they were when the committed offsets were committed, as far as that is known."""
        self.began_with: dict[str, int] = {}
        """How many partitions each source had when the group began at its end, if it is to begin there."""
        self.reading = Reading(self.input, ())

    async def connect(self) -> None:
        """Connect, and learn which brokers have what. No producer is fenced; committed offsets are read later.

        Raises:
            KafkaError: when the cluster cannot be reached, or lacks a topic.
        """
        part = self._part
        topics = (*part.changelog_topics, *part.outputs)
        await in_time(
            both(self.producer.connect(topics), self._connect_input()),
            f"what {self._transactional_id} works with was not connected",
            CONNECT_TIMEOUT_S,
        )

    async def fence(self) -> None:
        """Fence the former owner of the task, and end its transaction.

        Raises:
            KafkaError: when the cluster did not answer in time; the former owner may have been fenced all the same.
        """
        await in_time(
            both(self.producer.fence(), self._guess_input()),
            f"{self._transactional_id} was not made the one producer of its id",
        )

    def read_ahead(self) -> None:
        """Begin to read the input from the offsets known so far; no record is handed out yet."""
        if self._guess:
            self.input.assign(self.partitions)
            self._seek(self._places(self._guess))

    def lent_input(self) -> AIOKafkaConsumer:
        """Return the consumer of the input to read something else with, until `find_input` is called."""
        self._guess = {}
        # A consumer asks again after its last read, and a broker answers one connection in order. If that request
        # waited half a second for new records, the first read of the input would wait behind it.
        self.input._fetcher._fetch_max_wait_ms = LENT_WAIT_MS  # noqa: SLF001 - it cannot be set later in any other way
        return self.input

    async def find_input(self) -> Mapping[TopicPartition, int | None]:
        """Go to the committed offsets of every source partition, and return them.

        What was read ahead is kept if it begins at these offsets.

        Raises:
            OffsetGone: when one is not in the input any more, and nobody has said what to do then.
            KafkaError: when they cannot be read.
        """
        self.input._fetcher._fetch_max_wait_ms = self.input._fetch_max_wait_ms  # noqa: SLF001 - as it was made
        offsets = await in_time(self._committed(), f"the committed offsets of group {self._group} were not read")
        if not self._bounds or self._gone(offsets):
            # An offset that was committed after the bounds were read may be beyond them.
            await self._find_bounds()
        self._heed_gone(offsets)
        if self.input.assignment() != set(self.partitions):
            self.input.assign(self.partitions)
        self._seek(self._places(offsets))
        self.reading = Reading(self.input, self.partitions)
        return offsets

    async def find_input_again(self, error: OffsetOutOfRangeError) -> None:
        """Go on where the options say after the place that the input was read at is not there any more.

        Raises:
            OffsetGone: when nobody has said what to do then.
            KafkaError: when the cluster cannot be asked.
        """
        await self._find_bounds()
        offsets: Mapping[TopicPartition, int] = error.args[0]
        self._heed_gone(offsets)
        self._seek(self._places(offsets))

    def _places(self, offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """Return where to read on: at the offsets, or where the options say if there is none, or it is gone.

        Without an offset a table is read from its beginning in any case: it is what all of its topic says. So is a
        partition that its topic got after the group had begun.
        """
        gone, places = self._gone(offsets), dict[TopicPartition, int]()
        for partition, offset in offsets.items():
            begin, end = self._bounds[partition]
            if offset is None or partition in gone:
                where = self._options.start if offset is None else self._options.offset_gone
                is_whole = offset is None and (
                    partition.topic in self._part.tables
                    or partition.partition >= self.began_with.get(partition.topic, math.inf)
                )
                places[partition] = end if where == "latest" and not is_whole else begin
            else:
                places[partition] = offset
        return places

    def _gone(self, offsets: Mapping[TopicPartition, int | None]) -> list[TopicPartition]:
        """Return the partitions that do not have the offset any more, do not have it yet, or never had it."""
        return [
            partition
            for partition, offset in offsets.items()
            if offset is not None
            and (
                not self._bounds[partition][0] <= offset <= self._bounds[partition][1]
                or self.is_remade(partition.topic)
            )
        ]

    def is_remade(self, topic: str) -> bool:
        """Whether a topic was deleted and made anew since the committed offsets were committed."""
        was, now = self.committed_ids.get(topic), self.topic_ids.get(topic)
        return was is not None and now is not None and was != now

    def _heed_gone(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        gone = "; ".join(
            f"group {self._group} is to go on at offset {offsets[partition]} of {partition.topic}-{partition.partition}, "
            f"which is now {begin} to {end}"
            + (", and was deleted and made anew since" if self.is_remade(partition.topic) else "")
            for partition in self._gone(offsets)
            for begin, end in [self._bounds[partition]]
        )
        if gone and self._options.offset_gone == "fail":
            raise OffsetGone(
                f"{gone}: commit the offset up to which the state counts (kafka-consumer-groups.sh --reset-offsets), or "
                "set offset_gone to earliest or latest, which counts records twice or skips some"
            )
        if gone:
            log.warning("%s: it goes on at %s, as offset_gone says", gone, self._options.offset_gone)

    async def _committed(self) -> dict[TopicPartition, int | None]:
        # The public method returns no metadata, and asks for one partition at a time.
        fetch = self.input._coordinator.fetch_committed_offsets  # noqa: SLF001
        found = await fetch(self.partitions)
        if self._options.start == "latest":
            new = {one.topic for one in self.partitions if one not in found}
            others = await fetch(
                [TopicPartition(topic, number) for topic in new for number in range(self._counts[topic])]
            )
            self.began_with = dict(self._counts)
            for committed in (found | others).values():
                for topic, count in began_with_of(committed.metadata).items():
                    self.began_with[topic] = min(count, self.began_with.get(topic, count))
        self.committed_ids = {}
        for committed in found.values():
            self.committed_ids |= topic_ids_of(committed.metadata)
        return {one: found[one].offset if one in found and found[one].offset >= 0 else None for one in self.partitions}

    async def _find_bounds(self) -> None:
        client = self.input._client  # noqa: SLF001 - nothing public asks for ends and ids
        asking = asyncio.gather(
            self.input.beginning_offsets(self.partitions), log_ends(client, self.partitions), self._ids(None)
        )
        begins, ends, self.topic_ids = await in_time(
            asking, f"begin and end of {_listed(self.partitions)} were not read"
        )
        self._bounds = {partition: (begins[partition], ends[partition]) for partition in self.partitions}

    async def _ids(self, lately: Lately | None) -> dict[str, str]:
        changelogs = [TopicPartition(topic, self._partition) for topic in self._part.changelog_topics]
        return await topic_ids(self.input._client, [*self.partitions, *changelogs], lately)  # noqa: SLF001 - as above

    async def raise_if_remade(self) -> None:
        """Raise when a source or a changelog was deleted and made anew since this try began, or has a partition more.

        Raises:
            KafkaError: naming it, or when the cluster cannot be asked.
        """
        client, sources = self.input._client, self._part.sources  # noqa: SLF001 - one connection less
        asking = self._lately.known(sources, lambda: partition_counts(client, sources))
        for topic, count in (await in_time(asking, "the partitions of its sources were not read")).items():
            if count > self._partition and TopicPartition(topic, self._partition) not in self.partitions:
                raise KafkaError(f"topic {topic} has a partition {self._partition} by now, which its task reads too")
            known, self._counts[topic] = self._counts.get(topic, count), count
            if count > known and _said.is_news(f"{topic} {count}"):
                log.warning(
                    "topic %s has %d partitions by now, and had %d: nobody reads the new ones before group %s has tasks for "
                    "them. A coordinator that reads the cluster (BATONPASS_KAFKA_BOOTSTRAP) makes them, or `batonpass groups "
                    "declare`", topic, count, known, self._group,
                )  # fmt: skip
        for topic, topic_id in (await in_time(self._ids(self._lately), "the ids of its topics were not read")).items():
            if self.topic_ids.get(topic, topic_id) != topic_id:
                raise KafkaError(f"topic {topic} was deleted and made anew under a task that uses it")

    async def _guess_input(self) -> None:
        with suppress(KafkaError):
            guess, _ = await asyncio.gather(self._committed(), self._find_bounds())
            self._guess = guess

    def _seek(self, places: Mapping[TopicPartition, int]) -> None:
        for partition, place in places.items():
            # What was read ahead from there is kept.
            if place_of(self.input, partition) != place:
                self.input.seek(partition, place)

    def raise_if_gone(self) -> None:
        """Raise when the cluster does not know a topic any more that this task writes to, or a partition of one.

        Raises:
            MissingPartition: naming it.
        """
        client = self.producer.client
        # It would look again only after minutes.
        client.force_metadata_update()
        for topic in sorted(client._topics):  # noqa: SLF001 - all that it writes to, named as an output or not
            if client.cluster.partitions_for_topic(topic) is None:
                raise MissingPartition(f"topic {topic} does not exist any more")
        for topic, partition in self.producer._message_accumulator._batches:  # noqa: SLF001 - what waits to be sent
            if partition not in client.cluster.partitions_for_topic(topic):
                raise MissingPartition(f"topic {topic} has no partition {partition} any more")

    async def largest_message(self, topic: str) -> int | None:
        """Return the most bytes that a topic takes in a batch (`max.message.bytes`); None if that is not to be known.

        Raises:
            KafkaError: when the cluster cannot be asked.
        """
        found = await settings_of(self.input._client, [topic], ["max.message.bytes"])  # noqa: SLF001 - one connection less
        settings = found.get(topic)
        return int(settings["max.message.bytes"]) if isinstance(settings, dict) else None

    async def close(self) -> None:
        """Disconnect. An open transaction stays open: the next producer ends it, or its timeout."""
        try:
            await self._in_time(disconnect(self.input))
        finally:
            await self._in_time(self.producer.stop())

    async def _in_time(self, stopping: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await stopping
        except (TimeoutError, KafkaError) as error:
            log.warning("a client of %s did not close: %r", self._transactional_id, error)

    async def _connect_input(self) -> None:
        consumer, part = self.input, self._part
        await to_its_end(consumer.start())
        known = await look_up(consumer._client, (*part.sources, *part.changelog_topics))  # noqa: SLF001 - no public way
        self.partitions = [
            TopicPartition(topic, self._partition) for topic in part.sources if self._partition in known[topic]
        ]
        check_partitions(part, known)
        self._counts = {topic: len(known[topic]) for topic in part.sources}
        if not self.partitions:
            raise MissingPartition(f"no topic of {', '.join(part.sources)} has a partition {self._partition}")
        for partition in self.partitions[:1]:
            await in_time(
                consumer.committed(partition),
                f"group {self._group} has no coordinator: can the cluster make its topic __consumer_offsets?",
            )


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{one.topic}-{one.partition}" for one in partitions)


class Closing:
    """Closes later what is not needed any more, so that no handover waits for it."""

    def __init__(self) -> None:
        self._busy: dict[asyncio.Task[None], tuple[str, asyncio.Event]] = {}

    def put(self, task_id: str, *closes: Close, delay_s: float = CLOSE_DELAY_S) -> None:
        """Close something of a task after ``delay_s``."""
        hurry = asyncio.Event()
        busy = asyncio.create_task(self._close(closes, hurry, delay_s), name=f"batonpass closing of {task_id}")
        self._busy[busy] = (task_id, hurry)
        busy.add_done_callback(self._busy.pop)

    def abandon(self, task_id: str, connecting: asyncio.Future[Clients]) -> None:
        """Close clients once they are connected: a connection whose making is cut short would stay open."""

        async def close() -> None:
            await asyncio.wait([connecting], timeout=CLOSE_TIMEOUT_S)
            if not connecting.done():
                connecting.cancel()
                await asyncio.wait([connecting])
            if not connecting.cancelled() and connecting.exception() is None:
                await connecting.result().close()

        self.put(task_id, close, delay_s=0)

    async def done(self, task_id: str | None = None) -> None:
        """Close at once all that is left of a task, or of every task, and wait until that is done."""
        while left := [busy for busy, (whose, _) in self._busy.items() if task_id in {None, whose}]:
            for busy in left:
                self._busy[busy][1].set()
            done, _ = await asyncio.wait(left, timeout=SAY_AGAIN_S)
            if not done:
                log.warning("still waiting for what is being closed of %s", task_id or "all tasks")

    async def _close(self, closes: tuple[Close, ...], hurry: asyncio.Event, delay_s: float) -> None:
        # Cancelled at the end of the process, it closes at once, so that the cluster learns that the clients are gone.
        with suppress(asyncio.CancelledError):
            await happens(hurry, delay_s)
        for close in closes:
            try:
                await close()
            except Exception:
                log.exception("something did not close")


class Prepared:
    """The clients of a task's next active, which a copy connects ahead of its promotion."""

    def __init__(self, make: Callable[[], Clients], closing: Closing, task_id: str) -> None:
        self._make = make
        self._closing = closing
        self._task_id = task_id
        self._connecting: asyncio.Task[Clients] | None = None
        self._hurry = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being connected now: it is done, it failed, or it was not asked for."""
        return self._connecting is None or self._connecting.done()

    def begin(self, *, delay_s: float = 0.0) -> None:
        """Connect in the background after ``delay_s``, unless that was begun already."""
        if self._connecting is None:
            self._hurry = asyncio.Event()
            name = f"batonpass clients of {self._task_id}"
            self._connecting = asyncio.create_task(self._connect(self._hurry, delay_s), name=name)
            # An error here is not raised: `take` connects again, and raises its own.
            self._connecting.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def take(self) -> Clients:
        """Return connected clients, prepared ones if there are any; the caller closes them.

        Raises:
            KafkaError: when the cluster cannot be reached, or lacks a topic.
        """
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            self._hurry.set()
            try:
                return await connecting
            except KafkaError as error:
                log.info("what was prepared for %s is of no use: %r", self._task_id, error)
        return await self._connect(self._hurry, 0.0)

    def drop(self) -> None:
        """Let go of what was prepared."""
        connecting, self._connecting = self._connecting, None
        if connecting is None:
            return
        if not self._hurry.is_set():
            connecting.cancel()
        self._closing.abandon(self._task_id, connecting)

    async def _connect(self, hurry: asyncio.Event, delay_s: float) -> Clients:
        await happens(hurry, delay_s)
        hurry.set()
        clients = self._make()
        try:
            await clients.connect()
        except BaseException:
            self._closing.put(self._task_id, clients.close)
            raise
        return clients


async def both(first: Awaitable[object], second: Awaitable[object]) -> None:
    """Await both, whichever fails, so that neither goes on alone; raise the first one's error."""
    for outcome in await asyncio.gather(first, second, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
