"""docs/architecture.md says in which order to read: its files are there, and none of `decide()` is missing."""

import re
import subprocess
import sys
from pathlib import Path

from tests.invariants.test_laws_page import PAGE

SOURCES = Path(__file__).parents[2] / "service" / "batonpass"
FILE = re.compile(r"`([\w/]+\.py|[\w/]+/\*?)`")


def named() -> set[str]:
    """Return the files that the tables and the list name. One without a folder is in that of the file before it."""
    found: set[str] = set()
    for line in PAGE.read_text().partition("## Reading order")[2].partition("### One heartbeat")[0].splitlines():
        folder = ""
        for name in FILE.findall(line):
            if not name.endswith(".py"):
                folder = name.rstrip("*")
                continue
            path = name if "/" in name else folder + name
            folder = path.rpartition("/")[0] + "/"
            found.add(path)
    return found


def test_every_file_that_it_names_is_there() -> None:
    assert sorted(name for name in named() if not (SOURCES / name).is_file()) == []


def test_it_names_every_file_that_a_decision_reaches() -> None:
    code = "import sys, batonpass.core.decide; print(*(getattr(m, '__file__', None) for m in [*sys.modules.values()]), sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    reached = {path.relative_to(SOURCES).as_posix() for path in map(Path, loaded) if path.is_relative_to(SOURCES)}
    assert "core/decide.py" in reached
    assert sorted(name for name in reached - named() if not name.endswith("__init__.py")) == []
