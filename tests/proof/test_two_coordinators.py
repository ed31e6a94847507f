"""Two coordinators on one database: either may die or freeze, and never do both speak for a group (L4)."""

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.proof.coordinators import CoordinatorProcess
from tests.proof.groups import GROUP, declare, rested, runs_everywhere
from tests.proof.inquest import Inquest
from tests.proof.witness import Witness
from tests.proof.workers import Workers


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
async def test_workers_that_know_both_go_on_while_either_coordinator_dies_or_freezes(
    pair: list[CoordinatorProcess], own_url: str
) -> None:
    seed = random.SystemRandom().getrandbits(32)
    fate, witness = random.Random(seed), Witness()
    await declare(pair[0])
    workers = Workers([one.url for one in pair], GROUP, witness, seed=seed)
    for _ in range(4):
        await workers.joined()
    for turn in range(6):
        victim = pair[turn % 2]
        churning = asyncio.create_task(workers.churn())
        await asyncio.sleep(fate.uniform(0.3, 1.0))
        if turn % 3 == 2:
            victim.signal(signal.SIGSTOP)
            await asyncio.sleep(4)
            victim.signal(signal.SIGCONT)
        else:
            await victim.kill(signal.SIGKILL if turn % 3 else signal.SIGTERM)
            await asyncio.sleep(fate.uniform(0, 2))
            await victim.start()
        await churning
    for one in pair:
        await one.ready()
    shown = [await rested(one, within_s=60) for one in pair]
    assert shown[0]["generation"] == shown[1]["generation"]
    await runs_everywhere(witness)
    await workers.leave_all()
    found = await Inquest(own_url, GROUP).hold()
    assert (witness.faults, found.faults, found.expired(workers.left)) == ([], [], []), f"seed {seed}"


async def command(*words: str) -> asyncio.subprocess.Process:
    """Start a command of an operator."""
    program = [sys.executable, "-m", "batonpass", *words]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*program, stdout=pipe, stderr=pipe)


async def wait_for_event(watch: asyncio.subprocess.Process, kind: str, within_s: float = 30) -> None:
    """Wait until a watch has printed an event of a kind."""
    assert watch.stdout is not None
    async with asyncio.timeout(within_s):
        while json.loads(await watch.stdout.readline())["type"] != kind:
            pass


async def test_who_looks_on_goes_on_when_a_coordinator_dies(pair: list[CoordinatorProcess]) -> None:
    """A watch loses its coordinator once and no event; `explain` answers once the group has an owner."""
    await declare(pair[0])
    urls = ",".join(one.url for one in pair)
    watch = await command("watch", GROUP, "--json", "--url", urls)
    try:
        async with asyncio.timeout(30):
            while "batonpass_streams_open 1.0" not in (await pair[0].call("GET", "/metrics")).text:
                await asyncio.sleep(0.1)
        assert (await pair[1].call("POST", f"/v1/groups/{GROUP}/pause?reason=one")).is_success
        await wait_for_event(watch, "paused")
        await pair[0].kill()
        looks = [await command("explain", GROUP, "--json", "--url", one) for one in (urls, pair[1].url)]
        outputs = [await look.communicate() for look in looks]
        assert [look.returncode for look in looks] == [0, 0], outputs
        assert [json.loads(out)["group"] for out, _ in outputs] == [GROUP] * 2
        assert (await pair[1].call("POST", f"/v1/groups/{GROUP}/resume")).is_success
        await wait_for_event(watch, "resumed")
        await pair[0].start()
        assert (await pair[0].call("POST", f"/v1/groups/{GROUP}/pause?reason=two")).is_success
        await wait_for_event(watch, "paused")
    finally:
        watch.send_signal(signal.SIGINT)
        _, notes = await watch.communicate()
    assert watch.returncode == 0
    types = [json.loads(line)["type"] for line in notes.splitlines()]
    assert types == ["watching", "coordinator-lost", "coordinator-back"]
