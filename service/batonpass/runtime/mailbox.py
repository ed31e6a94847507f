"""One bounded mailbox per group: waiting inputs are carried out as a batch, and a full mailbox refuses at once.

An input that writes nothing is answered on the spot if the mailbox is idle. While a batch is carried out, the next one
gathers. The batches of all groups take turns, because many deadlines may fall together. A command is a batch of its
own, because it leaves a row in the audit trail. An input is carried out even if its caller disconnects.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import Heartbeat, Input, Tick
from batonpass.core.state.replies import Reply
from batonpass.loop_turns import LoopTurns
from batonpass.runtime.engine import Attempt, Engine
from batonpass.runtime.history import NOBODY_ASKED, Asked
from batonpass.runtime.ports import RETRY_AFTER_MS, StoreUnavailable

LATE_SEQ = -1
"""Below every real ``seq``: such a heartbeat renews the lease and changes nothing else."""


BATCH_MAX = 1_000
"""How many inputs are decided on together at most. In a larger batch the first would wait too long for the last."""


CAUSES_MAX = 20
"""How many requests of a batch are named as the cause of its result."""


class Waiting(NamedTuple):
    """An input with the future that its reply goes to; None if no caller waits for a reply."""

    item: Input
    reply: asyncio.Future[Reply] | None
    asked: Asked = NOBODY_ASKED


class Mailbox:
    """The queue of one group, and the task that empties it."""

    def __init__(self, engine: Engine, *, limit: int, turns: LoopTurns) -> None:
        self._engine = engine
        self._limit = limit
        self._turns = turns
        self._queue: deque[Waiting] = deque()
        self._heard: dict[MemberId, Heartbeat] = {}
        self._busy: asyncio.Task[None] | None = None
        self._closed = False
        self._let_go = False
        self._tick: Waiting | None = None

    @property
    def is_idle(self) -> bool:
        return self._busy is None

    async def ask(self, item: Input, asked: Asked = NOBODY_ASKED) -> Reply:
        """Carry out an input and return the reply. A full mailbox replies with an error (503)."""
        if self._closed:
            return StoreUnavailable("the coordinator is stopping; try again", retry_after_ms=RETRY_AFTER_MS)
        attempt: Attempt | None = None
        if self._busy is None and not asked.command:
            found = self._engine.try_at_once(item)
            if isinstance(found, Attempt):
                attempt = found
            elif found is not None:
                return found
        elif self._busy is not None and len(self._queue) >= self._limit:
            self._remember(item)
            detail = f"{self._limit} requests are waiting for group {self._engine.group_id} already; try again"
            return StoreUnavailable(detail, retry_after_ms=RETRY_AFTER_MS)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._put(Waiting(item, future, asked), attempt)
        return await future

    def post(self, item: Input) -> bool:
        """Queue an input without waiting for its reply; return whether there was room for it.

        Only one ``Tick`` waits at a time, however often one is posted: until it is carried out, each other input finds
        again that the same deadline is overdue.
        """
        if isinstance(item, Tick) and self._tick is not None:
            return True
        if self._closed or len(self._queue) >= self._limit:
            return False
        waiting = Waiting(item, None)
        if isinstance(item, Tick):
            self._tick = waiting
        self._put(waiting)
        return True

    def hear(self, member_ids: Iterable[MemberId]) -> None:
        """Count members as heard before the next deadline is judged, and have that done now."""
        self._heard |= {member_id: Heartbeat(member_id, LATE_SEQ, 0) for member_id in member_ids}
        self.post(Tick())

    def let_go(self) -> None:
        """Have the engine forget the group, as soon as the present batch is carried out."""
        if self._busy is None:
            self._engine.let_go()
        else:
            self._let_go = True

    async def close(self) -> None:
        """Refuse new inputs, and wait until the accepted ones have been carried out."""
        self._closed = True
        while self._busy is not None:
            await asyncio.wait([self._busy])

    def _put(self, waiting: Waiting, attempt: Attempt | None = None) -> None:
        """Add an input. ``attempt`` is a decision already made on it, which is carried out before anything else."""
        self._queue.append(waiting)
        if self._busy is None:
            # Begun later, whatever the loop's factory does: it forgets itself when it ends.
            self._busy = asyncio.Task(self._empty(attempt), name=f"mailbox {self._engine.group_id}")

    async def _empty(self, attempt: Attempt | None) -> None:
        try:
            while self._queue:
                if attempt is None:
                    await self._turns.take()
                self._let_go_now()
                batch = [self._queue.popleft()] if attempt is not None else self._next_batch()
                await self._carry_out(batch, attempt)
                attempt = None
        finally:
            self._busy = None
            self._let_go_now()

    def _next_batch(self) -> list[Waiting]:
        """Take the next batch out of the queue: one command alone, else the inputs before the next command."""
        batch = [self._queue.popleft()]
        while not batch[0].asked.command and self._queue and len(batch) < BATCH_MAX:
            if self._queue[0].asked.command:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _carry_out(self, batch: list[Waiting], attempt: Attempt | None) -> None:
        made_up: tuple[Heartbeat, ...] = ()
        if any(isinstance(waiting.item, Tick) for waiting in batch):
            # Whoever was heard counts as heard before any deadline is judged.
            made_up, self._heard = tuple(self._heard.values()), {}
            self._tick = None
        inputs = (*made_up, *(waiting.item for waiting in batch))
        replies = await self._engine.carry_out(inputs, _asked_by(batch), attempt)
        for waiting, reply in zip(batch, replies[len(made_up) :], strict=True):
            if waiting.reply is not None and not waiting.reply.done():
                waiting.reply.set_result(reply)

    def _let_go_now(self) -> None:
        if self._let_go:
            self._let_go = False
            self._engine.let_go()

    def _remember(self, item: Input) -> None:
        """Remember that a member was heard although its heartbeat found no room (L5)."""
        if isinstance(item, Heartbeat):
            self._heard[item.member_id] = Heartbeat(item.member_id, LATE_SEQ, item.member_epoch)


def _asked_by(batch: list[Waiting]) -> Asked:
    """Return who asked for a batch. A batch of several inputs has no single caller, only the causes of the first."""
    if len(batch) == 1:
        return batch[0].asked
    causes = dict.fromkeys(waiting.asked.cause for waiting in batch if waiting.asked.cause)
    return Asked(cause=" ".join(list(causes)[:CAUSES_MAX]))
