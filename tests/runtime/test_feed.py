"""Whoever follows the event stream gets every event once, in order, wherever it begins."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.contracts.memory_store import MemoryLog

from batonpass.core.state.errors import LimitExceeded
from batonpass.core.state.ids import GroupId
from batonpass.runtime.events import Event
from batonpass.runtime.feed import PAGE, Feed, Follower, Missed
from batonpass.runtime.history import History, StoredEvent
from batonpass.runtime.ports import Commit, StoreUnavailable

A, B = GroupId("a"), GroupId("b")


class Log(MemoryLog):
    """A log in memory that counts how often its events are asked for, and may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.is_away = False

    async def add(self, group_id: GroupId, count: int = 1) -> None:
        """Commit some events of a group, all of them at once."""
        start = await self.last_position()
        events = tuple(Event("x", 0, 0, None, None, {"n": start + number + 1}) for number in range(count))
        await self.append(Commit(group_id, 1, 0, (), History(events=events)))

    async def events(self, group_id: GroupId | None, *, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return events, unless the log is away."""
        self.reads += 1
        if self.is_away:
            raise StoreUnavailable("away")
        later = [one for one in self._events if one.position > after]
        return [one for one in later if group_id is None or one.group == group_id][:limit]

    def drop(self, upto: int) -> None:
        """Forget old events, as retention does."""
        self._events = [one for one in self._events if one.position > upto]

    def lose(self, count: int) -> None:
        """Lose the last events, as a store does that lost commits."""
        del self._events[-count:]


class Running:
    """A feed with its reader, and the log that it reads."""

    def __init__(self, **options: float) -> None:
        self.log = Log()
        self.feed = Feed(self.log, **({"poll_s": 0.02} | options))  # type: ignore[arg-type]

    async def add(self, group_id: GroupId, count: int = 1) -> None:
        """Commit events, and tell the feed."""
        await self.log.add(group_id, count)
        self.feed.wake()


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """Run a feed on an empty log."""
    it = Running(kept=50)
    reading = asyncio.create_task(it.feed.run())
    yield it
    it.feed.close()
    async with asyncio.timeout(1):
        await reading


async def take(follower: Follower, count: int) -> list[StoredEvent | Missed]:
    """Return at least ``count`` things that a follower gets."""
    found: list[StoredEvent | Missed] = []
    async with asyncio.timeout(5):
        while len(found) < count:
            await follower.woken.wait()
            found += await follower.next()
    return found


def positions(found: Sequence[StoredEvent | Missed]) -> list[int]:
    """Return the positions of events."""
    return [one.position for one in found if isinstance(one, StoredEvent)]


async def test_who_follows_gets_what_comes_and_nothing_of_before(running: Running) -> None:
    await running.add(A, 3)
    follower = await running.feed.follow(None, after=None)
    assert await follower.next() == []
    await running.add(A, 2)
    assert positions(await take(follower, 2)) == [4, 5]
    assert await follower.next() == []
    assert not follower.woken.is_set()


async def test_a_position_is_where_to_go_on(running: Running) -> None:
    await running.add(A, 3 * PAGE + 7)
    follower = await running.feed.follow(None, after=5)
    found = await take(follower, PAGE)
    await running.add(B, 2)
    found += await take(follower, 2 * PAGE + 4)
    assert positions(found) == list(range(6, 3 * PAGE + 10))


async def test_events_of_other_groups_neither_come_nor_wake_a_follower(running: Running) -> None:
    follower = await running.feed.follow(A, after=None)
    both = await running.feed.follow(None, after=None)
    await running.add(B, 3)
    assert positions(await take(both, 3)) == [1, 2, 3]
    assert not follower.woken.is_set()
    await running.add(A)
    assert positions(await take(follower, 1)) == [4]


async def test_what_other_coordinators_commit_is_found_by_one_look_for_all(running: Running) -> None:
    """Without a wake the reader looks by itself, and never while there is no follower."""
    await asyncio.sleep(0.1)
    assert running.log.reads == 0
    followers = [await running.feed.follow(None, after=None) for _ in range(50)]
    await running.log.add(A)
    for follower in followers:
        assert positions(await take(follower, 1)) == [1]
    assert running.log.reads < 15
    for follower in followers:
        follower.leave()
    await asyncio.sleep(0.05)
    reads = running.log.reads
    await asyncio.sleep(0.1)
    assert running.log.reads == reads


async def test_a_slow_follower_catches_up_from_the_archive(running: Running) -> None:
    """What is not kept in memory any more is read anew."""
    slow = await running.feed.follow(A, after=None)
    quick = await running.feed.follow(A, after=None)
    for _ in range(20):
        await running.add(A, 7)
        await take(quick, 7)
    assert positions(await take(slow, 140)) == list(range(1, 141))


async def test_a_follower_that_breaks_off_and_comes_back_misses_nothing_and_gets_nothing_twice(
    running: Running,
) -> None:
    """Random commits, breaks and resumptions by the last position."""
    dice = random.Random(7)
    wanted: list[int] = []
    seen: list[int] = []
    follower = await running.feed.follow(A, after=0)

    async def write() -> None:
        for _ in range(200):
            group = dice.choice((A, B))
            count = dice.randint(1, 9)
            if group == A:
                start = await running.log.last_position()
                wanted.extend(range(start + 1, start + count + 1))
            await running.log.add(group, count)
            if dice.random() < 0.7:
                running.feed.wake()
            if dice.random() < 0.3:
                await asyncio.sleep(0.001)

    writing = asyncio.create_task(write())
    async with asyncio.timeout(20):
        while not writing.done() or len(seen) < len(wanted):
            if dice.random() < 0.2:
                follower.leave()
                follower = await running.feed.follow(A, after=seen[-1] if seen else 0)
            await asyncio.wait((asyncio.ensure_future(follower.woken.wait()),), timeout=0.05)
            seen += positions(await follower.next())
    await writing
    assert seen == wanted


async def test_a_store_that_is_away_loses_nothing(running: Running) -> None:
    follower = await running.feed.follow(None, after=None)
    behind = await running.feed.follow(None, after=None)
    running.log.is_away = True
    await running.add(A, 60)
    await asyncio.sleep(0.05)
    assert await follower.next() == []
    running.log.is_away = False
    assert positions(await take(follower, 60)) == list(range(1, 61))
    running.log.is_away = True
    with pytest.raises(StoreUnavailable):
        await behind.next()
    running.log.is_away = False
    assert positions(await take(behind, 60)) == list(range(1, 61))


async def test_what_retention_dropped_is_said_to_be_missed(running: Running) -> None:
    await running.add(A, 10)
    running.log.drop(6)
    follower = await running.feed.follow(A, after=2)
    found = await take(follower, 5)
    assert found[0] == Missed(2, 6)
    assert (Missed(2, 6).go_on, Missed(2, 6, lost=True).go_on) == (6, 2)
    assert positions(found) == [7, 8, 9, 10]


async def test_positions_that_the_store_lost_are_said_to_be_missed(running: Running) -> None:
    follower = await running.feed.follow(None, after=None)
    await running.add(A, 10)
    await take(follower, 10)
    running.log.lose(4)
    assert await take(follower, 1) == [Missed(6, 10, lost=True)]
    newcomer = await running.feed.follow(None, after=10)
    assert await newcomer.next() == [Missed(6, 10, lost=True)]
    await running.add(A, 2)
    assert positions(await take(follower, 2)) == [7, 8]
    assert positions(await take(newcomer, 2)) == [7, 8]


async def test_no_more_follow_than_may() -> None:
    feed = Feed(Log(), followers_max=3, followers_each_max=2)
    first = await feed.follow(None, after=None, who="a")
    await feed.follow(A, after=None, who="a")
    with pytest.raises(LimitExceeded, match="one caller") as refused:
        await feed.follow(None, after=None, who="a")
    assert refused.value.retry_after_ms
    await feed.follow(None, after=None, who="b")
    with pytest.raises(LimitExceeded, match="this coordinator"):
        await feed.follow(None, after=None, who="b")
    first.leave()
    first.leave()
    await feed.follow(None, after=None, who="b")
    assert len(feed) == 3


async def test_a_feed_that_closes_wakes_everybody(running: Running) -> None:
    follower = await running.feed.follow(A, after=None)
    running.feed.close()
    async with asyncio.timeout(1):
        await follower.woken.wait()
    assert running.feed.is_closed


async def test_a_follower_that_cannot_begin_takes_no_place() -> None:
    log = Log()

    async def away() -> int:
        raise StoreUnavailable("away")

    log.last_position = away  # type: ignore[method-assign]
    feed = Feed(log)
    with pytest.raises(StoreUnavailable):
        await feed.follow(None, after=None)
    assert len(feed) == 0
