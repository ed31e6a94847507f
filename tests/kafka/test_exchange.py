"""The protocol over Kafka, on a real broker: members of both transports in one GROUP, and what stands in the topics."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError
from tests.kafka.totals import until

from batonpass.api.histories import event_body
from batonpass.bootstrap import build
from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.ids import GroupId
from batonpass.kafka.events import EventPublisher
from batonpass.kafka.exchange import Exchange, make_topics
from batonpass.runtime.history import Event, StoredEvent
from batonpass.settings import Settings
from batonpass.worker import Callbacks, Member, Offsets, Revocation, Task
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.kafka.connection import TopicNames
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
    await make_topics(connection.client_options(), names)
    return names


@asynccontextmanager
async def exchanging(
    local: LocalCoordinator, connection: KafkaConnection, topics: TopicNames
) -> AsyncIterator[Exchange]:
    """Serve a coordinator's groups over Kafka."""
    exchange = Exchange(local.coordinator, connection, holds=lambda _: True, prefix=topics.prefix)
    running = asyncio.create_task(exchange.run())
    await until(lambda: exchange.is_connected)
    yield exchange
    running.cancel()
    await asyncio.wait([running])


async def declare(local: LocalCoordinator, **config: object) -> None:
    """Declare a group of four tasks."""
    quick = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "heartbeat_interval_ms": 400} | config
    topology = {"subtopologies": [{"id": "0", "partitions": 4, "changelog_topics": ["store"]}]}
    body = to_json({"topology": topology, "config": {"session_timeout_ms": 30_000} | quick})
    await local.coordinator.ask(GroupId(GROUP), read_declaration(GroupId(GROUP), body, if_match=None)[0])


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
    """A member over Kafka and one over HTTP hand tasks over to one another; the topics say what each may hold."""
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


async def test_acknowledgements_have_the_highest_seq_once_an_interval(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    """However many heartbeats come, a group's acknowledgements are one record an interval."""
    async with (
        LocalCoordinator() as local,
        exchanging(local, connection, topics),
        reading(connection, topics.acks) as acks,
    ):
        await declare(local, heartbeat_interval_ms=1_000)
        async with AIOKafkaProducer(**connection.client_options()) as producer:

            async def say(**said: object) -> None:
                await producer.send_and_wait(topics.heartbeats, to_json({"member": "m"} | said), key=GROUP.encode())

            await say(kind="join")
            for seq in range(1, 21):
                await say(kind="heartbeat", seq=seq, member_epoch=1, tasks={})
            await until(lambda: {"m": 20} in of(acks(), GROUP))
            assert len(of(acks(), GROUP)) <= 3


async def test_refusals_are_problem_objects_and_nonsense_harms_nobody(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    """What is wrong is refused in the words of HTTP, under the member's key; what names nobody is passed over."""
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
            await say({"kind": "join", "member": "m"})
            await until(lambda: bool(of(assignments(), f"{GROUP}/m")))
        found = {name: of(assignments(), f"{GROUP}/{name}")[0] for name in ("stranger", "vain", "odd", "odd2", "m")}
        assert (found["stranger"]["type"], found["stranger"]["status"]) == ("unknown-member", 404)
        assert (found["vain"]["type"], found["vain"]["errors"][0]["path"]) == ("invalid-request", "capacity")
        assert found["odd"]["errors"][0]["path"] == "kind"
        assert found["odd2"]["type"] == "invalid-request"
        assert found["m"]["member_epoch"] >= 1


async def test_a_drain_over_kafka(connection: KafkaConnection, topics: TopicNames) -> None:
    """A member that asks to be drained is told by its record when it is empty."""
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


async def test_the_next_owner_writes_every_assignment_again(connection: KafkaConnection, topics: TopicNames) -> None:
    """After a start of the exchange the topic says what holds now, whatever was written, or not, before."""
    holder = Holder()
    async with LocalCoordinator() as local, reading(connection, topics.assignments) as assignments:
        await declare(local)
        async with Member(local.url, GROUP, holder, transport=local.transport(), new_member_id=lambda: "h"):
            await until(lambda: len(holder.running) == 4)
            async with exchanging(local, connection, topics):
                await until(lambda: bool(of(assignments(), f"{GROUP}/h")))
        async with exchanging(local, connection, topics):
            await until(lambda: of(assignments(), f"{GROUP}/h")[-1] is None)


class Shelf:
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
    """Events are written in the outbox's order, and again from the last one noted after an interruption."""
    shelf = Shelf()
    publishing = asyncio.create_task(EventPublisher(shelf, connection, body=event_body, prefix=topics.prefix).run())
    try:
        async with reading(connection, topics.events) as events:
            await until(lambda: shelf.at == 3)
            await until(lambda: len(of(events(), GROUP)) >= 6)
            told = of(events(), GROUP)
    finally:
        publishing.cancel()
        await asyncio.wait([publishing])
    assert [each["position"] for each in told] == [1, 2, 3, 1, 2, 3]
    assert told[0]["group"] == GROUP
    assert told[0]["body"] == {"moves": 2}


async def test_a_coordinator_serves_kafka_when_told_where(connection: KafkaConnection, topics: TopicNames) -> None:
    """With a bootstrap server a coordinator reads heartbeats by itself, and says in its metrics that it does."""
    process = build(
        Settings(kafka_bootstrap=connection.bootstrap_servers, kafka_topic_prefix=topics.prefix, auth="off"),
        "http://127.0.0.1:0",
    )
    body = to_json({"topology": {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["store"]}]}})
    holder = Holder()
    async with process.running():
        assert process.kafka is not None
        await process.coordinator.ask(GroupId(GROUP), read_declaration(GroupId(GROUP), body, if_match=None)[0])
        await until(lambda: process.kafka is not None and process.kafka.exchange.is_connected)
        async with Member("http://kafka", GROUP, holder, transport=KafkaTransport(connection, prefix=topics.prefix)):
            await until(lambda: holder.running == {"0_0"})


def clients_of(transport: KafkaTransport) -> tuple[AIOKafkaProducer, AIOKafkaConsumer]:
    """Return what a connected transport has."""
    assert transport._producer is not None
    assert transport._consumer is not None
    return transport._producer, transport._consumer


async def test_a_transport_that_connects_anew_leaves_nothing_behind(
    connection: KafkaConnection, topics: TopicNames
) -> None:
    """When its reader has failed it closes what it had before it connects again; once closed, it stays closed."""
    async with LocalCoordinator() as local, exchanging(local, connection, topics):
        transport = KafkaTransport(connection, prefix=topics.prefix)
        await transport._start()
        before = clients_of(transport)
        assert transport._listening is not None
        transport._listening.cancel()
        await asyncio.wait([transport._listening])
        await transport._start()
        after = clients_of(transport)
        assert [client._closed for client in (*before, *after)] == [True, True, False, False]
        await transport.aclose()
        assert [client._closed for client in after] == [True, True]
        with pytest.raises(KafkaError, match="closed"):
            await transport._start()
        with pytest.raises(KafkaError, match="closed"):
            await transport._send(GROUP, {})
        assert transport._producer is None
