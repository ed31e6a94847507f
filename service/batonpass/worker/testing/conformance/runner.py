"""Runs cases against a client, each with a process and a coordinator of its own, several at a time."""

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from batonpass.terminal import say
from batonpass.worker.testing.conformance import laws
from batonpass.worker.testing.conformance.cases import CASES, Case
from batonpass.worker.testing.conformance.scripted_coordinator import GROUP, Broken, ScriptedCoordinator
from batonpass.worker.testing.http import HttpServer

CASE_S_MAX = 60.0
OUTPUT_LINES_MAX = 12


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one case; without faults the client kept the protocol."""

    case: str
    law: str
    rules: tuple[str, ...]
    faults: tuple[str, ...]
    printed: str
    seconds: float

    @property
    def kept(self) -> bool:
        return not self.faults


async def run(
    command: Sequence[str], names: Sequence[str], *, jobs: int, heard: Callable[[Result], None]
) -> list[Result]:
    """Run cases by name, up to ``jobs`` at a time; ``heard`` is called with each result at once."""
    places = asyncio.Semaphore(jobs)

    async def one(name: str) -> Result:
        async with places:
            result = await run_case(command, CASES[name])
        heard(result)
        return result

    return list(await asyncio.gather(*(one(name) for name in names)))


def cited(rules: Sequence[str]) -> str:
    """Return rules of docs/protocol.md as code and tests cite them."""
    return f"protocol {', '.join(rules)}"


def show(result: Result) -> None:
    say(f"{'kept  ' if result.kept else 'BROKEN'} {result.case}: {result.law} ({cited(result.rules)})")
    say(*(f"       {fault}" for fault in result.faults))
    if result.faults:
        say(*(f"       | {line}" for line in result.printed.splitlines()[-OUTPUT_LINES_MAX:]))


async def run_case(command: Sequence[str], case: Case) -> Result:
    coordinator, began, faults, printed = ScriptedCoordinator(), time.monotonic(), [], b""
    async with HttpServer(coordinator.answer) as server, client(command, server.url, case.name) as process:
        reading = asyncio.ensure_future(process.communicate())
        coordinator.stop_client = process.terminate
        coordinator.client_ended = lambda: process.returncode is not None
        try:
            async with asyncio.timeout(CASE_S_MAX):
                await _play(case, coordinator, process)
        except Broken as broken:
            faults.append(str(broken))
        except TimeoutError:
            faults.append(f"the case was not over after {CASE_S_MAX:g} s")
        faults += laws.faults(coordinator)
        _kill(process)
        printed, _ = await reading
    return Result(
        case=case.name,
        law=case.law,
        rules=case.rules,
        faults=tuple(faults),
        printed=printed.decode(errors="replace"),
        seconds=round(time.monotonic() - began, 1),
    )


async def _play(case: Case, coordinator: ScriptedCoordinator, process: Process) -> None:
    """Play a case, unless the client ends before it has begun.

    Raises:
        Broken: when the client did not keep the protocol.
    """
    playing, ending = asyncio.ensure_future(case.play(coordinator)), asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait((playing, ending), return_when=asyncio.FIRST_COMPLETED)
        if not playing.done() and not coordinator.calls:
            raise Broken(f"the client made no call at all, and ended with exit code {process.returncode}")
        await playing
    finally:
        playing.cancel()
        ending.cancel()


@contextlib.asynccontextmanager
async def client(command: Sequence[str], url: str, case: str) -> AsyncIterator[Process]:
    """Start the client in its own process group, and end all of its processes afterwards."""
    environment = os.environ | {
        "BATONPASS_URL": url,
        "BATONPASS_GROUP": GROUP,
        "BATONPASS_SINK": f"{url}/sink",
        "BATONPASS_INSTANCE": f"client-{case}",
    }
    process = await create_subprocess_exec(
        *command, env=environment, stdout=PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True
    )
    try:
        yield process
    finally:
        _kill(process)
        await process.wait()


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
