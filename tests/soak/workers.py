"""Workers that come and go all the time: processes of a real job, and members of the SDK in this process."""

import asyncio
import random
import shutil
from collections import Counter
from contextlib import suppress
from typing import Final

import httpx2 as httpx
from tests.proof.workers import Workers
from tests.soak.place import Place

from batonpass.demo.processes import Child

STEADY: Final = "totals-1"
"""Runs from the beginning to the end, and is measured."""

OTHERS: Final = ("totals-2", "totals-3", "totals-4")


class Job:
    """The workers of the job: one stays, the others are started, stopped, drained and killed."""

    def __init__(self, place: Place, client: httpx.AsyncClient, *, seed: int, pace_s: float) -> None:
        """Do something every ``pace_s``, about."""
        self._place = place
        self._client = client
        self._fate = random.Random(seed)
        self._pace_s = pace_s
        self._there: dict[str, Child] = {}
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        """Begin, and go on until cancelled; then everybody stops."""
        try:
            self._place.running[STEADY] = await self._place.worker(STEADY)
            while True:
                await self._stir()
                await asyncio.sleep(self._fate.uniform(0.5, 1.5) * self._pace_s)
        finally:
            await asyncio.gather(*(child.stop() for child in self._there.values()))

    async def _stir(self) -> None:
        name = self._fate.choice(OTHERS)
        if name not in self._there:
            what = self._fate.choice(("comes back", "comes back", "comes with an empty disk"))
            if what == "comes with an empty disk":
                shutil.rmtree(self._place.state_of(name), ignore_errors=True)
            self._there[name] = await self._place.worker(name)
        else:
            what = self._fate.choice(("stops", "is killed", "is drained and stops"))
            child = self._there.pop(name)
            if what == "is killed":
                child.kill()
            if what == "is drained and stops":
                await self._drain(name)
            await child.stop()
        self.done[f"a worker {what}"] += 1

    async def _drain(self, name: str) -> None:
        members = f"{self._place.coordinators[0]}/v1/groups/{self._place.job.group}/members"
        headers = {"authorization": f"Bearer {self._place.token}"}
        # A coordinator may be frozen just now.
        with suppress(httpx.HTTPError, KeyError):
            for one in (await self._client.get(members, headers=headers)).json()["members"]:
                if one["instance_id"] == name:
                    await self._client.post(f"{members}/{one['member_id']}/drain", headers=headers)
        await asyncio.sleep(self._pace_s / 2)


async def churn(workers: Workers, *, seed: int) -> None:
    """Let the SDK's members come, leave, and now and then crash."""
    fate = random.Random(seed)
    while True:
        await workers.churn()
        if fate.random() < 0.05:
            await workers.crash()
        await asyncio.sleep(1)
