"""Timers in stream time: what fires, in which order, and what stays in the store."""

# ruff: noqa: ARG002 - what is written matters to few of them

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import until
from tests.worker.kafka.totals import NewTopics, Owner, new_job, read

from batonpass.worker.kafka import (
    INT,
    TEXT,
    ActiveOptions,
    App,
    Context,
    KafkaRuntime,
    MemoryStore,
    Record,
    State,
    StoreInTransaction,
    Timer,
    Topic,
)
from batonpass.worker.kafka.app_driver import AppTest, MemoryTopics
from batonpass.worker.kafka.stores import TaskState
from batonpass.worker.kafka.timers import LISTED, Timers
from batonpass.worker.protocol import Role


class Task:
    """A task whose transactions follow one another."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.changes = StoreInTransaction(self.store)
        self.timers = Timers(self.changes)

    def begin(self) -> None:
        """Commit what was changed, and begin the next transaction: on this worker or another."""
        self.store.apply(self.changes.changes.items(), 1)
        self.changes = StoreInTransaction(self.store)
        self.timers = Timers(self.changes, self.timers.earliest)

    def fired(
        self, to_ms: int, and_then: Callable[[int, bytes], None] = lambda _at, _owner: None
    ) -> list[tuple[int, bytes]]:
        """Let time pass and return what has fired."""
        found: list[tuple[int, bytes]] = []
        for at_ms, owner in filter(None, self.timers.advance(to_ms)):
            found.append((at_ms, owner))
            and_then(at_ms, owner)
        return found


@pytest.fixture
def task() -> Task:
    return Task()


def test_timers_fire_in_the_order_of_their_times_and_once(task: Task) -> None:
    for owner, at_ms in ((b"a", 300), (b"b", 100), (b"c", 200), (b"d", 401)):
        task.timers.set(owner, at_ms)
    assert task.fired(99) == []
    assert task.fired(400) == [(100, b"b"), (200, b"c"), (300, b"a")]
    assert task.fired(400) == []
    assert task.fired(500) == [(401, b"d")]
    task.begin()
    # Nothing is left of them but the time.
    assert list(task.store.scan(b"o")) + list(task.store.scan(b"t")) == []


def test_one_that_is_put_off_fires_at_its_latest_time_and_in_its_turn(task: Task) -> None:
    task.timers.set(b"a", 100)
    task.timers.set(b"b", 150)
    task.timers.set(b"a", 200)
    assert task.fired(300) == [(150, b"b"), (200, b"a")]


def test_one_that_is_brought_forward_fires_then(task: Task) -> None:
    task.timers.set(b"a", 200)
    task.timers.set(b"a", 100)
    assert task.fired(150) == [(100, b"a")]
    assert task.fired(300) == []


def test_one_that_is_taken_away_does_not_fire(task: Task) -> None:
    task.timers.set(b"a", 100)
    task.timers.set(b"b", 100)
    task.timers.clear(b"a")
    task.timers.clear(b"nobody")
    assert task.fired(200, lambda _at, _owner: task.timers.clear(b"b")) == [(100, b"b")]


def test_one_may_take_away_or_put_off_another_that_is_due(task: Task) -> None:
    for owner in (b"a", b"b", b"c"):
        task.timers.set(owner, 100)

    def change(_at_ms: int, owner: bytes) -> None:
        if owner == b"a":
            task.timers.clear(b"b")
            task.timers.set(b"c", 500)

    assert task.fired(200, change) == [(100, b"a")]
    assert task.fired(500) == [(500, b"c")]


def test_one_that_is_set_while_timers_fire_has_its_turn(task: Task) -> None:
    task.timers.set(b"a", 100)
    task.timers.set(b"z", 300)

    def again(at_ms: int, owner: bytes) -> None:
        if owner == b"a":
            task.timers.set(owner, at_ms + 150)

    assert task.fired(400, again) == [(100, b"a"), (250, b"a"), (300, b"z"), (400, b"a")]


def test_one_that_would_fire_for_ever_is_refused(task: Task) -> None:
    task.timers.set(b"a", 100)
    with pytest.raises(ValueError, match="a timer of 100 sets one of 100: it has to be later"):
        task.fired(200, lambda at_ms, owner: task.timers.set(owner, at_ms))


@pytest.mark.parametrize("at_ms", [-1, 1 << 63])
def test_a_time_that_there_is_not_is_refused(task: Task, at_ms: int) -> None:
    with pytest.raises(ValueError, match="milliseconds since 1970"):
        task.timers.set(b"a", at_ms)


def test_time_and_timers_are_kept_for_the_next_transaction(task: Task) -> None:
    task.fired(1_000)
    task.timers.set(b"a", 2_000)
    task.begin()
    assert task.timers.now_ms == 1_000
    # A record from before does not turn time back.
    assert task.fired(500) == []
    assert task.timers.now_ms == 1_000
    assert task.fired(2_000) == [(2_000, b"a")]


OWNERS = st.sampled_from([b"a", b"b", b"c"])
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("set"), OWNERS, st.integers(0, 60)),
        st.tuples(st.just("clear"), OWNERS, st.just(0)),
        st.tuples(st.just("pass"), st.just(b""), st.integers(0, 20)),
        st.tuples(st.just("begin"), st.just(b""), st.just(0)),
        st.tuples(st.just("half way"), st.just(b""), st.integers(1, 3)),
    )
)


@given(moves=MOVES)
def test_whatever_is_set_cleared_and_committed_each_owner_fires_when_it_was_last_set_for(
    moves: list[tuple[str, bytes, int]],
) -> None:
    task, now_ms, wanted = Task(), 0, dict[bytes, int]()
    for what, owner, number in moves:
        if what == "set":
            task.timers.set(owner, number)
            wanted[owner] = number
        elif what == "clear":
            task.timers.clear(owner)
            wanted.pop(owner, None)
        elif what == "begin":
            task.begin()
        elif what == "half way":
            now_ms += 10
            due = sorted((at_ms, each) for each, at_ms in wanted.items() if at_ms <= now_ms)[:number]
            assert list(islice(filter(None, task.timers.advance(now_ms)), number)) == due
            for _, each in due:
                del wanted[each]
            task.begin()
        else:
            now_ms += number
            due = sorted((at_ms, each) for each, at_ms in wanted.items() if at_ms <= now_ms)
            assert task.fired(now_ms) == due
            wanted = {each: at_ms for each, at_ms in wanted.items() if at_ms > now_ms}


class Store(MemoryStore):
    """A store that tells where scans begin, and how many keys they come upon."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[bytes] = []
        self.seen = 0

    def scan(self, *where: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Scan."""
        self.starts.append(where[-1])
        for item in super().scan(*where):
            self.seen += 1
            yield item


def test_what_is_due_is_listed_in_parts_and_in_order() -> None:
    store = Store()
    timers = Timers(StoreInTransaction(store))
    owners = [b"%04d" % number for number in range(2_500)]
    for owner in owners:
        timers.set(owner, 100)
    store.apply(timers._store.changes.items(), 1)
    timers, fired = Timers(StoreInTransaction(store)), list[bytes]()
    for due in timers.advance(101):
        assert due is not None
        if not fired:
            assert store.seen <= LISTED + 1
            # It comes after what is not listed yet.
            timers.set(b"0000", 101)
        fired.append(due[1])
    assert fired == [*owners, b"0000"]


def test_without_a_time_nothing_is_due(task: Task) -> None:
    task.timers.set(b"a", 0)
    assert task.fired(-1) == []
    assert task.fired(0) == [(0, b"a")]


def test_time_is_as_far_as_what_has_fired_when_a_transaction_ends_half_way(task: Task) -> None:
    for owner, at_ms in ((b"a", 100), (b"b", 200), (b"c", 300), (b"d", 300)):
        task.timers.set(owner, at_ms)
    task.timers.set(b"a", 150)
    half_way = task.timers.advance(400)
    assert [next(half_way), next(half_way), next(half_way)] == [None, (150, b"a"), (200, b"b")]
    task.begin()
    assert task.timers.now_ms == 200
    assert task.fired(400) == [(300, b"c"), (300, b"d")]
    assert task.timers.now_ms == 400


class Memory:
    """What a transaction is written to."""

    async def send(self, topic: str, value: bytes | None, **where: Any) -> asyncio.Future[object]:
        """Take a record."""
        place = asyncio.get_running_loop().create_future()
        place.set_result(SimpleNamespace(offset=0))
        return place

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Do nothing."""

    async def write_out(self) -> None:
        """Do nothing."""


class Job:
    """A job whose keys all end at one time, and send what they had, in transactions of one producer."""

    def __init__(self, source: str = "orders", output: str = "out") -> None:
        app = App("a")
        orders, out = app.topic(source, key=TEXT, value=INT), app.topic(output, key=TEXT, value=INT)
        table = app.table("t", key=TEXT, value=INT)
        self.fired: list[str] = []
        self.processed: list[str] = []

        @app.process(orders, state=table)
        async def add(order: Record[str, int], _context: Context, state: State[int]) -> None:
            self.processed.append(order.key)
            if order.value:
                state.put(order.value)
                state.set_timer(order.value)

        @app.on_timer(table)
        async def end(timer: Timer[str], context: Context, state: State[int]) -> None:
            self.fired.append(timer.key)
            await context.send(out, state.get(0), key=timer.key)
            state.delete()

        self.part = app.subtopologies()["0"]
        self.store = Store()
        stores = {topic: MemoryStore() for topic in self.part.changelog_topics}
        stores["a-0-timers-changelog"] = self.store
        self.state = TaskState("0_0", stores, Path("in-memory"))
        self.producer = Memory()

    def begin(self) -> Context:
        return Context(self.state, self.part.changelogs, self.producer)

    async def process(self, context: Context, key: str, timestamp_ms: int, timer_ms: object = 0) -> None:
        raw: Any = SimpleNamespace(
            topic="orders",
            partition=0,
            offset=0,
            timestamp=timestamp_ms,
            key=key.encode(),
            value=str(timer_ms).encode(),
        )
        raw.headers = ()
        await self.part.process(raw, context)

    async def commit(self, context: Context) -> None:
        await context.flush()
        context.apply()

    async def set(self, count: int, at_ms: int) -> list[str]:
        context, keys = self.begin(), [f"{at_ms}-{number:03}" for number in range(count)]
        for key in keys:
            await self.process(context, key, 1, at_ms)
        await self.commit(context)
        return keys


async def turns_during(work: Coroutine[Any, Any, None]) -> int:
    """Return how many turns the loop had."""
    doing, turns = asyncio.ensure_future(work), 0
    while not doing.done():
        await asyncio.sleep(0)
        turns += 1
    await doing
    return turns


async def test_others_have_their_turn_between_timers_and_between_what_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("batonpass.loop_turns.TURN_S", 0)
    job = Job()
    keys, context = await job.set(50, 100), job.begin()
    assert await turns_during(job.process(context, "new", 200)) > len(keys)
    assert job.fired == keys
    assert await turns_during(context.flush()) > len(keys)


async def test_a_transaction_begins_to_look_for_timers_where_the_last_one_stopped() -> None:
    job = Job()
    await job.set(3, 100)
    await job.set(3, 200)
    keys = [f"{at_ms}-{number:03}".encode() for at_ms in (100, 200) for number in range(3)]
    places = [b"t" + int(key[:3]).to_bytes(8) + b"t\0" + key for key in keys]
    context = job.begin()
    await job.process(context, "new", 150)
    await job.commit(context)
    # One that is dropped changes nothing.
    job.store.starts.clear()
    dropped = job.begin()
    await job.process(dropped, "new", 250)
    assert job.store.starts == places[3:4]
    job.fired.clear()
    context = job.begin()
    await job.process(context, "new", 250, timer_ms=50)
    await job.commit(context)
    assert len(job.fired) == 3
    # This one was set for a time that is past.
    job.store.starts.clear()
    context = job.begin()
    await job.process(context, "other", 250)
    await job.commit(context)
    assert job.fired[3:] == ["new"]
    assert job.store.starts == [b"t" + (50).to_bytes(8) + b"t\0new"]
    # Another producer does not know what others have written since.
    job.producer = Memory()
    job.store.starts.clear()
    await job.process(job.begin(), "other", 250)
    assert job.store.starts == [b"t"]


async def test_a_full_transaction_ends_before_the_record_and_the_next_one_goes_on() -> None:
    job = Job()
    keys, transactions = await job.set(10, 100), 0
    job.processed.clear()
    while not job.processed:
        context, room = job.begin(), iter(range(3))
        context.has_room = partial(lambda room: next(room, None) is not None, room)
        await job.process(context, "new", 200)
        await job.commit(context)
        transactions += 1
        assert context.is_cut == (transactions < 3)
    assert (job.fired, job.processed, transactions) == (keys, ["new"], 3)


async def test_a_record_that_cannot_be_read_makes_nothing_due() -> None:
    job = Job()
    await job.set(3, 100)
    with pytest.raises(ValueError, match="cannot be read"):
        await job.process(job.begin(), "new", 200, timer_ms="no number")
    assert job.fired == []


@pytest.mark.needs("kafka")
async def test_what_one_record_makes_due_is_committed_in_parts_and_once(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    kafka = await new_job(bootstrap, new_topic)
    job, counts = Job(kafka.source, kafka.output), Counter[Context]()
    changelogs = (kafka.changelog, await new_topic("timers", cleanup_policy="compact"))

    async def process(raw: Any, context: Context) -> None:
        before = len(job.fired)
        await job.part.process(raw, context)
        counts[context] += len(job.fired) - before

    part = replace(job.part, process=process, changelogs=dict(zip(job.part.changelogs, changelogs, strict=True)))
    runtime = KafkaRuntime(
        kafka.connection, kafka.group, {"0": part}, folder=tmp_path, options=ActiveOptions(records_max=10)
    )
    producer = AIOKafkaProducer(**kafka.connection.client_options())
    await producer.start()
    for number in range(35):
        await producer.send(kafka.source, b"100", key=b"k%02d" % number, partition=0, timestamp_ms=1)
    await producer.send(kafka.source, b"0", key=b"new", partition=0, timestamp_ms=200)
    await producer.stop()
    owner = Owner(runtime)
    owner.hold("0_0", Role.ACTIVE)
    await until(lambda: "new" in job.processed)
    await owner.give_up("0_0")
    await owner.close()
    assert max(counts.values()) <= 10
    assert job.fired == [f"k{number:02}" for number in range(35)]
    assert [record.key.decode() for record in await read(kafka, kafka.output)] == job.fired


def release(*, is_new: bool, topics: MemoryTopics | None) -> tuple[AppTest, Topic[str, int], list[str]]:
    """Return a job whose older release calls nothing for the timers of one table, and what is called."""
    app, fired = App("a"), list[str]()
    orders = app.topic("orders", key=TEXT, value=INT)
    tables = [app.table(name, key=TEXT, value=INT) for name in ("sums", "days")]
    for table in tables[: 1 + is_new]:

        @app.process(orders, state=table)
        async def put_off(order: Record[str, int], _context: Context, state: State[int]) -> None:
            state.set_timer(order.timestamp_ms + order.value)

        @app.on_timer(table)
        async def end(timer: Timer[str], _context: Context, _state: State[int], name: str = table.name) -> None:
            fired.append(f"{name} {timer.key}")

    test = app.test()
    if topics is not None:
        test._topics = topics
        test.restore()
    return test, orders, fired


async def test_what_an_older_release_has_no_function_for_waits_for_the_one_that_has_it() -> None:
    topics, seen = None, []
    for at_ms, is_new in enumerate((True, False, False, True, True)):
        test, orders, fired = release(is_new=is_new, topics=topics)
        topics = test._topics
        await test.send(orders, 5, key=f"k{at_ms}", timestamp_ms=10 * at_ms)
        seen.append(fired)
    assert seen == [[], ["sums k0"], ["sums k1"], ["days k0", "sums k2"], ["days k3", "sums k3"]]
