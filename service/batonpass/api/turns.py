"""Long work runs in a thread, so that it does not delay heartbeats, and callers take turns with it.

One work of a kind runs at a time: several would take turns with each other and with the event loop, and none would be
done sooner. Nobody waits for more than one work of each other caller; what is still to be done for a caller who is gone
is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from batonpass.runtime.places import Places

T = TypeVar("T")


class Offload:
    """Does one work after the other in a thread, the callers in turn. Each takes a place until it is done, if any."""

    def __init__(self, places: Places | None = None) -> None:
        self._places = places
        self._is_busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By caller, the one whose turn is next first."""

    async def do(self, who: str, work: Callable[[], T], *, is_owed: bool = False) -> T:
        """Return what ``work`` returns, which is done for the caller ``who``.

        When cancelled, work that waits is dropped. Work that runs goes on, and keeps its place, until it returns.
        ``is_owed``: it is the answer to a command that has taken effect, so it waits its turn without a place.

        Raises:
            LimitExceeded: when too much is waiting, in all or for this caller (429).
        """
        with ExitStack() as place:
            if self._places is not None and not is_owed:
                place.enter_context(self._places.place(who))
            await self._turn(who)
            running = asyncio.get_running_loop().run_in_executor(None, work)
            running.add_done_callback(partial(self._done, place.pop_all()))
        return await asyncio.shield(running)

    async def _turn(self, who: str) -> None:
        """Wait until nothing else runs and it is this caller's turn."""
        if not self._is_busy:
            self._is_busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # It was given the turn in this very moment.
                self._give_turn()
            raise

    def _done(self, place: ExitStack, done: asyncio.Future[T]) -> None:
        # The caller may be gone when the work fails, and asyncio reports an exception that is never retrieved.
        if not done.cancelled():
            done.exception()
        place.close()
        self._give_turn()

    def _give_turn(self) -> None:
        """Let the next caller's oldest work run; one who has more waits behind all others."""
        while self._waiting:
            who, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            del self._waiting[who]
            if turns:
                self._waiting[who] = turns
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._is_busy = False
