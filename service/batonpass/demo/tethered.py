"""Run a module as a program that ends with the process which started it, however that one ends.

A script of its own, started as `python -P tethered.py PARENT MODULE ARGUMENT...`, with a pipe that the parent holds as
its standard input. On Linux the system kills it with its parent; elsewhere it ends when the pipe does.
"""

import ctypes
import os
import runpy
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1


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
