"""Topics that were deleted and made anew, and are longer: nobody takes offsets and state of the old ones for theirs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from tests.kafka.cluster import make_anew
from tests.waiting import until
from tests.worker.kafka.test_reader_and_store import change, ended
from tests.worker.kafka.totals import NewTopics, Owner, expected, new_job, write

from batonpass.worker.kafka import ActiveOptions, Context, KafkaRuntime, Subtopology
from batonpass.worker.kafka.active import ChangelogShort
from batonpass.worker.kafka.clients import OffsetGone
from batonpass.worker.kafka.commits import METADATA_CHARS_MAX, began_with_of, metadata_of, topic_ids_of
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at topics' ids all the time."""
    for module in ("changelog", "active"):
        monkeypatch.setattr(f"batonpass.worker.kafka.{module}.TOPICS_LOOK_S", 0.2)


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """What makes and deletes topics."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    yield client
    await client.close()


@pytest.mark.parametrize("is_running", [False, True])
async def test_nobody_runs_on_a_changelog_that_the_offsets_were_not_committed_with(
    bootstrap: str, new_topic: NewTopics, admin: AIOKafkaAdminClient, tmp_path: Path, *, is_running: bool
) -> None:
    """What the old one held is in no log any more, and where the last owner stopped may not be known."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 50)
    a = Owner(job.runtime(tmp_path / "a", "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(50))
    if not is_running:
        await a.close()
    await make_anew(admin, job.changelog, **{"cleanup.policy": "compact"})
    await change(job, *range(100))
    if not is_running:
        a = Owner(job.runtime(tmp_path / "a", "a"))
        a.hold(TASK, Role.ACTIVE)
    error = await ended(a)
    assert isinstance(error, ChangelogShort)
    assert f"changelog {job.changelog} was deleted and made anew" in str(error)
    await a.close()
    b = Owner(job.runtime(tmp_path / "b", "b", options=ActiveOptions(changelog_short="run")))
    b.hold(TASK, Role.ACTIVE)
    await until(lambda: b.states == ["running"])
    await write(job, 1, first=50)
    await until(lambda: b.totals().get(b"k0") == b"50")
    await b.close()
    # Whoever goes on from there has the new one's offsets.
    c = Owner(job.runtime(tmp_path / "c", "c"))
    c.hold(TASK, Role.ACTIVE)
    await until(lambda: c.states == ["running"])
    await c.close()


async def test_an_input_that_was_made_anew_is_not_read_on_in_the_middle(
    bootstrap: str, new_topic: NewTopics, admin: AIOKafkaAdminClient, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 50)
    a = Owner(job.runtime(tmp_path, "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(50))
    await a.close()
    await make_anew(admin, job.source)
    await write(job, 200)
    part = TopicPartition(job.source, 0)
    options = job.connection.client_options() | {"enable_auto_commit": False}
    async with AIOKafkaConsumer(**options, group_id=job.group) as consumer:
        consumer.assign([part])
        # A cluster drops the offsets of a topic with the topic, a copy of a cluster does not.
        await consumer.commit({part: (50, metadata_of({job.source: "OGLpDVXHRyafP_KnE9jhjg"}, {}))})
    again = Owner(job.runtime(tmp_path, "a"))
    again.hold(TASK, Role.ACTIVE)
    error = await ended(again)
    assert isinstance(error, OffsetGone)
    assert f"offset 50 of {job.source}-0, which is now 0 to 200, and was deleted and made anew since" in str(error)
    await again.close()


@pytest.mark.parametrize("is_added_one", [False, True])
async def test_a_source_that_has_lost_its_offset_alone_is_missed(
    bootstrap: str, new_topic: NewTopics, admin: AIOKafkaAdminClient, tmp_path: Path, *, is_added_one: bool
) -> None:
    """One that was added never had an offset, and begins where it should; from then on it is missed, too."""
    job = await new_job(bootstrap, new_topic)
    other, added = await new_topic("orders"), await new_topic("orders")

    async def count(record: ConsumerRecord, context: Context) -> None:
        counts = context.store("totals")
        counts.put(b"n", b"%d" % (int(counts.get(b"n") or 0) + 1))

    def runtime(*sources: str) -> KafkaRuntime:
        part = Subtopology(sources=sources, process=count, changelogs={"totals": job.changelog})
        return KafkaRuntime(job.connection, job.group, {"0": part}, folder=tmp_path)

    async def send(topic: str, number: int) -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for _ in range(number):
                await producer.send_and_wait(topic, b"1", partition=0)

    a = Owner(runtime(job.source, other))
    a.hold(TASK, Role.ACTIVE)
    # The first commit of the one names itself alone.
    await send(job.source, 10)
    await until(lambda: a.totals() == {b"n": b"10"})
    await send(other, 10)
    await until(lambda: a.totals() == {b"n": b"20"})
    await a.close()
    await send(added, 5)
    b = Owner(runtime(job.source, other, added))
    b.hold(TASK, Role.ACTIVE)
    await until(lambda: b.totals() == {b"n": b"25"})
    await b.close()
    lost = added if is_added_one else other
    await make_anew(admin, lost)
    await send(lost, 3)
    c = Owner(runtime(job.source, other, added))
    c.hold(TASK, Role.ACTIVE)
    error = await ended(c)
    assert isinstance(error, OffsetGone)
    assert f"no committed offset of {lost}-0" in str(error)
    assert c.totals() == {b"n": b"25"}
    await c.close()


async def test_who_never_ran_hands_on_where_the_owner_before_stopped(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """Otherwise a move would make a changelog that is too short look long enough."""
    job = await new_job(bootstrap, new_topic)
    a = Owner(job.runtime(tmp_path, "a"))
    a.hold(TASK, Role.ACTIVE, restore_to=40)
    assert isinstance(await ended(a), ChangelogShort)
    assert await a.give_up(TASK) == 40
    await a.close()


def test_metadata_of_somebody_else_says_nothing() -> None:
    ids = {"orders": "OGLpDVXHRyafP_KnE9jhjg"}
    assert topic_ids_of(metadata_of(ids, {})) == ids
    assert began_with_of(metadata_of(ids, {"orders": 3})) == {"orders": 3}
    assert metadata_of({}, {}) == ""
    assert metadata_of({f"{number:0200}": "x" * 22 for number in range(30)}, {}) == ""
    assert len(metadata_of({"t" * 249: "x" * 22}, {})) < METADATA_CHARS_MAX
    for other in ("", "host-7", "[]", json.dumps({"topics": 3, "partitions": {"a": "b"}}), "{"):
        assert topic_ids_of(other) == {}
        assert began_with_of(other) == {}
