"""What a worker's own code sees while it processes: stores within a transaction, and a way out for its outputs."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition

from batonpass.worker.kafka.clients import Producer
from batonpass.worker.kafka.state import TaskState
from batonpass.worker.kafka.stores import Store


class StoreInTransaction:
    """A store with changes that are not committed yet: seen here at once, and by others when they are."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key as this transaction has it, or None."""
        if key in self.changes:
            return self.changes[key]
        return self._store.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self.changes[key] = value

    def delete(self, key: bytes) -> None:
        """Take a key away."""
        self.changes[key] = None

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with ``prefix`` with their values, in order, as this transaction has them."""
        changed = dict(self.changes)
        kept = ((key, value) for key, value in self._store.scan(prefix) if key not in changed)
        new = sorted((key, value) for key, value in changed.items() if value is not None and key.startswith(prefix))
        return heapq.merge(kept, new)


class Context:
    """What the records of one transaction are processed with."""

    def __init__(self, state: TaskState, names: Mapping[str, str], producer: Producer) -> None:
        self._state = state
        self._producer = producer
        self._stores = {name: StoreInTransaction(state.stores[topic]) for name, topic in names.items()}
        self._topics = dict(names)
        self._sent: list[asyncio.Future[object]] = []
        self._ends: dict[str, int] = {}

    @property
    def task_id(self) -> str:
        """The task that is processed."""
        return self._state.task_id

    @property
    def partition(self) -> int:
        """The partition that the task reads of its sources."""
        return self._state.partition

    def store(self, name: str) -> StoreInTransaction:
        """Return one of the task's stores.

        Raises:
            KeyError: when the subtopology has none of this name.
        """
        return self._stores[name]

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Write an output; readers of committed records see it with everything else of the transaction, or never.

        Raises:
            KafkaError: when it cannot be taken on.
        """
        await self._send(topic, value, key=key, partition=partition, headers=list(headers))

    def announce(self) -> None:
        """Let the cluster know which changelogs will be written to, before that is waited for."""
        changed = [self._topics[name] for name, store in self._stores.items() if store.changes]
        self._producer.announce(TopicPartition(topic, self.partition) for topic in changed)

    async def flush(self) -> None:
        """Write the stores' changes to their changelogs and wait until everything is written.

        Raises:
            KafkaError: when any of it was not written.
        """
        last: dict[str, asyncio.Future[object]] = {}
        for name, store in self._stores.items():
            topic = self._topics[name]
            for key, value in store.changes.items():
                last[topic] = await self._send(topic, value, key=key, partition=self.partition)
        self.announce()
        await self._producer.write_out()
        written = await asyncio.gather(*self._sent, return_exceptions=True)
        for outcome in written:
            if isinstance(outcome, BaseException):
                raise outcome
        # All of them are of one partition, and were sent in order.
        self._ends = {topic: future.result().offset + 1 for topic, future in last.items()}  # type: ignore[attr-defined]

    async def _send(self, topic: str, value: bytes | None, **where: Any) -> asyncio.Future[object]:
        future: asyncio.Future[object] = await self._producer.send(topic, value, **where)
        # What fails is seen in `flush`, or does not matter any more because something else failed before.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._sent.append(future)
        return future

    def apply(self) -> None:
        """Take into the stores what has been committed, and move them to where their changelogs end now."""
        for name, store in self._stores.items():
            topic = self._topics[name]
            if topic in self._ends:
                self._state.stores[topic].apply(store.changes.items(), self._ends[topic])


Process = Callable[[ConsumerRecord, Context], Awaitable[None]]
"""The worker's own code: what one input record does. It may raise: the transaction is then aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """What a worker does with the tasks of one subtopology.

    A task reads the partition of its own number of every topic in ``sources`` that has one. ``changelogs`` names the
    changelog topic of each store; without any, the tasks are stateless. ``outputs`` names topics that ``process``
    writes to; one that is not named costs a new owner a question to the cluster before its first record.
    """

    sources: tuple[str, ...]
    process: Process
    changelogs: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    @property
    def changelog_topics(self) -> tuple[str, ...]:
        """The changelog topics, in the order of the stores."""
        return tuple(self.changelogs.values())
