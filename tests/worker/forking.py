"""A worker that has a child do its work: ``python -m tests.worker.forking URL GROUP pool|fork``.

It prints a line of JSON for what happens, with the process id of the child.
"""

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor

from batonpass import terminal
from batonpass.worker import Callbacks, Member, OnLeaseLost, Revocation, Task


def say(event: str, **fields: object) -> None:
    """Print an event."""
    terminal.say(json.dumps({"event": event} | fields))


class Holder(Callbacks):
    """Has no state."""

    async def on_active(self, task: Task) -> None:
        """Run."""
        task.running()
        say("running", task=task.id)
        await task.stop_requested()

    async def on_standby(self, task: Task) -> None:
        """Be caught up."""
        task.report(lag=0)

    async def on_revoke(self, task: Task, revocation: Revocation) -> None:  # noqa: ARG002 - any way alike
        """Stop."""
        say("revoked", task=task.id, role=task.role)


async def main(url: str, group: str, how: str) -> None:
    """Join, have children, and work."""
    async with Member(url, group, Holder(), on_lease_lost=OnLeaseLost.CONTINUE) as member:
        # The connections of heartbeat and long-poll are there.
        await asyncio.sleep(1)
        pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
        if how == "pool":
            say("child", pid=await asyncio.get_running_loop().run_in_executor(pool, os.getpid))
        elif pid := os.fork():
            say("child", pid=pid)
        else:
            signal.pause()
        await member.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
