"""Counts what happens: decisions, commits, handovers, calls, and what went wrong."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from batonpass import __version__
from batonpass.core.decide import Decision
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import Input
from batonpass.invariants import Violation
from batonpass.runtime.events import Event, EventType
from batonpass.runtime.ports import Commit, Observer

QUICK: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
CALLS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5)
GAPS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1_800.0)
LAGS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
LOOP_EVERY_S: Final = 0.1
GROUPS_AT_ONCE: Final = 50
"""For how many groups series are begun or removed until others have their turn: that takes about 10 ms."""

ALIKE_MAX: Final = 1_000
"""How many gaps of one summarising event are counted one by one; a commit must not wait for more."""

HANDOVERS: Final = {
    (EventType.HANDOVER_DONE, True): "warm",
    (EventType.HANDOVER_DONE, False): "cold",
    (EventType.TAKEOVER_DONE, True): "failover",
    (EventType.TAKEOVER_DONE, False): "cold",
    (EventType.TASK_RECOVERED, True): "recovered",
    (EventType.TASK_RECOVERED, False): "recovered",
}
"""The kind of a task's next run, by the type of its event and whether the copy was ready."""

UNTIMED_CALLS: Final = frozenset(
    {
        ("GET", "/v1/groups/{group}/members/{member}/assignment"),
        ("POST", "/v1/groups/{group}/members/{member}/drain"),
        ("GET", "/v1/groups/{group}/events"),
        ("GET", "/v1/events"),
    }
)
"""Calls that may stay open until there is news; their duration is not measured."""


