"""Two coordinators on one database: either may die or freeze, and never do both speak for a group (L4)."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.proof.coordinators import CoordinatorProcess
from tests.proof.crew import Crew
from tests.proof.groups import GROUP, declare, rested, runs_everywhere
from tests.proof.inquest import Inquest
from tests.proof.witness import Witness


@pytest.fixture
async def pair(own_url: str, tmp_path: Path) -> AsyncIterator[list[CoordinatorProcess]]:
    """Two coordinators that run on one database."""
    made = [CoordinatorProcess(own_url, tmp_path / f"coordinator{number}.log") for number in (1, 2)]
    for one in made:
        await one.start()
    yield made
    for one in made:
        one.signal(signal.SIGCONT)
        await one.kill()


@pytest.mark.timeout(300)
async def test_either_may_die_or_freeze(pair: list[CoordinatorProcess], own_url: str) -> None:
    """Workers that know both go on while one is killed, ended in good order, or frozen past its lease."""
    seed = random.SystemRandom().getrandbits(32)
    fate, witness = random.Random(seed), Witness()
    await declare(pair[0])
    crew = Crew([one.url for one in pair], GROUP, witness, seed=seed)
    for _ in range(4):
        await crew.joined()
    for turn in range(6):
        victim = pair[turn % 2]
        stirring = asyncio.create_task(crew.stir())
        await asyncio.sleep(fate.uniform(0.3, 1.0))
        if turn % 3 == 2:
            victim.signal(signal.SIGSTOP)
            await asyncio.sleep(4)
            victim.signal(signal.SIGCONT)
        else:
            await victim.kill(signal.SIGKILL if turn % 3 else signal.SIGTERM)
            await asyncio.sleep(fate.uniform(0, 2))
            await victim.start()
        await stirring
    for one in pair:
        await one.ready()
    shown = [await rested(one, within_s=60) for one in pair]
    assert shown[0]["generation"] == shown[1]["generation"]
    await runs_everywhere(witness)
    await crew.go()
    found = await Inquest(own_url, GROUP).hold()
    assert (witness.faults, found.faults, found.expired(crew.left)) == ([], [], []), f"seed {seed}"
