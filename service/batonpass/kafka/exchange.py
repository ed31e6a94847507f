"""The protocol over Kafka: heartbeats come in by one topic, assignments and acknowledgements go out by two others.

It is one more shell around the same coordinator: inputs go where HTTP's go, and HTTP and Kafka members mix in a group
(protocol 11.1 to 11.3). Partitions are assigned by hand, so no rebalance can hold a heartbeat up. Every coordinator
reads all heartbeats and carries out those of its own groups whose config allows it. A client that may write to the
topic can speak for each of these groups, so all other groups are left alone, in and out. Assignments are written after
the commit that made them, by the group's owner alone.

``batonpass.assignments`` is compacted, and has the last answer of each member, until the member is gone. A record is
written when a part of the answer changed that a member acts on: epoch, assignment, status, or the wish for a full
report. It is always whole, because a reader that begins here knows nothing. It is written again for a member that
echoes another epoch, or repeats its join: what was written may be lost with its topic.

A heartbeat that was read counts as received, even if its answer is lost. Members drop late or doubled answers by their
epoch. A lost answer is published again by the next owner, which begins with every member's assignment.

Each record names its writer in a header. Coordinators of another database, a copy perhaps, may be set to the same
topics by mistake. Each would take what members say of the other's assignments for lost commits, without end. So a
coordinator also reads the acknowledgements, and leaves a group alone that others were acknowledging before it.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from batonpass.background import first_to_fail
from batonpass.codec.answers import to_json
from batonpass.codec.shape import AtOnce, HasFaults
from batonpass.core.arrivals.answers import answer_to_poll
from batonpass.core.state.errors import ProtocolError, UnknownGroup
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import Heartbeat
from batonpass.core.state.model import Group
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import Soft
from batonpass.kafka.member_calls import read_addressee, read_item
from batonpass.kafka.ordering import WRITER, Deliveries, Delivery, Turns
from batonpass.kafka.topics import make_topics
from batonpass.runtime.access import Forbidden
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.history import Asked, command_of
from batonpass.runtime.ports import Commit, CoordinatorLoading, Defect, NotOwner, Observer, Ownership, StoreUnavailable
from batonpass.worker.kafka.connection import KafkaConnection, TopicNames, carrying, in_words
from batonpass.worker.kafka.metadata import PROTOCOL_TIMEOUT_MS, RECORD_BYTES_MAX
from batonpass.worker.kafka.reading import look_after, placed
from batonpass.worker.kafka.said import Said, UnreadableRecords

log = logging.getLogger("batonpass.kafka")

HOUR_MS: Final = "3600000"
SWEEP_S: Final = 1.0
"""How often all groups are looked at without a commit, because some may have come from other coordinators."""

ACK_LOOK_S: Final = 0.1
SILENCE_S: Final = 1.5
"""How long the cluster may leave a read of the heartbeats unanswered; it answers several times a second."""

AGAIN_S: Final = 1.0
STRANGE_S: Final = 10.0
"""After so long a coordinator that writes for a group of this one, and is not known here, is of another database."""

_NOT_OURS: Final = (NotOwner, StoreUnavailable, CoordinatorLoading)
"""Errors that only make the caller repeat its call: over Kafka the missing acknowledgement does the same."""

_NOT_HERE: Final = (UnknownGroup, Forbidden)
"""Errors of a member of another database's group: the coordinators there answer it."""

NEVER_SEEN = -1
"""An epoch below every member's: the answer to it has the whole assignment."""


