"""Coordinators share groups by leases in the database: at no moment do two of them speak for one group (L4)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
from annotated_types import Le
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.waiting import until

from batonpass.core.state.ids import GroupId
from batonpass.core.state.records import GroupDeleted, ProbeScheduled
from batonpass.postgres import fleet
from batonpass.postgres.fleet import Fleet, Registration, rank
from batonpass.postgres.leases import LONGEST_MS, Leases, Reading
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.tables import ms_of
from batonpass.runtime.ports import Commit, NotOwner, StoreUnavailable, Superseded
from batonpass.runtime.pulse import STALL_MS
from batonpass.settings import Settings

ORDERS = GroupId("orders")
HOUR_MS = 3_600_000
GROUPS = [GroupId(f"group-{number}") for number in range(60)]


class CoordinatorInFleet:
    """One coordinator as the others see it: a lease, a record log, and a clock that the test moves."""

    def __init__(self, engine: AsyncEngine, name: str, reads: Mapping[str, int] | None = None) -> None:
        self.now_ms = 1_000_000.0
        self.url = f"http://{name}"
        registration = Registration(url=self.url, code="1", lease_ms=5_000, renewal_ms=1_500)
        self.engine = engine
        self.leases = Leases(engine, lease_ms=5_000)
        self.fleet = Fleet(
            self.leases,
            registration if reads is None else replace(registration, reads=reads),
            boot=lambda: self.now_ms,
        )
        self.log = PostgresRecordLog(engine, tenure=self.fleet)

    async def steady(self) -> None:
        """Let it have been at work for a while."""
        await self.fleet.renew_and_look()
        self.now_ms += 4_000
        await self.fleet.renew_and_look()

    async def run_out(self) -> None:
        """Let its lease be over by the database's time, and by its own clock, as after a long pause."""
        async with self.engine.connect() as connection:
            over = "update coordinators set expires_at = clock_timestamp() - interval '1 second' where id = :id"
            await connection.execute(text(over), {"id": self.fleet.id})
        self.now_ms += 6_000


Start = Callable[..., CoordinatorInFleet]


@pytest.fixture
def start(engine: AsyncEngine) -> Start:
    """Return what makes coordinators on one empty database."""
    return partial(CoordinatorInFleet, engine)


async def both(start: Start) -> tuple[CoordinatorInFleet, CoordinatorInFleet]:
    """Return two coordinators that know of each other."""
    first, second = start("first"), start("second")
    await first.fleet.start()
    await second.fleet.start()
    await first.fleet.renew_and_look()
    return first, second


def away(monkeypatch: pytest.MonkeyPatch, one: CoordinatorInFleet) -> list[str]:
    """Have the database not answer when the coordinator renews; return under which names it has asked."""
    names: list[str] = []

    async def fail(identity: str, **_more: bool) -> bool:
        names.append(identity)
        raise StoreUnavailable("away")

    monkeypatch.setattr(one.leases, "renew", fail)
    return names


def of(one: CoordinatorInFleet) -> GroupId:
    """Return a group that falls to a coordinator."""
    return next(group for group in GROUPS if one.fleet.holds(group))


async def test_a_coordinator_alone_holds_everything(start: Start) -> None:
    alone = start("alone")
    assert not any(alone.fleet.holds(group) for group in GROUPS)
    await alone.fleet.start()
    assert all(alone.fleet.holds(group) for group in GROUPS)
    assert all(alone.fleet.owner_url(group) is None for group in GROUPS)


async def test_what_becomes_of_leases_and_groups_is_noted(start: Start) -> None:
    events: list[tuple[str, dict[str, object]]] = []
    first, second = start("first"), start("second")
    first.fleet.noted = lambda event, more: events.append((event, dict(more)))
    await first.fleet.start()
    name = first.fleet.id
    assert events == [("coordinators", {"living": ["http://first"], "coordinator": name})]
    await first.log.take_over(ORDERS)
    assert events[1:] == [("group-taken-over", {"group": ORDERS, "coordinator": name})]
    await second.steady()
    events.clear()
    await first.run_out()
    await second.fleet.renew_and_look()
    await first.fleet.renew_and_look()
    assert events[0] == ("lease-lost", {"coordinator": name, "groups": 1})
    first.fleet.forgotten(ORDERS)
    await first.fleet.renew_and_look()
    assert events[-1] == ("group-released", {"group": ORDERS, "coordinator": first.fleet.id})


