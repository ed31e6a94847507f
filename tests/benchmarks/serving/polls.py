"""Ten thousand parked long-polls: what each of them occupies, and how long it takes to answer them all."""

import asyncio
import resource
import time
from dataclasses import dataclass

from tests.benchmarks.serving.population import Population
from tests.benchmarks.serving.servers import Server
from tests.benchmarks.serving.wire import Wire


@dataclass(frozen=True, slots=True)
class Parked:
    """Bytes for each idle connection and for each poll on one; seconds to answer all, and of processor time for it."""

    bytes_idle: float
    bytes_parked: float
    answered_s: float
    cpu_s: float


async def park(server: Server, group: Population, *, polls: int) -> Parked:
    """Open as many connections to a server, park a long-poll on each, and delete the group, which concerns them all."""
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
    deleting = await Wire.open(server.port)
    await deleting.ask(server.request("DELETE", f"{group.path}?force=true"))
    await asyncio.gather(*waits)
    took, spent = time.perf_counter() - began, server.cpu_s() - cpu
    for wire in (deleting, *wires):
        wire.close()
    return Parked((idle - before) / polls, (parked - before) / polls, took, spent)
