"""Topics that are not there: the worker says so, the task counts as failed, and goes on once they have been made."""

import asyncio
import dataclasses
import logging
import uuid
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from tests.kafka.cluster import known_to_broker
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, Owner, check_exactly_once, expected, new_job, read, write

from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId, TaskId
from batonpass.core.state.model import ActiveState
from batonpass.worker import Member, OnLeaseLost
from batonpass.worker.kafka import ActiveOptions, Context, MissingPartition, Process
from batonpass.worker.protocol import Role
from batonpass.worker.testing import LocalCoordinator

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"
QUICK = ActiveOptions(retry_ms=50, missing_topic_ms=300)


async def make(bootstrap: str, topic: str) -> None:
    """Make a topic of a given name."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": "compact"})])
    await known_to_broker(admin, topic, 1)
    await admin.close()


def to_the_second(job: Job) -> Process:
    """Return a function that adds up, and writes to partition 1 of the output."""

    async def add(record: ConsumerRecord, context: Context) -> None:
        totals = context.store("totals")
        totals.put(record.key, str(int(totals.get(record.key) or 0) + int(record.value)).encode())
        await context.send(job.output, record.value, partition=1)

    return add


async def change(bootstrap: str, topic: str, partitions: int) -> None:
    """Give a topic more partitions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_partitions({topic: NewPartitions(partitions)})
    await known_to_broker(admin, topic, partitions)
    await admin.close()


async def test_a_missing_changelog_is_a_failed_task_until_it_is_made(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = dataclasses.replace(await new_job(bootstrap, new_topic), changelog=f"store-{uuid.uuid4().hex[:8]}")
    await write(job, 20)
    runtime = job.runtime(tmp_path / "a", "a", options=QUICK)
    part = {"id": "0", "partitions": 1, "source_topics": [job.source], "changelog_topics": [job.changelog]}
    body = to_json({"topology": {"subtopologies": [part]}, "config": {"initial_rebalance_delay_ms": 0}})
    group_id = GroupId(job.group)
    async with LocalCoordinator() as coordinator:
        await coordinator.coordinator.ask(group_id, read_declaration(group_id, body, if_match=None)[0])

        async def has_failed() -> bool:
            group, _ = await coordinator.coordinator.look(group_id)
            return group.tasks[TaskId(TASK)].state is ActiveState.FAILED

        member = Member(
            coordinator.url, job.group, runtime,
            transport=coordinator.transport(), on_lease_lost=OnLeaseLost.CONTINUE, retry_failed_ms=200,
        )  # fmt: skip
        async with member:
            await until(has_failed)
            # Not in the text, which is in whatever form a library has given to all log lines of this process.
            errors = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
            assert errors
            assert all(error.startswith(f"topic {job.changelog} does not exist") for error in errors)
            await make(bootstrap, job.changelog)
            await coordinator.at_rest(job.group)
            store = runtime.store(TASK, "totals")
            assert store is not None
            await until(lambda: dict(store.scan()) == expected(20))
    await check_exactly_once(job, 20)


async def test_a_changelog_with_too_few_partitions_is_said_once(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "batonpass.worker.kafka")
    job = dataclasses.replace(
        await new_job(bootstrap, new_topic, partitions=2), changelog=await new_topic("store", cleanup_policy="compact")
    )
    await write(job, 20, partition=1)
    patient = dataclasses.replace(QUICK, missing_topic_ms=60_000)
    active = Owner(job.runtime(tmp_path / "a", "a", options=patient))
    standby = Owner(job.runtime(tmp_path / "b", "b", options=patient))
    active.hold("0_1", Role.ACTIVE)
    standby.hold("0_1", Role.STANDBY)
    lacking = (
        f"changelog {job.changelog} has 1 partitions, and no partition 1",
        f"and a changelog has another number ({job.changelog} has 1): make it with 2",
    )
    await until(lambda: [caplog.text.count(each) for each in lacking] == [1, 1])
    await asyncio.sleep(1)
    assert [caplog.text.count(each) for each in lacking] == [1, 1]
    assert active.states == []
    assert lacking[1] in active.progressed["0_1"].detail
    assert standby.progressed == {}
    await change(bootstrap, job.changelog, 2)
    await until(lambda: active.totals("0_1") == expected(20))
    await until(lambda: standby.totals("0_1") == expected(20))
    await standby.close()
    await active.give_up("0_1")
    await check_exactly_once(job, 20, partition=1)


async def test_no_record_is_passed_over_for_an_output_that_lacks_a_partition(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 5)
    a = Owner(
        job.runtime(tmp_path, "a", options=dataclasses.replace(QUICK, on_error="skip"), process=to_the_second(job))
    )
    a.hold(TASK, Role.ACTIVE)
    with pytest.raises(MissingPartition, match=f"topic {job.output} has 1 partitions, and no partition 1"):
        await a.tasks[TASK][1]
    await change(bootstrap, job.output, 2)
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(5))
    await a.close()
    assert [record.value for record in await read(job, job.output, partition=1)] == [b"%d" % n for n in range(5)]


async def test_what_waits_for_a_partition_that_is_gone_says_so(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = dataclasses.replace(await new_job(bootstrap, new_topic), output=await new_topic("totals", partitions=2))
    await write(job, 5)
    a = Owner(job.runtime(tmp_path, "a", options=QUICK, process=to_the_second(job)))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(5))
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.delete_topics([job.output])
    await admin.close()
    await asyncio.sleep(1)
    await make(bootstrap, job.output)
    await write(job, 5, first=5)
    with pytest.raises(MissingPartition, match=f"topic {job.output} has .*no partition 1"):
        await a.tasks[TASK][1]
    await a.close()


async def test_partitions_that_a_source_gets_are_told(
    bootstrap: str,
    new_topic: NewTopics,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no coordinator reads the cluster, their records were read by nobody, without a word."""
    monkeypatch.setattr("batonpass.worker.kafka.active.TOPICS_LOOK_S", 0.1)
    job = await new_job(bootstrap, new_topic, partitions=2)
    await write(job, 5)
    a = Owner(job.runtime(tmp_path, "a"))
    for task in ("0_0", "0_1"):
        a.hold(task, Role.ACTIVE)
    await until(lambda: a.states.count("running") == 2)
    await change(bootstrap, job.source, 4)
    await until(lambda: f"topic {job.source} has 4 partitions by now, and had 2" in caplog.text)
    await write(job, 5, first=5)
    await until(lambda: a.totals() == expected(10))
    assert caplog.text.count("partitions by now") == 1
    await a.close()
