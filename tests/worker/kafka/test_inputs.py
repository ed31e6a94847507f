"""Records of several sources are processed by their timestamps, the first time and every time again."""

import dataclasses
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, Owner, new_job

from batonpass.worker.kafka import ActiveOptions, Context, KafkaRuntime, Subtopology
from batonpass.worker.kafka.inputs import AHEAD_BYTES, Inputs
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"
MANY = 6_000
"""More than one read brings, and more than waits here for another source."""


@dataclasses.dataclass
class Join:
    """A task of two sources, and the records that it has processed: topic and timestamp."""

    job: Job
    clicks: str
    users: str
    seen: list[tuple[str, int]] = dataclasses.field(default_factory=list)

    async def write(self, topic: str, timestamps: Iterable[int]) -> None:
        """Write a record for each of the timestamps."""
        producer = AIOKafkaProducer(**self.job.connection.client_options(), linger_ms=5)
        await producer.start()
        for at_ms in timestamps:
            await producer.send(topic, b"1", key=b"k", partition=0, timestamp_ms=at_ms)
        await producer.stop()

    async def process(self, record: ConsumerRecord, _context: Context) -> None:
        """Note the record."""
        self.seen.append((record.topic, record.timestamp))

    def owner(self, folder: Path, *, tables: tuple[str, ...] = (), idle_ms: int = 0) -> Owner:
        """Return a member that runs the task."""
        part = Subtopology(sources=(self.clicks, self.users), process=self.process, tables=tables)
        options = ActiveOptions(max_task_idle_ms=idle_ms, commit_interval_ms=50)
        one = Owner(KafkaRuntime(self.job.connection, self.job.group, {"0": part}, folder=folder, options=options))
        one.hold(TASK, Role.ACTIVE)
        return one


@pytest.fixture
async def join(bootstrap: str, new_topic: NewTopics) -> Join:
    job = await new_job(bootstrap, new_topic)
    return Join(job, clicks=await new_topic("clicks"), users=await new_topic("users"))


async def test_two_runs_over_the_same_input_meet_its_records_in_the_same_order(join: Join, tmp_path: Path) -> None:
    await join.write(join.clicks, range(1_000, 1_000 + 2 * MANY, 2))
    await join.write(join.users, range(1_001, 1_001 + MANY, 2))
    runs: list[list[tuple[str, int]]] = []
    for number in range(2):
        again = dataclasses.replace(join, job=dataclasses.replace(join.job, group=f"g-{uuid.uuid4().hex[:8]}"), seen=[])
        one = again.owner(tmp_path / str(number))
        await until(lambda: len(again.seen) == MANY + MANY // 2)  # noqa: B023
        await one.close()
        runs.append(again.seen)
    assert [at_ms for _, at_ms in runs[0]] == sorted(at_ms for _, at_ms in runs[0])
    assert runs[0] == runs[1]


async def test_what_was_read_and_not_processed_is_read_again_by_the_next_owner(join: Join, tmp_path: Path) -> None:
    """Records of one source wait for those of the other, and only what was processed is committed."""
    await join.write(join.clicks, range(1_000, 1_300))
    await join.write(join.users, [1_100])
    one = join.owner(tmp_path / "a", idle_ms=3_600_000)
    await until(lambda: len(join.seen) == 102)
    await one.give_up(TASK)
    await one.close()
    await join.write(join.users, [2_000])
    two = join.owner(tmp_path / "b", idle_ms=3_600_000)
    await until(lambda: len(join.seen) == 301)
    assert [at_ms for _, at_ms in join.seen] == sorted([*range(1_000, 1_300), 1_100])
    await two.close()


async def test_a_table_is_read_to_its_end_before_anything_else(join: Join, tmp_path: Path) -> None:
    await join.write(join.clicks, range(1_000, 1_050))
    await join.write(join.users, range(5_000, 5_000 + MANY))
    one = join.owner(tmp_path, tables=(join.users,))
    await until(lambda: len(join.seen) == MANY + 50)
    assert [topic for topic, _ in join.seen] == [join.users] * MANY + [join.clicks] * 50
    # From then on a table is a source like any other.
    await join.write(join.clicks, [9_000])
    await until(lambda: join.seen[-1] == (join.clicks, 9_000))
    await one.close()


async def test_an_empty_source_holds_nothing_up(join: Join, tmp_path: Path) -> None:
    one = join.owner(tmp_path, tables=(join.users,))
    await until(lambda: one.states == ["running"])
    await join.write(join.clicks, range(1_000, 1_010))
    await until(lambda: len(join.seen) == 10)
    await one.close()


async def test_a_source_that_was_read_to_its_end_is_waited_for(join: Join, tmp_path: Path) -> None:
    one = join.owner(tmp_path, idle_ms=3_600_000)
    await join.write(join.clicks, [1_010])
    await until(lambda: one.input_lags.get(TASK) == 1)
    await join.write(join.users, [1_005, 1_020])
    await until(lambda: len(join.seen) == 2)
    assert join.seen == [(join.users, 1_005), (join.clicks, 1_010)]
    await one.close()


async def test_and_only_for_as_long_as_the_options_say(join: Join, tmp_path: Path) -> None:
    one = join.owner(tmp_path, idle_ms=300)
    await join.write(join.clicks, [1_010])
    await until(lambda: join.seen == [(join.clicks, 1_010)])
    await one.give_up(TASK)
    await one.close()
    # It was committed: the next owner does not process it again.
    two = join.owner(tmp_path)
    await until(lambda: two.states == ["running"])
    await join.write(join.clicks, [1_011])
    await until(lambda: len(join.seen) == 2)
    assert join.seen[1] == (join.clicks, 1_011)
    await two.close()


async def test_a_source_that_gets_the_partition_of_a_task_later_is_read_too(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would read it: the group has as many tasks as before."""
    monkeypatch.setattr("batonpass.worker.kafka.active.TOPICS_LOOK_S", 0.2)
    job = await new_job(bootstrap, new_topic)
    join = Join(job, clicks=await new_topic("clicks", partitions=2), users=await new_topic("users"))
    part = Subtopology(sources=(join.clicks, join.users), process=join.process, copartitioned=False)
    one = Owner(KafkaRuntime(job.connection, job.group, {"0": part}, folder=tmp_path))
    one.hold("0_1", Role.ACTIVE)
    await until(lambda: "running" in one.states)
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_partitions({join.users: NewPartitions(2)})
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(join.users, b"1", partition=1, timestamp_ms=7)
    await until(lambda: join.seen == [(join.users, 7)])
    await one.close()


async def test_large_records_of_a_source_that_waits_are_not_read_without_end(join: Join) -> None:
    """They wait for those of another source, of which nothing is known yet."""
    clicks, users = TopicPartition(join.clicks, 0), TopicPartition(join.users, 0)
    consumer = join.job.connection.consumer({})
    inputs = Inputs(consumer, [clicks, users], (), 0)
    record = ConsumerRecord(join.clicks, 0, 0, 0, 0, b"k", bytes(1 << 20), None, 1, 1 << 20, ())
    read = 0
    while clicks in inputs.wanted() and read < 100:
        inputs.put({clicks: [record]})
        read += 1
    assert (read, inputs.wanted()) == (AHEAD_BYTES >> 20, [users])
    await consumer.stop()
