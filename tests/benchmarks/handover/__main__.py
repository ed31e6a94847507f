"""Drain workers in turn under load, and say what each handover was made of.

Broker, Postgres, coordinator, load and three workers are processes of this machine. Every task has a standby, so each
drain hands all tasks of one worker over warm, and the end of the drain lets balance bring as many back. The gap of a
move is the time between the last output of one owner and the first of the next, by the records' own times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import uuid
from bisect import bisect_left
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import httpx
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.kafka.cluster import known_to_broker
from tests.kafka.totals import Job, in_words, read
from tests.proof.coordinators import CoordinatorProcess

from batonpass.kafka.broker import LocalBroker
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.schema import upgrade
from batonpass.worker.kafka import KafkaConnection

TASKS = 12
WORKERS = ("a", "b", "c")
OLD = ("told-to-stop", "processed", "written", "offsets-sent", "committed", "stopped", "confirming", "confirmed")
CONFIRM = ("confirming", "confirmed")
NEW = (
    "granted", "begun-here", "looked-at-lease", "fenced-others", "read-end", "restored", "checked-lease", "read-offsets", "running",
    "first-record", "processed", "written", "offsets-sent", "committed",
)  # fmt: skip


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.handover", description=__doc__)
    parser.add_argument("--drains", type=int, default=7, help="how often a worker is drained and let stay again")
    parser.add_argument("--every-ms", type=float, default=20, help="how often each task gets a record")
    parser.add_argument("--steady-s", type=float, default=5, help="how long processor time is measured before")
    parser.add_argument("--moves", action="store_true", help="print every move")
    asyncio.run(measure(parser.parse_args()))


def say(line: str = "") -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Move:
    """A task that changed hands: its last output before, its first after, and the steps in between."""

    task: str
    before: str
    after: str
    last_ms: float
    first_ms: float
    steps: list[tuple[str, float]]

    @property
    def gap_ms(self) -> float:
        """How long there was no output."""
        return self.first_ms - self.last_ms


async def measure(asked: argparse.Namespace) -> None:
    """Run everything, drain, and tell."""
    with tempfile.TemporaryDirectory(prefix="batonpass-handover-") as made:
        folder = Path(made)
        os.chmod(made, 0o711)  # noqa: PTH101, S103 - Postgres may run as another user, who has to pass through
        with EmbeddedPostgres(folder / "postgres", durable=False) as postgres, LocalBroker(folder / "broker") as broker:
            await upgrade(postgres.url)
            job = await make_job(broker.bootstrap_servers)
            coordinator = CoordinatorProcess(
                postgres.url, folder / "coordinator.log", BATONPASS_KAFKA_BOOTSTRAP=broker.bootstrap_servers
            )
            await coordinator.start()
            async with AsyncExitStack() as stack:
                stack.push_async_callback(coordinator.kill)
                await declare(coordinator, job)
                pids = {"broker": broker.pid, "coordinator": coordinator.pid}
                for name in WORKERS:
                    words = (in_words(job), str(folder), name, coordinator.url, str(folder / f"{name}.trace"))
                    pids[name] = await stack.enter_async_context(process("tests.benchmarks.handover.worker", *words))
                every = str(asked.every_ms / 1_000)
                load = process("tests.benchmarks.handover.load", in_words(job), every)
                pids["load"] = await stack.enter_async_context(load)
                await at_rest(coordinator, job)
                await say_cost(pids, asked.steady_s)
                for number in range(asked.drains):
                    await drain(coordinator, job, WORKERS[number % len(WORKERS)])
                await asyncio.sleep(2)
            traces = {name: trace_of(folder / f"{name}.trace") for name in WORKERS}
            tell([move for task in range(TASKS) for move in await moves_of(job, task, traces)], is_each=asked.moves)


async def make_job(bootstrap: str) -> Job:
    """Make the topics."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    names = ["orders", "totals", "store"]
    await admin.create_topics([NewTopic(name, TASKS, 1) for name in names])
    for name in names:
        await known_to_broker(admin, name, TASKS)
    await admin.close()
    return Job(KafkaConnection(bootstrap_servers=bootstrap), f"orders-{uuid.uuid4().hex[:8]}", *names)


async def declare(coordinator: CoordinatorProcess, job: Job) -> None:
    """Declare the group."""
    part = {
        "id": "0", "partitions": TASKS, "stateful": True,
        "source_topics": [job.source], "changelog_topics": [job.changelog],
    }  # fmt: skip
    config = {
        "num_standby_replicas": 1, "acceptable_recovery_lag": 1_000, "initial_rebalance_delay_ms": 500,
        "heartbeat_interval_ms": 1_000, "session_timeout_ms": 10_000, "max_warmup_replicas": 4,
        "max_drain_warmups": 12, "max_warmups_per_member": 12,
    }  # fmt: skip
    body = {"topology": {"subtopologies": [part]}, "config": config}
    (await coordinator.call("PUT", f"/v1/groups/{job.group}", body)).raise_for_status()


