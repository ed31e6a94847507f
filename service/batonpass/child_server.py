"""A server that this process runs for itself: it holds a folder, has a watchdog, and ends with its parent.

A subclass says what kind of server it is, and when it is ready (`batonpass.postgres.embedded`,
`batonpass.kafka.broker`); `batonpass.child_watchdog` is the process between this one and the server.
"""

import fcntl
import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from batonpass import child_watchdog
from batonpass.child_environment import server_environment
from batonpass.private_files import open_lock
from batonpass.sockets import free_port

START_TIMEOUT_S = 120.0
"""A start after a crash may have to replay what was written last."""

STOP_TIMEOUT_S = 45.0
PORT_ATTEMPTS = 5
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """What the watchdog is to run, in which folder and with which environment.

    ``user`` has keywords of ``Popen`` that run it as another user.
    """

    command: Sequence[str]
    user: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=server_environment)
    folder: str = "/"


class ChildServer(ABC):
    """A server on the data in ``folder``, which runs from ``start`` to ``stop``, or for as long as a block lasts.

    ``log`` is where the server's own output goes, ``pid`` the process id of the server that was started last.
    """

    def __init__(self, folder: Path, log: str, *, name: str, kind: str, error: type[Exception]) -> None:
        """Name everything; nothing happens yet.

        ``log`` is the name of a file in the folder. ``name`` and ``kind`` are what errors call the server (Kafka, a
        broker); they are raised as ``error``.
        """
        self.folder = folder.absolute()
        self.log = self.folder / log
        self._name = name
        self._kind = kind
        self._error = error
        self._lock: IO[str] | None = None
        self.watchdog: subprocess.Popen[str] | None = None
        self.pid = 0
        self.reached_at = ""

    @property
    def is_running(self) -> bool:
        """Whether the server runs; one that died by itself does not."""
        return self.watchdog is not None and self.watchdog.poll() is None

    def start(self) -> str:
        """Start the server unless it runs, and return where it is reached.

        Raises:
            Exception: ``error`` of the subclass, when that is not possible; the message says why and what to do.
        """
        if not self.is_running:
            self.stop()
            try:
                self.reached_at = self._begin()
            except BaseException:
                self.stop()
                raise
        return self.reached_at

    @abstractmethod
    def _begin(self) -> str:
        """Hold the folder and launch the server; return where it is reached. What was begun is undone if it fails."""

    def stop(self) -> None:
        """Stop the server in good order, wait until it has ended, and release the folder. Do nothing if none runs."""
        self._end_watchdog()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _hold_folder(self, *, mode: int = 0o777) -> None:
        """Make the folder and hold it, so that no second process starts a server on it.

        Raises:
            Exception: ``error`` of the subclass, when that is not possible.
        """
        try:
            self.folder.mkdir(mode=mode, parents=True, exist_ok=True)
            self._lock = open_lock(self.folder / "lock")
        except OSError as error:
            raise self._error(
                f"cannot write to {self.folder}: {error.strerror}. Choose a folder of your own for the data."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise self._error(
                f"another process runs {self._kind} on {self.folder}. Stop it, or choose another folder."
            ) from None

    def _launch(self, port: int | None, order: Callable[[int], ServerCommand], is_ready: Callable[[int], bool]) -> int:
        """Run the server on a port, any free one if none is named, and return the port once it is ready.

        ``order`` says what to run on a port. ``is_ready`` is called again and again with the length of the log before
        the start.

        Raises:
            Exception: ``error`` of the subclass, with the server's own output, when it does not start.
        """
        for _ in range(PORT_ATTEMPTS):
            tried = port or free_port()
            wanted = order(tried)
            before = self.log.stat().st_size if self.log.exists() else 0
            if self._try(wanted, lambda before=before: is_ready(before)):  # type: ignore[misc]
                return tried
            said = self._said_since(before)
            self._end_watchdog()
            taken = "Address already in use" in said
            if taken and port:
                raise self._error(f"port {port} is taken. Choose another one, or none.")
            if not taken:
                raise self._error(f"{self._name} did not start; {self.log} says: {said[-2_000:]}")
        raise self._error("found no free port.")

    def _said_since(self, size: int) -> str:
        """Return what the server has written to its log after the first ``size`` bytes."""
        with self.log.open("rb") as log:
            log.seek(size)
            return log.read().decode(errors="replace").strip()

    def _try(self, order: ServerCommand, is_ready: Callable[[], bool]) -> bool:
        arguments = asdict(order) | {"command": list(order.command), "log": str(self.log)}
        self.watchdog = process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", child_watchdog.__file__, json.dumps(arguments)],
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
            if is_ready():
                return True
            if time.monotonic() > ends_at:
                raise self._error(f"{self._name} was not ready within {START_TIMEOUT_S:.0f} s; see {self.log}.")
            time.sleep(LOOK_S)
        return False

    def _end_watchdog(self) -> None:
        process, self.watchdog = self.watchdog, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # The system signals the server when its watchdog dies.
            process.kill()
            process.wait()