class Counts(Observer):
    """The counters and histograms of one process. It observes the runtime, and counts the calls."""

    def __init__(self) -> None:
        # The creation times of series say nothing here, and would nearly double their number.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._count_decisions()
        self._count_commits()
        self._count_calls()
        Info("batonpass_build", "The program that runs.", registry=self.registry).info({"version": __version__})
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._begun: set[str] = set()
        self._of_groups: dict[str, dict[tuple[Any, tuple[str, ...]], Any]] = {}

    def _count_decisions(self) -> None:
        # Finding a series by its labels takes the library longer than counting in it, so ``cache`` remembers the series
        # in which every call is counted.
        decisions = self._counter("decisions", "Decisions taken, by input and outcome.", "input", "outcome")
        self._decisions = cache(decisions.labels)
        seconds = self._histogram("decision_seconds", "How long deciding took.", QUICK, "outcome")
        self._decision_seconds = cache(seconds.labels)
        self._generations = self._counter("generations", "Target assignments committed.", "group")
        self._moves = self._counter(
            "moves", "Moves of stateful tasks, each counted when a target first asks for it.", "group"
        )
        self._bound = self._counter(
            "moves_lower_bound", "The fewest moves of any balanced target, counted as moves are.", "group"
        )
        meaning = "Target load per capacity, highest less lowest member."
        self._imbalance = Gauge("batonpass_group_imbalance", meaning, ("group",), registry=self.registry)
        self._laws = self._counter("laws_broken", "Decisions dropped because they would break a law.", "law")
        self._defects = self._counter("defects", "Inputs and calls on which the program failed.")

    def _count_commits(self) -> None:
        kind = ("group", "kind")
        self._events = self._counter("events", "What was told in the event stream.", "group", "type")
        self._handovers = self._counter("handovers", "Tasks that run again, on another or the same member.", *kind)
        self._gap = self._histogram(
            "handover_gap_seconds", "How long nobody ran a task until it ran again.", GAPS, *kind
        )
        self._probes = self._counter("probes", "Probing rebalances that were due.", "group", "outcome")
        self._append_seconds = self._histogram("append_seconds", "How long a commit took.", QUICK)
        self._records = self._counter("records", "Records committed.")
        self._store_errors = self._counter("store_errors", "Appends and reads that did not go through.")

    def _count_calls(self) -> None:
        self._requests = cache(self._counter("requests", "Calls answered.", "method", "path", "status").labels)
        self._request_seconds = cache(self._histogram("request_seconds", "How long calls took.", CALLS, "path").labels)
        self._refused = self._counter("requests_refused", "Calls refused, by the type of the problem.", "reason")
        meaning = "Connections closed for exceeding a limit, by which."
        self._cut = self._counter("connections_cut", meaning, "reason")
        meaning = "What members were refused over Kafka, by the type of the problem."
        self._kafka_refused = self._counter("kafka_refused", meaning, "reason")
        self._stalls = self._counter("stalls", "Times that the process stood still for long.")
        self._stalled_seconds = self._counter("stalled_seconds", "How long it stood still then.")
        self._loop_lag = self._histogram("loop_lag_seconds", "By how much the event loop was late for a timer.", LAGS)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"batonpass_{name}", meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"batonpass_{name}", meaning, labels, registry=self.registry, buckets=buckets)

    def decided(self, inputs: Sequence[Input], decision: Decision, decide_ms: float) -> None:
        outcomes = [
            "wrote" if decision.records else "refused" if isinstance(reply, ProtocolError) else "nothing"
            for reply in decision.replies
        ]
        self._decision_seconds(outcomes[0]).observe(decide_ms / 1_000)
        for item, outcome in zip(inputs, outcomes, strict=True):
            self._decisions(type(item).__name__, outcome).inc()

    def committed(self, commit: Commit, append_ms: float) -> None:
        self._append_seconds.observe(append_ms / 1_000)
        self._records.inc(len(commit.records))
        group, history = commit.group_id, commit.history
        made = history.generation
        if made is not None:
            self._of(self._generations, group).inc()
            self._of(self._imbalance, group).set(made.score)
            self._of(self._moves, group).inc(history.new_moves)
            self._of(self._bound, group).inc(max(0, made.lower_bound - (made.moves - history.new_moves)))
        for event in history.events:
            self._told(group, event)

    def _told(self, group: str, event: Event) -> None:
        # More than a hundred alike events are sent as one event, which says how many there are.
        tasks = event.body.get("tasks", event.body.get("members")) if event.task is None else 1
        count = tasks if isinstance(tasks, int) and "sample" in event.body else 1
        self._of(self._events, group, event.type).inc(count)
        if event.type == EventType.PROBED:
            self._of(self._probes, group, "changed" if event.body.get("changed") else "futile").inc()
        kind = HANDOVERS.get((EventType(event.type), bool(event.body.get("warm"))))
        if kind is None:
            return
        self._of(self._handovers, group, kind).inc(count)
        # Of an owner that fell silent the longest that it can have been: nothing that was down is counted as short.
        bounds = (event.body.get("gap_at_most_ms"), event.body.get("gap_ms"))
        gap_ms = next((gap for gap in bounds if isinstance(gap, int)), None)
        if gap_ms is not None:
            for _ in range(min(count, ALIKE_MAX)):
                self._of(self._gap, group, kind).observe(gap_ms / 1_000)

    def store_failed(self, group_id: GroupId, reason: str) -> None:  # noqa: ARG002 - the log says which and why
        self._store_errors.inc()

    def law_broken(self, group_id: GroupId, item: Input, violations: Sequence[Violation]) -> None:  # noqa: ARG002
        """Count a decision that was dropped, once for each law."""
        for law in sorted({violation.law for violation in violations}):
            self._laws.labels(law).inc()

    def defect(self, group_id: GroupId, item: Input, error: Exception) -> None:  # noqa: ARG002 - the log says which
        self._defects.inc()

    def failed(self, error: BaseException, call: str, cause: str) -> None:  # noqa: ARG002 - the log says which
        self._defects.inc()

    def stalled(self, gap_ms: float) -> None:
        self._stalls.inc()
        self._stalled_seconds.inc(gap_ms / 1_000)

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        self._requests(method, path, status).inc()
        if (method, path) not in UNTIMED_CALLS:
            self._request_seconds(path).observe(seconds)

    def refused(self, error: ProtocolError, call: str, who: str, cause: str) -> None:  # noqa: ARG002 - the log says more
        self._refused.labels(error.type).inc()

    def refused_over_kafka(self, reason: str) -> None:
        self._kafka_refused.labels(reason).inc()

    def connection_cut(self, reason: str) -> None:
        self._cut.labels(reason).inc()

    def add_gauge(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """Show a value that is kept elsewhere, as it is at the scrape."""
        Gauge(f"batonpass_{name}", meaning, registry=self.registry).set_function(value)

    async def keep_to(self, groups: set[str]) -> None:
        """Remove every series of groups that are gone, and begin the series of handovers for new groups.

        If a series began with the first handover, a rate would miss it: a rate counts only what is added to a series.
        """
        gone = [name for name in self._of_groups if name not in groups]
        for number, group in enumerate([*gone, *(groups - self._begun)]):
            if number % GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if group in groups:
                for kind in sorted(set(HANDOVERS.values())):
                    self._of(self._handovers, group, kind)
                    self._of(self._gap, group, kind)
            else:
                for metric, labels in self._of_groups.pop(group):
                    metric.remove(group, *labels)
        self._begun = set(groups)

    def _of(self, metric: Any, group: str, *labels: str) -> Any:
        """Return the series of a group, and remember to remove it with the group."""
        series = self._of_groups.setdefault(group, {})
        found = series.get((metric, labels))
        if found is None:
            found = series[metric, labels] = metric.labels(group, *labels)
        return found

    async def watch_loop(self) -> None:
        """Measure how late the event loop is, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_EVERY_S
            await asyncio.sleep(LOOP_EVERY_S)
            self._loop_lag.observe(max(0.0, loop.time() - due))
