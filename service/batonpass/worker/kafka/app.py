"""A job in a few lines: its topics, its tables, and a function for each topic that it reads.

    app = App("orders")
    orders = app.topic("orders", key=TEXT, value=INT)
    totals = app.topic("totals", key=TEXT, value=INT)
    sums = app.table("sums", key=TEXT, value=INT)

    @app.process(orders, state=sums)
    async def add(order: Record[str, int], context: Context, total: State[int]) -> None:
        total.put(total.get(0) + order.value)
        await context.send(totals, total.get(0), key=order.key)

    app.run()

It is made of a `KafkaRuntime` and a `Member`, which may be used without it.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from aiokafka.errors import KafkaConnectionError
from prometheus_client import REGISTRY, CollectorRegistry

from batonpass.variables import variable
from batonpass.worker.declaring import declare
from batonpass.worker.kafka.app_driver import AppTest
from batonpass.worker.kafka.connection import KafkaConnection, in_words, producing
from batonpass.worker.kafka.metadata import partition_counts
from batonpass.worker.kafka.metrics import serve
from batonpass.worker.kafka.options import ActiveOptions
from batonpass.worker.kafka.outside import AppProducer, records_of
from batonpass.worker.kafka.runtime import KafkaRuntime
from batonpass.worker.kafka.serdes import Serde
from batonpass.worker.kafka.steps import TIMERS, Call, Steps
from batonpass.worker.kafka.stores import OpenStore, RocksStore, in_memory
from batonpass.worker.kafka.subtopology import Subtopology, check_job, check_partitions, check_process
from batonpass.worker.kafka.topics import MissingPartition, administering, make
from batonpass.worker.kafka.transaction import Context
from batonpass.worker.kafka.transport import KafkaTransport
from batonpass.worker.kafka.typed import Record, State, Table, Timer, Topic, check_topic
from batonpass.worker.kafka.wall_clock import Punctuation
from batonpass.worker.member import Member
from batonpass.worker.options import MemberOptions, Options, check_count
from batonpass.worker.own_folder import sole_user_of
from batonpass.worker.protocol import OnLeaseLost
from batonpass.worker.signals import ended_by_signals

log = logging.getLogger("batonpass.worker.kafka")

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

Stateless = Callable[[Record[K, V], Context], Awaitable[None]]
"""A function for the records of a topic."""

Stateful = Callable[[Record[K, V], Context, State[S]], Awaitable[None]]
"""A function for the records of a topic, with what a table has of the record's key."""

OnTimer = Callable[[Timer[K], Context, State[S]], Awaitable[None]]
"""A function for the timers of a table's keys."""


