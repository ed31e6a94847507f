"""Kafka's own end-to-end scenarios with real workers; those that need nothing but load are in `test_group`.

They are HighAvailabilityTaskAssignorIntegrationTest (3.5) and the lifecycle tests of PR 23608 and PR 23620 (3.9).
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from tests.waiting import until
from tests.worker.kafka.test_group import (
    PARTITIONS,
    Load,
    accounted,
    actives,
    actives_of,
    declare,
    longest_gap_ms,
    processed,
)
from tests.worker.kafka.totals import Job, NewTopics, new_job, read

from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import GroupDeclaration
from batonpass.core.state.replies import Declared
from batonpass.worker import Member, OnLeaseLost, Progress, Task
from batonpass.worker.kafka import ActiveOptions, KafkaRuntime, OpenStore, RocksStore, in_memory
from batonpass.worker.testing import LocalCoordinator

pytestmark = pytest.mark.needs("kafka")
RECORDS = 250
"""For each of two partitions, a kilobyte each, under keys of their own, so that each of them has to be restored."""

BEHIND = 50


class Behind(KafkaRuntime):
    """A runtime whose copies have everything, and say that they lack some of it."""

    async def on_standby(self, task: Task) -> None:
        """Say less than is there."""
        say = task.progress

        def say_less(progress: Progress) -> None:
            at = progress.position
            say(progress if at is None else replace(progress, position=max(0, at - BEHIND)))

        task.progress = say_less  # type: ignore[method-assign]
        await super().on_standby(task)


@asynccontextmanager
async def member(
    coordinator: LocalCoordinator, job: Job, name: str, runtime: KafkaRuntime
) -> AsyncIterator[KafkaRuntime]:
    """Run a worker."""
    made = Member(
        coordinator.url,
        job.group,
        runtime,
        transport=coordinator.transport(),
        on_lease_lost=OnLeaseLost.CONTINUE,
        new_member_id=lambda: name,
    )
    async with made:
        yield runtime


@pytest.mark.parametrize("open_store", [in_memory, RocksStore])
async def test_what_a_warmup_restored_is_used_when_it_is_promoted(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, open_store: OpenStore
) -> None:
    """Scale-out from one to two (3.5): the promoted active restores nothing."""
    job = await new_job(bootstrap, new_topic, partitions=2)
    options = ActiveOptions(commit_interval_ms=100)
    async with LocalCoordinator() as coordinator:
        config = {"acceptable_recovery_lag": 0, "max_warmup_replicas": 2, "probing_rebalance_interval_ms": 60_000}
        topology = {
            "id": "0", "partitions": 2, "source_topics": [job.source], "changelog_topics": [job.changelog],
        }  # fmt: skip
        body = to_json({"topology": {"subtopologies": [topology]}, "config": {"rebalance_batch_ms": 0} | config})
        group_id = GroupId(job.group)
        await coordinator.coordinator.ask(group_id, read_declaration(group_id, body, if_match=None)[0])
        first = job.runtime(tmp_path / "a", "a", open_store=open_store, options=options)
        async with member(coordinator, job, "a", first):
            await write_kilobytes(job)
            await until(lambda: all(len(totals(first, f"0_{part}")) == RECORDS for part in range(2)))
            begun = time.monotonic()
            second = job.runtime(tmp_path / "b", "b", open_store=open_store, options=options)
            async with member(coordinator, job, "b", second):
                seen = await coordinator.describe(job.group)
                assert not seen["at_rest"]
                assert actives(seen, "b") == []
                rested = await coordinator.at_rest(job.group)
                # Kafka's own test allows 120 s with the same settings.
                assert time.monotonic() - begun < 60
                [moved] = actives(rested, "b")
                assert second.records_read(moved) == RECORDS
                assert second.restored(moved) == 0
                assert len(totals(second, moved)) == RECORDS


def position_of(runtime: KafkaRuntime, partition: int) -> int:
    """Return how long a task's changelog was when it was last written to."""
    return sum((runtime.positions(f"0_{partition}") or {}).values())


