"""Where the programs are that tests start: in the environment, where `make test` links them, or on the path."""

import shutil
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