class App:
    """A job of one group. What its arguments leave out is in the environment.

    ``url`` names the coordinators (BATONPASS_URL), ``token`` is shown to them (BATONPASS_TOKEN), ``connection`` is the
    cluster (BATONPASS_KAFKA_BOOTSTRAP and the variables for logging in). ``instance_id`` (BATONPASS_INSTANCE) is this
    worker's name over restarts. ``folder`` (BATONPASS_STATE, else ``state``) keeps the state, in a folder for each
    instance id. ``config`` has settings of the group, which count when this declares it. At ``metrics_port``
    (BATONPASS_METRICS_PORT), of every interface, Prometheus finds what this worker counts. All further keywords are
    those of `Member`.
    """

    def __init__(  # noqa: PLR0913 - all but the group may be left out
        self,
        group: str,
        *,
        url: str | None = None,
        connection: KafkaConnection | None = None,
        folder: str | PathLike[str] | None = None,
        open_store: OpenStore = RocksStore,
        options: ActiveOptions | None = None,
        config: Mapping[str, object] | None = None,
        metrics_port: int | None = None,
        **member: Unpack[MemberOptions],
    ) -> None:
        """Make a job that does nothing yet.

        Raises:
            TypeError: for a keyword that there is not, or a transport over Kafka.
            ValueError: for a choice that there is not, or a duration that means nothing.
        """
        Options(**member)
        if isinstance(member.get("transport"), KafkaTransport):
            raise TypeError(
                "an App declares its group, which takes HTTP: over Kafka, run a KafkaRuntime by a Member, in a group that "
                "was declared (batonpass groups declare)"
            )
        self.group = group
        self._url = url
        self._connection = connection
        self._folder = folder
        self._open_store = open_store
        self.options = options or ActiveOptions()
        self._metrics_port = metrics_port
        self.config = dict(config or {})
        self._member = member
        self._topics: dict[str, int | None] = {}
        self._tables: dict[str, Table[Any, Any]] = {}
        self._steps: defaultdict[str, Steps] = defaultdict(Steps)

    # --- the parts of the job ---------------------------------------------------------------------------------------

    def topic(self, name: str, *, key: Serde[K], value: Serde[V], partitions: int | None = None) -> Topic[K, V]:
        """Name a topic to read or to write. With ``partitions`` it is made with so many if it is missing.

        Raises:
            TypeError: when a serde is none.
            ValueError: when the topic was named before, or can have no such partitions.
        """
        _check_serdes(f"topic {name}", key, value)
        if partitions is not None:
            check_count(f"partitions of topic {name}", partitions)
        if name in self._topics:
            raise ValueError(f"topic {name} was named before: use what app.topic returned then")
        self._topics[name] = partitions
        return Topic(name, key, value)

    @overload
    def table(self, of: Topic[K, V], *, changelog: str | None = None, subtopology: str = "0") -> Table[K, V]: ...
    @overload
    def table(
        self, of: str, *, key: Serde[K], value: Serde[V], changelog: str | None = None, subtopology: str = "0"
    ) -> Table[K, V]: ...
    def table(
        self,
        of: str | Topic[Any, Any],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        changelog: str | None = None,
        subtopology: str = "0",
    ) -> Table[Any, Any]:
        """Name state by key, or the latest value of each key of a topic, which is read to its end before others.

        Every function of the subtopology may use it: ``context.store(table)``. Its changelog is
        ``<group>-<name>-changelog`` unless it is named, and made if it is missing.

        Raises:
            TypeError: when a serde is missing, or is none.
            ValueError: when there is a table of this name.
        """
        if isinstance(of, Topic):
            name, key, value = of.name, of.key, of.value
        else:
            name = of
        if key is None or value is None:
            raise TypeError(f"table {name} needs a serde for its keys and one for its values")
        _check_serdes(f"table {name}", key, value)
        if name in {*self._tables, TIMERS}:
            raise ValueError(f"there are two tables {name}: give one of them another name")
        changelog = changelog or f"{self.group}-{name}-changelog"
        table = Table(name, key, value, changelog, subtopology, follows=isinstance(of, Topic))
        self._tables[name] = table
        if isinstance(of, Topic):
            self._steps[subtopology].tables[name] = of
        return table

    @overload
    def process(
        self, source: Topic[K, V], *, subtopology: str = "0"
    ) -> Callable[[Stateless[K, V]], Stateless[K, V]]: ...
    @overload
    def process(
        self, source: Topic[K, V], *, state: Table[K, S], subtopology: str = "0"
    ) -> Callable[[Stateful[K, V, S]], Stateful[K, V, S]]: ...
    def process(
        self, source: Topic[Any, Any], *, state: Table[Any, Any] | None = None, subtopology: str = "0"
    ) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
        """Have a function called with each record of a topic; several of one topic are called in their order.

        Partition n of all topics of a ``subtopology`` belongs to one task, which has the tables of the subtopology. A
        topic that a job writes and reads again with other keys belongs to another subtopology.

        Raises:
            TypeError: when the function is not ``async``, or takes other arguments; when a topic or a table is none.
            ValueError: when the table belongs to another subtopology, or topic or table to another job.
        """
        if not isinstance(source, Topic):
            raise TypeError(f"process is given a topic, what app.topic returned, and not {source!r}")
        if state is not None and not isinstance(state, Table):
            raise TypeError(f"state is a table, what app.table returned, and not {state!r}")
        if source.name not in self._topics or (state is not None and self._tables.get(state.name) is not state):
            raise ValueError(f"topic {source.name}, or its table, was named by another App: name it with this one")
        if state is not None and state.subtopology != subtopology:
            raise ValueError(
                f"table {state.name} belongs to subtopology {state.subtopology}, and {source.name} is read in "
                f"{subtopology}: name the same for both"
            )

        def add(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
            check_process(function, "record", "context", *(["state"] if state is not None else []))
            self._steps[subtopology].calls.setdefault(source.name, []).append(Call(source, function, state))
            return function

        return add

    def on_timer(self, table: Table[K, S]) -> Callable[[OnTimer[K, S]], OnTimer[K, S]]:
        """Have a function called for timers of a table's keys (`State.set_timer`), within the task's transaction.

        A timer fires once stream time, the highest timestamp of the task's records so far, has reached it, before the
        record that brings that is processed. It is kept in the task's state.

        Raises:
            TypeError: when the function is not ``async``, or takes other arguments.
            ValueError: when the table has such a function.
        """

        def add(function: OnTimer[K, S]) -> OnTimer[K, S]:
            check_process(function, "timer", "context", "state")
            functions = self._steps[table.subtopology].on_timer
            if table.name in functions:
                raise ValueError(f"timers of table {table.name} have two functions: let one of them do both")
            functions[table.name] = (table, function)
            return function

        return add

    def punctuate(
        self, every_ms: int, *, wall_clock: bool = False, subtopology: str = "0"
    ) -> Callable[[Punctuation], Punctuation]:
        """Have a function called for each task every ``every_ms`` of its time, within the task's transaction.

        Time is stream time, or with ``wall_clock`` what the clock says, whether records come or not. The function is
        called with the time that has come, a multiple of ``every_ms``, and once where several have passed. In stream
        time that is before the record that brings it, and is kept under the function's name in the task's state: do not
        change it. By the clock, what falls into a handover is left out.

        Raises:
            TypeError: when the function is not ``async``, or takes other arguments.
            ValueError: when ``every_ms`` is no whole number from 1 on, or the name was there before.
        """
        check_count("every_ms", every_ms)

        def add(function: Punctuation) -> Punctuation:
            check_process(function, "at_ms", "context")
            steps, name = self._steps[subtopology], getattr(function, "__name__", "punctuate")
            if name in steps.every or name in steps.by_clock:
                raise ValueError(f"two functions {name} are called by time: give one of them another name")
            (steps.by_clock if wall_clock else steps.every)[name] = every_ms, function
            return function

        return add

    def subtopologies(self) -> dict[str, Subtopology]:
        """Return what the job does, as a `KafkaRuntime` takes it.

        Raises:
            ValueError: when parts of it would disturb one another, or there are none.
        """
        if not self._steps:
            raise ValueError("the job does nothing: give a topic to a function with @app.process(topic)")
        unread = {table.subtopology for table in self._tables.values()} | self._steps.keys()
        unread -= {name for name, steps in self._steps.items() if steps.sources}
        if unread:
            raise ValueError(f"subtopology {', '.join(sorted(unread))} has tables or timers, and reads no topic")
        parts = {
            name: Subtopology(
                sources=steps.sources,
                process=steps.process,
                changelogs=self._changelogs(name, steps),
                outputs=tuple(topic for topic in self._topics if topic not in steps.sources),
                tables=tuple(steps.tables),
                by_clock=steps.by_clock,
            )
            for name, steps in sorted(self._steps.items())
        }
        dead = self.options.dead_letter_topic
        check_job(parts, dead)
        if dead and dead not in self._topics:
            raise ValueError(
                f"dead_letter_topic {dead} is no topic of the job: name it with app.topic, so that it is made"
            )
        return parts

    def _changelogs(self, subtopology: str, steps: Steps) -> dict[str, str]:
        found = {each.name: each.changelog for each in self._tables.values() if each.subtopology == subtopology}
        if steps.has_time:
            found[TIMERS] = f"{self.group}-{subtopology}-timers-changelog"
        return found

    def test(self) -> AppTest:
        """Return the job with its topics in memory, for tests without a broker.

        Raises:
            ValueError: when parts of it would disturb one another, or there are none.
        """
        return AppTest(self.subtopologies(), self.options)

    # --- looking at it from outside ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[AppProducer]:
        """Yield what writes to the job's topics, as others do; those that are missing are made first, as by `run`.

        Raises:
            ValueError: when no cluster is named, or the job cannot be meant.
            MissingPartition: when a topic is missing, or has other partitions than the job needs.
            KafkaError: when the cluster does not answer.
        """
        connection = self._cluster()
        await self._have_topics(self.subtopologies(), connection)
        async with producing(connection) as producer:
            yield AppProducer(producer, self._topics)

    async def records(self, topic: Topic[K, V]) -> list[Record[K, V]]:
        """Return the committed records that a topic has now, those of each partition in their order.

        Raises:
            ValueError: when no cluster is named, it is no topic of the job, or a record is not what the topic says.
            MissingPartition: when the topic does not exist.
            KafkaError: when the cluster does not answer.
        """
        check_topic(topic, self._topics)
        return await records_of(self._cluster(), topic)

    def _cluster(self) -> KafkaConnection:
        connection = self._connection or KafkaConnection.from_environment()
        if connection is None:
            raise ValueError("no cluster is named: set BATONPASS_KAFKA_BOOTSTRAP, or give App a connection")
        return connection

    # --- running it -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until SIGTERM or Ctrl-C; see `running`.

        Raises:
            RuntimeError: where an event loop runs already, as in a notebook; `run_async` may be awaited there.
        """
        loop = None
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        if loop is not None:
            raise RuntimeError("an event loop runs here already, as in a notebook: await app.run_async()")
        asyncio.run(self.run_async())

    async def run_async(self) -> None:
        """Work until SIGTERM or Ctrl-C; see `running`.

        Raises:
            ValueError: outside the main thread, too.
            SystemExit: when a signal ended the start; the code is 128 and the signal's number.
        """
        async with AsyncExitStack() as stack:
            starting = asyncio.ensure_future(stack.enter_async_context(self.running()))
            with ended_by_signals(partial(asyncio.get_running_loop().call_soon_threadsafe, starting.cancel)) as came:
                try:
                    member = await starting
                except asyncio.CancelledError:
                    if not came:
                        raise
                    return
            await member.run()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Member]:
        """Check or make the topics, declare the group, join, and work until the end of the block, in any thread.

        Signals are left to the program around it: this is for a web application's lifespan, for instance. A member that
        was told to stop for good ends sooner: ``await member.ended()`` returns why.

        Raises:
            ValueError: when something is missing in the arguments and in the environment, or the job cannot be meant.
            MissingPartition: when a topic is missing, or has other partitions than the job needs.
            NotDeclared: when the group has another topology.
            ConnectionError: when no coordinator answers.
            KafkaError: when the cluster does not answer.
            JoinRefused: when the coordinator refuses this member.
            OSError: when the port for metrics is taken, or another worker works in the folder for the state.
        """
        parts = self.subtopologies()
        url = self._url or variable("BATONPASS_URL")
        if url is None:
            raise ValueError("no coordinator is named: set BATONPASS_URL, or give App a url")
        connection = self._cluster()
        given = MemberOptions(on_lease_lost=OnLeaseLost.CONTINUE)
        if token := variable("BATONPASS_TOKEN"):
            given["token"] = token
        if instance_id := variable("BATONPASS_INSTANCE"):
            given["instance_id"] = instance_id
        given |= self._member
        folder = Path(self._folder or variable("BATONPASS_STATE") or "state") / _folder_name(
            given.get("instance_id") or self.group
        )
        async with AsyncExitStack() as stack:
            try:
                ids = stack.enter_context(sole_user_of(folder))
            except OSError as error:
                error.add_note("BATONPASS_INSTANCE gives each worker a name and a folder, BATONPASS_STATE says where")
                if self._open_store is not in_memory and any(part.changelogs for part in parts.values()):
                    raise
            else:
                given = MemberOptions(replaces=ids.last, new_member_id=ids.new) | given
            counts = await self._have_topics(parts, connection)
            topology = declared(parts, counts)
            given["topology_epoch"] = await declare([url], self.group, topology, self.config, Options(**given))
            runtime = KafkaRuntime(
                connection, self.group, parts, folder=folder, open_store=self._open_store, options=self.options
            )
            given["on_disk"] = await runtime.on_disk()
            if (port := self._metrics_port or variable("BATONPASS_METRICS_PORT")) is not None:
                # Not in that of the process, where another job's metrics would have the same names.
                registry = CollectorRegistry(auto_describe=True)
                registry.register(REGISTRY)
                registry.register(runtime.metrics)
                try:
                    stack.enter_context(serve(int(port), registry))
                except (OSError, ValueError, OverflowError) as error:
                    error.add_note(f"{port} is to be the port for metrics: each worker on a host has its own")
                    raise
            yield await stack.enter_async_context(Member(url, self.group, runtime, **given))

    async def _have_topics(self, parts: Mapping[str, Subtopology], connection: KafkaConnection) -> dict[str, int]:
        """Return how many partitions each topic has, once those that the job makes are there."""
        changelogs = {topic for part in parts.values() for topic in part.changelog_topics}
        try:
            async with administering(connection.client_options()) as admin:
                known = await partition_counts(admin._client, changelogs | self._topics.keys())  # noqa: SLF001 - makes none
                counts = self._wanted(parts, known)
                if missing := {topic: counts[topic] for topic in sorted(counts.keys() - known.keys())}:
                    await make(admin, missing, {one: {"cleanup.policy": "compact"} for one in changelogs})
        except KafkaConnectionError as error:
            raise KafkaConnectionError(await in_words(error, connection)) from error
        return counts

    def _wanted(self, parts: Mapping[str, Subtopology], known: Mapping[str, int]) -> dict[str, int]:
        """Return how many partitions each topic has, of which ``known`` are there, or is to have.

        Raises:
            MissingPartition: when one is missing and not to be made, or has other partitions than the job needs.
        """
        wanted = {topic: count for topic, count in self._topics.items() if count is not None}
        for topic in sorted(topic for topic, count in wanted.items() if known.get(topic, count) != count):
            log.warning(
                "topic %s has %s partitions, and app.topic says %s: it stays as it is",
                topic, known[topic], wanted[topic],
            )  # fmt: skip
        counts = wanted | dict(known)
        if missing := sorted(self._topics.keys() - counts.keys()):
            raise MissingPartition(
                f"topic {' and '.join(missing)} does not exist, or may not be read: make it first "
                "(kafka-topics.sh --create), or say with how many partitions app.topic makes it"
            )
        for part in parts.values():
            count = max(counts[topic] for topic in part.sources)
            counts = dict.fromkeys(part.changelog_topics, count) | counts
            check_partitions(part, {topic: range(number) for topic, number in counts.items()})
        return counts


def _check_serdes(of: str, *serdes: object) -> None:
    for serde in serdes:
        if not isinstance(serde, Serde):
            raise TypeError(
                f"{of} has {serde!r} where a serde belongs: TEXT, INT, BYTES, JSON, json_of(...) or Serde(...)"
            )


def _folder_name(name: str) -> str:
    if name == ".." or Path(name).name != name:
        raise ValueError(f"{name!r} names this worker and its folder: it has no slash, and is not . or ..")
    return name


def declared(parts: Mapping[str, Subtopology], counts: Mapping[str, int]) -> list[dict[str, object]]:
    """Return the subtopologies of a job as its group is declared with them; ``counts`` are partitions by topic."""
    return [
        {
            "id": name,
            "partitions": max(counts[topic] for topic in part.sources),
            "source_topics": sorted(part.sources),
            "changelog_topics": sorted(part.changelog_topics),
        }
        for name, part in parts.items()
    ]
