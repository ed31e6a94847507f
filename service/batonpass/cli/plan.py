"""``batonpass plan``: the dry run, against a live group, or with ``--snapshot`` without any server."""

import json
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NoReturn

import typer

from batonpass.cli.client_context import ClientContext, client_command
from batonpass.cli.exits import Exit
from batonpass.cli.explain import names_of
from batonpass.cli.tables import table
from batonpass.client import path
from batonpass.codec.snapshots import read_snapshot, write_plan
from batonpass.core.state.errors import ProtocolError
from batonpass.dashboard.words import Names
from batonpass.dry_run.plan import plan_snapshot
from batonpass.terminal import say, say_on_stderr, screen


@client_command
async def plan(
    context: ClientContext,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="The live group to plan for.")] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            metavar="FILE",
            help="A file with a snapshot, or with one snapshot per line; - is standard input.",
        ),
    ] = None,
    join: Annotated[
        list[str] | None,
        typer.Option(
            "--join", metavar="COUNT[xCAPACITY]", help="Assume that COUNT members join (capacity 1 by default)."
        ),
    ] = None,
    leave: Annotated[
        list[str] | None, typer.Option("--leave", metavar="MEMBER", help="Assume that this member leaves.")
    ] = None,
    drain: Annotated[
        list[str] | None, typer.Option("--drain", metavar="MEMBER", help="Assume that this member is drained.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Assume this setting in the group's config.")
    ] = None,
) -> None:
    """Show what would move, without moving it: in a live group, or with --snapshot in a group from a file."""
    if (group is None) == (snapshot is None):
        _refuse("give either the name of a group or a file with --snapshot")
    if snapshot is not None:
        if join or leave or drain or setting:
            _refuse("--join, --leave, --drain and --set need a live group; with --snapshot, change the file instead")
        try:
            for number, text in _snapshots(snapshot):
                _answer(number, text, as_json=context.as_json)
        except OSError as error:
            _refuse(f"{snapshot}: {error.strerror or error}; give a file of snapshots, or - for standard input")
        return
    change = {"join": [_newcomers(one) for one in join or []], "config": dict(_setting(one) for one in setting or [])}
    await _live(context, str(group), change, {"leave": leave or [], "drain": drain or []})


async def _live(context: ClientContext, group: str, change: dict[str, Any], members: Mapping[str, list[str]]) -> None:
    """Ask the coordinator, and print its answer."""
    for what, names in members.items():
        change[what] = [await context.member_of(group, name) for name in names]
    given = {name: wanted for name, wanted in change.items() if wanted}
    place = path("groups", group, "plan")
    found = (await context.client.call("POST", place, body=given, is_repeatable=True)).body
    if context.answered(found):
        return
    name_by_id = await names_of(context, group)
    _show(found, name_by_id)
    before, after = found["balance"]["before"], found["balance"]["after"]
    context.say(
        f"Load per capacity: {before['least']:g} to {before['most']:g} now, {after['least']:g} to {after['most']:g} then."
    )
    for one in found.get("for_load", []):
        of, to = name_by_id(one["from"]), name_by_id(one["to"])
        context.say(f"  for load, {one['task']} would move from {of} to {to}")


def _newcomers(text: str) -> dict[str, Any]:
    """Read `2` or `2x4`: two members, two members of capacity four."""
    count, _, capacity = text.partition("x")
    try:
        return {"count": int(count), "capacity": float(capacity or 1)}
    except ValueError:
        message = f"{text!r} is not a number of members; write for example 2, or 2x4 for two of capacity 4"
        raise typer.BadParameter(message, param_hint="--join") from None


def _setting(text: str) -> tuple[str, Any]:
    name, given, rest = text.partition("=")
    if not given:
        raise typer.BadParameter(f"{text!r} has no value; write NAME=VALUE", param_hint="--set")
    try:
        return name, json.loads(rest)
    except ValueError:
        # Text needs no quotes, for example 10% or read_committed.
        return name, rest


def _snapshots(name: str) -> Iterator[tuple[int, bytes]]:
    """Yield each snapshot with the line that it begins on: one a line, or one that fills the whole file."""
    found = False
    with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            line = line.removeprefix(BOM_UTF8)  # noqa: PLW2901 - PowerShell begins a file so
            if not line.strip():
                continue
            if not found and not _is_whole(line):
                yield number, line + lines.read()
                return
            found = True
            yield number, line
    if not found:
        _refuse("line 1, body: there is no snapshot; one JSON object per line is expected")


def _is_whole(line: bytes) -> bool:
    """Return whether the line is a whole JSON value; any other line may be the first of a longer value."""
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
    planned = plan_snapshot(read)
    found = write_plan(planned, decide_ms=(perf_counter() - begun) * 1000)
    if as_json:
        say(json.dumps(found, separators=(",", ":")))
    else:
        _show(found, Names())


def _refuse(message: str) -> NoReturn:
    say_on_stderr(*message.split("\n"))
    raise typer.Exit(Exit.BAD_INPUT)


def _show(found: Mapping[str, Any], names: Names) -> None:
    out = screen()
    rows = [
        [
            names(member),
            *(", ".join(roles[role]) for role in ("active", "standby", "warmup")),
            found["target"][member]["active"],
        ]
        for member, roles in found["assignment"].items()
    ]
    out.print(table("member", "runs", "stands by for", "warms up", "should run", rows=rows, title="After one step"))
    rest = (
        "at rest" if found["at_rest"] else ("more steps follow" if found["probing_needed"] else "this step is the last")
    )
    out.print(f"{found['moves']} moves (lower bound {found['lower_bound']}), {rest}, {found['decide_ms']:.1f} ms")
    if found.get("placement_failed"):
        out.say(f"  no new target was found, so this is the present one: {found['placement_failed']}")
    for one in found["held_back"]:
        to = names(one["to"]) if one["to"] else "any member"
        out.say(f"  {one['task']} waits to go to {to}: {one['reason']}")
