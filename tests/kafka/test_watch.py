"""What a coordinator reads of topics on a real broker: ends as the isolation level has them, and partition counts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaTimeoutError, RequestTimedOutError
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import TopicPartition
from tests.contracts.memory_store import MemoryStore
from tests.kafka.cluster import known_to_broker
from tests.waiting import until
from tests.worker.kafka.totals import NewTopics

from batonpass.bootstrap import build
from batonpass.codec.answers import to_json
from batonpass.codec.requests import read_declaration, read_heartbeat, read_join
from batonpass.core.handover.state_size import state_sizes
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import PinRequest
from batonpass.core.state.policy import IsolationLevel
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import EndOffset, MeasuredReport
from batonpass.kafka.topics import TopicReader
from batonpass.kafka.watch import ClusterWatch
from batonpass.runtime.coordinator import Coordinator
from batonpass.settings import Settings
from batonpass.sockets import free_port
from batonpass.worker.kafka import KafkaConnection, metadata, said
from batonpass.worker.kafka.metadata import MetadataClient, TopicIds
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
    coordinator: LocalCoordinator, source: str, changelog: str, partitions: int | None = None, **more: object
) -> Coordinator:
    """Declare the group over two topics; without ``partitions`` their number is to be read."""
    part: dict[str, object] = {"id": "0", "source_topics": [source], "changelog_topics": [changelog]}
    if partitions is not None:
        part["partitions"] = partitions
    config = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "acceptable_recovery_lag": 0} | more
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
    assert await reader.partition_counts([topic]) == {topic: 1}
    # One record and the marker of its transaction; the second record is there, and not committed.
    assert await reader.ends([key], IsolationLevel.READ_COMMITTED) == {key: 2}
    assert await reader.ends([key], IsolationLevel.READ_UNCOMMITTED) == {key: 3}
    await producer.abort_transaction()
    # What was aborted takes up offsets all the same, and readers pass over it.
    async with asyncio.timeout(10):
        while await reader.ends([key], IsolationLevel.READ_COMMITTED) != {key: 4}:
            await asyncio.sleep(0.02)
    await producer.stop()


async def test_what_is_known_of_many_partitions_is_read_again_after_a_while_or_when_a_leader_says_less(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = await new_topic("changelog", partitions=3), await new_topic("changelog")
    asked = AsyncMock(side_effect=metadata.described)
    monkeypatch.setattr("batonpass.kafka.topics.described", asked)
    monkeypatch.setattr("batonpass.kafka.topics.KNOWN_FOR_S", 1_000.0)
    for _ in range(2):
        assert await reader.partition_counts([topic]) == {topic: 3}
        assert len(await reader.ends([(topic, 0), (topic, 2)], IsolationLevel.READ_COMMITTED)) == 2
    assert asked.await_count == 1
    assert await reader.partition_counts([topic, other]) == {topic: 3, other: 1}
    assert asked.await_count == 2
    async with admin_of(bootstrap) as admin:
        await admin.delete_topics([other])

    async def is_noticed() -> bool:
        await reader.ends([(other, 0)], IsolationLevel.READ_COMMITTED)
        return await reader.partition_counts([topic, other]) == {topic: 3}

    await until(is_noticed)


async def test_many_partitions_are_asked_about_in_parts_and_no_topic_that_is_not_needed(
    new_topic: NewTopics, reader: TopicReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is decoded in one go. One about all that a large cluster has would hold up everybody."""
    topics = [await new_topic("changelog", partitions=3) for _ in range(3)]
    wanted = {(topic, number) for topic in topics for number in range(3)}
    send, sizes, all_topics = AIOKafkaClient.send, list[tuple[str, int]](), list[object]()

    async def noted(client: AIOKafkaClient, node: Any, request: Any, **more: Any) -> Any:
        answer = await send(client, node, request, **more)
        asked = getattr(request, "_topics", None)
        if isinstance(request, MetadataRequest) and asked is None:
            all_topics.append(request)
        if isinstance(request, OffsetRequest):
            asked = [number for _, partitions in asked or () for number in partitions]
        if isinstance(request, MetadataRequest | OffsetRequest | TopicIds) and asked:
            sizes.append((type(request).__name__, len(asked)))
        return answer

    monkeypatch.setattr(AIOKafkaClient, "send", noted)
    monkeypatch.setattr(metadata, "UNCOUNTED", 3)
    for module in ("worker.kafka.metadata", "kafka.topics"):
        monkeypatch.setattr(f"batonpass.{module}.PARTITIONS_AT_ONCE", 6)
    monkeypatch.setattr("batonpass.kafka.topics.KNOWN_FOR_S", 0.0)

    async def all_is_known() -> bool:
        sizes.clear()
        counts = await reader.partition_counts(topics)
        ends = await reader.ends(wanted, IsolationLevel.READ_COMMITTED)
        ids = await reader.ids(wanted)
        return counts == dict.fromkeys(topics, 3) and ends == dict.fromkeys(wanted, 0) and ids.keys() == set(topics)

    await until(all_is_known)
    assert reader._client is not None
    await reader._client.force_metadata_update()  # The client does so by itself every few minutes.
    assert sorted(sizes) == [
        *[("MetadataRequest", 1), ("MetadataRequest", 2)],
        *[("OffsetRequest", 3), ("OffsetRequest", 6)],
        *[("TopicIds", 1), ("TopicIds", 2)],
    ]
    assert all_topics == []


