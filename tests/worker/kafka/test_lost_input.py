"""A committed offset that is not in the input any more fails the task, unless somebody has said what to do then."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from tests.waiting import until
from tests.worker.kafka.test_reader_and_store import ended
from tests.worker.kafka.totals import Job, NewTopics, Owner, expected, new_job, write

from batonpass.worker.kafka import ActiveOptions, Context
from batonpass.worker.kafka.active import ChangelogShort
from batonpass.worker.kafka.clients import OffsetGone
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"


async def commit(job: Job, offset: int) -> None:
    """Set the committed offset of the input, as an unclean election, a restore or an operator leaves it."""
    part = TopicPartition(job.source, 0)
    options = job.connection.client_options() | {"enable_auto_commit": False}
    async with AIOKafkaConsumer(**options, group_id=job.group) as consumer:
        consumer.assign([part])
        await consumer.commit({part: offset})


async def cut(job: Job, before: int) -> None:
    """Let the input lose its beginning, as retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=job.connection.bootstrap_servers)
    await admin.start()
    await admin.delete_records({TopicPartition(job.source, 0): RecordsToDelete(before_offset=before)})
    await admin.close()


class Lost(NamedTuple):
    """An input of 150 records of which the first ``cut`` are gone, and the offset that is committed."""

    cut: int
    committed: int


BEFORE, BEYOND = Lost(130, 100), Lost(0, 190)


@pytest.mark.parametrize("lost", [BEFORE, BEYOND])
@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_it_fails_whatever_is_done_where_there_is_none(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, lost: Lost, start: str
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 100)
    a = Owner(job.runtime(tmp_path, "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(100))
    await a.give_up(TASK)
    await write(job, 50, first=100)
    await cut(job, lost.cut)
    await commit(job, lost.committed)
    a.states.clear()
    again = Owner(job.runtime(tmp_path, "a", options=ActiveOptions(start=start)))
    again.hold(TASK, Role.ACTIVE)
    error = await ended(again)
    assert isinstance(error, OffsetGone)
    assert f"offset {lost.committed} of {job.source}-0, which is now {lost.cut} to 150" in str(error)
    assert (again.states, again.totals()) == ([], expected(100))
    # Somebody who knows better sets the offset.
    await commit(job, 130)
    again.hold(TASK, Role.ACTIVE)
    await until(lambda: again.totals() == added(range(100), range(130, 150)))
    await again.close()


COUNTED = {"earliest": range(130, 160), "latest": range(150, 160)}


@pytest.mark.parametrize("choice", COUNTED)
async def test_it_goes_on_where_the_option_says(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture, choice: str
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 150)
    await cut(job, 130)
    await commit(job, 100)
    a = Owner(job.runtime(tmp_path, "a", options=ActiveOptions(offset_gone=choice)))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.states == ["running"])
    await write(job, 10, first=150)
    await until(lambda: a.totals() == added(COUNTED[choice]))
    await a.close()
    assert "offset 100 of" in caplog.text


async def test_it_fails_in_the_middle_of_a_run_too(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    """The input lost what was to be read next while a transaction was under way."""
    job = await new_job(bootstrap, new_topic)
    add, reached, may_go_on = job.adding("a"), asyncio.Event(), asyncio.Event()

    async def held(record: ConsumerRecord, context: Context) -> None:
        await add(record, context)
        if record.offset == 15:
            reached.set()
            await may_go_on.wait()

    await write(job, 20)
    # Records that were handed out a few at a time are followed by a fetch once all are processed, and committed: their
    # number ends the transaction, not the time for which one is held.
    a = Owner(job.runtime(tmp_path, "a", process=held, options=ActiveOptions(records_max=5, commit_interval_ms=30_000)))
    a.hold(TASK, Role.ACTIVE)
    await reached.wait()
    await write(job, 480, first=20)
    await cut(job, 490)
    may_go_on.set()
    error = await asyncio.wait_for(ended(a), 60)
    assert isinstance(error, OffsetGone)
    assert f"offset 20 of {job.source}-0, which is now 490 to 500" in str(error)
    assert a.totals() == expected(20)
    await a.close()


@pytest.mark.parametrize("is_accepted", [False, True])
async def test_nobody_runs_below_where_the_last_owner_stopped(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_accepted: bool
) -> None:
    """The changelog has lost its end."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 100)
    a = Owner(job.runtime(tmp_path / "a", "a"))
    a.hold(TASK, Role.ACTIVE)
    await until(lambda: a.totals() == expected(100))
    final = await a.give_up(TASK)
    assert isinstance(final, int)
    shorter = dataclasses.replace(job, changelog=await new_topic("store", cleanup_policy="compact"))
    b = Owner(
        shorter.runtime(tmp_path / "b", "b", options=ActiveOptions(changelog_short="run" if is_accepted else "fail"))
    )
    b.hold(TASK, Role.ACTIVE, restore_to=final)
    if is_accepted:
        await until(lambda: b.states == ["running"])
        assert f"ends at 0, before {final}" in caplog.text
    else:
        error = await ended(b)
        assert isinstance(error, ChangelogShort)
        assert f"changelog {shorter.changelog} ends at 0, before {final}" in str(error)
        assert b.states == []
    await b.close()


@pytest.mark.parametrize("name", ["start", "offset_gone", "changelog_short"])
def test_a_choice_that_there_is_not_is_refused(name: str) -> None:
    none: Any = {name: "none"}
    with pytest.raises(ValueError, match=f"{name} is one of "):
        ActiveOptions(**none)


def added(*ranges: range) -> dict[bytes, bytes]:
    """Return the totals of these numbers."""
    totals: dict[bytes, int] = {}
    for number in (number for each in ranges for number in each):
        key = f"k{number % 10}".encode()
        totals[key] = totals.get(key, 0) + number
    return {key: str(total).encode() for key, total in totals.items()}
