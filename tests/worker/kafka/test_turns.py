"""However many tasks a worker has, one of them at a time keeps its event loop busy: heartbeats come between any two."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, Owner, new_job, write

from batonpass.core.state.ids import task_id
from batonpass.worker.kafka import Context, MemoryStore
from batonpass.worker.kafka.stores import Change
from batonpass.worker.protocol import Role

TASKS = 8
LONG_S = 0.006


class Loop:
    """Counts the rounds of the event loop, and in which of them something took long."""

    def __init__(self) -> None:
        self.round = 0
        self.long: list[int] = []
        self._counting = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            self.round += 1
            await asyncio.sleep(0)

    def take_long(self) -> None:
        """Keep the loop busy for longer than a turn."""
        time.sleep(LONG_S)
        self.long.append(self.round)

    async def end(self) -> None:
        """Stop counting; nothing took long in the same round as something else."""
        self._counting.cancel()
        await asyncio.wait([self._counting])
        assert len(set(self.long)) == len(self.long)


class Slow(MemoryStore):
    """A store that takes long to open, and to take records; it has read its changelog from the beginning."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop
        self.count = 0
        loop.take_long()

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Apply."""
        changed = list(changes)
        super().apply(changed, position)
        if changed:
            self.count += len(changed)
            self._loop.take_long()


@pytest.fixture
async def job(bootstrap: str, new_topic: NewTopics) -> Job:
    return await new_job(bootstrap, new_topic, partitions=TASKS)


async def test_copies_are_opened_and_read_one_after_another(job: Job, tmp_path: Path) -> None:
    async with AIOKafkaProducer(**job.connection.client_options(), linger_ms=5) as producer:
        for number in range(100 * TASKS):
            await producer.send(job.changelog, b"v", key=b"%d" % number, partition=number % TASKS)
        await producer.flush()
    loop, stores = Loop(), list[Slow]()

    def opened(_: Path) -> Slow:
        stores.append(Slow(loop))
        return stores[-1]

    one = Owner(job.runtime(tmp_path, "a", open_store=opened))
    for number in range(TASKS):
        one.hold(task_id("0", number), Role.STANDBY)
    await until(lambda: [store.count for store in stores] == [100] * TASKS)
    await loop.end()
    await one.close()


async def test_state_on_disk_is_looked_at_one_after_another(job: Job, tmp_path: Path) -> None:
    for number in range(TASKS):
        (tmp_path / task_id("0", number)).mkdir()
    loop = Loop()
    runtime = job.runtime(tmp_path, "a", open_store=lambda _: Slow(loop))
    await runtime.on_disk()
    assert len(loop.long) >= TASKS
    await loop.end()
    await runtime.on_close()


async def test_records_of_many_tasks_are_processed_one_after_another(job: Job, tmp_path: Path) -> None:
    for number in range(TASKS):
        await write(job, 10, partition=number)
    loop = Loop()

    async def process(_: ConsumerRecord, __: Context) -> None:
        loop.take_long()

    one = Owner(job.runtime(tmp_path, "a", open_store=lambda _: MemoryStore(), process=process))
    for number in range(TASKS):
        one.hold(task_id("0", number), Role.ACTIVE)
    await until(lambda: len(loop.long) == 10 * TASKS)
    await loop.end()
    await one.close()