class AssignmentsTopic:
    """Knows what was written last for each member, and what is to be written now."""

    def __init__(self) -> None:
        self._written: dict[GroupId, dict[MemberId, Answer | None]] = {}

    def news(self, group: Group, soft: Soft) -> Iterator[Delivery]:
        """Yield the records that bring the topic up to date for every member of a group."""
        known = self._written.get(group.id)
        if known is None:
            # Members may have gone while no coordinator wrote here; a tombstone too many does no harm.
            known = self._written[group.id] = dict.fromkeys(group.gone)
        for member_id in sorted(known.keys() - group.members.keys()):
            del known[member_id]
            yield Delivery(key_of(group.id, member_id), None)
        for member_id in sorted(group.members):
            found = answer_to_poll(group, soft, member_id, NEVER_SEEN)
            if not isinstance(found, Answer):
                continue
            # The seq is in the acks, the epoch stands for the assignment, and a member does not act on a generation.
            told = found._replace(seq=0, generation=0, assignment=None)
            if known.get(member_id) != told:
                known[member_id] = told
                yield Delivery(key_of(group.id, member_id), found)

    def refusal(self, group_id: GroupId, member_id: MemberId, error: ProtocolError) -> Delivery:
        """Return the record that refuses a member's call; the member's present answer is written again after it."""
        self._write_again(group_id, member_id)
        return Delivery(key_of(group_id, member_id), error)

    def heard(self, group_id: GroupId, member_id: MemberId, epoch: int) -> None:
        """Have a member's present answer written again if the member knows another epoch than was written before.

        What was written may be lost: a topic is made anew, or a leader falls behind who did not have it all.
        """
        last = self._written.get(group_id, {}).get(member_id)
        if last is not None and last.member_epoch != epoch:
            self._write_again(group_id, member_id)

    def _write_again(self, group_id: GroupId, member_id: MemberId) -> None:
        known = self._written.get(group_id, {})
        if member_id in known:
            known[member_id] = None

    def forget(self, group_id: GroupId) -> Iterator[Delivery]:
        """Yield tombstones for the members of a group that was deleted."""
        for member_id in sorted(self._written.pop(group_id, {})):
            yield Delivery(key_of(group_id, member_id), None)

    def let_go(self, group_id: GroupId) -> None:
        """Forget a group that another coordinator writes for from now on."""
        self._written.pop(group_id, None)

    def groups(self) -> list[GroupId]:
        return sorted(self._written)


def key_of(group_id: GroupId, member_id: MemberId) -> bytes:
    return f"{group_id}/{member_id}".encode()


