"""A job in a few lines does on a real broker what it says: topics, group, types, tables, and what is refused."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, read
from tests.worker.test_own_folder import held

from batonpass.codec.requests import read_declaration
from batonpass.core.state.ids import GroupId
from batonpass.core.state.replies import Declared
from batonpass.sockets import free_port
from batonpass.worker import Phase
from batonpass.worker.declaring import NotDeclared
from batonpass.worker.kafka import (
    BYTES,
    INT,
    JSON,
    TEXT,
    App,
    Context,
    KafkaConnection,
    MemoryStore,
    Record,
    Serde,
    State,
    Timer,
    Topic,
    json_of,
    msgpack_of,
    optional,
)
from batonpass.worker.kafka.metadata import adopt
from batonpass.worker.kafka.stores import TaskState
from batonpass.worker.kafka.topics import MissingPartition, settings_of
from batonpass.worker.kafka.transport import KafkaTransport
from batonpass.worker.testing import HttpServer, LocalCoordinator

BEGIN_MS = (time.time_ns() // 1_000_000_000 - 3_600) * 1_000
"""What times of records are counted from: an hour ago, for brokers delete what is older than a week."""


class User(msgspec.Struct):
    """Who clicks."""

    name: str
    age: int


@dataclass
class World:
    """A cluster, a coordinator, and the names of a job that nobody else uses."""

    connection: KafkaConnection
    coordinator: LocalCoordinator
    url: str
    folder: Path
    name: str

    def app(self, instance: str = "a", **more: Any) -> App:
        """Return a job that does nothing yet."""
        return App(
            self.name,
            url=self.url,
            connection=self.connection,
            folder=self.folder,
            instance_id=instance,
            config={"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0},
            **more,
        )

    def topic_name(self, name: str) -> str:
        """Return the name of a topic of this job alone."""
        return f"{self.name}-{name}"

    async def write(self, topic: str, *records: tuple[bytes | None, bytes | None, int]) -> None:
        """Write keys and values with their times to partition 0."""
        async with AIOKafkaProducer(**self.connection.client_options()) as producer:
            for key, value, at_ms in records:
                await producer.send_and_wait(topic, value, key=key, partition=0, timestamp_ms=BEGIN_MS + at_ms)

    async def read(self, topic: str) -> list[tuple[bytes, bytes, int]]:
        """Return keys, values and times of a topic's partition 0."""
        job = Job(self.connection, self.name, "", "", "")
        return [(one.key, one.value, one.timestamp - BEGIN_MS) for one in await read(job, topic)]

    async def has(self, topic: str, *values: bytes) -> bool:
        """Whether a topic has these values, and no others."""
        return [value for _, value, _ in await self.read(topic)] == list(values)


@pytest.fixture
async def world(bootstrap: str, tmp_path: Path) -> AsyncIterator[World]:
    async with LocalCoordinator() as coordinator, HttpServer(coordinator.answer) as server:
        connection = KafkaConnection(bootstrap_servers=bootstrap)
        yield World(connection, coordinator, server.url, tmp_path, f"job-{uuid.uuid4().hex[:8]}")


@asynccontextmanager
async def running(app: App) -> AsyncIterator[None]:
    """Run a job until the end of the block; what ends it sooner is raised."""
    work = asyncio.create_task(app.run_async())
    body = asyncio.current_task()
    assert body is not None

    def end_the_block(_: object) -> None:
        body.cancel()

    work.add_done_callback(end_the_block)
    try:
        yield
    except asyncio.CancelledError:
        work.result()
        raise
    finally:
        work.remove_done_callback(end_the_block)
        work.cancel()
        await asyncio.wait((work,))


def adding(world: World, instance: str = "a", *, partitions: int | None = 1, **more: Any) -> App:
    """Return the job of the page: it adds numbers up."""
    app = world.app(instance, **more)
    orders = app.topic(world.topic_name("orders"), key=TEXT, value=INT, partitions=partitions)
    totals = app.topic(world.topic_name("totals"), key=TEXT, value=INT, partitions=partitions)
    sums = app.table("sums", key=TEXT, value=INT)

    @app.process(orders, state=sums)
    async def add(order: Record[str, int], context: Context, total: State[int]) -> None:
        total.put(total.get(0) + order.value)
        await context.send(totals, total.get(0), key=order.key, timestamp_ms=order.timestamp_ms)

    return app


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.fixture
def app() -> App:
    return App("orders")


