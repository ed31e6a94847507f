"""A coordinator for tests of workers in any language: `python -m batonpass.worker.testing --port 8420`.

It makes the real decisions, keeps nothing, asks for no token, and needs nothing but the worker's own package.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence

from batonpass.runtime.ports import RecordLog
from batonpass.terminal import say, say_on_stderr
from batonpass.worker.testing.coordinator import LocalCoordinator
from batonpass.worker.testing.http import HttpServer


async def serve(port: int, *, log: RecordLog | None = None) -> None:
    """Serve on a port of this machine until told to stop; 0 is any free one. The first line printed has the URL.

    Raises:
        OSError: when the port is taken.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with LocalCoordinator(log=log) as coordinator, HttpServer(coordinator.answer, port=port) as server:
        say(f"A coordinator for tests listens on {server.url}")
        await stop.wait()
        coordinator.coordinator.end_waits()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m batonpass.worker.testing", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port to listen on; 0 is any free one")
    asked = parser.parse_args(arguments)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(asked.port))
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        say_on_stderr(f"batonpass: cannot listen on port {asked.port}: {why}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
