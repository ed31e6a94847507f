"""`batonpass groups`: list, show, declare and delete groups."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from batonpass.cli.client_context import ClientContext, GroupName, Why, client_command, listing
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.spans import ago
from batonpass.client import path
from batonpass.core.state.durations import duration

app = typer.Typer(add_completion=False, help="List, show, declare and delete groups; without a subcommand, list them.")
COLUMNS = ("group", "state", "members", "tasks", "warmups", "moves to come", "generation")


@app.command("list")
@client_command
async def list_groups(context: ClientContext) -> None:
    """List the groups, and where each stands."""
    found = await context.client.pages("/groups", "groups")
    if context.as_json:
        context.answer({"groups": found})
    elif not found:
        context.say("There are no groups. `batonpass groups declare GROUP FILE` makes one.")
    else:
        names = ("members", "tasks", "warmups", "moves_pending", "generation")
        rows = [[one["group"], _state(one), *(one.get(name) for name in names)] for one in found]
        context.table(*COLUMNS, rows=rows)


listing(app, list_groups)


@app.command()
@client_command
async def show(context: ClientContext, group: GroupName) -> None:
    """Show a group: where it stands, what it waits for, and how it is declared."""
    body = await context.client.get(path("groups", group))
    if context.answered(body):
        return
    for line in standing(body):
        context.say(line)
    names = ("subtopology", "partitions", "stateful", "weight", "sources", "changelogs", "weights of tasks")
    context.table(*names, rows=_parts(body["topology"]))
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
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        body = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    except OSError as error:
        raise Failure(Exit.BAD_INPUT, f"{name}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        kind = "TOML" if name.endswith(".toml") else "JSON"
        raise Failure(Exit.BAD_INPUT, f"{name} is not {kind}: {error}.") from None
    if not isinstance(body, dict):
        raise Failure(Exit.BAD_INPUT, f"{name} holds no object; expected `topology` and `config`.")
    return body


def _state(listed: dict[str, Any]) -> str:
    """Return the state of a group, and whether its Kafka Streams application is refused, or was not heard lately."""
    application = listed.get("application") or {}
    refused = application.get("refused")
    words = [] if not refused else ["another application is refused" if refused.get("is_another") else "refused"]
    words += ["silent"] if application.get("silent") else []
    return ", ".join([listed["state"], *words])


def standing(body: dict[str, Any]) -> list[str]:
    """Return the state of a group, one sentence a line."""
    detail = f" ({body['detail']})" if body.get("detail") else ""
    lines = [
        f"Group {body['group']}: {body['state']}{detail}, generation {body['generation']}.",
        f"{body['members']} members, {body['tasks']} tasks.",
    ]
    application = body.get("application")
    if application:
        heard_at = application["last_heard_at"]
        lines.append(
            f"Its application was last heard {ago(heard_at) if heard_at else 'before the coordinator started'}."
        )
    if body["warmups"] or body["moves_pending"]:
        soon = "" if body.get("eta_ms") is None else f", caught up in about {duration(body['eta_ms'])}"
        lines.append(f"{body['moves_pending']} moves to come, {body['warmups']} warmups running{soon}.")
    pause = body.get("pause")
    if pause:
        until = f"; it ends {ago(pause['expires_at'])}" if pause.get("expires_at") else ""
        why = f": {pause['reason']}" if pause.get("reason") else ""
        lines.append(f"Paused ({pause['scope']}){why}{until}.")
    if body.get("storm_since"):
        lines.append(
            f"Storm since {ago(body['storm_since'])}: balance moves and cold takeovers are held until "
            f"{body.get('storm_ends_at') or 'members return'}, if nobody else is lost; `batonpass resume` ends it."
        )
    for one in body.get("kept_out", ()):
        until = f"; it ends {ago(one['until'])}" if one["until"] else "; `batonpass undrain` ends it"
        lines.append(f"Instance {one['instance_id']} is kept out since {ago(one['since'])}{until}.")
    held = body["held_back_by_reason"]
    if held:
        lines.append("Held back: " + ", ".join(f"{count} by {reason}" for reason, count in sorted(held.items())) + ".")
    if body.get("next_probe_at"):
        lines.append(f"Next look {ago(body['next_probe_at'])}.")
    return lines + [f"Warning: {warning}" for warning in body.get("warnings", [])]


def _parts(topology: dict[str, Any]) -> list[list[Any]]:
    names = ("id", "partitions", "stateful", "weight", "source_topics", "changelog_topics", "task_weights")
    return [[part.get(name) for name in names] for part in topology["subtopologies"]]
