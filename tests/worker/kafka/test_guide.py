"""The worker guide's way from an aiokafka application to workers and back, on a real broker."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from tests.e2e.test_worker_guide import programs
from tests.kafka.cluster import NewTopics

from batonpass.sockets import free_port

pytestmark = pytest.mark.needs("kafka")

PARTITIONS = 2


@contextmanager
def running(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    """Run a program of the page until the end of the block, and end it in good order."""
    command = [sys.executable, str(folder / name), *arguments]
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.fixture
def url() -> Iterator[str]:
    """Run a coordinator with the group that the page declares."""
    port = free_port()
    command = [sys.executable, "-m", "batonpass.worker.testing", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listens" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        process.kill()


def declare(group: str, source: str) -> None:
    """Declare the group as the page does."""
    topology = {"subtopologies": [{"id": "0", "partitions": PARTITIONS, "source_topics": [source]}]}
    httpx.put(group, json={"topology": topology, "config": {"initial_rebalance_delay_ms": 0}}).raise_for_status()


async def write(bootstrap: str, topic: str, numbers: range) -> None:
    """Write orders, in turn to each partition."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in numbers:
            await producer.send_and_wait(topic, b"order %d" % number, partition=number % PARTITIONS)


async def bills(bootstrap: str, topic: str, count: int) -> Counter[bytes]:
    """Return the committed bills as soon as there are so many, and those that come within a moment after."""
    found: Counter[bytes] = Counter()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    async with consumer, asyncio.timeout(90):
        quiet = 0
        while sum(found.values()) < count or quiet < 3:
            arrived = await consumer.getmany(timeout_ms=300)
            quiet = 0 if arrived else quiet + 1
            for records in arrived.values():
                found.update(record.value for record in records if record.value is not None)
    return found


async def test_an_application_comes_over_and_goes_back_without_reprocessing(
    bootstrap: str, new_topic: NewTopics, url: str, tmp_path: Path
) -> None:
    """Consumer group, then workers, then consumer group again: every order has exactly one bill."""
    orders, output = await new_topic("orders", partitions=PARTITIONS), await new_topic("bills", partitions=1)
    group = f"billing-{orders}"
    names = {'"orders"': f'"{orders}"', '"bills"': f'"{output}"', '"billing"': f'"{group}"'}
    for name in ("before.py", "after.py"):
        text = programs()[name]
        for shown, real in names.items():
            assert shown in text
            text = text.replace(shown, real)
        (tmp_path / name).write_text(text)
    declare(f"{url}/v1/groups/{group}", orders)
    batch = 20
    for turn, (program, *arguments) in enumerate((["before.py"], ["after.py", url], ["before.py"])):
        await write(bootstrap, orders, range(turn * batch, (turn + 1) * batch))
        with running(tmp_path, program, *arguments, bootstrap):
            await bills(bootstrap, output, (turn + 1) * batch)
    expected = Counter(b"bill for order %d" % number for number in range(3 * batch))
    assert await bills(bootstrap, output, 3 * batch) == expected
