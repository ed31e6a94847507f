"""`batonpass groups`: list, show, declare and delete groups."""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from batonpass.cli.client_context import ClientContext, GroupName, Why, client_command, listing
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.spans import ago
from batonpass.client import instant, path
from batonpass.dashboard.words import LEVEL_NAMES, count, counted
from batonpass.group_words import (
    LEVELS,
    TOLD_MAX,
    also,
    health_of,
    is_other_than,
    only_named,
    readable_name,
    worst_first,
)

AT_REST = LEVELS[-2]
app = typer.Typer(add_completion=False, help="List, show, declare and delete groups; without a subcommand, list them.")


@app.command("list")
@client_command
async def list_groups(
    context: ClientContext,
    level: Annotated[
        str, typer.Option("--level", metavar="LEVEL", help=f"Only groups of this level: {', '.join(LEVELS)}.")
    ] = "",
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Only groups with this in their name.")] = "",
) -> None:
    """List the groups and how each is, the worst first."""
    if level not in ("", *LEVELS):
        raise Failure(Exit.BAD_INPUT, f"--level: {level!r} is none of {', '.join(LEVELS)}.")
    groups = await context.client.pages("/groups", "groups")
    found = worst_first(groups, level, name)
    if context.as_json:
        context.answer({"groups": found})
    elif not groups:
        context.say("There are no groups. `batonpass groups declare GROUP FILE` makes one.")
    else:
        named = () if level else only_named(found)
        for one in found:
            if one["health"]["level"] not in named:
                health, todo = one["health"], one["health"]["todo"]
                said = [f"{one['group']}: {health['level']}, {sizes(one)}.", *headline(health)]
                said += [f"Do: {todo}"] if todo and health["level"] != AT_REST else []
                context.say(" ".join(filter(None, [*said, also(health)])))
        for code in named:
            if calm := [one["group"] for one in found if one["health"]["level"] == code]:
                context.say(f"{LEVEL_NAMES[code]}: {', '.join(calm)}.")
        if len(found) > TOLD_MAX:
            # At the end, where the prompt is: the worst have gone out of sight at the top.
            levels = counted(LEVEL_NAMES, (one["health"]["level"] for one in found))
            counts = ", ".join(f"{amount:,} {called.lower()}" for _, called, amount in levels)
            context.say(f"{counts}. The worst are at the top; `--level {levels[0][0]}` shows them alone.")


listing(app, list_groups)


@app.command()
@client_command
async def show(context: ClientContext, group: GroupName) -> None:
    """Show a group: where it stands, what it waits for, and how it is declared."""
    body = await context.get(path("groups", group))
    for line in standing(body):
        context.say(line)
    fields = ("id", "partitions", "stateful", "weight", "source_topics", "changelog_topics", "task_weights")
    rows = [[part.get(name) for name in fields] for part in body["topology"]["subtopologies"]]
    names = ("subtopology", "partitions", "stateful", "weight", "sources", "changelogs", "weights of tasks")
    context.table(*names, rows=rows)
    context.table("setting", "value", rows=sorted(body["config"].items()))


@app.command()
@client_command
async def declare(
    context: ClientContext,
    group: GroupName,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON or TOML: topology and config; - is standard input (JSON).")
    ],
    reason: Why = "",
    create_only: Annotated[bool, typer.Option("--create-only", help="Refuse to change a group that exists.")] = False,
) -> None:
    """Create a group from a file, or change it to what the file says; what the file leaves out stays."""
    body = read_declaration(file)
    query = {"reason": reason}
    if create_only:
        reply = await context.client.call("PUT", path("groups", group), query=query, body=body)
    else:
        reply = await context.client.declare(group, body, query=query)
    created = reply.status == 201
    if context.answered(reply.body):
        return
    context.say(f"Group {group} {'created' if created else 'changed'}: {reply.body['tasks']} tasks.")
    for warning in reply.body.get("warnings", []):
        context.say(f"Warning: {warning}")


@app.command()
@client_command
async def delete(
    context: ClientContext,
    group: GroupName,
    force: Annotated[bool, typer.Option("--force", help="Delete it with its members; their tasks stop.")] = False,
    reason: Why = "",
) -> None:
    """Delete a group without members, or with them when forced."""
    await context.client.call("DELETE", path("groups", group), query={"force": force or None, "reason": reason})
    context.done(f"Group {group} is deleted; its epochs and fencing tokens are kept.", group=group)


@app.command()
@client_command
async def snapshot(context: ClientContext, group: GroupName) -> None:
    """Print the group as a snapshot, for `batonpass plan --snapshot`."""
    context.answer(await context.client.get(path("groups", group, "snapshot")))