async def test_those_of_this_database_are_known_as_long_as_they_live(start: Start) -> None:
    first, second = await both(start)
    assert [first.fleet.knows(name) for name in (first.fleet.id, second.fleet.id, "other")] == [True, True, False]
    await second.fleet.leave()
    await first.fleet.renew_and_look()
    assert not first.fleet.knows(second.fleet.id)


async def test_each_group_falls_to_one_of_them(start: Start) -> None:
    first, second = await both(start)
    held = [(first.fleet.holds(group), second.fleet.holds(group)) for group in GROUPS]
    assert set(held) == {(True, False), (False, True)}
    assert 15 < sum(one for one, _ in held) < 45
    for group in GROUPS:
        other = second if first.fleet.holds(group) else first
        owner = first if other is second else second
        assert other.fleet.owner_url(group) == owner.url
        assert owner.fleet.owner_url(group) is None


async def test_a_third_coordinator_takes_its_share_from_both_and_moves_no_other_group(start: Start) -> None:
    first, second = await both(start)
    before = {group: first.fleet.holds(group) for group in GROUPS}
    third = start("third")
    await third.fleet.start()
    await first.fleet.renew_and_look()
    await second.fleet.renew_and_look()
    for group in GROUPS:
        holders = [one for one in (first, second, third) if one.fleet.holds(group)]
        assert len(holders) == 1
        assert third in holders or first.fleet.holds(group) == before[group]


async def test_a_group_goes_over_when_it_has_been_released(start: Start) -> None:
    first = start("first")
    await first.fleet.start()
    for group in GROUPS:
        await first.log.take_over(group)
    second = start("second")
    await second.fleet.start()
    group = of(second)
    with pytest.raises(NotOwner):
        await second.log.take_over(group)
    await first.fleet.renew_and_look()
    assert group in first.fleet.to_forget()
    assert not first.fleet.holds(group)
    await first.fleet.renew_and_look()
    with pytest.raises(NotOwner):
        await second.log.take_over(group)
    first.fleet.forgotten(group)
    await first.fleet.renew_and_look()
    assert await second.log.take_over(group) == 2
    with pytest.raises(Superseded):
        await first.log.append(Commit(group, 1, 0, [ProbeScheduled(1)]))


async def test_what_went_and_came_back_is_forgotten_first(start: Start) -> None:
    first = start("first")
    await first.fleet.start()
    for group in GROUPS:
        await first.log.take_over(group)
    second = start("second")
    await second.fleet.start()
    group = of(second)
    await first.fleet.renew_and_look()
    await second.fleet.leave()
    await first.fleet.renew_and_look()
    assert [one.url for one in first.fleet.living] == ["http://first"]
    assert not first.fleet.holds(group)
    first.fleet.forgotten(group)
    assert not first.fleet.holds(group)
    await first.fleet.renew_and_look()
    assert first.fleet.holds(group)
    assert await first.log.take_over(group) == 2


async def test_a_group_is_taken_over_only_when_its_owners_lease_is_gone(start: Start) -> None:
    first, second = await both(start)
    group = of(first)
    assert await first.log.take_over(group) == 1
    await first.log.append(Commit(group, 1, 0, [ProbeScheduled(1)]))
    await second.steady()
    assert second.fleet.owner_url(group) == "http://first"
    with pytest.raises(NotOwner):
        await second.log.take_over(group)
    await first.run_out()
    assert not first.fleet.holds(group)
    await second.fleet.renew_and_look()
    assert second.fleet.holds(group)
    assert await second.log.take_over(group) == 2
    for records in ([ProbeScheduled(2)], []):
        with pytest.raises(Superseded):
            await first.log.append(Commit(group, 1, 1, records))
    await second.log.append(Commit(group, 2, 1, [ProbeScheduled(3)]))


