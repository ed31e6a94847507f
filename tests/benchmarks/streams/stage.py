"""Where a job of Kafka Streams is compared: a broker, a coordinator on a database, and an application's instances."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewTopic
from tests.clients.streams_job import LEADERS, MODULE, PARTITIONS, Event, Job, Program, running
from tests.e2e.serving import serving
from tests.programs import program

from batonpass.demo.quotas import limit_reading
from batonpass.demo.topics import BROKER_SETTINGS, admin_of, led
from batonpass.kafka.broker import LocalBroker
from batonpass.kafka.broker_parts import find_jars, find_java
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.schema import upgrade

Say = Callable[[str], None]

CAUGHT_UP = 1_000
"""Records that a copy may lack and counts as caught up: `acceptable.recovery.lag` of every job here."""

BROKER = BROKER_SETTINGS | {
    # Kafka's own default; a broker of this repository does not wait for more members otherwise.
    "group.initial.rebalance.delay.ms": "3000",
    # What a job of the broker-side protocol may be set to, where the others have the same.
    "group.streams.min.session.timeout.ms": "10000",
}


@dataclass(frozen=True)
class Stage:
    """What runs whatever the instances do."""

    folder: Path
    bootstrap: str
    database_url: str
    url: str

    @contextmanager
    def application(self, name: str, group_settings: Mapping[str, object]) -> "Iterator[Application]":
        """An application that nobody has heard of, with topics and no instance; whatever it starts is ended.

        ``group_settings`` are those that the broker has for the group, where it assigns.
        """
        folder = self.folder / name
        folder.mkdir()
        asyncio.run(_make_topics(self.bootstrap, name))
        if group_settings:
            _set_group(self.bootstrap, name, group_settings)
        with running(find_java(), self.bootstrap, name, folder) as job:
            yield Application(self.bootstrap, job)


def begin() -> Say:
    """Build the plug-in and the job; return what prints progress, with the time since now."""
    began = time.monotonic()
    # What was started is ended then, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def say(words: str) -> None:
        seconds = int(time.monotonic() - began)
        sys.stdout.write(f"{seconds // 60:3}:{seconds % 60:02}  {words}\n")
        sys.stdout.flush()

    say("building the plug-in and the job")
    subprocess.run([program("mvn"), "-q", "-B", "package", "-DskipTests"], cwd=MODULE, check=True)
    return say


@contextmanager
def stage() -> Iterator[Stage]:
    """Set up a broker, a database and a coordinator, in a folder that goes with them."""
    with tempfile.TemporaryDirectory(prefix="batonpass-streams-") as made:
        os.chmod(made, 0o711)  # noqa: PTH101, S103 - Postgres may run as another user, who has to pass through
        folder = Path(made)
        with (
            EmbeddedPostgres(folder / "postgres") as postgres,
            LocalBroker(folder / "broker", settings=BROKER) as broker,
        ):
            asyncio.run(upgrade(postgres.url))
            with serving(postgres.url, sole_coordinator="true", log_level="warning") as served:
                yield Stage(folder, broker.bootstrap_servers, postgres.url, served.url)


@dataclass
class Application:
    """The instances of one application, and what can be seen of them from outside."""

    bootstrap: str
    job: Job

    @property
    def name(self) -> str:
        """The application's id."""
        return self.job.application

    def preload(self, keys: int, within_s: float = 180) -> Program:
        """Start the load with one order for each key, and wait until instances have caught up with it."""
        load = self.job.load(rate=1_200, keys=keys)
        ends_at = time.monotonic() + within_s
        while asyncio.run(_unprocessed(self.bootstrap, self.name)) > CAUGHT_UP:
            if time.monotonic() > ends_at:
                message = f"{self.name} did not process {keys * PARTITIONS:,} orders within {within_s:.0f} s"
                raise TimeoutError(message)
            time.sleep(1)
        return load

    def throttle(self, instances: Iterable[str], bytes_per_s: int) -> None:
        """Let these instances read changelogs no faster than that, each of them."""
        names = [f"{name}-StateUpdater-1-restore-consumer" for name in instances]

        async def limit() -> None:
            async with admin_of(self.bootstrap) as admin:
                await limit_reading(admin, names, bytes_per_s)

        asyncio.run(limit())

    @property
    def alive(self) -> dict[str, Program]:
        """The instances that run."""
        return {name: each for name, each in self.job.instances.items() if each.process.poll() is None}

    def progress(self) -> list[Event] | None:
        """Return what each instance has said of its progress since it got what it has; None where one has not yet."""
        found = []
        for instance in self.alive.values():
            progress, has = instance.last("progress"), instance.last("has")
            if progress is None or has is None or progress["at"] < has["at"]:
                return None
            found.append(progress)
        return found

    def decisions(self) -> list[tuple[int, bool]]:
        """Return when leaders have decided, in milliseconds since 1970, and whether that was to be all."""
        found = []
        for log in {each.log for each in self.job.instances.values()}:
            for line in log.read_text(errors="replace").splitlines():
                if LEADERS.rpartition(".")[2] in line and "] Finished " in line:
                    at = datetime.fromisoformat(line.split(" ", 1)[0]).timestamp()
                    found.append((round(at * 1_000), "Finished stable" in line))
        return sorted(found)

    def rests(
        self, *, standbys: int, has_leader: bool, is_under_load: bool, drained: Container[str] = frozenset()
    ) -> bool:
        """Tell whether tasks are evened out and run, all copies are there and caught up, and nothing is to come.

        Those that are ``drained`` are to run none.
        """
        has = {name: each.last("has") or {"active": (), "standby": ()} for name, each in self.alive.items()}
        actives = [len(each["active"]) for name, each in has.items() if name not in drained]
        if not actives or sum(actives) != PARTITIONS or max(actives) - min(actives) > 1:
            return False
        progress = self.progress()
        if sum(len(each["standby"]) for each in has.values()) != standbys * PARTITIONS or progress is None:
            return False
        if is_under_load and sum(each["working"] for each in progress) != PARTITIONS:
            return False
        if any(each["behind"] > CAUGHT_UP for each in progress):
            return False
        decisions = self.decisions() if has_leader else [(0, True)]
        return bool(decisions) and decisions[-1][1]

    @property
    def events(self) -> list[list[Event]]:
        """What every process that was ever started has said."""
        return [list(each.events) for each in self.job.programs]

    def shape(self) -> str:
        """Return who has how many tasks and copies, in words."""
        has = {name: each.last("has") or {"active": (), "standby": ()} for name, each in self.alive.items()}
        return " ".join(f"{name}:{len(each['active'])}+{len(each['standby'])}" for name, each in sorted(has.items()))


