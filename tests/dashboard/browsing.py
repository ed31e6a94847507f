"""A browser, and a dashboard that it can reach."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx2 as httpx
import uvicorn
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, async_playwright
from tests.dashboard.canned import Canned
from tests.e2e.running import PATIENCE_S, PROGRAM
from tests.programs import chromium

from batonpass.dashboard.app import make_app
from batonpass.dashboard.config import Config
from batonpass.sockets import bind

PATIENCE_MS = PATIENCE_S * 1_000


@dataclass
class Browser:
    """One window, what it asked for, and what went wrong in it."""

    page: Page
    base: str
    asked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    async def sign_in(self, token: str) -> None:
        """Type a token into the form."""
        await self.page.goto(f"{self.base}/login")
        await self.page.fill("#token", token)
        await self.page.click("text=Sign in >> nth=-1")
        await self.page.wait_for_selector("#middle")
        # The page is there before what its buttons do.
        await self.page.wait_for_load_state()

    async def go(self, place: str) -> None:
        """Open a page of the dashboard."""
        await self.page.goto(f"{self.base}{place}")

    async def text(self, selector: str = "#middle") -> str:
        """Return what is to be read in a part of the page."""
        return " ".join((await self.page.inner_text(selector)).split())

    async def soon(self, *words: str, selector: str = "#middle") -> str:
        """Wait until all of some words can be read, without loading the page again, and return what can be read."""
        ends_at = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            found = await self.text(selector)
            if all(word in found for word in words):
                return found
            assert asyncio.get_running_loop().time() < ends_at, (words, found)
            await asyncio.sleep(0.1)


Windows = Callable[..., AbstractAsyncContextManager[Browser]]
"""Opens a window on a base URL, with options of Playwright's ``new_context``."""


@asynccontextmanager
async def started() -> AsyncIterator[Windows]:
    """Start a browser, and yield what opens a window of it on a base URL."""
    async with async_playwright() as player:
        browser = await player.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield partial(window, browser)
        finally:
            await browser.close()


@asynccontextmanager
async def window(browser: Chromium, base: str, **options: Any) -> AsyncIterator[Browser]:
    """Open a window that knows nothing of any other; what it was told to run and could not is a fault."""
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
    context.set_default_timeout(PATIENCE_MS)
    found = Browser(await context.new_page(), base)
    found.page.on("request", lambda request: found.asked.append(request.url))
    found.page.on("pageerror", lambda error: found.faults.append(str(error)))
    found.page.on(
        "console",
        lambda message: found.faults.append(message.text) if "Content Security" in message.text else None,
    )
    try:
        yield found
    finally:
        await context.close()


@asynccontextmanager
async def browsing(base: str, **options: Any) -> AsyncIterator[Browser]:
    """Open a window of a browser of its own."""
    async with started() as opened, opened(base, **options) as found:
        yield found


@contextmanager
def serving(canned: Canned, **more: Any) -> Iterator[str]:
    """Serve a dashboard on a canned coordinator, in a thread; yield its base URL."""
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    app = make_app(Config("http://coordinator.example:8420", port=port, **more), transport=canned.transport())
    settings = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        listener.listen()
        yield f"http://127.0.0.1:{port}"
    finally:
        app.state.dashboard.closing.set()
        server.should_exit = True
        thread.join(PATIENCE_S)
        listener.close()


@contextmanager
def dashboard(server: str, *options: str, trusted: ssl.SSLContext | bool = True) -> Iterator[str]:
    """Run `batonpass dashboard` as a process of its own; yield its base URL. It has to end well when it is told to."""
    command = [*PROGRAM, "dashboard", "--server", server, "--port", "0", "--json", *options]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("BATONPASS_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, env=kept) as process:
        try:
            assert process.stdout is not None
            greeting = json.loads(process.stdout.readline())
            assert httpx.get(f"{greeting['url']}/livez", verify=trusted).text == "ok\n"
            yield greeting["url"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            if process.poll() is None:
                process.kill()
