"""A broker that the cluster reaches, and a coordinator or a member does not, costs those whose partitions it leads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol.metadata import MetadataRequest
from tests.kafka.test_exchange import Holder, connection, exchanging, topics
from tests.proof.proxy import Proxy
from tests.waiting import until

from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId
from batonpass.core.state.replies import Declared
from batonpass.kafka.topics import PARTITIONS
from batonpass.worker import Member
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.kafka.connection import TopicNames
from batonpass.worker.kafka.transport import KafkaTransport
from batonpass.worker.testing import LocalCoordinator

pytestmark = pytest.mark.needs("kafka")
__all__ = ["connection", "topics"]

SILENT, WELL = "orders", "returns"
"""Two groups of one member each, of the same name, none of whose records share a partition."""


def partition_of(key: str) -> int:
    """Return in which partition a key's records are."""
    number: int = DefaultPartitioner()(key.encode(), list(range(PARTITIONS)), [])
    return number


def places(topics: TopicNames, group: str) -> dict[str, tuple[str, int]]:
    """Return where the records of a group and of its member are, by what they are."""
    keys = {topics.heartbeats: group, topics.acks: group, topics.assignments: f"{group}/m"}
    return {topic.rpartition(".")[2]: (topic, partition_of(key)) for topic, key in keys.items()}


class Leader(Proxy):
    """Stands before the run's broker; ``held`` counts the answers that it holds back."""

    held = 0

    async def _next(self, source: asyncio.StreamReader, *, is_answer: bool) -> bytes:
        piece = await super()._next(source, is_answer=is_answer)
        self.held += is_answer and self.hangs
        return piece


@asynccontextmanager
async def led_apart(
    monkeypatch: pytest.MonkeyPatch, connection: KafkaConnection, led: set[tuple[str, int]]
) -> AsyncIterator[Leader]:
    """Have some partitions led, for the clients of one connection, by another broker than all the others."""
    send = AIOKafkaClient.send

    async def ask(client: AIOKafkaClient, node: Any, request: Any, **more: Any) -> Any:
        answer = await send(client, node, request, **more)
        if isinstance(request, MetadataRequest) and client._client_id == connection.client_id:
            answer.brokers.append((77, "127.0.0.1", proxy.port, None))
            for _, topic, _, partitions in answer.topics:
                partitions[:] = [(e, n, 77 if (topic, n) in led else at, *more) for e, n, at, *more in partitions]
        return answer

    async with Leader(int(connection.bootstrap_servers.rpartition(":")[2])) as proxy:
        monkeypatch.setattr(AIOKafkaClient, "send", ask)
        yield proxy
        proxy.cut()
        await until(lambda: not proxy._open)


async def declare(local: LocalCoordinator, group: str, *, revision: int | None = None, **config: object) -> None:
    """Declare a group of one task."""
    topology = {"subtopologies": [{"id": "0", "partitions": 1}]}
    quick = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "heartbeat_interval_ms": 400}
    body = to_json({"topology": topology, "config": quick | {"kafka_heartbeats": True} | config})
    reply = await local.coordinator.ask(GroupId(group), read_declaration(GroupId(group), body, if_match=revision)[0])
    assert isinstance(reply, Declared)


async def runs(holder: Holder) -> None:
    """Wait until a member runs the task of its group."""
    await until(lambda: holder.running == {"0_0"})


@pytest.mark.parametrize(
    ("whose", "what"),
    [
        *(("coordinator", what) for what in ("heartbeats", "acks", "assignments")),
        ("worker", "heartbeats"),
        ("worker", "acks"),
    ],
)
async def test_what_is_not_written_or_read_there_costs_no_other_group(
    connection: KafkaConnection, topics: TopicNames, monkeypatch: pytest.MonkeyPatch, whose: str, what: str
) -> None:
    theirs = places(topics, SILENT)
    assert not set(theirs.values()) & set(places(topics, WELL).values())
    apart = replace(connection, client_id="apart")
    connections = {"coordinator": connection, "worker": connection} | {whose: apart}
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(led_apart(monkeypatch, apart, {theirs[what]}))
        local = await stack.enter_async_context(LocalCoordinator())
        await stack.enter_async_context(exchanging(local, connections["coordinator"], topics))
        told = {group: KafkaTransport(connections["worker"], prefix=topics.prefix) for group in (SILENT, WELL)}
        for group, transport in told.items():
            await declare(local, group, session_timeout_ms=30_000)
            holder = Holder()
            await stack.enter_async_context(
                Member("http://kafka", group, holder, transport=transport, new_member_id=lambda: "m")
            )
            await runs(holder)
        leader.hangs = True
        # It stands still there, and then there is something for others.
        await declare(local, SILENT, revision=1, session_timeout_ms=60_000)
        await until(lambda: leader.held)
        await declare(local, WELL, revision=1, session_timeout_ms=60_000)
        await goes_on(told[WELL], WELL)
        leader.hangs = False
        await goes_on(told[SILENT], SILENT)


async def goes_on(told: KafkaTransport, group: str) -> None:
    """Wait until the member of a group has its news, and some heartbeats acknowledged."""
    member = f"{group}/m"
    await until(lambda: (told._latest(member)[1] or {}).get("session_timeout_ms") == 60_000)
    acked = told._acked.get(member, 0)
    await until(lambda: told._acked.get(member, 0) > acked + 5)


@pytest.mark.parametrize("what", ["heartbeats", "acks", "assignments"])
async def test_a_coordinator_and_a_member_begin_while_a_leader_is_silent(
    connection: KafkaConnection, topics: TopicNames, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Where their own partitions end is asked of the leaders of these."""
    for module in ("batonpass.kafka.exchange", "batonpass.worker.kafka.connection"):
        monkeypatch.setattr(f"{module}.PROTOCOL_TIMEOUT_MS", 1_500)
    theirs = places(topics, SILENT)
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(led_apart(monkeypatch, connection, {theirs[what]}))
        leader.hangs = True
        local = await stack.enter_async_context(LocalCoordinator())
        await stack.enter_async_context(exchanging(local, connection, topics))
        await declare(local, WELL)
        holder = Holder()
        transport = KafkaTransport(connection, prefix=topics.prefix)
        async with Member("http://kafka", WELL, holder, transport=transport, new_member_id=lambda: "m"):
            await runs(holder)
            assert leader.held
        leader.hangs = False
