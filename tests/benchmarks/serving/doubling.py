"""Twice as many members: for how long the event loop stands still while a large group doubles, until it rests.

The members' requests are spread over the interval of heartbeats, as those of a fleet are. Sent all at once, the last of
them would wait for the work of all others, and the loop would stand still for what is load, not a long computation.
"""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.benchmarks.serving.population import Played, Population
from tests.benchmarks.serving.servers import coordinator
from tests.benchmarks.serving.watched import Stall, noted
from tests.benchmarks.serving.wire import Wire

REST_WITHIN_S = 300
INTERVAL_S = 3.0
"""Of heartbeats, as members are asked for by default."""


@dataclass(frozen=True, slots=True)
class Doubled:
    """What was seen from the first new member until the group was at rest.

    ``stalls`` are those of more than 100 ms, the longest first; ``beginning`` are those while the group began.
    """

    stalls: list[Stall]
    beginning: list[Stall]
    took_s: float
    cpu_s: float


async def double(url: str, *, members: int, tasks_each: int) -> Doubled:
    """Let a group come to rest, and then as many members join as it has, while the others heartbeat."""
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "stalls"
        async with coordinator(url, "tests.benchmarks.serving.watched", str(notes)) as server:
            group = Population(server, f"doubles-{members}", members, tasks_each=tasks_each)
            await group.begin(standbys=1)
            before, began, cpu = noted(notes), time.monotonic(), server.cpu_s()
            new = [Played(f"{group.path}/members/n{number:05}") for number in range(members)]

            due = time.monotonic()

            async def take_part(wire: Wire, member: Played) -> None:
                nonlocal due
                # Who is late makes up for nothing: that would be the burst that there is not to be.
                due = max(due, time.monotonic()) + INTERVAL_S / (2 * members)
                await asyncio.sleep(due - time.monotonic())
                await (group.beat if member.epoch else group.join)(wire, member)

            await group.each(list(chain.from_iterable(zip(group.members, new, strict=True))), take_part)
            group.members += new
            while not await group.at_rest():
                if time.monotonic() > began + REST_WITHIN_S:
                    raise TimeoutError(f"{group.path} does not come to rest")
                await group.each(group.members, take_part)
            took_s, cpu_s = time.monotonic() - began, server.cpu_s() - cpu
            group.end()
        found = noted(notes)
    return Doubled(_sorted(found[len(before) :]), _sorted(before), took_s, cpu_s)


def _sorted(found: list[Stall]) -> list[Stall]:
    return sorted(found, key=lambda one: -one.ms)
