"""A group's inputs are carried out one at a time, in order, and never more than fit."""

import asyncio

import pytest
from tests.runtime.fakes import GROUP, M1, M2, World, make_world

from batonpass.core.state.inputs import Heartbeat, Input, ProbeRequest, ResumeRequest, Started, Tick
from batonpass.core.state.replies import Done
from batonpass.loop_turns import LoopTurns
from batonpass.runtime.engine import Engine
from batonpass.runtime.history import Asked
from batonpass.runtime.mailbox import Mailbox
from batonpass.runtime.ports import Defect, StoreUnavailable


@pytest.fixture
def world() -> World:
    """Return a world without laws."""
    return make_world()


def mailbox_of(world: World, *, limit: int = 10) -> Mailbox:
    """Return a mailbox of a fresh engine."""
    engine = Engine(GROUP, world.ports, changed=lambda _: None, wake_at=lambda _: None)
    return Mailbox(engine, limit=limit, turns=LoopTurns())


async def test_what_waits_is_carried_out_together_and_in_order(world: World) -> None:
    mailbox = mailbox_of(world)
    await mailbox.ask(Tick())
    world.seen.asked.clear()
    world.log.open.clear()
    first, second = asyncio.create_task(mailbox.ask(ProbeRequest())), asyncio.create_task(mailbox.ask(ProbeRequest()))
    beat = asyncio.create_task(mailbox.ask(Heartbeat(M1, 1, 1)))
    await asyncio.sleep(0.01)
    assert world.seen.asked == [ProbeRequest()]
    world.log.open.set()
    assert list(await asyncio.gather(first, second, beat)) == [Done(), Done(), Done()]
    expected: list[Input] = [ProbeRequest(), ProbeRequest(), Heartbeat(M1, 1, 1)]
    assert world.seen.effects[-3:] == expected
    assert world.seen.batches[-2:] == [(ProbeRequest(),), (ProbeRequest(), Heartbeat(M1, 1, 1))]
    assert world.log.appends == 2


async def test_a_command_is_a_batch_of_its_own(world: World) -> None:
    """It leaves a row of its own in the audit trail."""
    mailbox = mailbox_of(world)
    await mailbox.ask(Tick())
    world.log.open.clear()
    busy = asyncio.create_task(mailbox.ask(ProbeRequest()))
    await asyncio.sleep(0.01)
    world.seen.batches.clear()
    beats = [Heartbeat(M1, seq, 1) for seq in (1, 2, 3)]
    asked = Asked(who="ops", command="resume")
    waiting = [asyncio.create_task(mailbox.ask(one)) for one in beats[:2]]
    waiting.append(asyncio.create_task(mailbox.ask(ResumeRequest(), asked)))
    waiting.append(asyncio.create_task(mailbox.ask(beats[2])))
    await asyncio.sleep(0.01)
    world.log.open.set()
    await asyncio.gather(busy, *waiting)
    assert world.seen.batches == [(beats[0], beats[1]), (ResumeRequest(),), (beats[2],)]
    [row] = await world.log.commands(GROUP, before=None, limit=10)
    assert row.asked == asked


async def test_no_more_than_so_many_are_decided_on_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.runtime.mailbox.BATCH_MAX", 2)
    mailbox = mailbox_of(world)
    await mailbox.ask(Tick())
    world.log.open.clear()
    busy = asyncio.create_task(mailbox.ask(ProbeRequest(), Asked(cause="c0")))
    await asyncio.sleep(0.01)
    waiting = [asyncio.create_task(mailbox.ask(ProbeRequest(), Asked(cause=f"c{one}"))) for one in (1, 2, 3)]
    await asyncio.sleep(0.01)
    world.log.open.set()
    await asyncio.gather(busy, *waiting)
    assert [len(batch) for batch in world.seen.batches[-3:]] == [1, 2, 1]
    assert [one.asked.cause for one in world.log._histories[GROUP]] == ["c0", "c1 c2", "c3"]


