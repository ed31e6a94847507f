"""The composition root: builds every object of the service once, starts and stops it in order, and serves."""

import asyncio
import contextlib
import gc
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Final

from batonpass import logs
from batonpass.api.access import Gate
from batonpass.api.admission import Admission, AdmissionPolicy
from batonpass.api.app import create_app
from batonpass.api.calls import OPEN
from batonpass.api.events import event_body
from batonpass.api.forward import Forwarder
from batonpass.api.health import Health, Readiness
from batonpass.api.limits import Limits, Rate
from batonpass.api.service import Service
from batonpass.background import Background
from batonpass.codec.code import code_version
from batonpass.connections import BoundedServer, ConnectionLimits, bounded
from batonpass.core.arrivals.answers import answer_to_poll
from batonpass.core.decide import decide
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId
from batonpass.core.state.policy import Policy
from batonpass.http_clients import tls_context
from batonpass.invariants import check_step
from batonpass.metrics.audits import AuditGauges
from batonpass.metrics.counts import Counts
from batonpass.metrics.groups import GroupGauges, Scrape
from batonpass.postgres.fleet import Registration
from batonpass.postgres.store import PostgresStore
from batonpass.postgres.upkeep import Retention
from batonpass.runtime.chores import SNAPSHOT_EVERY_RECORDS, Chores
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.observers import CommitWatch, Observers
from batonpass.runtime.places import Places
from batonpass.runtime.ports import NotOwner, Observer, Ports, Store
from batonpass.runtime.pulse import Pulse
from batonpass.runtime.solver_process import SolverProcess
from batonpass.runtime.unheard import Unheard
from batonpass.settings import unread
from batonpass.sockets import advertised_url_of, room_for, url_of

if TYPE_CHECKING:
    from batonpass.kafka.events import EventPublisher
    from batonpass.kafka.exchange import Exchange
    from batonpass.kafka.watch import ClusterWatch
    from batonpass.settings import Settings

LEAVE_S: Final = 1.0
"""How long a coordinator that listens no more waits for the answers under way before others get its groups."""

HURRIED_CLOSE_S: Final = 5.0
"""How long a coordinator that was interrupted twice may take to give up its groups and connections."""

LOAD_WAIT_S: Final = 2.0
"""How long the server waits for the groups to be read before it listens. Then reading goes on, and /readyz says so."""

LOAD_AGAIN_S: Final = 1.0

EVENTS_OWNER: Final = GroupId("batonpass.events")
"""The coordinator that would own a group of this name passes the events on, so that exactly one does."""

SWITCH_EVERY_S: Final = 0.001
"""How long the event loop waits for a thread that decides on a large group to release the interpreter. By default it
would be 5 ms, each time that the loop has waited for the network (decision 0044)."""

THREADS_MAX: Final = 128
"""How much may be done beside the event loop at once. Decisions on large groups wait there for the solver, and nobody
is to wait for them: by default it would be four more than there are processors."""

COLLECT_AFTER: Final = (5_000, 1, 4_000)
"""Thresholds of the garbage collector: how many more objects are made than freed before it collects the youngest, and
how often it collects each generation before the next one. By default 700, 10 and 10. A full collection takes 0.4 s
beside a group of 100,000 tasks, so it is to be rare; one of the middle generation, with 15,000 objects, a few. Most
young objects are freed before so many were made that they are looked at."""


