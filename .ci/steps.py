"""Run the steps of `make check` or `make test`, every one of them, and close with what came of each.

A step that fails does not hide the next one; the exit code is 1 if any failed. The longest comes last, so that
pytest's closing line is the last thing before the summary. `BATONPASS_TEST_WITHOUT` (see tests/conftest.py) is
repeated in the summary, so that a run that left something out never looks like a whole one.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# Many tests beside the core's wait: for other processes, for leases, for timers. One process for each core leaves the
# cores idle at times; with many more, tests that count on an answer in time would wait for one another.
PROCESSES = CORES + (CORES + 1) // 2


class Step(NamedTuple):
    """A command of the environment with what it adds to the process environment."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


CHECK = (
    Step("ruff", ("ruff", "check", ".")),
    Step("ruff format", ("ruff", "format", "--check", ".")),
    Step("mypy", ("mypy", "service", "tests")),
    Step("mypy .ci", ("mypy", ".ci/containers.py", ".ci/environment.py", ".ci/steps.py", ".ci/system.py")),
    Step("import-linter", ("lint-imports",)),
    Step("codespell", ("codespell",)),
)
# The iteration order of a set of strings depends on the hash seed. Two tests of the core decide the same under several
# of them; here the core runs under one, and whatever uses it under another.
TEST = (
    *CHECK,
    Step(
        "core, hash seed 1, 100 % branches",
        ("pytest", "-qq", "-n", "auto", "--cov", "--cov-report=term", "tests/core"),
        (("PYTHONHASHSEED", "1"),),
    ),
    Step(
        "all else, hash seed 2",
        ("pytest", "-n", str(PROCESSES), "--dist", "loadfile", "--durations=20", "--ignore=tests/core"),
        (("PYTHONHASHSEED", "2"),),
    ),
)


def kept_bytecode() -> dict[str, str]:
    """Return what lets Python keep its bytecode out of sight where it is told to write none beside the sources.

    The tests start some hundred processes, and without bytecode each compiles all that it imports.
    """
    if not os.environ.get("PYTHONDONTWRITEBYTECODE"):
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bytecode")}


def run(step: Step) -> tuple[bool, float]:
    """Run one step; return whether it passed, and its seconds."""
    name, *arguments = step.command
    print(f"\n--- {step.name}: {' '.join(step.command)}", flush=True)
    started = time.monotonic()
    around = os.environ | kept_bytecode() | dict(step.environment)
    done = subprocess.run([str(BIN / name), *arguments], cwd=ROOT, env=around, check=False)
    return done.returncode == 0, time.monotonic() - started


def main() -> int:
    """Run all steps of what the first argument names and sum them up."""
    steps = {"check": CHECK, "test": TEST}[sys.argv[1]]
    results = [(step.name, *run(step)) for step in steps]
    print(f"\n--- make {sys.argv[1]}")
    for name, passed, seconds in results:
        print(f"{'passed' if passed else 'FAILED'}  {seconds:6.1f} s  {name}")
    if sys.argv[1] == "test":
        print(f"left out by BATONPASS_TEST_WITHOUT: {os.environ.get('BATONPASS_TEST_WITHOUT') or 'nothing'}")
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
