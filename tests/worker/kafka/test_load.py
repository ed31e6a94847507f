"""An active of Kafka says how much of the event loop it uses; waiting is no use of it."""

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from tests.waiting import until
from tests.worker.kafka.totals import NewTopics, Owner, new_job, write

from batonpass.worker import measured_load
from batonpass.worker.kafka import ActiveOptions, Context, KafkaRuntime, Subtopology
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")


async def test_a_hot_partition_has_the_load_and_one_that_waits_for_others_does_not(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_load, "EVERY_S", 1.0)
    job = await new_job(bootstrap, new_topic, partitions=3)

    async def process(record: ConsumerRecord, _context: Context) -> None:
        if record.partition == 0:
            time.sleep(0.004)  # noqa: ASYNC251 - it holds the loop up, as what computes does
        else:
            await asyncio.sleep(0.004)

    options = ActiveOptions(load=lambda task, busy: 40 if task == "0_2" else busy)
    part = Subtopology(sources=(job.source,), process=process)
    one = Owner(KafkaRuntime(job.connection, job.group, {"0": part}, folder=tmp_path, options=options))
    for partition in range(2):
        await write(job, 2_000, partition=partition)
    for partition in range(3):
        one.hold(f"0_{partition}", Role.ACTIVE)
    try:
        await until(lambda: one.loads.keys() == {"0_0", "0_1", "0_2"})
        assert one.loads["0_0"][0] > 3 * one.loads["0_1"][0]
        assert 0.05 < one.loads["0_0"][0] <= 1
        assert one.loads["0_2"] == [40]
        # Once its input is read, it uses next to nothing.
        await until(lambda: one.loads["0_0"][-1] < 0.2 * max(one.loads["0_0"]))
    finally:
        await one.close()


async def test_a_copy_says_what_it_costs_unless_the_worker_says_loads_itself(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_load, "EVERY_S", 0.5)
    job = await new_job(bootstrap, new_topic)
    own = ActiveOptions(load=lambda _task, _busy: 40)
    active = Owner(job.runtime(tmp_path / "active", "active"))
    copies = [Owner(job.runtime(tmp_path / name, name, options=options)) for name, options in (("a", None), ("b", own))]
    for one in copies:
        one.hold("0_0", Role.STANDBY)
    active.hold("0_0", Role.ACTIVE)
    await write(job, 3_000)
    try:
        await until(lambda: "0_0" in active.loads and max(copies[0].loads.get("0_0", [0])) > 0)
        assert copies[1].loads == {}
    finally:
        await asyncio.gather(*(one.close() for one in (active, *copies)))
