"""A process that owns a task and stops itself, as a suspended machine does, at one step between grant and commit.

``python -m tests.worker.kafka.zombie JOB FOLDER STEP``: JOB is the job as JSON. Its lease holds until it stops and is
over soon after, on a clock that counts the time in which the process stands still. When it goes on, it does whatever a
worker does that has not heard anything yet, says on standard output how that ended, and ends.
"""

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.worker.kafka.totals import Job, Owner, from_words

from batonpass.worker.kafka import ActiveOptions, Step
from batonpass.worker.protocol import Role


@dataclass
class Zombie(Owner):
    """An owner whose lease is over at some instant; it went on past leases when it joined ("continue")."""

    lease_ends: float = float("inf")

    def may_begin(self, task: str) -> bool:  # noqa: ARG002 - the lease is that of all tasks
        """Whether the lease holds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) < self.lease_ends


LEASE_LEFT_S = 0.2


async def main(job: Job, folder: Path, step: Step) -> None:
    """Own the task, stop at the step, and go on when told."""
    stopped = asyncio.Event()

    def observe(_task: str, reached: Step) -> None:
        if reached is step and not stopped.is_set():
            stopped.set()
            zombie.lease_ends = time.clock_gettime(time.CLOCK_BOOTTIME) + LEASE_LEFT_S
            os.kill(os.getpid(), signal.SIGSTOP)

    options = ActiveOptions(observe=observe, commit_interval_ms=50, records_max=20)
    zombie = Zombie(job.runtime(folder, "zombie", options=options))
    zombie.hold("0_0", Role.ACTIVE)
    await stopped.wait()
    # Long enough for everything that it might still get through.
    await asyncio.sleep(1.5)
    print(json.dumps({"states": zombie.states}), flush=True)  # noqa: T201 - how the test learns it
    await zombie.close()


if __name__ == "__main__":
    asyncio.run(main(from_words(sys.argv[1]), Path(sys.argv[2]), Step(sys.argv[3])))
