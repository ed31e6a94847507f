"""What a process and those that it starts cost: seconds on the clock and of the processors, and the most memory."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import IO, Any, NamedTuple

LOOK_S = 0.5
PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """Megabytes are of resident memory at its highest: the process itself, its JVM, the other processes together."""

    seconds: float
    cpu_seconds: float
    driver_mb: int
    jvm_mb: int
    others_mb: int
    result: dict[str, Any]
    stderr: str


PROGRESS = "> "
"""Lines of a process's standard error that begin so are shown as they come."""


def cost_of(*module: str) -> Cost:
    """Run a Python module to its end, and return what it cost and the JSON that it printed last.

    What it says of its progress is shown as it comes.

    Raises:
        RuntimeError: when it fails; the text has the end of what it said.
    """
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=-1,
        env=os.environ | _kept_bytecode(),
    )
    most, cpu = [0, 0, 0], 0.0
    spent: dict[int, float] = {}
    kept: list[str] = []
    listens = Thread(target=_relay, args=(process.stderr, kept), daemon=True)
    listens.start()
    with process:
        while process.returncode is None:
            sizes = _look(process.pid, spent)
            most = [max(one, other) for one, other in zip(most, sizes, strict=True)]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
        # What it has started and no longer waits for may hold its output open for a while.
        seconds = time.monotonic() - begun
        assert process.stdout is not None
        out = process.stdout.read()
        listens.join()
        err = "".join(kept)
    cpu = sum(spent.values())
    if process.returncode:
        raise RuntimeError(f"{module} ended with {process.returncode}: {err[-2_000:]}")
    driver, jvm, others = (one // 2**20 for one in most)
    return Cost(seconds, cpu, driver, jvm, others, json.loads(out.splitlines()[-1]), err)


def _kept_bytecode() -> dict[str, str]:
    """Return what lets Python keep its bytecode where it is told to write none: a second start is what is measured."""
    if not os.environ.get("PYTHONDONTWRITEBYTECODE"):
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(".cache/bytecode").absolute())}


def _relay(stderr: IO[str] | None, kept: list[str]) -> None:
    for line in stderr or ():
        kept.append(line)
        if line.startswith(PROGRESS):
            sys.stdout.write(f"    {line.removeprefix(PROGRESS)}")
            sys.stdout.flush()


def _look(root: int, spent: dict[int, float]) -> tuple[int, int, int]:
    """Note what each process has spent, and return the resident bytes of the root, of JVMs, and of the others."""
    parents: dict[int, list[int]] = {}
    stats: dict[int, tuple[str, float, int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            line = (folder / "stat").read_text()
        except OSError:
            continue
        name, _, rest = line.partition("(")[2].rpartition(")")
        fields = rest.split()
        stats[int(folder.name)] = (name, (int(fields[11]) + int(fields[12])) / TICK, int(fields[21]) * PAGE)
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
    driver = jvm = others = 0
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting += parents.get(pid, [])
        if pid not in stats:
            continue
        name, cpu, size = stats[pid]
        spent[pid] = max(spent.get(pid, 0.0), cpu)
        if pid == root:
            driver = size
        elif name == "java":
            jvm += size
        else:
            others += size
    return driver, jvm, others
