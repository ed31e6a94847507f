"""The event stream over a real database: coordinators that commit side by side, and one that only looks."""

import asyncio
import random

from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.unleased import unleased_log

from batonpass.core.state.ids import GroupId
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.connect import connect
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.runtime.events import Event
from batonpass.runtime.feed import Feed, Follower
from batonpass.runtime.history import History, StoredEvent
from batonpass.runtime.ports import Commit

GROUPS = [GroupId(f"group-{number}") for number in range(6)]


async def commit(log: PostgresRecordLog, group_id: GroupId, epoch: int, count: int) -> None:
    """Commit some events of a group, without records."""
    events = tuple(Event("probed", 1, 0, None, None, {"n": number}) for number in range(count))
    await log.append(Commit(group_id, epoch, 0, (), History(events=events)))


async def write(url_engine: AsyncEngine, groups: list[GroupId], seed: int) -> None:
    """Be one coordinator: commit to its own groups at random, several at once."""
    log, dice = unleased_log(url_engine), random.Random(seed)
    epochs = {group_id: await log.take_over(group_id) for group_id in groups}
    for _ in range(40):
        some = dice.sample(groups, dice.randint(1, len(groups)))
        await asyncio.gather(*(commit(log, one, epochs[one], dice.randint(1, 4)) for one in some))


async def follow(feed: Feed, group_id: GroupId | None, done: asyncio.Event, seed: int) -> list[StoredEvent]:
    """Follow from the beginning, breaking off and coming back at random, until everything was written and read."""
    dice = random.Random(seed)
    seen: list[StoredEvent] = []
    follower: Follower = await feed.follow(group_id, after=0)
    silent = 0
    while silent < 3:
        if dice.random() < 0.2:
            follower.leave()
            follower = await feed.follow(group_id, after=seen[-1].position if seen else 0)
        waiting = asyncio.ensure_future(follower.woken.wait())
        await asyncio.wait((waiting,), timeout=0.2)
        waiting.cancel()
        found = await follower.next()
        assert all(isinstance(one, StoredEvent) for one in found), found
        seen += [one for one in found if isinstance(one, StoredEvent)]
        silent = silent + 1 if done.is_set() and not found else 0
    follower.leave()
    return seen


async def test_nothing_is_missed_or_doubled_while_several_commit(database_url: str) -> None:
    """Two coordinators commit to six groups at once; a third follows."""
    engines = [connect(database_url) for _ in range(3)]
    try:
        archive = PostgresArchive(engines[2])
        feed = Feed(archive, poll_s=0.05, kept=30)
        reading = asyncio.create_task(feed.run())
        done = asyncio.Event()
        wanted: list[GroupId | None] = [None, None, GROUPS[0], GROUPS[4]]
        following = [asyncio.create_task(follow(feed, one, done, seed)) for seed, one in enumerate(wanted)]
        await asyncio.gather(write(engines[0], GROUPS[:3], 1), write(engines[1], GROUPS[3:], 2))
        done.set()
        async with asyncio.timeout(60):
            seen = await asyncio.gather(*following)
        whole = await archive.events(None, after=0, limit=100_000)
        assert len(whole) > 200
        assert [one.position for one in whole] == list(range(1, len(whole) + 1))
        for group_id, found in zip(wanted, seen, strict=True):
            assert found == [one for one in whole if group_id is None or one.group == group_id]
        feed.close()
        await reading
    finally:
        for engine in engines:
            await engine.dispose()
