"""Where a task goes on that finds no committed offset, or does not get to know it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.commit import OffsetFetchRequest, OffsetFetchResponse_v3
from tests.kafka.cluster import known_to_broker
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, Owner, new_job, read, write

from batonpass.worker.kafka import ActiveOptions, Context, KafkaRuntime, Process, Subtopology
from batonpass.worker.kafka.metadata import MetadataClient
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"


def relay(job: Job, folder: Path, options: ActiveOptions, *, tables: tuple[str, ...] = ()) -> Owner:
    """Return a member whose tasks have no state, and write what they read to the output."""

    async def process(record: ConsumerRecord, context: Context) -> None:
        await context.send(job.output, record.value, key=record.key, partition=context.partition)

    part = Subtopology(sources=(job.source, *tables), process=process, tables=tables)
    return Owner(KafkaRuntime(job.connection, job.group, {"0": part}, folder=folder, options=options))


async def relayed(job: Job) -> list[int]:
    return [int(record.value) for record in await read(job, job.output)]


async def reached(job: Job, numbers: list[int]) -> None:
    """Wait until all of these numbers, and no more, have been written."""

    async def is_there() -> bool:
        return len(await relayed(job)) >= len(numbers)

    await until(is_there)
    assert await relayed(job) == numbers


async def committed(job: Job) -> int | None:
    options = job.connection.client_options() | {"enable_auto_commit": False}
    async with AIOKafkaConsumer(**options, group_id=job.group) as consumer:
        found: int | None = await consumer.committed(TopicPartition(job.source, 0))
        return found


@pytest.mark.parametrize("code", [14, 16], ids=["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"])
@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_broker_that_does_not_know_the_group_yet_is_asked_again(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, code: int, start: str
) -> None:
    """It says so of the group as a whole, and names no partition; aiokafka took that for a group without offsets."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 10)
    a = relay(job, tmp_path / "a", ActiveOptions())
    a.hold(TASK, Role.ACTIVE)
    await reached(job, list(range(10)))
    await a.give_up(TASK)
    await write(job, 5, first=10)
    send, left = MetadataClient.send, [code] * 5

    async def unknown(client: MetadataClient, node_id: Any, request: Any, **more: Any) -> Any:
        answer = await send(client, node_id, request, **more)
        if isinstance(request, OffsetFetchRequest) and left:
            return OffsetFetchResponse_v3(0, [], left.pop())
        return answer

    monkeypatch.setattr(MetadataClient, "send", unknown)
    b = relay(job, tmp_path / "b", ActiveOptions(start=start))
    b.hold(TASK, Role.ACTIVE)
    await reached(job, list(range(15)))
    assert not left
    await b.close()


