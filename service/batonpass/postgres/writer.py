"""One writer for the appends of many groups: commits that come while a statement runs go out with the next one.

A lone append goes out at once. Under load appends share statements, and with them the wait for the disk. At most one
commit of a group is in a batch. The writer's task runs only while it has something to do.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from batonpass.postgres.append import Prepared
from batonpass.postgres.connect import sqlstate
from batonpass.runtime.ports import StoreUnavailable

BATCH_COMMITS_MAX: Final = 256
BATCH_BYTES_MAX: Final = 1 << 20
WAITING_MAX: Final = 20_000
"""How many commits may wait; one more is refused with ``StoreUnavailable``."""

MOVED_ON: Final = "23514"
"""A check failed. The only check that a commit can fail is that of a part of a table, on the day of a row."""

Outcome = Exception | None
Write = Callable[[Sequence[Prepared]], Awaitable[Sequence[Outcome]]]


class _Order(NamedTuple):
    prepared: Prepared
    done: asyncio.Future[None]


class Writer:
    """Collects commits and hands them to ``write``, which returns the outcome of each."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: deque[_Order] = deque()
        self._task: asyncio.Task[None] | None = None

    async def append(self, prepared: Prepared) -> None:
        """Have a commit made, or raise why it was not made.

        Raises:
            StoreUnavailable: when too many wait already; then nothing was written. Otherwise what ``write`` says.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise StoreUnavailable(f"{len(self._waiting)} commits are waiting to be written")
        order = _Order(prepared, asyncio.get_running_loop().create_future())
        self._waiting.append(order)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await order.done

    async def _run(self) -> None:
        try:
            while batch := self._next():
                await self._settle(batch)
        finally:
            self._task = None

    def _next(self) -> list[_Order]:
        """Take the next batch. A commit whose caller has stopped waiting is not written."""
        batch: list[_Order] = []
        later: list[_Order] = []
        groups: set[str] = set()
        weight = 0
        while self._waiting and len(batch) < BATCH_COMMITS_MAX and weight < BATCH_BYTES_MAX:
            order = self._waiting.popleft()
            if order.done.done():
                continue
            group_id = order.prepared.commit.group_id
            if group_id in groups:
                later.append(order)
                continue
            groups.add(group_id)
            batch.append(order)
            weight += order.prepared.weight
        self._waiting.extendleft(reversed(later))
        return batch

    async def _settle(self, batch: Sequence[_Order], *, again: int = 3) -> None:
        try:
            outcomes: Sequence[Outcome] = await self._write([order.prepared for order in batch])
        except StoreUnavailable as error:
            outcomes = [StoreUnavailable(error.detail) for _ in batch]
        except Exception as error:  # noqa: BLE001 - the waiting callers must get the error, whatever it is
            if sqlstate(error) == MOVED_ON and again:
                # Rows were on their way into the rest of a table when their day was made. Now they find that day.
                await self._settle(batch, again=again - 1)
                return
            if len(batch) > 1:
                # Something is wrong with one of them. Written one by one, only that one fails.
                for order in batch:
                    await self._settle([order])
                return
            outcomes = [error]
        for order, outcome in zip(batch, outcomes, strict=True):
            if order.done.done():
                continue
            if outcome is None:
                order.done.set_result(None)
            else:
                order.done.set_exception(outcome)
