"""`batonpass audit`: check the log of a day with Spark."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from rich.text import Text

from batonpass.audit_words import amount
from batonpass.child_environment import is_nameless
from batonpass.cli.audits import FINDING, MEASURES, advice, finding_row, measures_row
from batonpass.cli.client_context import failing_well, table
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.folder import UpFolder, running_here
from batonpass.cli.spans import day_named
from batonpass.database_url import DatabaseUrl
from batonpass.terminal import say, say_on_stderr, screen
from batonpass.variables import variable

if TYPE_CHECKING:
    from batonpass.audit.findings import AuditResult
    from batonpass.audit.job import Audit

app = typer.Typer(add_completion=False)

SHOWN = 20
"""How many findings are shown; --json prints all that were kept."""

PACKAGES = ("pyspark", "pyarrow", "adbc_driver_postgresql")
"""What an audit needs beside the base: packages of the extra `audit`."""


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
        settings = _settings(conf or []) | ({"spark.master": master} if master else {})
        parts = {
            "what_if": what_if,
            "replay": replay,
            "keep": keep,
            "export": export,
            "unless_done": unless_done,
            "what_if_s": what_if_seconds,
        }
        if source is not None and (nightly or database is not None):
            todo = "Leave out --nightly and --database-url."
            raise Failure(Exit.BAD_INPUT, "--from reads one exported day, in a database of its own.", todo=todo)
        read = {"database_url": "" if source is not None else _url(database), "spark": settings}
        audited = day_named(day)
        given = read | parts | {"day": audited, "group": group, "out": out, "objective": objective}
        if nightly:
            if day is not None or group is not None or not keep:
                raise Failure(
                    Exit.BAD_INPUT,
                    "--nightly audits whole days of all groups, and stores the results.",
                    todo="Leave out --day, --group and --no-keep.",
                )
            _every_night(given, {"after": after, "days": days, "tries": tries, "pause": pause}, as_json=as_json)
        if source is None:
            _audit(given, as_json=as_json)
            return
        with _reloaded(source, audited) as reloaded:
            _audit(given | reloaded, as_json=as_json)


def _every_night(given: dict[str, Any], numbers: Mapping[str, int], *, as_json: bool) -> NoReturn:
    """Keep running, and have each day audited by a separate process, so that no night leaves anything to the next."""
    from batonpass.audit.job import Audit  # noqa: PLC0415 - see below

    wanted = Audit(**given)
    _need(*PACKAGES)
    from batonpass.audit.nights import Nights, Schedule  # noqa: PLC0415 - it needs them
    from batonpass.cli.nightly import stay  # noqa: PLC0415 - the same

    _try_out(wanted.out)
    minutes = {name: timedelta(minutes=numbers[name]) for name in ("after", "pause")}
    schedule = Schedule(**minutes, days=numbers["days"], tries=numbers["tries"])
    stay(Nights(wanted.database_url, schedule), wanted, as_json=as_json)


def _audit(given: dict[str, Any], *, as_json: bool) -> None:
    from batonpass.audit.job import Audit  # noqa: PLC0415 - `--help` needs nothing of it

    wanted = Audit(**given)
    _need(*PACKAGES)
    from batonpass.audit.runs import DayTaken  # noqa: PLC0415 - it needs them

    try:
        result = _carried_out(wanted, lambda found: None if as_json else _show(found, wanted))
    except DayTaken as taken:
        say_on_stderr(f"batonpass: {taken}; there is nothing to do.")
        return
    unless_gone(lambda: _show_json(result) if as_json else _show_advice(result))
    if result.fatal:
        raise typer.Exit(Exit.REFUSED)


@contextmanager
def _reloaded(source: str, day: date) -> Iterator[dict[str, Any]]:
    """Yield how to audit an exported day: from a server of its own, which is gone afterwards, and as of that night."""
    _need(*PACKAGES)
    from batonpass.audit.reloading import NotExported, as_of, reload  # noqa: PLC0415 - it needs them
    from batonpass.postgres.binaries import EmbeddedPostgresError  # noqa: PLC0415 - only for this
    from batonpass.postgres.embedded import EmbeddedPostgres  # noqa: PLC0415 - the same
    from batonpass.postgres.schema import upgrade  # noqa: PLC0415 - the same

    with tempfile.TemporaryDirectory(prefix="batonpass-") as folder:
        server = EmbeddedPostgres(Path(folder), durable=False)
        try:
            url = server.start()
            asyncio.run(upgrade(url))
            reload(url, source, day)
            yield {"database_url": url, "keep": False, "export": False, "as_of": as_of(day)}
        except NotExported as error:
            raise Failure(Exit.BAD_INPUT, f"{error}.", todo="Choose another day, or another folder.") from None
        except EmbeddedPostgresError as error:
            raise Failure(Exit.UNREACHABLE, str(error)) from None
        finally:
            server.stop()


def _need(*packages: str) -> None:
    """Import what the audit needs; for a missing package ``__main__`` names the extra that has it."""
    import importlib  # noqa: PLC0415

    for name in packages:
        importlib.import_module(name)


def _carried_out(wanted: Audit, show: Callable[[AuditResult], None]) -> AuditResult:
    from batonpass.audit.job import MissingDay, run  # noqa: PLC0415
    from batonpass.audit.runs import DayTaken, Stopped  # noqa: PLC0415
    from batonpass.audit.session import UnfitSpark  # noqa: PLC0415

    _try_out(wanted.out)
    has_verdict: list[bool] = []
    progress = _Progress()

    def hear(result: AuditResult) -> None:
        has_verdict.append(True)
        progress.rest()
        unless_gone(lambda: show(result))

    try:
        return run(wanted, progress.tell, hear)
    except MissingDay as error:
        raise Failure(Exit.BAD_INPUT, str(error), todo="Choose another day with --day.") from None
    except UnfitSpark as error:
        raise Failure(Exit.BAD_INPUT, f"{error}.", todo=error.todo) from None
    except Stopped as stopped:
        todo = "its verdict is stored, without advice" if has_verdict else "run the audit again to get a verdict"
        say_on_stderr(f"batonpass: {stopped.reason}; {todo}.")
        raise
    except (ImportError, DayTaken):
        raise
    except Exception as error:  # noqa: BLE001 - whatever broke, it is no verdict, and must not have a verdict's exit code
        raise _failure_of(error, wanted) from None
    finally:
        progress.rest()


CAUSES: Final = (
    (
        r"statement timeout",
        "the database could not be read",
        "The role has a statement_timeout: lift it for the audit, as in `alter role NAME set statement_timeout = 0`.",
    ),
    (
        r"^adbc_driver_manager\.|libpq|server closed the connection",
        "the database could not be read",
        "Check --database-url, and check the schema with `batonpass db status`.",
    ),
    (
        r"No module named '",
        "the Python of Spark's executors lacks a package",
        "Install 'batonpass[audit]' there, and name its interpreter in PYSPARK_PYTHON.",
    ),
    (r"No space left on device|Disk quota exceeded", "a disk is full", "Check --out, and where Spark keeps its files."),
)
"""What a message has in it, what that means, and what to do."""


def _failure_of(error: Exception, wanted: Audit) -> Failure:
    """Return the failure of an audit; its advice goes by what was being done, never by the error's type alone."""
    from batonpass.audit.runs import reason_of  # noqa: PLC0415 - only with the extra

    if isinstance(error, ConnectionError):
        said = "Spark ended during the audit; nothing was written."
        return Failure(Exit.UNREACHABLE, said, todo="Check whether memory ran out, and run the audit again.")
    said = reason_of(error, wanted.database_url)
    if isinstance(error, OSError) and "spark-submit" in str(error.filename):
        todo = "SPARK_HOME names a folder without Spark: leave it out, or correct it."
        return Failure(Exit.UNREACHABLE, f"Spark could not be started: {error}", todo=todo)
    if isinstance(error, OSError) and error.errno is not None:
        todo = "Check --out, and whether the disk is full."
        return Failure(Exit.UNREACHABLE, f"the results could not be written: {error}", todo=todo)
    for found, means, todo in CAUSES:
        if re.search(found, said):
            return Failure(Exit.UNREACHABLE, f"{means}: {said}", todo=todo)
    if "JAVA_GATEWAY_EXITED" in said and is_nameless():
        todo = "Spark runs only as a user that the system knows by name: start the audit as another user."
    elif "JAVA_GATEWAY_EXITED" in said:
        todo = "Spark needs Java 17: install it (openjdk-17-jre-headless on Debian), or set JAVA_HOME."
    else:
        todo = "Spark's own messages are above; check memory, disk and --conf, and run the audit again."
    return Failure(Exit.UNREACHABLE, f"the audit failed: {said}", todo=todo)


