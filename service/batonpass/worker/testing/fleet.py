"""Several workers of an `App` in virtual time: tasks are handed over, and workers die, without a broker.

    async def story() -> None:
        async with Fleet(app) as fleet:
            for number in range(100):
                fleet.send(orders, number, key="ada", timestamp_ms=number)
            await fleet.until(lambda: len(fleet.records(totals)) > 40)
            await fleet.drain(fleet.owner())
            await fleet.processed()

    run(story())

Members, protocol and the coordinator's decisions are the real ones; topics and state are in memory, and of one
partition, so that each subtopology is one task.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from batonpass.worker.declaring import declare
from batonpass.worker.kafka.app import App, declared
from batonpass.worker.kafka.app_driver import MemoryTask, MemoryTopics, read_only
from batonpass.worker.kafka.stores import progress
from batonpass.worker.kafka.typed import Headers, KeyValueStore, Record, Table, Topic
from batonpass.worker.member import Member
from batonpass.worker.options import Options
from batonpass.worker.protocol import Offsets, OnLeaseLost, Role
from batonpass.worker.tasks import Callbacks, Revocation, Task
from batonpass.worker.testing.coordinator import QUICK, LocalCoordinator
from batonpass.worker.testing.line import Line
from batonpass.worker.testing.virtual_time import VirtualClock, VirtualTimeLoop

K = TypeVar("K")
V = TypeVar("V")

RECORD_S = 0.01
"""How long a record takes from its beginning to its commit."""

LOOK_S = 0.1


class Fleet:
    """Workers ``worker-0``, ``worker-1`` and so on, with these names as instance ids.

    ``config`` has settings of the group on top of those of the job.
    """

    def __init__(self, app: App, workers: int = 2, **config: object) -> None:
        self._app = app
        self.options = app.options
        self._parts = app.subtopologies()
        self._config = QUICK | app.config | config
        self._names = [f"worker-{number}" for number in range(workers)]
        self._topics = MemoryTopics(self._parts)
        self._coordinator = LocalCoordinator()
        self._members: dict[str, Member] = {}
        self._workers: dict[str, _Worker] = {}
        self.lines: dict[str, Line] = {}
        """The line of each worker to the coordinator, which can fail."""
        self.tokens: dict[str, int] = {}
        """The highest fencing token that has begun each task: nobody with a lower one commits."""

    async def __aenter__(self) -> Self:
        """Declare the group, start the workers, and wait until every task is where it belongs.

        Raises:
            TypeError: when time is not virtual.
        """
        if not isinstance(asyncio.get_running_loop(), VirtualTimeLoop):
            raise TypeError("a fleet lives in virtual time: run the test with batonpass.worker.testing.run")
        await self._coordinator.__aenter__()
        options = Options(transport=self._coordinator.transport())
        topology = declared(
            self._parts, dict.fromkeys((one for part in self._parts.values() for one in part.sources), 1)
        )
        await declare([self._coordinator.url], self._app.group, topology, self._config, options)
        for name in self._names:
            await self.start(name)
        await self.at_rest()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop everything.

        Raises:
            AssertionError: when the coordinator broke a law, which is a defect of Batonpass.
        """
        for member in self._members.values():
            await member.close()
        await self._coordinator.__aexit__(*error)

    # --- what happens -----------------------------------------------------------------------------------------------

    def send(self, topic: Topic[K, V], value: V, *, key: K, timestamp_ms: int, headers: Headers = ()) -> None:
        """Write a record; whoever has the task processes it, in `RECORD_S` of virtual time."""
        self._topics.send(topic, value, key, timestamp_ms, headers)

    async def start(self, worker: str) -> None:
        """Start a worker that is not there, with nothing on its disk."""
        self._workers[worker] = _Worker(self, self._parts, self._topics)
        self.lines[worker] = Line()
        self._members[worker] = Member(
            self._coordinator.url,
            self._app.group,
            self._workers[worker],
            instance_id=worker,
            on_lease_lost=OnLeaseLost.CONTINUE,
            transport=self._coordinator.transport(self.lines[worker]),
            clock=VirtualClock(),
            jitter_seed=len(self._members),
        )
        await self._members[worker].__aenter__()

    async def kill(self, worker: str) -> None:
        """End a worker as `kill -9` does, in the middle of what it does: nobody hears of it."""
        await self._members.pop(worker).close()
        del self._workers[worker]

    async def drain(self, worker: str) -> None:
        """Have a worker hand over all that it has while it goes on, and wait until that is done."""
        self._members[worker].drain()
        await self.until(lambda: any(one.code == "drained" for one in self._members[worker].statuses))

    async def undrain(self, worker: str) -> None:
        """Let a worker that was drained have its share again."""
        self._members[worker].undrain()
        await self.at_rest()

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 600) -> None:
        """Let time pass until something holds.

        Raises:
            TimeoutError: when that takes longer.
        """
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - anything may be asked
                await asyncio.sleep(RECORD_S / 2)

    async def processed(self) -> None:
        """Let time pass until every record is processed."""
        await self.until(lambda: all(self._topics.next(name) is None for name in self._parts))

    async def at_rest(self) -> None:
        """Let time pass until every task is where it belongs, and runs.

        Raises:
            TimeoutError: when that takes longer than a minute, as where a standby has nowhere to be.
        """
        await self._coordinator.at_rest(self._app.group)

    # --- looks ------------------------------------------------------------------------------------------------------

    def owner(self, subtopology: str = "0") -> str:
        """Return the worker that runs the task of a subtopology.

        Raises:
            LookupError: when nobody runs it now.
        """
        for name, worker in self._workers.items():
            if subtopology in worker.running:
                return name
        raise LookupError(f"nobody runs subtopology {subtopology} now")

    def records(self, topic: Topic[K, V]) -> list[Record[K, V]]:
        """Return what was written to a topic so far."""
        return self._topics.read(topic)

    def store(self, table: Table[K, V]) -> KeyValueStore[K, V]:
        """Return a table as its owner has it now, to be read.

        Raises:
            LookupError: when nobody runs the task now.
        """
        return read_only(table, self._workers[self.owner(table.subtopology)].tasks[table.subtopology])