def totals(runtime: KafkaRuntime, task: str) -> dict[bytes, bytes]:
    """Return a task's store."""
    store = runtime.store(task, "totals")
    return {} if store is None else dict(store.scan())


async def write_kilobytes(job: Job) -> None:
    """Write the input: numbers of a thousand digits, each to a key of its own."""
    async with AIOKafkaProducer(**job.connection.client_options(), linger_ms=5) as producer:
        for number in range(RECORDS):
            for partition in range(2):
                key = f"key-{number}".encode()
                await producer.send(job.source, b"0" * 999 + b"1", key=key, partition=partition)


@asynccontextmanager
async def far_ahead(coordinator: LocalCoordinator, job: Job, folder: Path) -> AsyncIterator[KafkaRuntime]:
    """Declare the job and run `a` alone, from when its changelogs are so long that nobody catches up at once."""
    await declare(coordinator, job, acceptable_recovery_lag=BEHIND // 2)
    async with member(coordinator, job, "a", job.runtime(folder / "a", "a")) as a:
        await until(lambda: all(b"k0" in totals(a, f"0_{part}") for part in range(PARTITIONS)))
        await until(lambda: all(position_of(a, part) > 2 * BEHIND for part in range(PARTITIONS)))
        yield a


@asynccontextmanager
async def far_behind(coordinator: LocalCoordinator, job: Job, folder: Path) -> AsyncIterator[KafkaRuntime]:
    """Run `b` beside `a`, from when it has the copies that never say that they have caught up."""
    runtime = Behind(job.connection, job.group, {"0": job.subtopology("b")}, folder=folder / "b")
    async with member(coordinator, job, "b", runtime) as b:
        await until(lambda: sum(b.positions(f"0_{part}") is not None for part in range(PARTITIONS)) == 2)
        yield b


async def test_a_raised_acceptable_lag_promotes_without_a_restart(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """Copies further behind than is acceptable wait; then they are promoted as they are (3.9)."""
    job = await new_job(bootstrap, new_topic, partitions=PARTITIONS)
    async with LocalCoordinator() as coordinator, Load(job) as load:
        async with far_ahead(coordinator, job, tmp_path) as a, far_behind(coordinator, job, tmp_path) as b:
            await asyncio.sleep(5)
            assert actives_of(b) == []
            assert (await coordinator.describe(job.group))["warmups"] == 2
            config = {"acceptable_recovery_lag": 4 * BEHIND}
            group_id, (group, _) = GroupId(job.group), await coordinator.coordinator.look(GroupId(job.group))
            change = GroupDeclaration(group_id, None, config, group.revision)
            assert isinstance(await coordinator.coordinator.ask(group_id, change), Declared)
            await until(lambda: len(actives_of(b)) == 2)
            await coordinator.at_rest(job.group)
            await load.stop()
            await processed(job, load, [a, b])
        await accounted(job, load)


async def test_scale_in_while_warming_stops_no_owner_and_without_copies_restores_everything(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """One of Kafka's lifecycle tests (3.9)."""
    job = await new_job(bootstrap, new_topic, partitions=PARTITIONS)
    async with LocalCoordinator() as coordinator, Load(job) as load:
        async with far_ahead(coordinator, job, tmp_path) as a:
            async with far_behind(coordinator, job, tmp_path):
                pass
            rested = await coordinator.at_rest(job.group)
            assert rested["warmups"] == 0
            await asyncio.sleep(0.5)
            await load.stop()
            await processed(job, load, [a])
        outputs = await accounted(job, load)
        # Nobody but the owner ever wrote, and it never paused for longer than a busy machine makes it.
        assert {owner for written in outputs.values() for owner, _ in written} == {"a"}
        assert max(longest_gap_ms(written) for written in outputs.values()) < 3_000
        # The counterfactual: nobody was warm, so whoever comes next reads every record of the changelog.
        async with member(coordinator, job, "c", job.runtime(tmp_path / "c", "c")) as c:
            await until(lambda: len(actives_of(c)) == PARTITIONS)
            await coordinator.at_rest(job.group)
            for partition in range(PARTITIONS):
                there = await read(job, job.changelog, partition=partition)
                assert c.restored(f"0_{partition}") == len(there) > 10
