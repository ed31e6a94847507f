"""What an active works with: a transactional producer and a reader of its input, connected before they are needed.

Connecting takes a dozen round trips, each of which waits while the broker is busy. A copy that may be promoted makes
them beforehand. After the grant only `Clients.fence` is left, one request; before it, the cluster knows no new owner.
Clients that are not needed any more are closed later, when no handover waits for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError

from batonpass.worker.kafka.connection import KafkaConnection, disconnect, to_its_end
from batonpass.worker.kafka.options import ActiveOptions
from batonpass.worker.kafka.topics import MissingPartition, look_up
from batonpass.worker.kafka.transaction import Producer, Subtopology

log = logging.getLogger("batonpass.worker.kafka")

CLOSE_TIMEOUT_S = 5.0
CLOSE_DELAY_S = 1.0
"""How long clients that were given up stay connected: longer than the handover that they were given up for."""

LENT_WAIT_MS = 10
"""How long the broker may wait for more records while the consumer of the input is lent."""

FENCE_TIMEOUT_S = 15.0
Close = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Terms:
    """What all actives of a process share."""

    connection: KafkaConnection
    group: str
    options: ActiveOptions
    closing: Closing


class Clients:
    """What one try of an active works with."""

    def __init__(self, terms: Terms, task_id: str, part: Subtopology, partition: int) -> None:
        self._part = part
        self._group = terms.group
        self._partition = partition
        self._transactional_id = f"{terms.group}-{task_id}"
        options, connection = terms.options, terms.connection.client_options()
        self.producer = Producer(
            self._group,
            **(
                connection
                # Lingering records are sent when the transaction ends, or when there are enough of them.
                | {"linger_ms": options.transaction_timeout_ms, "retry_backoff_ms": 20, "request_timeout_ms": 15_000}
                | dict(options.producer_options)
            ),
            transactional_id=self._transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            enable_idempotence=True,
        )
        self.input = AIOKafkaConsumer(
            **(connection | {"retry_backoff_ms": 200} | dict(options.input_options)),
            group_id=self._group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset=options.start,
        )
        self.partitions: list[TopicPartition] = []
        self._guess: dict[TopicPartition, int | None] = {}

    async def connect(self) -> None:
        """Connect, and learn which brokers have what. No producer is fenced; committed offsets are read later.

        Raises:
            KafkaError: when the cluster cannot be reached, or lacks a topic.
        """
        part = self._part
        topics = (*part.changelog_topics, *part.outputs)
        await both(self.producer.connect(topics), self._connect_input())

    async def fence(self) -> None:
        """Fence the former owner of the task, and end its transaction.

        Raises:
            KafkaError: when the cluster did not answer in time; the former owner may have been fenced all the same.
        """
        try:
            async with asyncio.timeout(FENCE_TIMEOUT_S):
                await both(self.producer.fence(), self._guess_input())
        except TimeoutError:
            raise KafkaTimeoutError(f"no answer to {self._transactional_id} within {FENCE_TIMEOUT_S:.0f} s") from None

    def read_ahead(self) -> None:
        """Begin to read the input from the offsets known so far; no record is handed out yet."""
        if self._guess:
            self.input.assign(self.partitions)
            self._seek(self._guess)

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
            KafkaError: when they cannot be read.
        """
        self.input._fetcher._fetch_max_wait_ms = self.input._fetch_max_wait_ms  # noqa: SLF001 - as it was made
        offsets = await self._committed()
        if offsets != self._guess or not self.input.assignment():
            self.input.assign(self.partitions)
            self._seek(offsets)
        return offsets

    async def _committed(self) -> dict[TopicPartition, int | None]:
        return {partition: await self.input.committed(partition) for partition in self.partitions}

    async def _guess_input(self) -> None:
        with suppress(KafkaError):
            self._guess = await self._committed()

    def _seek(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        for partition, offset in offsets.items():
            # Without an offset, the client begins where its options say.
            if offset is not None:
                self.input.seek(partition, offset)

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
        if not self.partitions:
            raise MissingPartition(f"no topic of {', '.join(part.sources)} has a partition {self._partition}")
        for partition in self.partitions[:1]:
            await consumer.committed(partition)


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
            await asyncio.wait(left)

    async def _close(self, closes: tuple[Close, ...], hurry: asyncio.Event, delay_s: float) -> None:
        # Cancelled at the end of the process, it closes at once, so that the cluster learns that the clients are gone.
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(delay_s):
                await hurry.wait()
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
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await hurry.wait()
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
