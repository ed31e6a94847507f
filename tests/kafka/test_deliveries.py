"""What waits to be carried out or written: in which order, how much of it, and for whom."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from tests.waiting import until

from batonpass.core.state.errors import Gone
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.kafka.exchange import settings_of
from batonpass.kafka.ordering import Deliveries, Delivery, Turns
from batonpass.worker.kafka.connection import TopicNames


class Leader:
    """A producer whose writes wait until they may end."""

    def __init__(self) -> None:
        self.written: list[bytes | None] = []
        self.asked = 0
        self.answers = asyncio.Event()

    async def send_and_wait(self, _topic: str, value: bytes | None, **_: object) -> None:
        self.asked += 1
        await self.answers.wait()
        self.written.append(value)


@asynccontextmanager
async def writing(leader: Leader, *, mine: set[GroupId]) -> AsyncIterator[Deliveries]:
    """Have the records of one partition written."""
    deliveries = Deliveries(leader, "topic", 1, mine.__contains__)
    running = asyncio.create_task(deliveries.run())
    yield deliveries
    running.cancel()
    await asyncio.wait([running])


def said(number: int) -> dict[MemberId, int]:
    return {MemberId("m"): number}


async def test_of_a_key_the_last_refusal_and_the_last_answer_wait_for_a_leader() -> None:
    """All of them, through an outage of an hour, would fill the memory."""
    leader = Leader()
    async with writing(leader, mine={GroupId("g")}) as deliveries:
        deliveries.put(Delivery(b"g/m", said(0)))
        await until(lambda: leader.asked)
        for number in range(1, 100):
            deliveries.put(Delivery(b"g/m", Gone(f"for the {number}. time")))
            deliveries.put(Delivery(b"g/m", said(number)))
        deliveries.put(Delivery(b"g/n", None))
        assert (deliveries.has(b"g/n"), deliveries.has(b"g/o")) == (True, False)
        leader.answers.set()
        await until(lambda: not deliveries.has(b"g/n"))
    first, refusal, gone, last = leader.written
    assert (first, last, gone) == (b'{"m":0}', b'{"m":99}', None)
    assert b"for the 99. time" in (refusal or b"")


async def test_what_was_said_last_of_a_member_stands_last() -> None:
    """Whoever begins to read there has the present answer, and no refusal of long ago."""
    leader = Leader()
    async with writing(leader, mine={GroupId("g")}) as deliveries:
        deliveries.put(Delivery(b"g/m", said(0)))
        await until(lambda: leader.asked)
        for body in (said(1), Gone("refused"), said(2)):
            deliveries.put(Delivery(b"g/n", body))
        leader.answers.set()
        await until(lambda: not deliveries.has(b"g/n"))
    _, refusal, last = leader.written
    assert b"refused" in (refusal or b"")
    assert last == b'{"m":2}'


async def test_who_has_news_again_keeps_the_turn() -> None:
    """Otherwise a member with news in every heartbeat would be told none while others wait, too."""
    leader = Leader()
    async with writing(leader, mine={GroupId("g")}) as deliveries:
        for number, key in enumerate((b"g/m", b"g/n", b"g/o", b"g/n", b"g/m")):
            deliveries.put(Delivery(key, said(number)))
            await until(lambda: leader.asked)
        leader.answers.set()
        await until(lambda: not deliveries.has(b"g/m"))
    assert leader.written == [b'{"m":0}', b'{"m":3}', b'{"m":2}', b'{"m":4}']


async def test_what_waited_is_not_written_for_a_group_that_is_another_coordinators_by_now() -> None:
    leader, mine = Leader(), {GroupId("g"), GroupId("h")}
    async with writing(leader, mine=mine) as deliveries:
        for number, key in enumerate((b"g/m", b"h/m", b"g/n")):
            deliveries.put(Delivery(key, said(number)))
        await until(lambda: leader.asked)
        mine.remove(GroupId("h"))
        leader.answers.set()
        await until(lambda: not deliveries.has(b"g/n"))
        assert not deliveries.has(b"h/m")
    assert leader.written == [b'{"m":0}', b'{"m":2}']


async def test_what_waits_is_not_encoded_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of a thousand members with a hundred tasks each would hold up the loop for a tenth of a second."""
    leader, encoded = Leader(), list[bytes]()
    value = Delivery.value

    def noting(record: Delivery) -> bytes | None:
        encoded.append(record.key)
        return value(record)

    monkeypatch.setattr(Delivery, "value", noting)
    async with writing(leader, mine={GroupId("g")}) as deliveries:
        for number in range(100):
            deliveries.put(Delivery(b"g/%d" % number, said(number)))
        await until(lambda: leader.asked)
        assert encoded == [b"g/0"]


