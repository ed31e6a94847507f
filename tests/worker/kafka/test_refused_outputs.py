"""What a broker refuses of an output is its record's doing, and `on_error` says what becomes of that."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from tests.waiting import until
from tests.worker.kafka.test_reader_and_store import ended
from tests.worker.kafka.totals import Job, NewTopics, Owner, new_job, read, write

from batonpass.worker.kafka import ActiveOptions, Context, OutputRefused
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"
BAD = (3, 4, 17, 49)

Send = Callable[[Context, str, ConsumerRecord], Awaitable[None]]


async def too_late(context: Context, topic: str, record: ConsumerRecord) -> None:
    """Send what is of two hours ahead."""
    await context.send(topic, record.value, key=b"k", timestamp_ms=int(time.time() * 1_000) + 7_200_000)


async def keyless(context: Context, topic: str, record: ConsumerRecord) -> None:
    """Send what no compacted topic takes."""
    await context.send(topic, record.value)


async def large(context: Context, topic: str, record: ConsumerRecord) -> None:
    """Send what is larger than the topic takes."""
    await context.send(topic, b"x" * 2_000, key=record.key)


@pytest.mark.parametrize(("size", "most"), [(2_000, "1500"), (2_000_000, "10000000")])
async def test_a_record_whose_state_is_too_large_is_passed_over(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, *, caplog: pytest.LogCaptureFixture, size: int, most: str
) -> None:
    """Whichever of them says so, the topic or the producer: state that grows reaches a limit one day."""
    job = await new_job(bootstrap, new_topic, max_message_bytes=most)
    await write(job, 50)

    async def process(record: ConsumerRecord, context: Context) -> None:
        context.store("totals").put(b"%d" % record.offset, b"x" * (size if record.offset in BAD else 1))
        await context.send(job.output, record.value, key=record.value)

    owner = Owner(job.runtime(tmp_path, "a", options=ActiveOptions(on_error="skip", retry_ms=1), process=process))
    owner.hold(TASK, Role.ACTIVE)
    await until(lambda: len(owner.totals()) == 50 - len(BAD))
    await owner.close()
    written = [int(record.value or b"") for record in await read(job, job.output)]
    assert sorted(written) == [number for number in range(50) if number not in BAD]
    skipped = {offset_in(line) for line in caplog.messages if ": skip in " in line and "RecordTooLarge" in line}
    assert skipped == {*BAD}


@pytest.mark.parametrize("send_bad", [too_late, keyless, large])
async def test_a_record_whose_output_is_refused_is_passed_over(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture, send_bad: Send
) -> None:
    job = await new_job(bootstrap, new_topic)
    out = await new_topic("out", partitions=2, cleanup_policy="compact", max_message_bytes="1500")
    await write(job, 50)

    async def process(record: ConsumerRecord, context: Context) -> None:
        context.store("totals").put(b"%d" % record.offset, b"")
        if record.offset in BAD:
            await send_bad(context, out, record)
        else:
            await context.send(out, record.value, key=record.value)

    owner = Owner(job.runtime(tmp_path, "a", options=ActiveOptions(on_error="skip", retry_ms=1), process=process))
    owner.hold(TASK, Role.ACTIVE)
    await until(lambda: len(owner.totals()) == 50 - len(BAD))
    await owner.close()
    written = [int(record.value or b"") for partition in (0, 1) for record in await read(job, out, partition=partition)]
    assert sorted(written) == [number for number in range(50) if number not in BAD]
    skipped = [line for line in caplog.messages if ": skip in " in line]
    assert len(skipped) == len(BAD)
    for line, number in zip(sorted(skipped, key=offset_in), BAD, strict=True):
        assert f"skip in {job.source}-0 at offset {number}, key b'k{number % 10}'" in line
        assert f"topic {out}" in line


def offset_in(line: str) -> int:
    """Return which record a line of the log is about."""
    return int(line.partition("at offset ")[2].partition(",")[0])


async def test_it_is_named_where_it_is_tried_again(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 1)

    async def process(record: ConsumerRecord, context: Context) -> None:
        await too_late(context, job.output, record)

    owner = Owner(job.runtime(tmp_path, "a", process=process))
    owner.hold(TASK, Role.ACTIVE)
    error = await ended(owner)
    assert isinstance(error, OutputRefused)
    assert f"topic {job.output}: " in str(error)
    assert error.__notes__ == [f"in {job.source}-0 at offset 0, key b'k0'"]
    await owner.close()


async def test_no_record_is_to_blame_for_this_machines_clock(
    bootstrap: str,
    new_topic: NewTopics,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An output without a time of its own has the machine's."""
    job = await new_job(bootstrap, new_topic)
    await write(job, 1)
    send = AIOKafkaProducer.send

    async def by_a_wrong_clock(
        self: AIOKafkaProducer, *args: object, timestamp_ms: int | None = None, **place: object
    ) -> object:
        return await send(self, *args, timestamp_ms=int(time.time() * 1_000) + 7_200_000, **place)

    owner = Owner(job.runtime(tmp_path, "a", options=ActiveOptions(on_error="skip")))
    monkeypatch.setattr(AIOKafkaProducer, "send", by_a_wrong_clock)
    owner.hold(TASK, Role.ACTIVE)
    await until(lambda: "most likely as this machine's clock is wrong" in caplog.text)
    assert "skip in" not in caplog.text
    monkeypatch.undo()
    await until(lambda: owner.totals() == {b"k0": b"0"})
    await owner.close()


async def put(job: Job, value: bytes, headers: list[tuple[str, bytes]]) -> None:
    """Write one input record, however large."""
    async with AIOKafkaProducer(**job.connection.client_options(), max_request_size=10_000_000) as producer:
        await producer.send_and_wait(job.source, value, key=b"k", partition=0, headers=headers)


@pytest.mark.parametrize("takes", ["5000000", "1048588"])
async def test_a_letter_that_is_larger_than_others_may_be_is_written_and_else_is_cut(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, takes: str
) -> None:
    job = await new_job(bootstrap, new_topic)
    job = Job(
        job.connection, job.group, await new_topic("wide", max_message_bytes="5000000"), job.output, job.changelog
    )
    is_whole = takes == "5000000"
    dead = await new_topic("dead", partitions=1, max_message_bytes=takes)
    value = b"x" * 2_000_000
    await put(job, value, [("trace", b"7")])
    await write(job, 5, first=1)

    async def process(record: ConsumerRecord, context: Context) -> None:
        if record.offset == 0:
            raise ValueError("it is bad")
        context.store("totals").put(b"%d" % record.offset, b"")

    options = ActiveOptions(on_error="dead-letter", dead_letter_topic=dead, retry_ms=1)
    owner = Owner(job.runtime(tmp_path, "a", options=options, process=process))
    owner.hold(TASK, Role.ACTIVE)
    await until(lambda: len(owner.totals()) == 5)
    await owner.close()
    [letter] = await read(job, dead)
    said = dict(letter.headers)
    assert (letter.key, letter.value) == (b"k", value if is_whole else b"")
    assert (said.get("trace"), said.get("__batonpass.errors.value_bytes")) == (
        (b"7", None) if is_whole else (None, b"2000000")
    )
    assert (said["__batonpass.errors.offset"], said["__batonpass.errors.message"]) == (b"0", b"it is bad")