async def test_offsets_that_went_back_are_told_of_without_state_too(
    bootstrap: str,
    new_topic: NewTopics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The cluster has lost a commit that it acknowledged: what was sent by then may be there twice."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 50)
    commit, calls = AIOKafkaProducer.commit_transaction, list[None]()

    async def lose_the_second(producer: AIOKafkaProducer) -> None:
        calls.append(None)
        if len(calls) == 2:
            await producer.abort_transaction()
            return
        if len(calls) == 3:
            raise KafkaConnectionError("gone away")
        await commit(producer)

    monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", lose_the_second)
    a = relay(job, tmp_path, ActiveOptions(retry_ms=50, records_max=20))
    a.hold(TASK, Role.ACTIVE)
    await reached(job, list(range(50)))
    assert caplog.text.count("committed offsets went back") == 1
    await a.close()


async def test_who_begins_at_the_end_leaves_nothing_out_from_then_on(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """The first owner ends without having met a record, so that it has committed none."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 5)
    options = ActiveOptions(start="latest")
    a = relay(job, tmp_path / "a", options)
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.states == ["running"])
    await a.give_up(TASK)
    await write(job, 5, first=5)
    b = relay(job, tmp_path / "b", options)
    b.hold(TASK, Role.ACTIVE)
    await write(job, 5, first=10)
    await reached(job, list(range(5, 15)))
    await b.close()


async def test_what_a_job_writes_to_itself_before_its_reader_runs_is_not_left_out(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """One subtopology's tasks run, and commit, before those of another that reads what they write."""
    job, inner = await new_job(bootstrap, new_topic), await new_topic("inner")
    await write(job, 5)

    def passing_on(to: str) -> Process:
        async def process(record: ConsumerRecord, context: Context) -> None:
            await context.send(to, record.value, key=record.key, partition=0)

        return process

    parts = {
        "0": Subtopology(sources=(job.source,), process=passing_on(inner), outputs=(inner,)),
        "1": Subtopology(sources=(inner,), process=passing_on(job.output), outputs=(job.output,)),
    }
    options = ActiveOptions(start="latest")
    workers = [
        Owner(KafkaRuntime(job.connection, job.group, parts, folder=tmp_path / name, options=options)) for name in "abc"
    ]
    # They start together, and one of them says where the job begins.
    await asyncio.gather(*(worker.runtime.on_disk() for worker in workers))
    a, b, late = workers
    a.hold("0_0", Role.ACTIVE)
    await until(lambda: a.states == ["running"])
    await write(job, 5, first=5)

    async def is_written() -> bool:
        return len(await read(job, inner)) >= 5

    await until(is_written)
    await late.runtime.on_disk()
    b.hold("1_0", Role.ACTIVE)
    await reached(job, list(range(5, 10)))
    for worker in workers:
        await worker.close()


async def test_it_says_at_once_where_it_has_begun(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 5)
    a = relay(job, tmp_path, ActiveOptions(start="latest"))
    a.hold(TASK, Role.ACTIVE)

    async def is_said() -> bool:
        return await committed(job) == 5

    await until(is_said)
    await a.close()


async def test_a_partition_that_a_source_gets_later_is_read_from_its_beginning(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """Those that it had when the group began are begun at their ends, also if that is a while later."""
    job = await new_job(bootstrap, new_topic, partitions=2)
    options = ActiveOptions(start="latest")
    a = relay(job, tmp_path / "a", options)
    a.hold("0_0", Role.ACTIVE)
    await until(lambda: a.states == ["running"])
    await write(job, 2, partition=1)
    a.hold("0_1", Role.ACTIVE)
    await until(lambda: a.states == ["running"] * 2)
    await write(job, 2, first=2, partition=1)

    async def is_relayed(numbers: list[int], partition: int) -> bool:
        return [int(record.value) for record in await read(job, job.output, partition=partition)] == numbers

    await until(lambda: is_relayed([2, 3], 1))
    await a.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    for topic in (job.source, job.output):
        await admin.create_partitions({topic: NewPartitions(total_count=3)})
        await known_to_broker(admin, topic, 3)
    await admin.close()
    await write(job, 2, first=4, partition=2)
    # Whoever has one of the others commits after that, and before the new one is begun.
    b = relay(job, tmp_path / "b", options)
    b.hold("0_0", Role.ACTIVE)
    await write(job, 1, first=6)
    await until(lambda: is_relayed([6], 0))
    b.hold("0_2", Role.ACTIVE)
    await until(lambda: is_relayed([4, 5], 2))
    await b.close()


async def test_a_table_is_read_from_its_beginning_whatever_is_said_of_the_start(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job, table = await new_job(bootstrap, new_topic), await new_topic("users")
    await write(job, 5)
    await write(Job(job.connection, job.group, table, job.output, job.changelog), 3, first=100)
    a = relay(job, tmp_path, ActiveOptions(start="latest"), tables=(table,))
    a.hold(TASK, Role.ACTIVE)
    await reached(job, [100, 101, 102])
    await write(job, 2, first=5)
    await reached(job, [100, 101, 102, 5, 6])
    await a.close()


async def test_a_table_that_a_release_adds_for_a_topic_that_was_read_says_what_it_lacks(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = await new_job(bootstrap, new_topic)

    async def process(record: ConsumerRecord, context: Context) -> None:
        context.store(job.source).put(record.key, record.value)

    part = Subtopology(
        sources=(job.source,), tables=(job.source,), changelogs={job.source: job.changelog}, process=process
    )
    await write(job, 5)
    a = relay(job, tmp_path / "a", ActiveOptions())
    a.hold(TASK, Role.ACTIVE)
    await reached(job, list(range(5)))
    await a.give_up(TASK)
    for says in (1, 1):
        b = Owner(KafkaRuntime(job.connection, job.group, {"0": part}, folder=tmp_path / "b"))
        b.hold(TASK, Role.ACTIVE)
        await until(lambda: b.states == ["running"])  # noqa: B023
        assert caplog.text.count(f"table {job.source} of ") == says
        await write(job, 1, first=5)
        await until(lambda: (store := b.runtime.store(TASK, job.source)) and store.get(b"k5"))  # noqa: B023
        await b.close()
