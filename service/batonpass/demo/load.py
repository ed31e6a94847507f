"""Amounts for customers at a steady rate: ``python -m batonpass.demo.load JOB``, until it is told to stop.

At the end it prints in one line of JSON how many records of each partition the broker has taken.
"""

import asyncio
import json
import random
import signal
import sys

import msgspec
from aiokafka import AIOKafkaProducer

from batonpass.demo.job import LOG_FORM, Job, connection, customer
from batonpass.terminal import log_to_stderr, say
from batonpass.worker.kafka.said import write_once

TICK_S = 0.02
BACKLOG_MAX_S = 1.0
"""After this process or the broker stood still for longer, the records not sent are not made up for at once."""


class Load:
    """Sends to every partition of the source at the job's rate, and counts the records taken by the broker."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._random = random.Random(1)  # noqa: S311 - amounts, no secrets
        self.taken = [0] * job.tasks
        self.refused = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Send until told to stop, and wait until everything sent has been taken.

        Raises:
            KafkaError: when the broker cannot be reached at the start.
        """
        # Idempotent, so that a repeated request doubles nothing.
        reached = connection(self._job.bootstrap, "batonpass-demo-load").client_options()
        producer = AIOKafkaProducer(**reached, enable_idempotence=True, linger_ms=0)
        await producer.start()
        try:
            await self._send(producer, stop)
            await producer.flush()
        finally:
            await producer.stop()

    async def _send(self, producer: AIOKafkaProducer, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        begun, sent = loop.time(), 0
        while not stop.is_set():
            due = int((loop.time() - begun) * self._job.rate)
            if due - sent > BACKLOG_MAX_S * self._job.rate:
                begun, sent, due = loop.time(), 0, 0
            for _ in range(due - sent):
                for partition in self._job.turns:
                    await self._one(producer, partition)
            sent = due
            await asyncio.sleep(TICK_S)

    async def _one(self, producer: AIOKafkaProducer, partition: int) -> None:
        key = customer(self._random.randrange(self._job.customers))
        amount = b"%d" % self._random.randint(1, 500)
        future = await producer.send(self._job.source, amount, key=key, partition=partition)
        future.add_done_callback(self._note)

    def _note(self, done: asyncio.Future[object]) -> None:
        if done.cancelled() or done.exception() is not None:
            self.refused += 1
        else:
            self.taken[done.result().partition] += 1  # type: ignore[attr-defined]


async def work(job: Job) -> int:
    """Run the load until told to stop; return the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    load = Load(job)
    write_once(load)
    say(json.dumps({"event": "begun"}))
    await load.run(stop)
    say(json.dumps({"event": "ended", "taken": load.taken, "refused": load.refused}))
    return 0


def main() -> int:
    log_to_stderr("WARNING", LOG_FORM)
    return asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Job)))


if __name__ == "__main__":
    sys.exit(main())
