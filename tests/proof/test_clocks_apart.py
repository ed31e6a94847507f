"""Machines of coordinators disagree about the time: what one wrote, the next one judges by the same clock."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Any

import httpx2 as httpx
import pytest
from pydantic import SecretStr
from tests.proof.conftest import Jump
from tests.waiting import until

from batonpass.bootstrap import build, store_of
from batonpass.settings import Settings

HOUR_S = 3_600
SESSION_S = 6
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

Run = Callable[[int], AbstractAsyncContextManager[httpx.AsyncClient]]
ports = count(20_001)


@pytest.fixture
def run(own_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a coordinator whose machine is so many seconds ahead, all on one database."""
    time_ns = time.time_ns

    @asynccontextmanager
    async def running(ahead_s: int) -> AsyncIterator[httpx.AsyncClient]:
        settings = Settings(
            database_url=SecretStr(own_url),
            admin_token=SecretStr(ADMIN),
            lease_ms=1_500,
            lease_renewal_ms=300,
            token_cache_s=0.5,
        )
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: time_ns() + ahead_s * 1_000_000_000)
            patch.setattr(time, "time", lambda: time.time_ns() / 1_000_000_000)
            process = build(settings, store_of(settings, f"http://127.0.0.1:{next(ports)}"))
        transport = httpx.ASGITransport(app=process.app())
        async with process.running(), httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            yield client

    return running


class Caller:
    """Speaks to one coordinator after the other, as the members of a group do."""

    def __init__(self, coordinator: httpx.AsyncClient) -> None:
        self.coordinator = coordinator
        self.epochs: dict[str, int] = {}
        self.seqs: dict[str, int] = {}
        self.tasks: dict[str, int] = {}

    async def call(self, method: str, path: str, body: Any = None, *, token: str = ADMIN) -> httpx.Response:
        """Make one call."""
        bearer = {"authorization": f"Bearer {token}"}
        return await self.coordinator.request(method, path, json=body, headers=bearer)

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
async def test_tasks_are_granted_when_the_lease_is_over_that_another_machine_wrote(
    run: Run, taken: Callable[[Caller], Awaitable[None]], ahead_s: int
) -> None:
    async with run(0) as first:
        caller = Caller(first)
        assert (await caller.call("PUT", GROUP, DECLARED)).status_code == 201
        await caller.join("m1")
        await until(lambda: caller.runs("m1"), within_s=20)
        if taken is evict:
            await caller.join("m2")
        begun = time.monotonic()
        await caller.runs("m1")
        await taken(caller)
    async with run(ahead_s) as caller.coordinator:
        assert time.monotonic() - begun < SESSION_S, "the machine is too busy for this test"
        await until(lambda: caller.runs("m2"), within_s=5 * SESSION_S, every_s=0.2)
        assert time.monotonic() - begun >= SESSION_S


@pytest.mark.parametrize(("by", "is_seen"), [("1 hour", True), ("1 hour", False), ("-1 hour", False)])
async def test_tasks_are_granted_when_the_lease_is_over_however_the_databases_clock_is_set(
    run: Run, jump: Jump, by: str, *, is_seen: bool
) -> None:
    """Whether the coordinator before saw that, or only the next one can."""
    async with run(0) as first:
        caller = Caller(first)
        assert (await caller.call("PUT", GROUP, DECLARED)).status_code == 201
        await caller.join("m1")
        await until(lambda: caller.runs("m1"), within_s=20)
        await caller.join("m2")
        begun = time.monotonic()
        await caller.runs("m1")
        await evict(caller)
        if is_seen:
            await jump(by)
            await asyncio.sleep(1)
    if not is_seen:
        await jump(by)
    async with run(0) as caller.coordinator:
        assert time.monotonic() - begun < SESSION_S, "the machine is too busy for this test"
        await until(lambda: caller.runs("m2"), within_s=5 * SESSION_S, every_s=0.2)
        assert time.monotonic() - begun >= SESSION_S


async def test_a_token_ends_at_the_same_moment_wherever_it_is_shown(run: Run) -> None:
    async with run(HOUR_S) as one, run(0) as other:
        ahead, right = Caller(one), Caller(other)
        begun = time.monotonic()
        made = await ahead.call("POST", "/v1/tokens", {"name": "brief", "role": "viewer", "expires_in_ms": 4_000})
        assert made.status_code == 201, made.text
        secret = made.json()["secret"]

        async def answers() -> list[int]:
            return [(await each.call("GET", "/v1/audits", token=secret)).status_code for each in (ahead, right)]

        assert await answers() == [200, 200]
        assert time.monotonic() - begun < 4, "the machine is too busy for this test"
        await until(lambda: _are(answers, [401, 401]), within_s=20)
        assert time.monotonic() - begun >= 4


async def _are(answers: Callable[[], Awaitable[list[int]]], wanted: list[int]) -> bool:
    return await answers() == wanted
