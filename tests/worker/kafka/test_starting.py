"""Clients whose start is cut short: nothing stays connected that nobody closes."""

import asyncio
import gc
import warnings

import pytest
from aiokafka import AIOKafkaConsumer

from batonpass.worker.kafka.connection import to_its_end


async def test_what_is_started_goes_on_to_its_end() -> None:
    ended = asyncio.Event()

    async def slow() -> None:
        await asyncio.sleep(0.05)
        ended.set()

    waiting = asyncio.create_task(to_its_end(slow()))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


async def test_what_never_ends_is_not_waited_for() -> None:
    cut = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cut.set()

    waiting = asyncio.create_task(to_its_end(endless(), patience_s=0.02))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert cut.is_set()


async def test_a_failure_is_raised_for_the_caller_that_waits() -> None:
    """An error whose caller no longer waits is dropped."""

    async def failing() -> int:
        await asyncio.sleep(0.01)
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await to_its_end(failing())
    waiting = asyncio.create_task(to_its_end(failing()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await to_its_end(asyncio.sleep(0, 3)) == 3


@pytest.mark.needs("kafka")
async def test_a_consumer_that_is_not_wanted_any_more_leaves_no_connection(bootstrap: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(12):
            await _cut_short(bootstrap, after_s=step * 0.0005)
        await asyncio.sleep(0.1)
        gc.collect()
    assert [str(one.message) for one in caught if "AIOKafkaConnection" in str(one.message)] == []


async def _cut_short(bootstrap: str, *, after_s: float) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    starting = asyncio.create_task(to_its_end(consumer.start()))
    await asyncio.sleep(after_s)
    starting.cancel()
    await asyncio.wait([starting])
    await consumer.stop()
