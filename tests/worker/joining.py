"""A worker that waits for its join: ``python -m tests.worker.joining URL block|threads|run|threads-run``.

It prints "waiting" once it handles SIGTERM, or should have long since, and at the end why it ended.
"""

import asyncio
import signal
import sys
import threading
import time

from batonpass.terminal import say
from batonpass.worker import Callbacks, Member, ThreadCallbacks, ThreadedMember

LATE_S = 5.0


def watch() -> None:
    """Say when SIGTERM is handled."""
    ends_at = time.monotonic() + LATE_S
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and time.monotonic() < ends_at:
        time.sleep(0.01)
    say("waiting")


async def on_asyncio(url: str, *, joins: bool) -> None:
    """Be a member on an event loop."""
    member = Member(url, "orders", Callbacks())
    if joins:
        async with member:
            await member.run()
    member.start()
    say(await member.run())


def in_threads(url: str, *, joins: bool) -> None:
    """Be a member in threads."""
    member = ThreadedMember(url, "orders", ThreadCallbacks())
    if joins:
        with member:
            member.run()
    member.start()
    say(member.run())


if __name__ == "__main__":
    threading.Thread(target=watch, daemon=True).start()
    url, how = sys.argv[1:]
    if how.startswith("threads"):
        in_threads(url, joins=how == "threads")
    else:
        asyncio.run(on_asyncio(url, joins=how == "block"))
