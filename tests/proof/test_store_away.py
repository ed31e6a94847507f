"""With Postgres away, slow, or cutting connections, workers keep what they have, and the service recovers."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import make_url
from tests.proof.coordinators import CoordinatorProcess
from tests.proof.groups import GROUP, TASKS, declare, rested, runs_everywhere
from tests.proof.inquest import Inquest
from tests.proof.proxy import Proxy
from tests.proof.witness import Witness
from tests.proof.workers import Workers


@dataclass
class Scene:
    """A group at rest whose coordinator reaches its database by a proxy."""

    proxy: Proxy
    coordinator: CoordinatorProcess
    witness: Witness
    workers: Workers
    database_url: str

    async def end(self) -> None:
        """Let everybody go, and look at everything that was written."""
        await self.workers.leave_all()
        found = await Inquest(self.database_url, GROUP).hold()
        assert (self.witness.faults, found.faults, found.expired(self.workers.left)) == ([], [], [])

    async def reasons(self) -> tuple[int, str]:
        """Return what the coordinator says of its readiness."""
        answer = await self.coordinator.call("GET", "/readyz")
        return answer.status_code, answer.text


@pytest.fixture
async def scene(own_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """Four workers, a group at rest, and a proxy before the database."""
    port = make_url(own_url).port
    assert port is not None
    async with Proxy(port) as proxy:
        through = make_url(own_url).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        coordinator = CoordinatorProcess(through, tmp_path / "coordinator.log")
        await coordinator.start()
        witness = Witness()
        await declare(coordinator)
        workers = Workers(coordinator.url, GROUP, witness, seed=1)
        for _ in range(4):
            await workers.joined()
        await rested(coordinator, within_s=60)
        await runs_everywhere(witness)
        yield Scene(proxy, coordinator, witness, workers, own_url)
        await coordinator.kill()


async def until_ready(scene: Scene, *, wanted: int, within_s: float = 20) -> str:
    """Wait until /readyz answers with this status; return what it says."""
    async with asyncio.timeout(within_s):
        while True:
            status, text = await scene.reasons()
            if status == wanted:
                return text
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("how", ["refused", "hanging"])
async def test_workers_keep_working_while_the_store_is_away(scene: Scene, how: str) -> None:
    """For six seconds, within their leases, nothing can be committed; it recovers by itself (L5)."""
    runs = scene.witness.runs.copy()
    if how == "refused":
        scene.proxy.refuses = True
        scene.proxy.cut()
    else:
        scene.proxy.hangs = True
    reason = await until_ready(scene, wanted=503)
    assert "store" in reason or "lease" in reason
    await asyncio.sleep(6)
    assert len(scene.witness.running) == TASKS
    assert scene.witness.runs == runs
    scene.proxy.refuses = scene.proxy.hangs = False
    await until_ready(scene, wanted=200)
    await scene.workers.joined()
    await rested(scene.coordinator, within_s=60)
    await scene.end()


async def test_a_slow_disk_slows_moves_and_nothing_else(scene: Scene) -> None:
    """A third of a second is added to each answer of the store."""
    scene.proxy.delay_s = 0.3
    runs = scene.witness.runs.copy()
    await scene.workers.joined()
    await rested(scene.coordinator, within_s=120)
    await runs_everywhere(scene.witness)
    begun = {task for task in scene.witness.runs if scene.witness.runs[task] > runs[task]}
    assert 0 < len(begun) <= TASKS // 5 + 1
    scene.proxy.delay_s = 0
    await scene.end()


async def test_connections_that_are_cut_lose_and_double_nothing(scene: Scene) -> None:
    """Connections break every few hundred milliseconds while members come and go."""
    fate = random.Random(5)
    for _ in range(25):
        churning = asyncio.create_task(scene.workers.churn())
        await asyncio.sleep(fate.uniform(0.1, 0.4))
        scene.proxy.cut()
        await churning
    await until_ready(scene, wanted=200)
    await rested(scene.coordinator, within_s=90)
    await runs_everywhere(scene.witness)
    await scene.end()