async def ignore(record: Record[str, int], context: Context) -> None:
    """Do nothing."""


async def keep(record: Record[str, int], context: Context, state: State[int]) -> None:
    """Do nothing."""


def test_a_job_that_does_nothing_is_refused(app: App) -> None:
    with pytest.raises(ValueError, match=r"give a topic to a function with @app\.process"):
        app.subtopologies()


def test_a_table_that_no_function_can_use_is_refused(app: App) -> None:
    app.process(app.topic("a", key=TEXT, value=INT))(ignore)
    app.table("sums", key=TEXT, value=INT, subtopology="1")
    with pytest.raises(ValueError, match="subtopology 1 has tables or timers, and reads no topic"):
        app.subtopologies()


def test_a_topic_and_a_table_are_named_once(app: App) -> None:
    app.topic("a", key=TEXT, value=INT)
    with pytest.raises(ValueError, match="topic a was named before"):
        app.topic("a", key=TEXT, value=INT)
    app.table("sums", key=TEXT, value=INT)
    with pytest.raises(ValueError, match="two tables sums"):
        app.table("sums", key=TEXT, value=INT)
    # Timers would be kept in its store.
    with pytest.raises(ValueError, match="two tables batonpass-timers"):
        app.table("batonpass-timers", key=TEXT, value=INT)


def test_a_table_needs_its_serdes(app: App) -> None:
    with pytest.raises(TypeError, match="needs a serde for its keys"):
        app.table("sums")  # type: ignore[call-overload]


def test_a_function_that_is_not_async_is_refused(app: App) -> None:
    def blocking(record: Record[str, int], context: Context) -> None:
        """Do nothing."""

    with pytest.raises(TypeError, match=r"'.*blocking' is no coroutine function"):
        app.process(app.topic("a", key=TEXT, value=INT))(blocking)  # type: ignore[arg-type]


def test_state_of_another_subtopology_is_refused(app: App) -> None:
    orders, sums = app.topic("a", key=TEXT, value=INT), app.table("sums", key=TEXT, value=INT, subtopology="1")
    with pytest.raises(ValueError, match="table sums belongs to subtopology 1, and a is read in 0"):
        app.process(orders, state=sums)


def test_a_topic_that_two_subtopologies_read_is_refused(app: App) -> None:
    orders = app.topic("a", key=TEXT, value=INT)
    app.process(orders)(ignore)
    app.process(orders, subtopology="1")(ignore)
    with pytest.raises(ValueError, match="subtopologies 0 and 1 both read a"):
        app.subtopologies()


async def test_a_program_of_its_own_keeps_its_signals_and_may_work_in_any_thread(world: World) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    async def work(*totals: bytes) -> None:
        async with adding(world).running() as member:
            assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
            await world.write(world.topic_name("orders"), (b"a", b"1", 0))
            await until(lambda: world.has(world.topic_name("totals"), *totals))
        assert member.phase is Phase.LEFT

    await work(b"1")
    await asyncio.to_thread(asyncio.run, work(b"1", b"2"))


async def test_where_a_loop_runs_already_it_is_said_what_to_await(app: App) -> None:
    with pytest.raises(RuntimeError, match=r"await app\.run_async\(\)"):
        app.run()


