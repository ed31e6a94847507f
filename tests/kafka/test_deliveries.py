"""What waits to be written: in which order, how much of it, and for whom."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.waiting import until

from batonpass.kafka.exchange import Deliveries, Delivery


class Leader:
    """A producer whose writes wait until they may end."""

    def __init__(self) -> None:
        self.written: list[bytes | None] = []
        self.asked = 0
        self.answers = asyncio.Event()

    async def send_and_wait(self, _topic: str, value: bytes | None, key: bytes) -> None:  # noqa: ARG002 - values tell
        self.asked += 1
        await self.answers.wait()
        self.written.append(value)


@asynccontextmanager
async def writing(leader: Leader, *, mine: set[str]) -> AsyncIterator[Deliveries]:
    """Have the records of one partition written."""
    deliveries = Deliveries(leader, "topic", 1, mine.__contains__)
    running = asyncio.create_task(deliveries.run())
    yield deliveries
    running.cancel()
    await asyncio.wait([running])


async def test_of_a_key_the_last_refusal_and_the_last_answer_wait_for_a_leader() -> None:
    """All of them, through an outage of an hour, would fill the memory."""
    leader = Leader()
    async with writing(leader, mine={"g"}) as deliveries:
        deliveries.put(Delivery(b"g/m", b"1"))
        await until(lambda: leader.asked)
        for number in range(100):
            deliveries.put(Delivery(b"g/m", b"refused %d" % number, is_refusal=True))
            deliveries.put(Delivery(b"g/m", b"answered %d" % number))
        deliveries.put(Delivery(b"g/n", None))
        assert (deliveries.has(b"g/n"), deliveries.has(b"g/o")) == (True, False)
        leader.answers.set()
        await until(lambda: not deliveries.has(b"g/n"))
    assert leader.written == [b"1", b"refused 99", b"answered 99", None]


async def test_what_waited_is_not_written_for_a_group_that_is_another_coordinators_by_now() -> None:
    leader, mine = Leader(), {"g", "h"}
    async with writing(leader, mine=mine) as deliveries:
        for key in (b"g/m", b"h/m", b"g/n"):
            deliveries.put(Delivery(key, key))
        await until(lambda: leader.asked)
        mine.remove("h")
        leader.answers.set()
        await until(lambda: not deliveries.has(b"g/n"))
        assert not deliveries.has(b"h/m")
    assert leader.written == [b"g/m", b"g/n"]
