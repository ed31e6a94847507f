"""One job with its group, its workers, its load and its reader, and the measurements of what is done to it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batonpass.client import ApiError
from batonpass.demo.figures import PhaseFigures, RunFigures
from batonpass.demo.group import DemoGroup
from batonpass.demo.infrastructure import Infrastructure
from batonpass.demo.job import Job
from batonpass.demo.ledger import Window, quiet_for, silences
from batonpass.demo.outputs import Outputs
from batonpass.demo.processes import Child
from batonpass.demo.reader import Reader, Reads
from batonpass.demo.sizes import HandoverMode, Sizes, config
from batonpass.demo.topics import make_topics, preload, throttle
from batonpass.demo.workers import Workers
from batonpass.simulate.compare import needed
from batonpass.worker import Exit

LOOK_S = 0.1
REST_PATIENCE_S = 240.0
DONE_PATIENCE_S = 60.0

Owners = dict[str, str]
"""The worker that runs each task, by name."""


class NoRest(Exception):
    """The group did not come to rest. The message says what it waits for."""


def now_ms() -> int:
    """Return the time on the clock by which the broker stamps records."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Steps:
    """Results so far of the steps of a phase that is under way."""

    name: str
    begun_ms: int
    reads: Reads
    moves: int = 0
    moves_needed: int = 0
    handovers_needed: int = 0
    rested_ms: int = 0
    paused_ms: int = 0
    touched: set[int] = field(default_factory=set)


