"""Coordinators as processes of their own, which a test may kill at any moment and start again."""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx

from batonpass.sockets import free_port


class CoordinatorProcess:
    """`batonpass serve` on a database, always under the same URL."""

    def __init__(self, database_url: str, log: Path, **settings: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._settings = {
            "BATONPASS_DATABASE_URL": database_url,
            "BATONPASS_PORT": str(self.port),
            "BATONPASS_AUTH": "off",
            "BATONPASS_LOG_FORMAT": "json",
            "BATONPASS_LEASE_MS": "1500",
            "BATONPASS_LEASE_RENEWAL_MS": "300",
        } | settings
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._process is not None
        return self._process.pid

    async def start(self, *, wait_s: float = 30) -> None:
        """Start it; with ``wait_s`` return when it is ready."""
        with self._log.open("ab") as lines:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "batonpass", "serve", env=os.environ | self._settings, stdout=lines, stderr=lines
            )
        if wait_s:
            await self.ready(wait_s)

    async def ready(self, wait_s: float = 30) -> None:
        """Wait until it says that it is ready."""
        assert self._process is not None
        async with asyncio.timeout(wait_s), httpx.AsyncClient() as client:
            while True:
                assert self._process.returncode is None, self._log.read_text()[-3_000:]
                with suppress(httpx.HTTPError):
                    if (await client.get(f"{self.url}/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.05)

    async def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it, without a word by default."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(how)
        await self._process.wait()

    def signal(self, how: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(how)

    def said(self) -> list[str]:
        """Return the events in its log."""
        return [json.loads(line)["event"] for line in self._log.read_text().splitlines() if line.startswith("{")]

    def owns(self, group: str) -> bool:
        """Whether a group is its own: a call that was passed on already is answered by the owner alone."""
        passed_on = {"batonpass-forwarded-for": "127.0.0.1"}
        return httpx.get(f"{self.url}/v1/groups/{group}", headers=passed_on).status_code == httpx.codes.OK

    async def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Make one call."""
        async with httpx.AsyncClient(timeout=20) as client:
            return await client.request(method, f"{self.url}{path}", json=body)
