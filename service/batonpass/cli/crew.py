"""The simulated workers of `batonpass up`: real processes that speak the protocol and pretend to have state."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import UpFolder
from batonpass.cli.rest import Coordinator
from batonpass.demo import tethered

DEMO: Final = "demo"
SIMULATED: Final = "batonpass.worker.simulated"
STOP_PATIENCE_S: Final = 8.0
LOOK_EVERY_S: Final = 0.5
DECLARE_PATIENCE_S: Final = 60.0
DECLARE_AGAIN_S: Final = 0.2

DECLARATION: Final[dict[str, Any]] = {
    "topology": {
        "epoch": 1,
        "subtopologies": [
            {"id": "orders", "partitions": 8, "source_topics": ["orders"], "changelog_topics": ["orders-by-customer"]},
            {"id": "stock", "partitions": 4, "source_topics": ["moves"], "changelog_topics": ["stock-by-shop"]},
        ],
    },
    "config": {
        "acceptable_recovery_lag": 200,
        "num_standby_replicas": 1,
        "heartbeat_interval_ms": 1_000,
        "session_timeout_ms": 12_000,
        "probing_rebalance_interval_ms": 10_000,
        "initial_rebalance_delay_ms": 1_500,
        "rejoin_grace_ms": 60_000,
    },
    "reason": "the built-in group of `batonpass up`",
}
"""Small times, so that everything can be watched."""


class Pace(NamedTuple):
    """How much state a simulated task has, and how fast it is restored and grows: records, and records a second."""

    size: int = 20_000
    rate: int = 2_000
    growth: int = 20


@dataclass(slots=True)
class Worker:
    """One worker, its process and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    missed: bool = False


@dataclass(slots=True)
class Crew:
    """The workers of one `up`. ``tell`` hears a sentence when one of them has ended by itself."""

    folder: UpFolder
    count: int
    tell: Callable[[str], None]
    workers: list[Worker] = field(default_factory=list)

    async def start(self, url: str, token: str) -> None:
        """Declare the group unless it is there, and start the workers.

        Raises:
            Failure: when the group cannot be declared.
        """
        await asyncio.to_thread(declare_demo, url, token)
        await asyncio.to_thread(self._admit, url, token)
        for number in range(1, self.count + 1):
            self.workers.append(self._start(f"{DEMO}-{number}", url))

    async def stop(self) -> None:
        """Have them stop in good order, their places kept, and wait for that; kill who does not."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGTERM)
        ends = (asyncio.to_thread(worker.process.wait, STOP_PATIENCE_S) for worker in self.workers)
        await asyncio.gather(*ends, return_exceptions=True)
        self.kill()

    def kill(self) -> None:
        """End whoever still runs, at once."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
            worker.process.wait()
            if worker.process.stdin is not None:
                worker.process.stdin.close()
        self.workers.clear()

    async def watch(self) -> None:
        """Tell of every worker that ends; runs until it is cancelled."""
        while True:
            for worker in self.workers:
                code = worker.process.poll()
                if code is not None and not worker.missed:
                    worker.missed = True
                    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                    again = f"`batonpass worker --instance {worker.name}` starts it again"
                    self.tell(f"Worker {worker.name} {how}; {again}, {worker.log} is its log.")
            await asyncio.sleep(LOOK_EVERY_S)

    def _admit(self, url: str, token: str) -> None:
        """Have a token that opens their group to the workers, and nothing else."""
        file = self.folder.workers_token_file
        kept = self.folder.kept(file)
        if kept is not None:
            try:
                with Coordinator(url, kept) as coordinator:
                    coordinator.get(f"/groups/{DEMO}")
            except Failure as failure:
                if failure.code is not Exit.NOT_ALLOWED:
                    raise
            else:
                return
        with Coordinator(url, token) as coordinator:
            wish = {"name": f"{DEMO}-workers", "role": "worker", "group": DEMO}
            self.folder.keep(file, coordinator.call("POST", "/tokens", body=wish).body["secret"])

    def _start(self, name: str, url: str) -> Worker:
        place = self.folder.workers / name
        place.mkdir(parents=True, exist_ok=True)
        log = place / "log"
        command = [sys.executable, "-P", tethered.__file__, str(os.getpid()), SIMULATED]
        command += arguments(url=url, group=DEMO, instance=name, folder=place, pace=Pace())
        command += ["--token-file", str(self.folder.workers_token_file), "--json"]
        with log.open("ab") as output:
            # In a session of its own, so that Ctrl-C reaches us alone, and we stop it while its coordinator answers.
            process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=place,
                env=os.environ | {"NO_PROXY": "*"},
                start_new_session=True,
            )
        return Worker(name, process, log)


def arguments(*, url: str, group: str, instance: str, folder: Path, pace: Pace) -> list[str]:
    """Return the command line of a simulated worker, behind the name of its module."""
    given = ["--url", url, "--group", group, "--instance", instance, "--folder", str(folder)]
    given += ["--rate", str(pace.rate), "--growth", str(pace.growth), "--size", str(pace.size)]
    return [*given, "--on-lease-lost", "continue"]


def declare_demo(url: str, token: str) -> None:
    """Declare the group of the simulated workers; one that is there stays as it is.

    A coordinator that was killed a moment ago may hold its lease for some seconds more: that is waited out.

    Raises:
        Failure: when the coordinator refuses.
    """
    ends_at = time.monotonic() + DECLARE_PATIENCE_S
    with Coordinator(url, token) as coordinator:
        while True:
            try:
                coordinator.call("PUT", f"/groups/{DEMO}", body=DECLARATION)
            except Failure as failure:
                if failure.code is Exit.UNREACHABLE and time.monotonic() < ends_at:
                    time.sleep(DECLARE_AGAIN_S)
                    continue
                if failure.problem.get("type") != "precondition-required":
                    raise
            return
