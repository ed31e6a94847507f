"""A reader reads on from where its store is, whatever came between a read and the store; each store counts alone."""

import asyncio
import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from tests.kafka.cluster import make_anew
from tests.waiting import until
from tests.worker.kafka.test_stores import flip_bytes
from tests.worker.kafka.totals import (
    Job,
    NewTopics,
    Owner,
    check_exactly_once,
    expected,
    new_job,
    read,
    write,
)

from batonpass.worker.kafka import ActiveOptions, KafkaRuntime, RocksStore, Subtopology
from batonpass.worker.kafka.changelog import RecordRefused
from batonpass.worker.kafka.stores import Change, MemoryStore, StoreFailed
from batonpass.worker.protocol import Progress, Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"


class FailsOnce(RocksStore):
    """A store on disk of which one write with records fails, once that is wanted."""

    wanted = False

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Fail, or apply."""
        changed = list(changes)
        if changed and FailsOnce.wanted:
            FailsOnce.wanted = False
            raise OSError(28, "No space left on device")
        super().apply(changed, position)


async def ended(owner: Owner) -> Exception:
    """Wait until what the owner holds has ended with an error, and return that."""
    _, run = owner.tasks[TASK]
    await asyncio.wait([run])
    error = run.exception()
    assert isinstance(error, Exception)
    return error


@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
async def test_a_batch_that_a_store_did_not_take_is_read_again(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, role: Role
) -> None:
    job = await new_job(bootstrap, new_topic)
    owner, copy = Owner(job.runtime(tmp_path / "a", "a")), Owner(job.runtime(tmp_path / "b", "b", open_store=FailsOnce))
    if role is Role.STANDBY:
        owner.hold(TASK, Role.ACTIVE)
        await until(lambda: owner.states == ["running"])
    copy.hold(TASK, role)
    await until(lambda: copy.is_caught_up(TASK) or copy.states == ["running"])
    FailsOnce.wanted = True
    await write(job, 100)
    assert isinstance(await ended(copy), StoreFailed)
    if role is Role.STANDBY:
        # Whatever it had reported before, it is not ready.
        assert copy.progressed[TASK].remaining() is None
        assert "No space left" in copy.progressed[TASK].detail
        await until(lambda: owner.totals() == expected(100))
    copy.hold(TASK, role)
    await until(lambda: copy.totals() == expected(100))
    await until(lambda: copy.is_caught_up(TASK) or role is Role.ACTIVE)
    await owner.close()
    copy.hold(TASK, Role.ACTIVE)
    await write(job, 100, first=100)
    await until(lambda: copy.totals() == expected(200))
    await copy.close()
    await check_exactly_once(job, 200)


async def test_a_read_that_is_cut_short_loses_nothing(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has handed the records out, and the call that was to apply them was cancelled or failed."""
    job = await new_job(bootstrap, new_topic)
    getmany, lost = AIOKafkaConsumer.getmany, 3

    async def loses(self: AIOKafkaConsumer, *partitions: object, **options: object) -> object:
        nonlocal lost
        batches = await getmany(self, *partitions, **options)
        if lost < 3 and any(partition.topic == job.changelog for partition in batches):
            lost += 1
            raise ConnectionError("of another partition")
        return batches

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", loses)
    owner, copy = Owner(job.runtime(tmp_path / "a", "a")), Owner(job.runtime(tmp_path / "b", "b"))
    owner.hold(TASK, Role.ACTIVE)
    copy.hold(TASK, Role.STANDBY)
    await until(lambda: copy.is_caught_up(TASK))
    lost = 0
    await write(job, 100)
    for _ in range(3):
        assert isinstance(await ended(copy), ConnectionError)
        copy.hold(TASK, Role.STANDBY)
    await until(lambda: copy.totals() == expected(100) and copy.is_caught_up(TASK))
    await copy.close()
    await owner.close()


@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
async def test_a_record_without_a_key_is_named_and_the_copy_is_not_ready(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, role: Role
) -> None:
    """Brokers refuse one in a compacted topic, so it is there only if the topic was not compacted once."""
    job = dataclasses.replace(await new_job(bootstrap, new_topic), changelog=await new_topic("store"))
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(job.changelog, b"1", key=b"a", partition=0)
        await producer.send_and_wait(job.changelog, b"2", partition=0)
        await producer.send_and_wait(job.changelog, b"3", key=b"c", partition=0)
    one = Owner(job.runtime(tmp_path, "a", options=ActiveOptions(uncompacted_changelogs=True)))
    one.hold(TASK, role)
    error = await ended(one)
    assert isinstance(error, RecordRefused)
    assert f"offset 1 of changelog {job.changelog}-0 has no key" in str(error)
    assert "cleanup.policy=compact,delete" in str(error)
    assert one.states == []
    if role is Role.STANDBY:
        assert one.progressed[TASK] == Progress(detail=str(error))
    await one.close()


async def test_one_store_that_cannot_be_opened_keeps_no_other_task_from_being_offered(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic, partitions=3)
    tasks = ["0_0", "0_1", "0_2"]
    before = Owner(job.runtime(tmp_path, "a"))
    for task in tasks:
        before.hold(task, Role.STANDBY)
    await until(lambda: all(before.is_caught_up(task) for task in tasks))
    await before.close()

    class Refused(RocksStore):
        def __init__(self, folder: Path) -> None:
            if folder.parent.name == "0_1":
                raise PermissionError(13, "Permission denied")
            super().__init__(folder)

    assert (await job.runtime(tmp_path, "a", open_store=Refused).on_disk()).keys() == {"0_0", "0_2"}
    (tmp_path / "0_2" / job.changelog / "CURRENT").write_text("MANIFEST-999999\n")
    assert (await job.runtime(tmp_path, "a").on_disk()).keys() == {"0_0", "0_1"}
    # What is known of its topic cannot be kept, as on a disk that is full.
    (tmp_path / "0_0" / ".topic-ids.json").unlink()
    (tmp_path / "0_0" / ".topic-ids.new").mkdir()
    assert (await job.runtime(tmp_path, "a").on_disk()).keys() == {"0_1"}


