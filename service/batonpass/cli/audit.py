"""`batonpass audit`: check the log of a day with Spark."""

import os
from datetime import timedelta
from typing import Annotated

import typer

from batonpass.cli.client_context import failing_well, running_on
from batonpass.cli.exits import Exit, Failure, failing_as
from batonpass.cli.folder import UpFolder
from batonpass.cli.spans import day_named
from batonpass.database_url import DatabaseUrl
from batonpass.variables import variable

app = typer.Typer(add_completion=False)

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The variable that `spark-submit` sets for the program that it starts."""


@app.command()
def audit(
    *,
    day: Annotated[
        str | None, typer.Option(metavar="DATE", help="The UTC day, as in 2026-11-20, or today. Default: yesterday.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Audit only this group; store and export nothing.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="A folder for the report and Parquet files; or a URI of a store, as in s3://bucket/audits.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print findings and measures as one JSON object.")] = False,
    database: Annotated[
        str | None,
        typer.Option(
            "--database-url",
            metavar="URL",
            help="The database; better: BATONPASS_DATABASE_URL. Default: the database of a running `up`.",
        ),
    ] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if/--no-what-if", help="Simulate the day under other settings.")
    ] = True,
    what_if_seconds: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long other settings are tried, after the verdict.")
    ] = 120,
    replay: Annotated[
        bool, typer.Option("--replay/--no-replay", help="Make every logged decision again, and compare.")
    ] = True,
    objective: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Report each group whose availability is below this, as in 0.999."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Audit the day from what an audit with --out DIR exported of it; store and export nothing.",
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Store the results in the database.")] = True,
    export: Annotated[
        bool,
        typer.Option(
            "--export/--no-export",
            help="Also write the day's rows to --out, before the database's retention drops them.",
        ),
    ] = True,
    unless_done: Annotated[
        bool,
        typer.Option(
            "--unless-done", help="Do nothing if the day was audited after it was over, or is being audited now."
        ),
    ] = False,
    nightly: Annotated[
        bool,
        typer.Option(
            "--nightly", help="Keep running, and audit every day when it is over; also earlier days that were missed."
        ),
    ] = False,
    after: Annotated[
        int,
        typer.Option(
            min=10, max=720, metavar="MINUTES", help="With --nightly: how long after its end (UTC) a day is audited."
        ),
    ] = 15,
    days: Annotated[
        int,
        typer.Option(
            min=1, max=30, metavar="DAYS", help="With --nightly: how many days, up to yesterday, are audited if missed."
        ),
    ] = 7,
    tries: Annotated[
        int, typer.Option(min=1, max=100, help="With --nightly: how many times a night a failing audit is tried.")
    ] = 3,
    pause: Annotated[
        int,
        typer.Option(
            min=1, max=720, metavar="MINUTES", help="With --nightly: how long after a failure the day is tried again."
        ),
    ] = 15,
    master: Annotated[str | None, typer.Option(help="The Spark master. Default: all cores of this machine.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A Spark setting; may be given several times.")
    ] = None,
) -> None:
    """Check the log of a day: whether the laws held, what the day cost, and which settings to change.

    The exit code is 0 if nothing fatal was found, 1 if a law was broken, and 2 if there is nothing to audit.
    """
    with failing_well(as_json=as_json):
        for name, given in (("--out", out), ("--from", source), ("--group", group)):
            if given is not None and not given.strip():
                raise Failure(Exit.BAD_INPUT, f"{name} is empty.", todo="Name what is meant, or leave it out.")
        spark = _settings(conf or []) | ({"spark.master": master} if master else {})
        if source is not None and (nightly or database is not None):
            todo = "Leave out --nightly and --database-url."
            raise Failure(Exit.BAD_INPUT, "--from reads one exported day, in a database of its own.", todo=todo)
        if nightly and (day is not None or group is not None or not keep):
            said = "--nightly audits whole days of all groups, and stores the results."
            raise Failure(Exit.BAD_INPUT, said, todo="Leave out --day, --group and --no-keep.")
        url, audited = "" if source is not None else _url(database), day_named(day)
        from batonpass.cli import auditing  # noqa: PLC0415 - `--help` does without the extra

        wanted = auditing.Audit(
            database_url=url,
            day=audited,
            group=group,
            out=out,
            what_if=what_if,
            replay=replay,
            objective=objective,
            keep=keep,
            export=export,
            unless_done=unless_done,
            what_if_s=what_if_seconds,
            spark=spark,
        )
        if nightly:
            schedule = auditing.Schedule(timedelta(minutes=after), days, tries, timedelta(minutes=pause))
            auditing.every_night(wanted, schedule, as_json=as_json)
        elif source is not None:
            auditing.audit_export(wanted, source, as_json=as_json)
        else:
            auditing.audit_day(wanted, as_json=as_json)


def _url(given: str | None) -> str:
    url = (given or "").strip() or variable("BATONPASS_DATABASE_URL") or _of_up()
    if not url:
        raise Failure(
            Exit.BAD_INPUT,
            "no database is named.",
            todo="Set BATONPASS_DATABASE_URL (postgresql://user:password@host:port/database), give --database-url, or name in"
            " BATONPASS_DATA the folder of a `batonpass up` that runs here.",
        )
    source = "--database-url" if given else "BATONPASS_DATABASE_URL"
    with failing_as(Exit.BAD_INPUT, ValueError, form=source + ": {}."):
        read = DatabaseUrl.read(url)
    if given and SUBMITTED in os.environ and read.hide(given) != given:
        said = "Spark keeps the command in its log of events, with the password of --database-url."
        raise Failure(Exit.BAD_INPUT, said, todo="Set BATONPASS_DATABASE_URL instead.")
    # With what libpq's variables say: executors have others, or none.
    return str(read)


def _of_up() -> str:
    """Return the database of the `up` that is named, or runs on this machine, if there is exactly one."""
    found = running_on()
    folder = UpFolder(found[0].folder) if len(found) == 1 else None
    return "" if folder is None else folder.kept(folder.database_file) or ""


def _settings(given: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.startswith("spark."):
            raise Failure(Exit.BAD_INPUT, f"{one!r} is not a Spark setting.", todo="Write --conf spark.NAME=VALUE.")
        settings[name] = value
    return settings
