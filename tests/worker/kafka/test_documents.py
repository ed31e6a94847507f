"""The worker of docs/kafka.md runs as it stands there."""

import asyncio
import os
import re
import sys
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, read

from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.testing import HttpServer, LocalCoordinator

pytestmark = pytest.mark.needs("kafka")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "kafka.md"


async def test_the_worker_of_the_document_sums_up_what_is_written(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    _, shown = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    source, output, changelog = (
        await new_topic("orders"),
        await new_topic("totals"),
        await new_topic("store", cleanup_policy="compact"),
    )
    group = f"orders-{uuid.uuid4().hex[:8]}"
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        program = shown
        for there, here in (
            ('"totals", str(total)', f'"{output}", str(total)'),
            ('("orders",)', f'("{source}",)'),
            ('("totals",)', f'("{output}",)'),
            ("orders-store-changelog", changelog),
            ('"orders", {"0"', f'"{group}", {{"0"'),
            ('8420",\n        "orders"', f'8420",\n        "{group}"'),
            ("http://127.0.0.1:8420", server.url),
        ):
            assert there in program
            program = program.replace(there, here)
        (tmp_path / "worker.py").write_text(program)
        part = {"id": "0", "partitions": 1, "source_topics": [source], "changelog_topics": [changelog]}
        body = to_json({"topology": {"subtopologies": [part]}, "config": {"initial_rebalance_delay_ms": 0}})
        await coordinator.coordinator.ask(GroupId(group), read_declaration(GroupId(group), body, if_match=None)[0])
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in (1, 2, 3):
                await producer.send_and_wait(source, str(number).encode(), key=b"k", partition=0)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "worker.py", cwd=tmp_path, env=os.environ | {"BATONPASS_KAFKA_BOOTSTRAP": bootstrap}
        )
        job = Job(KafkaConnection(bootstrap_servers=bootstrap), group, source, output, changelog)
        try:

            async def done() -> bool:
                return [one.value for one in await read(job, output)] == [b"1", b"3", b"6"]

            await until(done)
        finally:
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 30) == 0