async def test_a_coordinator_whose_row_was_deleted_gets_a_new_id(start: Start) -> None:
    """A coordinator that was paused too long comes back under another name."""
    first, second = await both(start)
    group = of(first)
    await first.log.take_over(group)
    name = first.fleet.id
    await first.run_out()
    await second.steady()
    await second.log.take_over(group)
    await first.fleet.renew_and_look()
    assert first.fleet.id != name
    assert group in first.fleet.to_forget()
    assert not first.fleet.holds(group)
    await second.fleet.renew_and_look()
    assert {one.id for one in second.fleet.living} == {first.fleet.id, second.fleet.id}


async def test_a_coordinator_that_renewed_late_keeps_groups_that_no_other_has_taken(start: Start) -> None:
    """Nothing was another's meanwhile."""
    alone = start("alone")
    await alone.fleet.start()
    await alone.log.take_over(ORDERS)
    await alone.run_out()
    assert not alone.fleet.holds(ORDERS)
    await alone.fleet.renew_and_look()
    assert alone.fleet.holds(ORDERS)
    assert list(alone.fleet.to_forget()) == []
    await alone.log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(1)]))


async def test_clocks_of_machines_do_not_matter(start: Start) -> None:
    first, second = await both(start)
    second.now_ms += 10**9
    await second.steady()
    group = of(first)
    await first.log.take_over(group)
    await second.fleet.renew_and_look()
    assert len(second.fleet.living) == 2
    with pytest.raises(NotOwner):
        await second.log.take_over(group)
    assert first.fleet.holds(group)


async def last_read(engine: AsyncEngine, ago_s: float) -> int:
    """Let the clock have been read last so long ago; return that instant, in milliseconds since 1970."""
    back = "update clock set read_at = clock_timestamp() - :ago * interval '1 second' returning "
    async with engine.begin() as connection:
        done = await connection.execute(text(back + ms_of("read_at")), {"ago": ago_s})
        return int(done.scalar_one())


@pytest.mark.parametrize("is_orderly", [True, False])
async def test_a_clock_that_nobody_has_read_for_long_may_have_jumped(
    start: Start, engine: AsyncEngine, *, is_orderly: bool
) -> None:
    """Whether an hour has passed or the clock has jumped, nobody can tell. Whoever starts next knows of it too."""
    first = start("first")
    await first.fleet.start()
    if is_orderly:
        await first.fleet.leave()
    read_ms = await last_read(engine, 3_600)
    second, third = start("next"), start("third")
    await second.fleet.start()
    await third.fleet.start()
    clocks = [one.fleet.clock for one in (second, third)]
    assert [clock.ran_until_ms for clock in clocks] == [read_ms] * 2
    assert clocks[0].moved_ms == clocks[1].moved_ms
    assert abs((clocks[0].moved_ms or 0) - read_ms - HOUR_MS) < 60_000
    assert first.fleet.clock.moved_ms is None


async def test_a_plain_restart_leaves_the_clock_as_it_is(start: Start, engine: AsyncEngine) -> None:
    first = start("first")
    await first.fleet.start()
    await last_read(engine, 8)
    second = start("next")
    await second.fleet.start()
    assert second.fleet.clock.moved_ms is None
    await second.fleet.renew_and_look()
    assert second.fleet.clock.moved_ms is None


async def test_a_jump_that_a_coordinator_has_seen_is_known_to_one_that_starts_at_once(start: Start) -> None:
    """Not from when on, so every lease that ended since may still run."""
    first = start("first")
    await first.fleet.start()
    first.now_ms += HOUR_MS  # As if the database's clock had gone back.
    await first.fleet.renew_and_look()
    assert first.fleet.clock.moved_ms is not None
    second = start("next")
    await second.fleet.start()
    assert second.fleet.clock.moved_ms is not None
    assert second.fleet.clock.ran_until_ms == 0


