"""The real workers of `batonpass up`: running totals of customers, on a broker of its own, under a light load."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batonpass.cli.crew import DECLARATION, Program
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import UpFolder

if TYPE_CHECKING:
    from batonpass.demo.job import Job
    from batonpass.kafka.broker import LocalBroker

TOTALS: Final = "totals"
TASKS: Final = 12
CUSTOMERS: Final = 2_000
RATE: Final = 20
COMMIT_INTERVAL_MS: Final = 500
KEEP_BYTES: Final = 32 * 1024 * 1024
RESTORE_BYTES_PER_S: Final = 80_000
NEWCOMERS: Final = 30
"""Workers up to this number restore slowly, so that one sees it; those that `up` itself starts do not."""


class NoKafka(Exception):
    """There is no broker to be had here. The message says what is missing, and how to get it."""


class JobCast:
    """The job, its broker, its load and its workers."""

    def __init__(self, folder: UpFolder, count: int, say: Callable[[str], None]) -> None:
        """Name everything; nothing happens before ``prepare``. ``count`` is how many workers are started at once."""
        self._folder = folder
        self._count = count
        self._say = say
        self._broker: LocalBroker | None = None
        self._job: Job | None = None

    @property
    def group(self) -> str:
        """The group that they work in."""
        return TOTALS

    @property
    def words(self) -> str:
        """What they are, for people."""
        return f"{TASKS} tasks with state, on Kafka at {self.job.bootstrap}, {TASKS * RATE} records a second"

    @property
    def job(self) -> Job:
        """The job, once there is a broker."""
        assert self._job is not None, "prepare() comes first"  # noqa: S101 - a mistake of this package alone
        return self._job

    def prepare(self) -> str:
        """Have a broker, and return its bootstrap servers.

        Raises:
            NoKafka: when there is none to be had.
        """
        if lacking := [name for name in ("aiokafka", "rocksdict") if importlib.util.find_spec(name) is None]:
            raise NoKafka(f"the workers need {' and '.join(lacking)}: pip install 'batonpass[kafka]'.")
        from batonpass.demo.job import Job  # noqa: PLC0415 - without the extra there is no such thing
        from batonpass.demo.topics import BROKER_SETTINGS  # noqa: PLC0415 - the same
        from batonpass.kafka.broker import GIVEN, LocalBroker  # noqa: PLC0415 - the same
        from batonpass.kafka.broker_parts import BrokerUnavailable  # noqa: PLC0415 - the same

        bootstrap = os.environ.get(GIVEN, "")
        if not bootstrap:
            self._broker = LocalBroker(self._folder.path / "kafka", settings=BROKER_SETTINGS, say=self._say)
            try:
                bootstrap = self._broker.start()
            except BrokerUnavailable as error:
                self._broker = None
                raise NoKafka(str(error)) from None
        self._job = Job(bootstrap=bootstrap, group=TOTALS, tasks=TASKS, customers=CUSTOMERS, rate=RATE)
        return bootstrap

    def keep_running(self) -> str | None:
        """Start the broker again when it died; return what is to be said of that."""
        if self._broker is None or self._broker.is_running:
            return None
        from batonpass.kafka.broker_parts import BrokerUnavailable  # noqa: PLC0415 - without the extra it is not there

        try:
            self._broker.start()
        except BrokerUnavailable as error:
            return f"The broker has died, and does not start: {error}"
        return "The broker has died; it was started again."

    def stop(self) -> None:
        """Stop the broker."""
        self.note_file.unlink(missing_ok=True)
        if self._broker is not None:
            self._broker.stop()

    @property
    def note_file(self) -> Path:
        """Where `batonpass worker` finds the job while it runs."""
        return self._folder.path / "job.json"

    def declaration(self) -> Mapping[str, Any]:
        """Return the group as it is declared."""
        config = DECLARATION["config"] | {"acceptable_recovery_lag": 100, "max_warmup_replicas": 6}
        return {**DECLARATION, "topology": self.job.topology(), "config": config}

    async def ready(self) -> None:
        """Make the topics and fill them, where that was not done by an earlier start.

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
        self._folder.keep(self.note_file, self.job.words())

    def beside(self) -> Iterable[tuple[str, Program]]:
        """Return the load."""
        return [("load", Program("batonpass.demo.load", [self.job.words()]))]

    def worker(self, name: str, url: str, folder: Path, token_file: Path) -> Program:
        """Return the program of one worker."""
        return real_worker(self.job.words(), name, url=url, folder=folder, token_file=token_file)


def real_worker(job: str, name: str, *, url: str, folder: Path, token_file: Path) -> Program:
    """Return the program of one worker of a job, which is given as it is kept in the folder of its `up`."""
    order = {
        "job": json.loads(job),
        "url": url,
        "name": name,
        "folder": str(folder),
        "token_file": str(token_file),
        "commit_interval_ms": COMMIT_INTERVAL_MS,
    }
    return Program("batonpass.demo.worker", [json.dumps(order)])
