"""How old state on disk may be: counted from when it was last level, and compared with what the topic itself keeps."""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, Owner, new_job, read, write

from batonpass.worker.kafka import ActiveOptions
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"
HOUR_MS = 3_600_000
EAGER = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.001",
    "segment_ms": "100",
    "segment_bytes": "1048576",
    "delete_retention_ms": "1000",
}
"""A changelog that is compacted as soon as the broker looks, and keeps deletions for a second."""


def real_ms() -> int:
    """Return the time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def later(hours: float) -> Callable[[], int]:
    """Return a clock that is so many hours ahead."""
    return lambda: real_ms() + int(hours * HOUR_MS)


async def change(job: Job, key: bytes, value: bytes | None) -> None:
    """Change a key in the changelog, as its owner would."""
    async with AIOKafkaProducer(bootstrap_servers=job.connection.bootstrap_servers) as producer:
        await producer.send_and_wait(job.changelog, value, key=key, partition=0)


async def gone(job: Job, key: bytes) -> None:
    """Wait until the changelog says nothing of a key any more, its deletion neither."""

    async def is_gone() -> bool:
        # Each record may end a segment; only what lies before the last one is compacted.
        await change(job, b"tick", str(time.time_ns()).encode())
        await asyncio.sleep(0.5)
        return all(record.key != key for record in await read(job, job.changelog))

    await until(is_gone, within_s=120)


@pytest.mark.parametrize("has_restarted", [False, True])
async def test_a_deleted_key_stays_deleted(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, *, has_restarted: bool
) -> None:
    """The state slept while its changelog forgot the deletion, so it is restored from the beginning."""
    job = dataclasses.replace(await new_job(bootstrap, new_topic), changelog=await new_topic("store", **EAGER))
    await change(job, b"deleted", b"1")
    await change(job, b"kept", b"1")
    a = Owner(job.runtime(tmp_path / "a", "a"))
    a.hold(TASK, Role.STANDBY)
    await until(lambda: a.totals() == {b"deleted": b"1", b"kept": b"1"} and a.is_caught_up(TASK))
    await a.give_up(TASK)
    await change(job, b"deleted", None)
    await gone(job, b"deleted")
    if has_restarted:
        await a.close()
        a = Owner(job.runtime(tmp_path / "a", "a"))
    a.hold(TASK, Role.STANDBY)
    await until(lambda: b"tick" in a.totals() and a.is_caught_up(TASK))
    assert a.totals().keys() == {b"kept", b"tick"}
    await a.close()


class WallClock:
    """The time of day of this process, which can be set ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hours = 0.0
        seconds, nanoseconds = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: seconds() + self.hours * 3_600)
        monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + int(self.hours * HOUR_MS) * 1_000_000)


@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
async def test_a_copy_that_was_quiet_for_30_hours_but_level_is_kept(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 50)
    wall = WallClock(monkeypatch)
    owner, a = Owner(job.runtime(tmp_path / "b", "b")), Owner(job.runtime(tmp_path / "a", "a"))
    if role is Role.STANDBY:
        owner.hold(TASK, Role.ACTIVE)
    a.hold(TASK, role)
    await until(lambda: len(a.totals()) == 10 and (a.is_caught_up(TASK) or a.states == ["running"]))
    while wall.hours < 30:
        wall.hours += 10
        # An owner looks once a second, a copy at each answer of the broker.
        await asyncio.sleep(2)
    await a.close()
    wall.hours += 1
    again = Owner(job.runtime(tmp_path / "a", "a"))
    assert (await again.runtime.on_disk()).keys() == {TASK}
    again.hold(TASK, Role.STANDBY)
    await until(lambda: again.is_caught_up(TASK))
    assert again.runtime.records_read(TASK) == 0
    await again.close()
    await owner.close()


@pytest.mark.parametrize(
    ("slept_h", "kept_h", "is_kept"), [(19, 24, True), (21, 24, False), (30, 48, True), (2, 1, False)]
)
async def test_age_is_compared_with_what_the_topic_itself_keeps(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, *, slept_h: int, kept_h: int, is_kept: bool
) -> None:
    """A copy may sleep for five sixths of the time for which its changelog keeps deletions."""
    changelog = await new_topic("store", cleanup_policy="compact", delete_retention_ms=str(kept_h * HOUR_MS))
    job = dataclasses.replace(await new_job(bootstrap, new_topic), changelog=changelog)
    await change(job, b"a", b"1")
    a = Owner(job.runtime(tmp_path / "a", "a"))
    a.hold(TASK, Role.STANDBY)
    await until(lambda: a.totals() == {b"a": b"1"} and a.is_caught_up(TASK))
    await a.close()
    options = ActiveOptions(clock=later(slept_h), delete_retention_ms=1)
    tail = Owner(job.runtime(tmp_path / "a", "a", options=options))
    tail.hold(TASK, Role.STANDBY)
    await until(lambda: tail.is_caught_up(TASK))
    assert tail.runtime.records_read(TASK) == (0 if is_kept else 1)
    await tail.close()


async def test_a_copy_that_was_cut_off_for_too_long_begins_anew(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """A process that stood still for a day may have missed deletions without having been closed."""
    job = await new_job(bootstrap, new_topic)
    await change(job, b"a", b"1")
    hours = 0.0
    options = ActiveOptions(clock=lambda: real_ms() + int(hours * HOUR_MS))
    a = Owner(job.runtime(tmp_path / "a", "a", options=options))
    a.hold(TASK, Role.STANDBY)
    await until(lambda: a.totals() == {b"a": b"1"} and a.is_caught_up(TASK))
    assert a.runtime.records_read(TASK) == 1
    hours = 25
    await until(lambda: a.runtime.records_read(TASK) == 2 and a.totals() == {b"a": b"1"})
    await a.close()


async def test_a_topic_that_is_not_compacted_forgets_no_deletion(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = dataclasses.replace(await new_job(bootstrap, new_topic), changelog=await new_topic("store"))
    await change(job, b"a", b"1")
    allowed = ActiveOptions(uncompacted_changelogs=True)
    a = Owner(job.runtime(tmp_path / "a", "a", options=allowed))
    a.hold(TASK, Role.STANDBY)
    await until(lambda: a.totals() == {b"a": b"1"} and a.is_caught_up(TASK))
    await a.close()
    again = Owner(job.runtime(tmp_path / "a", "a", options=dataclasses.replace(allowed, clock=later(1_000))))
    assert (await again.runtime.on_disk()).keys() == {TASK}
    again.hold(TASK, Role.STANDBY)
    await until(lambda: again.is_caught_up(TASK))
    assert again.runtime.records_read(TASK) == 0
    await again.close()
