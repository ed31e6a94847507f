"""A job for tests: running totals per key, as streams-processing examples have them, and members without a group.

Every input record adds its number to the total of its key; the total goes to the output. Each output also names the
input offset that it comes from and the owner that wrote it, so that nothing doubled or missing can hide.
"""

# ruff: noqa: ARG002 - not every report's details matter to a test

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from batonpass.worker.kafka import (
    ActiveOptions,
    Context,
    KafkaConnection,
    KafkaRuntime,
    OpenStore,
    Process,
    RocksStore,
    Subtopology,
)
from batonpass.worker.protocol import MemberProtocol, Progress, Role
from batonpass.worker.tasks import Driver, Revocation, Task

NewTopics = Callable[..., Awaitable[str]]


@dataclass(frozen=True)
class Job:
    """The topics of one run of the job, and the cluster that they are on."""

    connection: KafkaConnection
    group: str
    source: str
    output: str
    changelog: str

    def subtopology(self, owner: str, process: Process | None = None) -> Subtopology:
        """Return what an owner does with each record: it adds its number up, or what a test wants instead."""
        return Subtopology(
            sources=(self.source,), process=process or self.adding(owner), changelogs={"totals": self.changelog}
        )

    def adding(self, owner: str) -> Process:
        """Return what the job is there for."""

        async def add(record: ConsumerRecord, context: Context) -> None:
            totals = context.store("totals")
            total = int(totals.get(record.key) or 0) + int(record.value)
            totals.put(record.key, str(total).encode())
            output = {"offset": record.offset, "total": total, "owner": owner}
            await context.send(self.output, json.dumps(output).encode(), key=record.key, partition=context.partition)

        return add

    def adding_slowly(self, owner: str) -> tuple[Process, list[int]]:
        """Return the same at less than a hundred records a second, and the offsets of those that were begun."""
        add, begun = self.adding(owner), list[int]()

        async def slowly(record: ConsumerRecord, context: Context) -> None:
            await asyncio.sleep(0.01)
            begun.append(record.offset)
            await add(record, context)

        return slowly, begun

    def runtime(
        self,
        folder: Path,
        owner: str,
        *,
        open_store: OpenStore = RocksStore,
        options: ActiveOptions | None = None,
        process: Process | None = None,
    ) -> KafkaRuntime:
        """Return the runtime of one worker."""
        return KafkaRuntime(
            self.connection,
            self.group,
            {"0": self.subtopology(owner, process)},
            folder=folder,
            open_store=open_store,
            options=options,
        )


def in_words(job: Job) -> str:
    """Return a job on an open cluster so that another process can read it."""
    return json.dumps([job.connection.bootstrap_servers, job.group, job.source, job.output, job.changelog])


def from_words(words: str) -> Job:
    """Return the job that another process wrote."""
    bootstrap, *names = json.loads(words)
    return Job(KafkaConnection(bootstrap_servers=bootstrap), *names)


async def new_job(bootstrap: str, new_topic: NewTopics, *, partitions: int = 1, **of_changelog: str) -> Job:
    """Make the topics of a job that nobody else uses, the changelog with further settings."""
    source, output = await new_topic("orders", partitions=partitions), await new_topic("totals", partitions=partitions)
    changelog = await new_topic("store", partitions=partitions, cleanup_policy="compact", **of_changelog)
    return Job(
        KafkaConnection(bootstrap_servers=bootstrap), f"orders-{uuid.uuid4().hex[:8]}", source, output, changelog
    )


async def write(job: Job, count: int, *, partition: int = 0, keys: int = 10, first: int = 0) -> None:
    """Write input records: number n to the key n modulo ``keys``."""
    producer = AIOKafkaProducer(**job.connection.client_options(), linger_ms=5)
    await producer.start()
    try:
        for number in range(first, first + count):
            key = f"k{number % keys}".encode()
            await producer.send(job.source, str(number).encode(), key=key, partition=partition)
        await producer.flush()
    finally:
        await producer.stop()


