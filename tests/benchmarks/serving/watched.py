"""A coordinator that notes for how long its event loop stood still, and what every thread was doing then.

Run as a process of its own, with the file to write to as its argument. Stacks are taken by a thread as soon as it gets
the lock of the interpreter: whatever reads them without (``faulthandler``) ends the process now and then.
"""

import asyncio
import json
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

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


class _Stacks(threading.Thread):
    """Takes the stacks of all threads once the loop has been late for long."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._loop = threading.get_ident()
        self.due = time.monotonic()
        self.taken = ""

    def run(self) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            if not self.taken and time.monotonic() - self.due > STACK_AFTER_S:
                frames = sorted(sys._current_frames().items(), key=lambda one: one[0] == self._loop)
                self.taken = "\n\n".join("\n".join(_calls(frame)) for _, frame in frames)


def _calls(frame: FrameType) -> Iterator[str]:
    for call, line in traceback.walk_stack(frame):
        yield f'  File "{call.f_code.co_filename}", line {line} in {call.f_code.co_name}'


async def watch(notes: Path) -> None:
    """Note when the loop stands still, until cancelled."""
    loop, stacks = asyncio.get_running_loop(), _Stacks()
    stacks.start()
    with notes.open("a") as file:
        while True:
            due, before = loop.time() + LOOK_EVERY_S, (time.thread_time(), time.process_time())
            stacks.due, stacks.taken = time.monotonic() + LOOK_EVERY_S, ""
            await asyncio.sleep(LOOK_EVERY_S)
            late_s = loop.time() - due
            cpu_s, process_s = time.thread_time() - before[0], time.process_time() - before[1]
            if late_s >= STACK_AFTER_S:
                stall = Stall(late_s * 1_000, cpu_s * 1_000, process_s * 1_000, stacks.taken)
                file.write(json.dumps(asdict(stall)) + "\n")
                file.flush()


def noted(notes: Path) -> list[Stall]:
    """Return what was noted, in the order of time."""
    return [Stall(**json.loads(line)) for line in notes.read_text().splitlines()] if notes.exists() else []


def busy_with(stacks: str) -> str:
    """Return the innermost calls of this product in such stacks, one for each thread that has any."""
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
        listening=lambda _url: watching.append(asyncio.ensure_future(watch(notes))),
    )


if __name__ == "__main__":
    main()