@dataclass(slots=True)
class Process:
    """Everything that runs in one coordinator process."""

    settings: "Settings"
    store: Store
    coordinator: Coordinator
    service: Service
    policy: AdmissionPolicy
    health: Health
    counts: Counts
    observer: Observers
    pulse: Pulse
    chores: Chores
    audits: AuditGauges
    unheard: Unheard
    solvers: tuple[SolverProcess, ...]
    kafka: "Sequence[EventPublisher | Exchange | ClusterWatch]"
    _leaving: asyncio.Task[None] | None = None

    def app(self) -> Admission:
        """Return the application, which starts and stops this process with itself."""
        return create_app(self.service, self.policy, self.health, running=self.running)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everything in order; at the end stop it in order, within the time that the settings give."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS_MAX))
        background = Background()
        background.begin("pulse", self.pulse.run)
        background.begin("loop lag", self.counts.watch_loop)
        background.begin("chores", self.chores.run)
        background.begin("audits", self.audits.run)
        background.begin("unheard", self.unheard.run)
        for part in self.kafka:
            background.begin(type(part).__name__, part.run)
        await self.store.start(self._ownership_changed)
        loading = background.begin("load", self._load)
        await asyncio.wait([loading], timeout=LOAD_WAIT_S)
        try:
            yield
        finally:
            self.stop_waits()
            loading.cancel()
            await self.leave()
            await background.end()
            await self.store.stop()
            await self.policy.forwarder.close()
            for solver in self.solvers:
                await asyncio.to_thread(solver.close)

    def leave(self) -> asyncio.Task[None]:
        """Have what was accepted carried out and every group given up. However often it is called, that is done once.

        It does not wait for callers, of which one may be slow, or gone without a word.
        """
        self._leaving = self._leaving or asyncio.create_task(self._leave(), name="leave")
        return self._leaving

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(self.settings.shutdown_s):
                await self.coordinator.stop()
        except TimeoutError:
            self.observer.store_failed(GroupId(""), "what was accepted could not be carried out before the end")
        await self.store.leave()

    def stop_waits(self) -> None:
        """End everything that waits for news: long-polls, drains, event streams."""
        self.health.readiness.is_stopping = True
        self.coordinator.end_waits()
        self.policy.forwarder.end_waits()

    async def _ownership_changed(self) -> None:
        self.policy.forwarder.end_calls_beside(self.store.ownership.others())
        await self.coordinator.ownership_changed()

    async def _load(self) -> None:
        """Read the groups; while the store is unavailable, try again."""
        while True:
            try:
                await self.coordinator.start()
            except NotOwner:
                # The last owner has not released the group yet: that is no failure of the store.
                await asyncio.sleep(LOAD_AGAIN_S)
            except ProtocolError as error:
                self.observer.store_failed(GroupId(""), error.detail)
                await asyncio.sleep(LOAD_AGAIN_S)
            else:
                return


def build(settings: "Settings", store: Store) -> Process:
    """Return everything of one process that keeps its groups in a store; nothing runs yet."""
    log, counts = logs.LoggingObserver(), Counts()
    if isinstance(store, PostgresStore):
        store.ownership.noted = log.fleet
    watch = CommitWatch()
    observer = Observers(log, counts, watch)
    pulse = Pulse(observer.stalled)
    # No decision waits for a dry run.
    solver, of_dry_runs = SolverProcess(), SolverProcess()
    ports = Ports(
        log=store.log,
        archive=store.archive,
        ownership=store.ownership,
        clock=store.clock,
        observer=observer,
        decide=partial(decide, solver=solver.solve),
        evolve=evolve,
        poll=answer_to_poll,
        check_step=check_step,
        stalls=lambda: pulse.stalls() + store.ownership.lapses,
        policy=_policy(settings),
        code=code_version(),
    )
    coordinator = Coordinator(
        ports,
        requests_waiting_max=settings.requests_waiting_max,
        groups_max=settings.groups_max,
        streams_max=settings.streams_max,
        streams_each_max=settings.streams_each_max,
        tasks_total_max=settings.tasks_total_max,
    )
    if settings.auth == "off":
        log.access_is_off()
    gauges = GroupGauges(
        coordinator.shown_groups, coordinator.now_ms, ports.policy, members_max=settings.metrics_members_max
    )
    policy = AdmissionPolicy(
        gate=None if settings.auth == "off" else _gate(settings, store, coordinator.now_ms),
        ownership=store.ownership,
        forwarder=Forwarder(settings.tls_to_others(), answer_s=settings.forward_answer_s),
        observer=observer,
        limits=_limits(settings),
        open_paths=frozenset(path for name in settings.open_paths for path in OPEN[name]),
    )
    health = Health(
        readiness=Readiness(
            lambda: "" if coordinator.is_ready else "the groups are being read from the record log",
            watch.away,
            store.ownership.not_ready,
        ),
        loop_age_ms=pulse.age_ms,
        loop_age_max_ms=settings.loop_age_max_ms,
        scrape=Scrape(counts, gauges),
    )
    service = Service(coordinator, store.audits, store.tokens, of_dry_runs.solve)
    chores = Chores(coordinator, observer, snapshot_every=SNAPSHOT_EVERY_RECORDS)
    unheard = Unheard(coordinator, told=log.kafka_not_listened_to)
    kafka = (
        [] if settings.kafka_bootstrap is None else _kafka(settings, coordinator, store, log, counts, unheard=unheard)
    )
    for part in kafka:
        if isinstance(part, Observer):
            observer.add(part)
    audits = AuditGauges(store.audits, counts.registry, lambda why: log.store_failed(GroupId(""), why))
    solvers = (solver, of_dry_runs)
    process = Process(
        settings, store, coordinator, service, policy, health, counts, observer, pulse, chores, audits, unheard,
        solvers, kafka,
    )  # fmt: skip
    _show(process)
    return process


