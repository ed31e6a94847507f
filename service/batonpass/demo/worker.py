"""One worker of the demonstration's job in a process of its own: ``python -m batonpass.demo.worker ORDER``.

It restores, processes and hands over as `batonpass.worker.kafka` does. Over HTTP it answers reads of single totals from
whatever copies it has. It prints a line of JSON for each event of its tasks.
"""

import asyncio
import contextlib
import ctypes
import json
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from batonpass import terminal
from batonpass.demo.job import LOG_FORM, STORE, Job, connection, customer, read_state, subtopology
from batonpass.worker import Exit, Member, OnLeaseLost, Task
from batonpass.worker.kafka import ActiveOptions, KafkaRuntime, RocksMemory, RocksStore
from batonpass.worker.own_folder import MemberIds, sole_user_of
from batonpass.worker.protocol import Offsets, Role, Stage
from batonpass.worker.tasks import Revocation

LOOK_S = 0.1

STATE_MEMORY_BYTES = 8 << 20
"""Small, because the state is small, and several workers run on one machine."""

LARGE_BYTES = 64 << 10
M_MMAP_THRESHOLD = -3
EXIT_REFUSED = 1
SMALL_READS: Mapping[str, Any] = {"max_partition_fetch_bytes": 32 * 1024, "fetch_max_wait_ms": 100}
"""Reads are small: after a read, a broker makes a client with a quota wait longer the larger the read was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a worker is told when it is started. With at most ``caught_up`` of lag a copy counts as restored."""

    job: Job
    url: str
    name: str
    folder: str
    token_file: str
    on_exit: str = "restart"
    caught_up: int = 100
    commit_interval_ms: int = 100

    def words(self) -> str:
        return msgspec.json.encode(self).decode()


def say(event: str, **fields: object) -> None:
    terminal.say(json.dumps({"at": round(time.time(), 3), "event": event} | fields))


class TellingRuntime(KafkaRuntime):
    """The runtime of a worker, which prints each step of a task."""

    async def on_standby(self, task: Task) -> None:
        say("copy", task=task.id, role=task.role, was=task.was)
        await super().on_standby(task)

    async def on_active(self, task: Task) -> None:
        say("active", task=task.id, was=task.was, fencing_token=task.fencing_token)
        await super().on_active(task)

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        final = await super().on_revoke(task, revocation)
        say("stopped", task=task.id, role=task.role, becomes=revocation.becomes)
        return final


async def tell_restores(order: Order, runtime: KafkaRuntime, member: Member) -> None:
    """Print, once it has restored, how many records each copy, and each active that begins, has read for that."""
    reported: dict[str, Task] = {}
    while True:
        for task_id, task in member.tasks.items():
            if reported.get(task_id) is task:
                continue
            restored = _restored(order, runtime, member, task)
            if restored is not None:
                reported[task_id] = task
                say("restored", task=task_id, role=task.role, was=task.was, records=restored)
        await asyncio.sleep(LOOK_S)


def _restored(order: Order, runtime: KafkaRuntime, member: Member, task: Task) -> int | None:
    """Return how many records a task has read to restore; None while it still restores."""
    holding = member.holdings.get(task.id)
    if holding is None:
        return None
    if task.role is Role.ACTIVE:
        return runtime.restored(task.id) if holding.stage is Stage.RUNNING else None
    if task.was is Role.ACTIVE:
        # A former owner has the whole state already.
        return 0
    left = holding.progress.remaining()
    return runtime.records_read(task.id) if left is not None and left <= order.caught_up else None


class Questions:
    """Answers ``GET /{task}/{customer}`` with the total, from the active or standby on this worker."""

    def __init__(self, runtime: KafkaRuntime, member: Member) -> None:
        self._runtime = runtime
        self._member = member

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, body = self._answer(scope["path"])
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str) -> tuple[int, bytes]:
        try:
            _, task_id, number = path.split("/")
            key = customer(int(number))
        except ValueError:
            return 400, b"{}"
        store = self._runtime.store(task_id, STORE)
        task = self._member.tasks.get(task_id)
        kept = None if store is None else store.get(key)
        if kept is None or task is None:
            # A copy that has not restored this customer cannot answer.
            return 404, b"{}"
        count, total = read_state(kept)
        return 200, json.dumps({"count": count, "total": total, "role": task.role}).encode()


@contextlib.asynccontextmanager
async def answering(listener: socket.socket, questions: Questions) -> AsyncIterator[None]:
    config = uvicorn.Config(questions, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    # The member handles the signals.
    serving = asyncio.ensure_future(server._serve([listener]))  # noqa: SLF001 - the public one takes the signals
    try:
        yield
    finally:
        server.should_exit = True
        await serving


async def work(order: Order, ids: MemberIds) -> int:
    """Be a worker until told to stop; return the exit code."""
    job, folder, token = order.job, Path(order.folder), Path(order.token_file)
    options = ActiveOptions(
        commit_interval_ms=order.commit_interval_ms, transaction_timeout_ms=10_000, changelog_options=SMALL_READS
    )
    parts = {"0": subtopology(job, order.name)}
    runtime = TellingRuntime(
        connection(job.bootstrap, order.name),
        job.group,
        parts,
        folder=folder / "state",
        open_store=partial(RocksStore, memory=RocksMemory(STATE_MEMORY_BYTES)),
        options=options,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    member = Member(
        order.url,
        job.group,
        runtime,
        instance_id=order.name,
        replaces=ids.last,
        new_member_id=ids.new,
        endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}",
        on_lease_lost=OnLeaseLost.CONTINUE,
        on_disk=await runtime.on_disk(),
        on_exit=Exit(order.on_exit),
        token=lambda: token.read_text().strip(),
    )
    async with answering(listener, Questions(runtime, member)):
        member.start()
        telling = asyncio.ensure_future(tell_restores(order, runtime, member))
        try:
            say("joining", name=order.name)
            reason = await member.run()
            say("gone", reason=reason)
        finally:
            telling.cancel()
            await member.close()
    return 0


def keep_heap_small() -> None:
    """Have glibc map each buffer of ``LARGE_BYTES`` or more separately, so that its memory goes back when it is freed.

    By default glibc raises that limit to the largest buffer that was freed. Batches of records then lie among the
    blocks that RocksDB caches, and leave holes in the heap that the next ones do not fit into: 0.25 MB more every
    minute. Another C library has no such setting, and is left as it is.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def main() -> int:
    # Until the member runs: the cluster is asked about state on disk before that.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    order = msgspec.json.decode(sys.argv[1], type=Order)
    terminal.log_to_stderr("WARNING", LOG_FORM)
    keep_heap_small()
    try:
        with sole_user_of(Path(order.folder)) as ids:
            return asyncio.run(work(order, ids))
    except BlockingIOError as error:
        terminal.say_on_stderr(f"batonpass: {error}")
        return EXIT_REFUSED


if __name__ == "__main__":
    sys.exit(main())
