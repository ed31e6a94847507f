"""Processes that work for this one and end with it: JSON that they print is parsed, the rest goes to a log."""

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from batonpass.child_environment import child_environment
from batonpass.tethered import tethered_command

Hear = Callable[[Mapping[str, Any]], None]
LINE_BYTES_MAX = 1 << 20


class Child:
    """One process: a module of this package, started with arguments."""

    def __init__(self, process: asyncio.subprocess.Process, listening: asyncio.Future[None]) -> None:
        self._process = process
        self._listening = listening

    @classmethod
    async def start(cls, module: str, arguments: Sequence[str], *, log: Path, hear: Hear, **environment: str) -> Self:
        """Start a process. ``hear`` gets every line of JSON that it prints; everything else goes to ``log``."""
        kept = {key: text for key, text in child_environment().items() if not key.startswith("BATONPASS_")}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            # In its own session, so that Ctrl-C reaches only this process, which stops the others in order.
            process = await asyncio.create_subprocess_exec(
                *tethered_command(module, arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                env=kept | environment,
                start_new_session=True,
                limit=LINE_BYTES_MAX,
            )
        listening = asyncio.ensure_future(_listen(process, hear))
        return cls(process, listening)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    def kill(self) -> None:
        """End the process at once, without asking it."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self, patience_s: float = 15.0) -> None:
        """Ask the process to end, and kill it if that takes too long; wait until all of its output was handled."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience_s):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        await self._listening


async def _listen(process: asyncio.subprocess.Process, hear: Hear) -> None:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    while line := await process.stdout.readline():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            hear(event)
