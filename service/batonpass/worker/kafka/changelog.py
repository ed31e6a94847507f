"""Reading a task's changelogs into its stores: to restore, to tail, and to find where they end.

A reader reads on from where its store is, whatever happened between an earlier read and the store: so every read begins
by placing the consumer there. What comes without records (markers, aborted writes) moves a store only from that place.
"""

import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from batonpass.worker.kafka.clients import Terms
from batonpass.worker.kafka.connection import disconnect, to_its_end
from batonpass.worker.kafka.metadata import first_look, topic_ids
from batonpass.worker.kafka.options import ActiveOptions
from batonpass.worker.kafka.reading import Reading, place_of
from batonpass.worker.kafka.stores import TaskState, TaskStore
from batonpass.worker.kafka.topics import MissingPartition, deletions_kept_ms, log_ends, look_up

log = logging.getLogger("batonpass.worker.kafka")

RESTORE_LOOK_MS = 10
"""How often an active that restores checks whether it has everything: most often only a marker is left."""

AT_ONCE = 5_000
"""How many records are read and applied before other work on the loop, such as heartbeats, gets its turn. Compressed,
hundreds of thousands come in an answer of a megabyte."""

AGE_SHARE = 5 / 6
"""The share of the time for which a changelog keeps deletions that a copy may sleep; in the rest it catches up."""

CLOCK_STEP_MS = 60_000
"""How far a clock may have been set back since a state was level. A state from farther ahead has an unknown age."""

TOPICS_LOOK_S = 8.0
"""How often a task's topics are looked at, whether they are still the ones that they were."""


def is_too_old(level_ms: int, deletions_kept_ms: float, now_ms: int) -> bool:
    """Whether a copy that was last level with its changelog at ``level_ms`` may have missed deletions for good."""
    if deletions_kept_ms == math.inf:
        return False
    return not -CLOCK_STEP_MS <= now_ms - level_ms <= deletions_kept_ms * AGE_SHARE


class RecordRefused(Exception):
    """A record of a changelog cannot be applied to a store."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a cluster says of some changelog partitions; the rest is by topic."""

    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    kept_ms: Mapping[str, float]
    ids: Mapping[str, str]

    @classmethod
    async def ask(
        cls, consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition], options: ActiveOptions
    ) -> "Facts":
        """Ask the cluster, over the connections of a consumer.

        Raises:
            ChangelogRefused: when a topic may forget what a store needs.
            MissingPartition: when one does not exist.
            KafkaError: when the cluster cannot be asked.
        """
        client = consumer._client  # noqa: SLF001 - an admin client would be one more connection for each copy
        topics = {partition.topic for partition in partitions}
        known = await look_up(client, topics)
        for topic, number in partitions:
            if number not in known[topic]:
                raise MissingPartition(
                    f"changelog {topic} has {len(known[topic])} partitions, and no partition {number}: it needs as many "
                    "as the source has"
                )
        kept_ms = await deletions_kept_ms(client, topics, options)
        begins = await consumer.beginning_offsets(list(partitions))
        return cls(begins, await log_ends(client, partitions), kept_ms, await topic_ids(client, partitions))


def judge(state: TaskState, facts: Facts, now_ms: int) -> list[str]:
    """Wipe each store that its changelog cannot bring up to date, and place each that is empty at the beginning.

    Such a store was read from another topic of the name, its position is not in the log, or the changelog may have
    forgotten deletions that the store has missed. Return the topics of the stores that were kept.

    Raises:
        StoreFailed: when a store cannot be wiped.
    """
    kept = []
    for topic, store in state.stores.items():
        partition = TopicPartition(topic, state.partition)
        if store.position is not None and (why := _why_of_no_use(state, store, partition, facts, now_ms)):
            log.warning("state of %s %s: it is restored from the beginning", state.task_id, why)
            store.wipe()
        if store.position is None:
            store.apply([], facts.begins[partition])
            store.note_level(now_ms)
        else:
            kept.append(topic)
        if topic in facts.ids:
            state.note_topic(topic, facts.ids[topic])
    return kept


def _why_of_no_use(state: TaskState, store: TaskStore, partition: TopicPartition, facts: Facts, now_ms: int) -> str:
    topic, position = partition.topic, store.position or 0
    begin, end, kept_ms = facts.begins[partition], facts.ends[partition], facts.kept_ms[topic]
    was, now = state.topic_id(topic), facts.ids.get(topic)
    if was and now and was != now:
        return f"was read from another topic {topic} (id {was}), which was deleted and made anew (id {now})"
    if not begin <= position <= end:
        return f"was at {position} of {partition}, which is now {begin} to {end}"
    if is_too_old(store.level_ms, kept_ms, now_ms):
        age_s = (now_ms - store.level_ms) // 1_000
        if age_s < 0:
            return f"was last level with {partition} by a clock that was {-age_s} s ahead, so that its age is unknown"
        return f"was last level with {partition} {age_s} s ago, which keeps deletions for {kept_ms / 1_000} s"
    return ""


