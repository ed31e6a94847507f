"""`batonpass worker`: one more worker of the job that `up` runs, in the foreground; or a simulated one of any group."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from batonpass.child_environment import child_environment
from batonpass.cli.client_context import Folder, Token, Url, failing_well, find, trusted
from batonpass.cli.demo_job import DEMO, RESTORED_A_SECOND, SIMULATED, Program, arguments, real_worker
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import UpFolder, default_folder, running_here
from batonpass.cli.listening import end_in_order
from batonpass.client import CoordinatorClient, path
from batonpass.private_files import write_private
from batonpass.terminal import say


def worker(
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="The group to join; left out: that of the running `up`.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", metavar="NAME", help="Its instance id; left out: the next free one.")
    ] = None,
    rate: Annotated[int, typer.Option(min=1, help="Simulated: records a second that it restores.")] = RESTORED_A_SECOND,
    url: Url = None,
    token: Token = None,
    folder: Folder = None,
) -> None:
    """Run one more worker until Ctrl-C: it joins, restores what it is told to, and says so on every change.

    In the group of the job that `up` runs on Kafka it is a real one, elsewhere it only pretends to have state. What it
    keeps on disk stays there, so that it resumes when it is started again under the same name.
    """
    with failing_well(as_json=False):
        # Until the worker takes the place of this process: the coordinator is asked before that.
        end_in_order()
        at, secret = find(url, token, folder)
        # The `up` on this machine that listens there; its folder may belong to another user.
        up = next((UpFolder(one.folder) for one in running_here() if one.url == at), None)
        job = up.job_file.read_text() if up and os.access(up.job_file, os.R_OK) else None
        own = DEMO if job is None else str(json.loads(job)["group"])
        group = group or own
        members = asyncio.run(_members(at, secret, group))
        name = instance or next_name(group, (str(one["instance_id"]) for one in members))
        if "/" in name or name in {".", ".."}:
            raise Failure(Exit.BAD_INPUT, f"{name} is no instance id: it is the name of a folder, too.")
        place = _kept(up) / name
        place.mkdir(parents=True, exist_ok=True)
        shown = None
        if up and group == own and os.access(up.workers_token_file, os.R_OK):
            shown = up.workers_token_file
        elif secret:
            shown = place / "token"
            write_private(shown, secret + "\n")
        if job is not None and group == own and shown is not None:
            program = real_worker(job, name, url=at, folder=place, token_file=shown)
        else:
            given = arguments(url=at, group=group, instance=name, folder=place, rate=rate)
            given += [] if shown is None else ["--token-file", str(shown)]
            program = Program(SIMULATED, [*given, "--json"])
        say(f"Worker {name} joins group {group}; its state is in {place}. Ctrl-C stops it.")
        if advice := who_has(name, members):
            say(advice)
        command = [sys.executable, "-m", program.module, *program.arguments]
        os.execve(sys.executable, command, child_environment())  # noqa: S606 - this very program


async def _members(url: str, token: str | None, group: str) -> list[Any]:
    async with CoordinatorClient(url, token, trusted=trusted()) as client:
        return await client.pages(path("groups", group, "members"), "members")


def who_has(name: str, members: Iterable[Mapping[str, Any]]) -> str | None:
    """Return what to do if an instance id belongs to a member that is not away; None if the id is free."""
    if not any(one["instance_id"] == name and one["state"] != "away" for one in members):
        return None
    return (
        f"{name} is a member already. If it runs, stop this one, and leave --instance out for one more worker; "
        "if it was killed, this one joins as soon as its lease is over."
    )


def next_name(group: str, taken: Iterable[str]) -> str:
    """Return `{group}-{n}` with the number after the highest one in use."""
    numbers = [int(found[1]) for name in taken if (found := re.fullmatch(rf"{re.escape(group)}-(\d+)", name))]
    return f"{group}-{max(numbers, default=0) + 1}"


def _kept(up: UpFolder | None) -> Path:
    """Return where workers of this machine keep their state: in the folder of their `up`, if it is writable."""
    return up.workers if up and os.access(up.workers, os.W_OK) else default_folder().with_name("batonpass-workers")