async def test_a_full_mailbox_refuses_at_once(world: World) -> None:
    mailbox = mailbox_of(world, limit=1)
    await mailbox.ask(Tick())
    world.log.open.clear()
    waiting = [asyncio.create_task(mailbox.ask(ProbeRequest()))]
    await asyncio.sleep(0.01)
    waiting.append(asyncio.create_task(mailbox.ask(ProbeRequest())))
    await asyncio.sleep(0.01)
    reply = await asyncio.wait_for(mailbox.ask(ProbeRequest()), 1)
    assert isinstance(reply, StoreUnavailable)
    assert reply.retry_after_ms is not None
    assert not mailbox.post(Tick())
    world.log.open.set()
    assert await asyncio.gather(*waiting) == [Done(), Done()]


async def test_a_heartbeat_that_found_no_room_counts_before_any_deadline(world: World) -> None:
    """A heartbeat answered 503 counts as received (L5)."""
    mailbox = mailbox_of(world, limit=1)
    await mailbox.ask(Tick())
    world.log.open.clear()
    waiting = [asyncio.create_task(mailbox.ask(ProbeRequest()))]
    await asyncio.sleep(0.01)
    waiting.append(asyncio.create_task(mailbox.ask(ProbeRequest())))
    await asyncio.sleep(0.01)
    assert isinstance(await mailbox.ask(Heartbeat(M2, 7, 3)), StoreUnavailable)
    world.log.open.set()
    await asyncio.gather(*waiting)
    world.seen.asked.clear()
    assert mailbox.post(Tick())
    await mailbox.close()
    heartbeat, tick = world.seen.asked
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.member_id, heartbeat.seq < 0, heartbeat.tasks, tick) == (M2, True, None, Tick())


async def test_a_look_that_waits_is_not_posted_again(world: World) -> None:
    mailbox = mailbox_of(world)
    await mailbox.ask(Tick())
    world.log.open.clear()
    waiting = asyncio.create_task(mailbox.ask(ProbeRequest()))
    await asyncio.sleep(0.01)
    world.seen.asked.clear()
    assert all([mailbox.post(Tick()), mailbox.post(Tick()), mailbox.post(Tick())])
    world.log.open.set()
    await waiting
    while not mailbox.is_idle:
        await asyncio.sleep(0)
    assert world.seen.asked == [Tick()]
    assert mailbox.post(Tick())
    await mailbox.close()
    assert world.seen.asked == [Tick(), Tick()]


async def test_a_caller_that_goes_away_takes_nothing_with_it(world: World) -> None:
    mailbox = mailbox_of(world)
    world.log.open.clear()
    gone, stays = asyncio.create_task(mailbox.ask(ProbeRequest())), asyncio.create_task(mailbox.ask(ProbeRequest()))
    await asyncio.sleep(0.01)
    gone.cancel()
    world.log.open.set()
    assert await stays == Done()
    assert (await world.log.read(GROUP)).version == 2


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_defect_is_answered_and_the_group_goes_on(world: World, *, is_busy: bool) -> None:
    mailbox = mailbox_of(world)
    await mailbox.ask(Tick())
    before: asyncio.Task[object] | None = None
    if is_busy:
        world.log.open.clear()
        before = asyncio.create_task(mailbox.ask(ProbeRequest()))
        await asyncio.sleep(0.01)
    world.core.raises = ValueError("boom")
    failing = asyncio.create_task(mailbox.ask(Heartbeat(M1, 1, 1)))
    await asyncio.sleep(0.01)
    world.log.open.set()
    assert isinstance(await failing, Defect)
    assert [str(error) for error in world.seen.defects] == ["boom"]
    assert before is None or await before == Done()
    assert await mailbox.ask(ProbeRequest()) == Done()


async def test_closing_finishes_what_was_accepted_and_refuses_the_rest(world: World) -> None:
    mailbox = mailbox_of(world)
    world.log.open.clear()
    accepted = asyncio.create_task(mailbox.ask(ProbeRequest()))
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(mailbox.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    assert isinstance(await mailbox.ask(ProbeRequest()), StoreUnavailable)
    world.log.open.set()
    await closing
    assert await accepted == Done()
    assert (await world.log.read(GROUP)).version == 1


async def test_the_first_input_is_a_start(world: World) -> None:
    """The core hears first that the coordinator has just loaded the group (L3)."""
    mailbox = mailbox_of(world)
    await mailbox.ask(ProbeRequest())
    expected: list[Input] = [Started(), ProbeRequest()]
    assert world.seen.asked == expected
