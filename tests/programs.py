"""The programs that tests start: where they are, and whether their processes run."""

import os
import shutil
import signal
import subprocess
import sys
from os import environ, pathsep
from pathlib import Path
from typing import Any

APART = ("unshare", "--pid", "--fork", "--kill-child")
TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that ends by itself when it is told to."""

# As in .ci/system.py, which sees to it that there is one.
CHROMIUMS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)


def program(*names: str) -> str:
    """Return where the first of these programs is that there is.

    Raises:
        AssertionError: when there is none; `make test` says how to get it.
    """
    places = f"{Path(sys.executable).parent}{pathsep}{environ.get('PATH', '')}"
    for name in names:
        found = shutil.which(name, path=places)
        if found is not None:
            return found
    raise AssertionError(f"there is no {' or '.join(names)}: `make test` says how to get it")


def chromium() -> str:
    """Return where the browser is."""
    return program(*CHROMIUMS)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not collected yet does not.

    The first process of a machine collects those whose parent has ended, and may take its time.
    """
    return state_of(pid) not in {"Z", "gone"}


def state_of(pid: int) -> str:
    """Return the letter of a process' state, such as T when it is stopped and Z when it has ended; or "gone"."""
    listed = subprocess.run(["ps", "-p", str(pid), "-o", "stat="], capture_output=True, text=True, check=False)
    return listed.stdout[:1] or "gone"


def first_process() -> tuple[str, ...]:
    """Return what makes a command process 1 of a namespace of its own; nothing where that is not allowed."""
    for way in (APART, (*APART, "--user")):
        try:
            if subprocess.run([*way, "true"], check=False, capture_output=True).returncode == 0:
                return way
        except OSError:
            break
    return ()


def terminate(process: subprocess.Popen[Any], *, is_apart: bool) -> None:
    """Send SIGTERM to the process, or to the one in its namespace."""
    if is_apart:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children), signal.SIGTERM)
    else:
        process.terminate()
