"""The programs that tests start: where they are, and whether their processes run."""

import shutil
import subprocess
import sys
from os import environ, pathsep
from pathlib import Path

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
