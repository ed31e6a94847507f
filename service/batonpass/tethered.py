"""Run a module as a program that ends with the process that started it, however that process ends.

A script of its own, which ``tethered_command`` starts. The parent holds the other end of its standard input, a pipe. On
Linux the system kills it with its parent; elsewhere it ends when the pipe does. Use it for modules of Python that may
be killed at any time, such as workers. A server that has to stop in good order needs `batonpass.child_watchdog`.
"""

import ctypes
import os
import runpy
import signal
import sys
import threading
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def tethered_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a module and ends with this process."""
    return [sys.executable, "-P", __file__, str(os.getpid()), module, *arguments]


def tie(parent: int) -> None:
    """End this process when its parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    else:
        threading.Thread(target=_watch, daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    tie(int(sys.argv[1]))
    module = sys.argv[2]
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