class Exchange(Observer):
    """Carries the protocol over Kafka for one coordinator."""

    def __init__(
        self,
        coordinator: Coordinator,
        connection: KafkaConnection,
        *,
        ownership: Ownership,
        heard: Callable[[GroupId, MemberId, int], None] = lambda *_: None,
        refused: Callable[[str], None] = lambda _reason: None,
        prefix: str = "batonpass",
    ) -> None:
        """Make an exchange that is not connected yet.

        ``prefix`` begins the topics' names. ``ownership`` says whether this coordinator may speak for a group now.
        ``heard`` is called with each member that was, and the partition; ``refused`` with the type of each refusal.
        """
        self._heard = heard
        self._refused = refused
        self._coordinator = coordinator
        self._connection = connection
        self._ownership = ownership
        self._topics = TopicNames(prefix)
        self._assignments = AssignmentsTopic()
        self._changed: set[GroupId] = set()
        self._news = asyncio.Event()
        self._acks: dict[GroupId, dict[MemberId, int]] = {}
        self._acked_at: dict[GroupId, float] = {}
        self._unreadable = UnreadableRecords(log)
        self._said = Said()
        self._consumer: AIOKafkaConsumer | None = None
        self._since = ""
        self._strangers: dict[GroupId, tuple[float, float]] = {}
        """When a coordinator of another database first and last acknowledged what members of a group said."""
        self.elsewhere: set[GroupId] = set()
        """The groups whose members coordinators of another database answer; nothing is said of them here any more."""
        self.is_connected = False

    def committed(self, commit: Commit, append_ms: float) -> None:  # noqa: ARG002 - how long it took is for others
        """Have the group's assignments looked at next."""
        self._changed.add(commit.group_id)
        self._news.set()

    async def run(self) -> None:
        """Serve until cancelled, connecting anew whenever the cluster was unavailable."""
        while True:
            try:
                async with self._connected() as (consumer, producer):
                    # The last records may not have been written, so everything is written again.
                    self._assignments = AssignmentsTopic()
                    self._since = self._since or f"{self._coordinator.now_ms():020}"
                    self.is_connected = True
                    self._consumer = consumer
                    answers, acks = [
                        Deliveries(
                            producer, topic, len(await producer.partitions_for(topic)), self._speaks_for, self._writer
                        )
                        for topic in (self._topics.assignments, self._topics.acks)
                    ]
                    await first_to_fail(
                        self._read(consumer, answers),
                        look_after(consumer, [self._topics.assignments, self._topics.acks]),
                        self._write(answers),
                        answers.run(),
                        self._ack(acks),
                        acks.run(),
                    )
            except (KafkaError, OSError) as error:
                if self._said.is_news(type(error).__name__):
                    why = await in_words(error, self._connection)
                    log.warning("members over Kafka are not heard; tried again every %s s: %s", AGAIN_S, why)
            finally:
                self.is_connected, self._consumer = False, None
            await asyncio.sleep(AGAIN_S)

    @contextlib.asynccontextmanager
    async def _connected(self) -> Any:
        options = self._connection.client_options() | {"request_timeout_ms": PROTOCOL_TIMEOUT_MS}
        await make_topics(options, settings_of(self._topics))
        async with carrying(self._connection, (self._topics.heartbeats, self._topics.acks)) as (consumer, producer):
            # Members that got no answer to earlier records send them again: it begins where each partition ends.
            await placed(consumer)
            yield consumer, producer

    def _writer(self) -> bytes:
        return f"{self._ownership.id} {self._since}".encode()

    def reads(self, partition: int) -> bool:
        """Whether a partition of the heartbeats is read, or is gone, so that nothing is in it."""
        consumer, place = self._consumer, TopicPartition(self._topics.heartbeats, partition)
        if consumer is None:
            return False
        if place not in consumer.assignment():
            return True
        # None before the first answer. The client goes by the same clock, which may have been set back since.
        read_ms = consumer.last_poll_timestamp(place) or 0
        return abs(time.time() * 1_000 - read_ms) < SILENCE_S * 1_000

    # --- in ---------------------------------------------------------------------------------------------------------

    async def _read(self, consumer: AIOKafkaConsumer, answers: Deliveries) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                turns = Turns(tasks)
                while True:
                    for record in await self._records(consumer):
                        await self._take(record, turns, answers)
        except ExceptionGroup as errors:
            # Of what goes on side by side all errors come in a group, also the cluster's alone.
            raise errors.exceptions[0] from None

    async def _take(self, record: ConsumerRecord, turns: Turns, answers: Deliveries) -> None:
        if record.topic == self._topics.acks:
            self._note_writer(record)
        elif (found := read_addressee(record.key, record.value)) is None:
            self._unreadable.skip(record, "it names no member that could be answered")
        elif self._speaks_for(found[0]):
            await turns.take(found[:2], len(record.value), partial(self._carry_out, found, record, answers))

    async def _records(self, consumer: AIOKafkaConsumer) -> Iterable[ConsumerRecord]:
        try:
            return chain.from_iterable((await consumer.getmany(timeout_ms=1_000)).values())
        except TopicAuthorizationFailedError as error:
            if error.args != (self._topics.acks,):
                raise
            if self._said.is_news(self._topics.acks):
                log.warning(
                    "%s may not be read: coordinators of another database in these topics go unnoticed", *error.args
                )
            consumer.pause(*(one for one in consumer.assignment() if one.topic == self._topics.acks))
            return ()

    def _note_writer(self, record: ConsumerRecord) -> None:
        """See who acknowledges; leave a group alone that is another database's coordinators', who were there before."""
        name, _, since = (dict(record.headers).get(WRITER) or b"").decode(errors="replace").partition(" ")
        group_id = GroupId((record.key or b"").decode(errors="replace"))
        if not since or self._ownership.knows(name) or not self._ownership.holds(group_id):
            return
        now = time.monotonic()
        first, last = self._strangers.get(group_id, (now, now))
        first = first if now - last < STRANGE_S else now
        self._strangers[group_id] = (first, now)
        is_here = group_id in self._assignments.groups()
        is_before = (since, name) < (self._since, self._ownership.id)
        if now - first >= STRANGE_S and (is_before or not is_here) and group_id not in self.elsewhere:
            self.elsewhere.add(group_id)
            log.error(
                "members of group %s are not answered over Kafka any more: coordinators of another database, such as %s,"
                " answer them in %s; give the coordinators of this database a BATONPASS_KAFKA_TOPIC_PREFIX of their own,"
                " and restart them",
                *(group_id, name, record.topic),
            )

    async def _carry_out(
        self, found: tuple[GroupId, MemberId, str, dict[str, Any]], record: ConsumerRecord, answers: Deliveries
    ) -> None:
        group_id, member_id, kind, said = found
        asked = Asked(who=record.topic, cause=f"{record.topic}-{record.partition}@{record.offset}")
        try:
            group, _ = await self._coordinator.look(group_id)
            if not group.config.kafka_heartbeats:
                raise Forbidden(  # noqa: TRY301 - answered as any other refusal
                    f"group {group_id} takes nothing over Kafka; speak HTTP, or set kafka_heartbeats in its config"
                )
            tasks_max = self._coordinator.policy.max_tasks_per_heartbeat
            read, body = partial(read_item, member_id, kind, tasks_max=tasks_max), to_json(said)
            try:
                item, reason = read(AtOnce(body))
            except HasFaults:
                item, reason = await asyncio.to_thread(read, body)
            # A join is repeated by who has not read its answer, a drain by who waits for its end.
            epoch = item.member_epoch if isinstance(item, Heartbeat) else NEVER_SEEN
            self._assignments.heard(group_id, member_id, epoch)
            asked = asked._replace(reason=reason, command=command_of(item))
            reply = await self._coordinator.ask(group_id, item, asked)
        except ProtocolError as error:
            reply = error
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect, and all others are heard
            self._coordinator.observer.failed(error, record.topic, asked.cause)
            reply = Defect("the coordinator failed on this record; its log says how")
        _, strange_at = self._strangers.get(group_id, (0.0, float("-inf")))
        is_theirs = isinstance(reply, _NOT_HERE) and time.monotonic() - strange_at < STRANGE_S
        if isinstance(reply, _NOT_OURS) or is_theirs:
            return
        if isinstance(reply, ProtocolError):
            self._refused(reply.type)
            answers.put(self._assignments.refusal(group_id, member_id, reply))
        elif isinstance(reply, Answer):
            self._acks.setdefault(group_id, {})[member_id] = reply.seq
            self._heard(group_id, member_id, record.partition)
        elif asked.command:
            self._coordinator.observer.commanded(group_id, asked)
        self._changed.add(group_id)
        self._news.set()

    # --- out --------------------------------------------------------------------------------------------------------

    async def _write(self, answers: Deliveries) -> None:
        """Write changes as soon as they are committed, and look at all groups every ``SWEEP_S``."""
        swept_at = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_S):
                    await self._news.wait()
            self._news.clear()
            changed, self._changed = self._changed, set()
            is_sweep = time.monotonic() - swept_at >= SWEEP_S
            if is_sweep:
                swept_at = time.monotonic()
            loaded = self._coordinator.loaded_groups()
            groups = {
                group.id: (group, soft)
                for group, soft in loaded
                if group.config.kafka_heartbeats and group.id not in self.elsewhere
            }
            for group_id in sorted(groups if is_sweep else changed & groups.keys()):
                for record in self._assignments.news(*groups[group_id]):
                    answers.put(record)
                # A large group takes ten milliseconds.
                await asyncio.sleep(0)
            for group_id in self._assignments.groups():
                # It was deleted, has turned Kafka off, or belongs to another coordinator.
                if group_id not in groups and self._speaks_for(group_id):
                    for record in self._assignments.forget(group_id):
                        answers.put(record)

    def _speaks_for(self, group_id: GroupId) -> bool:
        """Whether a group's records are written here; if not, all are written again once they are."""
        if not self._ownership.holds(group_id) or group_id in self.elsewhere:
            self._assignments.let_go(group_id)
            return False
        return True

    async def _ack(self, acks: Deliveries) -> None:
        """Acknowledge what was processed, at most once per heartbeat interval and group."""
        while True:
            await asyncio.sleep(ACK_LOOK_S)
            if not self._acks:
                continue
            intervals = {group.id: group.heartbeat_interval_ms for group, _ in self._coordinator.loaded_groups()}
            for gone in self._acked_at.keys() - intervals.keys():
                del self._acked_at[gone]
            now = time.monotonic()
            for group_id in sorted(self._acks):
                wait_s = intervals.get(group_id, 0) / 1_000
                key = group_id.encode()
                if now - self._acked_at.get(group_id, 0.0) >= wait_s and not acks.has(key):
                    self._acked_at[group_id] = now
                    acks.put(Delivery(key, self._acks.pop(group_id)))


def settings_of(topics: TopicNames) -> dict[str, dict[str, str]]:
    """Return the topics that an exchange needs, each with its settings if it is made here."""
    large = {"max.message.bytes": str(RECORD_BYTES_MAX)}
    return {
        topics.heartbeats: {"retention.ms": HOUR_MS} | large,
        topics.assignments: {"cleanup.policy": "compact"} | large,
        topics.acks: {"retention.ms": HOUR_MS} | large,
    }
