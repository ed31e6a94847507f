"""Several workers of a job in virtual time; the same story gives the same on a real broker."""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from tests.waiting import until

from batonpass.worker import Member, OnLeaseLost
from batonpass.worker.declaring import declare
from batonpass.worker.kafka import INT, TEXT, ActiveOptions, App, Context, KafkaConnection, KafkaRuntime, Record, State
from batonpass.worker.kafka.app import declared
from batonpass.worker.options import Options
from batonpass.worker.testing import Fleet, LocalCoordinator, run

QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000, "acceptable_recovery_lag": 10}
MANY = 60


class Sums:
    """Sums by key, and a count of all of them in tasks of its own; topics and group have names of their own."""

    def __init__(self, name: str) -> None:
        self.app = App(name, config=QUICK, options=ActiveOptions(records_max=1))
        self.orders = self.app.topic(f"{name}-orders", key=TEXT, value=INT, partitions=1)
        self.totals = self.app.topic(f"{name}-totals", key=TEXT, value=INT, partitions=1)
        self.counts = self.app.topic(f"{name}-counts", key=TEXT, value=INT, partitions=1)
        self.sums = self.app.table("sums", key=TEXT, value=INT)
        self.seen = self.app.table("seen", key=TEXT, value=INT, subtopology="1")
        self.pace_s = 0.0

        @self.app.process(self.orders, state=self.sums)
        async def add(order: Record[str, int], context: Context, total: State[int]) -> None:
            await asyncio.sleep(self.pace_s)
            total.put(total.get(0) + order.value)
            await context.send(self.totals, total.get(0), key=order.key, timestamp_ms=order.timestamp_ms)

        @self.app.process(self.totals, state=self.seen, subtopology="1")
        async def count(total: Record[str, int], context: Context, seen: State[int]) -> None:
            seen.put(seen.get(0) + 1)
            await context.send(self.counts, seen.get(0), key=total.key, timestamp_ms=total.timestamp_ms)


