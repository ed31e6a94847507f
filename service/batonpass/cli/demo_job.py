"""What the workers of `batonpass up` do: running totals of customers, on a broker of their own, under a light load.

If no broker is available, simulated workers only pretend to have state.
"""

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import UpFolder
from batonpass.variables import variable

if TYPE_CHECKING:
    from batonpass.demo.job import Job
    from batonpass.kafka.broker import LocalBroker

DEMO: Final = "demo"
SIMULATED: Final = "batonpass.worker.simulated"
TOTALS: Final = "totals"
TASKS: Final = 12
CUSTOMERS: Final = 2_000
RATE: Final = 20
COMMIT_INTERVAL_MS: Final = 500
RESTORED_A_SECOND: Final = 2_000
"""Records a second that a simulated worker restores."""

KEEP_BYTES: Final = 32 * 1024 * 1024
RESTORE_BYTES_PER_S: Final = 80_000
HOT: Final = 40
"""How many times as many records the first task gets with `up --hot`."""
HOT_CONFIG: Final[dict[str, Any]] = {
    "balance_by": "shadow",
    "load_half_life_ms": 20_000,
    "load_patience_ms": 20_000,
    "load_cooldown_ms": 60_000,
}
MEASURED: Final = '{"config": {"balance_by": "measured"}}'
"""What a person declares once it was seen what would move."""
NEWCOMERS: Final = 30
"""Workers up to this number restore slowly, so that people can watch it; those that `up` itself starts do not."""


DECLARATION: Final[dict[str, Any]] = {
    "topology": {
        "epoch": 1,
        "subtopologies": [
            {"id": "orders", "partitions": 8, "source_topics": ["orders"], "changelog_topics": ["orders-by-customer"]},
            {"id": "stock", "partitions": 4, "source_topics": ["moves"], "changelog_topics": ["stock-by-shop"]},
        ],
    },
    "config": {
        "acceptable_recovery_lag": 200,
        "num_standby_replicas": 1,
        "heartbeat_interval_ms": 1_000,
        "session_timeout_ms": 12_000,
        "probing_rebalance_interval_ms": 10_000,
        "initial_rebalance_delay_ms": 1_500,
        "rejoin_grace_ms": 60_000,
    },
    "reason": "the built-in group of `batonpass up`",
}
"""Timeouts are short, so that their effects can be watched."""


class Program(NamedTuple):
    """A module to run as a separate process, its arguments, and additions to its environment."""

    module: str
    arguments: list[str]
    env: Mapping[str, str] = {}


class SimulatedWorkers:
    """Workers that speak the protocol and pretend to have state; ``DemoJob`` has the same members."""

    group = DEMO
    words = "simulated workers, which only pretend to have state"
    change: Mapping[str, Any] = {}

    def declaration(self) -> Mapping[str, Any]:
        return DECLARATION

    def worker(self, name: str, url: str, folder: Path, token_file: Path) -> Program:
        given = arguments(url=url, group=DEMO, instance=name, folder=folder)
        return Program(SIMULATED, [*given, "--token-file", str(token_file), "--json"])


class NoKafka(Exception):
    """No broker is available here. The message says what is missing, and how to get it."""


