"""A broker that goes away under load: nothing moves that has an owner, and when it is back everything goes on."""

import asyncio
import logging
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
from batonpass.kafka.topics import TopicReader
from batonpass.kafka.watch import ClusterWatch
from batonpass.sockets import free_port
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.testing import LocalCoordinator

pytestmark = pytest.mark.needs("kafka")


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


async def test_owners_and_generation_stay_while_the_broker_is_away_for_seconds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Every client says so many times a second that the broker is away.
    caplog.set_level(logging.CRITICAL, "aiokafka")
    caplog.set_level(logging.WARNING, "batonpass")
    port = free_port()
    with LocalBroker(tmp_path / "broker", port=port, heap_mb=256) as broker:
        job = await make_job(broker.bootstrap_servers)
        async with LocalCoordinator() as coordinator, Load(job, every_s=0.05) as load:
            await declare(coordinator, job, num_standby_replicas=1)
            reader = TopicReader(job.connection)
            reasons: list[str | None] = []
            watching = asyncio.create_task(
                ClusterWatch(coordinator.coordinator, reader, interval_ms=200, away=reasons.append).run()
            )
            async with (
                worker(coordinator, job, tmp_path, "a") as (_, a),
                worker(coordinator, job, tmp_path, "b") as (_, b),
            ):
                await coordinator.at_rest(job.group)
                before = (actives_of(a), actives_of(b))
                assert sorted(before[0] + before[1]) == ALL_TASKS
                generation = (await coordinator.describe(job.group))["generation"]
                await asyncio.to_thread(broker.stop)
                await until(lambda: reasons)
                group, _ = await coordinator.coordinator.look(GroupId(job.group))
                assert {task: group.tasks[task].owner for task in group.tasks} == {
                    task: owner for owner, tasks in zip("ab", before, strict=True) for task in tasks
                }
                await asyncio.to_thread(broker.start)
                await until(lambda: reasons[-1] is None)
                await load.stop()
                await processed(job, load, [a, b])
                assert (actives_of(a), actives_of(b)) == before
                assert (await coordinator.describe(job.group))["generation"] == generation
            watching.cancel()
            await asyncio.wait([watching])
            assert [reason is None for reason in reasons] == [False, True]
        await accounted(job, load, lost=lost_by_the_broker(caplog.text, job))
