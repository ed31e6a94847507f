"""Long reads run in a thread, so that reading a large group does not delay heartbeats.

Groups and soft state are immutable, so any thread can read them. One such read runs at a time: several would take turns
with each other and with the event loop, and none would be done sooner. Dry runs, which may take many seconds, have a
thread of their own. Callers take turns, so nobody waits for more than one read of each other caller; what is still to
be read for a caller who is gone is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import context_of
from batonpass.codec.answers import to_json
from batonpass.core.state.model import Group
from batonpass.runtime.places import Places

T = TypeVar("T")

AT_ONCE_MAX: Final = 500
"""How many tasks and members may be looked at on the event loop itself: work of some milliseconds."""


class Offload:
    """Runs one long read after the other in a thread, the callers in turn. Each read takes a place until it is done."""

    def __init__(self, places: Places) -> None:
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
            if not is_owed:
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
        """Let the next caller's oldest read run; one who has more waits behind all others."""
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


async def aside(request: Request, size: int | None, work: Callable[[], T], *, is_owed: bool = False) -> T:
    """Return what ``work`` returns, which looks at about ``size`` tasks and members (None: a dry run).

    If that is many it is done beside the event loop, where it has to be let in unless it ``is_owed`` (``Offload.do``).

    Raises:
        LimitExceeded: when too many long reads wait (429).
        Disconnected: when the caller disconnected before it was done.
    """
    if size is not None and size <= AT_ONCE_MAX:
        return work()
    context, state = context_of(request), request.app.state
    offload: Offload = state.reads if size is not None else state.dry_runs
    return await context.unless_gone(offload.do(context.who, work, is_owed=is_owed))


async def show(
    request: Request,
    size: int | None,
    work: Callable[[], object],
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    is_owed: bool = False,
) -> Response:
    """Answer with the JSON of what ``work`` returns; otherwise as ``aside``.

    Raises:
        ProtocolError: as ``work`` does.
        LimitExceeded, Disconnected: as ``aside`` does.
    """
    content = await aside(request, size, lambda: to_json(work()), is_owed=is_owed)
    return Response(content, status_code=status, headers=headers, media_type="application/json")


def size_of(group: Group) -> int:
    """Return how many tasks and members a read of the whole group looks at."""
    return len(group.table.ids) + len(group.members)