@pytest.mark.parametrize("missing", ["BATONPASS_URL", "BATONPASS_KAFKA_BOOTSTRAP"])
async def test_what_nobody_has_named_is_asked_for(missing: str, monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    app.process(app.topic("a", key=TEXT, value=INT))(ignore)
    monkeypatch.setenv("BATONPASS_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("BATONPASS_KAFKA_BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.delenv(missing)
    with pytest.raises(ValueError, match=f"set {missing}"):
        await app.run_async()


async def test_a_folder_that_another_process_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: App
) -> None:
    monkeypatch.setenv("BATONPASS_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("BATONPASS_KAFKA_BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.setenv("BATONPASS_STATE", str(tmp_path))
    app.process(app.topic("a", key=TEXT, value=INT), state=app.table("sums", key=TEXT, value=INT))(keep)
    with held(tmp_path / "orders"), pytest.raises(BlockingIOError, match="another worker works in") as refused:
        await app.run_async()
    assert "BATONPASS_INSTANCE gives each worker a name" in refused.value.__notes__[0]


@pytest.mark.parametrize("name", ["..", "a/b", "/a", "."])
async def test_a_name_that_leads_out_of_the_folder_is_refused(name: str) -> None:
    named = App("orders", url="http://127.0.0.1:9", connection=KafkaConnection(bootstrap_servers="a"), instance_id=name)
    named.process(named.topic("a", key=TEXT, value=INT))(ignore)
    with pytest.raises(ValueError, match="names this worker and its folder: it has no slash"):
        await named.run_async()


def test_a_transport_that_cannot_declare_a_group_is_refused_at_once() -> None:
    transport = KafkaTransport(KafkaConnection(bootstrap_servers="127.0.0.1:1"))
    with pytest.raises(TypeError, match="batonpass groups declare"):
        App("orders", transport=transport)


def test_a_keyword_that_there_is_not_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="instanceid"):
        App("orders", instanceid="a")  # type: ignore[call-arg]


async def test_workers_without_state_need_no_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: App
) -> None:
    monkeypatch.setenv("BATONPASS_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("BATONPASS_KAFKA_BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.setenv("BATONPASS_STATE", str(tmp_path))
    app.process(app.topic("a", key=TEXT, value=INT))(ignore)
    with held(tmp_path / "orders"), pytest.raises(KafkaConnectionError):
        await app.run_async()


def test_a_table_has_one_function_for_its_timers(app: App) -> None:
    sums = app.table("sums", key=TEXT, value=INT)

    async def over(timer: Timer[str], context: Context, state: State[int]) -> None:
        """Do nothing."""

    app.on_timer(sums)(over)
    with pytest.raises(ValueError, match="timers of table sums have two functions"):
        app.on_timer(sums)(over)


def test_what_is_called_by_time_is_told_apart_by_its_name(app: App) -> None:
    async def tick(at_ms: int, context: Context) -> None:
        """Do nothing."""

    with pytest.raises(ValueError, match="every_ms is a whole number from 1 on, and not 0"):
        app.punctuate(0)
    app.punctuate(10)(tick)
    with pytest.raises(ValueError, match="two functions tick"):
        app.punctuate(20)(tick)


# --- serdes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (BYTES, b"x", b"x"),
        (TEXT, "ä", "ä".encode()),
        (INT, -5, b"-5"),
        (JSON, {"a": [1]}, b'{"a":[1]}'),
        (json_of(User), User("ada", 36), b'{"name":"ada","age":36}'),
        (json_of(dict[str, int]), {"a": 1}, b'{"a":1}'),
        (msgpack_of(list[int]), [1, 2], b"\x92\x01\x02"),
        (optional(INT), None, None),
        (optional(INT), 3, b"3"),
        (Serde(lambda one: one.upper().encode(), lambda data: data.decode().lower()), "own", b"OWN"),
    ],
)
def test_a_serde_reads_what_it_writes(serde: Serde[Any], value: object, data: bytes | None) -> None:
    assert serde.dump(value) == data
    assert serde.load(data) == value


@pytest.mark.parametrize(
    ("serde", "data"), [(TEXT, None), (TEXT, b"\xff"), (INT, b"x"), (json_of(User), b'{"name":"ada"}'), (JSON, b"{")]
)
def test_bytes_that_are_no_such_value_are_an_error(serde: Serde[Any], data: bytes | None) -> None:
    with pytest.raises(ValueError, match=r".+"):
        serde.load(data)


WRONG: dict[str, tuple[Callable[[App], object], str]] = {
    "a type for a serde": (lambda app: app.topic("a", key=str, value=INT), "has <class 'str'> where a serde belongs"),  # type: ignore[arg-type]
    "a type for a table's serde": (lambda app: app.table("a", key=TEXT, value=int), "where a serde belongs"),  # type: ignore[call-overload]
    "no partitions": (lambda app: app.topic("a", key=TEXT, value=INT, partitions=0), "from 1 on, and not 0"),
    "partitions in words": (lambda app: app.topic("a", key=TEXT, value=INT, partitions="4"), "and not '4'"),  # type: ignore[arg-type]
    "a name for a topic": (lambda app: app.process("a"), "what app.topic returned, and not 'a'"),  # type: ignore[call-overload]
    "process without a topic": (lambda app: app.process(ignore), "what app.topic returned"),  # type: ignore[call-overload]
    "a name for a table": (
        lambda app: app.process(a_topic(app), state="sums"),  # type: ignore[call-overload]
        "what app.table returned, and not 'sums'",
    ),
    "no room for the state": (
        lambda app: app.process(a_topic(app), state=app.table("sums", key=TEXT, value=INT))(ignore),  # type: ignore[arg-type]
        "is called with record, context, state, and does not take these 3",
    ),
    "no table for the state": (lambda app: app.process(a_topic(app))(with_state), "called with record, context, and"),  # type: ignore[arg-type]
}