def read_declaration(name: str) -> dict[str, Any]:
    """Return what a file declares.

    Raises:
        Failure: when it cannot be read, or is neither JSON nor TOML.
    """
    try:
        text = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        if name.endswith(".toml"):
            body = tomllib.loads(text.decode("utf-8-sig"))
        else:  # In any encoding that JSON may have, such as what PowerShell writes.
            body = json.loads(text, object_pairs_hook=_each_key_once)
    except OSError as error:
        raise Failure(Exit.BAD_INPUT, f"{name}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        kind = "TOML" if name.endswith(".toml") else "JSON"
        raise Failure(Exit.BAD_INPUT, f"{name} is not {kind}: {error}.") from None
    if not isinstance(body, dict):
        raise Failure(Exit.BAD_INPUT, f"{name} holds no object; expected `topology` and `config`.")
    return body


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    ((key, times),) = Counter(key for key, _ in pairs).most_common(1) or [("", 0)]
    if times > 1:
        raise ValueError(f"{key!r} stands twice in one object")
    return dict(pairs)


def headline(health: Mapping[str, Any], name: Callable[[str], str] = str) -> Iterator[str]:
    """Yield how a group is, in sentences: what is most wrong, since when, until when, and why."""
    yield name(health["sentence"])
    now = instant(health["at"])
    if health["since"]:
        yield f"Since {ago(health['since'], now)}."
    if health["until"]:
        over = ago(health["until"], now)
        yield f"Over {over if over.startswith('in ') else 'now'} at the latest{': ' if health['ends'] else ''}{health['ends']}."
    elif health["ends"]:
        yield f"Over {health['ends']}."
    if health["cause"]:
        yield f"Cause: {origin(health['cause'], now, name)}."


def origin(one: Mapping[str, Any], now: datetime | None, name: Callable[[str], str] = str) -> str:
    """Return where something went wrong: the task, the member, when, and what was said of it."""
    who = readable_name(one["instance_id"]) or (name(one["member"]) if one["member"] else "")
    where = " on ".join(part for part in (one["task"], who) if part)
    when = f" {ago(one['at'], now)}" if one["at"] else ""
    return f"{where}{when}: {one['detail']}".lstrip(" :")


def remedies(health: Mapping[str, Any], name: Callable[[str], str] = str) -> Iterator[str]:
    """Yield what helps; what else is wrong, and what helps there; the last incident, and what all this rests on."""
    yield from _help(health, name, {"todo": "", "remedies": ()})
    for one in health["others"]:
        yield f"Also, {one['level']}: {' '.join(headline(one, name))}"
        yield from _help(one, name, health)
    if health["incident"] and is_other_than(health["incident"], health["cause"]):
        yield f"Last incident: {origin(health['incident'], instant(health['at']), name)}."
    if health["evidence"]:
        yield f"Known from: {health['evidence']}."


def _help(one: Mapping[str, Any], name: Callable[[str], str], said: Mapping[str, Any]) -> Iterator[str]:
    """Yield what helps, but for what was said already."""
    if one["todo"] and one["todo"] not in said["todo"]:
        yield f"Do: {name(one['todo'])}"
    for remedy in one["remedies"]:
        if remedy not in said["remedies"]:
            yield f"Command: {remedy['command']}"
    if one["more_remedies"]:
        yield f"... and {count(one['more_remedies'], 'more command')} of this kind."
    if one["runbook"]:
        yield f"Runbook: docs/runbooks/{one['runbook']}.md"


def sizes(body: Mapping[str, Any]) -> str:
    """Return how many members and tasks a group has."""
    return f"{count(body['members'], 'member')}, {count(body['tasks'], 'task')}"


def standing(body: dict[str, Any]) -> list[str]:
    """Return how a group is, one sentence a line."""
    health = health_of(body)
    lines = [
        f"Group {body['group']}: {health['level']}, generation {body['generation']}.",
        f"{sizes(body)}.",
        " ".join(headline(health)),
        *remedies(health),
    ]
    now, application = instant(health["at"]), body.get("application")
    if application:
        heard_at = application["last_heard_at"]
        lines.append(
            f"Its application was last heard {ago(heard_at, now) if heard_at else 'before the coordinator started'}."
        )
    for one in body.get("kept_out", ()):
        until = f"; it ends {ago(one['until'], now)}" if one["until"] else "; `batonpass undrain` ends it"
        lines.append(
            f"Instance {one.get('name') or one['instance_id']} is kept out since {ago(one['since'], now)}{until}."
        )
    held = body["held_back_by_reason"]
    if held:
        lines.append("Held back: " + ", ".join(f"{count} by {reason}" for reason, count in sorted(held.items())) + ".")
    if body.get("next_probe_at"):
        lines.append(f"Next look {ago(body['next_probe_at'], now)}.")
    return lines + [f"Warning: {warning}" for warning in body.get("warnings", [])]
