"""State on disk that this member no longer needs: how much there is, and when it is removed."""

import asyncio
import logging
from collections.abc import Awaitable

from batonpass.background import is_failure
from batonpass.worker.protocol import Phase
from batonpass.worker.tasks import Callbacks, Driver

log = logging.getLogger("batonpass.worker")

LOOK_S = 30.0
LEAST_LOOK_S = 0.1


class Disk:
    """Reports to the member's machine what is on disk, and has state removed ``delay_ms`` after it moved away.

    Only time in which the coordinator could have asked for the state counts: while this member is joined and its lease
    holds.
    """

    def __init__(self, driver: Driver, callbacks: Callbacks, *, delay_ms: int) -> None:
        self._machine = driver.machine
        self._clock = driver.clock
        self._turn = driver.turn
        self._callbacks = callbacks
        self._delay_ms = delay_ms
        self._unused_since: dict[str, int] = {}
        self._removing: dict[str, asyncio.Event] = {}

    async def removed(self, task: str) -> None:
        """Wait until a removal of the task's state that is under way has ended."""
        if task in self._removing:
            await self._removing[task].wait()

    async def keep(self) -> None:
        """Check again and again, until this is cancelled."""
        while True:
            await self._tried(self._look())
            await asyncio.sleep(min(LOOK_S, max(LEAST_LOOK_S, self._delay_ms / 1_000)))

    async def _tried(self, work: Awaitable[None]) -> None:
        """Do something that is done again with the next look if it fails, and that nothing else is to wait for."""
        try:
            await work
        except BaseException as error:
            if not is_failure(error):
                raise
            log.exception("state on disk could not be looked at, or not be removed; it is tried again")

    def used(self, task: str) -> None:
        """Restart the clock for unused state: the task begins or ends here."""
        self._unused_since.pop(task, None)

    async def _look(self) -> None:
        sizes = dict(await self._callbacks.disk_bytes())
        self._turn(lambda now: self._machine.disk_bytes(sizes, now_ms=now))
        now_ms = self._clock()
        unused = {task for task in sizes if self._is_unused(task)}
        self._unused_since = {task: self._unused_since.get(task, now_ms) for task in unused}
        for task, since_ms in tuple(self._unused_since.items()):
            # Other state may have been asked for while one was removed.
            if now_ms - since_ms >= self._delay_ms and self._is_unused(task):
                await self._tried(self._remove(task))
        numbers = dict(await self._callbacks.numbers())
        self._turn(lambda now: self._machine.numbers(numbers, now_ms=now))

    def _is_unused(self, task: str) -> bool:
        if self._machine.phase is not Phase.JOINED or self._machine.lease_is_over(self._clock()):
            return False
        return task not in self._machine.holdings and task not in self._machine.assignment.roles

    async def _remove(self, task: str) -> None:
        log.info("the state of %s moved away %s ms ago: removed", task, self._delay_ms)
        # The state is withdrawn first, so that a task that comes back in between begins from nothing.
        self._turn(lambda now: self._machine.state_removed(task, now_ms=now))
        over = self._removing[task] = asyncio.Event()
        try:
            await self._callbacks.remove_state(task)
        finally:
            del self._removing[task]
            over.set()
