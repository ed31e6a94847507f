"""The protocol over Kafka, on a real broker: members of both transports in one GROUP, and what stands in the topics."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, TopicAuthorizationFailedError
from tests.contracts.memory_store import MemoryStore
from tests.waiting import until
from tests.worker.children import connections, forked

from batonpass.api.events import event_body
from batonpass.background import first_to_fail
from batonpass.bootstrap import Process, build
from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.codec.shape import Shape
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import GroupDeclaration
from batonpass.core.state.model import ActiveState
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.replies import Declared
from batonpass.kafka import exchange as exchanges
from batonpass.kafka.events import EventPublisher
from batonpass.kafka.exchange import Exchange, settings_of
from batonpass.kafka.member_calls import read_addressee
from batonpass.kafka.ordering import Deliveries, Delivery
from batonpass.kafka.topics import TopicReader, make_topics
from batonpass.kafka.watch import ClusterWatch
from batonpass.runtime.events import Event
from batonpass.runtime.history import StoredCommand, StoredEvent
from batonpass.runtime.ports import Observer, Ownership
from batonpass.runtime.unheard import Unheard
from batonpass.settings import Settings
from batonpass.worker import Callbacks, Member, Offsets, Revocation, Task
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.kafka import connection as connection_module
from batonpass.worker.kafka.connection import TopicNames
from batonpass.worker.kafka.metadata import RECORD_BYTES_MAX
from batonpass.worker.kafka.reading import raise_if_silent
from batonpass.worker.kafka.transport import KafkaTransport
from batonpass.worker.testing import LocalCoordinator

pytestmark = pytest.mark.needs("kafka")
GROUP = "orders"


class Holder(Callbacks):
    """A worker whose state is there at once."""

    def __init__(self) -> None:
        self.running: set[str] = set()

    async def on_active(self, task: Task) -> None:
        """Run."""
        self.running.add(task.id)
        task.running()
        await task.stop_requested()

    async def on_standby(self, task: Task) -> None:
        """Be caught up."""
        task.report(lag=0)

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:  # noqa: ARG002 - any way alike
        """Stop."""
        self.running.discard(task.id)
        return 7


@pytest.fixture
def connection(bootstrap: str) -> KafkaConnection:
    """The run's Kafka."""
    return KafkaConnection(bootstrap_servers=bootstrap)


@pytest.fixture
async def topics(connection: KafkaConnection) -> TopicNames:
    """The protocol's topics of a fleet that has only this test's coordinator."""
    names = TopicNames(f"fleet-{uuid.uuid4().hex[:8]}")
    await make_topics(connection.client_options(), settings_of(names) | {names.events: {}})
    return names


@asynccontextmanager
async def exchanging(
    local: LocalCoordinator,
    connection: KafkaConnection,
    topics: TopicNames,
    *,
    refused: Callable[[str], None] = lambda _reason: None,
    name: str = "",
) -> AsyncIterator[Exchange]:
    """Serve a coordinator's groups over Kafka; it knows no other one."""
    unheard, ownership = Unheard(local.coordinator, told=set[GroupId]().add), Ownership()
    ownership.id = name
    exchange = Exchange(
        local.coordinator,
        connection,
        ownership=ownership,
        heard=unheard.heard,
        refused=refused,
        prefix=topics.prefix,
    )
    unheard.line = exchange
    running = asyncio.create_task(first_to_fail(exchange.run(), unheard.run()))
    await until(lambda: exchange.is_connected)
    yield exchange
    running.cancel()
    await asyncio.wait([running])


async def declare(
    local: LocalCoordinator, *, revision: int | None = None, partitions: int = 4, **config: object
) -> None:
    """Declare a group of so many tasks; ``revision`` names the one that is to be changed."""
    quick = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "heartbeat_interval_ms": 400} | config
    topology = {"subtopologies": [{"id": "0", "partitions": partitions, "changelog_topics": ["store"]}]}
    body = to_json({"topology": topology, "config": {"session_timeout_ms": 30_000, "kafka_heartbeats": True} | quick})
    reply = await local.coordinator.ask(GroupId(GROUP), read_declaration(GroupId(GROUP), body, if_match=revision)[0])
    assert isinstance(reply, Declared)


@asynccontextmanager
async def reading(connection: KafkaConnection, topic: str) -> AsyncIterator[Callable[[], list[ConsumerRecord]]]:
    """Read a topic from its beginning on."""
    found: list[ConsumerRecord] = []

    async def read(consumer: AIOKafkaConsumer) -> None:
        async for record in consumer:
            found.append(record)  # noqa: PERF401 - one by one, as they come

    async with AIOKafkaConsumer(topic, **connection.client_options(), auto_offset_reset="earliest") as consumer:
        task = asyncio.create_task(read(consumer))
        yield lambda: list(found)
        task.cancel()
        await asyncio.wait([task])


def of(records: list[ConsumerRecord], key: str) -> list[Any]:
    """Return the values under a key, a tombstone as None."""
    return [None if one.value is None else json.loads(one.value) for one in records if one.key == key.encode()]


async def test_members_of_both_transports_share_a_group(connection: KafkaConnection, topics: TopicNames) -> None:
    """Protocol 11.2."""
    over_kafka, over_http = Holder(), Holder()
    async with (
        LocalCoordinator() as local,
        exchanging(local, connection, topics),
        reading(connection, topics.assignments) as assignments,
    ):
        await declare(local)
        one = Member(
            "http://kafka",
            GROUP,
            over_kafka,
            transport=KafkaTransport(connection, prefix=topics.prefix),
            new_member_id=lambda: "k",
        )
        async with one:
            await until(lambda: len(over_kafka.running) == 4)
            two = Member(local.url, GROUP, over_http, transport=local.transport(), new_member_id=lambda: "h")
            async with two:
                await until(lambda: (len(over_kafka.running), len(over_http.running)) == (2, 2))
                await local.at_rest(GROUP)
                # A member may heartbeat by one way and listen by the other: the topic has everybody's assignment.
                last = of(assignments(), f"{GROUP}/h")[-1]
                assert [each["task"] for each in last["assignment"]["active"]] == sorted(over_http.running)
            await until(lambda: len(over_kafka.running) == 4)
            await until(lambda: of(assignments(), f"{GROUP}/h")[-1] is None)
        await until(lambda: of(assignments(), f"{GROUP}/k")[-1] is None)
        epochs = [each["member_epoch"] for each in of(assignments(), f"{GROUP}/k") if each is not None]
        assert epochs == sorted(epochs)
        assert (await local.describe(GROUP))["members"] == 0


