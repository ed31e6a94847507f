"""The event stream: one reader of the store for each process, and any number of followers.

A follower never misses an event and never gets one twice, wherever it begins: what is near the end it takes from
memory, what is older from the archive, page by page. Between the two nothing can be lost, because a position is read
only when no lower one can still be committed.

Nobody polls for himself. A commit of this process wakes the reader at once; what other coordinators committed is found
by looking every ``POLL_S``, and only while somebody follows. A follower is woken by what concerns it and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from batonpass.core.errors import LimitExceeded
from batonpass.runtime.history import StoredEvent
from batonpass.runtime.ports import StoreUnavailable

if TYPE_CHECKING:
    from batonpass.core.ids import GroupId
    from batonpass.runtime.ports import Archive

POLL_S: Final = 1.0
"""How often events of groups that other coordinators own are looked for."""

KEPT: Final = 2_000
"""How many of the newest events are kept in memory for those who follow closely."""

PAGE: Final = 500
FOLLOWERS_MAX: Final = 1_000
RETRY_AFTER_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Missed:
    """Events between two positions are not there any more: retention dropped them, or the store lost them.

    Whoever follows goes on after ``upto``, or, where the store gives lost positions away again (``lost``), after
    ``after``. Either way it had better look at the group anew.
    """

    after: int
    upto: int
    lost: bool = False

    @property
    def go_on(self) -> int:
        """The position after which the events go on."""
        return self.after if self.lost else self.upto


class Feed:
    """Reads new events from the archive and hands them to all who follow."""

    def __init__(
        self, archive: Archive, *, followers_max: int = FOLLOWERS_MAX, poll_s: float = POLL_S, kept: int = KEPT
    ) -> None:
        self._archive = archive
        self._followers_max = followers_max
        self._poll_s = poll_s
        self._kept: deque[StoredEvent] = deque(maxlen=kept)
        self._tip: int | None = None
        self._followers: set[Follower] = set()
        self._news = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._followers)

    @property
    def is_closed(self) -> bool:
        """Whether every follower is to end."""
        return self._closed

    def wake(self) -> None:
        """Called when something was committed."""
        if self._followers:
            self._news.set()

    def close(self) -> None:
        """Let everybody who follows end."""
        self._closed = True
        self._news.set()
        for follower in self._followers:
            follower.woken.set()

    async def run(self) -> None:
        """Read new events, until closed or cancelled."""
        while True:
            if not self._followers:
                # Nobody follows: whoever comes begins at the end as it is then.
                self._tip = None
                self._kept.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s if self._followers else None):
                    await self._news.wait()
            self._news.clear()
            if self._closed:
                return
            try:
                await self._read()
            except StoreUnavailable:
                # What was not read now is read at the next look, from where this one stopped.
                await asyncio.sleep(self._poll_s)

    async def follow(self, group_id: GroupId | None, *, after: int | None) -> Follower:
        """Begin to follow the events of a group (None: of all) after a position; None: from now on.

        Raises:
            LimitExceeded: when as many follow as may.
            StoreUnavailable: when the archive is away.
        """
        if len(self._followers) >= self._followers_max:
            detail = f"{self._followers_max} event streams are open already, as many as this coordinator serves"
            raise LimitExceeded(detail, retry_after_ms=RETRY_AFTER_MS)
        follower = Follower(self, self._archive, group_id)
        self._followers.add(follower)
        try:
            last = await self._archive.last_position()
            if self._tip is None:
                self._tip = last
                self._kept.clear()
            follower.begin(after, last)
        except BaseException:
            self._followers.discard(follower)
            raise
        # Wakes the reader from its sleep, if this is the first to follow.
        self._news.set()
        return follower

    async def _read(self) -> None:
        """Take every event that was committed since the last look, and wake whom it concerns."""
        while self._tip is not None:
            page = await self._archive.events(None, after=self._tip, limit=PAGE)
            if page:
                self._kept.extend(page)
                self._tip = page[-1].position
                self._tell({one.group for one in page})
            elif (last := await self._archive.last_position()) < self._tip:
                self._rewind(last)
            if len(page) < PAGE:
                return

    def _rewind(self, last: int) -> None:
        """Go on from the last event that there is: the store lost commits, and gives their positions away again."""
        self._tip = last
        self._kept.clear()
        for follower in self._followers:
            follower.begin(follower.position, last)

    def _tell(self, groups: set[str]) -> None:
        for follower in self._followers:
            if follower.group_id is None or follower.group_id in groups:
                follower.woken.set()

    def leave(self, follower: Follower) -> None:
        """Called when a follower leaves."""
        self._followers.discard(follower)
        if not self._followers:
            self._news.set()

    @property
    def tip(self) -> int:
        """The position up to which events have been read."""
        return self._tip or 0

    def kept_after(self, position: int) -> Sequence[StoredEvent] | None:
        """Return the events after a position from memory; None where some of them are only in the archive."""
        if position >= self.tip:
            return ()
        if not self._kept or position < self._kept[0].position - 1:
            return None
        found = []
        for event in reversed(self._kept):
            if event.position <= position:
                break
            found.append(event)
        return found[::-1]


class Follower:
    """One who follows. ``woken`` is set when there may be something for it, or when it is to end."""

    __slots__ = ("_archive", "_feed", "_missed", "_position", "group_id", "woken")

    def __init__(self, feed: Feed, archive: Archive, group_id: GroupId | None) -> None:
        self.group_id = group_id
        self.woken = asyncio.Event()
        self._feed = feed
        self._archive = archive
        self._position = 0
        self._missed: Missed | None = None

    def begin(self, after: int | None, last: int) -> None:
        """Stand after a position; one that lies beyond the last is of a store that lost commits."""
        self._position = last if after is None else min(after, last)
        if after is not None and after > last:
            self._missed = Missed(last, after, lost=True)
        if self._position < last or self._missed is not None:
            self.woken.set()

    @property
    def position(self) -> int:
        """Everything up to this position has been returned, or does not concern this follower."""
        return self._position

    async def next(self) -> list[StoredEvent | Missed]:
        """Return what comes next, at once; nothing when everything was returned already.

        Raises:
            StoreUnavailable: when it lies in the archive, and that is away. It may be asked again.
        """
        self.woken.clear()
        if self._missed is not None:
            missed, self._missed = self._missed, None
            self.woken.set()
            return [missed]
        kept = self._feed.kept_after(self._position)
        if kept is None:
            return await self._older()
        if kept:
            self._position = kept[-1].position
        return [one for one in kept if self.group_id is None or one.group == self.group_id]

    async def _older(self) -> list[StoredEvent | Missed]:
        tip, after = self._feed.tip, self._position
        found: list[StoredEvent | Missed] = []
        # There is more to come, or, should the archive be away, everything is.
        self.woken.set()
        first = await self._archive.events(None, after=after, limit=1)
        if first and first[0].position > after + 1:
            found.append(Missed(after, first[0].position - 1))
        page = await self._archive.events(self.group_id, after=after, limit=PAGE)
        found.extend(page)
        # A page that is not full holds all there is of what the reader had seen before it was asked for, at the least.
        self._position = page[-1].position if len(page) == PAGE else max(tip, page[-1].position if page else 0)
        return found

    def leave(self) -> None:
        """Follow no more."""
        self._feed.leave(self)
