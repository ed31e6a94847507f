"""The event stream: one reader of the store for each process, and any number of followers.

A follower never misses an event and never gets one twice, wherever it begins. It takes recent events from memory and
older ones from the archive, page by page. No event is lost between the two, because the reader reads a position only
when no lower one can still be committed.

Followers do not poll the store themselves. A commit of this process wakes the reader at once. The reader looks for
commits of other coordinators every ``POLL_S``, while there are followers. It wakes a follower only for events that
concern it.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batonpass.core.state.ids import GroupId
from batonpass.runtime.history import StoredEvent
from batonpass.runtime.places import Places
from batonpass.runtime.ports import Archive, StoreUnavailable

POLL_S: Final = 1.0
"""How often the reader looks for events of groups that other coordinators own."""

KEPT: Final = 2_000
"""How many of the newest events are kept in memory, for followers that are close to the end."""

PAGE: Final = 500
FOLLOWERS_MAX: Final = 1_000
FOLLOWERS_EACH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Missed:
    """Events between two positions no longer exist: retention dropped them, or the store lost them.

    The follower goes on after ``upto``, or after ``after`` if the store lost commits and assigns their positions again
    (``lost``). In both cases the client should look at the group anew.
    """

    after: int
    upto: int
    lost: bool = False

    @property
    def go_on(self) -> int:
        """The position after which the events go on."""
        return self.after if self.lost else self.upto


class Feed:
    """Reads new events from the archive and hands them to all followers."""

    def __init__(
        self,
        archive: Archive,
        *,
        followers_max: int = FOLLOWERS_MAX,
        followers_each_max: int = FOLLOWERS_EACH_MAX,
        poll_s: float = POLL_S,
        kept: int = KEPT,
    ) -> None:
        self._archive = archive
        self._places = Places(followers_max, "event streams", each=followers_each_max)
        self._poll_s = poll_s
        self._kept: deque[StoredEvent] = deque(maxlen=kept)
        self._tip: int | None = None
        self._followers: set[Follower] = set()
        self._news = asyncio.Event()
        self.is_closed = False
        """Whether every follower is to end."""

    def __len__(self) -> int:
        return len(self._followers)

    def wake(self) -> None:
        """Called when something was committed."""
        if self._followers:
            self._news.set()

    def close(self) -> None:
        self.is_closed = True
        self._news.set()
        for follower in self._followers:
            follower.woken.set()

    async def run(self) -> None:
        """Read new events, until closed or cancelled."""
        while True:
            if not self._followers:
                # There are no followers: the next one begins at the end of the stream as it is then.
                self._tip = None
                self._kept.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s if self._followers else None):
                    await self._news.wait()
            self._news.clear()
            if self.is_closed:
                return
            try:
                await self._read()
            except StoreUnavailable:
                # The next look reads on from where this one stopped.
                await asyncio.sleep(self._poll_s)

    async def follow(self, group_id: GroupId | None, *, after: int | None, who: str = "") -> "Follower":
        """Begin to follow the events of a group (None: of all groups) after a position (None: from now on).

        ``who`` names the caller, who may have only a share of all followers.

        Raises:
            LimitExceeded: when there are as many followers as allowed, in all or of this caller.
            StoreUnavailable: when the archive cannot be reached.
        """
        self._places.take(who)
        follower = Follower(self, self._archive, group_id, who)
        self._followers.add(follower)
        try:
            last = await self._archive.last_position()
            if self._tip is None:
                self._tip = last
                self._kept.clear()
            follower.begin(after, last)
        except BaseException:
            self.leave(follower)
            raise
        # Wakes the reader from its sleep, if this is the first follower.
        self._news.set()
        return follower

    async def _read(self) -> None:
        """Read every event that was committed since the last look, and wake the followers that it concerns."""
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
        """Go on from the last event that exists: the store lost commits, and assigns their positions again."""
        self._tip = last
        self._kept.clear()
        for follower in self._followers:
            follower.begin(follower.position, last)

    def _tell(self, groups: set[str]) -> None:
        for follower in self._followers:
            if follower.group_id is None or follower.group_id in groups:
                follower.woken.set()

    def leave(self, follower: "Follower") -> None:
        if follower in self._followers:
            self._followers.remove(follower)
            self._places.free(follower.who)
        if not self._followers:
            self._news.set()

    @property
    def tip(self) -> int:
        """The position up to which events have been read."""
        return self._tip or 0

    def kept_after(self, position: int) -> Sequence[StoredEvent] | None:
        """Return the events after a position from memory; None if some of them are only in the archive."""
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
    """One reader of the stream. ``woken`` is set when there may be events for it, or when it has to end."""

    __slots__ = ("_archive", "_feed", "_missed", "group_id", "position", "who", "woken")

    def __init__(self, feed: Feed, archive: Archive, group_id: GroupId | None, who: str) -> None:
        self.group_id = group_id
        self.who = who
        self.woken = asyncio.Event()
        self._feed = feed
        self._archive = archive
        self.position = 0
        """Everything up to this position has been returned, or does not concern this follower."""
        self._missed: Missed | None = None

    def begin(self, after: int | None, last: int) -> None:
        """Begin after a position (None: at the end). A position beyond ``last`` means that the store lost commits."""
        self.position = last if after is None else min(after, last)
        if after is not None and after > last:
            self._missed = Missed(last, after, lost=True)
        if self.position < last or self._missed is not None:
            self.woken.set()

    async def next(self) -> list[StoredEvent | Missed]:
        """Return the next events without waiting; an empty list if there are none.

        Raises:
            StoreUnavailable: when they are in the archive, which cannot be reached. The caller may ask again.
        """
        self.woken.clear()
        if self._missed is not None:
            missed, self._missed = self._missed, None
            self.woken.set()
            return [missed]
        kept = self._feed.kept_after(self.position)
        if kept is None:
            return await self._older()
        if kept:
            self.position = kept[-1].position
        return [one for one in kept if self.group_id is None or one.group == self.group_id]

    async def _older(self) -> list[StoredEvent | Missed]:
        tip, after = self._feed.tip, self.position
        found: list[StoredEvent | Missed] = []
        # More events follow this page; if reading it fails, all of them are still to come.
        self.woken.set()
        first = await self._archive.events(None, after=after, limit=1)
        if first and first[0].position > after + 1:
            found.append(Missed(after, first[0].position - 1))
        page = await self._archive.events(self.group_id, after=after, limit=PAGE)
        found.extend(page)
        # A page that is not full holds at least all matching events that the reader had seen before this call read it.
        self.position = page[-1].position if len(page) == PAGE else max(tip, page[-1].position if page else 0)
        return found

    def leave(self) -> None:
        self._feed.leave(self)
