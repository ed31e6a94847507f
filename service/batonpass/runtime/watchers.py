"""Who waits for news of a member: parked long-polls and drains. A change wakes those it concerns and no others."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from batonpass.core.ids import MemberId
from batonpass.core.records import (
    DrainCancelled,
    DrainStarted,
    EpochsRaised,
    GroupDeleted,
    MemberAway,
    MemberGone,
    PictureChanged,
    Record,
    TaskReleased,
    TasksAdopted,
)

TURN_S = 0.05
"""Waits that end within the same turn end together."""

TOLD_AT_ONCE = 100
"""How many are told before others get a turn. One change may concern ten thousand of them."""

EVERYBODY = MemberId("")
"""Stands for all members where a record concerns them all; no member has an empty id."""


class Wait:
    """One wait: ``tell`` is called once, with whether there was news; never if the wait is given up before."""

    __slots__ = ("member_id", "tell", "turn")

    def __init__(self, member_id: MemberId, turn: int, tell: Callable[[bool], None]) -> None:
        self.member_id = member_id
        self.turn = turn
        self.tell = tell


class Watchers:
    """The waits of one group, by member. To be used from its event loop alone."""

    def __init__(self) -> None:
        # Ten thousand members wait here most of the time, so a wait is one small object, and waits share their timers.
        self._waiting: dict[MemberId, list[Wait]] = {}
        self._due: dict[int, dict[Wait, None]] = {}
        self._to_tell: deque[tuple[Wait, bool]] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, member_id: MemberId, timeout_s: float, tell: Callable[[bool], None]) -> Wait:
        """Wait for news of a member; ``tell`` hears of it soon after, or of none when the time is over (``TURN_S``)."""
        loop = asyncio.get_running_loop()
        wait = Wait(member_id, math.ceil((loop.time() + timeout_s) / TURN_S), tell)
        due = self._due.get(wait.turn)
        if due is None:
            due = self._due[wait.turn] = {}
            loop.call_at(wait.turn * TURN_S, self._end, wait.turn)
        due[wait] = None
        self._waiting.setdefault(member_id, []).append(wait)
        return wait

    def give_up(self, wait: Wait) -> bool:
        """Tell a wait nothing any more; say whether it was still to be told."""
        others = self._waiting.get(wait.member_id)
        if others is None or wait not in others:
            return False
        others.remove(wait)
        if not others:
            del self._waiting[wait.member_id]
        due = self._due.get(wait.turn)
        if due is not None:
            due.pop(wait, None)
        return True

    async def wait(self, member_id: MemberId, timeout_s: float) -> bool:
        """Wait for news of a member; say whether there was any before the time was over, or ``TURN_S`` later."""
        news: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        wait = self.add(member_id, timeout_s, lambda is_news: None if news.done() else news.set_result(is_news))
        try:
            return await news
        finally:
            self.give_up(wait)

    def wake(self, records: Iterable[Record]) -> None:
        """Wake whoever waits for news of a member that these records concern."""
        if not self._waiting:
            return
        for member_id in dict.fromkeys(_concerned(records)):
            if member_id == EVERYBODY:
                self.wake_all()
                return
            self._tell(self._waiting.get(member_id, ()), is_news=True)

    def wake_all(self) -> None:
        """Wake everybody: the state was read anew, or the coordinator stops."""
        for waiting in list(self._waiting.values()):
            self._tell(waiting, is_news=True)

    def _end(self, turn: int) -> None:
        self._tell(self._due.pop(turn), is_news=False)

    def _tell(self, waits: Iterable[Wait], *, is_news: bool) -> None:
        """Have these told one after the other, soon."""
        if not waits:
            return
        if not self._to_tell:
            asyncio.get_running_loop().call_soon(self._tell_some)
        self._to_tell.extend((wait, is_news) for wait in waits)

    def _tell_some(self) -> None:
        try:
            for _ in range(min(TOLD_AT_ONCE, len(self._to_tell))):
                wait, is_news = self._to_tell.popleft()
                # Who was woken twice is told once; whoever waits again from within this call, is another wait.
                if self.give_up(wait):
                    wait.tell(is_news)
        finally:
            if self._to_tell:
                asyncio.get_running_loop().call_soon(self._tell_some)


def _concerned(records: Iterable[Record]) -> Iterator[MemberId]:
    for record in records:
        match record:
            case (
                PictureChanged()
                | MemberGone()
                | MemberAway()
                | TasksAdopted()
                | TaskReleased()
                | DrainStarted()
                | DrainCancelled()
            ):
                yield record.member_id
            case EpochsRaised():
                yield from record.epochs
            case GroupDeleted():
                yield EVERYBODY
            case _:
                pass
