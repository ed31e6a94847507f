"""A worker that only pretends: `python -m batonpass.worker.simulated`.

It joins a group as any worker does, and restores state at a given rate from a changelog that grows at a given rate,
without there being any. Where it has come stands in a small file, so that it goes on from there when it is started
again. For demonstrations, and for trying out settings with real processes.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from batonpass.terminal import log_to_stderr, say, say_on_stderr
from batonpass.variables import variable
from batonpass.worker.member import JoinRefused, Member
from batonpass.worker.options import Exit
from batonpass.worker.own_folder import MemberIds, sole_user_of
from batonpass.worker.protocol import Offsets, OnLeaseLost, Phase, Problem, Progress, RequestKind, Role, Status
from batonpass.worker.tasks import Callbacks, Revocation, Task

EXIT_REFUSED = 1
EXIT_TAKEN_OVER = 3

STEP_S = 0.1
IDLE_S = 0.5
"""How often a task at the end of its changelog looks for more."""
LEAST_STEP_S = 0.005
KEEP_S = 1.0
RECORD_BYTES = 100
"""The size of a simulated record on the simulated disk."""


@dataclass(frozen=True, slots=True)
class Changelog:
    """A changelog that does not exist: every process with the same figures sees the same ends at the same time.

    It grows by ``growth`` records a second and keeps the last ``size`` of them, so that a copy without state has
    ``size`` records to restore, at ``rate`` a second.
    """

    rate: float
    growth: float
    size: int

    def end(self) -> int:
        return self.size + int(self.growth * time.time())

    def begin(self) -> int:
        return self.end() - self.size


class SimulatedCallbacks(Callbacks):
    """Pretends to restore, tail and process, at the given pace.

    How far each task's state has come outlives the process, in a file; one that cannot be read counts as absent.
    """

    def __init__(self, changelog: Changelog, folder: Path, *, prints: bool) -> None:
        self._changelog = changelog
        self._path = folder / "state.json"
        self._prints = prints
        self.positions: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            found = json.loads(self._path.read_text())
            self.positions = {str(task): int(position) for task, position in found["positions"].items()}

    def save(self) -> None:
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(json.dumps({"positions": self.positions}))
        unfinished.replace(self._path)

    async def keep_saving(self) -> None:
        """Save again and again, until this is cancelled."""
        while True:
            self.save()
            await asyncio.sleep(KEEP_S)

    def say(self, event: str, **fields: object) -> None:
        if self._prints:
            say(json.dumps({"at": round(time.time(), 3), "event": event} | fields))

    async def on_active(self, task: Task) -> None:
        """Restore, then keep up with the end of the changelog, which this task itself moves."""
        self.say("active", task=task.id, was=task.was, fencing_token=task.fencing_token, restore_to=task.restore_to)
        wanted = max(self._changelog.end(), task.restore_to if isinstance(task.restore_to, int) else 0)
        async for position in self._restore(task):
            if position >= wanted:
                break
        task.running()
        self.say("running", task=task.id, fencing_token=task.fencing_token)
        while True:
            if task.may_process:
                self.positions[task.id] = self._changelog.end()
            await asyncio.sleep(IDLE_S)

    async def disk_bytes(self) -> dict[str, int]:
        begin = self._changelog.begin()
        return {task: RECORD_BYTES * max(0, at - begin) for task, at in self.positions.items()}

    async def remove_state(self, task_id: str) -> None:
        self.positions.pop(task_id, None)
        self.save()

    async def on_standby(self, task: Task) -> None:
        self.say(task.role, task=task.id, was=task.was)
        was_ready = False
        async for position in self._restore(task):
            if position >= self._changelog.end():
                await asyncio.sleep(IDLE_S)
            is_ready = position >= self._changelog.end() - self._changelog.growth
            if is_ready and not was_ready:
                self.say("caught-up", task=task.id, position=position)
            was_ready = is_ready

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        """Stop; return where an active that committed has stopped."""
        self.say("revoked", task=task.id, role=task.role, commit=revocation.commit, becomes=revocation.becomes)
        if task.role is not Role.ACTIVE or not revocation.commit or not task.may_process:
            return None
        self.positions[task.id] = self._changelog.end()
        return self.positions[task.id]

    def on_status(self, statuses: Sequence[Status]) -> None:
        self.say("status", statuses=[status.code for status in statuses])

    def on_problem(self, kind: RequestKind, problem: Problem) -> None:
        self.say("problem", call=kind, type=problem.type, status=problem.status, detail=problem.detail)

    async def _restore(self, task: Task) -> AsyncIterator[int]:
        """Read the changelog at its rate, for ever; yield the copy's position after each step."""
        last = time.monotonic()
        while True:
            now = time.monotonic()
            end = self._changelog.end()
            begun = max(self.positions.get(task.id, 0), self._changelog.begin())
            position = min(end, begun + round(self._changelog.rate * (now - last)))
            last = now
            self.positions[task.id] = position
            task.report(position, end)
            yield position
            # Close to the end a step is shorter, so that a handover takes no longer than reading the last records.
            await asyncio.sleep(min(STEP_S, max(LEAST_STEP_S, (end - position) / self._changelog.rate)))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m batonpass.worker.simulated", description=__doc__)
    parser.add_argument("--url", required=True, action="append", help="where coordinators are, with commas")
    parser.add_argument("--group", required=True)
    parser.add_argument("--instance", required=True, help="the instance id, which keeps its place over a restart")
    parser.add_argument("--folder", required=True, type=Path, help="where its state is kept; one process at a time")
    parser.add_argument("--token-file", type=Path, help="holds the bearer token; read anew for every request")
    parser.add_argument("--rate", type=float, default=1_000, help="records restored a second, for each task")
    parser.add_argument("--growth", type=float, default=100, help="records that each changelog grows by a second")
    parser.add_argument("--size", type=int, default=10_000, help="records that a copy restores from nothing")
    parser.add_argument("--capacity", type=float, default=1)
    parser.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help="a client tag")
    parser.add_argument("--on-lease-lost", choices=[each.value for each in OnLeaseLost], default="stop")
    parser.add_argument("--leave", action="store_true", help="leave for good when told to stop, and keep no place")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for everything that happens")
    return parser.parse_args(arguments)


