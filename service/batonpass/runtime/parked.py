"""A long-poll that waits without a task: a few small objects instead of a chain of coroutines.

Ten thousand members park one each. What is looked for, and when, is the same as where a task waits for it
(``Coordinator.poll``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from batonpass.core.errors import ProtocolError
from batonpass.core.replies import Answer

if TYPE_CHECKING:
    from batonpass.core.ids import MemberId
    from batonpass.runtime.room import Room
    from batonpass.runtime.watchers import Wait


class Unread(Enum):
    """What cannot be told, because the group has to be read first."""

    UNREAD = "unread"


UNREAD: Final = Unread.UNREAD
Found = Answer | ProtocolError | Unread | None


class Looking(Protocol):
    """Who knows what there is to say: the coordinator."""

    @property
    def is_stopping(self) -> bool:
        """Whether every wait ends now."""
        ...

    def look_for(self, room: Room, member_id: MemberId, after: int) -> Found:
        """Return what there is to say to a member that has the picture of epoch ``after``; None: nothing yet."""
        ...


class Parked:
    """One long-poll. It ends in one of three ways: ``answer`` is called, the caller breaks it, or it is withdrawn.

    An exception that is no ``ProtocolError`` is a failure of the program, for whoever answers to tell.
    """

    __slots__ = ("_after", "_answer", "_end", "_looking", "_member_id", "_room", "_wait")

    def __init__(
        self, looking: Looking, room: Room, member_id: MemberId, after: int, answer: Callable[[Found | Exception], None]
    ) -> None:
        self._looking = looking
        self._room = room
        self._member_id = member_id
        self._after = after
        self._answer = answer
        self._end = 0.0
        self._wait: Wait | None = None

    def begin(self, wait_s: float) -> None:
        """Answer at once, or as soon as there is something to say, or when the wait is over."""
        self._end = asyncio.get_running_loop().time() + wait_s
        self._room.poll_opened(self._member_id)
        self._go_on(True)

    def break_off(self) -> None:
        """Hear that the caller went away: its connection broke, which says something about the member."""
        if self._close() and not self._looking.is_stopping:
            self._room.poll_broken(self._member_id)
        self._room.poll_closed(self._member_id)

    def withdraw(self) -> None:
        """Wait no more, because the same poll is served in another way from here on."""
        self._close()
        self._room.poll_closed(self._member_id)

    def _close(self) -> bool:
        wait, self._wait = self._wait, None
        return wait is not None and self._room.watchers.give_up(wait)

    def _go_on(self, _is_news: bool) -> None:  # noqa: FBT001 - as waits are told
        self._wait = None
        found: Found | Exception
        try:
            found = self._looking.look_for(self._room, self._member_id, self._after)
        except Exception as error:  # noqa: BLE001 - there is no caller that could be told but the one that waits
            found = error
        left_s = self._end - asyncio.get_running_loop().time()
        if found is None and left_s > 0 and not self._looking.is_stopping:
            self._wait = self._room.watchers.add(self._member_id, left_s, self._go_on)
            return
        self._room.poll_closed(self._member_id)
        self._answer(found)
