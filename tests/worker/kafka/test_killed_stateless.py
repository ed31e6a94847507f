"""A worker without state is killed: the other one has its tasks within seconds, long before its lease is over."""

import asyncio
import os
import sys
import uuid
from itertools import pairwise
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, read

from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.testing import HttpServer, LocalCoordinator

PROGRAM = """
import sys

from batonpass.worker.kafka import BYTES, App, Context, Record

app = App(sys.argv[1], config={"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0})
source, output = (app.topic(name, key=BYTES, value=BYTES) for name in sys.argv[2:])


@app.process(source)
async def relay(record: Record[bytes, bytes], context: Context) -> None:
    await context.send(output, record.value, key=record.key, partition=record.partition)


app.run()
"""

SILENT_S = 12.0
"""On a machine that does nothing else it is three seconds; the lease is 45 s."""


@pytest.mark.needs("kafka")
async def test_outputs_of_a_killed_worker_are_silent_for_seconds(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    source, output = await new_topic("source", partitions=2), await new_topic("output", partitions=2)
    job = Job(KafkaConnection(bootstrap_servers=bootstrap), f"relay-{uuid.uuid4().hex[:8]}", source, output, "")
    (tmp_path / "relay.py").write_text(PROGRAM)

    async def write(producer: AIOKafkaProducer) -> None:
        number = 0
        while True:
            for partition in (0, 1):
                await producer.send(source, b"%d" % number, key=b"k", partition=partition)
            number += 1
            await asyncio.sleep(0.05)

    async def outputs() -> list[list[tuple[int, int]]]:
        return [[(int(one.value), one.timestamp) for one in await read(job, output, partition=part)] for part in (0, 1)]

    async with (
        LocalCoordinator() as coordinator,
        HttpServer(coordinator.answer) as server,
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
    ):
        environment = os.environ | {"BATONPASS_URL": server.url, "BATONPASS_KAFKA_BOOTSTRAP": bootstrap}
        workers = {}
        for name in ("relay-0", "relay-1"):
            workers[name] = await asyncio.create_subprocess_exec(
                sys.executable, "relay.py", job.group, source, output,
                cwd=tmp_path, env=environment | {"BATONPASS_INSTANCE": name},
            )  # fmt: skip
        writing = asyncio.create_task(write(producer))
        try:

            async def both_run() -> bool:
                answer = await coordinator.answer("GET", f"/v1/groups/{job.group}")
                return answer.status == 200 and len((await coordinator.describe(job.group))["current"]) == 2

            await until(both_run)
            await coordinator.at_rest(job.group)

            async def all_come() -> bool:
                return all(len(part) > 10 for part in await outputs())

            await until(all_come)
            workers["relay-0"].kill()
            before = [part[-1][0] for part in await outputs()]

            async def all_go_on() -> bool:
                return all(part[-1][0] > last + 40 for part, last in zip(await outputs(), before, strict=True))

            await until(all_go_on)
        finally:
            writing.cancel()
            for worker in workers.values():
                if worker.returncode is None:
                    worker.kill()
                    await worker.wait()
    for part in await outputs():
        assert [number for number, _ in part] == list(range(len(part)))
        assert max(later - earlier for (_, earlier), (_, later) in pairwise(part)) < SILENT_S * 1_000