class _Worker(Callbacks):
    """What one worker does, with state in memory."""

    def __init__(self, fleet: Fleet, parts: Mapping[str, Any], topics: MemoryTopics) -> None:
        self._fleet = fleet
        self._parts = parts
        self._topics = topics
        self._clock = VirtualClock()
        self.running: set[str] = set()
        self.tasks: dict[str, MemoryTask] = {}

    async def on_standby(self, task: Task) -> None:
        here = self._task(task)
        while not task.stopping:
            here.restore()
            task.progress(progress(here.state.positions, here.ends, tuple(here.ends)))
            await asyncio.sleep(LOOK_S)

    async def on_active(self, task: Task) -> None:
        here, name = self._task(task), task.subtopology
        # As a transactional producer does, which fences those before it.
        self._fleet.tokens[name] = max(task.fencing_token or 0, self._fleet.tokens.get(name, 0))
        here.restore()
        task.running()
        self.running.add(name)
        try:
            while not task.stopping:
                now_ms, raw = self._clock(), self._topics.next(name)
                context = await here.call_by_clock(now_ms)
                if context is not None:
                    await self._commit(task, here, context, now_ms)
                elif raw is not None:
                    context = await here.process(raw, now_ms)
                    await asyncio.sleep(RECORD_S)
                    await self._commit(task, here, context, raw)
                else:
                    await task.stop_requested(LOOK_S)
        finally:
            self.running.discard(name)

    async def _commit(self, task: Task, here: MemoryTask, context: Any, of: Any) -> None:
        if self._fleet.tokens[task.subtopology] == task.fencing_token:
            # All or nothing, also for a worker that is killed meanwhile.
            await asyncio.shield(here.commit(context, of))
        else:
            task.producer_fenced()
            await task.stop_requested()

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        await task.finished()
        here = self.tasks[task.subtopology] if revocation.becomes else self.tasks.pop(task.subtopology)
        return here.state.positions or None if task.role is Role.ACTIVE and revocation.commit else None

    def _task(self, task: Task) -> MemoryTask:
        name = task.subtopology
        if name not in self.tasks:
            self.tasks[name] = MemoryTask(name, self._parts[name], self._topics, self._fleet.options, self._clock())
        return self.tasks[name]
