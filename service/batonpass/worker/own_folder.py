"""A worker's own folder: one process has it at a time, which so knows that the process before it is dead.

The member id of each run is kept in it before it is used. So a process that is started again after `kill -9` joins in
the place of the former one at once, and waits for no lease (protocol 3.6).
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batonpass.worker.options import fresh_member_id

log = logging.getLogger("batonpass.worker")


class MemberIds:
    """The member ids of a folder's runs: ``last`` is that of the latest, None where there was none."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "member-id"
        self.last = (self._file.read_text().strip() or None) if self._file.exists() else None

    def new(self) -> str:
        self.last, unfinished = fresh_member_id(), self._file.with_suffix(".new")
        try:
            unfinished.write_text(self.last)
            unfinished.replace(self._file)
        except OSError as error:
            # Only the next process misses it; this one goes on.
            log.warning("the member id was not kept, so that the next process waits for the lease: %s", error)
        return self.last


@contextmanager
def sole_user_of(folder: Path) -> Iterator[MemberIds]:
    """Hold a folder for this process alone, and make it if it is missing.

    Raises:
        BlockingIOError: when another process holds it.
        OSError: when it cannot be made, or be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        try:
            # A child that is forked has no part in this lock, and may outlive the process.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # POSIX has both for a lock that another one holds
            raise BlockingIOError(f"another process works in {folder}: each worker has a folder of its own") from error
        yield MemberIds(folder)
