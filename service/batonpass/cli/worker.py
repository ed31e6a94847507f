"""`batonpass worker`: one more worker of the job that `up` runs, in the foreground; or a simulated one of any group."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from batonpass.cli.client_context import Folder, Token, Url, failing_well, find, trusted
from batonpass.cli.demo_job import DEMO, SIMULATED, Pace, arguments, real_worker
from batonpass.cli.folder import default_folder, running_here
from batonpass.cli.worker_processes import Program
from batonpass.client import CoordinatorClient, path
from batonpass.terminal import say


def worker(
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="The group to join; left out: that of the running `up`.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", metavar="NAME", help="Its instance id; left out: the next free one.")
    ] = None,
    size: Annotated[
        int, typer.Option(min=0, help="Simulated: records of state that a task has at first.")
    ] = Pace().size,
    rate: Annotated[int, typer.Option(min=1, help="Simulated: records a second that it restores.")] = Pace().rate,
    growth: Annotated[
        int, typer.Option(min=0, help="Simulated: records a second that a task's changelog grows by.")
    ] = Pace().growth,
    url: Url = None,
    token: Token = None,
    folder: Folder = None,
) -> None:
    """Run one more worker until Ctrl-C: it joins, restores what it is told to, and says so on every change.

    In the group of the job that `up` runs on Kafka it is a real one, elsewhere it only pretends to have state. What it
    keeps on disk stays there, so that it resumes when it is started again under the same name.
    """
    with failing_well(as_json=False):
        at, secret = find(url, token, folder)
        job = _job_of(at)
        own = DEMO if job is None else str(json.loads(job)["group"])
        group = group or own
        members = asyncio.run(_members(at, secret, group))
        name = instance or next_name(group, (str(one["instance_id"]) for one in members))
        place = _kept(at) / name
        place.mkdir(parents=True, exist_ok=True)
        shown = _own_token(at) if group == own else None
        if shown is None and secret:
            shown = _hand_over(place / "token", secret)
        if job is not None and group == own and shown is not None:
            program = real_worker(job, name, url=at, folder=place, token_file=shown)
        else:
            given = arguments(url=at, group=group, instance=name, folder=place, pace=Pace(size, rate, growth))
            given += [] if shown is None else ["--token-file", str(shown)]
            program = Program(SIMULATED, [*given, "--json"])
        say(f"Worker {name} joins group {group}; its state is in {place}. Ctrl-C stops it.")
        if advice := who_has(name, members):
            say(advice)
        os.execv(sys.executable, [sys.executable, "-m", *program.flat()])  # noqa: S606 - this very program


async def _members(url: str, token: str | None, group: str) -> list[Any]:
    async with CoordinatorClient(url, token, trusted=trusted()) as client:
        return await client.pages(path("groups", group, "members"), "members")


def who_has(name: str, members: Iterable[Mapping[str, Any]]) -> str | None:
    """Return what to do if an instance id belongs to a member that is not away; None if it is free."""
    if not any(one["instance_id"] == name and one["state"] != "away" for one in members):
        return None
    return (
        f"{name} is a member already. If it runs, stop this one, and leave --instance out for one more worker; "
        "if it was killed, this one joins as soon as its lease is over."
    )


def next_name(group: str, taken: Iterable[str]) -> str:
    """Return `{group}-{n}` behind the highest number that is taken."""
    numbers = [int(found[1]) for name in taken if (found := re.fullmatch(rf"{re.escape(group)}-(\d+)", name))]
    return f"{group}-{max(numbers, default=0) + 1}"


def _job_of(url: str) -> str | None:
    """Return the job that an `up` of this machine runs on Kafka; None where there is no such thing."""
    files = [one.folder / "job.json" for one in running_here() if one.url == url]
    return next((file.read_text() for file in files if os.access(file, os.R_OK)), None)


def _own_token(url: str) -> Path | None:
    """Return the file with the token that an `up` of this machine made for the workers of its own group."""
    files = [one.folder / "workers-token" for one in running_here() if one.url == url]
    return next((file for file in files if os.access(file, os.R_OK)), None)


def _hand_over(file: Path, secret: str) -> Path:
    """Write the token where the worker reads it, and nobody else can."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(secret + "\n")
    return file


def _kept(url: str) -> Path:
    """Return where workers of this machine keep their state: with the `up` that they speak to, where it is ours."""
    for running in running_here():
        if running.url == url and os.access(running.folder / "workers", os.W_OK):
            return running.folder / "workers"
    return default_folder().with_name("batonpass-workers")
