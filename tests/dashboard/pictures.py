"""Takes the pictures of docs/dashboard.md anew: `python -m tests.dashboard.pictures docs/pictures`.

A coordinator with simulated workers is started, one more worker joins, one drains; the large group, and those in
trouble, are canned ones.
Look at each picture before it is kept.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2 as httpx
from tests.dashboard.browsing import Browser, browsing, serving
from tests.dashboard.canned import ADMIN, Canned
from tests.dashboard.fleet import Fleet
from tests.dashboard.situations import SITUATIONS, Staged, staged
from tests.e2e.running import PROGRAM, Up, running
from tests.waiting import wait_until

Theme = Literal["light", "dark"]
WIDE: dict[str, int] = {"width": 1280, "height": 1000}
NARROW: dict[str, int] = {"width": 390, "height": 844}


async def take(browser: Browser, file: Path) -> None:
    """Keep what is seen now."""
    await browser.page.wait_for_timeout(700)
    picture = await browser.page.screenshot(path=file)
    print(f"{file} {len(picture) / 1000:.0f} kB", flush=True)  # noqa: T201 - a program for people


@contextmanager
def one_more(up: Up, name: str, rate: int) -> Iterator[None]:
    """Run another worker, which restores so many records a second."""
    command = [*PROGRAM, "worker", "--instance", name, "--rate", str(rate)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=up.environment) as worker:
        try:
            yield
        finally:
            worker.kill()


async def of_a_move(base: str, up: Up, folder: Path) -> None:
    """While one more worker warms up: light, dark, on a phone, and what would come of two more."""
    looks: list[tuple[str, str, Theme, dict[str, int]]] = [
        ("group", "", "light", WIDE),
        ("group-dark", "", "dark", WIDE),
        ("phone", "", "dark", NARROW),
        ("plan", "/plan?join=2", "light", WIDE),
    ]
    with one_more(up, "demo-4", 60):
        wait_until(lambda: up.ask("groups", "show", "demo")["warmups"] == 2)
        for name, place, theme, size in looks:
            async with browsing(base, color_scheme=theme, viewport=size) as browser:
                await browser.sign_in(up.token)
                await browser.go(f"/groups/demo{place}")
                await browser.soon("Held back" if not place else "would move")
                await take(browser, folder / f"dashboard-{name}.png")


async def of_what_was(base: str, up: Up, folder: Path) -> None:
    """Once another one has got its share, and a member has drained."""
    with one_more(up, "demo-5", 20_000):
        wait_until(lambda: any(one["active"] for one in _held(up, "demo-5")), within_s=200)
        up.run("drain", "demo", "demo-2", "--wait", "--timeout", "90s", "--reason", "a kernel upgrade")
        async with browsing(base, viewport=WIDE) as browser:
            await browser.sign_in(up.token)
            for name, place in (
                ("member", "/find?q=demo-2"),
                ("timeline", "/timeline?span=5 min"),
                ("handovers", "/gaps"),
            ):
                await browser.go(f"/groups/demo{place}")
                await take(browser, folder / f"dashboard-{name}.png")


def _held(up: Up, name: str) -> list[dict[str, Any]]:
    members = up.ask("members", "demo")["members"]
    return [one["assignment"] for one in members if one["instance_id"] == name]


async def of_a_large_group(folder: Path) -> None:
    """A thousand members and ten thousand tasks, two of which are not processed."""
    found = Canned(Fleet.of(1_000, 10_000))
    with serving(found) as base:
        async with browsing(base, viewport=WIDE) as browser:
            await browser.sign_in(ADMIN)
            await browser.go("/groups/fleet")
            await take(browser, folder / "dashboard-large.png")


async def of_trouble(folder: Path) -> None:
    """Sixty groups with whatever can be wrong, the worst first, and one in which two things are."""
    idle = 60 - len(SITUATIONS)
    with serving(Staged([staged(one) for one in SITUATIONS], idle)) as base:
        async with browsing(base, viewport=WIDE) as browser:
            await browser.sign_in(ADMIN)
            await take(browser, folder / "dashboard-groups.png")
            await browser.go("/groups/two-troubles")
            await take(browser, folder / "dashboard-trouble.png")


def main(folder: Path) -> None:
    """Take all of them."""
    asyncio.run(of_a_large_group(folder))
    asyncio.run(of_trouble(folder))
    with tempfile.TemporaryDirectory(prefix="batonpass-") as kept:
        Path(kept).chmod(0o755)
        home = Path(kept) / "home"
        with running(Path(kept) / "up", "--dashboard-port", "0", home=home) as up:
            base = next(line.split()[1] for line in up.greeting.splitlines() if line.strip().startswith("Dashboard"))
            wait_until(lambda: up.ask("groups", "show", "demo")["at_rest"])
            wait_until(lambda: _answers(base))
            asyncio.run(of_a_move(base, up, folder))
            asyncio.run(of_what_was(base, up, folder))
            up.stop()


def _answers(base: str) -> bool:
    try:
        return httpx.get(f"{base}/livez").is_success
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
