"""A worker's own folder: one process has it at a time, which so knows that the process before it is dead.

The member id of each run is kept in it before it is used. So a process that is started again after `kill -9` joins in
the place of the former one at once, and waits for no lease (protocol 3.6).
"""

import fcntl
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batonpass.worker.forked import close_in_children
from batonpass.worker.options import fresh_member_id

log = logging.getLogger("batonpass.worker")

_MEMBER_ID = re.compile(rb"[!-.0-~]{1,255}")


class MemberIds:
    """The member ids of a folder's runs: ``last`` is that of the latest, None where there was none.

    A copy of a folder had no run: whoever worked in the one that was copied may be alive.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder.absolute() / "member-id"
        self._folder = str(folder.stat().st_ino)
        kept = self._file.read_bytes() if self._file.exists() else b""
        member_id, *copied = kept.split()[:2] or [b""]
        # After a machine went down, a file may be cut short, or full of zeros. Earlier versions named no folder.
        is_own = copied in ([], [self._folder.encode()])
        self.last = member_id.decode() if is_own and _MEMBER_ID.fullmatch(member_id) else None

    def new(self) -> str:
        self.last, unfinished = fresh_member_id(), self._file.with_suffix(".new")
        try:
            unfinished.write_text(f"{self.last} {self._folder}")
            unfinished.replace(self._file)
        except OSError as error:
            # Only the next process misses it; this one goes on.
            log.warning("the member id was not kept, so that the next process waits for the lease: %s", error)
        return self.last


@contextmanager
def sole_user_of(folder: Path) -> Iterator[MemberIds]:
    """Hold a folder for this process alone, and make it if it is missing.

    Raises:
        BlockingIOError: when somebody else holds it, in another process or in this one.
        OSError: when it cannot be made, or be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        # A child that is forked may outlive the process.
        close_in_children(lock, lambda held: [held.fileno()])
        try:
            # Not `lockf`: that lock is the process's, so a second worker in it gets it too, and whoever in it opens and
            # closes this file ends it.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(f"another worker works in {folder}: each worker has a folder of its own") from error
        yield MemberIds(folder)
