"""A transaction: what a worker's own code sees while it processes, and the producer that writes everything."""

import asyncio
import inspect
import math
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, overload

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v8, ProduceResponse_v8

from batonpass.loop_turns import LoopTurns
from batonpass.worker.kafka.connection import forget_lingering, in_time, to_its_end
from batonpass.worker.kafka.metadata import adopt
from batonpass.worker.kafka.stores import Cause, StoreInTransaction, TaskState, raise_if_over
from batonpass.worker.kafka.topics import MissingPartition, look_up
from batonpass.worker.kafka.typed import Headers, KeyValueStore, Table, Topic, pairs_of
from batonpass.worker.raised import add_note
from batonpass.worker.tasks import ends_before

K = TypeVar("K")
V = TypeVar("V")

TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

FENCE_AGAIN_S = 0.01
"""How soon a producer asks again while its predecessor's transaction is being ended: that takes milliseconds."""


class Producer(AIOKafkaProducer):  # type: ignore[misc]  # aiokafka has no types
    """A transactional producer that connects first and fences later, and announces early what a transaction will write.

    It notes when a request of a transaction got no answer, because then it must not begin another transaction.

    ``group`` is the consumer group whose offsets its transactions commit.
    """

    _max_request_size: float

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(**options)
        adopt(self.client)
        self._unanswered: str | None = None
        # aiokafka repeats a request that got no answer, and only its log says so. Here every request is seen.
        self._ask = self.client.send
        self.client.send = self._ask_and_note
        # Nor does it show which records of a batch a broker says are wrong (KIP-467).
        self._writing: dict[TopicPartition, Any] = {}
        self._write = self._sender._send_produce_req  # noqa: SLF001
        self._sender._send_produce_req = self._note_and_write  # noqa: SLF001
        self._group = group
        self._announced = False
        self._joined = asyncio.Event()
        # aiokafka's task that makes the requests of transactions, one after another, calls both.
        self._txn_manager.consumer_group_to_add = self._group_to_add
        self._txn_manager.consumer_group_added = self._group_added

    async def connect(self, topics: tuple[str, ...]) -> None:
        """Find and connect to every broker that a transaction needs; the transactional id is not used yet."""
        await to_its_end(self.client.bootstrap())
        # No public method connects without fencing at once.
        find = self._sender._find_coordinator  # noqa: SLF001
        await in_time(
            find(CoordinationType.TRANSACTION, self._txn_manager.transactional_id),
            f"transactions of {self._txn_manager.transactional_id} have no coordinator: can the cluster make its topic "
            "__transaction_state, which wants transaction.state.log.replication.factor brokers?",
        )
        await in_time(
            find(CoordinationType.GROUP, self._group),
            f"group {self._group} has no coordinator: can the cluster make its topic __consumer_offsets, which wants "
            "offsets.topic.replication.factor brokers?",
        )
        await look_up(self.client, topics)

    async def fence(self) -> None:
        """Become the one producer of the transactional id: the one before is refused, and its transaction ended."""
        sender = self._sender
        patience_s, sender._retry_backoff = sender._retry_backoff, FENCE_AGAIN_S  # noqa: SLF001
        try:
            await sender.start()
        finally:
            sender._retry_backoff = patience_s  # noqa: SLF001

    async def end_own(self, partitions: Iterable[TopicPartition]) -> None:
        """Abort whatever this transactional id has left open in these partitions, by a transaction without records.

        Fencing ends the transaction that the coordinator knows of. A broker that restarts may have taken one for ended
        without writing its markers, so that it stays open in the log (a hanging transaction, KIP-664).

        Raises:
            ProducerFenced: when another producer has the id now.
            KafkaError: when the cluster failed.
        """
        await self.begin_transaction()
        self.announce(partitions)
        await self.abort_transaction()

    async def begin_transaction(self) -> None:
        """Begin; the cluster learns of it with the first announcement or record."""
        await super().begin_transaction()
        self._announced = False
        self._joined.clear()

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Add these partitions, and the offsets, to this transaction now, so that its end need not wait for that."""
        self._announced = True
        for partition in partitions:
            self._txn_manager.maybe_add_partition_to_txn(partition)
        self._txn_manager.notify_task_waiter()

    def _group_to_add(self) -> str | None:
        manager = self._txn_manager
        if manager._txn_consumer_group is not None:  # noqa: SLF001
            return None
        is_due = (self._announced and manager.is_in_transaction()) or manager._pending_txn_offsets  # noqa: SLF001
        return self._group if is_due else None

    def _group_added(self, group: str) -> None:
        type(self._txn_manager).consumer_group_added(self._txn_manager, group)
        self._joined.set()

    async def _ask_and_note(
        self, node_id: int, request: object, *, group: ConnectionGroup = ConnectionGroup.DEFAULT
    ) -> Any:
        if isinstance(request, ProduceRequest):
            # From this version on, which aiokafka (0.14) knows and does not ask for, brokers name records.
            request._CLASSES = (*request._CLASSES, ProduceRequest_v8)  # noqa: SLF001
        try:
            answer = await self._ask(node_id, request, group=group)
        except KafkaError as error:
            # Only the requests of a transaction go to coordinators, all of them except its records.
            if group is ConnectionGroup.COORDINATION:
                self._unanswered = f"{type(request).__name__}: {error!r}"
            raise
        if isinstance(answer, ProduceResponse_v8):
            self._note_refused(answer)
        return answer

    async def _note_and_write(self, node_id: int, batches: Mapping[TopicPartition, Any]) -> None:
        self._writing |= batches
        await self._write(node_id, batches)
        for partition in batches:
            del self._writing[partition]

    def _note_refused(self, answer: Any) -> None:
        """Give each record that a broker names its own error; aiokafka then gives the batch's to the others."""
        for topic, partitions in answer.topics:
            for partition, code, *_, named, why in partitions:
                if code in OF_CONTENT:
                    written = self._writing[TopicPartition(topic, partition)]._msg_futures  # noqa: SLF001
                    for index, said in named or ():
                        written[index][0].set_exception(OF_CONTENT[code](f"topic {topic}: {said or why}"))

    def _partition(self, topic: str, partition: int | None, *record: Any) -> int:
        known = self.client.cluster.partitions_for_topic(topic)
        if partition is not None and partition >= 0 and partition not in known:
            # No record is to blame: a topic may have been made anew with fewer.
            raise MissingPartition(f"topic {topic} has {len(known)} partitions, and no partition {partition}")
        return int(super()._partition(topic, partition, *record))

    @contextmanager
    def room_for_any(self) -> Iterator[None]:
        """Have only its topic limit the size of a record that is sent in the block."""
        limit, self._max_request_size = self._max_request_size, math.inf
        try:
            yield
        finally:
            self._max_request_size = limit

    def raise_if_unanswered(self) -> None:
        """Raise when a request of a transaction got no answer: it may still arrive, and end or change the next one.

        A broker tells requests of an earlier transaction from those of the present one only by the producer's epoch,
        which stays the same until another producer fences this one (KIP-890). Records are numbered, and not at risk.

        Raises:
            KafkaError: when this producer must not begin another transaction.
        """
        if self._unanswered is not None:
            raise KafkaError(f"a new producer is to go on, for a request may still be on its way: {self._unanswered}")

    async def stop(self) -> None:
        """Disconnect. What lingers is not sent: it belongs to a transaction that nobody will commit.

        If an error has ended the producer, the call that met the error raised it.
        """
        manager = self._txn_manager
        futures = [future for _, _, future in manager._pending_txn_offsets]  # noqa: SLF001
        try:
            await forget_lingering(self)
        finally:
            await super().stop()
        if manager._transaction_waiter is not None:  # noqa: SLF001
            futures.append(manager._transaction_waiter)  # noqa: SLF001
        for batches in self._message_accumulator._batches.values():  # noqa: SLF001
            futures += [batch._drain_waiter for batch in batches]  # noqa: SLF001
        for future in futures:
            if future.done() and not future.cancelled():
                # asyncio reports an error that nobody has looked at.
                future.exception()

    def raise_if_dead(self, error: Exception) -> None:
        """Raise the error that ended this producer, if one has: from then on its calls raise other errors.

        Raises:
            KafkaError: when it can do nothing any more; ``ProducerFenced`` if that is the reason.
        """
        sender = self._sender.sender_task
        if sender is not None and sender.done() and not sender.cancelled():
            cause = sender.exception()
            raise (cause if isinstance(cause, KafkaError) else KafkaError(repr(cause))) from error

    async def write_out(self) -> None:
        """Send lingering records, and wait until they are written or have failed. Something must have been announced.

        While a broker is still adding something to a transaction it refuses the transaction's records (KIP-890), and
        the client would try again much later. So they are sent once everything was added.
        """
        await ends_before(self._sender.sender_task, self._joined)
        await self._message_accumulator.flush_for_commit()


