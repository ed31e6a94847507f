"""The database's own clock is set: no worker loses anything by it, and leases protect what they did (L1, L5)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.proof.conftest import Jump
from tests.proof.coordinators import CoordinatorProcess
from tests.proof.groups import GROUP, TASKS, declare, rested, runs_everywhere
from tests.proof.inquest import Inquest
from tests.proof.witness import Witness
from tests.proof.workers import Workers

Pair = list[CoordinatorProcess]


@pytest.fixture
async def pair(own_url: str, jump: Jump, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two coordinators that run on that database."""
    made = [CoordinatorProcess(own_url, tmp_path / f"coordinator{number}.log") for number in (1, 2)]
    for one in made:
        await one.start()
    yield made
    for one in made:
        await one.kill()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("by", "dies"), [("1 hour", True), ("-1 hour", False)])
async def test_a_clock_that_is_set_takes_nothing_from_anybody(
    pair: Pair, jump: Jump, own_url: str, by: str, *, dies: bool
) -> None:
    """Also where the group's coordinator dies at that moment, and another takes over what it wrote."""
    await declare(pair[0])
    pair.sort(key=lambda one: not one.owns(GROUP))
    witness = Witness()
    workers = Workers([one.url for one in pair], GROUP, witness, seed=1)
    for _ in range(3):
        await workers.joined()
    await rested(pair[0], within_s=60)
    await runs_everywhere(witness)
    runs = witness.runs.copy()
    await jump(by)
    if dies:
        await pair[0].kill()
    await asyncio.sleep(3)
    assert (len(witness.running), witness.runs) == (TASKS, runs)
    assert pair[1].said().count("database-clock-moved") == 1
    # All goes on: one more gets its share, and one that goes is followed.
    await workers.joined()
    await rested(pair[1], within_s=60)
    await workers.leave(min(workers.members))
    await rested(pair[1], within_s=60)
    await runs_everywhere(witness)
    await workers.leave_all()
    found = await Inquest(own_url, GROUP).hold()
    assert (witness.faults, found.faults, found.expired(workers.left)) == ([], [], [])
