"""A broker that is killed under load, and stays away for longer than a session: all goes on from where it was."""

import asyncio
import functools
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from tests.kafka.cluster import known_to_broker, topics_of_a_job
from tests.waiting import until
from tests.worker.kafka.test_group import (
    ALL_TASKS,
    PARTITIONS,
    Load,
    accounted,
    actives_of,
    declare,
    lost_by_the_broker,
    processed,
    worker,
)
from tests.worker.kafka.totals import Job

from batonpass.core.state.ids import GroupId
from batonpass.kafka.broker import LocalBroker
from batonpass.kafka.exchange import Exchange
from batonpass.kafka.topics import TopicReader
from batonpass.kafka.watch import ClusterWatch
from batonpass.runtime.ports import Ownership
from batonpass.runtime.unheard import Unheard
from batonpass.sockets import free_port
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.kafka.transport import KafkaTransport
from batonpass.worker.testing import LocalCoordinator

pytestmark = pytest.mark.needs("kafka")
SESSION_MS = 6_000


async def make_job(bootstrap: str) -> Job:
    """Make the topics of a job on a broker of its own."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    names = ["orders", "totals", "store"]
    await admin.create_topics(topics_of_a_job(names, PARTITIONS))
    for name in names:
        await known_to_broker(admin, name, PARTITIONS)
    await admin.close()
    return Job(KafkaConnection(bootstrap_servers=bootstrap), "orders", *names)


async def kill(broker: LocalBroker) -> None:
    """End the broker as the machine's loss of power does, but for what the system has of its files."""
    os.kill(broker.pid, signal.SIGKILL)
    await until(lambda: not broker.is_running)


@asynccontextmanager
async def kafka_side(coordinator: LocalCoordinator, job: Job, away: list[str | None]) -> AsyncIterator[Exchange]:
    """Read ends, and carry the protocol, for a coordinator; ``away`` gets why the broker cannot be asked."""
    unheard = Unheard(coordinator.coordinator, told=set[GroupId]().add)
    exchange = Exchange(coordinator.coordinator, job.connection, ownership=Ownership(), heard=unheard.heard)
    unheard.line = exchange
    watch = ClusterWatch(coordinator.coordinator, TopicReader(job.connection), interval_ms=200, away=away.append)
    running = [asyncio.create_task(one.run()) for one in (exchange, unheard, watch)]
    await until(lambda: exchange.is_connected)
    yield exchange
    for one in running:
        one.cancel()
    await asyncio.wait(running)


async def owners(coordinator: LocalCoordinator, job: Job) -> dict[str, str | None]:
    """Return who runs what, as the coordinator has it."""
    group, _ = await coordinator.coordinator.look(GroupId(job.group))
    return {task: group.tasks[task].owner for task in sorted(group.tasks)}


async def test_a_broker_that_is_killed_twice_costs_no_owner_a_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it is away for longer than a session."""
    # Every client says so many times a second that the broker is away.
    caplog.set_level(logging.CRITICAL, "aiokafka")
    caplog.set_level(logging.WARNING, "batonpass")
    with LocalBroker(tmp_path / "broker", port=free_port(), heap_mb=256) as broker:
        job, away = await make_job(broker.bootstrap_servers), list[str | None]()
        async with (
            LocalCoordinator() as coordinator,
            kafka_side(coordinator, job, away),
            Load(job, every_s=0.05) as load,
        ):
            await declare(
                coordinator, job, num_standby_replicas=1, session_timeout_ms=SESSION_MS, kafka_heartbeats=True
            )
            by_kafka = KafkaTransport(job.connection)
            async with (
                worker(coordinator, job, tmp_path, "http") as (_, a),
                worker(coordinator, job, tmp_path, "kafka", transport=by_kafka) as (_, b),
            ):
                await coordinator.at_rest(job.group)
                before = await owners(coordinator, job)
                assert sorted(actives_of(a) + actives_of(b)) == ALL_TASKS
                assert set(before.values()) == {"http", "kafka"}
                generation = (await coordinator.describe(job.group))["generation"]
                for away_s in (0.0, SESSION_MS / 1_000 + 1.5):
                    await until(lambda: min(load.counts) > 20)
                    away.clear()
                    await kill(broker)
                    await until(lambda: away)
                    await asyncio.sleep(away_s)
                    assert await owners(coordinator, job) == before
                    await asyncio.to_thread(broker.start)
                    await answers(broker.bootstrap_servers)
                    await until(lambda: away[-1] is None)
                    await until(functools.partial(has_grown, load, list(load.counts)))
                await load.stop()
                await processed(job, load, [a, b])
                assert await owners(coordinator, job) == before
                assert (await coordinator.describe(job.group))["generation"] == generation
        await accounted(job, load, lost=lost_by_the_broker(caplog.text, job))


def has_grown(load: Load, before: list[int]) -> bool:
    """Whether every partition has some more records than it had."""
    return all(now > then + 20 for now, then in zip(load.counts, before, strict=True))


async def answers(bootstrap: str) -> None:
    """Wait until a broker that was started again answers."""
    async with asyncio.timeout(60):
        while True:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            try:
                await admin.start()
            except OSError:
                await asyncio.sleep(0.1)
            else:
                return
            finally:
                await admin.close()
