"""One bounded mailbox per group: its inputs are handled one at a time, and a full one refuses at once.

An input that writes nothing and finds nobody before it is answered on the spot. A caller that goes away takes nothing
with it: what was posted is carried out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from batonpass.core.inputs import Heartbeat, Input, Tick
from batonpass.runtime.engine import RETRY_AFTER_MS
from batonpass.runtime.history import NOBODY_ASKED, Asked
from batonpass.runtime.ports import Defect, Observer, StoreUnavailable

if TYPE_CHECKING:
    from batonpass.core.ids import MemberId
    from batonpass.core.replies import Reply
    from batonpass.runtime.engine import Engine

LATE_SEQ = -1
"""At or below any ``seq``: such a heartbeat renews the count of the lease and does nothing else."""


class Letter(NamedTuple):
    """An input with the future that its reply goes to; None where nobody waits for one."""

    item: Input
    reply: asyncio.Future[Reply] | None
    asked: Asked = NOBODY_ASKED


class Mailbox:
    """The queue of one group, and the task that empties it."""

    def __init__(self, engine: Engine, observer: Observer, *, limit: int) -> None:
        self._engine = engine
        self._observer = observer
        self._limit = limit
        self._letters: deque[Letter] = deque()
        self._heard: dict[MemberId, Heartbeat] = {}
        self._busy: asyncio.Task[None] | None = None
        self._closed = False
        self._let_go = False
        self._tick: Letter | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being carried out."""
        return self._busy is None

    async def ask(self, item: Input, asked: Asked = NOBODY_ASKED) -> Reply:
        """Have an input carried out and return the reply; a full mailbox is a reply too (503)."""
        if self._closed:
            return StoreUnavailable("the coordinator is stopping; try again", retry_after_ms=RETRY_AFTER_MS)
        if self._busy is None and not asked.command:
            reply = self.answer_at_once(item)
            if reply is not None:
                return reply
        elif self._busy is not None and len(self._letters) >= self._limit:
            self._remember(item)
            detail = f"{self._limit} requests are waiting for group {self._engine.group_id} already; try again"
            return StoreUnavailable(detail, retry_after_ms=RETRY_AFTER_MS)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._put(Letter(item, future, asked))
        return await future

    def answer_at_once(self, item: Input) -> Reply | None:
        """Carry out an input now, if nothing else is being carried out and it writes nothing; else None."""
        if self._busy is not None or self._closed:
            return None
        try:
            return self._engine.answer_at_once(item)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect, and the group goes on
            return self._defect(item, error)

    def post(self, item: Input) -> bool:
        """Have an input carried out without waiting for it; say whether there was room for it.

        A look at what is due is carried out once, however often it was posted before that: each input that waits
        behind it finds again that it is overdue.
        """
        if isinstance(item, Tick) and self._tick is not None:
            return True
        if self._closed or len(self._letters) >= self._limit:
            return False
        letter = Letter(item, None)
        if isinstance(item, Tick):
            self._tick = letter
        self._put(letter)
        return True

    def let_go(self) -> None:
        """Have the engine forget the group, as soon as what is being carried out has been."""
        if self._busy is None:
            self._engine.let_go()
        else:
            self._let_go = True

    async def close(self) -> None:
        """Refuse what comes, and wait until what was accepted has been carried out."""
        self._closed = True
        while self._busy is not None:
            await asyncio.wait([self._busy])

    def _put(self, letter: Letter) -> None:
        self._letters.append(letter)
        if self._busy is None:
            self._busy = asyncio.create_task(self._empty(), name=f"mailbox {self._engine.group_id}")

    async def _empty(self) -> None:
        try:
            while self._letters:
                self._let_go_now()
                letter = self._letters.popleft()
                if letter is self._tick:
                    self._tick = None
                if isinstance(letter.item, Tick):
                    await self._make_up()
                reply = await self._carry_out(letter.item, letter.asked)
                if letter.reply is not None and not letter.reply.done():
                    letter.reply.set_result(reply)
        finally:
            self._busy = None
            self._let_go_now()

    def _let_go_now(self) -> None:
        if self._let_go:
            self._let_go = False
            self._engine.let_go()

    async def _carry_out(self, item: Input, asked: Asked = NOBODY_ASKED) -> Reply:
        try:
            return await self._engine.carry_out(item, asked)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect, and the group goes on
            return self._defect(item, error)

    def _defect(self, item: Input, error: Exception) -> Defect:
        self._observer.defect(self._engine.group_id, item, error)
        self._engine.look_again_soon()
        return Defect("the coordinator failed on this request; nothing has changed")

    def _remember(self, item: Input) -> None:
        """Keep of a heartbeat that found no room that its member was heard (L5)."""
        if isinstance(item, Heartbeat):
            self._heard[item.member_id] = Heartbeat(item.member_id, LATE_SEQ, item.member_epoch)

    async def _make_up(self) -> None:
        """Count the heartbeats that found no room, before any deadline is judged."""
        while self._heard:
            _, heartbeat = self._heard.popitem()
            await self._carry_out(heartbeat)
