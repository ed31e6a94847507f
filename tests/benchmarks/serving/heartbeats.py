"""Heartbeats a second and their latency, beside bare ASGI on the same bodies in turns, and at a steady rate."""

import asyncio
import time
from dataclasses import dataclass

from tests.benchmarks.serving.population import WIRES, Population
from tests.benchmarks.serving.servers import Server
from tests.benchmarks.serving.wire import Wire


@dataclass(frozen=True, slots=True)
class Rate:
    """What was seen in one stretch: answers a second, latencies, and how much of a core the server used."""

    per_s: float
    p50_ms: float
    p99_ms: float
    core: float


TICK_S = 0.01
"""What the system counts processor time in. Less than that counts as much."""


def _rate(latencies: list[float], took_s: float, cpu_s: float) -> Rate:
    ordered = sorted(latencies)
    p50, p99 = (ordered[int((len(ordered) - 1) * share)] * 1_000 for share in (0.5, 0.99))
    return Rate(len(ordered) / took_s, p50, p99, max(cpu_s, TICK_S) / took_s)


async def saturated(server: Server, group: Population, *, seconds: float) -> Rate:
    """Send as fast as answers come, on ``WIRES`` connections; the bodies are those of the group's members."""
    wires = [await Wire.open(server.port) for _ in range(WIRES)]
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def hurry(wire: Wire, number: int) -> None:
        members = group.members[number % len(group.members) :: WIRES]
        while True:
            for member in members:
                request = server.request("POST", f"{member.path}/heartbeat", member.body())
                began = time.perf_counter()
                answer = await wire.ask(request)
                now = time.perf_counter()
                latencies.append(now - began)
                if answer.status != 200:
                    raise RuntimeError(f"{answer.status} {answer.body!r}")
                if now > end:
                    return

    cpu, began = server.cpu_s(), time.perf_counter()
    await asyncio.gather(*(hurry(wire, number) for number, wire in enumerate(wires)))
    seen = _rate(latencies, time.perf_counter() - began, server.cpu_s() - cpu)
    for wire in wires:
        wire.close()
    return seen


async def steady(server: Server, group: Population, *, interval_s: float, seconds: float) -> Rate:
    """Let every member heartbeat once an interval, at its own moment; latency counts from when it was due."""
    wires = [await Wire.open(server.port) for _ in range(WIRES)]
    free: asyncio.Queue[Wire] = asyncio.Queue()
    for wire in wires:
        free.put_nowait(wire)
    latencies: list[float] = []
    gap = interval_s / len(group.members)
    sent: set[asyncio.Task[None]] = set()

    async def beat(number: int, due: float) -> None:
        member = group.members[number % len(group.members)]
        wire = await free.get()
        answer = await wire.ask(server.request("POST", f"{member.path}/heartbeat", member.body()))
        latencies.append(time.perf_counter() - due)
        free.put_nowait(wire)
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.body!r}")

    cpu, began = server.cpu_s(), time.perf_counter()
    number = 0
    while (now := time.perf_counter()) < began + seconds:
        while began + number * gap <= now:
            one = asyncio.ensure_future(beat(number, began + number * gap))
            sent.add(one)
            one.add_done_callback(sent.discard)
            number += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*sent)
    seen = _rate(latencies, time.perf_counter() - began, server.cpu_s() - cpu)
    for wire in wires:
        wire.close()
    return seen
