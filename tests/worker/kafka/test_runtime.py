"""The worker runtime on a real broker: restore, tail, promote in place, hand over, demote, resume from disk."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaConnectionError
from tests.kafka.cluster import known_to_broker
from tests.waiting import until
from tests.worker.kafka.totals import NewTopics, Owner, check_exactly_once, expected, new_job, write

from batonpass.worker.kafka import ActiveOptions, in_memory
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"


@pytest.mark.parametrize("connect_ahead", [True, False])
async def test_a_promoted_warmup_reads_nothing_again(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, *, connect_ahead: bool
) -> None:
    """It has fenced no producer before its grant (protocol 8.3)."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 300)
    options = ActiveOptions(connect_ahead=connect_ahead)
    a, b = Owner(job.runtime(tmp_path / "a", "a")), Owner(job.runtime(tmp_path / "b", "b", options=options))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(300))
    b.hold(TASK, Role.WARMUP)
    await until(lambda: b.is_caught_up(TASK))
    await write(job, 200, first=300)
    await until(lambda: b.totals() == expected(500))
    assert a.states == ["running"]
    final = await a.give_up(TASK)
    assert isinstance(final, int)
    await until(lambda: b.is_caught_up(TASK))
    read_before = b.runtime.records_read(TASK)
    b.hold(TASK, Role.ACTIVE, restore_to=final)
    await until(lambda: b.states == ["running"])
    assert b.runtime.restored(TASK) == 0
    assert b.runtime.records_read(TASK) == read_before
    await write(job, 100, first=500)
    await until(lambda: b.totals() == expected(600))
    assert b.runtime.records_read(TASK) == read_before
    await b.give_up(TASK)
    owners = await check_exactly_once(job, 600)
    assert owners == ["a"] * 500 + ["b"] * 100


