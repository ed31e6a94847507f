"""`batonpass db`: upgrade the schema, look at it, or tell the coordinators that the database lost commits."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated, Any

import typer

from batonpass.cli.database import asked, shown, upgraded
from batonpass.cli.desk import console, failing_well
from batonpass.cli.exits import Exit, Failure
from batonpass.postgres.standing import Standing, standing_of

app = typer.Typer(add_completion=False, help="Upgrade the database, look at it, or tell that it lost commits.")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Database = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="The database (better: BATONPASS_DATABASE_URL)."),
]


@app.callback(no_args_is_help=True)
def db() -> None:
    """Upgrade the database, look at it, or tell that it lost commits."""


@app.command("upgrade")
def upgrade_schema(database: Database = None, as_json: AsJson = False) -> None:
    """Bring the schema to what this version needs. Coordinators may go on running meanwhile."""
    with failing_well(as_json=as_json):
        before, after = upgraded(_url(database))
        changed = before.present != after.present
        way = f"Upgraded from {before.present or 'nothing'} to {after.present}." if changed else after.sentence()
        _tell(way, _body(after) | {"before": before.present}, as_json=as_json)


@app.command()
def status(database: Database = None, as_json: AsJson = False) -> None:
    """Say how the schema stands; exit code 0 if this version can work on it, 1 if not."""
    with failing_well(as_json=as_json):
        url = _url(database)
        found = asked(standing_of(url), url)
        _tell(f"{shown(url)}: {found.sentence()}", _body(found), as_json=as_json)
        if not found.is_fit:
            raise typer.Exit(Exit.REFUSED)


def _url(given: str | None) -> str:
    found = given or os.environ.get("BATONPASS_DATABASE_URL", "").strip()
    if not found:
        raise Failure(
            Exit.BAD_INPUT,
            "BATONPASS_DATABASE_URL is not set.",
            todo="Set it to postgresql://user:password@host:port/database.",
        )
    return found


def _body(standing: Standing) -> dict[str, Any]:
    return asdict(standing) | {"fit": standing.fit.value, "is_fit": standing.is_fit}


def _tell(sentence: str, body: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(body))
    else:
        console().print(sentence, markup=False)
