"""The waits for news of a member, by long-polls and drains. A change wakes only the waits that it concerns."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId

WOKEN_AT_ONCE = 100
"""How many waits are woken before other work gets a turn. One change may concern ten thousand of them."""

EVERYBODY = MemberId("")
"""Stands for all members where a record concerns them all; no member has an empty id."""

_OF_ONE_MEMBER = (
    *(r.AssignmentChanged, r.MemberGone, r.MemberAway, r.TasksAdopted, r.TaskReleased),
    *(r.DrainStarted, r.DrainCancelled),
)


class Watchers:
    """The waits of one group, by member. To be used from its event loop alone."""

    def __init__(self) -> None:
        self._waiting: dict[MemberId, set[asyncio.Future[None]]] = {}
        self._to_wake: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def wait(self, member_id: MemberId, timeout_s: float) -> bool:
        """Wait for news of a member; return whether there was any before the time was over."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(member_id, set()).add(news)
        try:
            async with asyncio.timeout(timeout_s):
                await news
        except TimeoutError:
            return False
        finally:
            others = self._waiting[member_id]
            others.discard(news)
            if not others:
                del self._waiting[member_id]
        return True

    def wake(self, records: Iterable[r.Record]) -> None:
        """Wake all that wait for news of a member that these records concern."""
        if not self._waiting:
            return
        for member_id in dict.fromkeys(_concerned(records)):
            if member_id == EVERYBODY:
                self.wake_all()
                return
            self._wake(self._waiting.get(member_id, ()))

    def wake_all(self) -> None:
        """Wake all waits: the state was read anew, or the coordinator stops."""
        for waiting in self._waiting.values():
            self._wake(waiting)

    def _wake(self, waiting: Iterable[asyncio.Future[None]]) -> None:
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_some)
        self._to_wake.extend(waiting)

    def _wake_some(self) -> None:
        for _ in range(min(WOKEN_AT_ONCE, len(self._to_wake))):
            news = self._to_wake.popleft()
            if not news.done():  # Given up meanwhile, or woken twice.
                news.set_result(None)
        if self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_some)


def _concerned(records: Iterable[r.Record]) -> Iterator[MemberId]:
    for record in records:
        if isinstance(record, _OF_ONE_MEMBER):
            yield record.member_id
        elif isinstance(record, r.EpochsRaised):
            yield from record.epochs
        elif isinstance(record, r.GroupDeleted):
            yield EVERYBODY
