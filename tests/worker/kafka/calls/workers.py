"""A worker of a story: a real member with the Kafka runtime, whose calls, copies and reports are seen."""

import asyncio
import contextvars
import gc
import itertools
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.worker.kafka.calls.faults import HERE, Caller, Calls, MetStore, MetTransport, Noted
from tests.worker.kafka.totals import Job

from batonpass.worker import Member, OnLeaseLost, Progress, Task
from batonpass.worker.kafka import ActiveOptions
from batonpass.worker.protocol import Role
from batonpass.worker.protocol.types import Stage
from batonpass.worker.testing import LocalCoordinator

TASK = "0_0"
HOUR_MS = 3_600_000
STARTED_AGAIN_S = 0.3
"""How soon a process that ended with an error is started again."""


class Said(NamedTuple):
    """A log line of Batonpass, or something else that people see."""

    level: int
    text: str


class Claim(NamedTuple):
    """A copy's word that it has everything up to a position, and what it had then."""

    at: float
    position: int
    contents: dict[bytes, bytes]


@dataclass
class World:
    """What the workers of a story share."""

    job: Job
    coordinator: LocalCoordinator
    folder: Path
    calls: Calls
    said: list[Said] = field(default_factory=list)


def watched(worker: "Worker") -> type[Task]:
    """Return the tasks of a worker, whose reports are seen."""

    class Watched(Task):
        def progress(self, progress: Progress) -> None:
            worker.reported(progress)
            super().progress(progress)

        def failed(self, detail: str) -> None:
            worker.has_failed = True
            worker.world.said.append(Said(logging.ERROR, f"failed: {detail}"))
            super().failed(detail)

    return Watched


class Worker:
    """A worker over all its processes, which are parts of this one."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.caller = Caller(name, world.calls, asyncio.get_running_loop())
        self.folder = world.folder / name
        self.hours = 0
        """How far its clock is ahead."""
        self.has_failed = False
        self.claims: list[Claim] = []
        self._histories: list[list[Noted]] = []
        self._member: Member | None = None
        self._progress = Progress()
        self._runs = itertools.count()
        self._process: asyncio.Task[None] | None = None
        self._leaves = asyncio.Event()

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a process: whatever is done from then on in its name is known to be its own."""
        context = contextvars.copy_context()
        context.run(HERE.set, self.caller)
        self._leaves.clear()
        self._process = context.run(asyncio.create_task, self._live(), name=f"worker {self.name}")

    def leave(self) -> None:
        """Tell the process to exit in good order."""
        self._leaves.set()

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended, as it should."""
        if self._process is None or not self._process.done():
            return False
        self._process.result()
        self._member, self._progress = None, Progress()
        # With a process ends whatever it left open; it is let go of here.
        self.caller.let_go()
        if any(fault.call == "store.close" for fault in self.world.calls.struck):
            gc.collect()
        return True

    async def _live(self) -> None:
        world = self.world
        options = ActiveOptions(
            commit_interval_ms=20,
            retry_ms=100,
            transaction_timeout_ms=3_000,
            missing_topic_ms=3_000,
            clock=lambda: time.time_ns() // 1_000_000 + self.hours * HOUR_MS,
        )
        while not self._leaves.is_set():
            runtime = world.job.runtime(self.folder, self.name, open_store=self._open, options=options)
            try:
                on_disk = await runtime.on_disk()
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends the process
                world.said.append(Said(logging.ERROR, f"the process of {self.name} ends: {error!r}"))
                await asyncio.sleep(STARTED_AGAIN_S)
                continue
            runtime.task_type = watched(self)  # type: ignore[misc] # each worker has its own
            member = Member(
                world.coordinator.url,
                world.job.group,
                runtime,
                transport=MetTransport(world.coordinator.transport(), self.caller),
                on_lease_lost=OnLeaseLost.CONTINUE,
                on_disk=on_disk,
                new_member_id=lambda: f"{self.name}-{next(self._runs)}",
                retry_failed_ms=300,
                stop_deadline_ms=5_000,
                exit_timeout_ms=8_000,
                request_timeout_ms=1_000,
                poll_wait_ms=5_000,
            )
            async with member:
                self._member = member
                await self._leaves.wait()

    def _open(self, folder: Path) -> MetStore:
        self._histories.append([])
        return MetStore(folder, self.caller, self._histories[-1])

    # --- looks ------------------------------------------------------------------------------------------------------

    @property
    def member_id(self) -> str | None:
        """The id of its present run."""
        return None if self._member is None else self._member.member_id

    @property
    def role(self) -> Role:
        """What it has of the task."""
        holding = None if self._member is None else self._member.holdings.get(TASK)
        return Role.NONE if holding is None else holding.role

    @property
    def runs(self) -> bool:
        """Whether it owns the task and processes."""
        holding = None if self._member is None else self._member.holdings.get(TASK)
        return holding is not None and holding.role is Role.ACTIVE and holding.stage is Stage.RUNNING

    @property
    def history(self) -> Iterator[Noted]:
        """What its stores held, after each change."""
        return itertools.chain(*self._histories)

    @property
    def position(self) -> int:
        """How far its last store is; 0 without one."""
        return (self._histories[-1][-1].position or 0) if self._histories and self._histories[-1] else 0

    @property
    def times_begun_anew(self) -> int:
        """How often a store of it was empty, with nothing read."""
        return sum(noted.position is None for noted in self.history)

    def is_level(self, end: int) -> bool:
        """Whether it is a copy that has everything before an offset, and says so."""
        said = self._progress
        is_copy = self.role in {Role.STANDBY, Role.WARMUP}
        return is_copy and said.remaining() == 0 and min(said.position or 0, self.position) >= end

    def reported(self, progress: Progress) -> None:
        """Keep what is said of its copy."""
        self._progress = progress
        if progress.position is not None and progress.remaining() == 0:
            self.claims.append(Claim(time.monotonic(), progress.position, self._histories[-1][-1].contents))
