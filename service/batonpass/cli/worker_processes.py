"""The processes that `batonpass up` starts beside its coordinator: workers and other programs."""

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batonpass.child_environment import child_environment
from batonpass.cli.demo_job import DemoJob, Program, SimulatedWorkers
from batonpass.cli.folder import UpFolder
from batonpass.client import CoordinatorClient, Refused, path
from batonpass.tethered import tethered_command

STOP_PATIENCE_S: Final = 8.0
LOOK_EVERY_S: Final = 0.5


@dataclass(slots=True)
class Process:
    """One process beside the coordinator, a worker or another, and its log. ``again`` is the command to restart it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    again: str
    missed: bool = False


async def admit(client: CoordinatorClient, folder: UpFolder, group: str) -> None:
    """Make or reuse a token that opens the workers' group to them, and nothing else."""
    file = folder.workers_token_file
    kept = folder.kept(file)
    # Trying the token itself would be refused, with a warning, if it is for the workers of another group.
    known = (await client.get("/tokens"))["tokens"]
    if kept is None or not any(_opens(one, kept, group) for one in known):
        wish = {"name": f"{group}-workers", "role": "worker", "group": group}
        folder.keep(file, (await client.call("POST", "/tokens", body=wish)).body["secret"])


def _opens(known: Mapping[str, Any], secret: str, group: str) -> bool:
    """Whether a token, as the coordinator lists it, is the stored secret, and lets workers into the group."""
    is_for_them = (known["role"], known["group"], known["status"]) == ("worker", group, "valid")
    return is_for_them and secret.endswith(known["last_four"])


def start(name: str, program: Program, place: Path, again: str) -> Process:
    """Start a process that ends with this one; its output goes to a log in ``place``."""
    place.mkdir(parents=True, exist_ok=True)
    log = place / "log"
    with log.open("ab") as output:
        # In its own session, so that Ctrl-C reaches only us, and we stop the process while its coordinator answers.
        process = subprocess.Popen(  # noqa: S603 - our own program
            tethered_command(program.module, program.arguments),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=place,
            env=child_environment(**program.env),
            start_new_session=True,
        )
    return Process(name, process, log, again)


async def stop(processes: Sequence[Process]) -> None:
    """Stop processes in good order, all at once, and wait for that for a while; kill those that do not stop."""
    for one in processes:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
    ends = (asyncio.to_thread(one.process.wait, STOP_PATIENCE_S) for one in processes)
    await asyncio.gather(*ends, return_exceptions=True)
    kill(processes)


def kill(processes: Sequence[Process]) -> None:
    """Kill the processes that still run."""
    for one in processes:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        if one.process.stdin is not None:
            one.process.stdin.close()


async def watch(processes: Callable[[], Iterable[Process]], tell: Callable[[str], None]) -> None:
    """Report every process that ends by itself; runs until it is cancelled."""
    while True:
        for one in processes():
            code = one.process.poll()
            if code is not None and not one.missed:
                one.missed = True
                how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                tell(f"{one.name} {how}; {one.again}, {one.log} is its log.")
        await asyncio.sleep(LOOK_EVERY_S)


async def declare(client: CoordinatorClient, kind: DemoJob | SimulatedWorkers) -> None:
    """Declare the group of the workers; a group that exists gets the ``change`` of these workers alone.

    A coordinator that was killed a moment ago may hold its lease for some seconds more: this waits until it is over.

    Raises:
        ApiError: when the coordinator refuses.
    """
    try:
        await client.call("PUT", path("groups", kind.group), body=dict(kind.declaration()), is_repeatable=True)
    except Refused as refused:
        if refused.kind != "precondition-required":
            raise
        if kind.change:
            await client.declare(kind.group, dict(kind.change))
