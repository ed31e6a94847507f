"""A job is tested without a broker; `test_first_worker` holds what comes of that to a real one."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.worker.odd_errors import Frozen, Wordless

from batonpass.worker.kafka import (
    BYTES,
    INT,
    TEXT,
    ActiveOptions,
    App,
    Context,
    MissingPartition,
    Record,
    State,
    Timer,
    Topic,
    optional,
)

GONE = 99

app = App("orders")
orders = app.topic("orders", key=TEXT, value=INT)
prices = app.topic("prices", key=TEXT, value=optional(INT))
totals = app.topic("totals", key=TEXT, value=INT)
sums = app.table("sums", key=TEXT, value=INT)
price_of = app.table(prices)
doubled = app.topic("doubled", key=optional(BYTES), value=INT)


@app.process(orders, state=sums)
async def add(order: Record[str, int], context: Context, total: State[int]) -> None:
    """Add orders up by key, at their price."""
    total.put(total.get(0) + order.value * (context.store(price_of).get(order.key) or 1))
    headers = {"by": b"add"} if order.value == 2 else [("by", b"add")]
    await context.send(totals, total.get(0), key=order.key, headers=headers)
    total.set_timer(order.timestamp_ms + 1_000)
    if order.value < 0:
        raise ValueError("less than nothing")
    if order.value == 0:
        total.clear_timer()
    if order.value == GONE:
        total.delete()


@app.on_timer(sums)
async def forget(_timer: Timer[str], _context: Context, total: State[int]) -> None:
    """Forget what has rested for a second."""
    total.delete()


@app.process(totals, subtopology="1")
async def double(total: Record[str, int], context: Context) -> None:
    """Pass on twice of it."""
    await context.send(doubled, 2 * total.value, key=None, timestamp_ms=total.timestamp_ms + 1)


async def test_what_is_sent_goes_through_every_subtopology() -> None:
    """An output that is given no time has the present one, as on Kafka, and not that of its record."""
    test = app.test()
    await test.send(orders, 2, key="a", timestamp_ms=1_000)
    await test.advance_wall_clock(5_000)
    await test.send(orders, 3, key="a", timestamp_ms=1_001)
    assert [(one.key, one.value, one.timestamp_ms, one.headers) for one in test.records(totals)] == [
        ("a", 2, 0, (("by", b"add"),)),
        ("a", 5, 5_000, (("by", b"add"),)),
    ]
    assert [(one.key, one.value, one.timestamp_ms) for one in test.records(doubled)] == [
        (None, 4, 1),
        (None, 10, 5_001),
    ]


async def test_a_table_follows_its_topic() -> None:
    test = app.test()
    await test.send(prices, 10, key="a", timestamp_ms=9_000)
    await test.send(orders, 2, key="a", timestamp_ms=1_000)
    await test.send(prices, None, key="a", timestamp_ms=9_001)
    await test.send(orders, 2, key="a", timestamp_ms=1_001)
    assert [one.value for one in test.records(totals)] == [20, 22]
    assert list(test.store(price_of).scan()) == []


async def test_time_passes_with_records_and_state_and_timers_outlive_a_restore() -> None:
    test = app.test()
    for key, value, at_ms in (("a", 1, 1_000), ("b", 2, 1_500), ("c", 0, 1_600)):
        await test.send(orders, value, key=key, timestamp_ms=at_ms)
    before = [list(test.store(sums).scan()), test.changelog(sums.changelog)]
    test.restore()
    assert [list(test.store(sums).scan()), test.changelog(sums.changelog)] == before
    await test.send(orders, 5, key="d", timestamp_ms=2_400)
    assert dict(test.store(sums).scan()) == {"b": 2, "c": 0, "d": 5}
    await test.send(orders, 5, key="e", timestamp_ms=9_000)
    # Its timer was taken away.
    assert dict(test.store(sums).scan()) == {"c": 0, "e": 5}
    assert test.changelog(sums.changelog).keys() == {b"c", b"e"}


async def test_what_is_removed_leaves_no_timer() -> None:
    test = app.test()
    for value in (1, GONE):
        await test.send(orders, value, key="a", timestamp_ms=1_000)
    assert test.changelog(sums.changelog) == {}
    # Only the time is left.
    assert len(test.changelog("orders-0-timers-changelog")) == 1


async def test_of_a_function_that_raises_nothing_stays_and_the_record_is_next_again() -> None:
    test = app.test()
    await test.send(orders, 1, key="a", timestamp_ms=1_000)
    for _ in range(2):
        with pytest.raises(ValueError, match="less than nothing"):
            await test.send(orders, -1, key="a", timestamp_ms=1_000)
        assert [one.value for one in test.records(totals)] == [1]
        assert test.store(sums).get("a") == 1


def test_it_needs_no_loop_of_its_own() -> None:
    test = app.test()
    asyncio.run(test.send(orders, 1, key="a", timestamp_ms=1_000))
    assert test.store(sums).get("a") == 1


async def test_sends_may_be_gathered() -> None:
    job = App("gathered")
    source, output = (job.topic(name, key=TEXT, value=INT) for name in ("source", "output"))

    @job.process(source)
    async def process(_record: Record[str, int], context: Context) -> None:
        await asyncio.gather(*(context.send(output, number, key="a") for number in range(3)))

    test = job.test()
    await test.send(source, 1, key="a", timestamp_ms=1)
    assert [one.value for one in test.records(output)] == [0, 1, 2]


async def refused(what: str) -> str:
    """Return what is said of a job that does something wrong with a record."""
    job = App("refused")
    source = job.topic("source", key=TEXT, value=INT)
    output = job.topic("output", key=TEXT, value=INT)
    table = job.table("table", key=TEXT, value=INT)
    followed = job.table(job.topic("prices", key=TEXT, value=INT))
    job.table("other", key=TEXT, value=INT, subtopology="1", changelog="others")
    wrong: Any = "five"

    @job.process(output, subtopology="1")
    async def other(_record: Record[str, int], _context: Context) -> None:
        """Do nothing."""

    @job.process(source, state=table)
    async def process(_record: Record[str, int], context: Context, state: State[int]) -> None:
        match what:
            case "value":
                await context.send(output, wrong, key="a")
            case "key":
                nobody: Any = None
                await context.send(output, 5, key=nobody)
            case "state":
                state.put(wrong)
            case "store":
                context.store(sums)
            case "follower":
                context.store(followed).put("a", 5)
            case "await":
                context.send(output, 5, key="a")  # type: ignore[unused-coroutine]
            case "header":
                await context.send(output, 5, key="a", headers={"by": wrong})
            case _:
                await context.send(what, b"1", key=b"a")

    with pytest.raises((TypeError, ValueError, KeyError, MissingPartition)) as found:
        await job.test().send(source, 1, key="a", timestamp_ms=1)
    return str(found.value)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("value", "'five' cannot be written"),
        ("key", "None cannot be written"),
        ("state", "'five' cannot be written"),
        ("store", "has no store 'sums' (it is a table of subtopology 0), only table"),
        ("follower", "table prices follows its topic: write to the topic"),
        ("await", "a record for topic output was not sent: write `await context.send(...)`"),
        ("header", "a header is a name and bytes, as in {'trace': b'7'}, and not ('by', 'five')"),
        ("refused-table-changelog", "is a changelog of this job"),
        ("others", "is a changelog of this job"),
        ("totls", "topic totls is none of this job: name it with app.topic"),
    ],
)
async def test_what_cannot_be_meant_is_an_error_that_says_so(what: str, said: str) -> None:
    assert said in await refused(what)


def test_topics_and_tables_are_those_of_the_job() -> None:
    job = App("other")
    source = job.topic("source", key=TEXT, value=INT)
    for wrong in (lambda: job.process(orders), lambda: job.process(source, state=sums)):
        with pytest.raises(ValueError, match="was named by another App"):
            wrong()


async def test_a_topic_of_another_job_is_none_to_write_or_to_read() -> None:
    job = App("other")
    stranger = job.topic("stranger", key=TEXT, value=INT)
    test, text = app.test(), cast("Topic[str, int]", "orders")
    with pytest.raises(ValueError, match="stranger is none of this job"):
        test.records(stranger)
    with pytest.raises(ValueError, match="stranger is none of this job"):
        await test.send(stranger, 1, key="a", timestamp_ms=1)
    with pytest.raises(TypeError, match=r"what app\.topic returned, and not 'orders'"):
        await test.send(text, 1, key="a", timestamp_ms=1)
    assert test.records(orders) == []


@pytest.mark.parametrize("error", [Wordless("no customer"), Frozen(1)], ids=["no words", "frozen"])
async def test_whatever_a_function_raises_its_record_is_put_aside(error: Exception) -> None:
    job = App("strict", options=ActiveOptions(on_error="dead-letter", dead_letter_topic="dead"))
    source, dead = job.topic("source", key=TEXT, value=INT), job.topic("dead", key=TEXT, value=INT)

    @job.process(source)
    async def process(_record: Record[str, int], _context: Context) -> None:
        raise error

    test = job.test()
    await test.send(source, 1, key="a", timestamp_ms=1)
    (letter,) = test.records(dead)
    assert letter.value == 1
    assert error.__notes__ == ["in source-0 at offset 0, key b'a'"]


async def test_no_record_is_passed_over_for_what_is_not_its_fault() -> None:
    """As on a broker: that a topic is missing is none of the record's doing."""
    job = App("strict", options=ActiveOptions(on_error="skip"))
    source = job.topic("source", key=TEXT, value=INT)

    @job.process(source)
    async def process(record: Record[str, int], context: Context) -> None:
        await context.send("totls", b"%d" % record.value, key=b"a")

    with pytest.raises(MissingPartition, match="topic totls"):
        await job.test().send(source, 1, key="a", timestamp_ms=1)