async def test_what_a_member_said_is_carried_out_in_its_order_and_holds_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    may_end = asyncio.Event()

    async def work(name: str, *, waits: bool = False) -> None:
        if waits:
            await may_end.wait()
        done.append(name)

    slow, other = (GroupId("slow"), MemberId("m")), (GroupId("other"), MemberId("m"))
    monkeypatch.setattr("batonpass.kafka.ordering.IN_HAND_BYTES", 8)
    async with asyncio.TaskGroup() as tasks:
        turns = Turns(tasks)
        await turns.take(slow, 3, partial(work, "first", waits=True))
        await turns.take(slow, 3, partial(work, "second"))
        await turns.take(other, 3, partial(work, "another"))
        assert done == ["another"], "with it there was more in hand than may be"
        taking = asyncio.create_task(turns.take(other, 6, partial(work, "large", waits=True)))
        await until(lambda: len(turns._last) == 2)
        assert not taking.done()
        may_end.set()
        await taking
    assert sorted(done) == ["another", "first", "large", "second"]
    assert done.index("first") < done.index("second")


async def test_while_too_much_is_in_hand_nobody_looks_at_all_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand members that are behind, each record would cost a look at them all."""
    looked_at, wait = list[int](), asyncio.wait

    async def counted(some: Any, **how: Any) -> Any:
        looked_at.append(len(some))
        return await wait(some, **how)

    async def work() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    monkeypatch.setattr(asyncio, "wait", counted)
    monkeypatch.setattr("batonpass.kafka.ordering.IN_HAND_BYTES", 10)
    async with asyncio.TaskGroup() as tasks:
        turns = Turns(tasks)
        for number in range(50):
            await turns.take((GroupId("g"), MemberId(f"m{number}")), 1, work)
            assert len(turns._last) <= 10
    assert looked_at == []


async def test_what_came_at_once_lets_others_go_on_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a turn holds one record, there is no round of the loop with two of them."""
    monkeypatch.setattr("batonpass.loop_turns.TURN_S", 0)
    done: list[int] = []

    async def work(number: int) -> None:
        done.append(number)

    most = before = 0
    async with asyncio.TaskGroup() as tasks:
        turns = Turns(tasks)
        for number in range(20):
            await turns.take((GroupId("g"), MemberId(f"m{number}")), 1, partial(work, number))
        async with asyncio.timeout(10):
            while len(done) < 20:
                most, before = max(most, len(done) - before), len(done)
                await asyncio.sleep(0)
    assert most == 1
    assert done == sorted(done)


async def test_work_that_fails_ends_the_rest() -> None:
    """Whoever carries the protocol begins anew then."""

    async def waits() -> None:
        await asyncio.Event().wait()

    async def fails() -> None:
        raise ZeroDivisionError

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            turns = Turns(tasks)
            await turns.take((GroupId("g"), MemberId("m")), 1, waits)
            await turns.take((GroupId("g"), MemberId("n")), 1, fails)
            await waits()

    with pytest.raises(BaseExceptionGroup) as raised:
        await serve()
    assert raised.group_contains(ZeroDivisionError)


def test_the_topic_takes_the_acknowledgements_of_a_large_group() -> None:
    """All of a group are one record."""
    members = {MemberId(f"{number:05}".rjust(255, "x")): 1_000_000 for number in range(10_000)}
    value = Delivery(b"g", members).value()
    assert value is not None
    topics = TopicNames()
    assert int(settings_of(topics)[topics.acks]["max.message.bytes"]) > len(value)
