"""What an active does by itself: it ends transactions in time, heeds a stop, keeps its offsets, and gives up."""

import asyncio
import dataclasses
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, Owner, check_exactly_once, expected, new_job, write

from batonpass.worker import Task
from batonpass.worker.kafka import Context, KafkaConnection, active
from batonpass.worker.kafka.active import FencedByOthers
from batonpass.worker.kafka.changelog import Changelog
from batonpass.worker.kafka.clients import OffsetGone
from batonpass.worker.kafka.transaction import RecordTooLarge
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"


async def committed(job: Job) -> int | None:
    """Return the committed offset of the job's input."""
    async with AIOKafkaConsumer(**job.connection.client_options(), group_id=job.group) as consumer:
        found: int | None = await consumer.committed(TopicPartition(job.source, 0))
        return found


async def test_a_slow_function_is_committed_in_the_middle_of_a_batch(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 400)
    slowly, seen = job.adding_slowly("a")
    owner = Owner(job.runtime(tmp_path, "a", process=slowly))
    owner.hold(TASK, Role.ACTIVE)
    await until(lambda: len(seen) > 40)
    assert 0 < (await committed(job) or 0) < 400
    await until(lambda: owner.totals() == expected(400))
    await owner.close()
    assert await check_exactly_once(job, 400) == ["a"] * 400
    assert seen == list(range(400))


async def test_a_function_that_never_waits_leaves_turns_to_everything_else(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """Heartbeats go by the same loop: of records that take a millisecond each, only a few come at a stretch."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 400)
    turns, at = 0, list[int]()

    async def busily(record: ConsumerRecord, context: Context) -> None:
        at.append(turns)
        until_s = time.monotonic() + 0.001
        while time.monotonic() < until_s:
            pass
        context.store("totals").put(record.key, record.value)

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    owner = Owner(job.runtime(tmp_path, "a", process=busily))
    running = asyncio.create_task(other())
    owner.hold(TASK, Role.ACTIVE)
    await until(lambda: len(at) == 400)
    running.cancel()
    await owner.close()
    assert max(Counter(at).values()) < 30


async def test_an_active_that_restores_heeds_a_stop(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to commit yet, and hours of state may be left to read."""
    job = await new_job(bootstrap, new_topic)
    monkeypatch.setattr(Changelog, "missing", lambda _self, _ends: 1_000_000)
    owner = Owner(job.runtime(tmp_path, "a"))
    owner.hold(TASK, Role.ACTIVE)
    await until(lambda: TASK in owner.progressed)
    await asyncio.sleep(0.5)
    await asyncio.wait_for(owner.give_up(TASK), 5)
    assert owner.states == []


async def test_state_without_committed_offsets_is_not_counted_twice(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """The offsets were dropped, or the group has another name: to begin anywhere would count wrong."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 100)
    first = Owner(job.runtime(tmp_path / "a", "a"))
    first.hold(TASK, Role.ACTIVE)
    await until(lambda: first.totals() == expected(100))
    await first.give_up(TASK)
    other = Owner(dataclasses.replace(job, group=f"{job.group}-moved").runtime(tmp_path / "b", "b"))
    other.hold(TASK, Role.ACTIVE)
    _, run = other.tasks[TASK]
    with pytest.raises(OffsetGone, match="has no committed offset"):
        await asyncio.wait_for(run, 30)
    await other.close()
    assert await check_exactly_once(job, 100) == ["a"] * 100


async def test_two_groups_of_one_name_are_told_of_each_other(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    """Each has a coordinator of its own, so that none ever grants the task anew, and each fences the other for ever."""
    job = await new_job(bootstrap, new_topic)
    ours, theirs = (Owner(job.runtime(tmp_path / name, name)) for name in ("ours", "theirs"))
    ours.hold(TASK, Role.ACTIVE)
    await until(lambda: ours.states == ["running"])
    _, run = ours.tasks[TASK]
    for owner, other in ((theirs, ours), (ours, theirs), (theirs, ours)):
        owner.states.clear()
        owner.hold(TASK, Role.ACTIVE)
        await until(lambda owner=owner: owner.states == ["running"])  # type: ignore[misc] # it is called at once
        await write(job, 10)
        _, run = other.tasks[TASK]
        fenced = asyncio.ensure_future(other.fenced.wait())
        await asyncio.wait({run, fenced}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        fenced.cancel()
        if not run.done():
            await other.give_up(TASK, commit=False)
            other.fenced.clear()
    with pytest.raises(FencedByOthers, match=f"only one group may be named '{job.group}'"):
        await run
    for owner in (ours, theirs):
        await owner.close()


@pytest.mark.parametrize(
    ("token", "after_s", "is_told"), [(1, 10, True), (2, 10, False), (1, 10_000, False)], ids=["soon", "anew", "later"]
)
async def test_what_is_fenced_once_in_a_while_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    token: int,
    after_s: float,
    is_told: bool,  # noqa: FBT001
) -> None:
    """A process that stood still has its transaction ended by the cluster, which looks the same."""
    runtime = Job(KafkaConnection(bootstrap_servers="localhost:9"), "orders", "in", "out", "log").runtime(tmp_path, "a")

    def fenced(under: int, at_s: float) -> None:
        monkeypatch.setattr(active, "time", SimpleNamespace(monotonic=lambda: at_s))
        one = object.__new__(active.Active)
        one._terms, one._options, one._group = runtime._terms, runtime._options, "orders"
        one._task = cast("Task", SimpleNamespace(id=TASK, fencing_token=under))
        one._note_fenced()

    fenced(1, 100.0)
    with pytest.raises(FencedByOthers) if is_told else nullcontext():
        fenced(token, 100.0 + after_s)


async def test_offsets_are_committed_again_before_they_grow_old(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no input has come at all."""
    monkeypatch.setattr(active, "FIRST_RENEWAL_S", 0.1)
    job = await new_job(bootstrap, new_topic)
    owner = Owner(job.runtime(tmp_path, "a"))
    owner.hold(TASK, Role.ACTIVE)

    async def is_committed() -> bool:
        return await committed(job) == 0

    await until(is_committed)
    await write(job, 50)
    await until(lambda: owner.totals() == expected(50))
    await owner.close()
    assert await check_exactly_once(job, 50) == ["a"] * 50


async def test_a_record_that_is_too_large_is_a_failure(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    """To try again would not make it smaller, so the task is not shown as running for ever."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 1)

    async def boast(_record: ConsumerRecord, context: Context) -> None:
        await context.send(job.output, b"x" * 2_000_000, key=b"k", partition=0)

    owner = Owner(job.runtime(tmp_path, "a", process=boast))
    owner.hold(TASK, Role.ACTIVE)
    _, run = owner.tasks[TASK]
    with pytest.raises(RecordTooLarge, match=f"a record of 2000001 bytes for topic {job.output}, key b'k': "):
        await asyncio.wait_for(run, 30)
    await owner.close()
