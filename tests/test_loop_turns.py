"""Turns on the event loop: between any two that take long, all other work on it goes on."""

import asyncio
import random

import pytest

from batonpass.loop_turns import TURN_S, LoopTurns


async def test_others_go_on_between_two_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = others = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    turns, chance, long = LoopTurns(), random.Random(7), list[float]()

    async def go_on() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    async def work() -> None:
        nonlocal now
        for _ in range(100):
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
            await turns.take()
            if chance.random() < 0.3:
                long.append(others)
                now += 1.2 * TURN_S
            else:
                now += 0.1 * TURN_S

    going_on = asyncio.create_task(go_on())
    async with asyncio.TaskGroup() as tasks:
        for _ in range(30):
            tasks.create_task(work())
    going_on.cancel()
    assert len(long) > 800
    assert len(set(long)) == len(long)
