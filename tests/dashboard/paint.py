"""Measures what pages cost a browser: `python -m tests.dashboard.paint [TIMES]`.

For a small and a large group of canned answers, and for each page: the time until something is painted (median and
worst), the bytes that come over the network with nothing kept, the nodes of the document, and the memory of its scripts
after garbage was collected. In the tree of another commit it measures that one.
"""

import asyncio
import statistics
import sys
from typing import Any, Final

from tests.dashboard.browsing import Browser, browsing, serving
from tests.dashboard.canned import ADMIN, Canned
from tests.dashboard.fleet import Fleet

TIMES: Final = 5
FLEETS: Final = ((8, 40), (1_000, 10_000))
PAGES: Final = ("/", "/groups/fleet", "/groups/fleet/grid", "/groups/fleet/members", "/groups/fleet/gaps")
PAINTED: Final = """() => new Promise(done => {
  const told = () => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    if (!paint || document.readyState !== "complete") return setTimeout(told, 5);
    const loads = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
    done([paint.startTime, loads.reduce((sum, one) => sum + one.transferSize, 0),
          document.getElementsByTagName("*").length]);
  };
  told();
})"""


async def measured(browser: Browser, place: str) -> tuple[float, int, int, float]:
    """Open a page with nothing kept; return ms until it was painted, bytes, nodes, and kB of its scripts' memory."""
    tools = await browser.page.context.new_cdp_session(browser.page)
    await tools.send("Network.setCacheDisabled", {"cacheDisabled": True})
    await browser.go(place)
    painted_ms, size, nodes = await browser.page.evaluate(PAINTED)
    await tools.send("HeapProfiler.collectGarbage")
    heap: dict[str, Any] = await tools.send("Runtime.getHeapUsage")
    await tools.detach()
    return painted_ms, size, nodes, heap["usedSize"] / 1_000


async def main(times: int) -> None:
    """Measure every page of each group."""
    for members, tasks in FLEETS:
        with serving(Canned(Fleet.of(members, tasks))) as base:
            async with browsing(base) as browser:
                await browser.sign_in(ADMIN)
                for place in PAGES:
                    found = [await measured(browser, place) for _ in range(times)]
                    paints = [one[0] for one in found]
                    _, size, nodes, heap = found[-1]
                    print(  # noqa: T201 - a program for people
                        f"{members:>5} members  {place:<24} painted {statistics.median(paints):6.0f} ms, worst"
                        f" {max(paints):6.0f}; {size / 1_000:6.1f} kB, {nodes:6} nodes, {heap:7.0f} kB of memory",
                        flush=True,
                    )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else TIMES))
