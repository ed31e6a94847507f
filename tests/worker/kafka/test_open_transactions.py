"""A stranger's transaction is open in a topic: nobody takes the place where it began for the end.

What was committed behind it cannot be read before it ends. So an owner waits and says so, and a copy says how far it
really is.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from tests.waiting import until
from tests.worker.kafka.test_no_answer import make_topics
from tests.worker.kafka.totals import Job, NewTopics, Owner, check_exactly_once, expected, new_job, read, write

from batonpass.kafka.broker import LocalBroker
from batonpass.worker.kafka import KafkaConnection, reading
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name an open transaction after half a second."""
    for module in ("reading", "active"):
        monkeypatch.setattr(f"batonpass.worker.kafka.{module}.HELD_BACK_S", 0.5)
    assert reading.HELD_BACK_S == 0.5


@asynccontextmanager
async def stranger(bootstrap: str, topic: str) -> AsyncIterator[AIOKafkaProducer]:
    """A producer whose transaction is open in a topic until it is ended."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"stranger-{uuid.uuid4().hex[:8]}")
    await producer.start()
    try:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"7", key=b"stranger", partition=0)
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def owner_with_150(
    bootstrap: str, new_topic: NewTopics, folder: Path
) -> AsyncIterator[tuple[Job, Owner, AIOKafkaProducer]]:
    """An owner that has committed 50 records before a stranger's open transaction in its changelog, and 100 behind."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 50)
    a = Owner(job.runtime(folder / "a", "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(50))
    async with stranger(bootstrap, job.changelog) as other:
        await write(job, 100, first=50)
        await until(lambda: a.totals() == expected(150))
        yield job, a, other
    await a.close()


@pytest.mark.parametrize("from_disk", [False, True])
async def test_a_new_owner_waits_until_it_has_everything_and_says_so(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, from_disk: bool
) -> None:
    """It keeps the state on its disk, which is beyond what can be read."""
    caplog.set_level(logging.WARNING, "batonpass.worker.kafka")
    async with owner_with_150(bootstrap, new_topic, tmp_path) as (job, a, other):
        final = await a.give_up(TASK)
        assert isinstance(final, int)
        b = Owner(job.runtime(tmp_path / ("a" if from_disk else "b"), "b"))
        if from_disk:
            assert (await b.runtime.on_disk())[TASK].position == final
        b.hold(TASK, Role.ACTIVE, restore_to=final)
        await until(lambda: TASK in b.progressed and "is still open" in b.progressed[TASK].detail)
        assert f"of {job.changelog}-0 is still open" in caplog.text
        assert b.states == []
        assert b.totals() == expected(150 if from_disk else 50)
        await other.abort_transaction()
        await until(lambda: b.states == ["running"])
        await write(job, 10, first=150)
        await until(lambda: b.totals() == expected(160))
        await b.close()
        assert await check_exactly_once(job, 160) == ["a"] * 150 + ["b"] * 10


async def test_a_copy_says_how_far_it_really_is(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    async with owner_with_150(bootstrap, new_topic, tmp_path) as (job, _, other):
        b = Owner(job.runtime(tmp_path / "b", "b"))
        b.hold(TASK, Role.STANDBY)
        await until(lambda: TASK in b.progressed and b.progressed[TASK].detail)
        assert b.totals() == expected(50)
        assert (b.progressed[TASK].remaining() or 0) > 10
        await other.abort_transaction()
        await until(lambda: b.totals() == expected(150) and b.is_caught_up(TASK))
        assert b.progressed[TASK].detail == ""
        await b.close()


async def test_an_owner_that_waits_heeds_a_stop(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    async with owner_with_150(bootstrap, new_topic, tmp_path) as (job, a, other):
        await a.give_up(TASK)
        b = Owner(job.runtime(tmp_path / "b", "b"))
        b.hold(TASK, Role.ACTIVE)
        await until(lambda: TASK in b.progressed and b.progressed[TASK].detail)
        await b.give_up(TASK)
        assert b.states == []
        await other.abort_transaction()


async def test_what_waits_in_the_input_behind_it_counts_and_is_named(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "batonpass.worker.kafka")
    job = await new_job(bootstrap, new_topic)
    await write(job, 10)
    a = Owner(job.runtime(tmp_path, "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(10))
    async with stranger(bootstrap, job.source) as other:
        await write(job, 200, first=11)
        await until(lambda: a.input_lags.get(TASK) == 201)
        await until(lambda: f"began at offset 10 of {job.source}-0 is still open" in caplog.text)
        assert caplog.text.count("is held back") == 1
        await other.abort_transaction()
        await until(lambda: a.input_lags.get(TASK) == 0)
    await a.close()
    assert len(await read(job, job.output)) == 210


async def test_a_transaction_of_its_own_that_hangs_is_ended_by_the_new_owner(tmp_path: Path) -> None:
    """A broker that restarts may forget the markers of a transaction that has ended; nobody else would write them."""
    broker = LocalBroker(tmp_path / "broker", settings={"transaction.partition.verification.enable": "false"})
    await asyncio.to_thread(broker.start)
    names = ["orders", "totals", "store"]
    await make_topics(broker, names)
    job = Job(KafkaConnection(bootstrap_servers=broker.bootstrap_servers), "orders", *names)
    await write(job, 50)
    a = Owner(job.runtime(tmp_path / "a", "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(50))
    await a.give_up(TASK)
    # A producer of the same id writes a record into a transaction that the coordinator does not hear of.
    former = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=f"{job.group}-{TASK}", linger_ms=0
    )
    await former.start()
    await former.begin_transaction()
    former._txn_manager._txn_partitions.add(TopicPartition(job.changelog, 0))
    await former.send_and_wait(job.changelog, b"lost", key=b"k1", partition=0)
    former._sender.sender_task.cancel()
    b = Owner(job.runtime(tmp_path / "b", "b"))
    b.hold(TASK, Role.ACTIVE)
    await until(lambda: b.states == ["running"], within_s=30)
    assert b.totals() == expected(50)
    await write(job, 50, first=50)
    await until(lambda: b.totals() == expected(100))
    await b.close()
    await check_exactly_once(job, 100)
    with suppress(KafkaError, asyncio.CancelledError):
        await former.stop()
    await asyncio.to_thread(broker.stop)
