"""What a coordinator reads of topics on a real broker: ends as the isolation level has them, and partition counts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.structs import TopicPartition
from tests.kafka.cluster import known_to_broker
from tests.waiting import until
from tests.worker.kafka.totals import NewTopics

from batonpass.bootstrap import build
from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration, read_heartbeat, read_join
from batonpass.core.ids import GroupId, MemberId, TaskId
from batonpass.core.policy import IsolationLevel
from batonpass.core.replies import Answer
from batonpass.core.soft import EndOffset, MeasuredReport
from batonpass.core.state_size import state_sizes
from batonpass.kafka.topics import TopicReader
from batonpass.kafka.watch import ClusterWatch
from batonpass.runtime.coordinator import Coordinator
from batonpass.settings import Settings
from batonpass.worker.kafka import KafkaConnection
from batonpass.worker.testing import LocalCoordinator

pytestmark = pytest.mark.needs("kafka")
GROUP = GroupId("orders")


@pytest.fixture
async def reader(bootstrap: str) -> AsyncIterator[TopicReader]:
    """A reader of the run's Kafka."""
    made = TopicReader(KafkaConnection(bootstrap_servers=bootstrap))
    yield made
    await made.close()


@asynccontextmanager
async def admin_of(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect as an administrator."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def declare(
    coordinator: LocalCoordinator, source: str, changelog: str, partitions: int | None = None
) -> Coordinator:
    """Declare the group over two topics; without ``partitions`` their number is to be read."""
    part: dict[str, object] = {"id": "0", "source_topics": [source], "changelog_topics": [changelog]}
    if partitions is not None:
        part["partitions"] = partitions
    config = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "acceptable_recovery_lag": 0}
    body = to_json({"topology": {"subtopologies": [part]}, "config": config})
    await coordinator.coordinator.ask(GROUP, read_declaration(GROUP, body, if_match=None)[0])
    return coordinator.coordinator


async def report_of(coordinator: Coordinator, member: str, task: str) -> MeasuredReport:
    """Return what is known of a copy."""
    _, soft = await coordinator.look(GROUP)
    return soft.members[MemberId(member)].reports[TaskId(task)]


async def test_an_open_transaction_is_no_end_for_readers_of_committed_records(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    """Ends follow the isolation level: records of an open transaction, and markers of a closed one (D17)."""
    topic = await new_topic("changelog")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-writer")
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait(topic, b"1", partition=0)
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"2", partition=0)
    key = (topic, 0)
    # One record and the marker of its transaction; the second record is there, and not committed.
    assert await reader.ends([key], IsolationLevel.READ_COMMITTED) == {key: 2}
    assert await reader.ends([key], IsolationLevel.READ_UNCOMMITTED) == {key: 3}
    await producer.abort_transaction()
    # What was aborted takes up offsets all the same, and readers pass over it.
    async with asyncio.timeout(10):
        while await reader.ends([key], IsolationLevel.READ_COMMITTED) != {key: 4}:
            await asyncio.sleep(0.02)
    await producer.stop()


async def test_an_emptied_changelog_keeps_its_end(bootstrap: str, new_topic: NewTopics, reader: TopicReader) -> None:
    """Deleted records take nothing from it: a copy has everything that there is (D5)."""
    topic = await new_topic("changelog")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for _ in range(5):
            await producer.send_and_wait(topic, b"x", partition=0)
    async with admin_of(bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=5)})
    assert await reader.ends([(topic, 0)], IsolationLevel.READ_COMMITTED) == {(topic, 0): 5}


