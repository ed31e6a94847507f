"""An active task: fence, restore, check the lease, read the offsets, process; all of it in that order.

The order is PROTOCOL's (Fencing tokens). Whoever held the task before and wakes up late is refused by the broker from
the first step on, and cannot take the task back without a lease. Input offsets, outputs and changelog are one
transaction, and the stores take it in only after it was committed: should nobody know whether it was, the next restore
reads it from the changelog, or does not find it there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError, ProducerFenced

from batonpass.worker.kafka.changelog import Changelog
from batonpass.worker.kafka.connection import KafkaConnection
from batonpass.worker.kafka.state import TaskState, progress
from batonpass.worker.kafka.transaction import Context, Subtopology
from batonpass.worker.protocol import Offsets
from batonpass.worker.tasks import Task

log = logging.getLogger("batonpass.worker.kafka")

CLOSE_TIMEOUT_S = 5.0
LEASE_LOOK_S = 0.05
INPUT_LAG_S = 1.0


class Step(StrEnum):
    """How far an active has come, in order; those from ``begun`` on come again with each transaction."""

    GRANTED = "granted"
    FENCED_OTHERS = "fenced-others"
    READ_END = "read-end"
    RESTORED = "restored"
    CHECKED_LEASE = "checked-lease"
    READ_OFFSETS = "read-offsets"
    RUNNING = "running"
    BEGUN = "begun"
    PROCESSED = "processed"
    WRITTEN = "written"
    OFFSETS_SENT = "offsets-sent"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveOptions:
    """How actives work. Durations are milliseconds.

    A transaction is committed ``commit_interval_ms`` after its first record, at ``records_max`` records, or when the
    task is to stop. A broker that waits ``transaction_timeout_ms`` for the end of one aborts it. Where no offset was
    committed yet, the input is read from ``start`` (``earliest`` or ``latest``). After an error of the cluster an
    active begins anew once ``retry_ms`` are over. The rest are keyword arguments of aiokafka's clients. ``observe``
    hears of each step; it must return at once.
    """

    commit_interval_ms: int = 100
    records_max: int = 5_000
    transaction_timeout_ms: int = 60_000
    start: str = "earliest"
    retry_ms: int = 500
    input_options: Mapping[str, Any] = field(default_factory=dict)
    changelog_options: Mapping[str, Any] = field(default_factory=dict)
    producer_options: Mapping[str, Any] = field(default_factory=dict)
    observe: Callable[[str, Step], None] = lambda _task, _step: None


@dataclass(frozen=True, slots=True)
class Terms:
    """What all actives of a process share."""

    connection: KafkaConnection
    group: str
    options: ActiveOptions


@dataclass(slots=True)
class _Clients:
    """What one try of an active works with."""

    producer: AIOKafkaProducer
    input: AIOKafkaConsumer
    partitions: list[TopicPartition] = field(default_factory=list)


class Active:
    """One task while it is active here."""

    def __init__(
        self, task: Task, subtopology: Subtopology, terms: Terms, *, state: TaskState, changelog: Changelog | None
    ) -> None:
        self._task = task
        self._part = subtopology
        self._state = state
        self._changelog = changelog
        self._connection = terms.connection
        self._group = terms.group
        self._options = terms.options
        self.restored = 0
        """Records that were read from the changelog after the grant, over all tries."""

    @property
    def final_position(self) -> Offsets | None:
        """Where the changelog ends for whoever comes next; None for a stateless task."""
        positions = self._state.positions
        if len(self._part.changelog_topics) == 1:
            return positions.get(self._part.changelog_topics[0])
        return positions or None

    async def run(self) -> None:
        """Work until told to stop; the last transaction is committed unless that is cancelled.

        Raises:
            Exception: what the worker's own code raised.
        """
        while not self._task.stopping:
            try:
                await self._try()
            except ProducerFenced:
                log.warning("the producer of %r was fenced: somebody else has the task", self._task)
                self._task.producer_fenced()
                await self._task.stop_requested()
                return
            except KafkaError as error:
                log.warning("%r begins anew in %s ms: %r", self._task, self._options.retry_ms, error)
                await self._pause(self._options.retry_ms / 1_000)

    async def _try(self) -> None:
        if not await self._lease_holds():
            return
        self._observe(Step.GRANTED)
        clients = _Clients(self._make_producer(), self._make_input())
        try:
            # Only the producer's start fences; the input is merely made ready meanwhile, to save that time.
            await _both(clients.producer.start(), self._connect_input(clients))
            self._observe(Step.FENCED_OTHERS)
            await self._restore(clients)
            if not await self._lease_holds():
                return
            self._observe(Step.CHECKED_LEASE)
            await self._find_input(clients)
            self._observe(Step.READ_OFFSETS)
            if self._changelog is not None:
                self._changelog.pause()
            self._task.running()
            self._observe(Step.RUNNING)
            await self._process(clients)
        finally:
            await self._close(clients)

    async def _restore(self, clients: _Clients) -> None:
        """Read the changelog to where it ended after all others were fenced; nothing can be added to that."""
        changelog = self._changelog
        if changelog is None:
            return
        await changelog.resume()
        ends = await changelog.ends(clients.input)
        self._observe(Step.READ_END)
        before = changelog.records_read
        try:
            while changelog.missing(ends):
                self._report(ends)
                await changelog.restore_some(ends)
        finally:
            self.restored += changelog.records_read - before
        wanted = self._task.restore_to
        if isinstance(wanted, int) and changelog.missing(ends) == 0 and wanted > sum(ends.values()):
            log.error("the changelog of %r ends at %s, before %s, where its owner stopped", self._task, ends, wanted)
        self._observe(Step.RESTORED)

    def _report(self, ends: Mapping[str, int]) -> None:
        done = progress(self._state.positions, ends, self._part.changelog_topics)
        self._task.report(done.position, done.end_offset, positions=done.positions, end_offsets=done.end_offsets)

    async def _lease_holds(self) -> bool:
        """Wait until the task may begin; False when it is to stop instead."""
        while not self._task.may_begin:
            if self._task.stopping:
                return False
            await self._pause(LEASE_LOOK_S)
        return not self._task.stopping

    async def _connect_input(self, clients: _Clients) -> None:
        """Learn where the input and its committed offsets are kept; what they are is read later, and counts then."""
        consumer = clients.input
        await consumer.start()
        for topic in self._part.sources:
            known = await consumer._client._wait_on_metadata(topic)  # noqa: SLF001 - waits, as the public one does not
            if self._state.partition in known:
                clients.partitions.append(TopicPartition(topic, self._state.partition))
        for topic in self._part.changelog_topics:
            await consumer._client._wait_on_metadata(topic)  # noqa: SLF001 - its end is asked for soon
        for partition in clients.partitions[:1]:
            await consumer.committed(partition)

    async def _find_input(self, clients: _Clients) -> None:
        """Go to the committed offsets of every source partition of the task."""
        consumer = clients.input
        offsets = {partition: await consumer.committed(partition) for partition in clients.partitions}
        consumer.assign(clients.partitions)
        for partition, offset in offsets.items():
            if offset is not None:
                consumer.seek(partition, offset)

    async def _process(self, clients: _Clients) -> None:
        told_lag_at = 0.0
        while not self._task.stopping:
            batches = await clients.input.getmany(timeout_ms=50, max_records=self._options.records_max)
            if batches:
                await self._transaction(clients, batches)
            if time.monotonic() - told_lag_at > INPUT_LAG_S:
                told_lag_at = time.monotonic()
                await self._tell_input_lag(clients)

    async def _transaction(self, clients: _Clients, batches: Mapping[TopicPartition, Any]) -> None:
        """Process and commit some records, or nothing of them.

        Raises:
            ProducerFenced: when somebody else has the task.
            KafkaError: when the cluster failed; whether it was committed is found out by the next restore.
            Exception: what the worker's own code raised; the transaction was aborted.
        """
        producer = clients.producer
        context = Context(self._state, self._part.changelogs, producer)
        await producer.begin_transaction()
        self._observe(Step.BEGUN)
        try:
            offsets = await self._fill(context, clients, batches)
            self._observe(Step.PROCESSED)
            positions = await self._written(context)
            if positions is None:
                # The transaction is left open: whoever comes next ends it.
                await self._task.stop_requested()
                return
            await self._in_time(producer.send_offsets_to_transaction(offsets, self._group))
            self._observe(Step.OFFSETS_SENT)
            await self._in_time(producer.commit_transaction())
        except KafkaError:
            raise
        except Exception as error:
            _raise_if_dead(producer, error)
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await producer.abort_transaction()
            raise
        context.apply(positions)
        self._observe(Step.COMMITTED)

    async def _written(self, context: Context) -> dict[str, int] | None:
        """Write everything, and return where each changelog ends then; None when it must not be committed any more."""
        positions: dict[str, int] = await self._in_time(context.flush())
        self._observe(Step.WRITTEN)
        return positions if self._task.may_process else None

    async def _in_time(self, call: Awaitable[Any]) -> Any:
        """Await a call for no longer than the broker keeps a transaction open; a client that hangs is given up then."""
        limit_ms = self._options.transaction_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1_000):
                return await call
        except TimeoutError:
            raise KafkaTimeoutError(f"a transaction of {self._task!r} did not end within {limit_ms} ms") from None

    async def _fill(
        self, context: Context, clients: _Clients, batches: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, int]:
        """Process records until the transaction is long enough; return where the input is to go on."""
        commit_at = time.monotonic() + self._options.commit_interval_ms / 1_000
        offsets: dict[TopicPartition, int] = {}
        left = self._options.records_max
        while True:
            for partition, records in sorted(batches.items()):
                for record in records:
                    await self._part.process(record, context)
                    offsets[partition] = record.offset + 1
                left -= len(records)
            left_s = commit_at - time.monotonic()
            if left_s <= 0 or left <= 0 or self._task.stopping:
                return offsets
            batches = await clients.input.getmany(timeout_ms=min(50, int(left_s * 1_000)), max_records=left)

    async def _tell_input_lag(self, clients: _Clients) -> None:
        lag = 0
        for partition in clients.partitions:
            end = clients.input.last_stable_offset(partition)
            if end is not None and end >= 0:
                lag += max(0, end - await clients.input.position(partition))
        self._task.input_lag(lag)

    def _make_producer(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            **self._connection.client_options(),
            **(
                {"linger_ms": 0, "retry_backoff_ms": 50, "request_timeout_ms": 15_000}
                | dict(self._options.producer_options)
            ),
            transactional_id=f"{self._group}-{self._task.id}",
            transaction_timeout_ms=self._options.transaction_timeout_ms,
            enable_idempotence=True,
        )

    def _make_input(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **self._connection.client_options(),
            **({"retry_backoff_ms": 200} | dict(self._options.input_options)),
            group_id=self._group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset=self._options.start,
        )

    async def _close(self, clients: _Clients) -> None:
        """Disconnect. A transaction that is open stays so: it is ended by the next producer, or by its timeout."""
        for client in (clients.input, clients.producer):
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await client.stop()
            except (TimeoutError, KafkaError) as error:
                log.warning("a client of %r did not close: %r", self._task, error)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._task.stop_requested()

    def _observe(self, step: Step) -> None:
        self._options.observe(self._task.id, step)


def _raise_if_dead(producer: AIOKafkaProducer, error: Exception) -> None:
    """Raise what ended the producer, which refuses calls in ways of its own once it has ended.

    Raises:
        KafkaError: when the producer can do nothing any more; ``ProducerFenced`` where that is why.
    """
    sender = producer._sender.sender_task  # noqa: SLF001 - nothing public tells the cause
    if sender is not None and sender.done() and not sender.cancelled():
        cause = sender.exception()
        raise (cause if isinstance(cause, KafkaError) else KafkaError(repr(cause))) from error


async def _both(first: Any, second: Any) -> None:
    """Await both, whichever fails, so that neither goes on alone; raise the first one's error."""
    for outcome in await asyncio.gather(first, second, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
