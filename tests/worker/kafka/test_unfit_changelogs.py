"""Changelogs that would forget state are refused; topics are not made by asking about them."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from tests.kafka.cluster import known_to_broker, topics_of_a_job
from tests.waiting import until
from tests.worker.kafka.test_reader_and_store import change, ended
from tests.worker.kafka.test_state_age import later
from tests.worker.kafka.totals import Job, NewTopics, Owner, expected, new_job, write

from batonpass.core.state.policy import IsolationLevel
from batonpass.kafka.broker import LocalBroker
from batonpass.kafka.topics import TopicReader
from batonpass.worker.kafka import ActiveOptions, KafkaConnection
from batonpass.worker.kafka.topics import ChangelogRefused
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"
FORGETS = {
    "cleanup.policy=delete": {"cleanup_policy": "delete"},
    "delete.retention.ms=100": {"cleanup_policy": "compact", "delete_retention_ms": "100"},
}


@pytest.mark.parametrize("setting", FORGETS)
@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
async def test_a_changelog_that_would_forget_is_refused_by_the_name_of_its_setting(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, setting: str, role: Role
) -> None:
    job = dataclasses.replace(
        await new_job(bootstrap, new_topic), changelog=await new_topic("store", **FORGETS[setting])
    )
    one = Owner(job.runtime(tmp_path, "a"))
    one.hold(TASK, role)
    error = await ended(one)
    assert isinstance(error, ChangelogRefused)
    assert str(error).startswith(f"changelog {job.changelog} has {setting}: ")
    assert one.states == []
    assert not one.is_caught_up(TASK)
    await one.close()


async def test_one_that_forgets_by_age_too_is_taken_with_a_warning(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changelog = await new_topic("store", cleanup_policy="compact,delete")
    job = dataclasses.replace(await new_job(bootstrap, new_topic), changelog=changelog)
    copies = [Owner(job.runtime(tmp_path / name, name)) for name in ("a", "b")]
    for one in copies:
        one.hold(TASK, Role.STANDBY)
        await until(lambda: one.is_caught_up(TASK))  # noqa: B023
        await one.close()
    assert caplog.text.count(f"changelog {changelog} has cleanup.policy=compact,delete") == 1


async def test_state_that_was_level_by_a_clock_that_was_ahead_is_restored(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """Its age is not known: it may have missed any deletion."""
    job = await new_job(bootstrap, new_topic)
    await change(job, 1)
    ahead = Owner(job.runtime(tmp_path, "a", options=ActiveOptions(clock=later(24 * 365))))
    ahead.hold(TASK, Role.STANDBY)
    await until(lambda: ahead.totals() == {b"1": b"1"} and ahead.is_caught_up(TASK))
    await ahead.close()
    again = Owner(job.runtime(tmp_path, "a"))
    again.hold(TASK, Role.STANDBY)
    await until(lambda: again.is_caught_up(TASK))
    assert (again.runtime.records_read(TASK), again.totals()) == (1, {b"1": b"1"})
    await again.close()
    # By then its clock was right.
    third = Owner(job.runtime(tmp_path, "a"))
    third.hold(TASK, Role.STANDBY)
    await until(lambda: third.is_caught_up(TASK))
    assert third.runtime.records_read(TASK) == 0
    await third.close()


@pytest.fixture
async def making_broker(tmp_path: Path) -> AsyncIterator[str]:
    """A broker that makes topics when somebody asks for them, as Kafka does by default."""
    broker = LocalBroker(tmp_path / "broker", settings={"auto.create.topics.enable": "true"}, heap_mb=256)
    await asyncio.to_thread(broker.start)
    yield broker.bootstrap_servers
    await asyncio.to_thread(broker.stop)


async def test_no_topic_is_made_by_asking_about_it(making_broker: str, tmp_path: Path) -> None:
    names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("orders", "totals", "store")]
    job = Job(KafkaConnection(bootstrap_servers=making_broker), "orders", *names)
    admin = AIOKafkaAdminClient(bootstrap_servers=making_broker)
    await admin.start()
    quick = ActiveOptions(missing_topic_ms=1_000, retry_ms=100)
    active, standby = Owner(job.runtime(tmp_path / "a", "a", options=quick)), Owner(job.runtime(tmp_path / "s", "s"))
    active.hold(TASK, Role.ACTIVE)
    standby.hold(TASK, Role.STANDBY)
    assert "does not exist" in str(await ended(active))
    reader = TopicReader(job.connection)
    assert await reader.partition_counts(names) == {}
    assert set(await admin.list_topics()).isdisjoint(names)
    await admin.create_topics(topics_of_a_job(names))
    for name in names:
        await known_to_broker(admin, name, 1)
    await write(job, 20)
    active.hold(TASK, Role.ACTIVE)
    await until(lambda: active.totals() == standby.totals() == expected(20))
    await reader.partition_counts(names)
    assert (await reader.ends([(job.changelog, 0)], IsolationLevel.READ_COMMITTED))[(job.changelog, 0)] > 0
    # A topic that is deleted under clients that use it is not made anew by them either.
    await admin.delete_topics(names)
    await until(lambda: standby.progressed[TASK].detail)
    await asyncio.sleep(2)
    assert set(await admin.list_topics()).isdisjoint(names)
    await reader.close()
    await active.close()
    await standby.close()
    await admin.close()
