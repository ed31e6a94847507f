"""A coordinator that notes for how long its event loop stood still, and what every thread was doing then.

Run as a process of its own, with the file to write to as its argument. A stack is taken by a thread that needs no lock
of the interpreter (``faulthandler``), so that it shows also what keeps this lock.
"""

import asyncio
import faulthandler
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from batonpass.bootstrap import serve
from batonpass.settings import Settings
from batonpass.sockets import bind_all

LOOK_EVERY_S = 0.02
STACK_AFTER_S = 0.1
"""A stall that lasts longer is noted, with what ran when it had lasted so long."""


@dataclass(frozen=True, slots=True)
class Stall:
    """For how long the loop stood still, for how long its thread and the process worked then, and what each thread ran.

    Where the thread worked for much less, it waited for the lock of the interpreter; where the process did, for a core.
    In ``stacks``, the thread of the loop comes last, and the innermost call of each thread first.
    """

    ms: float
    cpu_ms: float
    process_ms: float
    stacks: str


async def _watch(notes: Path) -> None:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryFile("w+") as dumped, notes.open("a") as file:
        while True:
            dumped.seek(0)
            dumped.truncate()
            faulthandler.dump_traceback_later(STACK_AFTER_S + LOOK_EVERY_S, file=dumped)
            due, before = loop.time() + LOOK_EVERY_S, (time.thread_time(), time.process_time())
            await asyncio.sleep(LOOK_EVERY_S)
            late_s = loop.time() - due
            cpu_s, process_s = time.thread_time() - before[0], time.process_time() - before[1]
            faulthandler.cancel_dump_traceback_later()
            if late_s >= STACK_AFTER_S:
                dumped.seek(0)
                stall = Stall(late_s * 1_000, cpu_s * 1_000, process_s * 1_000, dumped.read())
                file.write(json.dumps(asdict(stall)) + "\n")
                file.flush()


def noted(notes: Path) -> list[Stall]:
    """Return what was noted, in the order of time."""
    return [Stall(**json.loads(line)) for line in notes.read_text().splitlines()] if notes.exists() else []


def busy_with(stacks: str) -> str:
    """Return the innermost calls of this product in what ``faulthandler`` wrote, one for each thread that has any."""
    threads = stacks.split("\n\n")
    calls = [[one for one in thread.splitlines() if "/batonpass/" in one] for thread in threads]
    places = [lines[0].rpartition("/batonpass/")[2].replace('", line ', ":") for lines in calls if lines]
    return "; ".join(place for place in places if not place.startswith("bootstrap.py")) or "nothing of its own"


def main() -> None:
    """Serve as the environment says."""
    watching: list[asyncio.Task[None]] = []
    notes = Path(sys.argv[1])
    settings = Settings()
    serve(
        settings,
        listeners=bind_all(settings.host, settings.port),
        listening=lambda _url: watching.append(asyncio.ensure_future(_watch(notes))),
    )


if __name__ == "__main__":
    main()