async def story(job: Sums, fleet: Any, *, kills: bool) -> list[list[tuple[str, int, int]]]:
    """Hand the task over in the middle, warm or by a death; return what was written."""
    for number in range(MANY):
        fleet.send(job.orders, number, key=f"k{number % 3}", timestamp_ms=1_000 + number)
    await fleet.until(lambda: len(fleet.records(job.totals)) > MANY // 3)
    first = fleet.owner()
    await (fleet.kill(first) if kills else fleet.drain(first))
    in_the_middle = len(fleet.records(job.totals))
    await fleet.processed()
    assert in_the_middle < MANY
    assert fleet.owner() != first
    return [
        [(one.key, one.value, one.timestamp_ms) for one in fleet.records(topic)] for topic in (job.totals, job.counts)
    ]


async def without_a_fleet(job: Sums) -> list[list[tuple[str, int, int]]]:
    test = job.app.test()
    for number in range(MANY):
        await test.send(job.orders, number, key=f"k{number % 3}", timestamp_ms=1_000 + number)
    return [
        [(one.key, one.value, one.timestamp_ms) for one in test.records(topic)] for topic in (job.totals, job.counts)
    ]


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("kills", [False, True])
def test_a_task_that_is_handed_over_in_the_middle_counts_each_record_once(standbys: int, *, kills: bool) -> None:
    async def trial() -> None:
        job = Sums("orders")
        async with Fleet(job.app, num_standby_replicas=standbys) as fleet:
            assert await story(job, fleet, kills=kills) == await without_a_fleet(job)
            assert dict(fleet.store(job.sums).scan()) == {f"k{key}": sum(range(key, MANY, 3)) for key in range(3)}

    run(trial())


def test_a_worker_that_was_fenced_commits_nothing() -> None:
    """The coordinator hears nothing of it for a while, and another one has the task meanwhile."""

    async def trial() -> None:
        job = Sums("orders")
        async with Fleet(job.app, num_standby_replicas=1) as fleet:
            first = fleet.owner()
            fleet.lines[first].cut()
            for number in range(MANY):
                fleet.send(job.orders, number, key=f"k{number % 3}", timestamp_ms=1_000 + number)
            await fleet.until(lambda: fleet.tokens["0"] > 1)
            await fleet.processed()
            fleet.lines[first].mend()
            await fleet.at_rest()
            assert [len(fleet.records(topic)) for topic in (job.totals, job.counts)] == [MANY, MANY]

    run(trial())


def test_workers_come_and_go_and_time_passes_by_the_clock() -> None:
    async def trial() -> None:
        job, calls = Sums("orders"), list[int]()

        @job.app.punctuate(60_000, wall_clock=True)
        async def tell(at_ms: int, context: Context) -> None:
            calls.append(at_ms)
            await context.send(job.counts, at_ms, key="clock", timestamp_ms=at_ms)

        async with Fleet(job.app) as fleet:
            first = fleet.owner()
            await fleet.drain(first)
            assert fleet.owner() != first
            await fleet.undrain(first)
            await fleet.kill(first)
            await fleet.start(first)
            calls.clear()
            await fleet.until(lambda: len(calls) == 3)
            assert calls[2] - calls[0] == 120_000
            assert {one.value for one in fleet.records(job.counts)} >= {*calls[:2]}

    run(trial())


async def test_a_fleet_wants_virtual_time() -> None:
    with pytest.raises(TypeError, match=r"run the test with batonpass\.worker\.testing\.run"):
        async with Fleet(Sums("orders").app):
            pass


class OnKafka:
    """The same fleet on a broker: its workers have the real runtime."""

    def __init__(self, job: Sums, bootstrap: str, folder: Path) -> None:
        self.job = job
        self.connection = KafkaConnection(bootstrap_servers=bootstrap)
        self.folder = folder
        self.members: dict[str, Member] = {}
        self.written: dict[str, list[Record[str, int]]] = {one.name: [] for one in (job.totals, job.counts)}
        self.waiting: list[tuple[str, bytes, bytes, int]] = []

    async def __aenter__(self) -> Self:
        self.stack = await AsyncExitStack().__aenter__()
        self.coordinator = await self.stack.enter_async_context(LocalCoordinator())
        self.producer = AIOKafkaProducer(**self.connection.client_options())
        parts = self.job.app.subtopologies()
        counts = await self.job.app._have_topics(parts, self.connection)
        await self.producer.start()
        self.reader = self.connection.consumer({"fetch_max_wait_ms": 50})
        await self.reader.start()
        self.reader.assign([TopicPartition(topic, 0) for topic in self.written])
        for partition in self.reader.assignment():
            self.reader.seek(partition, 0)
        await declare(
            [self.coordinator.url],
            self.job.app.group,
            declared(parts, counts),
            {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "num_standby_replicas": 1} | QUICK,
            Options(transport=self.coordinator.transport()),
        )
        for name in ("worker-0", "worker-1"):
            runtime = KafkaRuntime(
                self.connection, self.job.app.group, parts, folder=self.folder / name, options=self.job.app.options
            )
            self.members[name] = Member(
                self.coordinator.url,
                self.job.app.group,
                runtime,
                instance_id=name,
                on_lease_lost=OnLeaseLost.CONTINUE,
                transport=self.coordinator.transport(),
            )
            await self.members[name].__aenter__()
        await self.coordinator.at_rest(self.job.app.group)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.producer.stop()
        await self.reader.stop()
        for member in self.members.values():
            await member.close()
        await self.stack.aclose()

    def send(self, topic: Any, value: int, *, key: str, timestamp_ms: int) -> None:
        self.waiting.append((topic.name, key.encode(), b"%d" % value, timestamp_ms))

    async def look(self) -> None:
        for topic, key, value, at_ms in self.waiting:
            await self.producer.send(topic, value, key=key, timestamp_ms=at_ms)
        self.waiting = []
        await self.producer.flush()
        for partition, records in (await self.reader.getmany(timeout_ms=50)).items():
            # Both are written alike.
            self.written[partition.topic] += [self.job.totals.record(raw) for raw in records]

    async def until(self, condition: Callable[[], bool]) -> None:
        async def holds() -> bool:
            await self.look()
            return condition()

        await until(holds)

    def records(self, topic: Any) -> list[Record[str, int]]:
        return self.written[topic.name]

    def owner(self) -> str | None:
        tasks = {name: member.tasks.get("0_0") for name, member in self.members.items()}
        return next((name for name, task in tasks.items() if task is not None and task.role.value == "active"), None)

    async def kill(self, worker: str) -> None:
        await self.members.pop(worker).close()

    async def drain(self, worker: str) -> None:
        self.members[worker].drain()
        await until(lambda: any(one.code == "drained" for one in self.members[worker].statuses))

    async def processed(self) -> None:
        await self.until(lambda: all(len(self.written[one.name]) == MANY for one in (self.job.totals, self.job.counts)))


@pytest.mark.needs("kafka")
@pytest.mark.parametrize("kills", [False, True])
async def test_the_same_story_gives_the_same_on_a_broker(bootstrap: str, tmp_path: Path, *, kills: bool) -> None:
    job = Sums(f"orders-{uuid.uuid4().hex[:8]}")
    job.pace_s = 0.02
    async with OnKafka(job, bootstrap, tmp_path) as fleet:
        assert await story(job, fleet, kills=kills) == await without_a_fleet(job)
