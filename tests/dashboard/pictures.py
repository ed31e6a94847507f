"""Takes the pictures of docs/dashboard.md anew: `python -m tests.dashboard.pictures docs/pictures`.

A coordinator with simulated workers is started, one more worker joins, one drains; the large group is a canned one.
Look at each picture before it is kept.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

import httpx
from tests.dashboard import canned
from tests.dashboard.browsing import Browser, browsing, serving
from tests.e2e.running import PROGRAM, Up, running, soon

Theme = Literal["light", "dark"]
WIDE: dict[str, int] = {"width": 1280, "height": 860}
NARROW: dict[str, int] = {"width": 390, "height": 844}


async def take(browser: Browser, file: Path) -> None:
    """Keep what is seen now."""
    await browser.page.wait_for_timeout(700)
    picture = await browser.page.screenshot(path=file)
    print(f"{file} {len(picture) / 1000:.0f} kB", flush=True)  # noqa: T201 - a program for people


async def of_a_move(base: str, up: Up, folder: Path) -> None:
    """While one more worker warms up: light, dark, and on a phone; then the pages that look back."""
    command = [*PROGRAM, "worker", "--rate", "700"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=up.environment) as worker:  # noqa: ASYNC220 - a program
        try:
            soon(lambda: up.ask("groups", "show", "demo")["warmups"] == 2)
            looks: list[tuple[str, Theme, dict[str, int]]] = [
                ("group", "light", WIDE),
                ("group-dark", "dark", WIDE),
                ("phone", "dark", NARROW),
            ]
            for name, theme, size in looks:
                async with browsing(base, color_scheme=theme, viewport=size) as browser:
                    await browser.sign_in(up.token)
                    await browser.go("/groups/demo")
                    await browser.soon("Moving", "Warming up")
                    await browser.soon("Live", selector="#standing")
                    await take(browser, folder / f"dashboard-{name}.png")
            async with browsing(base, viewport=WIDE) as browser:
                await browser.sign_in(up.token)
                await browser.go("/groups/demo/plan?join=2")
                await take(browser, folder / "dashboard-plan.png")
                await looking_back(browser, up, folder)
        finally:
            worker.kill()


async def looking_back(browser: Browser, up: Up, folder: Path) -> None:
    """Once all have moved, and one has drained."""
    await asyncio.to_thread(soon, lambda: up.ask("groups", "show", "demo")["at_rest"], within_s=300)
    up.run("drain", "demo", "demo-2", "--wait", "--timeout", "90s", "--reason", "a kernel upgrade")
    await browser.go("/groups/demo/find?q=demo-2")
    await take(browser, folder / "dashboard-member.png")
    await browser.go("/groups/demo/timeline?span=5 min")
    await take(browser, folder / "dashboard-timeline.png")
    await browser.go("/groups/demo/gaps")
    await take(browser, folder / "dashboard-handovers.png")


async def of_a_large_group(folder: Path) -> None:
    """A thousand members and ten thousand tasks, two of which are not processed."""
    fleet = canned.Canned(canned.Fleet.of(1_000, 10_000))
    with serving(fleet) as base:
        async with browsing(base, viewport=WIDE) as browser:
            await browser.sign_in(canned.ADMIN)
            await browser.go("/groups/fleet")
            await take(browser, folder / "dashboard-large.png")


def main(folder: Path) -> None:
    """Take all of them."""
    asyncio.run(of_a_large_group(folder))
    with tempfile.TemporaryDirectory(prefix="batonpass-") as kept:
        Path(kept).chmod(0o755)
        home = Path(kept) / "home"
        with running(Path(kept) / "up", "--dashboard-port", "0", home=home) as up:
            base = next(line.split()[1] for line in up.greeting.splitlines() if line.strip().startswith("Dashboard"))
            soon(lambda: up.ask("groups", "show", "demo")["at_rest"])
            soon(lambda: _answers(base))
            asyncio.run(of_a_move(base, up, folder))
            up.stop()


def _answers(base: str) -> bool:
    try:
        return httpx.get(f"{base}/livez").is_success
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
