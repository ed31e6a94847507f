"""Clients made ready before they are needed and closed when nobody waits; needs no broker."""

import asyncio
import time
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from batonpass.worker.kafka.clients import Clients, Closing, Prepared


class Fake:
    """Clients that connect when told, or fail, and know whether they were closed."""

    def __init__(self, *, fails: bool = False) -> None:
        self.may_connect = asyncio.Event()
        self.fails = fails
        self.is_closed = False

    async def connect(self) -> None:
        """Connect."""
        await self.may_connect.wait()
        if self.fails:
            raise KafkaError("away")

    async def close(self) -> None:
        """Close."""
        self.is_closed = True


def prepared(*fakes: Fake) -> tuple[Prepared, Closing]:
    """Return what makes these, one after another."""
    left: Any = list(fakes)
    closing = Closing()
    return Prepared(lambda: left.pop(0), closing, "0_0"), closing


async def test_what_was_prepared_is_taken_once() -> None:
    """A copy's clients are those of its active; the next active gets others."""
    first, second = Fake(), Fake()
    ready, _ = prepared(first, second)
    first.may_connect.set()
    second.may_connect.set()
    ready.begin()
    ready.begin()
    await asyncio.sleep(0.01)
    assert ready.is_settled
    taken: list[object] = [await ready.take(), await ready.take()]
    assert taken == [first, second]


async def test_a_promotion_does_not_wait_for_a_delay() -> None:
    fake = Fake()
    fake.may_connect.set()
    ready, _ = prepared(fake)
    ready.begin(delay_s=60)
    async with asyncio.timeout(1):
        taken: object = await ready.take()
    assert taken is fake


async def test_what_could_not_be_prepared_is_made_anew() -> None:
    """That a copy could not connect is no reason for its active not to try."""
    broken, good = Fake(fails=True), Fake()
    broken.may_connect.set()
    good.may_connect.set()
    ready, closing = prepared(broken, good)
    ready.begin()
    await asyncio.sleep(0.01)
    assert ready.is_settled
    taken: object = await ready.take()
    assert taken is good
    await closing.done()
    assert (broken.is_closed, good.is_closed) == (True, False)


async def test_a_copy_that_goes_closes_what_it_was_connecting() -> None:
    """Clients that are half connected are connected first: a connection cut short would stay open."""
    fake = Fake()
    ready, closing = prepared(fake)
    ready.begin()
    await asyncio.sleep(0.01)
    ready.drop()
    await asyncio.sleep(0.01)
    assert not fake.is_closed
    fake.may_connect.set()
    await closing.done()
    assert fake.is_closed


async def test_what_is_not_connecting_yet_never_does() -> None:
    ready, closing = prepared()
    ready.begin(delay_s=60)
    await asyncio.sleep(0)
    ready.drop()
    async with asyncio.timeout(1):
        await closing.done()


async def test_closing_takes_its_time_unless_somebody_waits() -> None:
    closing, fakes = Closing(), [Fake() for _ in range(3)]
    closing.put("0_0", fakes[0].close, delay_s=60)
    closing.put("0_1", fakes[1].close, delay_s=60)
    closing.put("0_2", fakes[2].close, delay_s=0)
    await asyncio.sleep(0.01)
    assert [one.is_closed for one in fakes] == [False, False, True]
    begun = time.monotonic()
    await closing.done("0_0")
    assert [one.is_closed for one in fakes] == [True, False, True]
    [left] = [task for task in asyncio.all_tasks() if task.get_name() == "batonpass closing of 0_1"]
    left.cancel()
    await left
    assert fakes[1].is_closed
    assert time.monotonic() - begun < 5


async def test_what_does_not_close_keeps_nothing_else_open(caplog: pytest.LogCaptureFixture) -> None:
    closing, fake = Closing(), Fake()

    async def fail() -> None:
        raise OSError

    closing.put("0_0", fail, fake.close)
    await closing.done()
    assert fake.is_closed
    assert "did not close" in caplog.text


def test_clients_are_what_a_fake_stands_for() -> None:
    assert all(callable(getattr(Clients, name)) for name in ("connect", "close"))
