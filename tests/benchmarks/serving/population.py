"""A group of members that one process plays: they join, take what they are given, and report it as running."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.benchmarks.serving.servers import Server
from tests.benchmarks.serving.wire import Answer, Wire

TASKS_EACH = 10
"""Actives of a member; as many standbys make a heartbeat of twenty tasks."""

WIRES = 64
decode = msgspec.json.decode
encode = msgspec.json.encode


REST_WITHIN_S = 900
"""Ten thousand first words are ten thousand commits."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What it took until everybody had joined, and from then on until the group was at rest.

    In seconds, by the clock and of the server's processor time (``cpu``).
    """

    joined_s: float
    joined_cpu_s: float
    rested_s: float
    rested_cpu_s: float


POSITION = 812_000_000
"""Where copies stand, where their changelogs end, and how far actives are behind; as no token or epoch is."""


@dataclass
class Played:
    """One member. While it ``reads_on``, its copies read between any two heartbeats, as in a group under load.

    ``interval_ms`` is how often it was last told to heartbeat. Every ``lists_every``-th heartbeat names the tasks. In a
    group at rest the SDK's never do (0) while nothing changes, and every fourth does while caught-up copies read on,
    with a group's defaults (protocol 4.10; ``test_serving.py`` holds both beside the SDK). A client that knows nothing
    of that names them each time (1), and so does everybody until the group is at rest. ``seq`` begins anywhere: members
    of a fleet do not name them all at once.
    """

    path: str
    reads_on: bool = False
    lists_every: int = 1
    interval_ms: int = 0
    epoch: int = 0
    seq: int = 0
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    tail: bytes = b""

    def take(self, answer: Answer) -> None:
        """Follow an answer: do what the assignment says, at once and without fail."""
        body = decode(answer.body)
        if answer.status not in (200, 201):
            raise RuntimeError(f"{self.path}: {answer.status} {answer.body!r}")
        self.interval_ms = body["heartbeat_interval_ms"]
        if body["assignment"] is None:
            return
        self.epoch = body["member_epoch"]
        picture = body["assignment"]
        running = {"role": "active", "state": "running", "input_lag": POSITION}
        self.tasks = {one["task"]: running | {"fencing_token": one["fencing_token"]} for one in picture["active"]}
        for role in ("standby", "warmup"):
            self.tasks |= {task: {"role": role, "position": POSITION, "end_offset": POSITION} for task in picture[role]}
        self.tail = b',"member_epoch":%d,"tasks":%s}' % (self.epoch, encode(self.tasks))

    def body(self) -> bytes:
        """Return the next heartbeat."""
        self.seq += 1
        if not self.lists_every or self.seq % self.lists_every:
            return b'{"seq":%d,"member_epoch":%d}' % (self.seq, self.epoch)
        tail = self.tail or b',"member_epoch":%d,"tasks":{}}' % self.epoch
        if self.reads_on:
            tail = tail.replace(b":%d" % POSITION, b":%d" % (POSITION + self.seq))
        return b'{"seq":%d' % self.seq + tail


class Population:
    """A group and its members, over connections that they share."""

    def __init__(self, server: Server, name: str, members: int, *, tasks_each: int = TASKS_EACH) -> None:
        self.server = server
        self._tasks_each = tasks_each
        self.path = f"/v1/groups/{name}"
        self.members = [Played(f"{self.path}/members/m{number:05}", seq=number) for number in range(members)]
        self.wires: list[Wire] = []

    async def begin(self, *, standbys: int = 1, **config: Any) -> Beginning:
        """Declare the group, let all members join, have it placed, and go on until it rests."""
        await self.connect()
        declaration = {
            "topology": {
                "subtopologies": [
                    {"id": "0", "partitions": self._tasks_each * len(self.members), "changelog_topics": ["store"]}
                ]
            },
            "config": {
                "num_standby_replicas": standbys,
                # Everybody has joined before the first placement, which then moves nothing that anybody has: it waits
                # until it is asked for, however long they take.
                "initial_rebalance_delay_ms": 3_600_000,
                "max_warmup_replicas": 100_000,
                "max_warmups_per_member": 1_000,
                # No member hears of its group while others of a larger fleet begin.
                "session_timeout_ms": 7_200_000,
                # A turn of everybody may take longer than two of the usual intervals here. Whoever is as late is
                # overdue, and as long as anybody is, no task is handed over for balance: the group would never rest.
                "heartbeat_interval_ms": 60_000,
            }
            | config,
        }
        answer = await self.wires[0].ask(self.server.request("PUT", self.path, encode(declaration)))
        if answer.status != 201:
            raise RuntimeError(f"{answer.status} {answer.body!r}")
        began = time.monotonic(), self.server.cpu_s()
        await self.each(self.members, self.join)
        joined = time.monotonic(), self.server.cpu_s()
        await self.wires[0].ask(self.server.request("POST", f"{self.path}/probe", b"{}"))
        end = time.monotonic() + REST_WITHIN_S
        while not await self.at_rest():
            if time.monotonic() > end:
                raise TimeoutError(f"{self.path} does not come to rest")
            await self.each(self.members, self.beat)
            await asyncio.sleep(0.2)
        rested = time.monotonic(), self.server.cpu_s()
        await self.each(self.members, self.beat)
        return Beginning(joined[0] - began[0], joined[1] - began[1], rested[0] - joined[0], rested[1] - joined[1])

    async def connect(self) -> None:
        """Open connections; earlier ones, which the server ends when they are idle for long, are closed."""
        self.end()
        self.wires = [await Wire.open(self.server.port) for _ in range(WIRES)]

    async def join(self, wire: Wire, member: Played) -> None:
        """Let one member join."""
        member.take(await wire.ask(self.server.request("PUT", member.path, b"{}")))

    async def beat(self, wire: Wire, member: Played) -> None:
        """Let one member heartbeat."""
        request = self.server.request("POST", f"{member.path}/heartbeat", member.body())
        member.take(await wire.ask(request))

    async def at_rest(self) -> bool:
        """Ask whether the group rests."""
        answer = await self.wires[0].ask(self.server.request("GET", self.path))
        return bool(decode(answer.body)["at_rest"])

    async def each(self, members: Sequence[Played], do: Any) -> None:
        """Do something for each member, all connections at once."""
        left = iter(members)

        async def go_on(wire: Wire) -> None:
            for member in left:
                await do(wire, member)

        await asyncio.gather(*(go_on(wire) for wire in self.wires))

    async def configure(self, **config: Any) -> None:
        """Change settings of the group, and let everybody hear of it."""
        change = self.server.request("PUT", self.path, encode({"config": config}), **{"if-match": "*"})
        answer = await self.wires[0].ask(change)
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.body!r}")
        await self.each(self.members, self.beat)

    def go_on(self, *, reads_on: bool, lists_every: int) -> None:
        """Have all copies read on from here, or stand still, and members tell of it so often."""
        for member in self.members:
            member.reads_on, member.lists_every = reads_on, lists_every

    async def delete(self) -> None:
        """Delete the group, which leaves its room to the next."""
        answer = await self.wires[0].ask(self.server.request("DELETE", f"{self.path}?force=true"))
        if answer.status != 204:
            raise RuntimeError(f"{answer.status} {answer.body!r}")

    def end(self) -> None:
        """Close the connections."""
        for wire in self.wires:
            wire.close()