def unless_gone(show: Callable[[], None]) -> None:
    """Print something; that its reader has gone (`| head -1`) changes neither the verdict nor the exit code."""
    try:
        show()
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the latter is what rich makes of it
        # Otherwise Python would try to write the rest at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _try_out(out: str | None) -> None:
    """Check that the report can be written, before an hour of work is wasted."""
    if out is None or "://" in out:
        return
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise Failure(
            Exit.UNREACHABLE, f"--out cannot be written: {error}", todo="Name a folder that you can write to."
        ) from None


def _url(given: str | None) -> str:
    url = (given or "").strip() or variable("BATONPASS_DATABASE_URL") or _of_up()
    if not url:
        raise Failure(
            Exit.BAD_INPUT,
            "no database is named.",
            todo="Set BATONPASS_DATABASE_URL (postgresql://user:password@host:port/database), give --database-url, or run"
            " exactly one `batonpass up` on this machine.",
        )
    try:
        DatabaseUrl.read(url)
    except ValueError as error:
        raise Failure(Exit.BAD_INPUT, f"{'--database-url' if given else 'BATONPASS_DATABASE_URL'}: {error}.") from None
    return url


def _of_up() -> str:
    """Return the database of the `up` that runs on this machine, if there is exactly one."""
    found = running_here()
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


