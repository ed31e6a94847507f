"""Files that only their owner can read: those with a secret in them, and locks."""

import errno
import os
from pathlib import Path
from typing import IO


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first byte on; one that was there is removed before.

    Raises:
        OSError: when that is not possible.
    """
    path.unlink(missing_ok=True)
    # A file that another process makes in between is not written to.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def read_private(path: Path) -> str:
    """Return what a file of this user says, which from now on nobody else can read.

    A link is not followed, and of others' files, which root could read, none is: they may have put it there.

    Raises:
        OSError: when that is not possible; ``FileNotFoundError`` when there is none.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
        if os.fstat(file.fileno()).st_uid not in {os.geteuid(), 0}:
            raise PermissionError(errno.EPERM, f"{path.name} belongs to another user", str(path))
        os.fchmod(file.fileno(), 0o600)
        try:
            return file.read()
        except UnicodeDecodeError:
            raise OSError(errno.EILSEQ, f"{path.name} is damaged, it is not text", str(path)) from None


def open_lock(path: Path) -> IO[str]:
    """Open a file to lock it, and make it if necessary. Whoever can read a file can lock it, so only its owner can.

    Raises:
        OSError: when that is not possible.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "r+")
