"""The Kafka Streams job of `clients/kafka-streams` as processes, and what stands in its topics."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.waiting import PATIENCE_S, wait_until

from batonpass.demo.job import Output
from batonpass.demo.ledger import Account, Ledger

MODULE = Path(__file__).resolve().parents[2] / "clients" / "kafka-streams"
PACKAGE = "io.batonpass.streams"
LEADERS = "org.apache.kafka.streams.processor.internals.StreamsPartitionAssignor"
LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.io.batonpass=info",
    f"-Dorg.slf4j.simpleLogger.log.{LEADERS}=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)
PARTITIONS = 12

Event = dict[str, Any]


def command(
    java: tuple[str, ...], program: str, before: Sequence[Path] = (), libraries: str | None = None
) -> tuple[str, ...]:
    """Return what starts a program of the module, after `mvn package` has built it.

    Classes in the folders ``before`` are loaded in the place of the module's own. ``libraries`` is a class path with
    Kafka Streams; by default, with the version that the module is built against.
    """
    target = MODULE / "target"
    folders = [*before, target / "classes", target / "test-classes"]
    path = ":".join([*map(str, folders), libraries or (target / "classpath.txt").read_text().strip()])
    return (
        *java,
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *LOGGING,
        "-cp",
        path,
        f"{PACKAGE}.{program}",
    )


class Program:
    """A program of the module that says on standard output what happens; its log is a file."""

    def __init__(self, arguments: tuple[str, ...], log: Path) -> None:
        """Start it."""
        self.log = log
        self.events: list[Event] = []
        with log.open("a") as file:
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def last(self, event: str) -> Event | None:
        """Return what was said last about one kind of event."""
        return next((each for each in reversed(self.events) if each["event"] == event), None)

    @property
    def active(self) -> set[str]:
        """The tasks that an instance has as active."""
        return set((self.last("has") or {"active": ()})["active"])

    @property
    def state(self) -> str:
        """What Kafka Streams says of an instance."""
        return str((self.last("state") or {"now": "CREATED"})["now"])

    def add_thread(self) -> None:
        """Have an instance go on with one thread more."""
        assert self.process.stdin is not None
        self.process.stdin.write("add-thread\n")
        self.process.stdin.flush()
        wait_until(lambda: self.last("threads"), seen=self.log.read_text)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it in good order, and wait for that."""
        self.process.terminate()
        self.process.wait(60)

    def __enter__(self) -> Self:
        """Nothing more than has been done."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Job:
    """The instances of one application with their load."""

    libraries: str | None = None
    """The class path with the Kafka Streams that instances are started with; None for the module's own."""

    def __init__(self, java: tuple[str, ...], bootstrap: str, application: str, folder: Path, stack: ExitStack) -> None:
        """Name where it runs; nothing is started."""
        self.application = application
        self.instances: dict[str, Program] = {}
        self.programs: list[Program] = []
        self._java, self._bootstrap, self._folder, self._stack = java, bootstrap, folder, stack

    def load(self, *, rate: int = 240, keys: int = 500) -> Program:
        """Start the load, and wait until every key has been written once."""
        load = self._start("load", "job.Load", f"--rate={rate}", f"--keys={keys}", "--preload=yes")
        wait_until(lambda: load.last("preloaded"), seen=load.log.read_text)
        return load

    def start(
        self,
        instance: str,
        settings: Mapping[str, object],
        *,
        assignor: str = "batonpass",
        leaves: bool = False,
        before: Sequence[Path] = (),
        first: str = "",
    ) -> Program:
        """Start an instance with settings of Kafka Streams and of the plug-in; ``leaves``: its group, at its end.

        ``first`` is the topic of a part without state that its release puts first.
        """
        sets = [f"--set={key}={value}" for key, value in settings.items()]
        own = (
            f"--instance={instance}",
            f"--state-dir={self._folder / instance}",
            f"--leave={'yes' if leaves else 'no'}",
            f"--first={first}",
        )
        program = self._start(instance, "job.Job", *own, f"--assignor={assignor}", *sets, before=before)
        self.instances[instance] = program
        return program

    def _start(self, name: str, program: str, *options: str, before: Sequence[Path] = ()) -> Program:
        given = [f"--bootstrap={self._bootstrap}", f"--application={self.application}", *options]
        words = [word for option in given for word in option.split("=", 1)]
        started = Program((*command(self._java, program, before, self.libraries), *words), self._folder / f"{name}.log")
        self.programs.append(started)
        return self._stack.enter_context(started)

    @property
    def leader(self) -> Program:
        """The instance that was the last to ask a coordinator, by what its log says."""
        return max(self.instances.values(), key=lambda each: _last_asked(each.log))

    def counts(self) -> dict[str, int]:
        """Return how many actives each instance has that runs."""
        return {name: len(each.active) for name, each in self.instances.items() if each.process.poll() is None}

    def until(self, counts: dict[str, int], within_s: float = PATIENCE_S) -> None:
        """Wait until the instances have so many actives."""
        wait_until(lambda: self.counts() == counts, within_s=within_s, seen=lambda: f"{self.counts()}, not {counts}")


def _last_asked(log: Path) -> str:
    """Return the time at which a log says last what came of a question; any instance that starts looks its group up."""
    lines = [line for line in log.read_text().splitlines() if " Batonpass: " in line]
    return max((line.split()[0] for line in lines if "could not be asked whether" not in line), default="")


@contextmanager
def running(java: tuple[str, ...], bootstrap: str, application: str, folder: Path) -> Iterator[Job]:
    """An application without instances; whatever it starts is ended."""
    with ExitStack() as stack:
        yield Job(java, bootstrap, application, folder, stack)


async def read(bootstrap: str, application: str) -> tuple[Ledger, Account]:
    """Read what was committed until every order has its output, or too much time has passed."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=5_000,
    )
    await consumer.start()
    try:
        orders = [TopicPartition(f"{application}-orders", each) for each in range(PARTITIONS)]
        ends = await consumer.end_offsets(orders)
        taken = [ends[each] for each in orders]
        consumer.assign([TopicPartition(f"{application}-totals", each) for each in range(PARTITIONS)])
        ledger = Ledger(PARTITIONS, stateful=True)
        ends_at = time.monotonic() + PATIENCE_S
        while not ledger.is_done(taken) and time.monotonic() < ends_at:
            for found, records in (await consumer.getmany(timeout_ms=500)).items():
                for record in records:
                    writer, offset, total, count = record.value.decode().split()
                    output = Output(int(offset), int(count), int(total), writer)
                    ledger.note(found.partition, record.key, output, record.timestamp)
        return ledger, ledger.account(taken)
    finally:
        await consumer.stop()