class RecordTooLarge(Exception):
    """A record is larger than its topic takes, or than this producer sends. To try again does not make it smaller."""


class OutputRefused(Exception):
    """A topic does not take a record for its time or its key, for example. To try again does not change that."""


class RecordInvalid(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """A broker names a record as what is wrong with a batch."""


class TimeInvalid(RecordInvalid, InvalidTimestampError):  # type: ignore[misc]
    """It is the record's time."""


OF_CONTENT = {32: TimeInvalid, 87: RecordInvalid}
"""What is said of a batch for what is in it, by its code. Nothing else that brokers answer is about that but sizes."""


class OutputsRefused(KafkaError):  # type: ignore[misc]
    """Outputs are refused for what is in them. ``blamed`` has the input records that they were sent for."""

    def __init__(self, blamed: Sequence[tuple[ConsumerRecord, Exception]]) -> None:
        super().__init__(str(blamed[0][1]))
        self.blamed = blamed


class BatchRefused(KafkaError):  # type: ignore[misc]
    """A topic did not take a batch for its size. ``largest`` is the size of its largest record, in bytes.

    ``of`` is the input record that it was sent for; None if that is not known.
    """

    def __init__(self, topic: str, largest: int, of: ConsumerRecord | None) -> None:
        super().__init__(f"topic {topic} did not take a batch for its size; the largest record has {largest} bytes")
        self.topic = topic
        self.largest = largest
        self.of = of


class Writer(Protocol):
    """What a transaction is written with: a `Producer`, or what takes its place in tests."""

    async def send(self, topic: str, value: bytes | None, **where: Any) -> asyncio.Future[object]:
        """Add a record, and return what will be its place."""

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell what will be written to."""

    async def write_out(self) -> None:
        """Wait until all records are written, or have failed."""


class Context:
    """What the worker's own code gets to process the records of one transaction with."""

    def __init__(
        self,
        state: TaskState,
        names: Mapping[str, str],
        producer: Writer,
        changelogs: Collection[str] = (),
        turns: LoopTurns | None = None,
    ) -> None:
        self._state = state
        self._producer = producer
        self.cause = Cause()
        self._stores = {name: StoreInTransaction(state.stores[topic]) for name, topic in names.items()}
        for store in self._stores.values():
            store.cause = self.cause
        self._topics = dict(names)
        self._changelogs = {*names.values(), *changelogs}
        self._sending: list[tuple[str, Coroutine[Any, Any, None]]] = []
        self._sent: list[tuple[str, asyncio.Future[object], ConsumerRecord | None, bool]] = []
        self._largest: dict[str, tuple[int, ConsumerRecord | None]] = {}
        self._ends: dict[str, int] = {}
        self.calls_for_time = False
        """Whether a function is called because a time has come: then no record is to blame for what it raises."""
        self.has_room: Callable[[], bool] = lambda: True
        """Called after each timer: whether the transaction takes another one."""
        self.is_cut = False
        """Whether it ends within the timers before a record, which comes again in the next one."""
        self._is_over = False
        self.when_applied: list[Callable[[], None]] = []
        self._turns = turns or LoopTurns()

    async def turn(self) -> None:
        """Let other work, such as heartbeats, have its turn, if that is due: for a function that goes over much."""
        await self._turns.take()

    @contextmanager
    def calling_for_time(self, what: str) -> Iterator[None]:
        """Have what is raised in the block say that it was called for a time, and what that was."""
        self.calls_for_time, self.cause.record, record = True, None, self.cause.record
        try:
            yield
        except Exception as error:
            add_note(error, what)
            raise
        self.calls_for_time, self.cause.record = False, record

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._state.task_id

    @property
    def partition(self) -> int:
        """The partition that the task reads from each of its sources."""
        return self._state.partition

    @overload
    def store(self, name: str) -> StoreInTransaction: ...
    @overload
    def store(self, name: Table[K, V]) -> KeyValueStore[K, V]: ...
    def store(self, name: str | Table[K, V]) -> StoreInTransaction | KeyValueStore[K, V]:
        """Return one of the task's stores, by its name or as a table.

        Raises:
            KeyError: when the subtopology has no such store.
        """
        wanted = name if isinstance(name, str) else name.name
        store = self._stores.get(wanted)
        if store is None:
            whose = "" if isinstance(name, str) else f" (it is a table of subtopology {name.subtopology})"
            raise KeyError(
                f"task {self.task_id} has no store {wanted!r}{whose}, only {', '.join(self._stores) or 'none at all'}"
            )
        return store if isinstance(name, str) else KeyValueStore(name, store)

    @overload
    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Coroutine[Any, Any, None]: ...
    @overload
    def send(
        self,
        topic: Topic[K, V],
        value: V,
        *,
        key: K,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Coroutine[Any, Any, None]: ...
    def send(
        self,
        topic: str | Topic[Any, Any],
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Write an output; readers of committed records see it together with the rest of the transaction, or never.

        It has to be awaited: the transaction fails otherwise. Without ``partition``, the key's hash says which
        (murmur2, as Java's producer has it), or chance without a key. ``timestamp_ms`` is in milliseconds since 1970;
        None: now. ``headers`` are pairs of a name and bytes, or a mapping.

        Raises:
            TypeError: when key or value is not what the topic says, or a header is no name with bytes.
            ValueError: when the topic is a changelog of the job, or no topic can have that name.
            RecordTooLarge: when it is larger than the producer sends.
            RuntimeError: when the transaction is over.
            KafkaError: when the producer cannot accept it.
        """
        raise_if_over(self._is_over)
        if isinstance(topic, Topic):
            value, key, topic = topic.value.dump(value), topic.key.dump(key), topic.name
        if topic in self._changelogs:
            raise ValueError(f"{topic} is a changelog of this job: only the store's own changes may be in there")
        if not TOPIC_NAME.fullmatch(topic):
            raise ValueError(
                f"{topic!r:.300} is no name of a topic: they have letters, digits, dots, _ and -, 249 at most"
            )
        where = {"key": key, "partition": partition, "headers": pairs_of(headers), "timestamp_ms": timestamp_ms}
        sending = self._send(topic, value, **where)
        self._sending.append((topic, sending))
        return sending

    def announce(self) -> None:
        """Tell the cluster which changelogs will be written to, before anything waits for that."""
        changed = [self._topics[name] for name, store in self._stores.items() if store.changes]
        self._producer.announce(TopicPartition(topic, self.partition) for topic in changed)

    async def flush(self) -> None:
        """Write the stores' changes to their changelogs and wait until everything is written.

        Raises:
            TypeError: when a call of `send` was not awaited.
            RecordTooLarge: when a record is larger than the producer sends.
            BatchRefused: when a topic does not take so large a batch.
            OutputsRefused: when a topic does not take what was sent for some records.
            KafkaError: when any of it was not written.
        """
        for topic, sending in self._sending:
            if inspect.getcoroutinestate(sending) == inspect.CORO_CREATED:
                sending.close()
                raise TypeError(f"a record for topic {topic} was not sent: write `await context.send(...)`")
        last: dict[str, asyncio.Future[object]] = {}
        self._is_over = True
        for store in self._stores.values():
            store.is_over = True
        for name, store in self._stores.items():
            topic = self._topics[name]
            for key, value in store.changes.items():
                self.cause.record = store.causes[key]
                try:
                    await self._send(topic, value, key=key, partition=self.partition)
                except RecordTooLarge as error:
                    if self.cause.record is None:
                        raise
                    raise OutputsRefused([(self.cause.record, error)]) from error
                last[topic] = self._sent[-1][1]
        self.announce()
        await self._producer.write_out()
        written = await asyncio.gather(*(future for _, future, _, _ in self._sent), return_exceptions=True)
        invalid = [
            (of if has_time or not isinstance(outcome, TimeInvalid) else None, outcome)
            for (_, _, of, has_time), outcome in zip(self._sent, written, strict=True)
            if isinstance(outcome, RecordInvalid)
        ]
        if blamed := [(of, OutputRefused(str(error))) for of, error in invalid if of is not None]:
            raise OutputsRefused(blamed)
        if invalid:
            # Without a time of its own, a record has this machine's.
            raise invalid[0][1]
        for (topic, *_), outcome in zip(self._sent, written, strict=True):
            if isinstance(outcome, (MessageSizeTooLargeError, RecordTooLargeError)):
                raise BatchRefused(topic, *self._largest[topic]) from outcome
            if isinstance(outcome, BaseException):
                raise outcome
        # All records of a topic are of one partition, and were sent in order.
        self._ends = {topic: future.result().offset + 1 for topic, future in last.items()}  # type: ignore[attr-defined]

    async def _send(self, topic: str, value: bytes | None, **where: Any) -> None:
        key, headers = where.get("key"), where.get("headers", ())
        size = (
            len(key or b"") + len(value or b"") + sum(len(name.encode()) + len(said or b"") for name, said in headers)
        )
        of = self.cause.record
        if size >= self._largest.get(topic, (0, None))[0]:
            self._largest[topic] = size, of
        await self.turn()
        try:
            future: asyncio.Future[object] = await self._producer.send(topic, value, **where)
        except UnknownTopicOrPartitionError as error:
            raise MissingPartition(f"topic {topic} does not exist, or may not be written: make it first") from error
        except MessageSizeTooLargeError as error:
            raise RecordTooLarge(
                f"a record of {size} bytes for topic {topic}, key {key!r:.100}: {error} (in producer_options)"
            ) from error
        # `flush` sees what fails, or it does not matter any more because something else failed before.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._sent.append((topic, future, of, where.get("timestamp_ms") is not None))

    def apply(self) -> None:
        """Apply the committed changes to the stores, and move them to the present ends of their changelogs."""
        for name, store in self._stores.items():
            topic = self._topics[name]
            if topic in self._ends:
                self._state.stores[topic].apply(store.changes.items(), self._ends[topic])
        for call in self.when_applied:
            call()
