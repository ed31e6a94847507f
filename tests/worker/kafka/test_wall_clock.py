"""A function is called by the clock whether records come or not, in a transaction of the task."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from tests.waiting import until
from tests.worker.kafka.totals import NewTopics, Owner, expected, new_job, read, write

from batonpass.worker.kafka import INT, TEXT, ActiveOptions, App, Context, KafkaRuntime, Record, State, Subtopology
from batonpass.worker.kafka.wall_clock import WallClock
from batonpass.worker.protocol import Role

TASK = "0_0"


@pytest.mark.needs("kafka")
async def test_state_written_by_the_clock_is_kept_and_no_record_is_lost_for_it(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    called: list[int] = []

    async def tick(at_ms: int, context: Context) -> None:
        called.append(at_ms)
        number = len(called)
        context.store("totals").put(b"ticks", str(number).encode())
        await context.send(job.output, json.dumps({"tick": number}).encode(), partition=0)

    def runtime(folder: str) -> KafkaRuntime:
        add = job.adding("a")
        part = Subtopology(
            sources=(job.source,),
            process=add,
            changelogs={"totals": job.changelog},
            outputs=(job.output,),
            by_clock={"tick": (200, tick)},
        )
        return KafkaRuntime(job.connection, job.group, {"0": part}, folder=tmp_path / folder, options=ActiveOptions())

    owner = Owner(runtime("a"))
    owner.hold(TASK, Role.ACTIVE)
    await until(lambda: len(called) >= 2)
    await write(job, 50)
    await until(lambda: expected(50).items() <= owner.totals().items())
    before = len(called)
    await until(lambda: len(called) > before)
    await owner.give_up(TASK)
    assert all(at_ms % 200 == 0 for at_ms in called)
    assert called == sorted(set(called))
    ticks = owner.totals().get(b"ticks")
    assert ticks is None
    outputs = [json.loads(record.value) for record in await read(job, job.output)]
    assert [one["offset"] for one in outputs if "offset" in one] == list(range(50))
    assert [one["tick"] for one in outputs if "tick" in one] == list(range(1, len(called) + 1))
    changed = {record.key: record.value for record in await read(job, job.changelog)}
    assert changed == expected(50) | {b"ticks": str(len(called)).encode()}
    await owner.close()


@pytest.mark.needs("kafka")
async def test_nothing_is_called_by_the_clock_before_tables_are_read(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    seen: list[int] = []

    async def fill(record: ConsumerRecord, context: Context) -> None:
        context.store("users").put(record.key, record.value)

    async def tick(_at_ms: int, context: Context) -> None:
        seen.append(len(list(context.store("users").scan())))

    part = Subtopology(
        sources=(job.source,),
        tables=(job.source,),
        process=fill,
        changelogs={"users": job.changelog},
        by_clock={"tick": (1, tick)},
    )
    await write(job, 300, keys=300)
    options = ActiveOptions(records_max=10)
    owner = Owner(KafkaRuntime(job.connection, job.group, {"0": part}, folder=tmp_path, options=options))
    owner.hold(TASK, Role.ACTIVE)
    await until(lambda: len(seen) >= 2)
    assert seen[:2] == [300, 300]
    await owner.close()


def by_clock() -> tuple[App, Any, Any, list[int]]:
    """Return a job that sums up, and once a minute forgets what it has."""
    app, called = App("a"), list[int]()
    orders = app.topic("orders", key=TEXT, value=INT)
    sums = app.table("sums", key=TEXT, value=INT)

    @app.process(orders, state=sums)
    async def add(order: Record[str, int], _context: Context, total: State[int]) -> None:
        total.put(total.get(0) + order.value)

    @app.punctuate(60_000, wall_clock=True)
    async def forget(at_ms: int, context: Context) -> None:
        called.append(at_ms)
        for key, total in context.store(sums).scan():
            if total < 0:
                raise ValueError("in debt")
            context.store(sums).delete(key)

    return app, orders, sums, called


async def test_the_clock_of_a_test_goes_where_it_is_told() -> None:
    app, orders, sums, called = by_clock()
    test = app.test()
    await test.send(orders, 1, key="a", timestamp_ms=10**12)
    await test.advance_wall_clock(59_999)
    assert (called, test.store(sums).get("a")) == ([], 1)
    await test.advance_wall_clock(1)
    assert (called, test.store(sums).get("a")) == ([60_000], None)
    # Once, where several have passed.
    await test.advance_wall_clock(190_000)
    assert called == [60_000, 240_000]
    assert test.changelog(sums.changelog) == {}


async def test_a_clock_that_is_set_back_goes_on_from_there() -> None:
    app, _, _, called = by_clock()
    test = app.test()
    await test.advance_wall_clock(3_600_000)
    await test.advance_wall_clock(-3_500_001)
    assert called == [3_600_000]
    await test.advance_wall_clock(20_001)
    assert called == [3_600_000, 120_000]
    clock = WallClock(app.test()._parts["0"].by_clock, 3_600_000)
    assert [clock.left_ms(at_ms) for at_ms in (3_600_000, 100_000, 120_000)] == [60_000, 20_000, 0]


async def test_what_is_called_by_the_clock_and_raises_is_called_again() -> None:
    app, orders, _, called = by_clock()
    test = app.test()
    await test.send(orders, -1, key="a", timestamp_ms=0)
    with pytest.raises(ValueError, match="in debt") as raised:
        await test.advance_wall_clock(60_000)
    assert raised.value.__notes__ == ["while it called forget, every 60000 ms"]
    await test.send(orders, 2, key="a", timestamp_ms=0)
    await test.advance_wall_clock(0)
    assert called == [60_000, 60_000]


@pytest.mark.parametrize("every_ms", [0, -1, True, 1.5])
def test_an_interval_that_is_none_is_refused(every_ms: Any) -> None:
    with pytest.raises(ValueError, match="a whole number from 1 on"):
        App("a").punctuate(every_ms, wall_clock=True)


def test_a_name_is_called_by_one_time() -> None:
    app, _, _, _ = by_clock()

    async def forget(_at_ms: int, _context: Context) -> None:
        await asyncio.sleep(0)

    with pytest.raises(ValueError, match="two functions forget are called by time"):
        app.punctuate(1_000)(forget)
