"""Ten thousand parked long-polls: what each of them occupies, and how long it takes to answer them all."""

from __future__ import annotations

import asyncio
import resource
import time
from dataclasses import dataclass

from tests.benchmarks.serving.population import Population
from tests.benchmarks.serving.servers import Server
from tests.benchmarks.serving.wire import Wire


@dataclass(frozen=True, slots=True)
class Parked:
    """What was seen: bytes for each idle connection, bytes for each poll on one, and the time to answer all."""

    polls: int
    bytes_idle: float
    bytes_parked: float
    wake_s: float
    core: float


async def park(server: Server, group: Population, *, polls: int) -> Parked:
    """Open as many connections, park a long-poll on each, and then delete the group, which concerns them all."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    before = server.resident_bytes()
    wires = [await Wire.open(server.port) for _ in range(polls)]
    await asyncio.sleep(1)
    idle = server.resident_bytes()
    waits = []
    for number, wire in enumerate(wires):
        member = group.members[number % len(group.members)]
        query = f"{member.path}/assignment?after={member.epoch}&wait_ms=120000"
        waits.append(wire.ask(server.request("GET", query)))
        if number % 200 == 0:
            await asyncio.sleep(0.02)
    await asyncio.sleep(3)
    parked = server.resident_bytes()
    cpu, began = server.cpu_s(), time.perf_counter()
    await group.wires[0].ask(server.request("DELETE", f"{group.path}?force=true"))
    await asyncio.gather(*waits)
    took = time.perf_counter() - began
    core = (server.cpu_s() - cpu) / took
    for wire in wires:
        wire.close()
    return Parked(polls, (idle - before) / polls, (parked - before) / polls, took, core)
