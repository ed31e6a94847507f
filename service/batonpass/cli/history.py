"""Looking back: `generations`, the versions of a group's target assignment, and `commands`, the audit trail."""

from typing import Annotated, Any

import typer

from batonpass.cli.client_context import ClientContext, GroupName, client_command
from batonpass.cli.explain import names_of
from batonpass.cli.spans import ago
from batonpass.client import path

Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many, from the newest.")]


@client_command
async def generations(
    context: ClientContext,
    group: GroupName,
    number: Annotated[int | None, typer.Argument(metavar="[NUMBER]", help="Show this one whole.")] = None,
    limit: Limit = 20,
) -> None:
    """List the generations of a group, newest first, or show one: why it was made, and what it moved."""
    if number is None:
        body = await context.get(path("groups", group, "generations"), limit=limit)
        columns = ("generation", "made", "because", "members", "tasks", "moves", "at least", "imbalance", "decided in")
        context.table(*columns, rows=[_row(one) for one in body["generations"]])
        _more(context, body)
        return
    body = await context.get(path("groups", group, "generations", str(number)))
    context.say(
        f"Generation {number} of {group}, {ago(body['at'])}, because of {', '.join(body['triggers']) or 'nothing'}."
    )
    context.say(
        f"{body['moves']} moves to come, with those of earlier generations; at least {body['lower_bound']}; load per capacity differs by {_imbalance(body)}."
    )
    names = await names_of(context, group)
    for reason in body["reasons"]:
        if reason["task"] is None and reason["detail"]:
            context.say(f"{names.within(reason['detail'])}.")
    rows = [
        [one["task"], names(one["from"]), names(one["to"]), list(map(names, one["standbys"])), one["why"]]
        for one in body["diff"]
    ]
    context.table("task", "from", "to", "standbys", "why", rows=rows)


@client_command
async def commands(
    context: ClientContext,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Left out: of all groups.")] = None,
    limit: Limit = 20,
) -> None:
    """Show the audit trail, newest first: who asked for what, when, and why."""
    place = path("commands") if group is None else path("groups", group, "commands")
    body = await context.get(place, limit=limit)
    of_all = [] if group else ["group"]
    fields = (*of_all, "command", "subject", "who", "reason", "cause")
    rows = [[ago(one["at"]), *(one[name] for name in fields)] for one in body["commands"]]
    context.table("when", *of_all, "command", "of", "who", "why", "request", rows=rows)
    _more(context, body)


def _more(context: ClientContext, body: dict[str, Any]) -> None:
    """Say that a list has earlier entries, if it has."""
    if body.get("next"):
        context.say("These are the newest; --limit shows more.")


def _row(one: dict[str, Any]) -> list[Any]:
    moved = [one["moves"], one["lower_bound"], _imbalance(one), f"{one['decide_ms']:.1f} ms"]
    return [one["generation"], ago(one["at"]), one["triggers"], one["members"], one["tasks"], *moved]


def _imbalance(one: dict[str, Any]) -> str:
    return f"{one['imbalance']['before']:g} before, {one['imbalance']['after']:g} after"