async def read(job: Job, topic: str, *, partition: int = 0) -> list[ConsumerRecord]:
    """Return every committed record of a topic's partition up to its end of now."""
    part = TopicPartition(topic, partition)
    consumer = AIOKafkaConsumer(
        **job.connection.client_options(), isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        end = (await consumer.end_offsets([part]))[part]
        consumer.assign([part])
        found: list[ConsumerRecord] = []
        while await consumer.position(part) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
        return found
    finally:
        await consumer.stop()


def expected(count: int, *, keys: int = 10) -> dict[bytes, bytes]:
    """Return the totals after the numbers below ``count``."""
    totals: dict[bytes, int] = {}
    for number in range(count):
        key = f"k{number % keys}".encode()
        totals[key] = totals.get(key, 0) + number
    return {key: str(total).encode() for key, total in totals.items()}


async def check_exactly_once(job: Job, count: int, *, partition: int = 0) -> list[str]:
    """Check outputs and changelog against the input of ``write``; return who wrote each output, in order."""
    outputs = [json.loads(record.value) for record in await read(job, job.output, partition=partition)]
    assert [each["offset"] for each in outputs] == list(range(count))
    changed = {record.key: record.value for record in await read(job, job.changelog, partition=partition)}
    assert changed == expected(count)
    return [each["owner"] for each in outputs]


@dataclass
class Owner:
    """A member's machine without a group: the test says what it may hold. It keeps what its tasks report."""

    runtime: KafkaRuntime
    may: bool = True
    lease: bool = True
    progressed: dict[str, Progress] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)
    fenced: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: dict[str, tuple[Task, asyncio.Task[None]]] = field(default_factory=dict)
    input_lags: dict[str, int] = field(default_factory=dict)
    loads: dict[str, list[float]] = field(default_factory=dict)

    def turn(self, report: Callable[[int], object]) -> None:
        """Take a report of a task."""
        report(0)

    def copy_progress(self, task: str, progress: Progress, *, now_ms: int) -> None:
        """Keep how far a copy has come."""
        self.progressed[task] = progress

    def task_restoring(self, task: str, *, now_ms: int) -> None:
        """Keep that a task does not run any more, once."""
        if self.states[-1:] != ["restoring"]:
            self.states.append("restoring")

    def task_running(self, task: str, *, now_ms: int) -> None:
        """Keep that a task runs."""
        self.states.append("running")

    def task_failed(self, task: str, detail: str, *, now_ms: int) -> None:
        """Keep that a task failed."""
        self.states.append("failed")

    def state_lost(self, task: str, *, now_ms: int) -> None:
        """Keep that a state is gone."""
        self.states.append("lost")

    def producer_fenced(self, task: str, *, now_ms: int) -> None:
        """Keep that a producer was fenced."""
        self.states.append("fenced")
        self.fenced.set()

    def load(self, task: str, load: float, *, now_ms: int) -> None:
        """Keep the loads."""
        self.loads.setdefault(task, []).append(load)

    def input_lag(self, task: str, lag: int, *, now_ms: int) -> None:
        """Keep the input lag."""
        self.input_lags[task] = lag

    def may_process(self, task: str, now_ms: int) -> bool:
        """Whether the task may write."""
        return self.may

    def lease_is_over(self, now_ms: int) -> bool:
        """Whether nothing may begin."""
        return not self.lease

    def hold(self, task_id: str, role: Role, *, restore_to: int | None = None) -> Task:
        """Begin a task in a role, in place of the copy that is here."""
        was: Role | None = None
        if task_id in self.tasks:
            before, run = self.tasks.pop(task_id)
            before.ask_to_stop()
            run.cancel()
            was = before.role
        driver = Driver(cast("MemberProtocol", self), clock=lambda: 0, turn=self.turn)
        task = Task(task_id, role, driver, was=was)
        if role is Role.ACTIVE:
            task.fencing_token, task.restore_to = 1, restore_to
        begin = self.runtime.on_active if role is Role.ACTIVE else self.runtime.on_standby
        run = asyncio.create_task(begin(task))
        run.add_done_callback(lambda _: task.callback_returned())
        self.tasks[task_id] = (task, run)
        return task

    async def give_up(self, task_id: str, *, becomes: Role | None = None, commit: bool = True) -> object:
        """End a task and return where it stopped."""
        task, run = self.tasks.pop(task_id)
        task.ask_to_stop()
        if not commit:
            run.cancel()
        final = await self.runtime.on_revoke(task, Revocation(commit=commit, becomes=becomes))
        run.cancel()
        await asyncio.wait([run])
        if becomes is not None:
            self.hold(task_id, becomes)
        else:
            await self.runtime._closing.done(task_id)
        return final

    async def close(self) -> None:
        """End everything without a commit."""
        for task_id in list(self.tasks):
            await self.give_up(task_id, commit=False)
        await self.runtime.on_close()

    def totals(self, task_id: str = "0_0") -> dict[bytes, bytes]:
        """Return the task's store here; empty when there is no copy."""
        store = self.runtime.store(task_id, "totals")
        return {} if store is None else dict(store.scan())

    def is_caught_up(self, task_id: str) -> bool:
        """Whether a copy says that it has everything."""
        done = self.progressed.get(task_id)
        return done is not None and done.remaining() == 0
