"""A local Kafka broker for one machine: one node, no container, data in one folder.

It is Apache Kafka itself in KRaft mode (KIP-500: no ZooKeeper), listens on 127.0.0.1 without a password, never outlives
the process that started it (``batonpass.child_watchdog``), and finds its data again at the next start. It is for tests,
demonstrations and trying things out; a cluster that matters is run by other means and named by its bootstrap servers.
"""

import base64
import fcntl
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from batonpass.child_environment import server_environment
from batonpass.child_server import STOP_TIMEOUT_S, ChildServer, ServerCommand
from batonpass.kafka.broker_parts import BrokerUnavailable, find_jars, find_java
from batonpass.private_files import write_private
from batonpass.sockets import free_port

BOOTSTRAP_VARIABLE = "BATONPASS_KAFKA_BOOTSTRAP"
STARTED = "Kafka Server started"
"""What the broker logs once it has registered itself and answers requests; its ports are open long before."""

JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.awt.headless=true")
"""Settings for a quick start rather than for speed in the long run."""

LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
SETTINGS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # The broker's internal topics have one copy, and few partitions, or a first transaction takes seconds.
    "offsets.topic.replication.factor": "1",
    # Committed offsets stay, even if nothing was started for weeks.
    "offsets.retention.minutes": "2147483647",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


class LocalBroker(ChildServer):
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

        Without ``port`` the broker takes the port of the last start on the folder, so that clients find it again. If
        that is taken, or at the first start, it takes any free one, and keeps it. ``settings`` are broker properties
        that override those here, except the addresses that it listens on. ``say`` is called at a first fetch of the
        broker's jars.
        """
        super().__init__(folder, "broker.log", name="Kafka", kind="a broker", error=BrokerUnavailable)
        self._port = port
        self._settings = dict(settings or {})
        self._heap_mb = heap_mb
        self._say = say or (lambda _: None)

    @property
    def bootstrap_servers(self) -> str:
        """Where it is reached; empty before its first start."""
        return self.reached_at

    def _begin(self) -> str:
        java = find_java()
        jars = find_jars(java, self._say)
        self._hold_folder()
        self._outwait_leftover()
        # The broker runs in another folder than this process.
        command = (*java, "-cp", f"{jars.absolute()}/*")
        wanted = self._port or self._last_port()
        port = self._port = self._launch(
            wanted, lambda port: self._order(command, port), lambda log_size: STARTED in self._said_since(log_size)
        )
        self._port_file.write_text(f"{port}\n")
        return f"127.0.0.1:{port}"

    @property
    def _port_file(self) -> Path:
        return self.folder / "port"

    def _last_port(self) -> int | None:
        """Return the port of the last start on this folder, if there was one and it is free now."""
        try:
            port = int(self._port_file.read_text())
            return port if free_port(port) == port else None
        except (FileNotFoundError, ValueError, OverflowError):
            return None

    def _outwait_leftover(self) -> None:
        """Wait for the end of a broker whose parent was killed a moment ago; it holds its data until then."""
        ends_at = time.monotonic() + STOP_TIMEOUT_S
        while _is_held(self.folder / "data" / ".lock"):
            if time.monotonic() > ends_at:
                raise BrokerUnavailable(f"a broker that was left on {self.folder} does not end.")
            time.sleep(0.1)

    def _order(self, java: tuple[str, ...], port: int) -> ServerCommand:
        """Return the command that runs the broker on a port, after formatting its folder if that is new."""
        properties = self._write_properties(port, free_port())
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(java, properties)
        command = (*java, f"-Xmx{self._heap_mb}m", *JVM, *LOGGING, "kafka.Kafka", properties.name)
        return ServerCommand(command, folder=str(self.folder))

    def _write_properties(self, port: int, controller_port: int) -> Path:
        """Write the broker's properties, and return their file.

        They name no folder, which would have to be quoted: the broker runs where its data are.
        """
        lines = {**SETTINGS, **self._settings}
        protocols = f",{lines['listener.security.protocol.map']}" if "listener.security.protocol.map" in lines else ""
        name = self._settings.get("inter.broker.listener.name", "PLAINTEXT")
        lines |= {
            "inter.broker.listener.name": name,
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT{protocols}",
            "listeners": f"{name}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"{name}://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": "data",
        }
        # A password may be among the settings.
        text = "".join(f"{key}={value}\n" for key, value in sorted(lines.items()))
        written = self.folder / "server.properties"
        write_private(written, text)
        return written

    def _format(self, java: tuple[str, ...], properties: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        command = [*java, *JVM, *LOGGING, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties.name]
        done = subprocess.run(  # noqa: S603 - Kafka's own tool
            command, capture_output=True, text=True, check=False, cwd=self.folder, env=server_environment()
        )
        if done.returncode:
            raise BrokerUnavailable(f"cannot format {self.folder}: {(done.stderr or done.stdout).strip()[-2_000:]}")


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
