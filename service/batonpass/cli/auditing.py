"""What `batonpass audit` does, once it is known what is wanted: one day, one from its export, or every night's."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import typer
from rich.text import Text

from batonpass.audit import job
from batonpass.audit.export import NotExported, as_of, reload
from batonpass.audit.findings import AuditResult, Finding, named, ordered, readable, summary
from batonpass.audit.job import Audit
from batonpass.audit.morning import cause_of
from batonpass.audit.nights import Nights, Schedule, keep_nights
from batonpass.audit.runs import ENDS, DayTaken, Stopped, reason_of, stoppable
from batonpass.audit.session import UnfitSpark
from batonpass.audit_words import amount
from batonpass.child_environment import child_environment, is_nameless
from batonpass.cli.audits import FINDING, MEASURES, advice, finding_row, measures_row
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.tables import table
from batonpass.core.state.durations import duration
from batonpass.terminal import say, say_on_stderr, screen

__all__ = ["Audit", "Schedule", "audit_day", "audit_export", "every_night"]

SHOWN: Final = 20
"""How many causes are shown; --json prints all findings that were kept."""


TRY_MOST_S: Final = 4 * 3_600.0
"""How long one audit of a night may take, as with the CronJob of deploy/kubernetes; all others wait for it."""

END_PATIENCE_S: Final = 5.0
"""How long an audit that is told to stop may take to record that in its row."""


def every_night(wanted: Audit, schedule: Schedule, *, as_json: bool) -> NoReturn:
    """Have every night audited with the options of ``wanted``, except its day, until a signal ends this process.

    Each day is audited by a separate process, so that no night leaves anything to the next.
    """
    _try_out(wanted.out)
    # Between audits nothing has to be cleaned up: the system ends this process at once, wherever it waits.
    for one in ENDS if os.getpid() != 1 else ():
        signal.signal(one, signal.SIG_DFL)
    env = child_environment(BATONPASS_DATABASE_URL=wanted.database_url)
    options = options_of(wanted, as_json=as_json)

    def audit(day: date) -> int:
        command = [sys.executable, "-m", "batonpass", "audit", "--day", str(day), "--unless-done", *options]
        return carried_out(command, env)

    nights = Nights(wanted.database_url, schedule, wanted.settings())
    keep_nights(nights, audit, wait=time.sleep, tell=tell, url=wanted.database_url)
    raise AssertionError  # it goes on until something is raised


def options_of(wanted: Audit, *, as_json: bool) -> list[str]:
    """Return the options of `batonpass audit` for an audit like ``wanted``, except the day and the database."""
    given = {"--out": wanted.out, "--objective": wanted.objective}
    options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    options += [word for name, value in wanted.spark.items() for word in ("--conf", f"{name}={value}")]
    left_out = {"--no-what-if": wanted.what_if, "--no-replay": wanted.replay, "--no-export": wanted.export}
    options += [name for name, is_wanted in left_out.items() if not is_wanted]
    options += ["--what-if-seconds", f"{wanted.what_if_s:g}"]
    return [*options, *(["--json"] if as_json else [])]


def carried_out(command: Sequence[str], env: Mapping[str, str], *, most_s: float = TRY_MOST_S) -> int:
    """Run an audit and return its exit code; a signal that ends this process ends the audit first, and so does time."""
    with stoppable():
        # In its own session: Ctrl-C reaches only this process, and all processes of the audit can be ended together.
        process = subprocess.Popen(command, env=env, start_new_session=True)  # noqa: S603 - our own program
        try:
            return process.wait(most_s)
        except subprocess.TimeoutExpired:
            tell(f"the audit has taken {duration(most_s * 1_000)} and is ended")
            return Exit.UNREACHABLE
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_PATIENCE_S)
            # This also ends Spark's own processes.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def tell(sentence: str) -> None:
    say_on_stderr(f"batonpass: {datetime.now(UTC):%Y-%m-%d %H:%M:%S} {sentence}")


def audit_day(wanted: Audit, *, as_json: bool) -> None:
    """Audit a day, and print what was found.

    Raises:
        typer.Exit: when a law was broken.
        Failure: when there is no verdict.
    """
    try:
        result = _carried_out(wanted, lambda found: None if as_json else _show(found, wanted))
    except DayTaken as taken:
        say_on_stderr(f"batonpass: {taken}; there is nothing to do.")
        return
    unless_gone(lambda: _show_json(result) if as_json else _show_advice(result))
    if result.fatal:
        raise typer.Exit(Exit.REFUSED)


def audit_export(wanted: Audit, source: str, *, as_json: bool) -> None:
    """Audit an exported day as of that night, in a server of its own, which is gone afterwards."""
    # Of the extra `server`, which only this needs.
    from batonpass.postgres.binaries import EmbeddedPostgresError  # noqa: PLC0415
    from batonpass.postgres.embedded import EmbeddedPostgres  # noqa: PLC0415
    from batonpass.postgres.schema import upgrade  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="batonpass-") as folder:
        server = EmbeddedPostgres(Path(folder), durable=False)
        try:
            url = server.start()
            asyncio.run(upgrade(url))
            reload(url, source, wanted.day)
            exported = replace(wanted, database_url=url, keep=False, export=False, as_of=as_of(wanted.day))
            audit_day(exported, as_json=as_json)
        except NotExported as error:
            raise Failure(Exit.BAD_INPUT, f"{error}.", todo="Choose another day, or another folder.") from None
        except EmbeddedPostgresError as error:
            raise Failure(Exit.UNREACHABLE, str(error)) from None
        finally:
            server.stop()


def _carried_out(wanted: Audit, show: Callable[[AuditResult], None]) -> AuditResult:
    _try_out(wanted.out)
    has_verdict: list[bool] = []
    progress = _Progress()

    def hear(result: AuditResult) -> None:
        has_verdict.append(True)
        progress.rest()
        unless_gone(lambda: show(result))

    try:
        return job.run(wanted, progress.tell, hear)
    except job.MissingDay as error:
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
        # With its module, as Spark tells an error of a worker: one of the database's is known by that.
        if re.search(found, f"{type(error).__module__}.{said}"):
            return Failure(Exit.UNREACHABLE, f"{means}: {said}", todo=todo)
    if "JAVA_GATEWAY_EXITED" in said and is_nameless():
        todo = "Spark runs only as a user that the system knows by name: start the audit as another user."
    elif "JAVA_GATEWAY_EXITED" in said:
        todo = (
            "What it said stands above: too little memory or too few open files for it (ulimit), or PYSPARK_SUBMIT_ARGS."
            " Spark needs Java 17 (openjdk-17-jre-headless on Debian, or JAVA_HOME), and the address 127.0.0.1."
        )
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
    counts = {name: getattr(result, name) for name in ("fatal", "notices", "findings_left_out")}
    body = asdict(result) | counts
    body["findings"] = [asdict(one) for one in ordered(result.findings)]
    del body["pictures"], body["before"], body["names"]
    say(json.dumps(body, default=str))


def _show_advice(result: AuditResult) -> None:
    for line in advice({one.group: asdict(one) for one in result.recommendations[:SHOWN]}):
        screen().say(line)


def _alike_row(first: Finding, *others: Finding) -> list[Any]:
    """Return findings of one cause as a row, so that many alike do not hide what else was found."""
    more = f" (and {len(others):,} alike)" if others else ""
    return finding_row(asdict(first) | {"detail": first.detail + more}, first.sequences)


def _show(result: AuditResult, wanted: Audit) -> None:
    out = screen()
    out.say(f"{named(result)}: {summary(result)}")
    causes: defaultdict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for one in ordered(readable(result).findings):
        causes[one.severity, one.law, one.group, cause_of(one)].append(one)
    alike = list(causes.values())
    if alike:
        out.print(table(*FINDING, rows=[_alike_row(*some) for some in alike[:SHOWN]]))
    if any(len(some) > 1 for some in alike) or len(alike) > SHOWN:
        more = f"{amount(len(alike) - SHOWN, 'more cause')}; " if len(alike) > SHOWN else ""
        out.say(f"{more}--json prints all {len(result.findings):,} findings.")
    days = sorted(result.groups, key=lambda one: (-float(one.measures["downtime_ms"] or 0), one.group))
    out.print(table("group", *MEASURES, rows=[measures_row(one.group, one.measures) for one in days[:SHOWN]]))
    if len(days) > SHOWN:
        out.say(f"{amount(len(days) - SHOWN, 'more group')} with less downtime.")
    if wanted.place is not None:
        out.say(f"The report is {wanted.place.rstrip('/')}/report-{result.day}.html.")