def store_of(settings: "Settings", url: str) -> PostgresStore:
    """Return the store that the settings name, for a coordinator that others reach under ``url``."""
    assert settings.database_url is not None  # noqa: S101 - no command serves without one
    return PostgresStore(
        settings.database_url.get_secret_value(),
        Registration(url, code_version(), settings.lease_ms, settings.lease_renewal_ms),
        connections_max=settings.database_connections_max,
        alone=settings.sole_coordinator,
        retention=Retention(**{kind.name: getattr(settings, f"keep_{kind.name}_days") for kind in fields(Retention)}),
    )


def _kafka(
    settings: "Settings",
    coordinator: Coordinator,
    store: Store,
    log: logs.LoggingObserver,
    counts: Counts,
    *,
    unheard: Unheard,
) -> "list[EventPublisher | Exchange | ClusterWatch]":
    """Return what reads ends and partition counts, passes events on and, if the settings say so, carries the protocol.

    Each runs by itself. Kafka's libraries are imported here and no sooner.
    """
    from batonpass.kafka.events import EventPublisher  # noqa: PLC0415 - Kafka is optional
    from batonpass.kafka.exchange import Exchange  # noqa: PLC0415 - the same
    from batonpass.kafka.topics import TopicReader  # noqa: PLC0415 - the same
    from batonpass.kafka.watch import ClusterWatch  # noqa: PLC0415 - the same
    from batonpass.worker.kafka.connection import KafkaConnection  # noqa: PLC0415 - the same

    connection = KafkaConnection(
        bootstrap_servers=settings.kafka_bootstrap or "", client_id=settings.kafka_client_id, **settings.kafka_login()
    )
    holds, prefix = store.ownership.holds, settings.kafka_topic_prefix
    reader = TopicReader(connection)
    watch = ClusterWatch(
        coordinator,
        reader,
        interval_ms=settings.kafka_interval_ms,
        away=log.kafka_away,
        held_up=log.changelogs_held_up,
    )
    counts.add_gauge("kafka_reachable", "1 while Kafka can be asked for ends and partition counts.", watch.reachable)
    parts: list[EventPublisher | Exchange | ClusterWatch] = [watch]
    if settings.kafka_heartbeats:
        exchange = Exchange(
            coordinator,
            connection,
            ownership=store.ownership,
            heard=unheard.heard,
            refused=counts.refused_over_kafka,
            prefix=prefix,
        )
        parts.append(exchange)
        unheard.line = exchange
    if store.outbox is not None:
        mine = partial(holds, EVENTS_OWNER)
        parts.append(EventPublisher(store.outbox, connection, body=event_body, prefix=prefix, mine=mine))
    return parts


def _show(process: Process) -> None:
    """Add gauges for numbers that other objects keep."""
    counts, store, polls = process.counts, process.store, process.policy.limits.polls
    counts.add_gauge("polls_parked", "Calls that wait for news, here or passed on.", lambda: polls.taken)
    counts.add_gauge("streams_open", "Event streams that are open.", lambda: len(process.coordinator.feed))
    counts.add_gauge("ready", "1 while /readyz says so.", lambda: not process.health.readiness.reasons())
    meaning = "How long this coordinator's lease lasts unrenewed."
    counts.add_gauge("lease_valid_seconds", meaning, store.ownership.lease_left_s)
    if isinstance(store, PostgresStore):
        meaning = "By how much the database's clock is ahead of this machine's."
        counts.add_gauge("database_clock_ahead_seconds", meaning, lambda: store.clock.ahead_ms() / 1_000)
    meaning = "Groups whose members may speak over Kafka, while this coordinator does not listen to it."
    counts.add_gauge("groups_not_heard_over_kafka", meaning, lambda: len(process.unheard.groups))


def _policy(settings: "Settings") -> Policy:
    return Policy(
        max_members=settings.members_max,
        max_tasks=settings.tasks_max,
        max_tasks_per_heartbeat=settings.tasks_per_heartbeat_max,
        max_unnamed_changelogs=settings.unnamed_changelogs_max,
        max_unassigned_reported=settings.unassigned_reported_max,
        coordinator_lease_ms=settings.lease_ms,
        check_laws=settings.check_laws,
    )


