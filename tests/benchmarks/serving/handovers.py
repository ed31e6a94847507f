"""From the caught-up heartbeat to the new owner's long-poll: two hops, each with a real commit.

Beside it, what the machine takes with nothing to decide: two answers of bare ASGI, and two commits of a row.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine
from tests.benchmarks.serving.commits import commit_one_row
from tests.benchmarks.serving.population import decode, encode
from tests.benchmarks.serving.servers import Server
from tests.benchmarks.serving.wire import Answer, Wire


@dataclass
class Player:
    """One member with a long-poll always open, that gives up at once what it must."""

    server: Server
    path: str
    beats: Wire
    polls: Wire
    epoch: int = 0
    seq: int = 0
    active: set[str] = field(default_factory=set)
    copies: dict[str, str] = field(default_factory=dict)
    granted_at: dict[str, float] = field(default_factory=dict)
    level: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    async def join(cls, server: Server, path: str) -> "Player":
        """Join, and begin to listen."""
        player = cls(server, path, await Wire.open(server.port), await Wire.open(server.port))
        player.take(await player.beats.ask(server.request("PUT", path, b"{}")))
        return player

    def take(self, answer: Answer) -> bool:
        """Follow an answer; say whether the assignment changed."""
        if answer.status not in (200, 201):
            return False
        body = decode(answer.body)
        if body["assignment"] is None or body["member_epoch"] < self.epoch:
            return False
        now = time.perf_counter()
        picture = body["assignment"]
        active = {one["task"] for one in picture["active"]}
        for task in active - self.active:
            self.granted_at[task] = now
        self.epoch, self.active = body["member_epoch"], active
        self.copies = {task: role for role in ("standby", "warmup") for task in picture[role]}
        self.news.set()
        return True

    async def beat(self) -> None:
        """Say what this member has; its copies are level once `level` is set. Again, while answers bring news."""
        async with self.turn:
            while await self._beat():
                pass

    async def _beat(self) -> bool:
        self.seq += 1
        tasks: dict[str, Any] = {task: {"role": "active", "state": "running"} for task in self.active}
        lag = 0 if self.level else 1_000_000
        tasks |= {task: {"role": role, "lag": lag} for task, role in self.copies.items()}
        body = encode({"seq": self.seq, "member_epoch": self.epoch, "tasks": tasks})
        return self.take(await self.beats.ask(self.server.request("POST", f"{self.path}/heartbeat", body)))

    async def listen(self) -> None:
        """Follow the long-poll for ever, and answer each change with a heartbeat at once."""
        while True:
            query = f"{self.path}/assignment?after={self.epoch}&wait_ms=20000"
            if self.take(await self.polls.ask(self.server.request("GET", query))):
                await self.beat()


@dataclass
class BareHops:
    """Two answers of bare ASGI and two commits of a row, one after the other."""

    server: Server
    wire: Wire
    engine: AsyncEngine
    commits: int = 0

    async def take(self) -> float:
        """Return how many milliseconds they took."""
        began = time.perf_counter()
        for _ in range(2):
            await self.wire.ask(self.server.request("POST", "/", b"{}"))
            self.commits += 1
            await commit_one_row(self.engine, f"hop-{self.commits}")
        return (time.perf_counter() - began) * 1_000


async def hand_over(server: Server, hops: BareHops, *, times: int) -> tuple[list[float], list[float]]:
    """Move one task to and fro by pins; return the milliseconds from caught up to granted, and those of ``hops``."""
    path = "/v1/groups/handovers"
    wire = await Wire.open(server.port)
    declaration = {
        "topology": {"subtopologies": [{"id": "0", "partitions": 2, "changelog_topics": ["store"]}]},
        "config": {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "acceptable_recovery_lag": 0},
    }
    await wire.ask(server.request("PUT", path, encode(declaration)))
    players = [await Player.join(server, f"{path}/members/p{number}") for number in (1, 2)]
    listening = [asyncio.ensure_future(player.listen()) for player in players]
    for player in players:
        player.level = True
    await _until(players, lambda: all(player.active for player in players))
    taken, bare = [], []
    for number in range(times):
        giver, taker = players[number % 2], players[1 - number % 2]
        task = "0_0"
        if task not in giver.active:
            giver, taker = taker, giver
        taker.level = False
        pin = encode({"member": taker.path.rpartition("/")[2]})
        await wire.ask(server.request("PUT", f"{path}/tasks/{task}/pin", pin))
        await _until(players, lambda: task in taker.copies)  # noqa: B023 - it is asked within this turn
        taker.level = True
        began = time.perf_counter()
        await taker.beat()
        while task not in taker.active:
            # Not by looking again and again: there are two cores, and the database needs one of them.
            taker.news.clear()
            await taker.news.wait()
        taken.append((taker.granted_at[task] - began) * 1_000)
        await _until(players, lambda: task not in giver.active)  # noqa: B023 - the same
        bare.append(await hops.take())
    for one in listening:
        one.cancel()
    return taken, bare


async def _until(players: list[Player], holds: Any) -> None:
    end = time.monotonic() + 30
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the members do not come to what was waited for")
        for player in players:
            await player.beat()
        await asyncio.sleep(0.02)
