"""The job of docs/first-worker.md runs as it stands there."""

import asyncio
import os
import re
import sys
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from tests.waiting import until
from tests.worker.kafka.totals import Job, read

from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.testing import HttpServer, LocalCoordinator

pytestmark = pytest.mark.needs("kafka")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "first-worker.md"


def program(name: str) -> str:
    """Return a program of the page by the file name in its first line."""
    [found] = re.findall(rf"```python\n# {re.escape(name)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


async def test_the_job_of_the_page_adds_orders_up(bootstrap: str, tmp_path: Path) -> None:
    own = uuid.uuid4().hex[:8]
    text = program("totals.py")
    for there in ('"orders"', '"totals"'):
        assert there in text
        text = text.replace(there, there[:-1] + f'-{own}"')
    (tmp_path / "totals.py").write_text(text)
    totals = f"totals-{own}"
    job = Job(KafkaConnection(bootstrap_servers=bootstrap), f"orders-{own}", f"orders-{own}", totals, "")
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "totals.py",
            cwd=tmp_path,
            env=os.environ
            | {"BATONPASS_URL": server.url, "BATONPASS_KAFKA_BOOTSTRAP": bootstrap, "BATONPASS_INSTANCE": "orders-0"},
        )
        try:

            async def is_declared() -> bool:
                return (await coordinator.answer("GET", f"/v1/groups/orders-{own}")).status == 200

            await until(is_declared)
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                for customer, amount in ((b"ada", b"5"), (b"bob", b"7"), (b"ada", b"10")):
                    await producer.send_and_wait(job.source, amount, key=customer)

            async def done() -> bool:
                found = [(one.key, one.value) for part in range(4) for one in await read(job, totals, partition=part)]
                return sorted(found) == [(b"ada", b"15"), (b"ada", b"5"), (b"bob", b"7")]

            await until(done)
        finally:
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 30) == 0
    assert (tmp_path / "state" / "orders-0").is_dir()