async def test_the_next_look_is_later_the_more_partitions_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr("batonpass.kafka.watch.asyncio", SimpleNamespace(sleep=sleep))
    counts = AsyncMock(side_effect=[{"few": 5_000}, {"few": 5_000, "many": 95_000}])
    reader = SimpleNamespace(partition_counts=counts, close=AsyncMock())
    async with LocalCoordinator() as local:
        with pytest.raises(asyncio.CancelledError):
            await ClusterWatch(local.coordinator, cast("TopicReader", reader)).run()
    assert pauses == [1.0, 10.0]


async def test_an_emptied_changelog_keeps_its_end(bootstrap: str, new_topic: NewTopics, reader: TopicReader) -> None:
    """Deleted records take nothing from it: a copy has everything that there is (D5)."""
    topic = await new_topic("changelog")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for _ in range(5):
            await producer.send_and_wait(topic, b"x", partition=0)
    async with admin_of(bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=5)})
    assert await reader.partition_counts([topic]) == {topic: 1}
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
            return [tasks[TaskId(task)].target.owner for task in ("0_0", "0_1")] == ["m1", "m2"]

        await until(placed)


async def test_partitions_are_counted_and_missing_topics_left_out(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    topic = await new_topic("orders", partitions=3)
    assert await reader.partition_counts({topic, "no-such-topic"}) == {topic: 3}
    assert await reader.partition_counts(set()) == {}


async def test_a_changelog_without_a_leader_holds_up_nobody_else(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition whose brokers are all down: what the others' ends are is asked and told as ever."""
    source, changelog = await new_topic("orders", partitions=2), await new_topic("store", partitions=2)
    send = MetadataClient.send

    async def without_leader(client: MetadataClient, node: Any, request: Any, **more: Any) -> Any:
        answer = await send(client, node, request, **more)
        if isinstance(request, MetadataRequest):
            for _, topic, _, partitions in answer.topics:
                if topic == changelog:
                    partitions[:] = [
                        (5, n, -1, *rest) if n == 0 else (e, n, at, *rest) for e, n, at, *rest in partitions
                    ]
        return answer

    monkeypatch.setattr(MetadataClient, "send", without_leader)
    async with LocalCoordinator() as local:
        coordinator = await declare(local, source, changelog, 2)
        watch = ClusterWatch(coordinator, reader)
        async with asyncio.timeout(8):
            await watch.look()
        assert watch.reason is None
        _, soft = await coordinator.look(GROUP)
        assert dict(soft.begin_offsets.items()) == {(changelog, 1): 0}


async def test_a_broker_that_does_not_answer_holds_up_only_what_it_leads(
    bootstrap: str,
    new_topic: NewTopics,
    reader: TopicReader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that a firewall keeps away, for example: it is asked once, and not for each group and question."""
    source, changelog = await new_topic("orders", partitions=2), await new_topic("store", partitions=2)
    send, asked = AIOKafkaClient.send, list[object]()

    async def with_a_silent_one(client: AIOKafkaClient, node: Any, request: Any, **more: Any) -> Any:
        if node == 77:
            asked.append(request)
            await asyncio.sleep(0.02)
            raise RequestTimedOutError
        answer = await send(client, node, request, **more)
        if isinstance(request, MetadataRequest):
            answer.brokers.append((77, "127.0.0.1", 1, None))
            for _, topic, _, partitions in answer.topics:
                if topic == changelog:
                    partitions[:] = [
                        (0, n, 77, *rest) if n == 0 else (e, n, at, *rest) for e, n, at, *rest in partitions
                    ]
        return answer

    monkeypatch.setattr(metadata, "SILENT_FROM_S", 0.01)
    monkeypatch.setattr(AIOKafkaClient, "send", with_a_silent_one)
    async with LocalCoordinator() as local:
        coordinator = await declare(local, source, changelog, 2)
        watch = ClusterWatch(coordinator, reader)

        async def told() -> set[tuple[str, int]]:
            return set(await watch_ends(watch, coordinator))

        await equals(told, {(changelog, 1)})
        for _ in range(3):
            await watch.look()
        assert watch.reason is None
    # The client itself may have asked at the same moment.
    assert len(asked) in (1, 2)
    assert caplog.text.count("broker 77 does not say where the partitions end that it leads") == 1


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


async def test_state_of_a_changelog_made_anew_between_two_looks_stays_doubted(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    """Only the id of the topic shows it: the new changelog is as long as the old one (protocol 5.6)."""
    source, changelog = await new_topic("orders"), await new_topic("store")

    async def fill() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for _ in range(5):
                await producer.send_and_wait(changelog, b"x", partition=0)

    async with LocalCoordinator() as local, admin_of(bootstrap) as admin:
        coordinator = await declare(local, source, changelog, 1)
        watch = ClusterWatch(coordinator, reader)
        await fill()
        before = (await watch_ends(watch, coordinator))[changelog, 0]
        join = read_join(MemberId("m1"), to_json({"tasks": {"0_0": {"role": "none", "position": 5}}}), tasks_max=9)
        await coordinator.ask(GROUP, join)
        assert (before.offset, (await report_of(coordinator, "m1", "0_0")).lag) == (5, 0)
        await admin.delete_topics([changelog])
        async with asyncio.timeout(10):
            while await reader.partition_counts({changelog}):
                await asyncio.sleep(0.05)
        await admin.create_topics([NewTopic(changelog, 1, 1)])
        await known_to_broker(admin, changelog, 1)
        await fill()

        async def seen() -> tuple[int, bool]:
            after = (await watch_ends(watch, coordinator))[changelog, 0]
            return after.offset, after.topic_id not in {"", before.topic_id}

        await equals(seen, (5, True))
        group, _ = await coordinator.look(GROUP)
        assert dict(group.members[MemberId("m1")].doubts) == {"0_0": (("", 5),)}
        await fill()
        await watch.look()
        report = await report_of(coordinator, "m1", "0_0")
        assert (report.lag, report.other_incarnation) == (None, True)


@asynccontextmanager
async def stranger(bootstrap: str, topic: str) -> AsyncIterator[None]:
    """Keep a transaction of another producer open in partition 0, as one that hangs; it is aborted at the end."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-stranger")
    await producer.start()
    try:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"stranger", partition=0)
        yield
        await producer.abort_transaction()
    finally:
        await producer.stop()


@asynccontextmanager
async def owner_of(bootstrap: str, changelog: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Return what commits so many transactions of one record to partition 0 of a changelog: two offsets each."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{changelog}-owner") as producer:

        async def commit(transactions: int) -> None:
            for _ in range(transactions):
                async with producer.transaction():
                    await producer.send_and_wait(changelog, b"x", partition=0)

        yield commit


async def beat(coordinator: Coordinator, member: str, seq: int, report: dict[str, object]) -> None:
    """Let a member report 0_0 under its present epoch."""
    group, _ = await coordinator.look(GROUP)
    epoch = group.members[MemberId(member)].epoch
    body = to_json({"seq": seq, "member_epoch": epoch, "tasks": {"0_0": report}})
    answer = await coordinator.ask(GROUP, read_heartbeat(MemberId(member), body, tasks_max=9))
    assert isinstance(answer, Answer), answer


async def test_a_copy_beside_an_open_transaction_counts_with_how_far_it_really_is(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    """Its reader stands at the last stable offset, and has nothing of what the owner commits behind it."""
    source, changelog = await new_topic("orders"), await new_topic("store")
    told: list[dict[tuple[str, int], int]] = []
    async with LocalCoordinator() as local, owner_of(bootstrap, changelog) as commit:
        coordinator = await declare(local, source, changelog, 1)
        watch = ClusterWatch(coordinator, reader, held_up=lambda _group, begins: told.append(dict(begins)))
        await commit(3)

        async def lag() -> int | None:
            await watch.look()
            return (await report_of(coordinator, "m1", "0_0")).lag

        async with stranger(bootstrap, changelog):
            await commit(5)
            join = read_join(MemberId("m1"), to_json({"tasks": {"0_0": {"role": "none", "position": 6}}}), tasks_max=9)
            await coordinator.ask(GROUP, join)
            assert await lag() == 0
            # The stranger's record, and a record and a marker of each of the owner's transactions.
            await equals(lag, 1 + 5 * 2)
            await watch.look()
            assert told == [{(changelog, 0): 6}]

        async def later() -> list[dict[tuple[str, int], int]]:
            await watch.look()
            return told[1:]

        # Now all can be read, up to the marker of the abort.
        await equals(later, [{}])
        assert await lag() == 1 + 5 * 2 + 1


async def test_a_position_beyond_an_open_transaction_belongs_to_the_same_changelog(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    """An owner that becomes a copy has what it wrote itself, also behind the transaction of another."""
    source, changelog = await new_topic("orders"), await new_topic("store")
    async with LocalCoordinator() as local, owner_of(bootstrap, changelog) as commit:
        coordinator = await declare(local, source, changelog, 1)
        watch = ClusterWatch(coordinator, reader)
        await commit(3)
        async with stranger(bootstrap, changelog):
            await commit(5)
            join = read_join(MemberId("m1"), to_json({"tasks": {"0_0": {"role": "none", "position": 17}}}), tasks_max=9)
            await coordinator.ask(GROUP, join)
            await watch.look()
            report = await report_of(coordinator, "m1", "0_0")
            assert (report.lag, report.other_incarnation) == (0, False)


async def test_transactions_that_are_open_for_a_moment_are_no_lag(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if every look meets one, and one that is met twice would count."""
    monkeypatch.setattr("batonpass.core.state.soft.OPEN_TRANSACTION_MS", 1)
    source, changelog = await new_topic("orders"), await new_topic("store")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{changelog}-owner")
    async with LocalCoordinator() as local, producer:
        coordinator = await declare(local, source, changelog, 1)
        watch = ClusterWatch(coordinator, reader)
        for number in range(5):
            async with producer.transaction():
                await producer.send_and_wait(changelog, b"x", partition=0)
                body = {"tasks": {"0_0": {"role": "none", "position": 2 * number}}}
                await coordinator.ask(GROUP, read_join(MemberId(f"m{number}"), to_json(body), tasks_max=9))
                end = (await watch_ends(watch, coordinator))[changelog, 0]
                assert (end.offset, end.log_end, end.is_held_up) == (2 * number, 2 * number + 1, False)
                assert (await report_of(coordinator, f"m{number}", "0_0")).lag == 0


async def test_nothing_is_handed_over_while_a_transaction_keeps_the_copy_from_the_end(
    bootstrap: str, new_topic: NewTopics, reader: TopicReader
) -> None:
    """Its new owner could not run before the transaction ends, however few records are missing."""
    source, changelog = await new_topic("orders"), await new_topic("store")
    async with LocalCoordinator() as local, owner_of(bootstrap, changelog) as commit:
        coordinator = await declare(local, source, changelog, 1, acceptable_recovery_lag=1_000)
        watch = ClusterWatch(coordinator, reader)
        await commit(3)
        await coordinator.ask(GROUP, read_join(MemberId("m1"), b"{}", tasks_max=9))
        await beat(coordinator, "m1", 1, {"role": "active", "state": "running"})
        await coordinator.ask(GROUP, read_join(MemberId("m2"), b"{}", tasks_max=9))

        async def is_held_up() -> bool:
            return (await watch_ends(watch, coordinator))[changelog, 0].is_held_up

        async def owner() -> str | None:
            await watch.look()
            return (await coordinator.look(GROUP))[0].tasks[TaskId("0_0")].owner

        async with stranger(bootstrap, changelog):
            await commit(5)
            await until(is_held_up, every_s=0.2)
            await coordinator.ask(GROUP, PinRequest(TaskId("0_0"), MemberId("m2")))
            await beat(coordinator, "m2", 1, {"role": "warmup", "position": 6})
            assert (await report_of(coordinator, "m2", "0_0")).lag == 11
            assert await owner() == "m1"
        await equals(owner, None)


async def equals(what: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Look until it is what is wanted."""

    async def is_equal() -> bool:
        return await what() == wanted

    await until(is_equal, every_s=0.2)


async def watch_ends(watch: ClusterWatch, coordinator: Coordinator) -> dict[tuple[str, int], EndOffset]:
    """Look once and return the ends that the group knows then."""
    await watch.look()
    return dict((await coordinator.look(GROUP))[1].end_offsets.items())


async def test_a_cluster_that_is_away_is_reported_once_and_found_again(
    bootstrap: str, new_topic: NewTopics, caplog: pytest.LogCaptureFixture
) -> None:
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
        assert caplog.text.count('Unable connect to "127.0.0.1:1"') <= 1
        assert (await coordinator.look(GROUP))[0] == before
        watch._reader = TopicReader(KafkaConnection(bootstrap_servers=bootstrap))

        async def all_ends() -> int:
            return len(await watch_ends(watch, coordinator))

        await equals(all_ends, 2)
        assert reasons[1:] == [None]
        await watch._reader.close()


async def test_a_cluster_that_goes_away_is_noticed_though_no_group_asks_for_anything(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(*_: object) -> None:
        raise KafkaTimeoutError

    reasons: list[str | None] = []
    async with LocalCoordinator() as local:
        reader = TopicReader(KafkaConnection(bootstrap_servers=bootstrap))
        watch = ClusterWatch(local.coordinator, reader, away=reasons.append)
        await watch.look()
        assert reasons == []
        monkeypatch.setattr(MetadataClient, "send", unanswered)
        await watch.look()
        await reader.close()
    assert len(reasons) == 1


async def test_a_cluster_that_is_away_for_another_reason_is_reported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a broker that was away, and when it is back refuses the login."""
    monkeypatch.setattr(said, "SAY_AGAIN_S", 0)
    port, reasons = free_port(), list[str | None]()
    async with LocalCoordinator() as local:
        connection = KafkaConnection(bootstrap_servers=f"127.0.0.1:{port}")
        watch = ClusterWatch(local.coordinator, TopicReader(connection), away=reasons.append)
        await watch.look()
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
            await watch.look()
            await watch.look()
        await watch._reader.close()
    assert len(set(reasons)) == len(reasons) == 2


async def test_a_coordinator_with_a_bootstrap_server_reads_kafka_by_itself(
    bootstrap: str, new_topic: NewTopics
) -> None:
    """BATONPASS_KAFKA_BOOTSTRAP is all that it needs."""
    source, changelog = await new_topic("orders", partitions=2), await new_topic("store", partitions=2)
    process = build(
        Settings(kafka_bootstrap=bootstrap, kafka_topic_prefix=source, kafka_interval_ms=100, auth="off"),
        MemoryStore(),
    )
    part = {"id": "0", "source_topics": [source], "changelog_topics": [changelog]}
    body = to_json({"topology": {"subtopologies": [part]}})
    async with process.running():
        await process.coordinator.ask(GROUP, read_declaration(GROUP, body, if_match=None)[0])

        async def known() -> bool:
            group, soft = await process.coordinator.look(GROUP)
            return len(group.tasks) == 2 and len(soft.end_offsets) == 2

        await until(known)
        (watch,) = (part for part in process.kafka if isinstance(part, ClusterWatch))
        assert watch.reachable() == 1