async def test_the_task_with_little_left_to_restore_moves(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    """What was deleted from a changelog is not restored."""
    source, changelog = await new_topic("orders", partitions=2), await new_topic("store", partitions=2)
    async with LocalCoordinator() as local, AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        coordinator = await declare(local, source, changelog, 2)
        for partition, records in ((0, 9), (1, 20)):
            for _ in range(records):
                await producer.send_and_wait(changelog, b"x", partition=partition)
        async with admin_of(bootstrap) as admin:
            await admin.delete_records({TopicPartition(changelog, 1): RecordsToDelete(before_offset=18)})
        await ClusterWatch(coordinator, reader).look()
        group, soft = await coordinator.look(GROUP)
        assert dict(soft.begin_offsets.items()) == {(changelog, 0): 0, (changelog, 1): 18}
        assert [state_sizes(group, soft).get(rank, 0) for rank in (0, 1)] == [9, 2]
        answer = await coordinator.ask(GROUP, read_join(MemberId("m1"), b"{}", tasks_max=9))
        assert isinstance(answer, Answer)
        tasks = {task: {"role": "active", "state": "running"} for task in ("0_0", "0_1")}
        body = {"seq": 1, "member_epoch": answer.member_epoch, "tasks": tasks}
        await coordinator.ask(GROUP, read_heartbeat(MemberId("m1"), to_json(body), tasks_max=9))
        await coordinator.ask(GROUP, read_join(MemberId("m2"), b"{}", tasks_max=9))

        async def placed() -> bool:
            tasks = (await coordinator.look(GROUP))[0].tasks
            return [tasks[TaskId(task)].target for task in ("0_0", "0_1")] == ["m1", "m2"]

        await until(placed)


async def test_partitions_are_counted_and_missing_topics_left_out(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    topic = await new_topic("orders", partitions=3)
    assert await reader.partition_counts({topic, "no-such-topic"}) == {topic: 3}
    assert await reader.partition_counts(set()) == {}


async def test_a_partition_added_while_running_becomes_a_task(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    source, changelog = await new_topic("orders", partitions=2), await new_topic("store", partitions=3)
    async with LocalCoordinator() as local, admin_of(bootstrap) as admin:
        coordinator = await declare(local, source, changelog)
        watch = ClusterWatch(coordinator, reader)
        await watch.look()
        group, _ = await coordinator.look(GROUP)
        assert sorted(group.tasks) == ["0_0", "0_1"]
        await admin.create_partitions({source: NewPartitions(3)})
        await known_to_broker(admin, source, 3)
        await watch.look()
        group, _ = await coordinator.look(GROUP)
        assert sorted(group.tasks) == ["0_0", "0_1", "0_2"]


async def test_positions_alone_are_enough_to_be_promoted(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    source, changelog = await new_topic("orders"), await new_topic("store")
    async with LocalCoordinator() as local, AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        coordinator = await declare(local, source, changelog, 1)
        watch = ClusterWatch(coordinator, reader)
        for _ in range(5):
            await producer.send_and_wait(changelog, b"x", partition=0)
        join = read_join(MemberId("m1"), to_json({"tasks": {"0_0": {"role": "none", "position": 3}}}), tasks_max=9)
        await coordinator.ask(GROUP, join)
        assert (await report_of(coordinator, "m1", "0_0")).lag is None
        await watch.look()
        assert (await report_of(coordinator, "m1", "0_0")).lag == 2
        await producer.send_and_wait(changelog, b"x", partition=0)
        await watch.look()
        assert (await report_of(coordinator, "m1", "0_0")).lag == 3


async def test_a_changelog_made_anew_makes_old_state_unknown(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    """A position in the old changelog is not caught up, but unknown."""
    source, changelog = await new_topic("orders"), await new_topic("store")
    async with LocalCoordinator() as local, admin_of(bootstrap) as admin:
        coordinator = await declare(local, source, changelog, 1)
        watch = ClusterWatch(coordinator, reader)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for _ in range(5):
                await producer.send_and_wait(changelog, b"x", partition=0)
        await watch.look()
        join = read_join(MemberId("m1"), to_json({"tasks": {"0_0": {"role": "none", "position": 5}}}), tasks_max=9)
        await coordinator.ask(GROUP, join)
        assert (await report_of(coordinator, "m1", "0_0")).lag == 0
        await admin.delete_topics([changelog])
        async with asyncio.timeout(10):
            while await reader.partition_counts({changelog}):
                await asyncio.sleep(0.05)
            await admin.create_topics([NewTopic(changelog, 1, 1)])
            await known_to_broker(admin, changelog, 1)
            while (await watch_ends(watch, coordinator))[changelog, 0].offset != 0:
                await asyncio.sleep(0.05)
        report = await report_of(coordinator, "m1", "0_0")
        assert (report.lag, report.other_incarnation) == (None, True)
        await watch.look()
        beat = read_heartbeat(MemberId("m1"), to_json({"seq": 1, "member_epoch": 1, "tasks": {"0_0": {"role": "active", "state": "restoring", "position": 0}}}), tasks_max=9)  # fmt: skip
        await coordinator.ask(GROUP, beat)
        assert (await report_of(coordinator, "m1", "0_0")).lag == 0


async def watch_ends(watch: ClusterWatch, coordinator: Coordinator) -> dict[tuple[str, int], EndOffset]:
    """Look once and return the ends that the group knows then."""
    await watch.look()
    return dict((await coordinator.look(GROUP))[1].end_offsets.items())


async def test_a_cluster_that_is_away_is_reported_once_and_found_again(bootstrap: str, new_topic: NewTopics) -> None:
    source, changelog = await new_topic("orders", partitions=2), await new_topic("store", partitions=2)
    reasons: list[str | None] = []
    async with LocalCoordinator() as local:
        coordinator = await declare(local, source, changelog, 2)
        watch = ClusterWatch(
            coordinator, TopicReader(KafkaConnection(bootstrap_servers="127.0.0.1:1")), away=reasons.append
        )
        before, _ = await coordinator.look(GROUP)
        await watch.look()
        await watch.look()
        assert len(reasons) == 1
        assert str(reasons[0]).startswith("127.0.0.1:1: ")
        assert (await coordinator.look(GROUP))[0] == before
        watch._reader = TopicReader(KafkaConnection(bootstrap_servers=bootstrap))
        await watch.look()
        assert reasons[1:] == [None]
        assert len((await coordinator.look(GROUP))[1].end_offsets) == 2
        await watch._reader.close()


async def test_a_coordinator_with_a_bootstrap_server_reads_kafka_by_itself(
    bootstrap: str, new_topic: NewTopics
) -> None:
    """BATONPASS_KAFKA_BOOTSTRAP is all that it needs."""
    source, changelog = await new_topic("orders", partitions=2), await new_topic("store", partitions=2)
    process = build(
        Settings(kafka_bootstrap=bootstrap, kafka_topic_prefix=source, kafka_interval_ms=100, auth="off"),
        "http://127.0.0.1:0",
    )
    part = {"id": "0", "source_topics": [source], "changelog_topics": [changelog]}
    body = to_json({"topology": {"subtopologies": [part]}})
    async with process.running():
        await process.coordinator.ask(GROUP, read_declaration(GROUP, body, if_match=None)[0])

        async def known() -> bool:
            group, soft = await process.coordinator.look(GROUP)
            return len(group.tasks) == 2 and len(soft.end_offsets) == 2

        await until(known)
        assert process.kafka is not None
        assert process.kafka.watch.reachable() == 1
