"""Tests of an `App` without a broker, in the manner of Kafka Streams' TopologyTestDriver.

    test = app.test()
    await test.send(orders, 5, key="ada", timestamp_ms=1_000)
    assert [total.value for total in test.records(totals)] == [5]
    test.restore()
    assert test.store(sums).get("ada") == 5

Each subtopology is one task, of partition 0. Its functions get the context, the stores and the timers that they get on
Kafka. What a worker does around them (fencing, offsets, handovers) needs a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import ConsumerRecord, TopicPartition

from batonpass.core.state.ids import task_id
from batonpass.worker.kafka.failed_records import headers, where
from batonpass.worker.kafka.options import ActiveOptions
from batonpass.worker.kafka.stores import MemoryStore, TaskState
from batonpass.worker.kafka.subtopology import Subtopology
from batonpass.worker.kafka.transaction import Context, StoreInTransaction
from batonpass.worker.kafka.typed import KeyValueStore, Record, Table, Topic
from batonpass.worker.kafka.wall_clock import WallClock

K = TypeVar("K")
V = TypeVar("V")


class AppTest:
    """A job whose topics are lists in memory; `App.test` makes it."""

    def __init__(self, parts: Mapping[str, Subtopology], options: ActiveOptions) -> None:
        self._parts = parts
        self._options = options
        self._now_ms = 0
        self._dies = False
        self._clocks = {name: WallClock(part.by_clock, 0) for name, part in parts.items()}
        self._logs: dict[str, list[ConsumerRecord]] = {}
        self._places = {name: dict.fromkeys(part.sources, 0) for name, part in parts.items()}
        self._states = {name: _empty(name, part) for name, part in parts.items()}

    async def send(
        self,
        topic: Topic[K, V],
        value: V,
        *,
        key: K,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Write a record, and process it and all that follows from it; each record is a transaction.

        Raises:
            Exception: what a function raised, unless ``on_error`` passes the record over. Nothing of that transaction
                stays, and the record is next once more.
        """
        self._append(topic.name, topic.key.dump(key), topic.value.dump(value), timestamp_ms, headers)
        await self._process_all()

    async def advance_wall_clock(self, ms: int) -> None:
        """Let time pass on the clock, which begins at 0; each function that is due by it is called once.

        Raises:
            Exception: what a function raised. Nothing of that transaction stays.
        """
        self._now_ms += ms
        for name, clock in self._clocks.items():
            context = self._context(name, self._now_ms)
            await clock.call(self._now_ms, context)
            await self._commit(context)
            clock.passed(self._now_ms)
        await self._process_all()

    async def _process_all(self) -> None:
        while True:
            waiting = [(name, raw) for name in self._parts if (raw := self._next(name)) is not None]
            if not waiting:
                return
            for name, raw in waiting:
                await self._transaction(name, raw)

    def records(self, topic: Topic[K, V]) -> list[Record[K, V]]:
        """Return what was written to a topic so far."""
        return [topic.record(raw) for raw in self._logs.get(topic.name, [])]

    def changelog(self, topic: str) -> dict[bytes, bytes]:
        """Return what a changelog says, as it is once it was compacted."""
        latest = {raw.key: raw.value for raw in self._logs.get(topic, [])}
        return {key: value for key, value in latest.items() if value is not None}

    def store(self, table: Table[K, V]) -> KeyValueStore[K, V]:
        """Return a table as it is now, to be read: what is written there is kept nowhere."""
        return KeyValueStore(table, StoreInTransaction(self._states[table.subtopology].stores[table.changelog]))

    def restore(self, *, in_the_middle: bool = False) -> None:
        """Drop all state, and rebuild it from the changelogs, as another worker does that takes the tasks over.

        ``in_the_middle`` has that happen once the next record is processed and not yet committed, as when a worker is
        killed: nobody sees that transaction, and the other worker processes the record once more.
        """
        self._dies = in_the_middle
        if in_the_middle:
            return
        self._clocks = {name: WallClock(part.by_clock, self._now_ms) for name, part in self._parts.items()}
        self._states = {name: _empty(name, part) for name, part in self._parts.items()}
        for state in self._states.values():
            for topic, store in state.stores.items():
                for raw in self._logs.get(topic, []):
                    store.apply([(raw.key, raw.value)], raw.offset + 1)

    def _next(self, name: str) -> ConsumerRecord | None:
        """Return the next record of a task: of tables first, else the one with the lowest timestamp."""
        waiting = [
            self._logs[topic][place] for topic, place in self._places[name].items() if place < len(self._log(topic))
        ]
        tables = self._parts[name].tables
        return min(waiting, key=lambda raw: (raw.topic not in tables, raw.timestamp), default=None)

    async def _transaction(self, name: str, raw: ConsumerRecord) -> None:
        context = self._context(name, raw.timestamp)
        try:
            await self._parts[name].process(raw, context)
        except Exception as error:
            error.add_note(where(raw))
            choice = "retry" if context.calls_for_time else self._options.what_becomes_of(raw, error)
            if choice == "retry":
                raise
            context = self._context(name, self._now_ms)
            if choice == "dead-letter":
                await context.send(self._options.dead_letter_topic, raw.value, key=raw.key, headers=headers(raw, error))
        if self._dies:
            self.restore()
            return
        await self._commit(context)
        self._places[name][raw.topic] += 1

    def _context(self, name: str, timestamp_ms: int) -> Context:
        return Context(self._states[name], self._parts[name].changelogs, _Writer(self, timestamp_ms))

    async def _commit(self, context: Context) -> None:
        await context.flush()
        context.apply()

    def _log(self, topic: str) -> list[ConsumerRecord]:
        return self._logs.setdefault(topic, [])

    def _append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes]],
    ) -> ConsumerRecord:
        log = self._log(topic)
        sizes = (len(key or b""), len(value or b""))
        log.append(ConsumerRecord(topic, 0, len(log), timestamp_ms, 0, key, value, None, *sizes, tuple(headers)))
        return log[-1]


class _Writer:
    """Keeps what a transaction writes until it is committed. What has no time gets that of the record."""

    def __init__(self, test: AppTest, timestamp_ms: int) -> None:
        self._test = test
        self._timestamp_ms = timestamp_ms
        self._sent: list[tuple[asyncio.Future[object], str, bytes | None, dict[str, Any]]] = []

    async def send(self, topic: str, value: bytes | None, **place: Any) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._sent.append((future, topic, value, place))
        return future

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Do nothing: there is no cluster."""

    async def write_out(self) -> None:
        for future, topic, value, place in self._sent:
            at_ms = place.get("timestamp_ms")
            raw = self._test._append(  # noqa: SLF001 - it is a part of the test
                topic, place.get("key"), value, self._timestamp_ms if at_ms is None else at_ms, place.get("headers", ())
            )
            future.set_result(raw)


def _empty(name: str, part: Subtopology) -> TaskState:
    return TaskState(task_id(name, 0), {topic: MemoryStore() for topic in part.changelog_topics}, Path("in-memory"))
