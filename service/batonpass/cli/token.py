"""`batonpass token`: create, list and revoke the tokens of callers."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from batonpass.cli.client_context import ClientContext, Why, client_command, listing
from batonpass.cli.spans import ago, span_ms
from batonpass.client import path
from batonpass.terminal import say

app = typer.Typer(
    add_completion=False, help="Create, list and revoke tokens (for admins). Without a subcommand, list them."
)
COLUMNS = ("id", "name", "role", "group", "secret", "status", "created", "expires")


class Role(StrEnum):
    """What a token allows its bearer to do."""

    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@app.command("list")
@client_command
async def list_tokens(context: ClientContext) -> None:
    """List the tokens, including revoked and expired ones. Only `create` shows the secret of a token."""
    body = await context.get("/tokens")
    if not body["tokens"]:
        context.say("There are no tokens except the one that the coordinator was started with.")
    else:
        context.table(*COLUMNS, rows=[_row(one) for one in body["tokens"]])


listing(app, list_tokens)


@app.command()
@client_command
async def create(
    context: ClientContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its user: commands are recorded under this name.")],
    role: Annotated[Role, typer.Option("--role", help="What it allows; admin allows everything.")],
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Bind it to this group; required for a worker.")
    ] = None,
    lasting: Annotated[
        str | None,
        typer.Option("--for", metavar="SPAN", help="How long it is valid, as in 90d. Default: until revoked."),
    ] = None,
    reason: Why = "",
) -> None:
    """Create a token, and print its secret, which is not stored and cannot be shown again."""
    wish: dict[str, Any] = {"name": name, "role": role.value}
    if group is not None:
        wish["group"] = group
    if lasting is not None:
        wish["expires_in_ms"] = span_ms(lasting)
    body = (await context.client.call("POST", "/tokens", query={"reason": reason}, body=wish)).body
    if context.answered(body):
        return
    bound = "" if body["group"] is None else f" for group {body['group']}"
    context.say(f"Token {body['id']}: {name}, {body['role']}{bound}. Keep the secret; it is not shown again.")
    say(f"token: {body['secret']}")


@app.command()
@client_command
async def revoke(
    context: ClientContext,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id; `batonpass token list` shows it.")],
    reason: Why = "",
) -> None:
    """Revoke a token; coordinators may still accept it for a few seconds."""
    await context.client.call("DELETE", path("tokens", token_id), query={"reason": reason})
    context.done(f"Token {token_id} is revoked.", id=token_id)


def _row(one: dict[str, Any]) -> list[Any]:
    secret = f"...{one['last_four']}"
    times = [ago(one["created_at"]), ago(one["expires_at"])]
    return [one["id"], one["name"], one["role"], one["group"], secret, one["status"], *times]
