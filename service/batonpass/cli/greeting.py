"""What `batonpass up` says when everything runs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from batonpass.cli.folder import UpFolder
from batonpass.terminal import say, screen


class Around(NamedTuple):
    """Where everything is. ``group`` is the one that the workers are in, ``words`` what they are.

    ``dashboard`` is where its pages are, None where there is none; ``audits`` where reports of the nightly audit go.
    """

    url: str
    token: str
    folder: UpFolder
    group: str
    words: str
    dashboard: str | None = None
    audits: Path | None = None


def greeting(around: Around, workers: list[tuple[str, int]]) -> None:
    """Say where everything is, and what to try next."""
    url = around.url
    screen().say(Text.assemble(("Batonpass", "bold"), f" listens on {url}"))
    # A line of its own that begins so, for whoever reads it by program.
    say(f"token: {around.token}", "")
    if around.dashboard:
        say(f"  Dashboard   {around.dashboard} (sign in with the token above)")
    say(f"  API         {url}/docs")
    say(f"  Readiness   {url}/readyz")
    say(f"  Metrics     {url}/metrics")
    say(f"  Data        {around.folder.path} (the database, the token, the workers' state and logs)")
    if around.audits is not None:
        say(f"  Audits      {around.audits} (every day is audited when it is over, in UTC)")
    if workers:
        listed = ", ".join(f"{name} (process {pid})" for name, pid in workers)
        say(f"  Group       {around.group}: {around.words}")
        say(f"  Workers     {listed}")
    say("", "Try next, in another terminal:", "")
    tries = _tries(program(), around.group, workers)
    width = max(len(command) for command, _ in tries)
    for command, words in tries:
        say(f"  {command:<{width}}   {words}")
    say("", "Ctrl-C stops all of it; the next start finds everything again.")


def program() -> str:
    """Return how the reader calls this program, so that lines can be pasted as they stand."""
    called = Path(sys.argv[0])
    if called.name != "batonpass":
        return f"{shlex.quote(Path(sys.executable).name)} -m batonpass"
    found = shutil.which("batonpass")
    if found and called.exists() and called.samefile(found):
        return "batonpass"
    shown = os.path.relpath(called)
    return shlex.quote(str(called) if shown.startswith("..") else shown)


def _tries(own: str, group: str, workers: list[tuple[str, int]]) -> list[tuple[str, str]]:
    if not workers:
        return [
            (f"{own} groups declare orders FILE", "declare a group; docs/first-handover.md goes on from there"),
            (f"{own} groups", "list the groups"),
        ]
    _, last = workers[-1]
    first, _ = workers[0]
    return [
        (f"{own} watch {group}", "watch it live"),
        (f"{own} worker", "add a worker: it warms up before it gets anything to run"),
        (f"kill -9 {last}", "kill one: its warm standbys take over"),
        (f"{own} drain {group} {first} --wait", "drain one: it hands over, and goes on until it has"),
        (f"{own} explain {group}", "ask why everything is where it is"),
    ]