async def work(asked: argparse.Namespace, ids: MemberIds) -> int:
    """Be a worker until told to stop; return the exit code."""
    changelog = Changelog(asked.rate, asked.growth, asked.size)
    callbacks = SimulatedCallbacks(changelog, asked.folder, prints=asked.json)
    begin, end = changelog.begin(), changelog.end()
    token_file: Path | None = asked.token_file
    member = Member(
        asked.url,
        asked.group,
        callbacks,
        instance_id=asked.instance,
        capacity=asked.capacity,
        client_tags=dict(tag.partition("=")[::2] for tag in asked.tag),
        on_lease_lost=OnLeaseLost(asked.on_lease_lost),
        token=None if token_file is None else lambda: token_file.read_text().strip(),
        replaces=ids.last,
        new_member_id=ids.new,
        on_disk={
            task: Progress(position=position, end_offset=end)
            for task, position in callbacks.positions.items()
            if position >= begin
        },
        on_exit=Exit.LEAVE if asked.leave else Exit.RESTART,
        exit_timeout_ms=10_000,
    )
    saving = asyncio.ensure_future(callbacks.keep_saving())
    try:
        async with member:
            callbacks.say("joined", member=member.member_id)
            reason = await member.run()
    except JoinRefused as refusal:
        say_on_stderr(f"batonpass: {refusal}")
        return EXIT_REFUSED
    finally:
        saving.cancel()
        callbacks.save()
    callbacks.say("gone", reason=reason)
    return EXIT_TAKEN_OVER if member.phase is Phase.STOPPED else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one simulated worker; return the exit code."""
    asked = parse(arguments)
    log_to_stderr(variable("BATONPASS_WORKER_LOG") or "WARNING", "%(levelname)s %(message)s")
    try:
        with sole_user_of(asked.folder) as ids:
            return asyncio.run(work(asked, ids))
    except BlockingIOError as error:
        say_on_stderr(f"batonpass: {error}")
        return EXIT_REFUSED
    except KeyboardInterrupt:
        # Before it has joined; from then on the member handles it.
        return 130


if __name__ == "__main__":
    sys.exit(main())
