"""Run the steps of `make check` or `make test`, every one of them, and close with what came of each.

A step that fails does not hide the next one; the exit code is 1 if any failed. The tests with processes, leases and
timers wait for more than half of it; the other steps run beside them then, with what the cores have left, and say
what they have to say when they are over. `BATONPASS_TEST_WITHOUT` (see tests/conftest.py) is repeated in the summary,
so that a run that left something out never looks like a whole one.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# These tests wait for more than half of their time; with many more processes those that count on an answer in time
# would wait for one another.
PROCESSES = 2 * CORES


class Step(NamedTuple):
    """A command of the environment with what it adds to the process environment."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


CHECK = (
    Step("ruff", ("ruff", "check", ".")),
    Step("ruff format", ("ruff", "format", "--check", ".")),
    Step("mypy", ("mypy", "service", "tests")),
    Step(
        "mypy .ci",
        ("mypy", *(f".ci/{name}.py" for name in ("containers", "environment", "release", "steps", "system"))),
    ),
    Step("import-linter", ("lint-imports",)),
    Step("codespell", ("codespell",)),
    Step("zizmor", ("zizmor", "--offline", "--quiet", ".github")),
)
# The iteration order of a set of strings depends on the hash seed. Two tests of the core decide the same under several
# of them; here the core runs under one, and whatever uses it under another.
PURE: Final = tuple(f"tests/{name}" for name in ("core", "dry_run", "explain", "invariants", "placement"))
"""The tests of what is held to 100 % of its branches (``source_pkgs`` in pyproject.toml), all together."""
CORE = Step(
    "core, hash seed 1, 100 % branches",
    ("pytest", "-qq", "-n", "auto", "--cov", "--cov-report=term", *PURE),
    (("PYTHONHASHSEED", "1"),),
)
SIMULATED: Final = tuple(f"tests/{name}" for name in ("codec", "explorer", "simulate"))
"""Tests that start no processes and wait for nothing either."""
SIMULATOR = Step(
    "simulator, explorer and codec, hash seed 2",
    ("pytest", "-qq", "-n", "auto", *SIMULATED),
    (("PYTHONHASHSEED", "2"),),
)
ALL_ELSE = Step(
    "all else, hash seed 2",
    (
        "pytest",
        "-n",
        str(PROCESSES),
        "--dist",
        "loadfile",
        "--durations=20",
        *(f"--ignore={folder}" for folder in (*PURE, *SIMULATED)),
    ),
    (("PYTHONHASHSEED", "2"),),
)
BESIDE: Final = 10
"""The niceness of what runs beside the tests that count on answers in time."""


def kept_bytecode() -> dict[str, str]:
    """Return what lets Python keep its bytecode out of sight where it is told to write none beside the sources.

    The tests start some hundred processes, and without bytecode each compiles all that it imports.
    """
    if not os.environ.get("PYTHONDONTWRITEBYTECODE"):
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bytecode")}


class Outcome(NamedTuple):
    """What came of a step; ``output`` is what was not shown yet."""

    step: Step
    passed: bool
    seconds: float
    output: str


def run(step: Step, *, beside: bool = False) -> Outcome:
    """Run one step; ``beside`` others it takes what they leave of the cores, and shows nothing meanwhile."""
    name, *arguments = step.command
    if not beside:
        print(f"\n--- {step.name}: {' '.join(step.command)}", flush=True)
    started = time.monotonic()
    done = subprocess.run(
        ["nice", "-n", str(BESIDE), str(BIN / name), *arguments] if beside else [str(BIN / name), *arguments],
        cwd=ROOT,
        env=os.environ | kept_bytecode() | dict(step.environment),
        stdout=subprocess.PIPE if beside else None,
        stderr=subprocess.STDOUT if beside else None,
        text=True,
        check=False,
    )
    return Outcome(step, done.returncode == 0, time.monotonic() - started, done.stdout or "")


def test() -> list[Outcome]:
    """Run every test, and what is checked without tests beside them."""
    with ThreadPoolExecutor(1) as thread:
        others = thread.submit(lambda: [run(step, beside=True) for step in (*CHECK, CORE, SIMULATOR)])
        last = run(ALL_ELSE)
        for one in others.result():
            print(f"\n--- {one.step.name}: {' '.join(one.step.command)}\n{one.output}", flush=True)
        return [*others.result(), last]


def main() -> int:
    """Run all steps of what the first argument names and sum them up."""
    outcomes = test() if sys.argv[1] == "test" else [run(step) for step in CHECK]
    print(f"\n--- make {sys.argv[1]}")
    for one in outcomes:
        print(f"{'passed' if one.passed else 'FAILED'}  {one.seconds:6.1f} s  {one.step.name}")
    if sys.argv[1] == "test":
        print(f"left out by BATONPASS_TEST_WITHOUT: {os.environ.get('BATONPASS_TEST_WITHOUT') or 'nothing'}")
    return 0 if all(one.passed for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
