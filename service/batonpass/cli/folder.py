"""The data folder of `batonpass up`: what is in it, which process holds it, and how commands on this machine find it.

    DATA/
      batonpass.json   says that the folder is Batonpass's
      token            the admin token; only its owner can read it
      workers-token    the token of the simulated workers, for their group alone
      job.json         the job on Kafka, as long as it runs; only its owner can read it
      database-url     where the database listens and its password, for the audit; only its owner can read it
      lock             held as long as an `up` runs; has its process and address; only its owner can read it
      postgres/        the database and its log
      workers/         what the simulated workers keep on disk, and their logs

Each running `up` records the path of its folder in the user's state folder, so that commands find it. They send the
token to the address in `lock`, so a folder whose `lock` or `batonpass.json` others may write is refused.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import typer

from batonpass import __version__
from batonpass.child_environment import home
from batonpass.cli.exits import Exit, Failure
from batonpass.private_files import open_lock, read_private, write_private
from batonpass.variables import variable

MARK = "batonpass.json"
FORMAT = 1
LOCK_ATTEMPTS = 5
OF_OTHERS = 0o022
"""The bits of a file's mode that let others write it."""

DAMAGED = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a number out of JSON raises, whatever stands there instead."""

NOBODYS = frozenset({"lost+found", ".DS_Store"})
"""What a file system itself puts into an empty folder."""


class Running(NamedTuple):
    """A running `up`: its process, where it listens, and its folder."""

    pid: int
    url: str
    folder: Path


def default_folder() -> Path:
    """Return where the data are kept by default.

    For root this is outside root's home, which the database could not reach, because it does not run as root.

    Raises:
        Failure: when this user has no home folder, and the environment names none for data.
    """
    if _is_root():
        return Path("/var/lib/batonpass")
    return _kept("XDG_DATA_HOME", ".local/share") / "batonpass"


def folder_named(text: str) -> Path:
    """Return the folder that an option names.

    Raises:
        typer.BadParameter: when the text is empty; an empty path would be the present folder.
    """
    if not text.strip():
        raise typer.BadParameter("it names no folder; leave the option out for the usual one")
    return Path(text)


def keep_from_others() -> None:
    """Let nobody else write what this process and its children make, whatever the umask was."""
    os.umask(os.umask(OF_OTHERS) | OF_OTHERS)


class UpFolder:
    """One folder, held by one `up` at a time, with what is in it (above)."""

    def __init__(self, path: Path) -> None:
        """Name the folder; nothing happens before ``hold``."""
        try:
            self.path = path.expanduser().absolute()
        except RuntimeError:
            raise Failure(
                Exit.BAD_INPUT, f"there is no home folder for {path}.", todo="Name the folder without ~."
            ) from None
        except FileNotFoundError:
            todo = "Name it by its whole path, or run this in another folder."
            raise Failure(
                Exit.BAD_INPUT, f"the present folder, in which {path} would be, is gone.", todo=todo
            ) from None
        self.postgres = self.path / "postgres"
        self.workers = self.path / "workers"
        self.token_file = self.path / "token"
        self.workers_token_file = self.path / "workers-token"
        self.job_file = self.path / "job.json"
        self.database_file = self.path / "database-url"
        self._lock: IO[str] | None = None

    def hold(self) -> None:
        """Make the folder if necessary, and keep every other `up` out of it until ``release``.

        Raises:
            Failure: when it belongs to something else, is held by another process, or cannot be written.
        """
        try:
            if self.path.exists():
                self._require_own(self.path)
            self._make()
            if (self.path / "lock").exists():
                self._require_own(self.path / "lock")
            lock = open_lock(self.path / "lock")
        except OSError as error:
            raise self._unusable(error) from None
        # A command that checks which process holds the folder also holds the lock for an instant.
        for _ in range(LOCK_ATTEMPTS):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.05)
        else:
            lock.close()
            raise self._held()
        self._lock = lock
        self._note("")

    def announce(self, url: str) -> None:
        """Let commands on this machine find the coordinator that now listens."""
        self._note(url)
        # For convenience only: commands also take the folder as an option.
        with suppress(OSError, Failure):
            pointers = _pointers()
            pointers.mkdir(mode=0o700, parents=True, exist_ok=True)
            (pointers / str(os.getpid())).write_bytes(os.fsencode(self.path))

    def release(self) -> None:
        """Give up the folder, so that another `up` can hold it."""
        with suppress(OSError, Failure):
            (_pointers() / str(os.getpid())).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.seek(0)
            self._lock.truncate()
            self._lock.close()
            self._lock = None

    def token(self, make: Callable[[], str]) -> str:
        """Return the admin's token, which the first call makes.

        Raises:
            Failure: when it can be neither read nor stored.
        """
        found = self.kept(self.token_file)
        if found is None:
            found = make()
            self.keep(self.token_file, found)
        return found

    def kept(self, file: Path) -> str | None:
        """Return the secret in a file of the folder; None when there is none.

        Raises:
            Failure: when it cannot be read.
        """
        try:
            found = read_private(file).strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from None
        return found or None

    def keep(self, file: Path, secret: str) -> None:
        """Store a secret in a file of the folder, all or nothing; from the first byte on only its owner can read it.

        Raises:
            Failure: when it cannot be written.
        """
        unfinished = file.with_name(f"{file.name}.new")
        try:
            write_private(unfinished, secret + "\n")
            unfinished.rename(file)
        except OSError as error:
            raise self._unusable(error) from None

    def running(self) -> Running | None:
        """Return the `up` that holds this folder now; None when there is none, or the folder cannot be read.

        Raises:
            Failure: when somebody else may have written who holds it.
        """
        with suppress(OSError), (self.path / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                for file in (self.path, self.path / "lock"):
                    self._require_own(file)
                return _noted(lock, self.path)
        return None

    def _require_own(self, file: Path) -> None:
        """Refuse a file that others may have written: it says where the token goes, or whose the folder is.

        Raises:
            Failure: naming the file.
        """
        folder, found = self.path.stat(), file.lstat()
        if found.st_uid not in {os.geteuid(), 0}:
            why = f"{file} belongs to another user"
        elif file != self.path and found.st_mode & OF_OTHERS and folder.st_mode & 0o011:
            why = f"other users may write {file}"
        else:
            return
        raise Failure(
            Exit.REFUSED,
            f"{why}, so what it says cannot be trusted.",
            todo="Run this as that user; or look at it, and if it is right, `chown` it to yourself and `chmod go-w` it; or "
            "name another folder with --data.",
        )

    def _make(self) -> None:
        for folder in reversed([self.path, *self.path.parents]):
            if not folder.exists():
                folder.mkdir(mode=0o755)
                if _is_root():
                    folder.chmod(0o711)
                elif folder == self.path:
                    folder.chmod(0o700)
        mark = self.path / MARK
        if mark.exists():
            self._check(mark)
            return
        others = sorted(entry.name for entry in self.path.iterdir() if entry.name not in NOBODYS)
        if others:
            some = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            raise Failure(
                Exit.REFUSED,
                f"{self.path} holds other files ({some}) and is no data folder of Batonpass.",
                todo="Name an empty folder, or one that does not exist yet, with --data.",
            )
        mark.write_text(json.dumps({"batonpass": __version__, "format": FORMAT}) + "\n")
        mark.chmod(0o644)
        if _is_root():
            # The database does not run as root, and has to get through to its own folder.
            self.path.chmod(self.path.stat().st_mode | 0o011)

    def _check(self, mark: Path) -> None:
        self._require_own(mark)
        try:
            noted = json.loads(mark.read_text())
            form = int(noted["format"])
        except DAMAGED:
            raise Failure(
                Exit.REFUSED,
                f"{mark} is damaged.",
                todo=f'If the folder is Batonpass\'s, write {{"format": {FORMAT}}}.',
            ) from None
        if form > FORMAT:
            raise Failure(
                Exit.REFUSED,
                f"{self.path} was written by a newer Batonpass ({noted.get('batonpass', 'unknown')}).",
                todo="Use that version, or another folder with --data.",
            )

    def _held(self) -> Failure:
        found = self.running()
        who = "another process" if found is None else f"process {found.pid}"
        where = f", which listens on {found.url}" if found is not None and found.url else ""
        return Failure(
            Exit.REFUSED,
            f"`batonpass up` already runs on {self.path}: {who}{where}.",
            todo="Use that one, stop it, or name another folder with --data.",
        )

    def _unusable(self, error: OSError) -> Failure:
        return Failure(
            Exit.REFUSED,
            f"cannot use {self.path} for the data: {error.strerror or error}.",
            todo="Name a folder that you can write to with --data.",
        )

    def _note(self, url: str) -> None:
        if self._lock is not None:
            self._lock.seek(0)
            self._lock.truncate()
            self._lock.write(json.dumps({"pid": os.getpid(), "url": url}) + "\n")
            self._lock.flush()


def _is_root() -> bool:
    return os.geteuid() == 0


def running_here() -> list[Running]:
    """Return every `up` of this user on this machine that commands can find by themselves."""
    folders: list[Path] = []
    with suppress(Failure):
        folders.append(default_folder())
    with suppress(OSError, Failure):
        for pointer in _pointers().iterdir():
            with suppress(OSError):
                named = os.fsdecode(pointer.read_bytes()).strip()
                # What a machine that went down has left of one may be full of zeros.
                folders += [Path(named)] if named.startswith("/") and "\0" not in named else []
    found = [UpFolder(folder).running() for folder in folders]
    return sorted({one.folder: one for one in found if one is not None and one.url}.values())


def _noted(lock: IO[str], folder: Path) -> Running:
    try:
        noted = json.loads(lock.read())
        return Running(int(noted["pid"]), str(noted["url"]), folder)
    except DAMAGED:
        return Running(0, "", folder)


def _pointers() -> Path:
    return _kept("XDG_STATE_HOME", ".local/state") / "batonpass" / "up"


def _kept(name: str, at_home: str) -> Path:
    """Return a folder of the XDG base directory specification.

    Raises:
        Failure: when there is none.
    """
    named = variable(name) or ""
    if named.startswith("/"):
        return Path(named)
    if (found := home()) is None:
        raise Failure(
            Exit.BAD_INPUT, "this user has no home folder.", todo=f"Name a folder with --data, or set HOME or {name}."
        )
    return found / at_home
