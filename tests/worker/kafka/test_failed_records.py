"""A record that a worker's own code cannot process is tried again, skipped, or put aside; nothing of it stays."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from prometheus_client import CollectorRegistry
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, Owner, expected, new_job, read, write
from tests.worker.odd_errors import Frozen, Wordless

from batonpass.worker.kafka import BYTES, INT, TEXT, ActiveOptions, App, Context, KafkaRuntime, Record, State, Timer
from batonpass.worker.kafka.failed_records import headers, is_of_the_record
from batonpass.worker.kafka.stores import StoreFailed
from batonpass.worker.kafka.subtopology import Process
from batonpass.worker.kafka.transaction import RecordTooLarge
from batonpass.worker.protocol import Role

TASK = "0_0"
BAD = (3, 4, 17, 49)
ODD = {4: Frozen(4), 49: Wordless("no customer")}


def but_for_the_bad(job: Job, called: list[int]) -> Process:
    """Return what adds up, and raises for some numbers after it has written and sent."""
    add = job.adding("a")

    async def process(record: ConsumerRecord, context: Context) -> None:
        called.append(record.offset)
        await add(record, context)
        if int(record.value) in BAD:
            raise ODD.get(int(record.value)) or ValueError(f"number {int(record.value)} is bad")

    return process


def counted(runtime: KafkaRuntime, name: str, **labels: str) -> float | None:
    """Return a metric of a worker as Prometheus reads it."""
    registry = CollectorRegistry()
    registry.register(runtime.metrics)
    return registry.get_sample_value(f"batonpass_worker_{name}", labels)


def without_the_bad() -> dict[bytes, bytes]:
    """Return the totals of the others."""
    totals: dict[bytes, int] = {}
    for number in range(50):
        if number not in BAD:
            key = f"k{number % 10}".encode()
            totals[key] = totals.get(key, 0) + number
    return {key: str(total).encode() for key, total in totals.items()}


def test_the_cause_of_a_dead_letter_may_be_any_text() -> None:
    """JSON can name half a character, and whoever cannot process the record says so."""
    record = ConsumerRecord("in", 0, 7, 1, 0, None, b"{}", 0, 0, 2, ())
    said = dict(headers(record, ValueError("no customer \ud800")))
    assert said["__batonpass.errors.message"] == b"no customer ?"


@pytest.mark.needs("kafka")
async def test_bad_records_are_put_aside_with_their_cause_and_leave_nothing_else(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job, dead = await new_job(bootstrap, new_topic), await new_topic("dead", partitions=1)
    called: list[int] = []
    options = ActiveOptions(on_error="dead-letter", dead_letter_topic=dead)
    runtime = job.runtime(tmp_path, "a", options=options, process=but_for_the_bad(job, called))
    await write(job, 50)
    owner = Owner(runtime)
    owner.hold(TASK, Role.ACTIVE)
    labels = {"group": job.group, "subtopology": "0"}
    await until(lambda: counted(runtime, "records_total", **labels) == 50)
    assert owner.totals() == without_the_bad()
    outputs = [json.loads(record.value)["offset"] for record in await read(job, job.output)]
    assert outputs == [number for number in range(50) if number not in BAD]
    letters = await read(job, dead)
    assert [(one.key, one.value) for one in letters] == [(f"k{n % 10}".encode(), str(n).encode()) for n in BAD]
    assert dict(letters[0].headers) == {
        "__batonpass.errors.topic": job.source.encode(),
        "__batonpass.errors.partition": b"0",
        "__batonpass.errors.offset": b"3",
        "__batonpass.errors.timestamp": dict(letters[0].headers)["__batonpass.errors.timestamp"],
        "__batonpass.errors.exception": b"builtins.ValueError",
        "__batonpass.errors.message": b"number 3 is bad",
    }
    assert counted(runtime, "errors_total", outcome="dead-letter", **labels) == len(BAD)
    assert counted(runtime, "tasks", role="active", **labels) == 1
    assert counted(runtime, "restores_total", **labels) == 1
    assert (counted(runtime, "commits_total", **labels) or 0) >= len(BAD)
    assert (counted(runtime, "state_bytes", **labels) or 0) > 0
    # A bad record costs the others before it in its transaction one more call, and not those behind it.
    assert len(called) <= 2 * 50
    assert f"dead-letter in {job.source}-0 at offset 17, key b'k7': ValueError: number 17 is bad" in caplog.text
    await owner.close()


@pytest.mark.needs("kafka")
async def test_a_function_says_which_records_are_skipped_and_which_are_tried_again(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)

    def choose(record: ConsumerRecord, error: Exception) -> str:
        assert record.offset in ODD or str(error) == f"number {record.offset} is bad"
        return "skip" if record.offset < 17 else "retry"

    runtime = job.runtime(tmp_path, "a", options=ActiveOptions(on_error=choose), process=but_for_the_bad(job, []))
    await write(job, 50)
    owner = Owner(runtime)
    _, run = owner.hold(TASK, Role.ACTIVE), owner.tasks[TASK][1]
    await until(run.done)
    assert getattr(run.exception(), "__notes__", None) == [f"in {job.source}-0 at offset 17, key b'k7'"]
    labels = {"group": job.group, "subtopology": "0"}
    assert counted(runtime, "errors_total", outcome="skip", **labels) == 2
    assert counted(runtime, "errors_total", outcome="retry", **labels) == 1
    assert expected(3).items() <= owner.totals().items()
    await owner.close()


@pytest.mark.parametrize("name", ["on_error", "load", "clock"])
def test_a_function_that_is_called_and_not_awaited_is_refused_if_it_is_async(name: str) -> None:
    async def function(*_: object) -> str:
        return "skip"

    wrong: Any = {name: function}
    with pytest.raises(TypeError, match=f"{name} is called, and not awaited"):
        ActiveOptions(**wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"on_error": "ignore"}, "on_error is one of retry, skip, dead-letter, or a function"),
        ({"on_error": "dead-letter"}, "name a dead_letter_topic"),
    ],
)
def test_what_cannot_become_of_a_record_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ActiveOptions(**wrong)
    with pytest.raises(ValueError, match=says):
        ActiveOptions(on_error=lambda _record, _error: wrong["on_error"]).what_becomes_of(None, ValueError())


def test_dead_letters_that_would_come_back_are_refused() -> None:
    app = App("a", options=ActiveOptions(dead_letter_topic="orders"))
    app.process(app.topic("orders", key=TEXT, value=INT))(ignore)
    with pytest.raises(ValueError, match="dead_letter_topic orders is a source"):
        app.test()


def test_a_topic_for_dead_letters_that_nobody_makes_is_refused() -> None:
    app = App("a", options=ActiveOptions(on_error="dead-letter", dead_letter_topic="dead"))
    app.process(app.topic("orders", key=TEXT, value=INT))(ignore)
    with pytest.raises(ValueError, match=r"dead is no topic of the job: name it with app\.topic"):
        app.test()


async def ignore(_record: Record[str, int], _context: Context) -> None:
    """Do nothing."""


def picky(on_error: str) -> tuple[App, Any, Any, Any]:
    """Return a job that sums positive numbers up, and whose timer for a key of a bad name raises."""
    app = App("a", options=ActiveOptions(on_error=on_error, dead_letter_topic="dead"))
    orders = app.topic("orders", key=TEXT, value=INT)
    dead = app.topic("dead", key=BYTES, value=BYTES)
    sums = app.table("sums", key=TEXT, value=INT)

    @app.process(orders, state=sums)
    async def add(order: Record[str, int], _context: Context, total: State[int]) -> None:
        total.put(total.get(0) + order.value)
        total.set_timer(order.timestamp_ms + 100)
        if order.value < 0:
            raise ValueError("below 0")

    @app.on_timer(sums)
    async def end(timer: Timer[str], _context: Context, _total: State[int]) -> None:
        if timer.key == "bad":
            raise ValueError("a bad key")

    return app, orders, dead, sums


async def test_the_same_becomes_of_a_record_without_a_broker() -> None:
    app, orders, dead, sums = picky("dead-letter")
    test = app.test()
    for value, at_ms in ((1, 0), (-1, 1), (2, 2)):
        await test.send(orders, value, key="a", timestamp_ms=at_ms)
    assert test.store(sums).get("a") == 3
    [letter] = test.records(dead)
    assert (letter.key, letter.value) == (b"a", b"-1")
    assert ("__batonpass.errors.message", b"below 0") in letter.headers


async def test_no_record_is_skipped_for_a_timer_that_raises() -> None:
    app, orders, _, sums = picky("skip")
    test = app.test()
    await test.send(orders, 1, key="bad", timestamp_ms=0)
    with pytest.raises(ValueError, match="a bad key") as raised:
        await test.send(orders, 1, key="good", timestamp_ms=1_000)
    assert raised.value.__notes__[0] == "for the timer of table sums, key 'bad', at 100 ms"
    assert test.store(sums).get("good") is None


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOSPC, "no space left"), OSError(errno.EMFILE, "")])
async def test_no_record_is_skipped_for_what_its_host_lacks(error: Exception) -> None:
    app = App("a", options=ActiveOptions(on_error="skip"))
    orders = app.topic("orders", key=TEXT, value=INT)

    @app.process(orders)
    async def lacks(_order: Record[str, int], _context: Context) -> None:
        raise error

    with pytest.raises(type(error)):
        await app.test().send(orders, 1, key="a", timestamp_ms=0)


async def fail(error: Exception) -> None:
    raise error


async def in_a_group(error: Exception) -> None:
    """As a function that sends its outputs at once."""
    async with asyncio.TaskGroup() as sending:
        sending.create_task(fail(error))


async def named_anew(error: Exception) -> None:
    try:
        await fail(error)
    except Exception as caught:
        raise LookupError("no customer") from caught


async def in_the_course_of(error: Exception) -> None:
    try:
        await fail(error)
    finally:
        raise LookupError("no customer")


@pytest.mark.parametrize("raised", [in_a_group, named_anew, in_the_course_of])
async def test_no_record_is_to_blame_for_what_its_code_made_of_an_error_of_others(
    raised: Callable[[Exception], Awaitable[None]],
) -> None:
    of_others = [KafkaError("away"), MemoryError(), StoreFailed("disk"), OSError(errno.ENOSPC, "no space left")]
    for error in (*of_others, ValueError("bad"), OSError(errno.EPERM, "")):
        with pytest.raises((LookupError, ExceptionGroup)) as caught:
            await raised(error)
        assert is_of_the_record(caught.value) is (error not in of_others)


@pytest.mark.needs("kafka")
async def test_an_error_of_the_cluster_that_stands_in_a_group_is_no_failure_of_the_task(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 10)
    add, met = job.adding("a"), list[int]()

    async def process(record: ConsumerRecord, context: Context) -> None:
        if record.offset == 3 and not met:
            met.append(record.offset)
            await in_a_group(KafkaError("away"))
        await add(record, context)

    owner = Owner(job.runtime(tmp_path, "a", options=ActiveOptions(retry_ms=10), process=process))
    owner.hold(TASK, Role.ACTIVE)
    run = owner.tasks[TASK][1]
    await until(lambda: run.done() or owner.input_lags.get(TASK) == 0)
    assert not run.done()
    assert met == [3]
    await owner.close()


async def test_a_record_is_to_blame_for_an_output_that_is_too_large() -> None:
    """The client says so in an error of its own."""
    with pytest.raises(RecordTooLarge) as caught:
        raise RecordTooLarge("of 2 MB") from MessageSizeTooLargeError("2 MB")
    with pytest.raises(LookupError) as named:
        await named_anew(caught.value)
    assert is_of_the_record(caught.value)
    assert is_of_the_record(named.value)
    with pytest.raises(ValueError, match="bad") as without:
        raise ValueError("bad") from None
    assert is_of_the_record(without.value)


async def test_a_record_may_be_to_blame_for_what_is_cancelled() -> None:
    app = App("a", options=ActiveOptions(on_error="skip"))
    orders = app.topic("orders", key=TEXT, value=INT)
    sums = app.table("sums", key=TEXT, value=INT)

    @app.process(orders, state=sums)
    async def add(order: Record[str, int], _context: Context, total: State[int]) -> None:
        total.put(total.get(0) + order.value)
        if order.value < 0:
            waited_for = asyncio.get_running_loop().create_future()
            waited_for.cancel()
            await waited_for

    test = app.test()
    for value in (1, -1, 2):
        await test.send(orders, value, key="a", timestamp_ms=0)
    assert test.store(sums).get("a") == 3


@pytest.mark.needs("kafka")
async def test_what_is_cancelled_is_passed_over_and_a_task_that_is_cancelled_ends(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 10)
    add, begun = job.adding("a"), asyncio.Event()

    async def process(record: ConsumerRecord, context: Context) -> None:
        if record.offset == 3:
            raise asyncio.CancelledError
        if record.offset == 9:
            begun.set()
            await asyncio.sleep(3_600)
        await add(record, context)

    runtime = job.runtime(tmp_path, "a", options=ActiveOptions(on_error="skip", records_max=5), process=process)
    owner = Owner(runtime)
    owner.hold(TASK, Role.ACTIVE)
    await begun.wait()
    assert counted(runtime, "errors_total", group=job.group, subtopology="0", outcome="skip") == 1
    run = owner.tasks[TASK][1]
    run.cancel()
    await asyncio.wait([run], timeout=10)
    assert run.cancelled()
    await owner.close()


@pytest.mark.parametrize("tenant", ["a/b", "", "ä", "x" * 300, "\n"])
async def test_a_record_is_to_blame_for_an_output_of_a_name_that_no_topic_can_have(tenant: str) -> None:
    """A cluster was asked for it again and again, and the task stood still."""
    app = App("a", options=ActiveOptions(on_error="skip"))
    orders, out = (app.topic(name, key=TEXT, value=TEXT) for name in ("orders", "out"))

    @app.process(orders)
    async def route(order: Record[str, str], context: Context) -> None:
        await context.send(order.value, b"", key=b"k")

    test = app.test()
    for value in ("out", tenant, "out"):
        await test.send(orders, value, key="k", timestamp_ms=0)
    assert len(test.records(out)) == 2
