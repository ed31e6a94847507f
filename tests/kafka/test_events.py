"""What Postgres has in its outbox comes to the topic of events, from a coordinator that is a process and is killed."""

import asyncio
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from tests.proof.coordinators import CoordinatorProcess
from tests.waiting import until

pytestmark = pytest.mark.needs("kafka")


async def kept(coordinator: CoordinatorProcess) -> list[dict[str, Any]]:
    """Return every event as the API has it, oldest first."""
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        answer = await coordinator.call("GET", f"/v1/events?after={after}&limit=500")
        answer.raise_for_status()
        page = answer.json()["events"]
        if not page:
            return found
        found += page
        after = page[-1]["position"]


async def test_events_of_a_killed_coordinator_reach_the_topic(bootstrap: str, own_url: str, tmp_path: Path) -> None:
    """In the order of each group; only the last ones before a kill are there twice."""
    prefix = f"fleet-{uuid.uuid4().hex[:8]}"
    coordinator = CoordinatorProcess(
        own_url,
        tmp_path / "coordinator.log",
        BATONPASS_KAFKA_BOOTSTRAP=bootstrap,
        BATONPASS_KAFKA_TOPIC_PREFIX=prefix,
    )
    await coordinator.start(wait_s=90)
    records: list[ConsumerRecord] = []
    try:
        consumer = AIOKafkaConsumer(f"{prefix}.events", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            reading = asyncio.create_task(gather(consumer, records))
            for turn in range(3):
                await happen(coordinator, turn)
                if turn < 2:
                    # In the middle of it, as likely as not.
                    await until(lambda: bool(records))
                    await coordinator.kill()
                    await coordinator.start(wait_s=90)
            events = await kept(coordinator)
            positions = {each["position"] for each in events}
            await until(lambda: {position_of(one) for one in records} >= positions)
            reading.cancel()
            await asyncio.wait([reading])
    finally:
        await coordinator.kill()
    assert len(events) > 20
    by_position = {each["position"]: each for each in events}
    for group in ("first", "second"):
        mine = [one for one in records if one.key == group.encode()]
        published = [position_of(one) for one in mine]
        first_time = list(dict.fromkeys(published))
        assert first_time == [each["position"] for each in events if each["group"] == group]
        # What comes twice comes in order again, from a place before which everything had come.
        assert sum(after <= before for before, after in pairwise(published)) <= 2
        assert [msgspec.json.decode(one.value) for one in mine] == [by_position[position] for position in published]


async def happen(coordinator: CoordinatorProcess, turn: int) -> None:
    """Have two groups declared and joined by some members, and one of those leave."""
    topology = {"subtopologies": [{"id": "0", "partitions": 4}]}
    config = {"initial_rebalance_delay_ms": 0}
    async with httpx.AsyncClient(base_url=f"{coordinator.url}/v1/groups", timeout=20) as client:
        for group in ("first", "second"):
            if turn == 0:
                (await client.put(f"/{group}", json={"topology": topology, "config": config})).raise_for_status()
            for number in range(3):
                (await client.put(f"/{group}/members/m{turn}-{number}", json={})).raise_for_status()
            (await client.delete(f"/{group}/members/m{turn}-0")).raise_for_status()


async def gather(consumer: AIOKafkaConsumer, found: list[ConsumerRecord]) -> None:
    """Add whatever comes, until cancelled."""
    async for record in consumer:
        found.append(record)  # noqa: PERF401 - one by one, as they come


def position_of(record: ConsumerRecord) -> int:
    """Return an event's place in the stream."""
    position: int = msgspec.json.decode(record.value)["position"]
    return position