async def test_a_store_that_a_release_adds_leaves_the_others_as_they_are(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 50)
    before = Owner(job.runtime(tmp_path, "a"))
    before.hold(TASK, Role.ACTIVE)
    await until(lambda: before.totals() == expected(50))
    await before.close()
    added = await new_topic("more", cleanup_policy="compact")
    part = Subtopology(
        sources=(job.source,), process=job.adding("b"), changelogs={"totals": job.changelog, "more": added}
    )
    runtime = KafkaRuntime(job.connection, job.group, {"0": part}, folder=tmp_path)
    offered = (await runtime.on_disk())[TASK]
    assert offered.positions is not None
    assert offered.positions[added] == 0
    # At most the marker of the last transaction is left.
    assert (offered.remaining() or 0) <= 1
    after = Owner(runtime)
    after.hold(TASK, Role.ACTIVE)
    await until(lambda: after.states == ["running"])
    assert runtime.restored(TASK) == 0
    assert after.totals() == expected(50)
    await after.close()


@pytest.mark.parametrize("is_running", [False, True])
async def test_a_changelog_that_was_made_anew_is_recognised_though_it_is_longer(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_running: bool
) -> None:
    """By its id (KIP-516): its length and the copy's position say nothing."""
    monkeypatch.setattr("batonpass.worker.kafka.changelog.TOPICS_LOOK_S", 0.1)
    job = await new_job(bootstrap, new_topic)
    await change(job, *range(5))
    copy = Owner(job.runtime(tmp_path, "a"))
    copy.hold(TASK, Role.STANDBY)
    await until(lambda: len(copy.totals()) == 5 and copy.is_caught_up(TASK))
    if not is_running:
        await copy.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await make_anew(admin, job.changelog, **{"cleanup.policy": "compact"})
    await admin.close()
    await change(job, *range(100, 120))
    if not is_running:
        copy = Owner(job.runtime(tmp_path, "a"))
        assert await copy.runtime.on_disk() == {}
        copy.hold(TASK, Role.STANDBY)
    await until(lambda: copy.totals().keys() == {str(number).encode() for number in range(100, 120)})
    await until(lambda: copy.is_caught_up(TASK))
    await copy.close()


async def change(job: Job, *numbers: int) -> None:
    """Write entries to the changelog, as its owner would."""
    async with AIOKafkaProducer(bootstrap_servers=job.connection.bootstrap_servers) as producer:
        for number in numbers:
            await producer.send_and_wait(job.changelog, b"1", key=str(number).encode(), partition=0)


async def test_damage_that_shows_while_a_task_runs_makes_its_store_begin_anew(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And not fail for ever, also after a restart, until somebody deletes the folder."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 3_000, keys=3_000)
    a = Owner(job.runtime(tmp_path, "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: len(a.totals()) == 3_000)
    await a.close()
    store = RocksStore(tmp_path / TASK / job.changelog)
    store._db.flush()
    store.close()
    flip_bytes(next((tmp_path / TASK / job.changelog).glob("*.sst")))
    b = Owner(job.runtime(tmp_path, "b"))
    b.hold(TASK, Role.ACTIVE)
    await write(job, 3_000, keys=3_000, first=3_000)
    error = await ended(b)
    assert isinstance(error, StoreFailed)
    assert "checksum mismatch" in str(error)
    b.hold(TASK, Role.ACTIVE)
    await until(lambda: "is damaged: it is removed, and restored from its changelog" in caplog.text)
    await until(lambda: b.totals() == expected(6_000, keys=3_000))
    await b.close()
    assert len(await read(job, job.output)) == 6_000


class Counts(MemoryStore):
    """A store that notes how many records it was given at once, and how many turns others had had by then."""

    turns = 0

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[int, int]] = []

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Apply, and note how many that were."""
        changed = list(changes)
        super().apply(changed, position)
        if changed:
            self.given.append((len(changed), Counts.turns))


@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
async def test_a_restore_of_compressed_records_leaves_turns_to_everything_else(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, role: Role
) -> None:
    """One answer of a broker has all of them."""
    job = await new_job(bootstrap, new_topic)
    options = {"compression_type": "gzip", "max_batch_size": 1 << 20, "linger_ms": 500}
    async with AIOKafkaProducer(**job.connection.client_options(), **options) as producer:
        for number in range(20_000):
            await producer.send(job.changelog, b"v", key=b"%d" % number, partition=0)
        await producer.flush()

    async def others() -> None:
        while True:
            Counts.turns += 1
            await asyncio.sleep(0)

    store, ticking = Counts(), asyncio.create_task(others())
    one = Owner(job.runtime(tmp_path, "a", open_store=lambda _: store))
    one.hold(TASK, role)
    await until(lambda: sum(count for count, _ in store.given) == 20_000)
    ticking.cancel()
    assert max(count for count, _ in store.given) <= 5_000
    turns = [turn for _, turn in store.given]
    assert len(set(turns)) == len(turns)
    await one.close()
