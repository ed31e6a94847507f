"""Input for every task, a record each time: ``JOB EVERY_SECONDS``; until told to stop."""

from __future__ import annotations

import asyncio
import signal
import sys

from aiokafka import AIOKafkaProducer
from tests.kafka.totals import Job, from_words


async def main(job: Job, every_s: float) -> None:
    """Write until told to stop."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with AIOKafkaProducer(**job.connection.client_options(), linger_ms=2) as producer:
        partitions = sorted(await producer.partitions_for(job.source))
        number = 0
        while not stopping.is_set():
            for partition in partitions:
                key = f"k{number % 10}".encode()
                await producer.send(job.source, b"1", key=key, partition=partition)
                # A little apart, as records come.
                await asyncio.sleep(every_s / len(partitions))
            number += 1


if __name__ == "__main__":
    asyncio.run(main(from_words(sys.argv[1]), float(sys.argv[2])))