def a_topic(app: App) -> Topic[str, int]:
    """Return a topic of a job."""
    return app.topic("a", key=TEXT, value=INT)


async def with_state(_record: Record[str, int], _context: Context, _state: State[int]) -> None:
    """Do nothing with a state."""


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_meant_is_refused_where_it_is_written(case: str, app: App) -> None:
    do, says = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=says):
        do(app)


def test_what_could_not_be_read_again_is_not_written() -> None:
    with pytest.raises(TypeError):
        INT.dump(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'Ada' is no User"):
        json_of(User).dump("Ada")  # type: ignore[arg-type]
    assert json_of(dict[str, int]).dump({"a": 1}) == b'{"a":1}'


async def test_a_table_of_another_subtopology_is_named(app: App) -> None:
    orders = a_topic(app)
    other = app.table("sums", key=TEXT, value=INT, subtopology="1")
    app.process(app.topic("b", key=TEXT, value=INT), subtopology="1")(ignore)

    @app.process(orders)
    async def look(order: Record[str, int], context: Context) -> None:
        context.store(other).get(order.key)

    with pytest.raises(KeyError, match=r"task 0_0 has no store .*sums.*, only none at all"):
        await app.test().send(orders, 1, key="a", timestamp_ms=0)


# --- on a broker ----------------------------------------------------------------------------------------------------


@pytest.mark.needs("kafka")
async def test_a_job_makes_its_topics_declares_its_group_and_counts(world: World) -> None:
    orders, totals = world.topic_name("orders"), world.topic_name("totals")
    async with running(adding(world)):
        await at_rest(world)
        await world.write(orders, (b"k", b"1", 1_000), (b"k", b"2", 2_000), (b"other", b"5", 3_000))
        await until(lambda: world.has(totals, b"1", b"3", b"5"))
    # Outputs have the times that they were given.
    assert [at_ms for _, _, at_ms in await world.read(totals)] == [1_000, 2_000, 3_000]
    described = await world.coordinator.describe(world.name)
    [part] = described["topology"]["subtopologies"]
    assert (part["id"], part["partitions"], part["source_topics"]) == ("0", 1, [orders])
    assert part["changelog_topics"] == [f"{world.name}-sums-changelog"]
    admin = AIOKafkaAdminClient(**world.connection.client_options())
    adopt(admin._client)
    await admin.start()
    changelog = part["changelog_topics"][0]
    settings = await settings_of(admin._client, [changelog], ["cleanup.policy"])
    await admin.close()
    assert settings == {changelog: {"cleanup.policy": "compact"}}


@pytest.mark.needs("kafka")
async def test_whoever_writes_to_a_topic_and_reads_it_speaks_its_types_and_names_its_own(world: World) -> None:
    app = adding(world, partitions=3)
    orders, stranger = Topic(world.topic_name("orders"), TEXT, INT), Topic(world.topic_name("other"), TEXT, INT)
    async with app.producer() as producer:
        # The topics were missing.
        for number in range(6):
            await producer.send(orders, number, key=f"k{number}", timestamp_ms=BEGIN_MS + number, headers={"n": b"1"})
        wrong: Any = "five"
        with pytest.raises(TypeError, match="'five' cannot be written"):
            await producer.send(orders, wrong, key="k")
        with pytest.raises(ValueError, match="is none of this job"):
            await producer.send(stranger, 1, key="k")
    found = await app.records(orders)
    assert {one.partition for one in found} == {0, 1, 2}
    assert sorted((one.timestamp_ms - BEGIN_MS, one.key, one.value, one.headers) for one in found) == [
        (number, f"k{number}", number, (("n", b"1"),)) for number in range(6)
    ]
    assert await app.records(Topic(world.topic_name("totals"), TEXT, INT)) == []
    with pytest.raises(ValueError, match="is none of this job"):
        await app.records(stranger)


async def at_rest(world: World) -> None:
    """Wait until the group is declared and all of its tasks run."""

    async def is_so() -> bool:
        reply = await world.coordinator.answer("GET", f"/v1/groups/{world.name}")
        return reply.status == 200 and b'"at_rest":true' in reply.body and b'"members":0' not in reply.body

    await until(is_so)


@pytest.mark.needs("kafka")
async def test_another_worker_of_the_job_goes_on_where_the_first_one_stopped(world: World) -> None:
    orders, totals = world.topic_name("orders"), world.topic_name("totals")
    async with running(adding(world, "a")):
        await at_rest(world)
        await world.write(orders, (b"k", b"1", 1_000))
        await until(lambda: world.has(totals, b"1"))
        async with running(adding(world, "b")):
            await until(lambda: two_members(world))
            await world.write(orders, (b"k", b"2", 2_000))
            await until(lambda: world.has(totals, b"1", b"3"))
    async with running(adding(world, "a")):
        await world.write(orders, (b"k", b"4", 3_000))
        await until(lambda: world.has(totals, b"1", b"3", b"7"))


@pytest.mark.needs("kafka")
async def test_a_worker_says_what_it_runs_and_shows_its_metrics(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    port = free_port()
    monkeypatch.setenv("BATONPASS_METRICS_PORT", str(port))
    async with running(adding(world)):
        await at_rest(world)
        await world.write(world.topic_name("orders"), (b"k", b"1", 1_000))
        await until(lambda: world.has(world.topic_name("totals"), b"1"))

        def has_counted() -> bool:
            with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                counted = f'batonpass_worker_records_total{{group="{world.name}",subtopology="0"}} 1.0'
                return counted in answer.read().decode()

        await until(lambda: asyncio.to_thread(has_counted))
    with pytest.raises(URLError):
        await asyncio.to_thread(has_counted)
    lines = [one.getMessage() for one in caplog.records if one.name.startswith("batonpass.worker")]
    for line in (
        "the state of 0_0 on this disk: nothing",
        "active> begins",
        "has restored 0 records in",
        "active> runs",
    ):
        assert any(line in said for said in lines), line
    assert "<Task 0_0 active> has stopped" in lines
    assert not [one for one in caplog.records if "HTTP Request" in one.getMessage()]


@pytest.mark.needs("kafka")
async def test_two_workers_of_a_process_show_their_metrics_each_at_its_port(world: World) -> None:
    def shown(port: int) -> str:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text: str = answer.read().decode()
            return text

    first, second = free_port(), free_port()
    async with running(adding(world, "a", metrics_port=first)), running(adding(world, "b", metrics_port=second)):
        await at_rest(world)
        for port in (first, second):
            await until(partial(can_connect, port))
            text = await asyncio.to_thread(shown, port)
            assert text.count("# TYPE batonpass_worker_tasks ") == 1
            # What the process itself shows is there too.
            assert "python_info" in text


def can_connect(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.needs("kafka")
async def test_a_worker_that_joins_anew_is_still_of_the_topology_that_it_began_with(world: World) -> None:
    """Its program has not changed: it would run a task without what a newer topology has added to it."""
    async with adding(world).running() as member:
        await at_rest(world)
        first = member.member_id
        name, local = GroupId(world.name), world.coordinator.coordinator
        group, _ = await local.look(name)
        topology = (await world.coordinator.describe(world.name))["topology"]
        topology["subtopologies"][0]["changelog_topics"].append("seen")
        body = msgspec.json.encode({"topology": topology | {"epoch": topology["epoch"] + 1}})
        declared, _ = read_declaration(name, body, if_match=group.revision)
        assert isinstance(await local.ask(name, declared), Declared)
        await world.coordinator.answer("POST", f"/v1/groups/{name}/members/{first}/evict")

        async def joined_anew() -> list[int]:
            group, _ = await local.look(name)
            return [one.topology_epoch for one in group.members.values() if one.id != first]

        assert await until(joined_anew) == [topology["epoch"]]


async def two_members(world: World) -> bool:
    return bool((await world.coordinator.describe(world.name))["members"] == 2)


@pytest.mark.needs("kafka")
async def test_a_topic_as_a_table_is_joined_and_forgets_what_is_deleted(world: World) -> None:
    users_name, clicks_name, joined_name = (world.topic_name(name) for name in ("users", "clicks", "joined"))
    app = world.app()
    users_topic = app.topic(users_name, key=TEXT, value=json_of(User), partitions=1)
    clicks = app.topic(clicks_name, key=TEXT, value=TEXT, partitions=1)
    joined = app.topic(joined_name, key=TEXT, value=optional(json_of(User)), partitions=1)
    users = app.table(users_topic)

    @app.process(clicks)
    async def join(click: Record[str, str], context: Context) -> None:
        await context.send(joined, context.store(users).get(click.key), key=click.key)

    async with running(app):
        await at_rest(world)
        ada = b'{"name":"Ada","age":36}'
        await world.write(users_name, (b"a", ada, 1_000), (b"b", b'{"name":"Bob","age":7}', 1_001))
        await world.write(clicks_name, (b"a", b"/", 2_000))
        await until(lambda: world.has(joined_name, ada))
        await world.write(users_name, (b"a", None, 3_000))
        await world.write(clicks_name, (b"a", b"/", 4_000))
        await until(lambda: world.has(joined_name, ada, None))  # type: ignore[arg-type]


def raised(caplog: pytest.LogCaptureFixture) -> str:
    """Return the exceptions that were logged, with what was added to them."""
    logged = [one.exc_info[1] for one in caplog.records if one.exc_info is not None]
    return "".join(line for error in logged if error is not None for line in traceback.format_exception(error))


@pytest.mark.needs("kafka")
async def test_a_record_that_is_not_what_its_topic_says_is_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    orders = world.topic_name("orders")
    async with running(adding(world)):
        await at_rest(world)
        await world.write(orders, (b"k", b"no number", 1_000))
        await until(lambda: "its value cannot be read: invalid literal" in raised(caplog))
    assert f"in {orders}-0 at offset 0, key b'k'" in raised(caplog)
    [line, *_] = [one for one in caplog.records if "failed: ValueError" in one.getMessage()]
    assert "\n" not in line.getMessage()
    assert f"in {orders}-0 at offset 0, key b'k'" in line.getMessage()
    # Nothing of the way to the worker's own code, here to the serde.
    assert "active.py" not in raised(caplog)


@pytest.mark.needs("kafka")
async def test_a_topic_that_is_missing_is_named_with_what_to_do(world: World) -> None:
    with pytest.raises(MissingPartition, match=r"-orders and .*-totals does not exist, .*or say with how many"):
        await adding(world, partitions=None).run_async()


@pytest.mark.needs("kafka")
async def test_a_topic_of_other_partitions_than_the_program_says_stays_and_is_told(
    world: World, new_topic: NewTopics, caplog: pytest.LogCaptureFixture
) -> None:
    app, there = world.app(), await new_topic("there", partitions=2)
    app.process(app.topic(there, key=TEXT, value=INT, partitions=4))(ignore)
    async with running(app):
        await at_rest(world)
    assert f"topic {there} has 2 partitions, and app.topic says 4: it stays as it is" in caplog.messages
    assert (await world.coordinator.describe(world.name))["tasks"] == 2


@pytest.mark.needs("kafka")
async def test_a_changelog_that_does_not_fit_is_refused(world: World, new_topic: NewTopics) -> None:
    app = world.app()
    changelog = await new_topic("sums", partitions=2, cleanup_policy="compact")
    app.process(app.topic(world.topic_name("a"), key=TEXT, value=INT, partitions=1))(ignore)
    app.table("sums", key=TEXT, value=INT, changelog=changelog)
    with pytest.raises(MissingPartition, match=rf"has partitions, 1, .*\({changelog} has 2\): make it with 1"):
        await app.run_async()


@pytest.mark.needs("kafka")
async def test_a_group_of_another_topology_is_refused_with_both_values(world: World) -> None:
    await world.coordinator.declare(world.name, partitions=1)
    with pytest.raises(NotDeclared) as refused:
        await adding(world).run_async()
    assert f"source_topics of subtopology 0 is declared as [], and here it is ['{world.name}-orders']" in str(
        refused.value
    )
    assert "declare it anew with a higher epoch than" in str(refused.value)


@pytest.mark.needs("kafka")
@pytest.mark.parametrize("port", ["taken", "metrics"])
async def test_a_port_for_metrics_that_cannot_be_had_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("BATONPASS_METRICS_PORT", str(taken.getsockname()[1]) if port == "taken" else port)
        with pytest.raises((OSError, ValueError)) as refused:
            await adding(world).run_async()
    assert "each worker on a host has its own" in refused.value.__notes__[0]


@pytest.mark.needs("kafka")
async def test_a_coordinator_that_never_answers_ends_the_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.worker.declaring.PATIENCE_S", 0.1)
    world.url = "http://127.0.0.1:9"
    with pytest.raises(ConnectionError, match="no coordinator has answered for"):
        await adding(world).run_async()


@pytest.mark.needs("kafka")
@pytest.mark.needs("kafka")
def test_a_signal_ends_the_start_too(bootstrap: str, tmp_path: Path) -> None:
    """A first process of a container without a handler does not hear of it, and is killed when its time is over."""
    program = (
        "import uuid\n"
        "from batonpass.worker.kafka import TEXT, App\n"
        "app = App(f'orders-{uuid.uuid4().hex}')\n"
        "orders = app.topic(f'{app.group}-orders', key=TEXT, value=TEXT, partitions=1)\n"
        "@app.process(orders)\n"
        "async def nothing(order, context): pass\n"
        "app.run()\n"
    )
    environment = {
        **os.environ,
        "BATONPASS_URL": f"http://127.0.0.1:{free_port()}",
        "BATONPASS_KAFKA_BOOTSTRAP": bootstrap,
        "BATONPASS_STATE": str(tmp_path),
    }
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True
    ) as started:
        assert started.stderr is not None
        assert "no coordinator answers" in started.stderr.readline()
        started.terminate()
        assert started.wait(30) == 128 + signal.SIGTERM


async def test_a_function_is_called_every_so_often_by_the_times_of_records(world: World) -> None:
    """Also after another worker has taken the task over; and once where several times have passed."""
    source, ticks = world.topic_name("source"), world.topic_name("ticks")

    def ticking(instance: str) -> App:
        app = world.app(instance)
        read_from = app.topic(source, key=optional(TEXT), value=INT, partitions=1)
        written = app.topic(ticks, key=optional(TEXT), value=TEXT, partitions=1)
        sums = app.table("sums", key=TEXT, value=INT)

        @app.process(read_from)
        async def add(record: Record[str | None, int], context: Context) -> None:
            store = context.store(sums)
            store.put("all", store.get("all", 0) + record.value)

        @app.punctuate(1_000)
        async def tick(at_ms: int, context: Context) -> None:
            await context.send(written, f"{at_ms - BEGIN_MS} {context.store(sums).get('all')}", key=None)

        return app

    async with running(ticking("a")):
        await at_rest(world)
        await world.write(source, *[(None, b"1", at_ms) for at_ms in (500, 900, 1_000, 1_500, 1_400)])
        await until(lambda: world.has(ticks, b"1000 2"))
    world.folder /= "empty"
    async with running(ticking("a")):
        await world.write(source, *[(None, b"1", at_ms) for at_ms in (1_600, 5_100, 5_900, 6_000)])
        await until(lambda: world.has(ticks, b"1000 2", b"2000 6", b"6000 8"))


async def test_a_timer_without_a_function_is_refused() -> None:
    app = App("orders")
    orders, sums = app.topic("a", key=TEXT, value=INT), app.table("sums", key=TEXT, value=INT)

    @app.process(orders, state=sums)
    async def add(order: Record[str, int], context: Context, state: State[int]) -> None:
        state.set_timer(order.timestamp_ms)

    process = app.subtopologies()["0"].process
    record = SimpleNamespace(topic="a", partition=0, offset=0, timestamp=1, key=b"k", value=b"1", headers=())
    state = TaskState("0_0", {"orders-sums-changelog": MemoryStore()}, Path("nowhere"))
    context = Context(state, {"sums": "orders-sums-changelog"}, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"nothing is called for timers of table sums: .* @app\.on_timer"):
        await process(record, context)
