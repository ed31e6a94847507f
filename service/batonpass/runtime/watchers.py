"""Who waits for news of a member: parked long-polls and drains. A change wakes those it concerns and no others."""

from __future__ import annotations

import asyncio
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

EVERYBODY = MemberId("")
"""Stands for all members where a record concerns them all; no member has an empty id."""


class Watchers:
    """The waits of one group, by member."""

    def __init__(self) -> None:
        self._waiting: dict[MemberId, set[asyncio.Event]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def wait(self, member_id: MemberId, timeout_s: float) -> bool:
        """Wait for news of a member; say whether there was any before the time was over."""
        event = asyncio.Event()
        self._waiting.setdefault(member_id, set()).add(event)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        else:
            return True
        finally:
            events = self._waiting[member_id]
            events.discard(event)
            if not events:
                del self._waiting[member_id]

    def wake(self, records: Iterable[Record]) -> None:
        """Wake whoever waits for news of a member that these records concern."""
        if not self._waiting:
            return
        for member_id in set(_concerned(records)):
            if member_id == EVERYBODY:
                self.wake_all()
                return
            for event in self._waiting.get(member_id, ()):
                event.set()

    def wake_all(self) -> None:
        """Wake everybody: the state was read anew, or the coordinator stops."""
        for events in self._waiting.values():
            for event in events:
                event.set()


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
