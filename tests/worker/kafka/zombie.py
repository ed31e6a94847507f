"""A process that owns a task and stops itself, as a suspended machine does, at one step between grant and commit.

``python -m tests.worker.kafka.zombie JOB FOLDER STEP``: JOB is the job as JSON. Its lease holds until it stops and is
over soon after, on a clock that counts the time in which the process stands still. When it goes on, it does whatever a
worker does that has not heard anything yet, says on standard output how that ended, and ends.
"""

import asyncio
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.worker.kafka.totals import Job, Owner, from_words

from batonpass.worker.kafka import ActiveOptions, Context
from batonpass.worker.kafka.active import Active
from batonpass.worker.kafka.changelog import Changelog
from batonpass.worker.kafka.clients import Clients
from batonpass.worker.kafka.transaction import Producer
from batonpass.worker.protocol import Role
from batonpass.worker.tasks import Task


@dataclass
class Zombie(Owner):
    """An owner whose lease is over at some instant; it went on past leases when it joined ("continue")."""

    lease_ends: float = float("inf")

    def lease_is_over(self, now_ms: int) -> bool:  # noqa: ARG002 - the clock counts suspended time
        """Whether the lease is over."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) >= self.lease_ends


LEASE_LEFT_S = 0.2

STEPS: dict[str, tuple[type, str, bool]] = {
    "granted": (Clients, "fence", True),
    "fenced-others": (Clients, "fence", False),
    "read-end": (Changelog, "ends", False),
    "restored": (Active, "_restore", False),
    "checked-lease": (Clients, "find_input", True),
    "read-offsets": (Active, "_check_commits", False),
    "running": (Task, "running", False),
    "begun": (Producer, "begin_transaction", False),
    "processed": (Active, "_fill", False),
    "written": (Context, "flush", False),
    "offsets-sent": (Producer, "send_offsets_to_transaction", False),
    "committed": (Active, "_count", False),
}
"""How far an active has come, in order: a call, and whether it is before it, or after."""


def have_stopped_at(step: str, stop: Callable[[], None]) -> None:
    """Have a function called at a step."""
    owner, name, is_before = STEPS[step]
    call = getattr(owner, name)

    async def awaited(*given: Any, **more: Any) -> Any:
        if is_before:
            stop()
        result = await call(*given, **more)
        if not is_before:
            stop()
        return result

    def called(*given: Any) -> None:
        call(*given)
        stop()

    setattr(owner, name, awaited if inspect.iscoroutinefunction(call) else called)


async def main(job: Job, folder: Path, step: str) -> None:
    """Own the task, stop at the step, and go on when told."""
    stopped = asyncio.Event()

    def stop() -> None:
        if not stopped.is_set():
            stopped.set()
            zombie.lease_ends = time.clock_gettime(time.CLOCK_BOOTTIME) + LEASE_LEFT_S
            os.kill(os.getpid(), signal.SIGSTOP)

    have_stopped_at(step, stop)
    options = ActiveOptions(commit_interval_ms=50, records_max=20)
    zombie = Zombie(job.runtime(folder, "zombie", options=options))
    zombie.hold("0_0", Role.ACTIVE)
    await stopped.wait()
    # Long enough for everything that it might still get through.
    await asyncio.sleep(1.5)
    print(json.dumps({"states": zombie.states}), flush=True)  # noqa: T201 - how the test learns it
    await zombie.close()


if __name__ == "__main__":
    asyncio.run(main(from_words(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
