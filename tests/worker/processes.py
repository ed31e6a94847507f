"""Coordinators and workers as processes of their own, over real sockets."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx

GROUP = "orders"
CONFIG = {
    "initial_rebalance_delay_ms": 0,
    "acceptable_recovery_lag": 500,
    "heartbeat_interval_ms": 300,
    "session_timeout_ms": 10_000,
    "suspect_timeout_ms": 500,
}


@contextmanager
def coordinator(port: int, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a coordinator whose records are kept in a file; it is killed at the end, if it still runs."""
    command = [sys.executable, "-m", "tests.worker.durable_coordinator", str(port), str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert re.search(r"http://\S+", process.stdout.readline())
            yield process
        finally:
            process.kill()


def declare(url: str, *, partitions: int = 2, **config: object) -> None:
    """Declare the group."""
    subtopology = {"id": "0", "partitions": partitions, "changelog_topics": ["store"]}
    body = {"topology": {"subtopologies": [subtopology]}, "config": CONFIG | config}
    httpx.put(f"{url}/v1/groups/{GROUP}", json=body).raise_for_status()


def state_of(url: str) -> dict[str, Any]:
    """Return where the group stands."""
    found: dict[str, Any] = httpx.get(f"{url}/v1/groups/{GROUP}").json()
    return found


class Worker:
    """A worker and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str], printed: Path) -> None:
        self.process = process
        self._printed = printed

    @property
    def events(self) -> list[dict[str, Any]]:
        """Everything that happened to it, in order."""
        return [json.loads(line) for line in self._printed.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def tasks(self, event: str) -> list[str]:
        """Return the tasks of all events of a kind, in order."""
        return [one["task"] for one in self.events if one["event"] == event]

    def running(self) -> set[str]:
        """Return the tasks that it runs, by its own word."""
        found: set[str] = set()
        for one in self.events:
            if one["event"] == "running":
                found.add(one["task"])
            elif one["event"] == "revoked" and one["role"] == "active":
                found.discard(one["task"])
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM, *, timeout_s: float = 20) -> int:
        """Tell it to go, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)


@contextmanager
def worker(url: str, folder: Path, name: str, *options: str) -> Iterator[Worker]:
    """Run a simulated worker; it is killed at the end, if it still runs."""
    pace = ("--rate", "20000", "--growth", "100", "--size", "4000")
    place = ("--url", url, "--group", GROUP, "--instance", name, "--folder", str(folder / name))
    with program("batonpass.worker.simulated", folder, name, *place, *pace, "--json", *options) as running:
        yield running


@contextmanager
def program(module: str, folder: Path, name: str, *arguments: str) -> Iterator[Worker]:
    """Run a worker that is a module and prints lines of JSON; it is killed at the end, if it still runs."""
    printed = folder / f"{name}-{time.monotonic_ns()}.jsonl"
    command = [sys.executable, "-m", module, *arguments]
    with printed.open("w") as out, subprocess.Popen(command, stdout=out, text=True) as process:
        try:
            yield Worker(process, printed)
        finally:
            process.kill()