async def test_what_comes_after_a_function_has_returned_is_refused() -> None:
    """It would be in no transaction, and was lost without a word."""
    job = App("late")
    source = job.topic("source", key=TEXT, value=INT)
    seen = job.table("seen", key=TEXT, value=INT)
    late: list[asyncio.Task[None]] = []

    @job.process(source, state=seen)
    async def process(record: Record[str, int], context: Context, state: State[int]) -> None:
        async def write(call: Callable[[], object]) -> None:
            await asyncio.sleep(0.01)
            call()

        calls: list[Callable[[], object]] = [
            lambda: state.put(1),
            state.delete,
            lambda: context.store(seen).put("b", 1),
            lambda: context.send(source, 2, key="b"),
        ]
        late.extend(asyncio.create_task(write(call)) for call in calls)

    test = job.test()
    await test.send(source, 1, key="a", timestamp_ms=1)
    said = await asyncio.gather(*late, return_exceptions=True)
    assert [str(one) for one in said] == [str(said[0])] * 4
    assert str(said[0]).startswith("the transaction is over")
    assert test.store(seen).get("a") is None


async def test_a_record_without_a_key_has_no_timer() -> None:
    """It would be another key's when it fires, or of none that can be read, which fails the task for ever."""
    job = App("job")
    source = job.topic("source", key=optional(INT), value=INT)
    seen = job.table("seen", key=optional(INT), value=INT)

    @job.process(source, state=seen)
    async def process(record: Record[int | None, int], _context: Context, state: State[int]) -> None:
        state.set_timer(record.timestamp_ms + 1)

    @job.on_timer(seen)
    async def fire(_timer: Timer[int | None], _context: Context, _state: State[int]) -> None:
        """Do nothing."""

    test = job.test()
    with pytest.raises(ValueError, match="table seen has no room for a key that is None"):
        await test.send(source, 1, key=None, timestamp_ms=1)