@dataclass(kw_only=True)
class Experiment:
    """A running job. Nothing happens before ``begun``."""

    job: Job
    infrastructure: Infrastructure
    sizes: Sizes
    policy: HandoverMode
    figures: RunFigures
    tell: Callable[[str], None]
    done: Callable[[PhaseFigures], None]
    standbys: int
    on_exit: Exit
    quiet: list[Window] = field(default_factory=list)
    phase_name: str = ""
    since_ms: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    _load: Child | None = None
    _taken: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.group = DemoGroup(self.infrastructure.url, self.infrastructure.token, self.job.group)
        self.workers = Workers(self.job, self.infrastructure, self.sizes.commit_interval_ms, self.on_exit)
        self.outputs = Outputs(self.job)
        self.reader = Reader(self.job, self.group)

    # --- beginning and end ------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def begun(self, names: list[str]) -> AsyncIterator[None]:
        """Make the topics, start the workers and the load, and wait until the group rests; stop all at the end."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.group.client)
            await make_topics(self.job)
            if self.job.stateful:
                count = await preload(self.job)
                self.tell(f"{count:,} customers' totals lie in {self.job.changelog}")
            await self.configure()
            stack.push_async_callback(self._end_all)
            stack.push_async_callback(self._note_events)
            for name in names:
                await self.workers.start(name)
            await self.rest(set(names))
            await stack.enter_async_context(self.outputs.followed())
            await self._start_load()
            if self.job.stateful:
                # From here on all restoring is slow.
                reading = asyncio.ensure_future(self.reader.run())
                stack.push_async_callback(_cancelled, reading)
            yield

    async def _start_load(self) -> None:
        def hear(event: Mapping[str, Any]) -> None:
            if event.get("event") == "ended":
                self._taken = list(event["taken"])

        log = self.infrastructure.logs / f"{self.job.group}-load.log"
        self._load = await Child.start("batonpass.demo.load", [self.job.words()], log=log, hear=hear)

    async def settle(self) -> None:
        """End the load, wait for the last output, and note what came of all input."""
        if self._load is not None:
            await self._load.stop(patience_s=30)
        if self._taken:
            await self.outputs.until(self._taken, within_s=DONE_PATIENCE_S)
        self.figures.accounts.append(self.outputs.ledger.account(self._taken or [0] * self.job.tasks))

    async def _note_events(self) -> None:
        """Keep the coordinator's events of the whole run; none if it does not answer."""
        with contextlib.suppress(ApiError):
            self.events = await self.group.events()

    async def _end_all(self) -> None:
        if self._load is not None:
            await self._load.stop()
        await self.workers.stop_all()

    # --- what is seen -----------------------------------------------------------------------------------------------

    async def owners(self) -> Owners:
        return {
            grant["task"]: member["instance_id"]
            for member in await self.group.members()
            for grant in member["assignment"]["active"]
        }

    async def rest(self, names: set[str]) -> int:
        """Wait until exactly these workers are members and nothing is left to do; return the time of that.

        Raises:
            NoRest: when it takes too long.
            WorkerLost: when a worker ended by itself.
        """
        ends_at = time.monotonic() + REST_PATIENCE_S
        while True:
            self.workers.check()
            state = await self.group.state()
            at_ms = now_ms()
            if state["at_rest"] and state["members"] == len(names):
                members = await self.group.members()
                if {one["instance_id"] for one in members} == names and self._all_run(members):
                    return at_ms
            if time.monotonic() > ends_at:
                raise NoRest(f"{self.job.group} did not come to rest: {state}")
            await asyncio.sleep(LOOK_S)

    def _all_run(self, members: list[dict[str, Any]]) -> bool:
        running = [
            task
            for member in members
            for task, said in member["reports"].items()
            if said["role"] == "active" and said.get("state") == "running"
        ]
        return sorted(running) == sorted(self.job.task_ids)

    async def be_quiet(self, seconds: float) -> None:
        """Do nothing for a while, to have a time to compare with."""
        begin = now_ms()
        await asyncio.sleep(seconds)
        self.workers.check()
        self.quiet.append((begin, now_ms()))

    # --- what is done -----------------------------------------------------------------------------------------------

    async def throttle(self, names: list[str], times: int = 1) -> None:
        """Let these workers restore slowly from here on, or ``times`` times as fast."""
        if self.job.stateful:
            await throttle(self.job, names, times * self.sizes.restore_bytes_per_s)

    async def configure(self, *, standbys: int | None = None, policy: HandoverMode | None = None) -> None:
        self.standbys = self.standbys if standbys is None else standbys
        await self.group.declare(self.job, config(policy or self.policy, standbys=self.standbys))

    @contextlib.asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[Steps]:
        """Measure what is done within the block, from its first step until some time after the group rests again."""
        await self.be_quiet(self.sizes.quiet_s)
        self.phase_name = name
        self.reader.reads = Reads()
        steps = Steps(name, now_ms(), self.reader.reads)
        self.since_ms = steps.begun_ms
        yield steps
        await asyncio.sleep(self.sizes.tail_s)
        # The outputs up to that time have to be read first.
        window = (steps.begun_ms, now_ms())
        await self._read_until(window[1])
        self.figures.phases.append(self._figures(steps, window))
        self.phase_name = ""
        self.done(self.figures.phases[-1])

    async def _read_until(self, at_ms: int) -> None:
        ends_at = time.monotonic() + 10
        ledger = self.outputs.ledger
        while time.monotonic() < ends_at:
            self.outputs.check()
            if all((ledger.last_at(task) or 0) >= at_ms for task in ledger.tasks):
                return
            await asyncio.sleep(LOOK_S)

    @contextlib.asynccontextmanager
    async def step(self, steps: Steps, names: set[str], *, restarts: str | None = None) -> AsyncIterator[Owners]:
        """Do one thing that may move tasks, wait for rest with these workers, and count the moves, made and needed.

        ``restarts`` names a worker that stops in this step and comes back with its state.
        """
        before = await self.owners()
        yield before
        steps.rested_ms = await self.rest(names)
        after = await self.owners()
        moved = {task for task in before if before[task] != after.get(task)}
        steps.moves += len(moved)
        held = {name: sum(owner == name for owner in before.values()) for name in await self._targets(names)}
        fewest = needed(held, self.job.tasks)
        steps.moves_needed += fewest
        steps.handovers_needed += fewest
        steps.touched |= {_number(task) for task in moved}
        if restarts is not None:
            stopped = [task for task, owner in before.items() if owner == restarts]
            steps.touched |= {_number(task) for task in stopped}
            steps.handovers_needed += 2 * len(stopped) if self.standbys or not self.job.stateful else 0

    async def _targets(self, names: set[str]) -> set[str]:
        """Return the workers that may own tasks: those that are not being drained."""
        draining = {one["instance_id"] for one in await self.group.members() if one["draining"]}
        return names - draining

    def _figures(self, steps: Steps, window: Window) -> PhaseFigures:
        ledger = self.outputs.ledger
        handovers = ledger.handovers(window)
        changed = {one.task for one in handovers}
        # A task that stood still because its worker restarted, without a change of writer, is measured by its silence.
        stood = sorted(steps.touched - changed)
        unmoved = sorted(set(ledger.tasks) - changed - steps.touched)
        restored_in = (steps.begun_ms, steps.rested_ms)
        return PhaseFigures(
            name=steps.name,
            group=self.job.group,
            window=window,
            moves=steps.moves,
            moves_needed=steps.moves_needed,
            handovers=handovers,
            handovers_needed=steps.handovers_needed,
            rest_s=(steps.rested_ms - steps.begun_ms - steps.paused_ms) / 1_000,
            restore_s=self.workers.restoring_ms(restored_in) / 1_000,
            restored_records=self.workers.restored(window),
            moved=[one.gap_ms for one in handovers] + silences(ledger, stood, [window]),
            unmoved=silences(ledger, unmoved, [window]),
            quiet=silences(ledger, ledger.tasks, quiet_for(window, self.quiet)),
            unanswered_reads=steps.reads.unanswered,
            reads=steps.reads.asked,
            reads_by_copies=steps.reads.by_copies,
        )


def _number(task: str) -> int:
    return int(task.rpartition("_")[2])


async def _cancelled(future: asyncio.Future[None]) -> None:
    future.cancel()
    await asyncio.wait((future,))
