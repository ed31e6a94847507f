"""What a worker counts, for Prometheus: all of it by subtopology, so that a job with many tasks has few series.

    from prometheus_client import REGISTRY, start_http_server

    REGISTRY.register(runtime.metrics)
    start_http_server(9100, addr="::")

`App` does so by itself where it is given a ``metrics_port`` (``serve``).
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from batonpass.sockets import EVERY_ADDRESS, bind

SILENT_S = 10.0
"""How long whoever asks for metrics may say or read nothing."""

CALLERS_MAX = 20
"""How many may ask at once. Each has a thread and a socket, which the worker needs for its stores and brokers."""


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


class _Call(WSGIRequestHandler):
    timeout = SILENT_S

    def log_message(self, *_: object) -> None:
        """Say nothing of each scrape."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers so many callers at once, and hangs up on others: prometheus_client's keeps all of them for ever."""

    daemon_threads = True
    request_queue_size = CALLERS_MAX

    def __init__(self, port: int, registry: CollectorRegistry) -> None:
        self._room = threading.Semaphore(CALLERS_MAX)
        super().__init__((EVERY_ADDRESS, port), _Call, bind_and_activate=False)
        self.socket.close()
        # That of the library is reached by IPv4 alone.
        self.socket = bind(EVERY_ADDRESS, port)
        self.server_name, self.server_port = "", port
        self.setup_environ()
        self.server_activate()
        self.set_app(make_wsgi_app(registry))

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of callers that are silent, or gone."""


@contextmanager
def serve(port: int, registry: CollectorRegistry) -> Iterator[None]:
    """Show metrics at a port of every address, in a thread, until the end of the block.

    Raises:
        OSError, OverflowError: when the port is taken, or none.
    """
    with _Server(port, registry) as server:
        thread = threading.Thread(target=server.serve_forever, name="batonpass metrics", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