class _Progress:
    """Shows on standard error what the audit does: on a terminal one line that changes until ``rest``, else lines."""

    def __init__(self) -> None:
        self._begun = datetime.now(UTC)
        self._screen = screen(stderr=True)
        self._status = self._screen.status("") if self._screen.is_terminal else None
        if self._status is not None:
            self._status.start()

    def tell(self, said: str) -> None:
        """Show what is being done now."""
        line = Text(f"{(datetime.now(UTC) - self._begun).total_seconds():5.0f} s  {said}")
        if self._status is None:
            self._screen.say(line)
        else:
            self._status.update(line)

    def rest(self) -> None:
        """End the line that changes, before anything else is printed."""
        if self._status is not None:
            self._status.stop()
        self._status = None


def _show_json(result: AuditResult) -> None:
    from batonpass.audit.findings import ordered  # noqa: PLC0415

    counts = {name: getattr(result, name) for name in ("fatal", "notices", "findings_left_out")}
    body = asdict(result) | counts
    body["findings"] = [asdict(one) for one in ordered(result.findings)]
    del body["pictures"], body["before"], body["names"]
    say(json.dumps(body, default=str))


def _show_advice(result: AuditResult) -> None:
    for line in advice({one.group: asdict(one) for one in result.recommendations[:SHOWN]}):
        screen().say(line)


def _show(result: AuditResult, wanted: Audit) -> None:
    from batonpass.audit.findings import named, ordered, readable, summary  # noqa: PLC0415

    out = screen()
    out.say(f"{named(result)}: {summary(result)}")
    found = ordered(readable(result).findings)
    if found:
        out.print(table(*FINDING, rows=[finding_row(asdict(one), one.sequences) for one in found[:SHOWN]]))
    if len(found) > SHOWN:
        out.say(f"{amount(len(found) - SHOWN, 'more finding')}: --json prints all.")
    days = sorted(result.groups, key=lambda one: (-float(one.measures["downtime_ms"] or 0), one.group))
    out.print(table("group", *MEASURES, rows=[measures_row(one.group, one.measures) for one in days[:SHOWN]]))
    if len(days) > SHOWN:
        out.say(f"{amount(len(days) - SHOWN, 'more group')} with less downtime.")
    if wanted.place is not None:
        out.say(f"The report is {wanted.place.rstrip('/')}/report-{result.day}.html.")
