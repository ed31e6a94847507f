"""``batonpass plan``: the dry run. With ``--snapshot`` it needs no server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from batonpass.codec.snapshots import read_snapshot, write_plan
from batonpass.core.errors import ProtocolError
from batonpass.core.plan import Plan, plan_snapshot
from batonpass.core.policy import Policy

BAD_FILE = 2
"""The exit code when the file cannot be read or understood."""

_Line = tuple[int, bytes]


def plan(
    snapshot: Annotated[
        str, typer.Option("--snapshot", metavar="FILE", help="A snapshot, or JSON lines of them; - is standard input.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON answer a line instead of tables.")] = False,
) -> None:
    """Show what would move, without moving it."""
    try:
        for number, text in _snapshots(snapshot):
            _answer(number, text, as_json=as_json)
    except OSError as error:
        _refuse(f"{snapshot}: {error.strerror or error}; give a file of snapshots, or - for standard input")


def _snapshots(name: str) -> Iterator[_Line]:
    """Yield each snapshot with the line that it begins on: one a line, or one that fills the whole file."""
    if name == "-":
        yield from _split(iter(sys.stdin.buffer))
    else:
        with Path(name).open("rb") as lines:
            yield from _split(iter(lines))


def _split(lines: Iterator[bytes]) -> Iterator[_Line]:
    found = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if not found and not _is_whole(line):
            yield number, line + b"".join(lines)
            return
        found = True
        yield number, line
    if not found:
        _refuse("line 1, body: there is no snapshot; expected a JSON object a line")


def _is_whole(line: bytes) -> bool:
    """Say whether the line holds a JSON value of its own; what does not may be the first line of a longer one."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _answer(number: int, text: bytes, *, as_json: bool) -> None:
    try:
        read = read_snapshot(text)
    except ProtocolError as error:
        faults = error.errors or (("body", error.detail),)
        _refuse("\n".join(f"line {number}, {path}: {reason}" for path, reason in faults))
    begun = perf_counter()
    found = plan_snapshot(read, Policy())
    decide_ms = (perf_counter() - begun) * 1000
    if as_json:
        sys.stdout.write(json.dumps(write_plan(found, decide_ms=decide_ms), separators=(",", ":")) + "\n")
        sys.stdout.flush()
    else:
        _show(found, decide_ms)


def _refuse(message: str) -> NoReturn:
    sys.stderr.write(message + "\n")
    raise typer.Exit(BAD_FILE)


def _show(found: Plan, decide_ms: float) -> None:
    console = Console()
    table = Table("member", "now runs", "stands by", "warms up", "belongs there", title="After one step")
    for member, roles in found.assignment.items():
        cells = [", ".join(roles[role]) or "-" for role in ("active", "standby", "warmup")]
        table.add_row(member, *cells, ", ".join(found.target[member]["active"]) or "-")
    console.print(table)
    rest = "at rest" if found.at_rest else ("more to come" if found.probing_needed else "this step is the last")
    console.print(f"{found.moves} moves (lower bound {found.lower_bound}), {rest}, decided in {decide_ms:.1f} ms")
    for one in found.held_back:
        console.print(f"  {one.task} waits to go to {one.to or 'anybody'}: {one.reason.value}")