async def test_an_owner_that_is_to_stop_amid_many_records_commits_what_it_has_processed(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 500)
    slowly, seen = job.adding_slowly("a")
    a, b = Owner(job.runtime(tmp_path / "a", "a", process=slowly)), Owner(job.runtime(tmp_path / "b", "b"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: len(seen) > 10)
    final = await asyncio.wait_for(a.give_up(TASK), 10)
    assert isinstance(final, int)
    done = len(seen)
    assert done < 500
    b.hold(TASK, Role.ACTIVE, restore_to=final)
    await until(lambda: b.totals() == expected(500))
    await b.give_up(TASK)
    owners = await check_exactly_once(job, 500)
    assert owners.count("a") == done


async def test_a_demoted_owner_goes_on_from_its_own_writes(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """It reads what others write from then on, and nothing of its own."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 100)
    a = Owner(job.runtime(tmp_path / "a", "a", open_store=in_memory))
    b = Owner(job.runtime(tmp_path / "b", "b", open_store=in_memory))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.states == ["running"])
    await until(lambda: a.totals() == expected(100))
    await a.give_up(TASK, becomes=Role.STANDBY)
    await until(lambda: a.is_caught_up(TASK))
    assert a.runtime.records_read(TASK) == 0
    b.hold(TASK, Role.ACTIVE)
    await write(job, 50, first=100)
    await until(lambda: a.totals() == expected(150))
    assert 0 < (a.runtime.records_read(TASK) or 0) <= 50
    await b.give_up(TASK)
    await a.close()
    await check_exactly_once(job, 150)


async def test_a_restart_resumes_from_its_disk(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 200)
    a, b = Owner(job.runtime(tmp_path / "a", "a")), Owner(job.runtime(tmp_path / "b", "b"))
    a.hold(TASK, Role.ACTIVE)
    b.hold(TASK, Role.STANDBY)
    await until(lambda: b.totals() == expected(200))
    await until(lambda: b.is_caught_up(TASK))
    await b.close()
    await write(job, 1, first=200)
    await until(lambda: a.totals() == expected(201))
    again = Owner(job.runtime(tmp_path / "b", "b"))
    offered = await again.runtime.on_disk()
    # One record and the markers of its transaction and of the one before it.
    assert 1 <= (offered[TASK].remaining() or 0) <= 3
    again.hold(TASK, Role.STANDBY)
    await until(lambda: again.is_caught_up(TASK) and again.runtime.records_read(TASK) == 1)
    assert again.totals() == expected(201)
    await a.give_up(TASK)
    await again.close()


async def test_a_failing_record_changes_nothing(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 20)
    a = Owner(job.runtime(tmp_path / "a", "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(20))
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(job.source, b"no number", key=b"k1", partition=0)
    _, run = a.tasks[TASK]
    with pytest.raises(ValueError, match="invalid literal"):
        await run
    assert a.totals() == expected(20)
    await check_exactly_once(job, 20)
    await a.close()


@pytest.mark.parametrize("is_committed", [True, False])
async def test_the_fate_of_a_commit_that_never_answers_is_found_in_the_changelog(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 50)
    commit = AIOKafkaProducer.commit_transaction
    hung: list[bool] = []

    async def hang_once(producer: AIOKafkaProducer) -> None:
        if hung or is_committed:
            await commit(producer)
        if not hung:
            hung.append(True)
            await asyncio.Event().wait()

    monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", hang_once)
    options = ActiveOptions(transaction_timeout_ms=2_000, retry_ms=50, records_max=20)
    a = Owner(job.runtime(tmp_path / "a", "a", options=options))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(50))
    # What was committed comes back from the changelog, once; what was not is processed again.
    assert (a.runtime.restored(TASK) or 0) == (10 if is_committed else 0)
    assert a.states == ["running", "running"]
    await a.give_up(TASK)
    await check_exactly_once(job, 50)


async def test_what_was_acknowledged_and_then_aborted_is_taken_back_and_processed_again(
    bootstrap: str,
    new_topic: NewTopics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 50)
    commit = AIOKafkaProducer.commit_transaction
    calls: list[str] = []

    async def lose_the_second(producer: AIOKafkaProducer) -> None:
        calls.append("")
        if len(calls) == 2:
            await producer.abort_transaction()
            return
        if len(calls) == 3:
            raise KafkaConnectionError("gone away")
        await commit(producer)

    monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", lose_the_second)
    a = Owner(job.runtime(tmp_path / "a", "a", options=ActiveOptions(retry_ms=50, records_max=20)))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(50))
    assert "committed offsets went back" in caplog.text
    await a.give_up(TASK)
    await check_exactly_once(job, 50)
    # The changelog has everything once, too.
    b = Owner(job.runtime(tmp_path / "b", "b"))
    b.hold(TASK, Role.STANDBY)
    await until(lambda: b.totals() == expected(50))
    await b.close()


@pytest.mark.parametrize("is_made_anew", [True, False])
async def test_state_that_its_changelog_cannot_explain_is_restored_from_the_beginning(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, *, is_made_anew: bool
) -> None:
    """The changelog was made anew, or lost its beginning."""
    # Records of a topic that is only compacted cannot be deleted.
    changelog = await new_topic("store", cleanup_policy="compact,delete")
    job = dataclasses.replace(await new_job(bootstrap, new_topic), changelog=changelog)

    async def change(*keys: bytes) -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for key in keys:
                await producer.send_and_wait(job.changelog, b"1", key=key, partition=0)

    await change(b"a", b"b", b"c")
    before = Owner(job.runtime(tmp_path / "a", "a"))
    before.hold(TASK, Role.STANDBY)
    await until(lambda: len(before.totals()) == 3 and before.is_caught_up(TASK))
    await before.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    if is_made_anew:
        await admin.delete_topics([job.changelog])
        await until(lambda: made_anew(admin, job.changelog))
        await known_to_broker(admin, job.changelog, 1)
        await change(b"d")
    else:
        await change(b"d", b"e")
        await admin.delete_records({TopicPartition(job.changelog, 0): RecordsToDelete(before_offset=4)})
    await admin.close()
    after = Owner(job.runtime(tmp_path / "a", "a"))
    after.hold(TASK, Role.STANDBY)
    await until(lambda: after.totals() == ({b"d": b"1"} if is_made_anew else {b"e": b"1"}))
    await until(lambda: after.is_caught_up(TASK))
    await after.close()


async def made_anew(admin: AIOKafkaAdminClient, topic: str) -> bool:
    """Make a topic that is being deleted; say whether it could be made yet."""
    made = await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": "compact"})])
    return all(code == 0 for _, code, *_ in made.topic_errors)
