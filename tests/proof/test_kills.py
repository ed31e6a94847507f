"""A coordinator killed at any moment goes on from the last commit, and no worker notices more than a pause (L3)."""

import asyncio
import os
import random
import sys

import pytest
from tests.proof.coordinators import CoordinatorProcess
from tests.proof.groups import GROUP, TASKS, declare, rested, runs_everywhere
from tests.proof.inquest import Inquest
from tests.proof.witness import Witness
from tests.proof.workers import Workers

KILLS = int(os.environ.get("BATONPASS_KILLS", "6"))
"""`make soak` asks for 500."""


@pytest.mark.timeout(60 + 30 * KILLS)
async def test_kills_at_random_points_under_load_break_no_law_and_lose_no_generation_or_member(
    coordinator: CoordinatorProcess, own_url: str
) -> None:
    seed = random.SystemRandom().getrandbits(32)
    fate, witness = random.Random(seed), Witness()
    await declare(coordinator)
    workers = Workers(coordinator.url, GROUP, witness, seed=seed)
    for _ in range(5):
        await workers.join()
    for number in range(KILLS):
        churning = asyncio.create_task(workers.churn())
        await asyncio.sleep(fate.uniform(0.2, 1.2))
        await coordinator.kill()
        await coordinator.start(wait_s=0 if fate.random() < 0.3 else 30)
        await churning
        if number % 10 == 9:
            sys.stdout.write(f"{number + 1} of {KILLS} kills, {len(workers.members)} workers\n")
    await coordinator.ready()
    shown = await rested(coordinator, within_s=90)
    assert shown["tasks"] == TASKS
    await runs_everywhere(witness)
    await workers.leave_all()
    found = await Inquest(own_url, GROUP).hold()
    assert (witness.faults, found.faults, found.expired(workers.left)) == ([], [], []), f"seed {seed}"
    assert found.replayed > KILLS
    assert found.epochs[-1] > KILLS / 2
