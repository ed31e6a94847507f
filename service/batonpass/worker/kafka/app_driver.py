"""Tests of an `App` without a broker, in the manner of Kafka Streams' TopologyTestDriver.

    test = app.test()
    await test.send(orders, 5, key="ada", timestamp_ms=1_000)
    assert [total.value for total in test.records(totals)] == [5]
    test.restore()
    assert test.store(sums).get("ada") == 5

Each subtopology is one task, of partition 0. Its functions get the context, the stores and the timers that they get on
Kafka. `batonpass.worker.testing.Fleet` has several workers, which hand tasks over; fencing and offsets need a broker.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import ConsumerRecord, TopicPartition

from batonpass.core.state.ids import task_id
from batonpass.worker.kafka.failed_records import done_by_its_code, headers, is_of_the_record, where
from batonpass.worker.kafka.options import ActiveOptions
from batonpass.worker.kafka.stores import MemoryStore, StoreInTransaction, TaskState
from batonpass.worker.kafka.subtopology import Subtopology
from batonpass.worker.kafka.topics import MissingPartition
from batonpass.worker.kafka.transaction import Context
from batonpass.worker.kafka.typed import (
    NONE_OF_THIS_JOB,
    Headers,
    KeyValueStore,
    Record,
    Table,
    Topic,
    check_topic,
    pairs_of,
)
from batonpass.worker.kafka.wall_clock import WallClock
from batonpass.worker.raised import add_note

K = TypeVar("K")
V = TypeVar("V")


class MemoryTopics:
    """Topics of one partition each, as lists in memory, and how far each subtopology has read its sources."""

    def __init__(self, parts: Mapping[str, Subtopology]) -> None:
        self._parts = parts
        self._places = {name: dict.fromkeys(part.sources, 0) for name, part in parts.items()}
        self.changelogs = frozenset(topic for part in parts.values() for topic in part.changelog_topics)
        self._names = {topic for part in parts.values() for topic in (*part.sources, *part.outputs)}
        self.logs: defaultdict[str, list[ConsumerRecord]] = defaultdict(list)

    def next(self, name: str) -> ConsumerRecord | None:
        """Return the next record of a subtopology: of tables first, else the one with the lowest timestamp."""
        waiting = [
            self.logs[topic][place] for topic, place in self._places[name].items() if place < len(self.logs[topic])
        ]
        tables = self._parts[name].tables
        return min(waiting, key=lambda raw: (raw.topic not in tables, raw.timestamp), default=None)

    def passed(self, name: str, raw: ConsumerRecord) -> None:
        """Note that a subtopology has committed a record."""
        self._places[name][raw.topic] += 1

    def send(self, topic: Topic[K, V], value: V, key: K, timestamp_ms: int, headers: Headers) -> None:
        """Write a record to a topic.

        Raises:
            TypeError: when it is no topic, but its name.
            ValueError: when it is no topic of the job.
        """
        check_topic(topic, self._names)
        self.append(topic.name, topic.key.dump(key), topic.value.dump(value), timestamp_ms, pairs_of(headers))

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes]],
    ) -> ConsumerRecord:
        log = self.logs[topic]
        sizes = (len(key or b""), len(value or b""))
        log.append(ConsumerRecord(topic, 0, len(log), timestamp_ms, 0, key, value, None, *sizes, tuple(headers)))
        return log[-1]

    def read(self, topic: Topic[K, V]) -> list[Record[K, V]]:
        """Return what was written to a topic so far.

        Raises:
            TypeError: when it is no topic, but its name.
            ValueError: when it is no topic of the job.
        """
        check_topic(topic, self._names)
        return [topic.record(raw) for raw in self.logs[topic.name]]

    def check_name(self, name: str) -> None:
        """Refuse to write where nothing is, as a cluster does.

        Raises:
            MissingPartition: when the job has no such topic.
        """
        if name not in self._names | self.changelogs:
            raise MissingPartition(NONE_OF_THIS_JOB.format(name))


class MemoryTask:
    """The task of a subtopology on one worker. It begins with empty stores; ``now_ms`` is by the clock."""

    def __init__(
        self, name: str, part: Subtopology, topics: MemoryTopics, options: ActiveOptions, now_ms: int = 0
    ) -> None:
        self._name = name
        self._part = part
        self._topics = topics
        self._options = options
        self._clock = WallClock(part.by_clock, now_ms)
        stores = {topic: MemoryStore() for topic in part.changelog_topics}
        self.state = TaskState(task_id(name, 0), stores, Path("in-memory"))

    @property
    def ends(self) -> dict[str, int]:
        return {topic: len(self._topics.logs[topic]) for topic in self._part.changelog_topics}

    def restore(self) -> None:
        """Read the changelogs to their ends."""
        for topic, store in self.state.stores.items():
            records = self._topics.logs[topic][store.position or 0 :]
            store.apply([(raw.key, raw.value) for raw in records], len(self._topics.logs[topic]))

    async def call_by_clock(self, now_ms: int) -> Context | None:
        """Begin a transaction with the functions that are due by the clock; None if none is.

        Raises:
            Exception: what a function raised.
        """
        context = self._context(now_ms)
        return context if await self._clock.call(now_ms, context) else None

    async def process(self, raw: ConsumerRecord, now_ms: int) -> Context:
        """Begin a transaction with a record.

        Raises:
            Exception: what a function raised, unless ``on_error`` passes the record over.
        """
        context = self._context(now_ms)
        try:
            await done_by_its_code(self._part.process(raw, context))
        except Exception as error:
            add_note(error, where(raw))
            is_its_own = is_of_the_record(error) and not context.calls_for_time
            choice = self._options.what_becomes_of(raw, error) if is_its_own else "retry"
            if choice == "retry":
                raise
            context = self._context(now_ms)
            if choice == "dead-letter":
                await context.send(self._options.dead_letter_topic, raw.value, key=raw.key, headers=headers(raw, error))
        return context

    async def commit(self, context: Context, of: ConsumerRecord | int) -> None:
        """Commit the transaction of a record, or of a time by the clock."""
        await context.flush()
        context.apply()
        if isinstance(of, int):
            self._clock.passed(of)
        else:
            self._topics.passed(self._name, of)

    def _context(self, now_ms: int) -> Context:
        writer = _Writer(self._topics, now_ms)
        return Context(self.state, self._part.changelogs, writer, self._topics.changelogs)


class AppTest:
    """A job whose topics are lists in memory; `App.test` makes it."""

    def __init__(self, parts: Mapping[str, Subtopology], options: ActiveOptions) -> None:
        self._parts = parts
        self._options = options
        self._now_ms = 0
        self._topics = MemoryTopics(parts)
        self._tasks: dict[str, MemoryTask] = {}
        self.restore()

    async def send(self, topic: Topic[K, V], value: V, *, key: K, timestamp_ms: int, headers: Headers = ()) -> None:
        """Write a record, and process it and all that follows from it; each record is a transaction.

        Raises:
            Exception: what a function raised, unless ``on_error`` passes the record over. Nothing of that transaction
                stays, and the record is next once more.
        """
        self._topics.send(topic, value, key, timestamp_ms, headers)
        await self._process_all()

    async def advance_wall_clock(self, ms: int) -> None:
        """Let time pass on the clock, which begins at 0; each function that is due by it is called once.

        Raises:
            Exception: what a function raised. Nothing of that transaction stays.
        """
        self._now_ms += ms
        for task in self._tasks.values():
            if (context := await task.call_by_clock(self._now_ms)) is not None:
                await task.commit(context, self._now_ms)
        await self._process_all()

    async def _process_all(self) -> None:
        while waiting := [(name, raw) for name in self._parts if (raw := self._topics.next(name)) is not None]:
            for name, raw in waiting:
                task = self._tasks[name]
                await task.commit(await task.process(raw, self._now_ms), raw)

    def records(self, topic: Topic[K, V]) -> list[Record[K, V]]:
        """Return what was written to a topic so far."""
        return self._topics.read(topic)

    def changelog(self, topic: str) -> dict[bytes, bytes]:
        """Return what a changelog says, as it is once it was compacted."""
        latest = {raw.key: raw.value for raw in self._topics.logs[topic]}
        return {key: value for key, value in latest.items() if value is not None}

    def store(self, table: Table[K, V]) -> KeyValueStore[K, V]:
        """Return a table as it is now, to be read: what is written there is kept nowhere."""
        return read_only(table, self._tasks[table.subtopology])

    def restore(self) -> None:
        """Drop all state, and rebuild it from the changelogs, as another worker does that takes the tasks over."""
        for name, part in self._parts.items():
            self._tasks[name] = MemoryTask(name, part, self._topics, self._options, self._now_ms)
            self._tasks[name].restore()


def read_only(table: Table[K, V], task: MemoryTask) -> KeyValueStore[K, V]:
    return KeyValueStore(table, StoreInTransaction(task.state.stores[table.changelog]))


class _Writer:
    """Keeps what a transaction writes until it is committed. What has no time gets the present one, as on Kafka."""

    def __init__(self, topics: MemoryTopics, now_ms: int) -> None:
        self._topics = topics
        self._now_ms = now_ms
        self._sent: list[tuple[asyncio.Future[object], str, bytes | None, dict[str, Any]]] = []

    async def send(self, topic: str, value: bytes | None, **place: Any) -> asyncio.Future[object]:
        self._topics.check_name(topic)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._sent.append((future, topic, value, place))
        return future

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Do nothing: there is no cluster."""

    async def write_out(self) -> None:
        for future, topic, value, place in self._sent:
            at_ms = place.get("timestamp_ms")
            at_ms = self._now_ms if at_ms is None else at_ms
            future.set_result(self._topics.append(topic, place.get("key"), value, at_ms, place.get("headers", ())))
