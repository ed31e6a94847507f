"""The workers of one group: processes that are started, ended and killed, and their reports about their tasks."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batonpass.demo.infrastructure import Infrastructure
from batonpass.demo.job import Job
from batonpass.demo.ledger import Window
from batonpass.demo.processes import Child
from batonpass.demo.sizes import ACCEPTABLE_LAG
from batonpass.demo.worker import Order
from batonpass.worker import Exit


@dataclass(slots=True)
class Restore:
    """One restore on one worker: a copy, or an active that began without one. Times are milliseconds since 1970."""

    worker: str
    task: str
    begun_ms: int
    done_ms: int | None = None
    records: int = 0


@dataclass(slots=True)
class Workers:
    """The workers of one group."""

    job: Job
    infrastructure: Infrastructure
    commit_interval_ms: int
    on_exit: Exit = Exit.RESTART
    running: dict[str, Child] = field(default_factory=dict)
    restores: list[Restore] = field(default_factory=list)

    async def start(self, name: str) -> None:
        """Start a worker, with the state that its folder has."""
        order = Order(
            job=self.job,
            url=self.infrastructure.url,
            name=name,
            folder=str(self._folder(name)),
            token_file=str(self.infrastructure.token_file),
            on_exit=self.on_exit,
            caught_up=ACCEPTABLE_LAG,
            commit_interval_ms=self.commit_interval_ms,
        )
        log = self.infrastructure.logs / f"{name}.log"
        self.running[name] = await Child.start(
            "batonpass.demo.worker", [order.words()], log=log, hear=lambda event: self._hear(name, event)
        )

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    async def stop(self, name: str) -> None:
        """Ask a worker to end, and wait for that."""
        await self.running.pop(name).stop(patience_s=60)

    async def stop_all(self) -> None:
        children = list(self.running.values())
        self.running.clear()
        await asyncio.gather(*(child.stop() for child in children))

    def check(self) -> None:
        """Raise if a worker ended without being asked to.

        Raises:
            WorkerLost: naming it and its log.
        """
        for name, child in self.running.items():
            if not child.is_running:
                raise WorkerLost(
                    f"worker {name} ended by itself; {self.infrastructure.logs / name}.log has what it said"
                )

    def restored(self, window: Window) -> int:
        """Return how many records were read within a window to restore state."""
        done = [one for one in self.restores if one.done_ms is not None and window[0] <= one.done_ms <= window[1]]
        return sum(one.records for one in done)

    def restoring_ms(self, window: Window) -> int:
        """Return for how long within a window anything was being restored."""
        spans = sorted(
            (max(one.begun_ms, window[0]), min(one.done_ms or window[1], window[1]))
            for one in self.restores
            if one.begun_ms < window[1] and (one.done_ms is None or one.done_ms > window[0]) and one.records
        )
        total, upto = 0, window[0]
        for begun, done in spans:
            total += max(0, done - max(begun, upto))
            upto = max(upto, done)
        return total

    def _folder(self, name: str) -> Path:
        return self.infrastructure.folder / "workers" / name

    def _hear(self, name: str, event: Mapping[str, Any]) -> None:
        at_ms = round(event.get("at", time.time()) * 1_000)
        match event.get("event"):
            case "copy" | "active" if event.get("was") is None:
                self.restores.append(Restore(name, event["task"], at_ms))
            case "restored":
                of_task = [one for one in self.restores if (one.worker, one.task) == (name, event["task"])]
                if of_task:
                    of_task[-1].done_ms = of_task[-1].done_ms or at_ms
                    of_task[-1].records += event["records"] or 0
            case _:
                pass


class WorkerLost(Exception):
    """A worker that should run has ended."""
