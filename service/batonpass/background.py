"""Work that goes on beside what a process is asked, for as long as it runs or somebody needs it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("batonpass.background")

AGAIN_S = 5.0


def is_failure(error: BaseException) -> bool:
    """Whether what work raised is its failure, and not the end of the process, of the loop, or of the caller.

    A CancelledError is one where something that the work waited for was cancelled, and the caller was not.
    """
    running = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and running is not None and running.cancelling():
        return False
    return not isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit))


async def kept_going(name: str, work: Callable[[], Awaitable[object]]) -> None:
    """Do work until it ends or is cancelled. If an error ends it, that is a defect: say so, and begin it anew.

    A task that just ended would be missed by nobody, while the process says that it is ready.
    """
    while True:
        try:
            await work()
        except BaseException as error:
            if not is_failure(error):
                raise
            log.exception("%s failed, and begins anew in %s s", name, AGAIN_S)
            await asyncio.sleep(AGAIN_S)
        else:
            return


async def first_to_fail(*work: Awaitable[object]) -> None:
    """Do work side by side until some of it fails, and then cancel the rest."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Background:
    """The tasks of one owner, each of which is kept going (``kept_going``) until it ends or all of them are ended."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, name: str, work: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.create_task(kept_going(name, work), name=name))
        return self._tasks[-1]

    async def end(self) -> None:
        """Cancel every task, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
