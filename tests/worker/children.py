"""Children that a test forks."""

import os
import socket
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DESCRIPTORS = 200


@contextmanager
def forked(seen: Callable[[], int] = int) -> Iterator[Callable[[], int]]:
    """Fork a child that lives for the block at most. What this gives ends it, and returns what ``seen`` gave there."""
    told, tell = os.pipe()
    with warnings.catch_warnings():
        # Since 3.12 Python warns of threads, which this child does not need.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 255
        try:
            os.close(tell)
            os.read(told, 1)
            code = seen()
        finally:
            os._exit(code)
    os.close(told)
    codes: list[int] = []

    def end() -> int:
        if not codes:
            os.close(tell)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return codes[0]

    try:
        yield end
    finally:
        end()


def connections(port: int) -> int:
    """Return how many connections to a port this process has."""
    found = 0
    for descriptor in range(DESCRIPTORS):
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as copy:
                found += copy.family is not socket.AF_UNIX and copy.getpeername()[1] == port
        except OSError:
            continue
    return found