class Changelog:
    """The changelog partitions of one task, read under read_committed: aborted writes never reach a store."""

    def __init__(self, terms: Terms, state: TaskState) -> None:
        self._terms = terms
        self._connection = terms.connection
        self._state = state
        self._options = terms.options
        self._facts: Facts | None = None
        self._was_level = False
        self.partitions = [TopicPartition(topic, state.partition) for topic in state.stores]
        self._consumer: AIOKafkaConsumer | None = None
        self._readings: WeakKeyDictionary[AIOKafkaConsumer, Reading] = WeakKeyDictionary()
        self._looked_at = 0.0
        self._paused = False
        self.records_read = 0
        """Records applied since this object was made; a promotion in place reads none of them a second time."""

    async def open(self) -> AIOKafkaConsumer:
        """Connect, unless it is, and go on from the stores' positions; return what reads.

        Raises:
            ChangelogRefused: when a changelog may forget what a store needs.
            StoreFailed: when a store has to begin anew and cannot be wiped.
            KafkaError: when the cluster cannot be reached.
        """
        if self._consumer is not None:
            return self._consumer
        consumer = self._connection.consumer(
            # A client id of its own, so that a broker's quota can slow down restoring and nothing else.
            {"client_id": f"{self._connection.client_id}-{self._state.task_id}-changelog"}
            | {"fetch_max_wait_ms": 200, "retry_backoff_ms": 200}
            | dict(self._options.changelog_options)
        )
        try:
            await to_its_end(consumer.start())
            await self._judge(consumer)
            # No await in between, in which the client would look for a position by itself.
            consumer.assign(self.partitions)
            self._align(consumer)
        except BaseException:
            await disconnect(consumer)
            raise
        self._consumer, self._looked_at = consumer, first_look(TOPICS_LOOK_S)
        return consumer

    async def _judge(self, consumer: AIOKafkaConsumer) -> None:
        """Ask the cluster about the changelogs, and begin each store anew that they cannot bring up to date."""
        self._facts = await Facts.ask(consumer, self.partitions, self._options)
        judge(self._state, self._facts, self._options.clock())
        self._was_level = False

    async def ends(self, consumer: AIOKafkaConsumer) -> dict[str, int]:
        """Return where each changelog's log ends now, transactions that are still open included.

        Another consumer asks for it, because a broker answers the requests of one connection in order: behind this
        consumer's own waiting read the question would wait too.

        Raises:
            KafkaError: when that cannot be read.
        """
        found = await log_ends(consumer._client, self.partitions)  # noqa: SLF001 - nothing public asks for it
        return {partition.topic: offset for partition, offset in found.items()}

    async def step(self, timeout_ms: int = 200) -> int:
        """Read on for at most ``timeout_ms``; return how many records came. With 0 the positions may still have moved.

        Raises:
            RecordRefused: when a record cannot be applied to a store.
            StoreFailed: when a store did not take what was read.
            KafkaError: when the cluster cannot be read.
        """
        consumer = await self.open()
        if time.monotonic() - self._looked_at > TOPICS_LOOK_S:
            self._looked_at = time.monotonic()
            ids = await topic_ids(consumer._client, self.partitions, self._terms.lately)  # noqa: SLF001 - as above
            if any(self._state.topic_id(topic) != topic_id for topic, topic_id in ids.items()):
                await self._judge(consumer)
        return await self._read(consumer, timeout_ms)

    async def _read(self, consumer: AIOKafkaConsumer, timeout_ms: int) -> int:
        """Read on from where the stores are, and apply what came."""
        # What has come already is handed out without a turn for anybody else.
        await self._terms.turns.take()
        self._align(consumer)
        try:
            batches = await consumer.getmany(timeout_ms=timeout_ms, max_records=AT_ONCE)
        except OffsetOutOfRangeError as error:
            log.info("%s is read at a place that it does not have: %s", self._state.task_id, error)
            await self._judge(consumer)
            return 0
        if batches:
            # What was waited for may have come for many copies at once.
            await self._terms.turns.take()
        if self._was_level and self._slept_too_long():
            # The copy was cut off, or the whole process stood still: what it read just now may lack deletions.
            await self._judge(consumer)
            return 0
        for partition in self.partitions:
            # The store stood where this read began, so where the read has come is right also without records.
            self._apply(partition, batches.get(partition, ()), place_of(consumer, partition))
        self._reading(consumer).look(batches)
        self._note_level(consumer)
        return sum(map(len, batches.values()))

    def _apply(self, partition: TopicPartition, records: Sequence[ConsumerRecord], position: int | None) -> None:
        store = self._store(partition)
        for record in records:
            if record.key is None:
                raise RecordRefused(
                    f"the record at offset {record.offset} of changelog {partition.topic}-{partition.partition} has no "
                    "key, so it changes nothing that a store could hold: somebody else writes there. Remove it with "
                    "kafka-delete-records.sh, which removes all records before it too (a broker refuses that "
                    "unless the topic has cleanup.policy=compact,delete meanwhile, with retention.ms=-1, so that nothing "
                    "else is deleted), or make the changelog anew"
                )
        if position is not None and (records or position != store.position):
            store.apply([(record.key, record.value) for record in records], position)
            self.records_read += len(records)

    async def restore_some(
        self, ends: Mapping[str, int], seconds: float = 0.2, *, over: AIOKafkaConsumer | None = None
    ) -> None:
        """Read until every store has everything before ``ends``, or the time is over.

        ``over`` is another consumer, whose connection no quota for restoring slows down. It must not look for positions
        by itself; it is assigned to the changelogs for that, and stays so.

        Raises:
            Exception: as `step`.
        """
        if over is not None and over.assignment() != set(self.partitions):
            over.assign(self.partitions)
        stop_at = time.monotonic() + seconds
        while self.missing(ends) and time.monotonic() < stop_at:
            # A read that brings only a transaction's marker moves the position, but does not return for it.
            await (self.step(RESTORE_LOOK_MS) if over is None else self._read(over, RESTORE_LOOK_MS))

    async def forget(self) -> None:
        """Wipe the stores and disconnect; the next `open` reads from the beginning of the changelogs.

        Raises:
            StoreFailed: when a store cannot be wiped.
        """
        for store in self._state.stores.values():
            store.wipe()
        await self.close()

    def missing(self, ends: Mapping[str, int]) -> int:
        """Return how many offsets are left to read up to ``ends``, markers of transactions included."""
        return sum(max(0, end - (self._state.stores[topic].position or 0)) for topic, end in ends.items())

    def pause(self) -> None:
        """Stop reading for now: from here on this process itself writes what would come."""
        if self._consumer is not None and not self._paused:
            self._consumer.pause(*self.partitions)
            self._paused = True

    async def resume(self) -> None:
        """Read on from the stores' present positions; a store that may have missed deletions is begun anew.

        Raises:
            Exception: as `open`.
        """
        consumer = await self.open()
        if any(map(self._is_too_old, self.partitions)):
            await self._judge(consumer)
        if self._paused:
            self._align(consumer)
            consumer.resume(*self.partitions)
            self._paused = False

    def known_ends(self) -> dict[str, int]:
        """Return where the changelogs ended at the last read, without asking again."""
        if self._consumer is None:
            return {}
        reading = self._reading(self._consumer)
        ends = {part.topic: reading.end(part, self._store(part).position or 0) for part in self.partitions}
        return {topic: end for topic, end in ends.items() if end is not None}

    def held_back(self) -> str:
        """Return in words which transactions hold records back from this copy; empty if none does."""
        return "; ".join(filter(None, (reading.held_back() for reading in self._readings.values())))

    async def close(self) -> None:
        """Disconnect; the stores stay as they are."""
        consumer, self._consumer, self._paused = self._consumer, None, False
        if consumer is not None:
            await disconnect(consumer)

    def _reading(self, consumer: AIOKafkaConsumer) -> Reading:
        if consumer not in self._readings:
            self._readings[consumer] = Reading(consumer, self.partitions)
        return self._readings[consumer]

    def _is_too_old(self, partition: TopicPartition) -> bool:
        assert self._facts is not None, "open() comes first"  # noqa: S101 - a mistake of this package alone
        return is_too_old(self._store(partition).level_ms, self._facts.kept_ms[partition.topic], self._options.clock())

    def _slept_too_long(self) -> bool:
        """Whether a store that was level a moment ago is too old; a clock that was set back makes none so."""
        now_ms = self._options.clock()
        return any(self._is_too_old(one) for one in self.partitions if self._store(one).level_ms <= now_ms)

    def _note_level(self, consumer: AIOKafkaConsumer) -> None:
        """Note, for each store that has reached the end, when the broker last reported that end."""
        wall_ms, now_ms = time.time_ns() // 1_000_000, self._options.clock()
        was_level = []
        for partition in self.partitions:
            store, end = self._store(partition), consumer.last_stable_offset(partition)
            is_level = end is not None and 0 <= end <= (store.position or 0)
            was_level.append(is_level)
            if is_level:
                store.note_level(now_ms - (wall_ms - consumer.last_poll_timestamp(partition)))
        self._was_level |= all(was_level)

    def _align(self, consumer: AIOKafkaConsumer) -> None:
        for partition in self.partitions:
            position = self._store(partition).position
            if place_of(consumer, partition) != position:
                consumer.seek(partition, position)

    def _store(self, partition: TopicPartition) -> TaskStore:
        return self._state.stores[partition.topic]
