"""A worker of the job that writes down when each step of a handover came: ``JOB FOLDER NAME URL TRACE``."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TextIO

import httpx
from tests.kafka.totals import Job, from_words

from batonpass.worker import Member, OnLeaseLost
from batonpass.worker.kafka import ActiveOptions, KafkaRuntime, Step
from batonpass.worker.protocol import Offsets
from batonpass.worker.tasks import Revocation, Task

NAMES = {Step.GRANTED: "looked-at-lease", Step.BEGUN: "first-record"}


class Trace:
    """Steps with their times in milliseconds since 1970, a line each."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def note(self, task: str, step: str) -> None:
        """Write a step down."""
        self._file.write(f"{time.time_ns() / 1e6:.3f} {task} {step}\n")


class Traced(KafkaRuntime):
    """The runtime, with a note before and after."""

    trace: Trace

    async def on_active(self, task: Task) -> None:
        """Note the grant's arrival."""
        self.trace.note(task.id, "begun-here")
        await super().on_active(task)

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        """Note when it was told to stop, and when it had."""
        if task.fencing_token is None:
            return await super().on_revoke(task, revocation)
        self.trace.note(task.id, "told-to-stop")
        final = await super().on_revoke(task, revocation)
        self.trace.note(task.id, "stopped")
        return final


class Traffic(httpx.AsyncHTTPTransport):
    """The network, with a note of every confirmation that was sent and answered, and of every grant that arrived."""

    trace: Trace

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Carry a call out."""
        given_up: list[str] = []
        if request.method == "POST":
            told = json.loads(request.content).get("tasks") or {}
            given_up = [task for task, each in told.items() if each["role"] != "active"]
        for task in given_up:
            self.trace.note(task, "confirming")
        answer = await super().handle_async_request(request)
        await answer.aread()
        for task in given_up:
            self.trace.note(task, "confirmed")
        picture = json.loads(answer.content).get("assignment") if answer.status_code == httpx.codes.OK else None
        for each in picture["active"] if picture else ():
            self.trace.note(each["task"], "granted")
        return answer


async def main(job: Job, folder: Path, name: str, url: str, file: TextIO) -> None:
    """Work until told to stop."""
    trace = Trace(file)
    options = ActiveOptions(observe=lambda task, step: trace.note(task, NAMES.get(step, step.value)))
    runtime = Traced(job.connection, job.group, {"0": job.subtopology(name)}, folder=folder / name, options=options)
    traffic = Traffic()
    runtime.trace = traffic.trace = trace
    member = Member(
        url,
        job.group,
        runtime,
        transport=traffic,
        on_lease_lost=OnLeaseLost.CONTINUE,
        on_disk=await runtime.on_disk(),
        new_member_id=lambda: name,
    )
    async with member:
        await member.run()


if __name__ == "__main__":
    with Path(sys.argv[5]).open("w", buffering=65_536) as opened:
        asyncio.run(main(from_words(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4], opened))