def _limits(settings: "Settings") -> Limits:
    return Limits(
        member=Rate(settings.member_requests_per_s, settings.member_requests_burst),
        urgent=Rate(settings.urgent_heartbeats_per_s, settings.urgent_heartbeats_per_s),
        operator=Rate(settings.operator_requests_per_s, settings.operator_requests_burst),
        polls=Places(settings.polls_max, "calls that wait for news", each=settings.polls_each_max),
        reads=Places(settings.reads_max, "reads of large groups", each=settings.reads_each_max),
        dry_runs=Places(settings.reads_max, "dry runs", each=settings.reads_each_max),
        history=Places(settings.reads_max, "reads of the history", each=settings.reads_each_max),
        bodies=Places(
            max(settings.bodies_bytes_max, settings.body_bytes_max),
            "bytes of bodies under way",
            each=max(settings.bodies_bytes_each_max, settings.body_bytes_max),
        ),
        body_bytes_max=settings.body_bytes_max,
    )


def _gate(settings: "Settings", store: Store, now_ms: Callable[[], int]) -> Gate:
    return Gate(
        store.tokens,
        admin_secret=settings.admin_token.get_secret_value() if settings.admin_token else None,
        cache_s=settings.token_cache_s,
        now_ms=now_ms,
        lookups_each_address=settings.token_lookups_each_address,
    )


def spare_the_collector() -> None:
    """Exempt all present objects from garbage collection, and collect less often. Call it once a process has started.

    A full collection looks at every object, those of all modules included, and no request is answered until it is done.
    The values of the core have no reference cycles, and are freed without it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


class Server(BoundedServer):
    """A server that ends long-polls when it is told to stop, instead of waiting.

    ``stopping`` is called when it was told to stop, and awaited before it stops answering.
    """

    def __init__(
        self,
        process: Process,
        *,
        listening: Callable[[], None],
        stopping: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        settings, connections = process.settings, process.policy.limits.connections
        most = connections.most = room_for(settings.connections_max)
        if most < settings.connections_max:
            logs.LoggingObserver().connections_are_fewer(settings.connections_max, most)
        limits = ConnectionLimits(
            settings.request_head_bytes_max, settings.requests_ahead_max, settings.request_arrival_s, most
        )
        tls = None
        if settings.tls_certfile is not None:
            tls = tls_context(settings.tls_client_ca, settings.tls_certfile, settings.tls_keyfile, of_server=True)
        super().__init__(
            process.app(),
            bounded(limits, process.counts.connection_cut),
            listening,
            stop_s=settings.shutdown_s,
            unread_s=settings.answer_unread_s,
            tls=tls,
        )
        connections.open = lambda: len(self.server_state.connections)
        process.counts.add_gauge("connections_open", "Connections that are open.", connections.open)
        process.counts.add_gauge("connections_max", "How many may be open at once.", lambda: most)
        self._process = process
        self._stopping = stopping

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Report not ready, go on serving for the delay, then stop listening, end what is under way, and close.

        Others get its groups although a caller is still being answered. A second interrupt skips the waits, and still
        closes the application: they get them at once.
        """
        self._process.health.readiness.is_stopping = True
        if self._stopping is not None and not self.force_exit:
            await self._stopping()
        if not self.force_exit:
            await asyncio.sleep(self._process.settings.shutdown_delay_s)
        self._process.stop_waits()
        leaving = asyncio.get_running_loop().call_later(LEAVE_S, self._process.leave)
        await super().shutdown(sockets)
        leaving.cancel()
        if self.force_exit:  # Uvicorn itself does not shut the application down then.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.lifespan.shutdown(), HURRIED_CLOSE_S)


def serve(
    settings: "Settings",
    *,
    listeners: list[socket.socket],
    listening: Callable[[str], None],
    stopping: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve on sockets that are bound, until interrupted; ``listening`` is called with the base URL of the first.

    ``stopping`` is awaited when it was interrupted, while it still answers.
    """
    logs.configure(settings.log_format, settings.log_level)
    if names := unread(os.environ):
        logs.LoggingObserver().variables_unread(names)
    sys.setswitchinterval(SWITCH_EVERY_S)
    url = url_of(listeners[0], is_tls=settings.is_tls)
    advertised = str(settings.advertised_url or advertised_url_of(listeners[0], is_tls=settings.is_tls)).rstrip("/")

    def begun() -> None:
        spare_the_collector()
        listening(url)

    server = Server(build(settings, store_of(settings, advertised)), listening=begun, stopping=stopping)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=listeners))