async def test_a_group_whose_changes_are_held_up_holds_up_no_other(
    connection: KafkaConnection, topics: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have locked its rows: members of other groups are heard meanwhile."""
    may_go_on, asked = asyncio.Event(), list[str]()
    async with (
        LocalCoordinator() as local,
        exchanging(local, connection, topics),
        reading(connection, topics.assignments) as assignments,
    ):
        await declare(local)
        ask, look = local.coordinator.ask, local.coordinator.look

        async def held_up(group_id: GroupId, *what: Any) -> Any:
            asked.append(group_id)
            if group_id == "locked":
                await may_go_on.wait()
            return await ask(GroupId(GROUP), *what)

        monkeypatch.setattr(local.coordinator, "ask", held_up)
        monkeypatch.setattr(local.coordinator, "look", lambda _: look(GroupId(GROUP)))
        async with AIOKafkaProducer(**connection.client_options()) as producer:
            for group, member in (("locked", "l"), (GROUP, "m")):
                body = to_json({"member": member, "kind": "join"})
                await producer.send_and_wait(topics.heartbeats, body, key=group.encode(), partition=0)
            await until(lambda: of(assignments(), f"{GROUP}/m"))
        assert asked == ["locked", GROUP]
        may_go_on.set()


@pytest.mark.parametrize("is_copy", [True, False])
async def test_coordinators_of_another_database_leave_a_group_alone_that_others_answered_before(
    connection: KafkaConnection,
    topics: TopicNames,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_copy: bool,
) -> None:
    """Theirs may be a copy, and then they have the group; or it is another, and they would say that there is none."""
    monkeypatch.setattr(exchanges, "STRANGE_S", 3.0)
    holder = Holder()
    transport = KafkaTransport(connection, prefix=topics.prefix)

    def well(one: LocalCoordinator) -> Mapping[MemberId, int]:
        ((group, _),) = one.coordinator.loaded_groups()
        is_over = group.recovering_until_ms < one.coordinator.now_ms()
        return {member.id: member.epoch for member in group.members.values() if is_over}

    async with (
        LocalCoordinator() as local,
        LocalCoordinator() as other,
        exchanging(local, connection, topics, name="a"),
    ):
        await declare(local, session_timeout_ms=3_000)
        async with Member("http://kafka", GROUP, holder, transport=transport):
            await until(lambda: len(holder.running) == 4)
            if is_copy:
                await declare(other, session_timeout_ms=3_000)
            async with exchanging(other, connection, topics, name="b") as theirs:
                await until(lambda: theirs.elsewhere == {GROUP})
                assert "coordinators of another database, such as a, answer them" in caplog.text
                # What the other one has said meanwhile is over.
                await until(lambda: len(well(local)) == 1)
                await local.at_rest(GROUP)
                ((member, epoch),) = well(local).items()
                acked = transport._acked.get(f"{GROUP}/{member}", 0)
                await until(lambda: transport._acked.get(f"{GROUP}/{member}", 0) > acked + 5)
                assert well(local) == {member: epoch}


async def test_a_coordinator_that_may_not_read_acknowledgements_goes_on(
    connection: KafkaConnection, topics: TopicNames, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where only the rights are given that it needed before."""
    getmany = AIOKafkaConsumer.getmany

    async def refused(consumer: AIOKafkaConsumer, **more: Any) -> Any:
        read = consumer.assignment() - consumer.paused()
        if any(one.topic == topics.acks for one in read) and any(one.topic == topics.heartbeats for one in read):
            raise TopicAuthorizationFailedError(topics.acks)
        return await getmany(consumer, **more)

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", refused)
    holder, transport = Holder(), KafkaTransport(connection, prefix=topics.prefix)
    async with LocalCoordinator() as local, exchanging(local, connection, topics):
        await declare(local)
        async with Member("http://kafka", GROUP, holder, transport=transport):
            await until(lambda: len(holder.running) == 4)
    assert caplog.text.count("acks may not be read") == 1


async def test_why_members_are_not_heard_is_logged(
    connection: KafkaConnection, caplog: pytest.LogCaptureFixture
) -> None:
    """The cluster answers, so that nothing else says what is wrong: it makes no topic of such a name."""
    async with LocalCoordinator() as local:
        exchange = Exchange(local.coordinator, connection, ownership=Ownership(), prefix="no name")
        running = asyncio.create_task(exchange.run())
        await until(lambda: "members over Kafka are not heard" in caplog.text)
        running.cancel()
        await asyncio.wait([running])
    assert "topic no name.heartbeats is missing and cannot be made" in caplog.text


@pytest.mark.parametrize("what", ["assignments", "events"])
async def test_a_broker_that_refuses_the_time_of_a_record_makes_the_clock_suspect(
    connection: KafkaConnection, caplog: pytest.LogCaptureFixture, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is half an hour off is no more than a number of an error otherwise."""
    topics = TopicNames(f"fleet-{uuid.uuid4().hex[:8]}")
    strict = {f"{topics.prefix}.{what}": {"message.timestamp.before.max.ms": "60000"}}
    await make_topics(connection.client_options(), strict)
    send = AIOKafkaProducer.send

    def late(producer: AIOKafkaProducer, topic: str, value: bytes, key: bytes, *_: Any, **__: Any) -> Any:
        return send(producer, topic, value, key, timestamp_ms=int(time.time() * 1_000) - 1_800_000)

    monkeypatch.setattr(AIOKafkaProducer, "send", late)
    async with LocalCoordinator() as local:
        publisher = EventPublisher(Outbox(), connection, body=event_body, prefix=topics.prefix)
        publishing = asyncio.create_task(publisher.run())
        async with exchanging(local, connection, topics):
            await declare(local)
            async with AIOKafkaProducer(**connection.client_options()) as producer:
                await producer.send_and_wait(topics.heartbeats, to_json({"member": "m", "kind": "join"}), key=b"orders")
            await until(
                lambda: "InvalidTimestampError: a broker refuses a record's time, most likely as this" in caplog.text
            )
        publishing.cancel()
        await asyncio.wait([publishing])


async def test_each_reason_for_which_events_wait_is_told(
    connection: KafkaConnection, topics: TopicNames, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed first may be over long before the rest is."""
    monkeypatch.setattr("batonpass.kafka.events.AGAIN_S", 0.01)
    reasons = [OSError("it broke"), OSError("it broke"), KafkaTimeoutError("too slow")]

    class Failing(Outbox):
        async def next(self, limit: int) -> list[StoredEvent]:
            if reasons:
                raise reasons.pop(0)
            return await super().next(limit)

    publisher = EventPublisher(Failing(), connection, body=event_body, prefix=topics.prefix)
    publishing = asyncio.create_task(publisher.run())
    await until(lambda: "too slow" in caplog.text)
    publishing.cancel()
    await asyncio.wait([publishing])
    lines = [one.getMessage() for one in caplog.records if "cannot be passed on" in one.getMessage()]
    assert [line.rpartition(": ")[2] for line in lines] == ["it broke", "too slow"]


@pytest.mark.parametrize(("ahead_s", "reads"), [(-0.1, True), (-60, False), (3_600, False)])
async def test_what_was_read_before_the_clock_was_set_back_is_no_sign_that_heartbeats_are_read(
    ahead_s: float,
    reads: bool,  # noqa: FBT001
) -> None:
    """While they are not read, nobody expires for his silence."""

    class Reader:
        def assignment(self) -> set[TopicPartition]:
            return {TopicPartition("batonpass.heartbeats", 0)}

        def last_poll_timestamp(self, _partition: TopicPartition) -> float:
            return (time.time() + ahead_s) * 1_000

    async with LocalCoordinator() as local:
        exchange = Exchange(local.coordinator, KafkaConnection(bootstrap_servers="none:1"), ownership=Ownership())
        exchange._consumer = Reader()
        assert exchange.reads(0) is reads
        assert exchange.reads(1)


async def test_an_error_of_the_cluster_while_it_reads_is_the_cluster_s() -> None:
    """It was told as a defect, with a traceback every five seconds, and nothing said that members are not heard."""

    class Refused:
        async def getmany(self, **_: object) -> None:
            raise TopicAuthorizationFailedError("batonpass.heartbeats")

    async with LocalCoordinator() as local:
        exchange = Exchange(local.coordinator, KafkaConnection(bootstrap_servers="none:1"), ownership=Ownership())
        with pytest.raises(TopicAuthorizationFailedError):
            await exchange._read(Refused(), Deliveries(None, "assignments", 1, bool))


async def test_a_record_on_which_the_program_fails_keeps_no_other_from_being_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended the reading for all members of all groups, for five seconds each time that the member said it again."""

    class Record(SimpleNamespace):
        topic, partition = "batonpass.heartbeats", 0

    class Consumer:
        reads = 0

        async def getmany(self, **_: object) -> Mapping[int, list[Record]]:
            self.reads += 1
            if self.reads > 1:
                await asyncio.Event().wait()
            said = [to_json({"member": name, "kind": "join"}) for name in ("bad", "good")]
            return {0: [Record(key=GROUP.encode(), value=one, offset=number) for number, one in enumerate(said)]}

    class Answers(Deliveries):
        def put(self, record: Delivery) -> None:
            answered.append(record)

    class Told(Observer):
        def failed(self, error: BaseException, call: str, cause: str) -> None:
            failed.append((error, call, cause))

    async with LocalCoordinator() as local:
        await declare(local)
        ask, defect = local.coordinator.ask, ZeroDivisionError()
        answered, failed = list[Delivery](), list[tuple[BaseException, str, str]]()

        async def failing(group_id: GroupId, item: Any, *more: Any) -> Any:
            if item.member_id == "bad":
                raise defect
            return await ask(group_id, item, *more)

        monkeypatch.setattr(local.coordinator, "ask", failing)
        monkeypatch.setattr(local.coordinator, "observer", Told())
        exchange = Exchange(local.coordinator, KafkaConnection(bootstrap_servers="none:1"), ownership=Ownership())
        reading = asyncio.create_task(exchange._read(Consumer(), Answers(None, "assignments", 1, bool)))
        await until(lambda: exchange._acks == {GROUP: {"good": 0}} or reading.done())
        assert not reading.done()
        reading.cancel()
    assert [(one.key, getattr(one.body, "type", "")) for one in answered] == [(b"orders/bad", "internal-error")]
    assert failed == [(defect, "batonpass.heartbeats", "batonpass.heartbeats-0@0")]


async def test_nothing_is_kept_of_a_group_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups can be made and deleted without end."""
    monkeypatch.setattr(exchanges, "ACK_LOOK_S", 0.0)
    async with LocalCoordinator() as local:
        await declare(local)
        exchange = Exchange(local.coordinator, KafkaConnection(bootstrap_servers="none:1"), ownership=Ownership())
        acks = Deliveries(None, "acks", 1, bool)
        acking = asyncio.create_task(exchange._ack(acks))
        for name in ("gone", GROUP):
            exchange._acks[GroupId(name)] = {MemberId("m"): 1}
            await until(partial(acks.has, name.encode()))
        acking.cancel()
    assert exchange._acked_at.keys() == {GROUP}


async def test_faults_are_looked_for_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take up to a microsecond for each byte, of which a record has a million."""
    looked: list[int] = []
    explain = Shape._explain

    def noting(shape: Shape[Any], body: bytes) -> Any:
        looked.append(threading.get_ident())
        return explain(shape, body)

    monkeypatch.setattr(Shape, "_explain", noting)

    class Record:
        key, topic, partition, offset = GROUP.encode(), "heartbeats", 0, 1
        value = to_json({"member": "m", "kind": "heartbeat", "seq": "one"})

    class Answers(Deliveries):
        def put(self, record: Delivery) -> None:
            said.append(json.loads(record.value() or b""))

    said: list[Any] = []
    async with LocalCoordinator() as local:
        await declare(local)
        exchange = Exchange(local.coordinator, KafkaConnection(bootstrap_servers="none:1"), ownership=Ownership())
        found = read_addressee(Record.key, Record.value)
        assert found is not None
        await exchange._carry_out(found, Record(), Answers(None, "assignments", 1, bool))
    assert "seq" in json.dumps(said)
    assert looked
    assert threading.get_ident() not in looked


async def test_acknowledgements_have_the_highest_seq_once_an_interval(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    """Protocol 11.1."""
    async with (
        LocalCoordinator() as local,
        exchanging(local, connection, topics),
        reading(connection, topics.acks) as acks,
    ):
        await declare(local, heartbeat_interval_ms=1_000)
        async with AIOKafkaProducer(**connection.client_options()) as producer:

            async def say(**fields: object) -> None:
                await producer.send_and_wait(topics.heartbeats, to_json({"member": "m"} | fields), key=GROUP.encode())

            await say(kind="join")
            for seq in range(1, 21):
                await say(kind="heartbeat", seq=seq, member_epoch=1, tasks={})
            await until(lambda: {"m": 20} in of(acks(), GROUP))
            assert len(of(acks(), GROUP)) <= 3


async def test_an_answer_that_a_member_has_not_read_is_written_again(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    """Protocol 5.2: what was written may have been lost with its topic, or with a leader."""
    async with (
        LocalCoordinator() as local,
        exchanging(local, connection, topics),
        reading(connection, topics.assignments) as assignments,
        reading(connection, topics.acks) as acks,
        AIOKafkaProducer(**connection.client_options()) as producer,
    ):

        async def say(**fields: object) -> None:
            await producer.send_and_wait(topics.heartbeats, to_json({"member": "m"} | fields), key=GROUP.encode())

        def written() -> list[int]:
            return [one["member_epoch"] for one in of(assignments(), f"{GROUP}/m")]

        await declare(local, partitions=1)
        await say(kind="join")
        await until(lambda: written() != [] and written()[-1] > 1)
        before = written()
        await say(kind="join")
        await until(lambda: written() == [*before, before[-1]])
        await say(kind="heartbeat", seq=1, member_epoch=1, tasks={})
        await until(lambda: written() == [*before, before[-1], before[-1]])
        await say(kind="heartbeat", seq=2, member_epoch=before[-1], tasks={})
        await until(lambda: {"m": 2} in of(acks(), GROUP))
        assert written() == [*before, before[-1], before[-1]]


async def test_refusals_are_problem_objects_and_nonsense_harms_nobody(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    """Protocol 11.5."""
    async with (
        LocalCoordinator() as local,
        exchanging(local, connection, topics),
        reading(connection, topics.assignments) as assignments,
    ):
        await declare(local)
        async with AIOKafkaProducer(**connection.client_options()) as producer:

            async def say(value: object, key: str = GROUP) -> None:
                raw = value if isinstance(value, bytes) else to_json(value)
                await producer.send_and_wait(topics.heartbeats, raw, key=key.encode())

            for nonsense in (b"{", b"[1]", b"\xff", {"kind": "join"}, {"kind": "join", "member": "a/b"}):
                await say(nonsense)
            await say({"kind": "join", "member": "x"}, key="no/such")
            await say({"kind": "heartbeat", "member": "stranger", "seq": 1, "member_epoch": 1})
            await say({"kind": "join", "member": "vain", "capacity": "much"})
            await say({"kind": "dance", "member": "odd"})
            await say({"kind": "leave", "member": "odd2", "mode": "never"})
            await say({"kind": "drain", "member": "odd3", "deadline_ms": 10**26})
            await say({"kind": "undrain", "member": "odd4", "why": "typed wrong"})
            await say(b'{"kind": "join", "member": "huge", "tasks": {"0_0": {"role": "none", "lag": 1e999}}}')
            await say({"kind": "join", "member": "m"})
            names = ("stranger", "vain", "odd", "odd2", "odd3", "odd4", "huge", "m")
            await until(lambda: all(of(assignments(), f"{GROUP}/{name}") for name in names))
        found = {name: of(assignments(), f"{GROUP}/{name}")[0] for name in names}
        assert (found["stranger"]["type"], found["stranger"]["status"]) == ("unknown-member", 404)
        assert (found["vain"]["type"], found["vain"]["errors"][0]["path"]) == ("invalid-request", "capacity")
        assert found["odd"]["errors"][0]["path"] == "kind"
        assert found["odd2"]["type"] == "invalid-request"
        assert found["odd3"]["errors"][0]["path"] == "deadline_ms"
        assert (found["odd4"]["errors"][0]["path"], found["odd4"]["status"]) == ("why", 422)
        assert found["huge"]["member_epoch"] >= 1
        assert found["m"]["member_epoch"] >= 1


async def test_a_member_that_drains_over_kafka_learns_by_its_record_when_it_is_empty(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    """Protocol 11.2."""
    drained, other = Holder(), Holder()
    async with LocalCoordinator() as local, exchanging(local, connection, topics):
        await declare(local)
        async with (
            Member(
                "http://kafka", GROUP, drained, transport=KafkaTransport(connection, prefix=topics.prefix)
            ) as member,
            Member(local.url, GROUP, other, transport=local.transport()),
        ):
            await until(lambda: (len(drained.running), len(other.running)) == (2, 2))
            member.drain()
            await until(lambda: any(status.code == "drained" for status in member.statuses))
            assert (len(drained.running), len(other.running)) == (0, 4)


async def test_new_timeouts_are_told_though_no_assignment_changes(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    """They come with the answer that carries them, as over HTTP."""
    holder = Holder()
    async with (
        LocalCoordinator() as local,
        exchanging(local, connection, topics),
        reading(connection, topics.assignments) as assignments,
    ):
        await declare(local)
        async with Member(local.url, GROUP, holder, transport=local.transport(), new_member_id=lambda: "h"):
            await until(lambda: len(holder.running) == 4)
            await until(lambda: len(of(assignments(), f"{GROUP}/h")[-1:]) == 1)
            epoch = of(assignments(), f"{GROUP}/h")[-1]["member_epoch"]
            await declare(local, revision=1, session_timeout_ms=60_000)
            await until(
                lambda: any(
                    (each["session_timeout_ms"], each["member_epoch"]) == (60_000, epoch)
                    for each in of(assignments(), f"{GROUP}/h")
                )
            )


async def test_the_next_owner_writes_every_assignment_again(connection: KafkaConnection, topics: TopicNames) -> None:
    holder = Holder()
    async with LocalCoordinator() as local, reading(connection, topics.assignments) as assignments:
        await declare(local)
        async with Member(local.url, GROUP, holder, transport=local.transport(), new_member_id=lambda: "h"):
            await until(lambda: len(holder.running) == 4)
            async with exchanging(local, connection, topics):
                await until(lambda: bool(of(assignments(), f"{GROUP}/h")))
        async with exchanging(local, connection, topics):
            await until(lambda: of(assignments(), f"{GROUP}/h")[-1] is None)


class Outbox:
    """An outbox of three events, whose reader is interrupted once before it could note that it passed them on."""

    def __init__(self) -> None:
        self.at = 0
        self.interrupted = False
        event = Event("generation", 1_800_000_000_000, 1, None, None, {"moves": 2})
        self.events = [StoredEvent(number, GROUP, event) for number in (1, 2, 3)]

    async def next(self, limit: int) -> list[StoredEvent]:
        """Return what was not passed on."""
        return [one for one in self.events if one.position > self.at][:limit]

    async def passed(self, position: int) -> None:
        """Note what was passed on, but for the first time."""
        if not self.interrupted:
            self.interrupted = True
            raise OSError
        self.at = position


async def test_events_come_in_order_and_at_least_once(connection: KafkaConnection, topics: TopicNames) -> None:
    outbox = Outbox()
    publishing = asyncio.create_task(EventPublisher(outbox, connection, body=event_body, prefix=topics.prefix).run())
    try:
        async with reading(connection, topics.events) as events:
            await until(lambda: outbox.at == 3)
            await until(lambda: len(of(events(), GROUP)) >= 6)
            published = of(events(), GROUP)
    finally:
        publishing.cancel()
        await asyncio.wait([publishing])
    assert [each["position"] for each in published] == [1, 2, 3, 1, 2, 3]
    assert published[0]["group"] == GROUP
    assert published[0]["body"] == {"moves": 2}


async def test_a_coordinator_serves_kafka_when_told_where(connection: KafkaConnection, topics: TopicNames) -> None:
    process = serving(connection, topics.prefix, kafka_heartbeats=True)
    group, holder = GroupId(GROUP), Holder()
    async with process.running():
        (exchange,) = (part for part in process.kafka if isinstance(part, Exchange))
        await process.coordinator.ask(group, declaration(kafka_heartbeats=True))
        await until(lambda: exchange.is_connected)
        async with Member("http://kafka", GROUP, holder, transport=KafkaTransport(connection, prefix=topics.prefix)):
            await until(lambda: holder.running == {"0_0"})


def serving(connection: KafkaConnection, prefix: str, **settings: Any) -> Process:
    """Return a coordinator that knows where Kafka is."""
    found = Settings(
        kafka_bootstrap=connection.bootstrap_servers, kafka_topic_prefix=prefix, kafka_interval_ms=100, auth="off",
        **settings,
    )  # fmt: skip
    return build(found, MemoryStore())


def declaration(**config: object) -> GroupDeclaration:
    """Return a group of one task, and of what its config sets."""
    topology = {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["store"]}]}
    body = to_json({"topology": topology, "config": {"initial_rebalance_delay_ms": 0} | config})
    return read_declaration(GroupId(GROUP), body, if_match=None)[0]


async def test_without_its_own_setting_no_coordinator_speaks_over_kafka(connection: KafkaConnection) -> None:
    """The address of a cluster alone makes a coordinator read ends."""
    topics = TopicNames(f"fleet-{uuid.uuid4().hex[:8]}")
    process = serving(connection, topics.prefix)
    async with process.running():
        assert not [part for part in process.kafka if isinstance(part, Exchange)]
        (watch,) = (part for part in process.kafka if isinstance(part, ClusterWatch))
        await process.coordinator.ask(GroupId(GROUP), declaration(kafka_heartbeats=True))
        reader = TopicReader(connection)

        await until(lambda: watch.reachable() == 1)
        await asyncio.sleep(1)
        assert await reader.partition_counts((topics.heartbeats, topics.assignments, topics.acks)) == {}
        await reader.close()


async def test_a_group_that_did_not_ask_is_left_alone(connection: KafkaConnection, topics: TopicNames) -> None:
    """Protocol 11.1."""
    holder, refused = Holder(), list[str]()
    async with (
        LocalCoordinator() as local,
        exchanging(local, connection, topics, refused=refused.append),
        reading(connection, topics.assignments) as assignments,
        AIOKafkaProducer(**connection.client_options()) as producer,
    ):

        async def say(**fields: object) -> None:
            await producer.send_and_wait(topics.heartbeats, to_json(fields), key=GROUP.encode())

        await declare(local, kafka_heartbeats=False)
        async with Member(local.url, GROUP, holder, transport=local.transport(), new_member_id=lambda: "h"):
            await until(lambda: len(holder.running) == 4)
            await say(kind="drain", member="h")
            await say(kind="join", member="k")
            await until(lambda: bool(of(assignments(), f"{GROUP}/k")))
            answers = of(assignments(), f"{GROUP}/k") + of(assignments(), f"{GROUP}/h")
            assert {(one["type"], one["status"]) for one in answers} == {("forbidden", 403)}
            assert "kafka_heartbeats" in answers[0]["detail"]
            assert refused == ["forbidden", "forbidden"]
            group, _ = await local.coordinator.look(GroupId(GROUP))
            assert list(group.members) == ["h"]
            assert group.members[MemberId("h")].drain is None

            await declare(local, revision=1, kafka_heartbeats=True)
            await until(lambda: "assignment" in of(assignments(), f"{GROUP}/h")[-1])
            await say(kind="join", member="k")
            await until(lambda: "assignment" in of(assignments(), f"{GROUP}/k")[-1])

            await declare(local, revision=2, kafka_heartbeats=False)
            await until(lambda: {of(assignments(), f"{GROUP}/{name}")[-1] is None for name in "hk"} == {True})
            assert len(holder.running) >= 2


async def test_a_member_whose_group_is_not_served_over_kafka_learns_so_when_it_leaves(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    async with LocalCoordinator() as local, exchanging(local, connection, topics):
        await declare(local, kafka_heartbeats=False)
        transport = KafkaTransport(connection, prefix=topics.prefix)
        async with httpx.AsyncClient(transport=transport, base_url="http://kafka") as client, asyncio.timeout(30):
            joined = await client.put(f"/v1/groups/{GROUP}/members/k", json={})
            left = await client.delete(f"/v1/groups/{GROUP}/members/k")
        assert [(one.status_code, one.json()["type"]) for one in (joined, left)] == [(403, "forbidden")] * 2


async def test_a_command_over_kafka_leaves_the_row_of_one_over_http(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    process = serving(connection, topics.prefix, kafka_heartbeats=True)
    group = GroupId(GROUP)
    async with process.running(), AIOKafkaProducer(**connection.client_options()) as producer:
        (exchange,) = (part for part in process.kafka if isinstance(part, Exchange))
        await process.coordinator.ask(group, declaration(kafka_heartbeats=True))
        await until(lambda: exchange.is_connected)
        places = []
        for sent_fields in (
            {"kind": "drain", "member": "nobody"},
            {"kind": "join", "member": "m"},
            {"kind": "drain", "member": "m", "deadline_ms": 60_000, "reason": "new disks"},
            {"kind": "undrain", "member": "m", "reason": "not today"},
            {"kind": "leave", "member": "m"},
        ):
            sent = await producer.send_and_wait(topics.heartbeats, to_json(sent_fields), key=GROUP.encode())
            places.append(f"{sent.topic}-{sent.partition}@{sent.offset}")

        async def rows() -> list[StoredCommand]:
            return sorted(
                await process.store.archive.commands(group, before=None, limit=10), key=lambda one: one.position
            )

        async with asyncio.timeout(30):
            while len(found := await rows()) < 3:
                await asyncio.sleep(0.05)
    assert [(one.asked.who, one.asked.command, one.asked.reason, one.asked.cause) for one in found] == [
        (topics.heartbeats, "drain", "new disks", places[2]),
        (topics.heartbeats, "undrain", "not today", places[3]),
        (topics.heartbeats, "leave", "", places[4]),
    ]


class Clients:
    """Clients of Kafka, as a transport makes them: which are connected. A consumer can be made to fail at a read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connected: list[str] = []
        self.cut = False
        clients = self

        class Producer(AIOKafkaProducer):  # type: ignore[misc]
            async def start(self) -> None:
                await super().start()
                clients.connected.append("producer")

            async def stop(self) -> None:
                await super().stop()
                clients.connected.remove("producer")

        class Consumer(AIOKafkaConsumer):  # type: ignore[misc]
            async def start(self) -> None:
                await super().start()
                clients.connected.append("consumer")

            async def stop(self) -> None:
                await super().stop()
                clients.connected.remove("consumer")

            async def getmany(self, *partitions: TopicPartition, **options: Any) -> Any:
                if clients.cut:
                    clients.cut = False
                    raise KafkaConnectionError("cut")
                return await super().getmany(*partitions, **options)

        monkeypatch.setattr(connection_module, "AIOKafkaProducer", Producer)
        monkeypatch.setattr(connection_module, "AIOKafkaConsumer", Consumer)

    async def lose(self) -> None:
        """Have a consumer fail at its next read."""
        self.cut = True
        await until(lambda: not self.cut)


async def poll(transport: KafkaTransport, *, wait_ms: int) -> httpx.Response:
    """Ask once for news of m1's assignment."""
    url = f"http://kafka/v1/groups/{GROUP}/members/m1/assignment"
    return await transport.handle_async_request(httpx.Request("GET", url, params={"after": 0, "wait_ms": wait_ms}))


async def epoch(transport: KafkaTransport, number: int) -> bool:
    """Whether a question for news of m1 is answered with this epoch."""
    return bool((await poll(transport, wait_ms=30_000)).json()["member_epoch"] == number)


def answer(**fields: object) -> dict[str, object]:
    """Return the answer that m1's record has."""
    times = {"heartbeat_interval_ms": 400, "session_timeout_ms": 30_000}
    return {"member_id": "m1", "seq": 0, "member_epoch": 7, "assignment": {}, "status": []} | times | fields


async def test_a_member_may_have_as_many_tasks_as_over_http(connection: KafkaConnection, topics: TopicNames) -> None:
    """What is said of 20,000 tasks has more than the megabyte that a topic takes unless it says otherwise."""
    number, url = 20_000, f"http://kafka/v1/groups/{GROUP}/members/m1"
    transport = KafkaTransport(connection, prefix=topics.prefix)
    async with LocalCoordinator() as local, exchanging(local, connection, topics):
        await declare(local, partitions=number)
        joined = await transport.handle_async_request(httpx.Request("PUT", url, json={}))
        assert joined.status_code == 201
        given: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while not (given.get("assignment") or {}).get("active"):
                given = (await poll(transport, wait_ms=30_000)).json()
        active = given["assignment"]["active"]
        assert len(active) == number
        tasks = {
            one["task"]: {"role": "active", "state": "running", "fencing_token": one["fencing_token"]} for one in active
        }
        said = {"seq": 1, "member_epoch": given["member_epoch"], "tasks": tasks}
        async with asyncio.timeout(60):
            answered = await transport.handle_async_request(httpx.Request("POST", f"{url}/heartbeat", json=said))
        assert answered.status_code == 200
        group, _ = await local.coordinator.look(GroupId(GROUP))
        assert {task.state for task in group.tasks.values()} == {ActiveState.RUNNING}
    await transport.aclose()


async def test_a_transport_that_connects_anew_misses_nothing(
    connection: KafkaConnection, topics: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol 11.4."""
    clients = Clients(monkeypatch)
    async with KafkaTransport(connection, prefix=topics.prefix) as transport:
        assert (await poll(transport, wait_ms=0)).status_code == 204
        await clients.lose()
        async with AIOKafkaProducer(**connection.client_options()) as producer:
            await producer.send_and_wait(topics.assignments, to_json(answer()), key=b"orders/m1")
        assert (await poll(transport, wait_ms=30_000)).json() == answer()


async def test_a_transport_that_connects_anew_leaves_nothing_behind(
    connection: KafkaConnection, topics: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = Clients(monkeypatch)
    transport = KafkaTransport(connection, prefix=topics.prefix)
    for _ in range(2):
        await poll(transport, wait_ms=0)
        assert sorted(clients.connected) == ["consumer", "producer"]
        listening = transport._listening
        assert listening is not None
        await clients.lose()
        # What looks after the consumer ends a moment later, and until then nothing is made anew.
        await until(listening.done)
    await transport.aclose()
    assert clients.connected == []
    with pytest.raises(httpx.ConnectError, match="closed"):
        await poll(transport, wait_ms=0)
    assert clients.connected == []


async def test_a_transport_whose_records_brokers_take_no_more_has_another_producer(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    """As after a leader that did not have all that it wrote: the member was not heard again until its process ended."""
    async with heard_over_kafka(connection, topics) as (_, member, transport):
        producer, run = transport._producer, member.member_id
        assert producer is not None
        for part in await producer.partitions_for(topics.heartbeats):
            producer._txn_manager.increment_sequence_number(TopicPartition(topics.heartbeats, part), 5)
        key = f"{GROUP}/{run}"
        await until(lambda: transport._producer not in {producer, None})
        heard = transport._acked[key]
        await until(lambda: transport._acked[key] > heard + 2)
        assert member.member_id == run


@asynccontextmanager
async def administrator(connection: KafkaConnection) -> AsyncIterator[AIOKafkaAdminClient]:
    """Lend a client for changes of topics."""
    admin = AIOKafkaAdminClient(**connection.client_options())
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def heard_over_kafka(
    connection: KafkaConnection, topics: TopicNames, *, session_timeout_ms: int = 30_000
) -> AsyncIterator[tuple[LocalCoordinator, Member, KafkaTransport]]:
    """Have a member that runs four tasks, and is heard over Kafka alone."""
    holder = Holder()
    async with LocalCoordinator() as local, exchanging(local, connection, topics):
        await declare(local, session_timeout_ms=session_timeout_ms)
        transport = KafkaTransport(connection, prefix=topics.prefix)
        async with Member("http://kafka", GROUP, holder, transport=transport) as member:
            await until(lambda: len(holder.running) == 4)
            yield local, member, transport


@pytest.mark.parametrize("change", ["more", "gone", "assignments", "acks"])
async def test_the_protocols_topics_may_get_other_partitions_under_way(
    connection: KafkaConnection, topics: TopicNames, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members write to new partitions as soon as they know of them; a topic that is gone is made anew."""
    names = [topics.heartbeats, topics.assignments, topics.acks]
    async with (
        heard_over_kafka(connection, topics) as (local, member, transport),
        administrator(connection) as admin,
    ):
        if change == "more":
            # The least number with which the group's key is in none of the first eight.
            await admin.create_partitions({topic: NewPartitions(14) for topic in names})
            assert transport._producer is not None
            while len(await transport._producer.partitions_for(topics.heartbeats)) != 14:
                await transport._producer.client.force_metadata_update()
        else:
            await admin.delete_topics([name for name in names if change == "gone" or name.endswith(change)])
        monkeypatch.setattr("batonpass.worker.kafka.reading.PARTITIONS_LOOK_S", 0.3)
        key, run = f"{GROUP}/{member.member_id}", member.member_id
        heard = transport._acked.get(key, 0)
        await until(lambda: transport._acked.get(key, 0) > heard + 5)
        assert member.member_id == run
        assert (await local.describe(GROUP))["members"] == 1


async def test_a_member_is_missed_although_its_topic_has_fewer_partitions_by_now(
    connection: KafkaConnection, topics: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence of a partition that is gone is no silence of the cluster."""
    async with (
        heard_over_kafka(connection, topics, session_timeout_ms=6_000) as (local, member, _),
        administrator(connection) as admin,
    ):
        await admin.delete_topics([topics.heartbeats])
        await made_anew(admin, topics.heartbeats, partitions=2)
        monkeypatch.setattr("batonpass.worker.kafka.reading.PARTITIONS_LOOK_S", 0.3)
        await member.close()

        async def is_missed() -> bool:
            return bool((await local.describe(GROUP))["members"] == 0)

        await until(is_missed)


async def made_anew(admin: AIOKafkaAdminClient, topic: str, *, partitions: int) -> None:
    """Make a topic once the broker has deleted the one of its name."""

    async def is_made() -> bool:
        answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
        return bool(answer.topic_errors[0][1] == 0)

    await until(is_made)


async def test_a_forked_child_has_no_connection_of_a_transport(connection: KafkaConnection, topics: TopicNames) -> None:
    port = int(connection.bootstrap_servers.rpartition(":")[2])
    before = connections(port)
    async with KafkaTransport(connection, prefix=topics.prefix) as transport:
        await poll(transport, wait_ms=0)
        assert connections(port) > before
        with forked(lambda: connections(port)) as left:
            assert left() == before


DEEP = b"[" * 100_000
# A broker takes no record without a key for a compacted topic.
NO_ASSIGNMENTS: tuple[tuple[bytes | None, bytes | None], ...] = (
    (b"\xff", None),
    *(
        (b"orders/m1", value)
        for value in (
            b"",
            b"{",
            b"\xff",
            b'{"a": "\xff"}',
            DEEP,
            b'{"a": ' + DEEP,
            b"[1]",
            b"7",
            b'"text"',
            b"null",
            b"{}",
        )
    ),
    *(
        (b"orders/m1", to_json(value))
        for value in (
            {"member_epoch": 8},
            {"status": 409},
            {"type": "gone", "status": "409"},
            {"type": "gone", "status": 0},
            {"type": ["gone"], "status": 409},
            answer(member_epoch="8"),
            answer(member_epoch=8.5),
            answer(member_epoch=True),
            answer(member_epoch=8, member_id="m2"),
            answer(member_epoch=8, assignment=None),
            answer(member_epoch=8, assignment={"active": [{"task": "0_0"}]}),
            answer(member_epoch=8, status=[7]),
        )
    ),
)
NO_ACKS: tuple[tuple[bytes | None, bytes | None], ...] = (
    (None, b'{"m1": 1}'),
    (b"\xff", b'{"m1": 1}'),
    *(
        (b"orders", value)
        for value in (
            None,
            b"",
            b"{",
            b"\xff",
            DEEP,
            b"[1]",
            b"7",
            b'{"m1": "1"}',
            b'{"m1": 1.5}',
            b'{"m1": true}',
            b'{"m1": {}}',
        )
    ),
)


async def test_a_record_that_no_coordinator_writes_is_skipped_counted_and_logged_once_for_a_topic(
    connection: KafkaConnection, topics: TopicNames, caplog: pytest.LogCaptureFixture
) -> None:
    """Protocol 11.4."""
    transport = KafkaTransport(connection, prefix=topics.prefix)
    async with transport, AIOKafkaProducer(**connection.client_options()) as producer:
        await poll(transport, wait_ms=0)
        await producer.send_and_wait(topics.assignments, to_json(answer()), key=b"orders/m1")
        for topic, records in ((topics.assignments, NO_ASSIGNMENTS), (topics.acks, NO_ACKS)):
            for key, value in records:
                await producer.send_and_wait(topic, value, key=key)
        await until(lambda: transport.unreadable == len(NO_ASSIGNMENTS) + len(NO_ACKS))
        assert (await poll(transport, wait_ms=30_000)).json() == answer()
        await producer.send_and_wait(topics.assignments, to_json(answer(member_epoch=9)), key=b"orders/m1")
        await until(lambda: epoch(transport, 9))
    skipped = [one.getMessage() for one in caplog.records if "is skipped" in one.getMessage()]
    assert len(skipped) == 2
    assert "1 records could not be read so far" in skipped[0]


@pytest.mark.parametrize(
    ("ago_s", "is_silent"),
    [((), False), ((None, None), False), ((0, 0), False), ((None, 0), False), ((900, 1), False), ((31, 900), True),
     ((-900,), True)],
)  # fmt: skip
def test_one_partition_without_a_leader_leaves_the_others_alone(
    ago_s: tuple[float | None, ...],
    is_silent: bool,  # noqa: FBT001
) -> None:
    read_ms = dict(enumerate(None if ago is None else (time.time() - ago) * 1_000 for ago in ago_s))
    consumer = SimpleNamespace(assignment=lambda: set(read_ms), last_poll_timestamp=read_ms.get)
    with pytest.raises(KafkaTimeoutError) if is_silent else nullcontext():
        raise_if_silent(consumer)


@pytest.mark.parametrize("whose", ["coordinator", "worker"])
async def test_a_client_that_reads_no_more_is_made_anew(
    connection: KafkaConnection, topics: TopicNames, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """An unforeseen error in aiokafka's reader ends it, and nobody is told: the connections stay, and nothing comes."""
    monkeypatch.setattr("batonpass.worker.kafka.reading.SILENT_S", 1.0)
    monkeypatch.setattr("batonpass.worker.kafka.reading.PARTITIONS_LOOK_S", 0.5)
    holder, transport = Holder(), KafkaTransport(connection, prefix=topics.prefix)
    async with LocalCoordinator() as local, exchanging(local, connection, topics) as exchange:
        await declare(local)
        async with Member("http://kafka", GROUP, holder, transport=transport) as member:
            await until(lambda: len(holder.running) == 4)
            reader: Exchange | KafkaTransport = exchange if whose == "coordinator" else transport
            former = reader._consumer
            assert former is not None
            former._fetcher._fetch_task.cancel()
            await until(lambda: reader._consumer not in {None, former})
            heard = member._machine.lease_end_ms
            await until(lambda: (member._machine.lease_end_ms or 0) > (heard or 0) + 2_000)
            assert len(holder.running) == 4


async def test_what_others_are_told_is_not_kept(connection: KafkaConnection, topics: TopicNames) -> None:
    """A worker's memory does not grow with the cluster."""
    transport = KafkaTransport(connection, prefix=topics.prefix)
    async with transport, AIOKafkaProducer(**connection.client_options()) as producer:
        await poll(transport, wait_ms=0)
        for number in range(20):
            told = to_json(answer(member_id=f"other-{number}"))
            await producer.send_and_wait(topics.assignments, told, key=f"orders/other-{number}".encode())
        await producer.send_and_wait(topics.assignments, to_json(answer(member_epoch=9)), key=b"orders/m1")
        await until(lambda: epoch(transport, 9))
        assert list(transport._records) == ["orders/m1"]


async def test_nothing_is_kept_of_a_member_that_has_left() -> None:
    """All members of a process may share a transport, which lasts as long as the process."""

    async def said(*_: object, **__: object) -> None:
        transport._records["orders/m1"] = (1, None)

    transport = KafkaTransport(KafkaConnection(bootstrap_servers="none:1"))
    transport._listening = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
    transport._producer = SimpleNamespace(send_and_wait=said)
    transport._sent["orders/m1"] = transport._acked["orders/m1"] = 7
    url = "http://kafka/v1/groups/orders/members/m1"
    assert (await transport.handle_async_request(httpx.Request("DELETE", url))).status_code == 204
    kept: list[Any] = [transport._mine, transport._records, transport._refusals, transport._sent, transport._acked]
    assert not any(kept)
    transport._listening.cancel()


@pytest.mark.parametrize("call", ["POST /heartbeat", "DELETE ", "GET /assignment"])
async def test_a_refusal_is_heard_that_comes_with_the_answer_after_it(call: str) -> None:
    """Protocol 11.4: the member's present answer follows a refusal, often in the same answer of a broker."""
    problem = {"type": "invalid-request", "title": "Invalid", "status": 422, "action": "fix"}
    transport = KafkaTransport(KafkaConnection(bootstrap_servers="none:1"))
    transport._listening = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]

    async def come(*_: object, **__: object) -> None:
        for value in (problem, answer()):
            transport._take(SimpleNamespace(topic="batonpass.assignments", key=b"orders/m1", value=to_json(value)))

    transport._producer = SimpleNamespace(send_and_wait=come)
    method, path = call.split(" ")
    body = {"seq": 1, "member_epoch": 7, "tasks": {}} if method == "POST" else None
    url = f"http://kafka/v1/groups/orders/members/m1{path}"
    asking = asyncio.ensure_future(transport.handle_async_request(httpx.Request(method, url, json=body)))
    if method == "GET":
        await asyncio.sleep(0)
        async with transport._news:
            await come()
            transport._news.notify_all()
    assert (await asking).status_code == 422
    transport._listening.cancel()


async def test_an_ack_of_what_was_not_sent_acknowledges_nothing(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    url = f"http://kafka/v1/groups/{GROUP}/members/m1/heartbeat"
    heartbeat = httpx.Request("POST", url, json={"seq": 1, "member_epoch": 7, "tasks": {}})
    async with (
        KafkaTransport(connection, prefix=topics.prefix) as transport,
        AIOKafkaProducer(**connection.client_options()) as producer,
        reading(connection, topics.heartbeats) as heartbeats,
    ):
        await poll(transport, wait_ms=0)
        for topic, key, value in (
            (topics.assignments, b"orders/m1", answer()),
            (topics.acks, b"orders", {"m1": 99}),
            (topics.acks, b"orders", []),
        ):
            await producer.send_and_wait(topic, to_json(value), key=key)
        await until(lambda: transport.unreadable == 1)
        sending = asyncio.ensure_future(transport.handle_async_request(heartbeat))
        await until(lambda: bool(heartbeats()))
        assert not sending.done()
        await producer.send_and_wait(topics.acks, b'{"m1": 1, "stranger": 5}', key=b"orders")
        answered = await sending
        assert (answered.status_code, answered.json()["seq"]) == (200, 1)


async def test_a_refusal_that_is_too_large_for_a_record_keeps_nobody_else_from_an_answer(
    connection: KafkaConnection, topics: TopicNames, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal says what was wrong more than once."""
    async with (
        LocalCoordinator() as local,
        exchanging(local, connection, topics),
        reading(connection, topics.assignments) as assignments,
        AIOKafkaProducer(**connection.client_options(), max_request_size=RECORD_BYTES_MAX) as producer,
    ):
        await declare(local)

        async def say(**fields: object) -> None:
            await producer.send_and_wait(topics.heartbeats, to_json(fields), key=GROUP.encode())

        await say(kind="leave", member="odd", mode="x" * 6_000_000)
        await say(kind="join", member="m")
        await until(lambda: bool(of(assignments(), f"{GROUP}/m")) and "it is too large" in caplog.text)
    assert of(assignments(), f"{GROUP}/odd") == []


async def test_whoever_carries_the_protocol_gives_a_broker_up_long_before_a_lease_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of two brokers that stood still stopped all members over Kafka for over a minute: aiokafka waits 40 s."""
    waits: list[int] = []

    def made(**options: Any) -> None:
        waits.append(options.get("request_timeout_ms", 40_000))
        raise KafkaConnectionError

    async def topics_are_there(options: dict[str, Any], _settings: object) -> None:
        waits.append(options.get("request_timeout_ms", 40_000))

    monkeypatch.setattr(exchanges, "make_topics", topics_are_there)
    monkeypatch.setattr(connection_module, "AIOKafkaConsumer", made)
    monkeypatch.setattr(connection_module, "AIOKafkaProducer", made)
    connection = KafkaConnection(bootstrap_servers="none:1")
    async with LocalCoordinator() as local:
        exchange = Exchange(local.coordinator, connection, ownership=Ownership())
        with pytest.raises(KafkaConnectionError):
            async with exchange._connected():
                pass
    with pytest.raises(KafkaConnectionError):
        await KafkaTransport(connection)._start()
    assert len(waits) == 3
    assert max(waits) * 4 < GroupConfig().session_timeout_ms
