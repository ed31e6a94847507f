"""`batonpass db`: upgrade the database's schema, show its state, or tell coordinators that it lost commits."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.cli.client_context import failing_well, tell
from batonpass.cli.database import require_fit, run_on_database, upgrade_schema
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.tables import table
from batonpass.core.state.durations import duration
from batonpass.database_url import DatabaseUrl
from batonpass.postgres.connect import connect
from batonpass.postgres.leases import Leases, LiveCoordinator
from batonpass.postgres.recovery import recover
from batonpass.postgres.schema import Standing, standing_of
from batonpass.terminal import screen
from batonpass.variables import variable

GROUPS_SHOWN = 50
T = TypeVar("T")

app = typer.Typer(add_completion=False, help="Upgrade the database, show its state, or report that it lost commits.")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Database = Annotated[
    str | None,
    typer.Option("--database-url", "--database", metavar="URL", help="The database; better: BATONPASS_DATABASE_URL."),
]


@app.callback(no_args_is_help=True)
def db() -> None:
    """Upgrade the database, show its state, or report that it lost commits."""


@app.command("upgrade")
def upgrade(database: Database = None, as_json: AsJson = False) -> None:
    """Upgrade the schema to what this version needs. Coordinators may keep running."""
    with failing_well(as_json=as_json):
        before, after = upgrade_schema(_url(database))
        changed = before.present != after.present
        way = f"Upgraded from {before.present or 'nothing'} to {after.present}." if changed else after.sentence()
        tell(way, _body(after) | {"before": before.present}, as_json=as_json)


@app.command()
def status(database: Database = None, as_json: AsJson = False) -> None:
    """Show the state of the schema and the live coordinators; exit code 1 if this version cannot use the schema."""
    with failing_well(as_json=as_json):
        url = _url(database)
        found = run_on_database(standing_of(url), url)
        living, owners = run_on_database(_asked(url, _fleet), url) if found.is_fit else ([], {})
        coordinators = [one._asdict() | {"reads": dict(one.reads)} for one in living]
        body = _body(found) | {"coordinators": coordinators, "owners": owners}
        tell(f"{DatabaseUrl.read(url).shown}: {found.sentence()}", body, as_json=as_json)
        if not as_json:
            _show(living, owners)
        if not found.is_fit:
            raise typer.Exit(Exit.REFUSED)


@app.command("recovered")
def commits_lost(database: Database = None, as_json: AsJson = False) -> None:
    """Report that the database lost commits: it was restored, or failed over to a replica that was behind.

    Epochs, fencing tokens and positions of events are raised above all that may have been given out. Tasks that members
    run are adopted, and nothing is granted for one session timeout. Coordinators may keep running. Running this again
    does no harm.
    """
    with failing_well(as_json=as_json):
        url = _url(database)
        require_fit(url)
        done = run_on_database(_asked(url, recover), url)
        tell(
            f"{done.groups} groups are marked: commits were lost; {done.coordinators} coordinators lost their leases. "
            f"`batonpass watch GROUP` shows what their members report.",
            done._asdict(),
            as_json=as_json,
        )


def _show(living: Sequence[LiveCoordinator], owners: Mapping[str, str | None]) -> None:
    """Print the live coordinators, and the owner of each group."""
    count = Counter(owners.values())
    if living:
        rows = [[one.id, one.url, one.code, duration(max(one.left_ms, 0)), str(count[one.id])] for one in living]
        screen().print(table("coordinator", "url", "code", "lease lasts", "groups", rows=rows))
    urls = {one.id: one.url or one.id for one in living}
    if owners:
        shown_of = [[group, urls.get(owner or "", "no live coordinator")] for group, owner in owners.items()]
        screen().print(table("group", "owner", rows=shown_of[:GROUPS_SHOWN]))
        if len(shown_of) > GROUPS_SHOWN:
            screen().print(f"... and {len(shown_of) - GROUPS_SHOWN} more groups; --json shows all.")


async def _fleet(engine: AsyncEngine) -> tuple[Sequence[LiveCoordinator], Mapping[str, str | None]]:
    leases = Leases(engine, lease_ms=0)
    return await leases.coordinators(), await leases.owners()


async def _asked(url: str, work: Callable[[AsyncEngine], Awaitable[T]]) -> T:
    engine = connect(url, connections_max=1)
    try:
        return await work(engine)
    finally:
        await engine.dispose()


def _url(given: str | None) -> str:
    found = (given or "").strip() or variable("BATONPASS_DATABASE_URL")
    if not found:
        raise Failure(
            Exit.BAD_INPUT,
            "BATONPASS_DATABASE_URL is not set.",
            todo="Set it to postgresql://user:password@host:port/database.",
        )
    return found


def _body(standing: Standing) -> dict[str, Any]:
    return asdict(standing) | {"fit": standing.fit.value, "is_fit": standing.is_fit}
