"""A Kafka broker of one's own, for one machine: one node, no container, data in one folder.

It is Apache Kafka itself in KRaft mode (KIP-500: no ZooKeeper), listens on 127.0.0.1 without a password, never outlives
the process that started it (``batonpass.keeper``), and finds its data again at the next start. It is for tests,
demonstrations and trying things out; a cluster that matters is run by other means and named by its bootstrap servers.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Self

from batonpass import keeper
from batonpass.kafka.broker_parts import BrokerUnavailable, find_jars, find_java

GIVEN = "BATONPASS_KAFKA_BOOTSTRAP"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 45.0
PORT_ATTEMPTS = 5
STARTED = "Kafka Server started"
"""The broker's word that it has registered itself and answers requests; its ports are open long before."""

JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.awt.headless=true")
"""Quick to start rather than quick in the long run."""

LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
SETTINGS = MappingProxyType(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # The topics of the broker's own have one copy, and few partitions, or a first transaction takes seconds.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
    }
)


class LocalBroker:
    """A broker on the data in ``folder``, which is made if it is not there."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Name the folder; nothing happens before ``start``.

        Without ``port`` any free one is taken at each start. ``settings`` are lines of the broker's properties that go
        before its own, but for the addresses that it listens on. ``say`` hears of a first fetch of the broker's jars.
        """
        self.folder = folder.absolute()
        self._port = port
        self._settings = dict(settings or {})
        self._heap_mb = heap_mb
        self._say = say or (lambda _: None)
        self._keeper: subprocess.Popen[str] | None = None
        self._lock: IO[str] | None = None
        self.bootstrap_servers = ""
        self.pid = 0

    def start(self) -> str:
        """Start the broker, formatting its folder first if that is new, and return its bootstrap servers.

        Raises:
            BrokerUnavailable: when that is not possible; the message says why and what to do.
        """
        if self.is_running:
            return self.bootstrap_servers
        self.stop()
        java = find_java()
        jars = find_jars(java, self._say)
        self._take_folder()
        try:
            port = self._launch((*java, "-cp", f"{jars}/*"))
        except BaseException:
            self.stop()
            raise
        self.bootstrap_servers = f"127.0.0.1:{port}"
        return self.bootstrap_servers

    def stop(self) -> None:
        """Stop the broker in good order and wait until it has ended. Nothing if it does not run."""
        self._end_keeper()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def is_running(self) -> bool:
        """Whether the broker runs; one that died by itself does not."""
        return self._keeper is not None and self._keeper.poll() is None

    def __enter__(self) -> Self:
        """Start the broker."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the broker."""
        self.stop()

    @property
    def log(self) -> Path:
        """Where the broker's own output goes."""
        return self.folder / "broker.log"

    def _take_folder(self) -> None:
        """Make the folder and hold it, so that no second process starts a broker on it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("a")
        except OSError as error:
            raise BrokerUnavailable(
                f"cannot write to {self.folder}: {error.strerror}. Choose another folder."
            ) from error
        ends_at = time.monotonic() + STOP_TIMEOUT_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._lock.close()
                raise BrokerUnavailable(f"another process runs a broker on {self.folder}. Choose another.") from None
            # The broker of a parent that was killed a moment ago holds its data until it has ended.
            if not _is_held(self.folder / "data" / ".lock"):
                return
            if time.monotonic() > ends_at:
                self.stop()
                raise BrokerUnavailable(f"a broker that was left on {self.folder} does not end.")
            time.sleep(0.1)

    def _launch(self, java: tuple[str, ...]) -> int:
        """Start the broker and return its port once it answers."""
        for _ in range(PORT_ATTEMPTS):
            port = self._port or _free_port()
            properties = self._write_properties(port, _free_port())
            if not (self.folder / "data" / "meta.properties").exists():
                self._format(java, properties)
            size = self.log.stat().st_size if self.log.exists() else 0
            if self._try_start(java, properties, size):
                return port
            said = self._said_since(size)
            self._end_keeper()
            taken = "Address already in use" in said
            if taken and self._port:
                raise BrokerUnavailable(f"port {port} is taken. Choose another one, or none.")
            if not taken:
                raise BrokerUnavailable(f"Kafka did not start; {self.log} says: {said[-2_000:]}")
        raise BrokerUnavailable("found no free port.")

    def _write_properties(self, port: int, controller_port: int) -> Path:
        lines = SETTINGS | self._settings
        protocols = f",{lines['listener.security.protocol.map']}" if "listener.security.protocol.map" in lines else ""
        name = self._settings.get("inter.broker.listener.name", "PLAINTEXT")
        lines |= {
            "inter.broker.listener.name": name,
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT{protocols}",
            "listeners": f"{name}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"{name}://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.folder / "data"),
        }
        written = self.folder / "server.properties"
        # A password may be among the settings.
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.writelines(f"{key}={value}\n" for key, value in sorted(lines.items()))
        return written

    def _format(self, java: tuple[str, ...], properties: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        command = [*java, *JVM, *LOGGING, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Kafka's own tool
        if done.returncode:
            raise BrokerUnavailable(f"cannot format {self.folder}: {(done.stderr or done.stdout).strip()[-2_000:]}")

    def _try_start(self, java: tuple[str, ...], properties: Path, log_size: int) -> bool:
        command = [*java, f"-Xmx{self._heap_mb}m", *JVM, *LOGGING, "kafka.Kafka", str(properties)]
        order = {"command": command, "log": str(self.log), "user": {}}
        self._keeper = process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", keeper.__file__, json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
            text=True,
        )
        assert process.stdout is not None  # noqa: S101 - it was asked for
        self.pid = int(process.stdout.readline() or 0)
        ends_at = time.monotonic() + START_TIMEOUT_S
        while process.poll() is None:
            if STARTED in self._said_since(log_size):
                return True
            if time.monotonic() > ends_at:
                raise BrokerUnavailable(f"Kafka was not ready within {START_TIMEOUT_S:.0f} s; see {self.log}.")
            time.sleep(0.05)
        return False

    def _said_since(self, size: int) -> str:
        with self.log.open("rb") as log:
            log.seek(size)
            return log.read().decode(errors="replace").strip()

    def _end_keeper(self) -> None:
        if self._keeper is None:
            return
        for stream in (self._keeper.stdin, self._keeper.stdout):
            if stream is not None:
                stream.close()
        try:
            self._keeper.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # The broker is told by the system when its keeper goes.
            self._keeper.kill()
            self._keeper.wait()
        self._keeper = None


@contextmanager
def some_cluster(folder: Path, *, say: Callable[[str], None] | None = None) -> Iterator[str]:
    """Yield the bootstrap servers of the cluster that BATONPASS_KAFKA_BOOTSTRAP names, else of a broker of one's own.

    Raises:
        BrokerUnavailable: when no cluster is named and no broker can be run.
    """
    given = os.environ.get(GIVEN)
    if given:
        yield given
        return
    with LocalBroker(folder, say=say) as broker:
        yield broker.bootstrap_servers


def _is_held(lock: Path) -> bool:
    """Whether a broker holds its data: Java's file locks are those of ``fcntl``."""
    try:
        with lock.open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
