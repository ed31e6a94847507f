"""Who waits for news of a member: parked long-polls and drains. A change wakes those it concerns and no others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator

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

EVERYBODY = MemberId("")
"""Stands for all members where a record concerns them all; no member has an empty id."""


class Watchers:
    """The waits of one group, by member."""

    def __init__(self) -> None:
        self._waiting: dict[MemberId, list[asyncio.Future[bool]]] = {}
        self._due: dict[int, dict[asyncio.Future[bool], None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def wait(self, member_id: MemberId, timeout_s: float) -> bool:
        """Wait for news of a member; say whether there was any before the time was over, or ``TURN_S`` later."""
        # Ten thousand members wait here most of the time, so a wait is a future, and waits share their timers.
        loop = asyncio.get_running_loop()
        news: asyncio.Future[bool] = loop.create_future()
        turn = math.ceil((loop.time() + timeout_s) / TURN_S)
        due = self._due.get(turn)
        if due is None:
            due = self._due[turn] = {}
            loop.call_at(turn * TURN_S, self._end, turn)
        due[news] = None
        self._waiting.setdefault(member_id, []).append(news)
        try:
            return await news
        finally:
            due.pop(news, None)
            others = self._waiting[member_id]
            others.remove(news)
            if not others:
                del self._waiting[member_id]

    def _end(self, turn: int) -> None:
        for news in self._due.pop(turn):
            _settle(news, is_news=False)

    def wake(self, records: Iterable[Record]) -> None:
        """Wake whoever waits for news of a member that these records concern."""
        if not self._waiting:
            return
        for member_id in dict.fromkeys(_concerned(records)):
            if member_id == EVERYBODY:
                self.wake_all()
                return
            for news in self._waiting.get(member_id, ()):
                _settle(news, is_news=True)

    def wake_all(self) -> None:
        """Wake everybody: the state was read anew, or the coordinator stops."""
        for waiting in self._waiting.values():
            for news in waiting:
                _settle(news, is_news=True)


def _settle(news: asyncio.Future[bool], *, is_news: bool) -> None:
    if not news.done():
        news.set_result(is_news)


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
