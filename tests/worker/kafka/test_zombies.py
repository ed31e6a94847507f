"""A process that stops at any step between grant and commit and goes on when it owns nothing any more does no harm."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.programs import state_of
from tests.waiting import until
from tests.worker.kafka.totals import Job, NewTopics, Owner, check_exactly_once, expected, in_words, new_job, write
from tests.worker.kafka.zombie import LEASE_LEFT_S, STEPS

from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"
COUNT = 60


async def start_zombie(job: Job, folder: Path, step: str) -> asyncio.subprocess.Process:
    """Start a process that stops itself at a step, and wait until it has."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.worker.kafka.zombie",
        in_words(job), str(folder), step,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    await until(lambda: state_of(process.pid) == "T")
    return process


async def own(owner: Owner) -> None:
    """Process the task; fenced, take it again as the holder of the newest token does."""
    while True:
        owner.hold(TASK, Role.ACTIVE)
        await owner.fenced.wait()
        owner.fenced.clear()
        await owner.give_up(TASK, commit=False)


@pytest.mark.parametrize("step", list(STEPS))
async def test_a_zombie_neither_writes_nor_loses(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, step: str
) -> None:
    """Whatever step it stopped at, each input record counts once, in outputs, changelog and the owner's store."""
    # The steps are those of protocol 8.3.
    job = await new_job(bootstrap, new_topic)
    await write(job, COUNT)
    zombie = await start_zombie(job, tmp_path / "zombie", step)
    await asyncio.sleep(2 * LEASE_LEFT_S)
    owner = Owner(job.runtime(tmp_path / "owner", "owner"))
    owning = asyncio.create_task(own(owner))
    try:
        await until(lambda: owner.totals() == expected(COUNT))
        os.kill(zombie.pid, signal.SIGCONT)
        await write(job, COUNT, first=COUNT)
        output, errors = await asyncio.wait_for(zombie.communicate(), 30)
        await write(job, COUNT, first=2 * COUNT)
        await until(lambda: owner.totals() == expected(3 * COUNT))
    finally:
        owning.cancel()
        if zombie.returncode is None:
            zombie.kill()
    await owner.give_up(TASK)
    assert zombie.returncode == 0, errors.decode()
    owners = await check_exactly_once(job, 3 * COUNT)
    states = json.loads(output)["states"]
    # Between the look at the lease and the fencing nothing can hold it up: it fences its successor, sees that its lease
    # is over, and the successor takes the task again under its newer token.
    assert owner.states.count("fenced") == (1 if step == "granted" else 0)
    if step in {"granted", "fenced-others", "read-end", "restored"}:
        assert "running" not in states
    assert set(owners[COUNT:]) == {"owner"}
    # Its second transaction was to come, so where it had committed the first one, that one stands.
    assert ("zombie" in owners) == (step == "committed")
