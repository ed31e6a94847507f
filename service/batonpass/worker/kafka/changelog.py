"""Reading a task's changelogs into its stores: to restore, to tail, and to find where they end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from batonpass.worker.kafka.connection import KafkaConnection, disconnect, to_its_end
from batonpass.worker.kafka.stores import TaskState
from batonpass.worker.kafka.topics import MissingPartition, deletions_kept_ms, look_up

log = logging.getLogger("batonpass.worker.kafka")

RESTORE_LOOK_MS = 10
"""How often an active that restores checks whether it has everything: most often only a marker is left."""

MARKERS_TIMEOUT_S = 5.0
"""How long the markers of a committed transaction may take to appear; usually they take milliseconds."""

AGE_SHARE = 5 / 6
"""The share of the time for which a changelog keeps deletions that a copy may sleep; in the rest it catches up."""


def is_too_old(level_ms: int, deletions_kept_ms: float, now_ms: int) -> bool:
    """Whether a copy that was last level with its changelog at ``level_ms`` may have missed deletions for good."""
    return now_ms - level_ms > deletions_kept_ms * AGE_SHARE


class CommitLost(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """The cluster acknowledged a commit and lost it, or the committed offsets were set back."""


class Changelog:
    """The changelog partitions of one task, read under read_committed: aborted writes never reach a store."""

    def __init__(
        self,
        connection: KafkaConnection,
        state: TaskState,
        consumer_options: Mapping[str, Any],
        *,
        clock: Callable[[], int],
        delete_retention_ms: int,
    ) -> None:
        self._connection = connection
        self._state = state
        self._options = consumer_options
        self._clock = clock
        self._delete_retention_ms = delete_retention_ms
        self._deletions_kept_ms: dict[str, float] = {}
        self._was_level = False
        self._topics = {TopicPartition(topic, state.partition): topic for topic in state.stores}
        self._consumer: AIOKafkaConsumer | None = None
        self._paused = False
        self.records_read = 0
        """Records applied since this object was made; a promotion in place reads none of them a second time."""

    async def open(self) -> None:
        """Connect, and go on from the stores' positions.

        Raises:
            KafkaError: when the cluster cannot be reached.
        """
        if self._consumer is not None:
            return
        consumer = AIOKafkaConsumer(
            **(
                self._connection.client_options()
                # A client id of its own, so that a broker's quota can slow down restoring and nothing else.
                | {"client_id": f"{self._connection.client_id}-{self._state.task_id}-changelog"}
                | {"fetch_max_wait_ms": 200, "retry_backoff_ms": 200}
                | dict(self._options)
            ),
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            # This class decides what to do about a position that no longer exists; the client must not jump away.
            auto_offset_reset="none",
        )
        try:
            await to_its_end(consumer.start())
            await self._check(consumer)
            self._deletions_kept_ms = await deletions_kept_ms(
                consumer._client,  # noqa: SLF001 - an admin client would be one more connection for each copy
                self._topics.values(),
                unless_told=self._delete_retention_ms,
            )
            self._consumer = consumer
            positions = await self._places()
            # No await in between, in which the client would look for a position by itself.
            consumer.assign(list(self._topics))
            self._seek(positions)
        except BaseException:
            self._consumer = None
            await disconnect(consumer)
            raise

    async def _check(self, consumer: AIOKafkaConsumer) -> None:
        known = await look_up(consumer._client, self._topics.values())  # noqa: SLF001 - nothing public asks just once
        for partition, topic in self._topics.items():
            if partition.partition not in known[topic]:
                raise MissingPartition(
                    f"changelog {topic} has {len(known[topic])} partitions, and none for {self._state.task_id}: "
                    f"it needs as many as the source has"
                )

    async def ends(self, consumer: AIOKafkaConsumer) -> dict[str, int]:
        """Return where each changelog ends for a reader of committed records (its last stable offset).

        Another consumer asks for it, because a broker answers the requests of one connection in order: behind this
        consumer's own waiting read the question would wait too.

        Raises:
            KafkaError: when that cannot be read.
        """
        found = await consumer.end_offsets(list(self._topics))
        return {self._topics[partition]: offset for partition, offset in found.items()}

    async def step(self, timeout_ms: int = 200) -> int:
        """Read on for at most ``timeout_ms``; return how many records came. With 0 the positions may still have moved.

        Raises:
            KafkaError: when the cluster cannot be read.
        """
        consumer = self._opened
        try:
            batches = await consumer.getmany(timeout_ms=timeout_ms)
        except OffsetOutOfRangeError as error:
            await self._begin_anew(error)
            return 0
        if self._was_level and self._is_too_old():
            # The copy was cut off, or the whole process stood still: what it read just now may lack deletions.
            self._seek(await self._places())
            return 0
        came = await self._take(consumer, batches)
        self._note_level(consumer)
        return came

    async def _take(self, consumer: AIOKafkaConsumer, batches: Mapping[TopicPartition, Any]) -> int:
        for partition, records in batches.items():
            position = await consumer.position(partition)
            self._store(partition).apply([(record.key, record.value) for record in records], position)
            self.records_read += len(records)
        await self._note_silent_moves(consumer)
        return sum(map(len, batches.values()))

    async def restore_some(self, ends: Mapping[str, int], seconds: float = 0.2) -> None:
        """Read until every store has everything before ``ends``, or the time is over.

        Raises:
            KafkaError: when the cluster cannot be read.
        """
        self._align()
        stop_at = time.monotonic() + seconds
        while self.missing(ends) and time.monotonic() < stop_at:
            # A read that brings only a transaction's marker moves the position, but does not return for it.
            await self.step(timeout_ms=RESTORE_LOOK_MS)

    async def restore_by(self, other: AIOKafkaConsumer, ends: Mapping[str, int], seconds: float = 0.2) -> None:
        """Do what ``restore_some`` does over another consumer's connection, which no quota for restoring slows down.

        The other consumer is assigned to the changelogs for that, and stays so.

        Raises:
            KafkaError: when the cluster cannot be read.
        """
        began_at = {partition: self._store(partition).position or 0 for partition in self._topics}
        other.assign(list(self._topics))
        for partition, position in began_at.items():
            other.seek(partition, position)
        stop_at = time.monotonic() + seconds
        while self.missing(ends) and time.monotonic() < stop_at:
            await self._take(other, await other.getmany(timeout_ms=RESTORE_LOOK_MS))
        starts = await other.beginning_offsets(list(self._topics))
        lost = {partition: start for partition, start in starts.items() if start > began_at[partition]}
        if lost:
            # The other consumer may have skipped what no longer exists, without an error.
            await self._begin_anew(OffsetOutOfRangeError(lost))

    async def forget(self) -> None:
        """Wipe the stores and disconnect; the next `open` reads from the beginning of the changelogs."""
        for store in self._state.stores.values():
            store.wipe()
        await self.close()

    def missing(self, ends: Mapping[str, int]) -> int:
        """Return how many offsets are left to read up to ``ends``, markers of transactions included."""
        return sum(max(0, end - (self._state.stores[topic].position or 0)) for topic, end in ends.items())

    def pause(self) -> None:
        """Stop reading for now: from here on this process itself writes what would come."""
        if self._consumer is not None and not self._paused:
            self._consumer.pause(*self._topics)
            self._paused = True

    async def resume(self) -> None:
        """Read on from the stores' present positions; a store that may have missed deletions is begun anew.

        Raises:
            KafkaError: when the cluster cannot be reached.
        """
        await self.open()
        if self._is_too_old():
            self._seek(await self._places())
        if self._paused:
            # Not compared with the changelog's end, which trails a transaction that was committed just now.
            self._seek({partition: self._store(partition).position for partition in self._topics})
            self._opened.resume(*self._topics)
            self._paused = False

    def known_ends(self) -> dict[str, int]:
        """Return where the changelogs ended at the last read, without asking again."""
        if self._consumer is None:
            return {}
        ends = {topic: self._consumer.last_stable_offset(part) for part, topic in self._topics.items()}
        # A client that has not read yet returns -1.
        return {topic: end for topic, end in ends.items() if end is not None and end >= 0}

    async def close(self) -> None:
        """Disconnect; the stores stay as they are."""
        consumer, self._consumer, self._paused = self._consumer, None, False
        if consumer is not None:
            await disconnect(consumer)

    @property
    def _opened(self) -> AIOKafkaConsumer:
        assert self._consumer is not None, "open() comes first"  # noqa: S101 - a mistake of this package alone
        return self._consumer

    async def _places(self) -> dict[TopicPartition, int]:
        """Return where to read on from, after wiping each store that its changelog cannot bring up to date.

        Such a store's position is no longer in the changelog, or the changelog may have forgotten deletions that the
        store has missed.
        """
        consumer = self._opened
        starts = await consumer.beginning_offsets(list(self._topics))
        ends = await self._settled_ends()
        for partition in self._topics:
            store = self._store(partition)
            if store.position is not None and not starts[partition] <= store.position <= ends[partition]:
                log.warning(
                    "state of %s was at %s of %s, which is now %s to %s: it is restored from the beginning",
                    self._state.task_id, store.position, partition, starts[partition], ends[partition],
                )  # fmt: skip
                store.wipe()
            elif store.position is not None and self._store_is_too_old(partition):
                log.warning(
                    "state of %s was last level with %s %s s ago, which keeps deletions for %s s: it is restored from "
                    "the beginning", self._state.task_id, partition, (self._clock() - store.level_ms) // 1_000,
                    self._deletions_kept_ms[partition.topic] / 1_000,
                )  # fmt: skip
                store.wipe()
            if store.position is None:
                store.apply([], starts[partition])
                store.note_level(self._clock())
                self._was_level = False
        return {partition: self._store(partition).position for partition in self._topics}

    def _is_too_old(self) -> bool:
        return any(map(self._store_is_too_old, self._topics))

    def _store_is_too_old(self, partition: TopicPartition) -> bool:
        return is_too_old(self._store(partition).level_ms, self._deletions_kept_ms[partition.topic], self._clock())

    def _note_level(self, consumer: AIOKafkaConsumer) -> None:
        """Note, for each store that has reached the end, when the broker last reported that end."""
        wall_ms, now_ms = time.time_ns() // 1_000_000, self._clock()
        was_level = []
        for partition in self._topics:
            store, end = self._store(partition), consumer.last_stable_offset(partition)
            is_level = end is not None and 0 <= end <= store.position
            was_level.append(is_level)
            if is_level:
                store.note_level(now_ms - (wall_ms - consumer.last_poll_timestamp(partition)))
        self._was_level |= all(was_level)

    async def _settled_ends(self) -> dict[TopicPartition, int]:
        """Return the ends once the stores' positions are not beyond them, or after a time-out.

        The end for readers of committed records moves only after the commit itself, when the markers are written. A
        process that was killed right after a commit, and starts again at once, may be ahead of it.
        """
        wait_until = time.monotonic() + MARKERS_TIMEOUT_S
        while True:
            ends: dict[TopicPartition, int] = await self._opened.end_offsets(list(self._topics))
            ahead = any((self._store(partition).position or 0) > end for partition, end in ends.items())
            if not ahead or time.monotonic() > wait_until:
                return ends
            await asyncio.sleep(0.1)

    def _seek(self, positions: Mapping[TopicPartition, int]) -> None:
        for partition, position in positions.items():
            self._opened.seek(partition, position)

    async def _begin_anew(self, error: OffsetOutOfRangeError) -> None:
        """Restore from scratch each store that is outside its changelog, which was truncated or created again."""
        partitions = [partition for partition in error.args[0] if partition in self._topics]
        for partition in partitions or list(self._topics):
            log.warning("%s of %s is no place in it any more: restored from the beginning", error, partition)
            self._store(partition).wipe()
        self._seek(await self._places())

    async def _note_silent_moves(self, consumer: AIOKafkaConsumer) -> None:
        """Move the stores past what has no records for them: markers, and aborted writes."""
        for partition in self._topics:
            position = await consumer.position(partition)
            store = self._store(partition)
            if position != store.position:
                store.apply([], position)

    def _align(self) -> None:
        """Go on from the stores' positions, so that a read that was cancelled half way loses nothing."""
        for partition in self._topics:
            state = self._opened._subscription.subscription.assignment.state_value(partition)  # noqa: SLF001
            position = self._store(partition).position
            if not state.has_valid_position or state.position != position:
                self._opened.seek(partition, position)

    def _store(self, partition: TopicPartition) -> Any:
        return self._state.stores[self._topics[partition]]