async def test_a_lease_that_was_lost_before_a_jump_could_be_told_is_followed_by_another(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jump was seen, the connection broke, and meanwhile another coordinator removed the row."""
    first, second = await both(start)
    await second.steady()
    name, renew = first.fleet.id, first.leases.renew

    async def broken(identity: str, *, has_moved: bool = False, **more: bool) -> Reading | None:
        if has_moved:
            raise StoreUnavailable("broken")
        return await renew(identity, has_moved=has_moved, **more)

    first.now_ms += HOUR_MS  # As if the database's clock had gone back.
    with monkeypatch.context() as outage:
        outage.setattr(first.leases, "renew", broken)
        with pytest.raises(StoreUnavailable):
            await first.fleet.renew_and_look()
    await first.run_out()
    await second.fleet.renew_and_look()
    await first.fleet.renew_and_look()
    assert first.fleet.id != name
    assert first.fleet.lease_left_s() > 0
    third = start("third")
    await third.fleet.start()
    assert third.fleet.clock.moved_ms is not None


async def test_a_lease_from_before_the_clock_went_back_is_over_within_the_longest_that_there_is(start: Start) -> None:
    """Its coordinator died at that moment; otherwise it would have renewed the lease, by the new clock."""
    first, second = await both(start)
    await second.steady()
    async with first.engine.connect() as connection:
        later = text("update coordinators set expires_at = expires_at + interval '1 hour' where id = :id")
        await connection.execute(later, {"id": first.fleet.id})
    await second.fleet.renew_and_look()
    (left_ms,) = [one.left_ms for one in await second.leases.coordinators() if one.id == first.fleet.id]
    assert LONGEST_MS - 10_000 < left_ms <= LONGEST_MS
    await first.run_out()
    await second.fleet.renew_and_look()
    assert all(second.fleet.holds(group) for group in GROUPS)


async def test_who_starts_alone_waits_for_no_lease_from_before_the_clock_went_back(start: Start) -> None:
    """The run before at its URL died with its machine, and the database failed over to one whose clock is behind."""
    before, again = start("alone"), start("alone")
    await before.fleet.start()
    async with before.engine.connect() as connection:
        later = text("update coordinators set id = 'of-another-machine', expires_at = expires_at + interval '1 hour'")
        await connection.execute(later)
    with pytest.raises(StoreUnavailable, match="has the URL"):
        await again.fleet.start()
    (left_ms,) = [one.left_ms for one in await again.leases.coordinators()]
    assert left_ms <= LONGEST_MS


def test_no_lease_may_be_set_to_last_longer_than_the_longest() -> None:
    bounds = Settings.model_fields["lease_ms"].metadata
    assert [one.le for one in bounds if isinstance(one, Le)] == [LONGEST_MS]


async def test_after_an_outage_for_all_each_gets_the_time_to_renew_its_own_lease(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await both(start)
    await first.steady()
    await second.steady()
    with monkeypatch.context() as outage:
        names = away(outage, first)
        running = asyncio.create_task(first.fleet.run())
        await until(lambda: names)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await first.run_out()
    await second.run_out()
    await first.fleet.renew_and_look()
    assert len(first.fleet.living) == 2
    await second.fleet.renew_and_look()
    first.now_ms += 4_000
    await first.fleet.renew_and_look()
    assert len(first.fleet.living) == 2
    assert (await first.leases.coordinators())[0].left_ms > 0


async def test_the_lease_counts_from_before_it_was_asked_for(start: Start) -> None:
    """However long the database takes to answer, the holder stops before its row may be taken away."""
    alone = start("alone")
    await alone.fleet.start()
    alone.now_ms += 4_499
    assert alone.fleet.holds(ORDERS)
    alone.now_ms += 1
    assert not alone.fleet.holds(ORDERS)


async def test_a_lease_that_was_over_for_a_while_and_goes_on_is_a_lapse(start: Start) -> None:
    """Also where no other coordinator has taken its row away: in the meantime nobody was heard."""
    alone = start("alone")
    await alone.fleet.start()
    lapses = alone.fleet.lapses
    alone.now_ms += 4_500 + STALL_MS
    await alone.fleet.renew_and_look()
    assert (alone.fleet.holds(ORDERS), alone.fleet.lapses) == (True, lapses)
    alone.now_ms += 4_500 + STALL_MS + 1
    await alone.fleet.renew_and_look()
    assert (alone.fleet.holds(ORDERS), alone.fleet.lapses) == (True, lapses + 1)


async def test_a_fleet_without_its_database_holds_until_its_lease_is_over(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = start("alone")
    await alone.fleet.start()
    away(monkeypatch, alone)
    alone.now_ms += 2_000
    with pytest.raises(StoreUnavailable):
        await alone.fleet.renew_and_look()
    assert alone.fleet.holds(ORDERS)
    alone.now_ms += 3_000
    assert not alone.fleet.holds(ORDERS)


async def test_a_database_that_is_away_is_not_asked_without_pause(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even to release a group, which is done at once otherwise."""
    first, second = await both(start)
    group = of(first)
    await first.log.take_over(group)
    await second.steady()
    await first.run_out()
    await second.fleet.renew_and_look()
    await first.fleet.renew_and_look()
    assert group in first.fleet.to_forget()
    names = away(monkeypatch, first)
    first.fleet.forgotten(group)
    running = asyncio.create_task(first.fleet.run())
    await asyncio.sleep(0.3)
    assert len(names) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_who_leaves_is_followed_at_once(start: Start) -> None:
    first, second = await both(start)
    group = of(first)
    await first.log.take_over(group)
    await first.fleet.leave()
    assert not first.fleet.holds(group)
    await second.fleet.renew_and_look()
    assert second.fleet.holds(group)
    assert await second.log.take_over(group) == 2


async def test_who_knows_that_it_is_alone_waits_for_nobody(start: Start) -> None:
    """It knows that no other can be running, and owns what a killed one left."""
    killed, next_one = start("killed"), start("next")
    await killed.fleet.start()
    await killed.log.take_over(ORDERS)
    await next_one.fleet.start(alone=True)
    assert next_one.fleet.holds(ORDERS)
    assert await next_one.log.take_over(ORDERS) == 2


@pytest.mark.parametrize(("address", "dead", "outlived"), [("one", "one", []), ("two", "one", ["one"])])
async def test_who_comes_back_in_the_place_of_a_dead_process_waits_for_nobody(
    start: Start, monkeypatch: pytest.MonkeyPatch, address: str, dead: str, outlived: list[str]
) -> None:
    """At the same address, when its former process is certain to be dead."""
    killed, next_one = start("one"), start(address)
    await killed.fleet.start()
    await killed.log.take_over(ORDERS)
    monkeypatch.setattr(fleet, "is_dead", lambda name: dead == "one" and name == killed.fleet.id)
    await next_one.fleet.start()
    assert [one.id for one in next_one.fleet.living if one.id != next_one.fleet.id] == [killed.fleet.id] * len(outlived)
    if not outlived:
        assert all(next_one.fleet.holds(group) for group in GROUPS)
        assert await next_one.log.take_over(ORDERS) == 2


async def test_who_comes_back_in_the_place_of_an_unknown_process_waits_for_its_lease_alone(start: Start) -> None:
    killed, next_one = start("one"), start("one")
    await killed.fleet.start()
    await killed.log.take_over(ORDERS)
    with pytest.raises(StoreUnavailable, match="has the URL http://one too"):
        await next_one.fleet.start()
    await killed.run_out()
    await next_one.fleet.start()
    assert next_one.fleet.holds(ORDERS)
    assert await next_one.log.take_over(ORDERS) == 2


async def test_of_two_coordinators_at_one_url_one_takes_part(start: Start) -> None:
    """Which of them a call is passed on to, nobody can know."""
    events: list[str] = []
    first, second = start("one"), start("one")
    second.fleet.noted = lambda event, _more: events.append(event)
    await first.fleet.start()
    running = asyncio.create_task(second.fleet.run())
    await until(lambda: "has the URL http://one too" in second.fleet.trouble)
    await asyncio.sleep(fleet.RETRY_MS * 2.5 / 1_000)
    assert all(first.fleet.holds(group) and not second.fleet.holds(group) for group in GROUPS)
    assert [one.id for one in await first.leases.coordinators()] == [first.fleet.id]
    assert events == ["lease-not-renewed"]
    await first.fleet.leave()
    await until(lambda: all(second.fleet.holds(group) for group in GROUPS))
    running.cancel()


async def test_of_two_that_began_at_one_url_in_the_same_moment_one_takes_part(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [start("one"), start("one")]
    for one in both:
        with monkeypatch.context() as context:
            context.setattr(one.leases, "coordinators", partial(asyncio.sleep, 0, []))
            await one.fleet.start()
    stays, goes = sorted(both, key=lambda one: one.fleet.id)
    await stays.fleet.renew_and_look()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="has the URL http://one too"):
            await goes.fleet.renew_and_look()
        assert not any(goes.fleet.holds(group) for group in GROUPS)
    await stays.fleet.renew_and_look()
    assert all(stays.fleet.holds(group) for group in GROUPS)


async def test_groups_that_nobody_owns_are_made_known(start: Start) -> None:
    alone = start("alone")
    await alone.fleet.start()
    epoch = await alone.log.take_over(ORDERS)
    await alone.log.append(Commit(ORDERS, epoch, 0, [ProbeScheduled(1)]))
    changes = 0

    async def changed() -> None:
        nonlocal changes
        changes += 1

    alone.fleet.changed = changed
    running = asyncio.create_task(alone.fleet.run())
    await until(lambda: changes)
    await alone.fleet.renew_and_look()
    await asyncio.sleep(0.05)
    assert changes == 1
    await alone.leases.release(alone.fleet.id, [ORDERS])
    await alone.fleet.renew_and_look()
    await until(lambda: changes == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_nobody_has_to_own_a_group_that_was_deleted(start: Start) -> None:
    alone = start("alone")
    await alone.fleet.start()
    epoch = await alone.log.take_over(ORDERS)
    await alone.log.append(Commit(ORDERS, epoch, 0, [ProbeScheduled(1)]))
    await alone.leases.release(alone.fleet.id, [ORDERS])
    assert await alone.leases.orphans() == [ORDERS]
    assert await alone.leases.owners() == {ORDERS: None}
    epoch = await alone.log.take_over(ORDERS)
    await alone.log.append(Commit(ORDERS, epoch, 1, [GroupDeleted(2, 2)]))
    await alone.leases.release(alone.fleet.id, [ORDERS])
    assert await alone.leases.orphans() == []
    assert await alone.leases.owners() == {}


async def test_nobody_waits_for_whoever_writes_the_clock_down(start: Start) -> None:
    """On a slow disk the row is locked for as long as a commit takes: leases would wait for one another."""
    alone = start("alone")
    await alone.fleet.start()
    async with alone.engine.execution_options(isolation_level="READ COMMITTED").begin() as holder:
        await holder.execute(text("select from clock for update"))
        alone.now_ms += 3_000
        async with asyncio.timeout(3):
            assert await alone.leases.renew(alone.fleet.id) is not None


async def test_a_database_that_is_too_slow_for_the_lease_is_said_to_be(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, takes_ms, noted = start("alone"), 0, list[str]()
    renew = alone.leases.renew

    async def slow(identity: str, **more: bool) -> Reading | None:
        reading = await renew(identity, **more)
        alone.now_ms += takes_ms
        return reading and Reading(int(alone.now_ms))

    monkeypatch.setattr(alone.leases, "renew", slow)
    alone.fleet.noted = lambda event, more: noted.append(f"{event}: {more.get('reason')}")
    await alone.fleet.start()
    for each_ms, is_too_slow in ((1_000, False), (2_500, True), (10, False)):
        takes_ms = each_ms
        for _ in range(2):
            pause_ms = await alone.fleet.renew_and_look()
            alone.now_ms += pause_ms
        assert ("take so long that the lease ends" in alone.fleet.trouble) is is_too_slow
    assert [one for one in noted if one.startswith("lease-not-renewed: its answers take so long that the lease ends")]


@asynccontextmanager
async def locking(engine: AsyncEngine, *groups: GroupId) -> AsyncIterator[None]:
    """Have another session lock the heads of groups meanwhile."""
    async with engine.execution_options(isolation_level="READ COMMITTED").begin() as holder:
        lock = text("select from group_heads where group_id = any(cast(:groups as text[])) for update")
        await holder.execute(lock, {"groups": list(groups)})
        yield


async def test_a_locked_head_costs_no_lease_and_is_released_when_it_is_free(start: Start) -> None:
    first = start("first")
    noted: list[str] = []
    first.fleet.noted = lambda event, more: noted.append(f"{event} {more.get('group', '')}")
    await first.fleet.start()
    for group in GROUPS:
        await first.log.take_over(group)
    second = start("second")
    await second.fleet.start()
    locked, free = [group for group in GROUPS if second.fleet.holds(group)][:2]
    await first.fleet.renew_and_look()
    first.fleet.forgotten(locked)
    first.fleet.forgotten(free)
    async with locking(first.engine, locked):
        for _ in range(3):
            async with asyncio.timeout(3):
                assert await first.fleet.renew_and_look() <= fleet.RETRY_MS
        assert first.fleet.lease_left_s() > 0
        assert await second.log.take_over(free) == 2
        assert noted.count(f"group-locked {locked}") == 1
        assert f"group-released {locked}" not in noted
        with pytest.raises(NotOwner):
            await second.log.take_over(locked)
    await first.fleet.renew_and_look()
    assert f"group-released {locked}" in noted
    assert await second.log.take_over(locked) == 2


async def test_a_locked_head_is_not_asked_for_without_pause(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = start("first"), start("second")
    await first.fleet.start()
    for group in GROUPS:
        await first.log.take_over(group)
    await second.fleet.start()
    await first.fleet.renew_and_look()
    asked: list[int] = []
    release = first.leases.release

    async def counted(identity: str, groups: Sequence[str]) -> set[str]:
        asked.append(len(groups))
        return await release(identity, groups)

    monkeypatch.setattr(first.leases, "release", counted)
    first.fleet.forgotten(of(second))
    async with locking(first.engine, of(second)):
        running = asyncio.create_task(first.fleet.run())
        await until(lambda: asked)
        await asyncio.sleep(fleet.RETRY_MS / 2_000)
        assert len(asked) == 1
    await until(lambda: len(asked) == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_who_leaves_waits_for_no_locked_head(start: Start) -> None:
    first, second = await both(start)
    group, other = [group for group in GROUPS if first.fleet.holds(group)][:2]
    await first.log.take_over(group)
    await first.log.take_over(other)
    async with locking(first.engine, group):
        async with asyncio.timeout(3):
            await first.fleet.leave()
        await second.fleet.renew_and_look()
        assert await second.log.take_over(other) == 2
        with pytest.raises(StoreUnavailable, match=f"another session has the head of {group} locked"):
            async with asyncio.timeout(3):
                await second.log.take_over(group)
    assert await second.log.take_over(group) == 2


async def test_a_new_version_is_written_when_everybody_reads_it(start: Start) -> None:
    first = start("first", reads={"a": 3, "b": 1, "c": 1})
    await first.fleet.start()
    assert first.fleet.writes_up_to() == {"a": 3, "b": 1, "c": 1}
    second = start("second", reads={"a": 2, "b": 4})
    await second.fleet.start()
    await first.fleet.renew_and_look()
    assert first.fleet.writes_up_to() == {"a": 2, "b": 1, "c": 0}
    await second.fleet.leave()
    await first.fleet.renew_and_look()
    assert first.fleet.writes_up_to() == {"a": 3, "b": 1, "c": 1}


def test_ranks_are_the_same_everywhere_and_depend_on_both_names() -> None:
    assert rank("a", "orders").hex() == "4df22526e553cd56ada32c0eb3cc0292"
    assert len({rank(one, group) for one in ("a", "b") for group in ("x", "y")}) == 4
