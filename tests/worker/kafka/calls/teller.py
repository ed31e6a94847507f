"""Tells stories, many at the same time, on one broker and one event loop."""

import asyncio
import gc
import itertools
import logging
import time
import uuid
from collections.abc import Coroutine, Generator
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from tests.kafka.cluster import known_to_broker
from tests.worker.kafka.calls.checks import details, judge, wrong_copies
from tests.worker.kafka.calls.faults import HERE, Calls, Fault
from tests.worker.kafka.calls.ledger import Ledger
from tests.worker.kafka.calls.stories import Story
from tests.worker.kafka.calls.workers import Said, World
from tests.worker.kafka.totals import Job

from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.testing import LocalCoordinator

T = TypeVar("T")

CONFIG = {
    "initial_rebalance_delay_ms": 0,
    "rebalance_batch_ms": 0,
    "heartbeat_interval_ms": 500,
    "session_timeout_ms": 6_000,
    "acceptable_recovery_lag": 5,
    "num_standby_replicas": 1,
}


class Told(NamedTuple):
    """A story that was told: which calls were made, what was wrong, how long it took, and how it went."""

    calls: Calls
    wrong: list[str]
    took_s: float
    details: str


class Teller:
    """What all stories share."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._connection = KafkaConnection(bootstrap_servers=bootstrap)
        self._topics = Topics(self._connection)
        self._folder = folder
        self._number = itertools.count()
        self.unseen: list[str] = []
        """Errors that nobody has looked at, as asyncio reports them."""

    async def __aenter__(self) -> Self:
        """Connect, and hear what is said from now on."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(remembered)
        loop.set_exception_handler(self._keep)
        self._log, self._hears = logging.getLogger("batonpass"), Hears(logging.INFO)
        self._was = self._log.level, self._log.propagate
        self._log.addHandler(self._hears)
        self._log.setLevel(logging.INFO)
        # A failed test shows the lines of the stories that failed, and not those of a thousand others.
        self._log.propagate = False
        self._producer = AIOKafkaProducer(**self._connection.client_options(), enable_idempotence=True)
        await self._producer.start()
        await self._topics.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect, and hear no more."""
        await self._topics.close()
        await self._producer.stop()
        gc.collect()
        self._log.removeHandler(self._hears)
        self._log.setLevel(self._was[0])
        self._log.propagate = self._was[1]
        loop = asyncio.get_running_loop()
        loop.set_task_factory(None)
        loop.set_exception_handler(None)

    def _keep(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unseen.append(f"{context['message']}: {context.get('exception')!r} {context.get('task', '')!r}")

    async def tell(self, *faults: Fault) -> Told:
        """Tell one story, with some faults, each in another phase, or none."""
        began, wrong, calls = time.monotonic(), list[str](), Calls(faults)
        job = await self._topics.job()
        how = ""
        try:
            async with AsyncExitStack() as stack:
                coordinator = await stack.enter_async_context(LocalCoordinator())
                await declare(coordinator, job)
                world = World(job, coordinator, self._folder / str(next(self._number)), calls)
                SAID.set(world.said)
                story = Story(world, await stack.enter_async_context(Ledger(job)), self._producer)
                try:
                    await story.tell()
                    wrong += await judge(story)
                except (AssertionError, KafkaError, OSError) as error:
                    wrong += [f"in {calls.phase}, {error}", *wrong_copies(story)]
                how = details(story)
                await clear(story)
        except AssertionError as error:
            # A law that the coordinator broke.
            wrong.append(str(error))
        await self._topics.done(job)
        return Told(calls, wrong, time.monotonic() - began, how)


async def declare(coordinator: LocalCoordinator, job: Job) -> None:
    """Declare a job's group."""
    part = {"id": "0", "partitions": 1, "source_topics": [job.source], "changelog_topics": [job.changelog]}
    body = to_json({"topology": {"subtopologies": [part]}, "config": CONFIG})
    await coordinator.coordinator.ask(GroupId(job.group), read_declaration(GroupId(job.group), body, if_match=None)[0])


async def clear(story: Story) -> None:
    """End what is left of the workers."""
    for caller in [worker.caller for worker in story.workers]:
        for _ in range(3):
            if going := [task for task in caller.tasks if not task.done()]:
                for task in going:
                    task.cancel()
                await asyncio.wait(going, timeout=5)
        for client in caller.clients:
            with suppress(KafkaError, TimeoutError):
                await asyncio.wait_for(client.stop(), 5)


# --- what is whose ----------------------------------------------------------------------------------------------------

SAID: ContextVar[list[Said] | None] = ContextVar("SAID", default=None)
"""Where the log lines of a story go."""


class Hears(logging.Handler):
    """Gives each log line to the story that it belongs to."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it as text, which refers to nothing."""
        said = SAID.get()
        if said is not None:
            said.append(Said(record.levelno, self.format(record)))


def remembered(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T] | Generator[Any, None, T], /, **options: Any
) -> asyncio.Task[T]:
    """Make an asyncio task, and remember whose it is."""
    task = asyncio.Task(work, loop=loop, **options)
    caller = HERE.get()
    if caller is not None:
        caller.tasks.add(task)
    return task


# --- topics -----------------------------------------------------------------------------------------------------------


class Topics:
    """Topics of jobs, made and removed many at a time: one by one they cost a broker more than the stories."""

    TOGETHER = 16

    def __init__(self, connection: KafkaConnection) -> None:
        self._admin = AIOKafkaAdminClient(**connection.client_options())
        self._workers = KafkaConnection(
            bootstrap_servers=connection.bootstrap_servers, extra={"request_timeout_ms": 5_000}
        )
        self._ready: list[Job] = []
        self._done: list[str] = []
        self._turn = asyncio.Lock()

    async def connect(self) -> None:
        """Connect."""
        await self._admin.start()

    async def close(self) -> None:
        """Remove what is left, and disconnect."""
        await self._admin.delete_topics([*self._done, *(topic for job in self._ready for topic in topics_of(job))])
        await self._admin.close()

    async def job(self) -> Job:
        """Return a job whose topics nobody else uses."""
        async with self._turn:
            if not self._ready:
                self._ready = await self._make()
            return self._ready.pop()

    async def done(self, job: Job) -> None:
        """Say that nobody needs a job's topics any more."""
        self._done += topics_of(job)
        if len(self._done) >= 3 * self.TOGETHER:
            done, self._done = self._done, []
            await self._admin.delete_topics(done)

    async def _make(self) -> list[Job]:
        groups = [f"calls-{uuid.uuid4().hex[:8]}" for _ in range(self.TOGETHER)]
        jobs = [Job(self._workers, group, f"{group}-orders", f"{group}-totals", f"{group}-store") for group in groups]
        compacted = {job.changelog: {"cleanup.policy": "compact"} for job in jobs}
        topics = [topic for job in jobs for topic in topics_of(job)]
        await self._admin.create_topics([NewTopic(one, 1, 1, topic_configs=compacted.get(one, {})) for one in topics])
        for topic in topics:
            await known_to_broker(self._admin, topic, 1)
        return jobs


def topics_of(job: Job) -> tuple[str, str, str]:
    """Return the topics of a job."""
    return job.source, job.output, job.changelog
