"""Coordinators whose machines disagree about the time: what one of them wrote, the next one judges by the same clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.proof.coordinators import CoordinatorProcess
from tests.waiting import until

HOUR_S = 3_600
SESSION_S = 15
GROUP = "/v1/groups/orders"
DECLARED = {
    "topology": {"subtopologies": [{"id": "0", "partitions": 4}]},
    "config": {
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": SESSION_S * 1_000,
        "initial_rebalance_delay_ms": 0,
        "rebalance_batch_ms": 0,
    },
}
ADMIN = "0123456789abcdef0123456789abcdef"

Start = Callable[[int], Awaitable[CoordinatorProcess]]


@pytest.fixture
async def start(own_url: str, tmp_path: Path) -> AsyncIterator[Start]:
    """Return what starts a coordinator whose machine is so many seconds ahead, all on one database."""
    async with AsyncExitStack() as ending:

        async def started(ahead_s: int) -> CoordinatorProcess:
            log = tmp_path / f"coordinator{ahead_s}.log"
            other_clock = {
                "PYTHONPATH": str(Path(__file__).parent / "other_clock"),
                "CLOCK_AHEAD_S": str(ahead_s),
                "BATONPASS_AUTH": "on",
                "BATONPASS_ADMIN_TOKEN": ADMIN,
            }
            made = CoordinatorProcess(own_url, log, **other_clock)
            await made.start()
            ending.push_async_callback(made.kill)
            return made

        yield started


class Caller:
    """Speaks to one coordinator after the other, as the members of a group do."""

    def __init__(self, coordinator: CoordinatorProcess) -> None:
        self.coordinator = coordinator
        self.epochs: dict[str, int] = {}
        self.seqs: dict[str, int] = {}
        self.tasks: dict[str, int] = {}

    async def call(self, method: str, path: str, body: Any = None, *, token: str = ADMIN) -> httpx.Response:
        """Make one call."""
        async with httpx.AsyncClient(timeout=20, headers={"authorization": f"Bearer {token}"}) as client:
            return await client.request(method, f"{self.coordinator.url}{path}", json=body)

    async def join(self, member: str) -> None:
        """Let a member join that stops when its lease is over."""
        joined = await self.call("PUT", f"{GROUP}/members/{member}", {"on_lease_lost": "stop"})
        assert joined.status_code == 201, joined.text
        self._take(member, joined)

    async def runs(self, member: str) -> int:
        """Let a member heartbeat that does what it is told; return how many tasks it has been told to run."""
        self.seqs[member] = self.seqs.get(member, 0) + 1
        beat = {"seq": self.seqs[member], "member_epoch": self.epochs[member], "tasks": {}}
        answer = await self.call("POST", f"{GROUP}/members/{member}/heartbeat", beat)
        if answer.status_code == 200:
            self._take(member, answer)
        return self.tasks[member]

    def _take(self, member: str, answer: httpx.Response) -> None:
        said = answer.json()
        self.epochs[member] = said["member_epoch"]
        if said["assignment"] is not None or member not in self.tasks:
            self.tasks[member] = len((said["assignment"] or {}).get("active", ()))


async def evict(caller: Caller) -> None:
    """Take the tasks from m1, whose lease goes on."""
    assert (await caller.call("POST", f"{GROUP}/members/m1/evict", {"reason": "?"})).status_code < 300


async def delete(caller: Caller) -> None:
    """Delete the group although m1 is in it, whose lease goes on, and declare it again."""
    assert (await caller.call("DELETE", f"{GROUP}?force=true")).status_code == 204
    await caller.call("PUT", GROUP, DECLARED)
    await caller.join("m2")


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize("taken", [evict, delete])
@pytest.mark.timeout(240)
async def test_tasks_are_granted_when_the_lease_is_over_that_another_machine_wrote(
    start: Start, taken: Callable[[Caller], Awaitable[None]], ahead_s: int
) -> None:
    first = await start(0)
    caller = Caller(first)
    assert (await caller.call("PUT", GROUP, DECLARED)).status_code == 201
    await caller.join("m1")
    await until(lambda: caller.runs("m1"), within_s=20)
    if taken is evict:
        await caller.join("m2")
    begun = time.monotonic()
    await caller.runs("m1")
    await taken(caller)
    await first.kill()
    caller.coordinator = await start(ahead_s)
    await until(lambda: caller.runs("m2"), within_s=4 * SESSION_S, every_s=0.3)
    assert time.monotonic() - begun >= SESSION_S


async def test_a_token_ends_at_the_same_moment_wherever_it_is_shown(start: Start) -> None:
    ahead, right = Caller(await start(HOUR_S)), Caller(await start(0))
    made = await ahead.call("POST", "/v1/tokens", {"name": "brief", "role": "viewer", "expires_in_ms": 4_000})
    assert made.status_code == 201, made.text
    begun, secret = time.monotonic(), made.json()["secret"]
    for one in (ahead, right):
        assert (await one.call("GET", "/v1/groups", token=secret)).status_code == 200
    assert time.monotonic() - begun < 4, "the machine is too busy for this test"

    async def is_over() -> bool:
        answers = [(await one.call("GET", "/v1/groups", token=secret)).status_code for one in (ahead, right)]
        return answers == [401, 401]

    await until(is_over, within_s=20)
    assert 4 <= time.monotonic() - begun < 8
