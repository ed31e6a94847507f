"""A coordinator's name identifies its process: ``place.process.start.random``.

``place`` is a digest of the boot id and the PID namespace. A coordinator on the same place can therefore tell whether
the process of an old name is dead. Any other name proves nothing.
"""

import hashlib
import os
import secrets
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_PARTS: Final = 4
# Of the fields of /proc/PID/stat behind the program's name: the first is the state, and the twentieth the start.
_STATE: Final = 0
_START: Final = 19
_OVER: Final = frozenset("ZXx")


class _Process(NamedTuple):
    place: str
    pid: int
    start: str


def fresh_name() -> str:
    """Return a name that no coordinator ever had. It identifies this process, if the system tells enough about it."""
    found = _this_process()
    unique = secrets.token_hex(8)
    return unique if found is None else f"{found.place}.{found.pid}.{found.start}.{unique}"


def is_dead(name: str) -> bool:
    """Return whether it is certain that the process of this name has ended. False: it may run, or that is unknown."""
    parts, here = name.split("."), _this_process()
    if here is None or len(parts) != _PARTS or parts[0] != here.place or not parts[1].isdecimal():
        return False
    pid, start = int(parts[1]), parts[2]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        # It exists and belongs to another user; its start may be readable all the same.
        pass
    fields = _stat(pid)
    if fields is None:
        return False
    # A process that has ended and was not waited for yet keeps its id, but has no other threads left.
    return fields[_START] != start or (fields[_STATE] in _OVER and _threads(pid) <= 1)


def _this_process() -> _Process | None:
    """Return what identifies this process; None if the system does not say."""
    fields = _stat(os.getpid())
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        space = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return None
    if fields is None or not boot:
        return None
    place = hashlib.blake2b(f"{boot}\0{space}".encode(), digest_size=8).hexdigest()
    return _Process(place, os.getpid(), fields[_START])


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name of the program stands in brackets, and may hold anything.
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > _START else None


def _threads(pid: int) -> int:
    try:
        return len(list((_PROC / str(pid) / "task").iterdir()))
    except OSError:
        return 0
