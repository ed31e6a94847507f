"""A client that reads single totals continuously, wherever their tasks run."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx

from batonpass.client import ApiError
from batonpass.demo.group import DemoGroup
from batonpass.demo.job import Job
from batonpass.http_clients import http_client

PERIOD_S = 0.05
ANSWER_S = 1.0
"""A read without an answer within this time counts as unanswered."""

ATTEMPT_S = 0.4
RETRY_S = 0.05


@dataclass(slots=True)
class Reads:
    """How many reads were sent, answered by a standby because the active did not, and not answered at all."""

    asked: int = 0
    by_copies: int = 0
    unanswered: int = 0


class Reader:
    """Asks the active of a task first and then its standbys, and looks up their places again when none answers."""

    def __init__(self, job: Job, group: DemoGroup) -> None:
        self._job = job
        self._group = group
        self._random = random.Random(7)  # noqa: S311 - which total is asked for is no secret
        self._client = http_client(timeout=ATTEMPT_S)
        self._routes: dict[str, list[str]] = {}
        self.reads = Reads()

    async def run(self) -> None:
        """Ask until cancelled. A slow read holds up no other."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            while True:
                task = asyncio.create_task(self._read())
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(PERIOD_S)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await self._client.aclose()

    async def _read(self) -> None:
        task = self._random.choice(self._job.task_ids)
        number = self._random.randrange(self._job.customers)
        reads = self.reads
        reads.asked += 1
        try:
            async with asyncio.timeout(ANSWER_S):
                while not await self._answered(reads, task, number):
                    self._routes.pop(task, None)
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            reads.unanswered += 1

    async def _answered(self, reads: Reads, task: str, number: int) -> bool:
        try:
            if task not in self._routes:
                self._routes[task] = _endpoints(await self._group.route(task))
        except ApiError:
            return False
        for place, endpoint in enumerate(self._routes[task]):
            try:
                answer = await self._client.get(f"{endpoint}/{task}/{number}")
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                reads.by_copies += place > 0
                return True
        return False


def _endpoints(route: dict[str, Any]) -> list[str]:
    """Return where to ask, in this order: the active, standbys that are caught up, other standbys."""
    standbys = sorted(route["standbys"], key=lambda one: (not one["caught_up"], one["lag"] or 0))
    asked = [route["active"], *standbys] if route["active"] else standbys
    return [one["endpoint"] for one in asked if one["endpoint"]]
