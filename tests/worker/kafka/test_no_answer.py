"""An empty read is not "nothing new": brokers that moved, topics that are gone, coordinators that never come."""

import asyncio
import dataclasses
import logging
from collections import Counter
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from tests.kafka.cluster import known_to_broker, topics_of_a_job
from tests.waiting import until
from tests.worker.kafka.test_missing import make
from tests.worker.kafka.test_reader_and_store import ended
from tests.worker.kafka.totals import Job, NewTopics, Owner, check_exactly_once, expected, new_job, write

from batonpass.kafka.broker import LocalBroker
from batonpass.sockets import free_port
from batonpass.worker.kafka import ActiveOptions, KafkaConnection, KafkaRuntime
from batonpass.worker.kafka.active import ChangelogShort
from batonpass.worker.kafka.topics import MissingPartition
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"
QUICK = ActiveOptions(missing_topic_ms=1_000, retry_ms=100)


async def delete(job: Job, topic: str) -> None:
    """Delete a topic that is in use."""
    admin = AIOKafkaAdminClient(bootstrap_servers=job.connection.bootstrap_servers)
    await admin.start()
    await admin.delete_topics([topic])
    await admin.close()


async def test_an_input_that_is_deleted_under_its_task_is_a_failure_and_no_flood(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = await new_job(bootstrap, new_topic)
    a = Owner(job.runtime(tmp_path, "a", options=QUICK))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.states == ["running"])
    await delete(job, job.source)
    error = await ended(a)
    assert isinstance(error, MissingPartition)
    assert f"topic {job.source} does not exist" in str(error)
    await a.close()
    lines = Counter(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert sum(lines.values()) < 30, lines


async def test_a_changelog_that_is_deleted_is_a_copy_that_is_not_ready_and_a_failure_at_the_next_write(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    a, b = (Owner(job.runtime(tmp_path / name, name, options=QUICK)) for name in ("a", "b"))
    a.hold(TASK, Role.ACTIVE)
    b.hold(TASK, Role.STANDBY)
    await write(job, 10)
    await until(lambda: a.totals() == expected(10) and b.totals() == expected(10) and b.is_caught_up(TASK))
    await delete(job, job.changelog)
    await until(lambda: b.progressed[TASK].remaining() is None)
    assert job.changelog in b.progressed[TASK].detail
    await write(job, 10, first=10)
    assert isinstance(await asyncio.wait_for(ended(a), 30), MissingPartition)
    await make(bootstrap, job.changelog)
    a.hold(TASK, Role.ACTIVE)
    assert isinstance(await ended(a), ChangelogShort)
    await b.close()
    await a.close()


async def test_a_topic_that_is_gone_is_missed_while_another_of_the_task_is_busy(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    other = await new_topic("orders")
    part = dataclasses.replace(job.subtopology("a"), sources=(job.source, other))
    a = Owner(KafkaRuntime(job.connection, job.group, {"0": part}, folder=tmp_path, options=QUICK))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.states == ["running"])
    await delete(job, other)
    _, run = a.tasks[TASK]
    for number in range(200):
        await write(job, 1, first=number)
        if run.done():
            break
        await asyncio.sleep(0.1)
    error = await ended(a)
    assert isinstance(error, MissingPartition)
    assert other in str(error)
    await a.close()


async def test_an_output_that_nobody_named_and_is_gone_is_a_failure_with_its_name(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    a = Owner(job.runtime(tmp_path, "a", options=dataclasses.replace(QUICK, missing_topic_ms=0)))
    a.hold(TASK, Role.ACTIVE)
    await write(job, 10)
    await until(lambda: a.totals() == expected(10))
    await delete(job, job.output)
    await write(job, 10, first=10)
    error = await asyncio.wait_for(ended(a), 60)
    assert isinstance(error, MissingPartition)
    assert job.output in str(error)
    await a.close()


class Name:
    """What a name in DNS is: connections to it lead to wherever the broker is now."""

    def __init__(self) -> None:
        self.leads_to = 0
        self.port = free_port()

    async def open(self) -> asyncio.Server:
        """Listen until the server that this returns is closed."""
        return await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.leads_to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    except OSError:
        pass
    finally:
        writer.close()


async def test_brokers_that_come_back_at_other_addresses_are_found_by_the_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By copies and by actives, while the addresses that they know lead nowhere."""
    caplog.set_level(logging.CRITICAL, "aiokafka")
    name = Name()
    server = await name.open()
    names = ["orders", "totals", "store"]
    job = Job(KafkaConnection(bootstrap_servers=f"127.0.0.1:{name.port}"), "orders", *names)
    a, b = Owner(job.runtime(tmp_path / "a", "a")), Owner(job.runtime(tmp_path / "b", "b"))

    async def started() -> tuple[LocalBroker, Job]:
        broker = LocalBroker(tmp_path / "broker", port=free_port(), heap_mb=256)
        await asyncio.to_thread(broker.start)
        name.leads_to = int(broker.bootstrap_servers.rpartition(":")[2])
        connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
        return broker, dataclasses.replace(job, connection=connection)

    broker, direct = await started()
    await make_topics(broker, names)
    a.hold(TASK, Role.ACTIVE)
    b.hold(TASK, Role.STANDBY)
    await write(direct, 50)
    await until(lambda: a.totals() == b.totals() == expected(50))
    await asyncio.to_thread(broker.stop)
    broker, direct = await started()
    await write(direct, 50, first=50)
    await until(lambda: a.totals() == b.totals() == expected(100))
    await b.close()
    await a.close()
    await check_exactly_once(direct, 100)
    await asyncio.to_thread(broker.stop)
    server.close()


async def make_topics(broker: LocalBroker, names: list[str]) -> None:
    """Make the topics of a job on a broker of its own."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.create_topics(topics_of_a_job(names))
    for topic in names:
        await known_to_broker(admin, topic, 1)
    await admin.close()


LACKING = {
    "transaction.state.log.replication.factor": "transactions of orders-0_0 have no coordinator",
    "offsets.topic.replication.factor": "group orders has no coordinator",
}


@pytest.mark.parametrize("setting", LACKING)
async def test_a_coordinator_that_never_comes_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """A single broker cannot make a topic of three copies, which Kafka's own are by default."""
    monkeypatch.setattr("batonpass.worker.kafka.connection.ANSWER_TIMEOUT_S", 2.0)
    caplog.set_level(logging.WARNING, "batonpass.worker.kafka")
    broker = LocalBroker(tmp_path / "broker", settings={setting: "3"}, heap_mb=256)
    await asyncio.to_thread(broker.start)
    names = ["orders", "totals", "store"]
    await make_topics(broker, names)
    a = Owner(Job(KafkaConnection(bootstrap_servers=broker.bootstrap_servers), "orders", *names).runtime(tmp_path, "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: LACKING[setting] in caplog.text)
    assert setting in caplog.text
    await asyncio.wait_for(a.close(), 30)
    await asyncio.to_thread(broker.stop)
