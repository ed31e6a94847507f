"""Measures the dashboard on a large group that a real coordinator has: `python -m tests.dashboard.crowd [MEMBERS]`.

Members that one process plays heartbeat every three seconds; the dashboard is a process of its own, and the browser a
real one. For each page it measures how long it takes until everything is loaded and laid out, how large it is, and how
long the dashboard needed; then how long it takes until an open page shows what has just happened.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2 as httpx
from tests.benchmarks.serving.population import TASKS_EACH, Population
from tests.benchmarks.serving.servers import TOKEN, Server, coordinator, migrated, postgres
from tests.dashboard.browsing import Browser, browsing, dashboard

GROUP: Final = "crowd"
EVERY_S: Final = 3.0
JOINING_MS: Final = 30_000
TIMES: Final = 5
PAGES: Final = (
    "/",
    "/groups/crowd",
    "/groups/crowd/grid",
    "/groups/crowd/grid?part=0&begin=4000",
    "/groups/crowd/warmups",
    "/groups/crowd/members",
    "/groups/crowd/members/m00007",
    "/groups/crowd/tasks/0_4711",
    "/groups/crowd/timeline",
    "/groups/crowd/gaps",
    "/groups/crowd/generations",
    "/groups/crowd/generations/1",
    "/groups/crowd/events",
    "/groups/crowd/plan?join=2",
)


def say(words: str) -> None:
    """Tell how far it is."""
    print(words, flush=True)  # noqa: T201 - a program for people


async def beating(crowd: Population) -> None:
    """Let everybody heartbeat every three seconds, spread over them."""
    while True:
        began = time.monotonic()
        parts = [crowd.members[number::10] for number in range(10)]
        for number, part in enumerate(parts, 1):
            await crowd.each(part, crowd.beat)
            await asyncio.sleep(max(0.0, began + EVERY_S * number / len(parts) - time.monotonic()))


@asynccontextmanager
async def crowded(server: Server, members: int) -> AsyncIterator[Population]:
    """Run a group of so many members, which rests."""
    crowd = Population(server, GROUP, members)
    # On a busy machine it takes longer until everybody has joined than one batch may.
    await crowd.begin(standbys=1, initial_rebalance_delay_ms=JOINING_MS)
    playing = asyncio.create_task(beating(crowd))
    try:
        yield crowd
    finally:
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing
        crowd.end()


async def load(browser: Browser, place: str) -> tuple[float, float, int]:
    """Open a page; return the ms until it was laid out, those until its first byte came, and its size in bytes."""
    began = time.perf_counter()
    await browser.page.goto(f"{browser.base}{place}", wait_until="load")
    # Once the browser has drawn two frames it has laid everything out.
    await browser.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    whole_ms = (time.perf_counter() - began) * 1_000
    timing: dict[str, Any] = await browser.page.evaluate(
        "() => { const [one] = performance.getEntriesByType('navigation');"
        " return {first: one.responseStart - one.requestStart, size: one.decodedBodySize}; }"
    )
    return whole_ms, timing["first"], timing["size"]


async def shown_after(browser: Browser, server: Server, place: str) -> list[float]:
    """Return the ms from a command's answer until an open page says so, for a pause and its end, some times."""
    await browser.go(place)
    await browser.page.wait_for_selector("#standing[data-live=yes]")
    found = []
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}/v1/groups/{GROUP}", timeout=30) as client:
        for number in range(2 * TIMES):
            command = "resume" if number % 2 else "pause"
            reason = f"measure {number}"
            answer = await client.post(f"/{command}", params={"reason": reason}, headers=server.headers)
            assert answer.is_success, answer.text
            began = time.perf_counter()
            is_so = "() => document.body.innerText.includes('An operator holds')"
            await browser.page.wait_for_function(is_so if command == "pause" else f"() => !({is_so})()", polling="raf")
            found.append((time.perf_counter() - began) * 1_000)
            await asyncio.sleep(2)
    return found


async def measure(base: str, server: Server) -> None:
    """Load every page some times, and tell the median and the worst of each."""
    async with browsing(base) as browser:
        await browser.sign_in(TOKEN)
        say("| page | loaded and laid out, median | worst | of it the dashboard | size |\n|---|---|---|---|---|")
        for place in PAGES:
            found = [await load(browser, place) for _ in range(TIMES)]
            whole, first, size = zip(*found, strict=True)
            median, worst, own = statistics.median(whole), max(whole), statistics.median(first)
            say(f"| `{place}` | {median:.0f} ms | {worst:.0f} ms | {own:.0f} ms | {max(size) / 1_000:.0f} kB |")
        for place in ("/groups/crowd", "/groups/crowd/grid"):
            after = await shown_after(browser, server, place) if place == "/groups/crowd" else []
            if after:
                say(
                    f"\nseen on an open {place} after: median {statistics.median(after):.0f} ms, worst {max(after):.0f} ms"
                )
        assert browser.faults == [], browser.faults


def stop_pinning(server: Server) -> None:
    """Let the coordinator run wherever there is a processor free, as it does outside of benchmarks."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(server.pid, range(os.cpu_count() or 1))


async def main(members: int) -> None:
    """Measure on so many members and ten times as many tasks."""
    with postgres() as database:
        async with coordinator(await migrated(database)) as server:
            stop_pinning(server)
            began = time.monotonic()
            async with crowded(server, members):
                rested_s = time.monotonic() - began
                say(f"{members} members have joined, {members * TASKS_EACH} tasks rest after {rested_s:.1f} s\n")
                with dashboard(f"http://127.0.0.1:{server.port}") as base:
                    await measure(base, server)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000))
