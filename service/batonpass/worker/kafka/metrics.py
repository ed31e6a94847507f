"""What a worker counts, for Prometheus: all of it by subtopology, so that a job with many tasks has few series.

    from prometheus_client import REGISTRY, start_http_server

    REGISTRY.register(runtime.metrics)
    start_http_server(9100)

`App` does that by itself where it is given a ``metrics_port``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(slots=True)
class Counts:
    """What has happened in the tasks of a subtopology since the process started; ``errors`` by what became of them."""

    records: int = 0
    commits: int = 0
    restores: int = 0
    restored_records: int = 0
    restore_seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Levels:
    """How it is now with the tasks of a subtopology on this worker. ``tasks`` are by role."""

    input_lag: int = 0
    state_bytes: int = 0
    tasks: Counter[str] = field(default_factory=Counter)


_COUNTED = {
    "records": "Records processed, in transactions that were committed.",
    "commits": "Transactions committed.",
    "restores": "Restores of actives that are done.",
    "restored_records": "Records read from changelogs by actives before they ran.",
    "restore_seconds": "Seconds for which actives restored.",
}


class WorkerMetrics(Collector):
    """The metrics of one `KafkaRuntime`. State is measured when they are asked for, in the thread that asks."""

    def __init__(self, group: str, counts: Mapping[str, Counts], levels: Callable[[], Mapping[str, Levels]]) -> None:
        self._group = group
        self._counts = counts
        self._levels = levels

    def collect(self) -> Iterable[Metric]:
        labels = ["group", "subtopology"]
        for name, meaning in _COUNTED.items():
            counter = CounterMetricFamily(f"batonpass_worker_{name}", meaning, labels=labels)
            for part, counts in self._counts.items():
                counter.add_metric([self._group, part], getattr(counts, name))
            yield counter
        errors = CounterMetricFamily(
            "batonpass_worker_errors",
            "Records that could not be processed, by what became of them.",
            labels=[*labels, "outcome"],
        )
        lag = GaugeMetricFamily("batonpass_worker_input_lag", "Records that wait for the actives here.", labels=labels)
        state = GaugeMetricFamily("batonpass_worker_state_bytes", "Bytes that state takes on disk here.", labels=labels)
        tasks = GaugeMetricFamily("batonpass_worker_tasks", "Tasks here, by role.", labels=[*labels, "role"])
        for part, level in self._levels().items():
            lag.add_metric([self._group, part], level.input_lag)
            state.add_metric([self._group, part], level.state_bytes)
            for role, count in level.tasks.items():
                tasks.add_metric([self._group, part, role], count)
            for outcome, count in self._counts[part].errors.items():
                errors.add_metric([self._group, part, outcome], count)
        yield from (errors, lag, state, tasks)
