"""What the operators' commands share: where the coordinator is, how they print, and how they fail.

A command is a function whose first parameter is a `Desk`; `at_desk` gives it the options that all of them have.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import Running, UpFolder, folder_named, running_here
from batonpass.cli.rest import OperatorClient, urls_in
from batonpass.cli.spans import span_ms
from batonpass.terminal import aside, say, screen, shown

DEFAULT_URL = "http://127.0.0.1:8420"

Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Where the coordinator is; several with commas (BATONPASS_URL)."),
]
Token = Annotated[
    str | None, typer.Option("--token", metavar="TOKEN", help="The token to show it (better: BATONPASS_TOKEN).")
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", parser=folder_named, help="The data folder of a running `up` (BATONPASS_DATA)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Patience = Annotated[
    str | None,
    typer.Option(
        "--patience", metavar="SPAN", help="How long to ask again while no coordinator can answer (BATONPASS_PATIENCE)."
    ),
]
COMMON: dict[str, Any] = {"url": Url, "token": Token, "folder": Folder, "patience": Patience, "as_json": AsJson}
DEFAULTS: dict[str, Any] = {"url": None, "token": None, "folder": None, "patience": None, "as_json": False}

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]
MemberName = Annotated[
    str,
    typer.Argument(
        metavar="MEMBER", help="The member: its id, the beginning of it, or its instance id.", show_default=False
    ),
]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The task, as in 0_3.", show_default=False)]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit trail.")]


class Desk:
    """A coordinator to speak to, and a way to print."""

    def __init__(self, coordinator: OperatorClient, *, as_json: bool) -> None:
        self.coordinator = coordinator
        self.as_json = as_json
        self.console = screen()

    def answer(self, body: Any) -> None:
        """Print a body as one line of JSON, for scripts."""
        say(json.dumps(body, separators=(",", ":")))

    def say(self, sentence: str) -> None:
        """Print a sentence for people, as it stands."""
        self.console.say(sentence)

    def aside(self, kind: str, sentence: str, **said: Any) -> None:
        """Tell on standard error what is no part of the answer, and no end of the command either."""
        aside(json.dumps({"type": kind, "detail": sentence, **said}) if self.as_json else f"batonpass: {sentence}")

    def done(self, sentence: str, **said: Any) -> None:
        """Tell that a command was carried out."""
        if self.as_json:
            self.answer({"done": True, **said})
        else:
            self.say(sentence)

    def table(self, *columns: str, rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
        """Print rows for people."""
        self.console.print(table(*columns, rows=rows, title=title))

    def member_of(self, group: str, name: str) -> str:
        """Return the id of the member that is meant: by its id, its instance id, or the beginning of its id.

        Raises:
            Failure: when nobody or more than one is meant.
        """
        members = list(self.coordinator.pages(f"/groups/{group}/members", "members"))
        ids = [str(one["member_id"]) for one in members]
        if name in ids:
            return name
        found = [str(one["member_id"]) for one in members if one.get("instance_id") == name]
        found = found or [one for one in ids if name and one.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise Failure(Exit.BAD_INPUT, f"{name} may mean any of {', '.join(sorted(found))}.", todo="Say more of it.")
        known = ", ".join(sorted(str(one.get("instance_id") or one["member_id"]) for one in members[:20]))
        raise Failure(
            Exit.NOT_THERE,
            f"group {group} has no member {name}.",
            todo=f"Its members are {known}." if known else "It has no members.",
            problem={"type": "unknown-member", "title": "unknown member", "status": 404, "action": "fix"},
        )


def at_desk(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a function of a desk into a command with the options that all of them have."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name in COMMON}
        with failing_well(as_json=common["as_json"]), reach(**common) as desk:
            command(desk, **given)

    signature = inspect.signature(command, eval_str=True)
    own = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, one in signature.parameters.items() if name != "desk"
    ]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=kind)
        for name, kind in COMMON.items()
    ]
    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*own, *shared)}
    return run


def listing(context: typer.Context, command: Callable[..., None], given: dict[str, Any]) -> None:
    """Run the command that stands for a group of commands where none of them is named.

    Raises:
        typer.BadParameter: for options that stand before the name of another one, which would not hear of them.
    """
    if context.invoked_subcommand is None:
        command(**given)
    elif given != DEFAULTS:
        message = f"write options after the command: {context.info_name} {context.invoked_subcommand} ..."
        raise typer.BadParameter(message)


@contextmanager
def failing_well(*, as_json: bool) -> Iterator[None]:
    """Turn failures within into their sentence and exit code."""
    try:
        yield
    except Failure as failure:
        failure.show(as_json=as_json)
        raise typer.Exit(failure.code) from None
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None


@contextmanager
def reach(
    *, url: str | None, token: str | None, folder: Path | None, patience: str | None = None, as_json: bool
) -> Iterator[Desk]:
    """Find the coordinator and lend a desk at it."""
    with OperatorClient(*find(url, token, folder), patience_s=patience_in_s(patience)) as coordinator:
        yield Desk(coordinator, as_json=as_json)


def patience_in_s(said: str | None) -> float | None:
    """Return how long to ask again, as given or from the environment; None where nobody says.

    Raises:
        Failure: when the environment names no span of time.
    """
    if said is not None:
        return span_ms(said) / 1_000
    try:
        found: float | None = _from_environment("BATONPASS_PATIENCE", lambda text: span_ms(text) / 1_000)
    except typer.BadParameter as error:
        raise Failure(Exit.BAD_INPUT, f"BATONPASS_PATIENCE: {error.message}.") from None
    return found


def find(url: str | None, token: str | None, folder: Path | None) -> tuple[str, str | None]:
    """Return where the coordinators are and the token for them: as given, from the environment, or of a running `up`.

    The token of a data folder is shown to the `up` that runs on that folder, and to nobody else.

    Raises:
        Failure: when several run and none is named, or the one that is named does not run.
    """
    folder = folder or _from_environment("BATONPASS_DATA", Path)
    url = url or _from_environment("BATONPASS_URL", str)
    token = token or _from_environment("BATONPASS_TOKEN", str)
    if url and token:
        return url, token
    here = _named(folder) if folder else running_here()
    if url:
        fitting = [one for one in here if [one.url] == urls_in(url)]
        return url, _token_of(fitting[0]) if fitting else None
    if len(here) > 1:
        listed = ", ".join(f"{one.url} ({one.folder})" for one in here)
        raise Failure(
            Exit.BAD_INPUT,
            f"several coordinators run on this machine: {listed}.",
            todo="Choose one with --data or --url.",
        )
    if not here:
        return DEFAULT_URL, token
    return here[0].url, token or _token_of(here[0])


def _from_environment(name: str, kind: Callable[[str], Any]) -> Any:
    text = os.environ.get(name, "").strip()
    return kind(text) if text else None


def _named(folder: Path) -> list[Running]:
    found = UpFolder(folder).running()
    if found is None or not found.url:
        raise Failure(
            Exit.UNREACHABLE,
            f"no `batonpass up` runs on {folder}.",
            todo=f"Start it with `batonpass up --data {folder}`.",
        )
    return [found]


def _token_of(running: Running) -> str | None:
    try:
        return (running.folder / "token").read_text().strip() or None
    except OSError:
        # Somebody else's: the coordinator will say that a token is missing.
        return None


def table(*columns: str, rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    """Return a table whose cells are shown as they stand; what is None is a dash, and numbers are on the right."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    filled = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numbers = [row[index] for row in filled if row[index] is not None]
        right = bool(numbers) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers)
        made.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in filled:
        made.add_row(*(shown(cell if isinstance(cell, Text) else _words(cell)) for cell in row))
    return made


def _words(cell: Any) -> str:
    match cell:
        case None | "" | [] | ():
            return "-"
        case bool():
            return "yes" if cell else "no"
        case list() | tuple():
            return ", ".join(map(str, cell))
        case Mapping():
            return ", ".join(f"{name}={value}" for name, value in cell.items()) or "-"
        case _:
            return str(cell)