@asynccontextmanager
async def process(module: str, *words: str) -> AsyncIterator[int]:
    """Run a module in a process of its own, which is told to go at the end; yield its id."""
    command = (sys.executable, "-m", module, *words)
    started = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[3], env=dict(os.environ))
    try:
        yield started.pid
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGTERM)
            await started.wait()


async def say_cost(pids: dict[str, int], seconds: float) -> None:
    """Print how much of a core each process takes while nothing moves."""
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    await asyncio.sleep(seconds)
    shares = (f"{name} {100 * (cpu_s(pid) - before[name]) / seconds:.0f} %" for name, pid in pids.items())
    say(f"of a core at rest: {', '.join(shares)}")


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def at_rest(coordinator: CoordinatorProcess, job: Job) -> None:
    """Wait until all workers are there and nothing is to come."""
    async with asyncio.timeout(180):
        while True:
            found = (await coordinator.call("GET", f"/v1/groups/{job.group}")).json()
            if found["at_rest"] and found["members"] == len(WORKERS):
                return
            await asyncio.sleep(0.2)


async def drain(coordinator: CoordinatorProcess, job: Job, name: str) -> None:
    """Have a worker hand everything over, and then let it stay."""
    path = f"/v1/groups/{job.group}/members/{name}/drain"
    async with httpx.AsyncClient(base_url=coordinator.url, timeout=40) as client:
        (await client.post(path, params={"wait_ms": 30_000})).raise_for_status()
        await asyncio.sleep(0.5)
        (await client.delete(path)).raise_for_status()
    await asyncio.sleep(0.5)
    await at_rest(coordinator, job)
    await asyncio.sleep(0.5)


# --- what came of it ------------------------------------------------------------------------------------------------


def trace_of(file: Path) -> dict[str, list[tuple[float, str]]]:
    """Return each task's steps with their times."""
    found: dict[str, list[tuple[float, str]]] = {}
    for line in file.read_text().splitlines():
        at_ms, task, step = line.split()
        found.setdefault(task, []).append((float(at_ms), step))
    return found


async def moves_of(job: Job, partition: int, traces: dict[str, dict[str, list[tuple[float, str]]]]) -> list[Move]:
    """Return the moves of a task, from its outputs, which are checked to be complete on the way."""
    records = await read(job, job.output, partition=partition)
    told = [json.loads(record.value) for record in records]
    assert [each["offset"] for each in told] == list(range(len(told)))
    task = f"0_{partition}"
    found = []
    for before, after in pairwise(range(len(told))):
        old, new = told[before]["owner"], told[after]["owner"]
        if old != new:
            last, first = records[before].timestamp, records[after].timestamp
            steps: list[tuple[str, float]] = []
            told_ms = last_before(traces[old][task], "told-to-stop", first)
            at_ms = told_ms
            stopped_ms = next_of(traces[old][task], "stopped", told_ms, until_ms=told_ms + 60_000)
            for owner, names in ((old, OLD), (new, NEW)):
                for name in names:
                    until_ms = stopped_ms if names is OLD and name not in CONFIRM else at_ms + 10_000
                    at_ms = next_of(traces[owner][task], name, at_ms, until_ms=until_ms)
                    steps.append((f"{'old' if owner == old else 'new'} {name}", at_ms))
            found.append(Move(task, old, new, last, first, steps))
    return found


def last_before(trace: list[tuple[float, str]], step: str, at_ms: float) -> float:
    """Return when a step came last before a time."""
    return max(when for when, name in trace[: bisect_left(trace, (at_ms, ""))] if name == step)


def next_of(trace: list[tuple[float, str]], step: str, at_ms: float, *, until_ms: float) -> float:
    """Return when a step came next; the time itself where it did not come."""
    found = (when for when, name in trace[bisect_left(trace, (at_ms, "")) :] if name == step)
    came_ms = next(found, at_ms)
    return came_ms if came_ms <= until_ms else at_ms


def quantile(ascending: list[float], share: float) -> float:
    """Return the value that a share of all does not exceed."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def tell(moves: list[Move], *, is_each: bool) -> None:
    """Print what moves were made of."""
    if is_each:
        for move in moves:
            say(f"{move.task} {move.before} -> {move.after} {move.gap_ms:.0f} ms")
            for (_, begun), (name, at_ms) in pairwise([("", move.last_ms), *move.steps]):
                say(f"    {at_ms - move.last_ms:8.1f}  {at_ms - begun:+7.1f}  {name}")
    names = [name for name, _ in moves[0].steps]
    say(f"{'step':24}{'p50':>8}{'p90':>8}{'max':>8}   milliseconds after the step before")
    for index, name in enumerate(names):
        took = sorted(move.steps[index][1] - (move.steps[index - 1][1] if index else move.last_ms) for move in moves)
        say(f"{name:24}{median(took):8.1f}{quantile(took, 0.9):8.1f}{took[-1]:8.1f}")
    gaps = sorted(move.gap_ms for move in moves)
    say(
        f"{len(gaps)} moves, gap p50 {median(gaps):.0f} ms, p90 {quantile(gaps, 0.9):.0f} ms, "
        f"p99 {quantile(gaps, 0.99):.0f} ms, max {gaps[-1]:.0f} ms"
    )


if __name__ == "__main__":
    main()
