"""Nothing stays open, and no error unseen, when clients are closed while their broker is away, or were fenced."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
import pytest
from aiokafka.errors import ProducerFenced
from tests.proof.proxy import Proxy
from tests.waiting import until
from tests.worker.kafka.test_late_requests import run
from tests.worker.kafka.totals import Job, NewTopics, Owner, new_job

from batonpass.kafka.events import EventPublisher
from batonpass.kafka.exchange import settings_of
from batonpass.kafka.topics import make_topics
from batonpass.worker.kafka import ActiveOptions, KafkaConnection
from batonpass.worker.kafka.clients import Clients, Closing, Terms
from batonpass.worker.kafka.connection import TopicNames
from batonpass.worker.kafka.stores import MemoryStore
from batonpass.worker.kafka.transport import KafkaTransport
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"
OPTIONS = ActiveOptions(input_options={"retry_backoff_ms": 5_000}, changelog_options={"retry_backoff_ms": 5_000})
"""Whoever closes meets with a read that waits to be tried again."""


@pytest.fixture(autouse=True)
async def _nothing_is_reported(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Look at what asyncio reports of clients, futures and asyncio tasks once nobody refers to them any more.

    A stream keeps the error with which its connection was reset. Whether asyncio reports that depends on which of the
    two the collector ends first. Errors of clients have other types.
    """
    caplog.set_level(logging.CRITICAL, "aiokafka")
    found: list[object] = []

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), ConnectionResetError):
            found.append((context["message"], context.get("exception")))

    asyncio.get_running_loop().set_exception_handler(note)
    yield
    gc.collect()
    assert found == []


def clients_of(job: Job) -> Clients:
    """Return what an active of the job works with."""
    return Clients(Terms(job.connection, job.group, OPTIONS, Closing()), TASK, job.subtopology("a"), 0)


async def begin(clients: Clients, output: str) -> asyncio.Future[object]:
    """Own the task, read its input, and write a record in a transaction; the record lingers."""
    await clients.connect()
    await clients.fence()
    await clients.find_input()
    await clients.input.getmany(timeout_ms=1_000)
    await clients.producer.begin_transaction()
    written: asyncio.Future[object] = await clients.producer.send(output, b"1", partition=0)
    return written


async def go_away(proxy: Proxy) -> None:
    """Let nobody reach the broker, and give everybody the time to notice."""
    proxy.refuses = True
    proxy.cut()
    await asyncio.sleep(0.5)


def behind(proxy: Proxy, job: Job) -> Job:
    """Return the job as those see it who reach its broker through the proxy."""
    return replace(job, connection=KafkaConnection(bootstrap_servers=f"127.0.0.1:{proxy.port}"))


async def test_clients_of_a_broker_that_is_away_are_closed_at_once(servers: str, tmp_path: Path) -> None:
    """Neither a read that waits to be tried again nor a record that cannot be sent keeps any of them open."""
    async with run(servers, tmp_path, lambda _: None) as met:
        clients = clients_of(behind(met.proxy, met.job))
        written = await begin(clients, met.job.output)
        # Whoever sends a record is told what came of it; nobody else may be left with an error.
        written.add_done_callback(lambda done: done.cancelled() or done.exception())
        await go_away(met.proxy)
        await asyncio.wait_for(clients.close(), 4)
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, within_s=12)


async def test_a_copy_s_state_is_closed_while_the_broker_is_away(servers: str, tmp_path: Path) -> None:
    async with run(servers, tmp_path, lambda _: None) as met:
        closed: list[bool] = []

        class Seen(MemoryStore):
            def close(self) -> None:
                closed.append(True)

        copy = Owner(
            behind(met.proxy, met.job).runtime(tmp_path / "a", "a", options=OPTIONS, open_store=lambda _: Seen())
        )
        copy.hold(TASK, Role.STANDBY)
        await until(lambda: copy.is_caught_up(TASK))
        await go_away(met.proxy)
        await copy.close()
        assert closed == [True]


async def test_a_fenced_producer_s_errors_are_not_reported_again(bootstrap: str, new_topic: NewTopics) -> None:
    """Its owner has met one of them, and asks for no other."""
    job = await new_job(bootstrap, new_topic)
    former, present = clients_of(job), clients_of(job)
    written = await begin(former, job.output)
    await present.connect()
    await present.fence()
    former.producer.announce([])
    await former.producer.write_out()
    with pytest.raises(ProducerFenced):
        await written
    await former.close()
    await present.close()


class Outbox:
    """Has an event after each that was passed on."""

    def __init__(self) -> None:
        self.passed_on = 0

    async def next(self, _limit: int) -> list[Any]:
        """Return the next one."""
        return [SimpleNamespace(group="g", position=self.passed_on + 1)]

    async def passed(self, position: int) -> None:
        """Note that it was passed on."""
        self.passed_on = position


async def test_events_that_cannot_be_passed_on_keep_no_coordinator(servers: str, tmp_path: Path) -> None:
    async with run(servers, tmp_path, lambda _: None) as met:
        outbox, connection = Outbox(), behind(met.proxy, met.job).connection
        publisher = EventPublisher(outbox, connection, body=lambda event: {"n": event.position}, prefix=met.job.group)
        publishing = asyncio.ensure_future(publisher.run())
        await until(lambda: outbox.passed_on)
        await go_away(met.proxy)
        publishing.cancel()
        assert await asyncio.wait([publishing], timeout=4) == ({publishing}, set())


async def test_a_heartbeat_that_cannot_be_written_keeps_no_member(servers: str, tmp_path: Path) -> None:
    async with run(servers, tmp_path, lambda _: None) as met:
        connection, topics = behind(met.proxy, met.job).connection, TopicNames(met.job.group)
        await make_topics(connection.client_options(), settings_of(topics))
        transport = KafkaTransport(connection, prefix=met.job.group)
        beat = httpx.Request("POST", "http://kafka/v1/groups/g/members/m/heartbeat", json={"seq": 1, "member_epoch": 1})
        for is_away in (False, True):
            if is_away:
                await go_away(met.proxy)
            beating = asyncio.ensure_future(transport.handle_async_request(beat))
            await asyncio.wait([beating], timeout=1)
            beating.cancel()
        await asyncio.wait_for(transport.aclose(), 4)