class DemoJob:
    """The job, its broker, its load and its workers."""

    group = TOTALS

    def __init__(self, folder: UpFolder, count: int, say: Callable[[str], None], *, hot: bool = False) -> None:
        """Take the configuration; nothing happens before ``prepare``. ``count`` workers are started at once.

        With ``hot`` the first task gets ``HOT`` times as many records, and the load of tasks is measured, in shadow.
        ``change`` is how a group is declared then that exists; otherwise it stays as it is.
        """
        self.change: Mapping[str, Any] = {"config": HOT_CONFIG} if hot else {}
        self._hot = hot
        self._folder = folder
        self._count = count
        self._say = say
        self._broker: LocalBroker | None = None
        self._job: Job | None = None

    @property
    def words(self) -> str:
        return f"{TASKS} tasks with state, on Kafka at {self.job.bootstrap}, {TASKS * RATE} records a second"

    @property
    def job(self) -> "Job":
        """The job, once there is a broker."""
        assert self._job is not None, "prepare() comes first"  # noqa: S101 - a mistake of this package alone
        return self._job

    def prepare(self) -> str:
        """Start a broker or find one, and return its bootstrap servers.

        Raises:
            NoKafka: when none is available.
        """
        if lacking := [name for name in ("aiokafka", "rocksdict") if importlib.util.find_spec(name) is None]:
            raise NoKafka(f"the workers need {' and '.join(lacking)}: pip install 'batonpass[kafka]'.")
        from batonpass.demo.job import Job  # noqa: PLC0415 - without the extra there is no such thing
        from batonpass.demo.topics import BROKER_SETTINGS  # noqa: PLC0415 - the same
        from batonpass.kafka.broker import BOOTSTRAP_VARIABLE, LocalBroker  # noqa: PLC0415 - the same
        from batonpass.kafka.broker_parts import BrokerUnavailable  # noqa: PLC0415 - the same

        bootstrap = variable(BOOTSTRAP_VARIABLE)
        if not bootstrap:
            self._broker = LocalBroker(self._folder.path / "kafka", settings=BROKER_SETTINGS, say=self._say)
            try:
                bootstrap = self._broker.start()
            except BrokerUnavailable as error:
                self._broker = None
                raise NoKafka(str(error)) from None
        self._job = Job(
            bootstrap=bootstrap, group=TOTALS, tasks=TASKS, customers=CUSTOMERS, rate=RATE, hot=HOT if self._hot else 1
        )
        return bootstrap

    def keep_running(self) -> str | None:
        """Start the broker again if it died; return a sentence about that."""
        if self._broker is None or self._broker.is_running:
            return None
        from batonpass.kafka.broker_parts import BrokerUnavailable  # noqa: PLC0415 - without the extra it is not there

        try:
            self._broker.start()
        except BrokerUnavailable as error:
            return f"The broker has died, and does not start: {error}"
        return "The broker has died; it was started again."

    def stop(self) -> None:
        self._folder.job_file.unlink(missing_ok=True)
        if self._broker is not None:
            self._broker.stop()

    def declaration(self) -> Mapping[str, Any]:
        config = DECLARATION["config"] | {"acceptable_recovery_lag": 100, "max_warmup_replicas": 6}
        return {**DECLARATION, "topology": self.job.topology(), "config": config | self.change.get("config", {})}

    async def ready(self) -> None:
        """Make the topics and fill them, unless an earlier start did that.

        Raises:
            Failure: when the broker refuses.
        """
        from aiokafka.errors import KafkaError  # noqa: PLC0415 - without the extra it is not there

        from batonpass.demo.topics import make_topics, preload, throttle  # noqa: PLC0415 - the same

        try:
            if await make_topics(self.job, keep_bytes=KEEP_BYTES):
                await preload(self.job)
            newcomers = [f"{TOTALS}-{number}" for number in range(self._count + 1, NEWCOMERS + 1)]
            await throttle(self.job, newcomers, RESTORE_BYTES_PER_S)
        except KafkaError as error:
            sentence = f"the broker at {self.job.bootstrap} does not take the job's topics: {error!r}."
            raise Failure(
                Exit.REFUSED, sentence, todo="Look at its log, kafka/broker.log in the data folder."
            ) from None
        self._folder.keep(self._folder.job_file, self.job.words())

    def load(self) -> tuple[str, Program]:
        return "load", Program("batonpass.demo.load", [self.job.words()])

    def worker(self, name: str, url: str, folder: Path, token_file: Path) -> Program:
        return real_worker(self.job.words(), name, url=url, folder=folder, token_file=token_file)


def arguments(*, url: str, group: str, instance: str, folder: Path, rate: int = RESTORED_A_SECOND) -> list[str]:
    """Return the command line of a simulated worker, without the name of its module."""
    given = ["--url", url, "--group", group, "--instance", instance, "--folder", str(folder), "--rate", str(rate)]
    return [*given, "--growth", "20", "--size", "20000", "--on-lease-lost", "continue"]


def real_worker(job: str, name: str, *, url: str, folder: Path, token_file: Path) -> Program:
    """Return the program of one worker of a job; ``job`` is the text in the folder of its `up`."""
    order = {
        "job": json.loads(job),
        "url": url,
        "name": name,
        "folder": str(folder),
        "token_file": str(token_file),
        "commit_interval_ms": COMMIT_INTERVAL_MS,
    }
    return Program("batonpass.demo.worker", [json.dumps(order)])