def _set_group(bootstrap: str, group: str, settings: Mapping[str, object]) -> None:
    """Set what the broker has for a group, by Kafka's own tool."""
    java = find_java()
    named = ",".join(f"{key}={value}" for key, value in settings.items())
    command = [*java, "-cp", f"{find_jars(java, lambda _: None)}/*", "kafka.admin.ConfigCommand"]
    command += ["--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name", group]
    done = subprocess.run([*command, "--add-config", named], capture_output=True, text=True, check=False)
    if done.returncode or "Completed" not in done.stdout:
        raise RuntimeError(done.stdout + done.stderr)


async def _make_topics(bootstrap: str, application: str) -> None:
    # Silence is measured by when the broker wrote an output down.
    topics = {f"{application}-orders": {}, f"{application}-totals": {"message.timestamp.type": "LogAppendTime"}}
    async with admin_of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=has) for name, has in topics.items()])
        for name in topics:
            await led(admin, name, PARTITIONS)


async def _unprocessed(bootstrap: str, application: str) -> int:
    """Return how many orders the application has not committed yet."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=application, enable_auto_commit=False)
    await consumer.start()
    try:
        orders = [TopicPartition(f"{application}-orders", each) for each in range(PARTITIONS)]
        consumer.assign(orders)
        ends = await consumer.end_offsets(orders)
        return sum([end - (await consumer.committed(each) or 0) for each, end in ends.items()])
    finally:
        await consumer.stop()
