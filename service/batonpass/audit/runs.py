"""The runs of the audit in Postgres: that one is at work, how it ended, and its results.

A signal to stop becomes an exception in the audit, so that everything that is open is closed and the run's row says how
it ended. A process that is killed outright cannot write that; it is recognised by its silence. ``/v1/audits`` and the
service's metrics read what is written here.
"""

import contextlib
import json
import math
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date, timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import UUID, uuid4

import pyarrow as pa
from adbc_driver_manager import Error

from batonpass.advisory_locks import AUDIT_LOCK
from batonpass.audit.database import DATE, INT, LONG, TEXT, bind, connected, rows
from batonpass.audit.findings import AuditResult, Before, Finding, ordered, summary
from batonpass.audit.plan import quoted
from batonpass.codec.answers import rfc3339
from batonpass.database_url import DatabaseUrl

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc

REASON_MAX: Final = 1_000
"""How many characters are kept of why a run broke."""

_BEGIN: Final = (
    "insert into audit_runs"
    " (run_id, day, started_at, state, code_version, groups, records, fatal, notices, detail, settings, heard_at)"
    " values (cast($1 as text)::uuid, $2, clock_timestamp(), 'running', $3, 0, 0, 0, 0, 'it is under way',"
    " cast($4 as text)::jsonb, clock_timestamp())"
)
_BEAT: Final = "update audit_runs set heard_at = clock_timestamp() where run_id = cast($1 as text)::uuid"
# The service shows such a run as broken even before this is executed (postgres/audits.py has the same words and times).
_LOST: Final = (
    "update audit_runs set state = 'broken', finished_at = coalesce(heard_at, started_at),"
    " detail = 'nothing was heard of it any more: its process was killed, or its machine went'"
    " where state = 'running' and coalesce(heard_at, started_at + interval '1 day')"
    " < clock_timestamp() - interval '10 minutes' returning day::text"
)
# An audit of the day was done by somebody who asked for no less, and no row of it came later (``export.SETTLES``).
# Runs of programs before this one do not say whether they exported.
_TAKEN: Final = (
    "(state in ('passed', 'failed') and '{{\"export\": true}}'::jsonb || settings @> {wanted}::jsonb"
    " and started_at >= (day + 1)::timestamp at time zone 'UTC' + interval '10 minutes'"
    " or state = 'running' and coalesce(heard_at, started_at + interval '1 day')"
    " >= clock_timestamp() - interval '10 minutes')"
)
_BREAK: Final = (
    "update audit_runs set state = 'broken', finished_at = clock_timestamp(), detail = $2"
    " where run_id = cast($1 as text)::uuid and state = 'running'"
)
# Of two audits of one day that end at once, one waits here for the other.
_ALONE: Final = "select run_id from audit_runs where day = $2 and cast($1 as text) is not null order by 1 for update"
_OLDER: Final = (
    "run_id in (select o.run_id from audit_runs o join audit_runs mine on mine.run_id = cast($1 as text)::uuid"
    " where o.day = mine.day and o.started_at <= mine.started_at)"
)
_IS_NEWEST: Final = (
    "select not exists (select from audit_runs o join audit_runs mine on mine.run_id = cast($1 as text)::uuid"
    " where o.day = mine.day and o.started_at > mine.started_at and o.state in ('passed', 'failed'))"
)
_FINDING: Final = (
    "insert into audit_findings"
    " (run_id, number, day, group_name, law, severity, task, member, detail, evidence)"
    " values (cast($1 as text)::uuid, $2, $3, $4, $5, $6, $7, $8, $9, cast($10 as text)::jsonb)"
)
_DAILY: Final = (
    "insert into audit_daily (day, group_name, run_id, measures)"
    " values ($2, $3, cast($1 as text)::uuid, cast($4 as text)::jsonb)"
)
_END: Final = (
    "update audit_runs set state = $2, finished_at = clock_timestamp(), code_version = $3, groups = $4, records = $5,"
    " fatal = $6, notices = $7, detail = $8, report = $9 where run_id = cast($1 as text)::uuid"
)


class DayTaken(Exception):
    """Another run has audited the day since it was over, or is auditing it."""


def taken(settings: Mapping[str, object]) -> str:
    """Return in SQL that another run is at work, or has done what an audit with these settings would.

    One without a report, or without the day's rows beside it, does not stand for one that was to leave them.
    """
    wanted = {name: value for name, value in settings.items() if value}
    return _TAKEN.format(wanted=quoted(to_json(wanted)))


class Run:
    """One run of the audit of a day, with its row in the database; without a database it does nothing."""

    def __init__(self, url: str | None, run_id: UUID, day: date) -> None:
        self._url = url
        self.run_id = run_id
        self._day = day
        self.is_finished = False
        self.lost_days: tuple[str, ...] = ()
        """The days of earlier runs that had fallen silent when this one began."""

    def finish(self, result: AuditResult, *, report: str | None) -> None:
        """Write the verdict with all that belongs to it, all or nothing. Of several runs of a day the newest counts.

        It may be called again with more, which replaces what this run had written.

        Raises:
            adbc_driver_manager.Error: when the database does not take it; nothing was written then.
        """
        if self._url is not None:
            with connected(self._url) as connection, connection.cursor() as cursor:
                self._write(cursor, result, report)
                connection.commit()
        self.is_finished = True

    def _write(self, cursor: "adbc.Cursor", result: AuditResult, report: str | None) -> None:
        run_id, day = str(self.run_id), self._day
        bind(cursor, _ALONE, [(run_id, day)], (TEXT, DATE))
        cursor.fetchall()
        bind(cursor, f"delete from audit_findings where {_OLDER}", [(run_id,)], (TEXT,))  # noqa: S608 - constants
        rows = [finding_row(run_id, number, day, one) for number, one in enumerate(ordered(result.findings), start=1)]
        bind(cursor, _FINDING, rows, (TEXT, INT, DATE, *[TEXT] * 7))
        bind(cursor, _IS_NEWEST, [(run_id,)], (TEXT,))
        if cursor.fetchone() == (True,):
            bind(cursor, "delete from audit_daily where day = $1", [(day,)], (DATE,))
            daily = [(run_id, day, plain(name), payload) for name, payload in daily_of(result).items()]
            bind(cursor, _DAILY, daily, (TEXT, DATE, TEXT, TEXT))
        state = "failed" if result.fatal else "passed"
        counts = (len(result.groups), result.records, result.fatal, result.notices)
        values = (run_id, state, result.code_version, *counts, plain(summary(result)), report or None)
        bind(cursor, _END, [values], (TEXT, TEXT, TEXT, INT, LONG, INT, INT, TEXT, TEXT))

    def broke(self, reason: str) -> None:
        """Write that the run reached no verdict, and why.

        Raises:
            adbc_driver_manager.Error: when the database does not take it.
        """
        if self._url is not None:
            self._change(_BREAK, (str(self.run_id), plain(reason)[:REASON_MAX]), (TEXT, TEXT))

    def begin(self, code_version: str, settings: Mapping[str, object], *, unless_done: bool) -> None:
        """Write that the run has begun.

        Raises:
            adbc_driver_manager.Error: when the database does not take it.
            DayTaken: with ``unless_done``, when another run makes this one needless.
        """
        if self._url is not None:
            with connected(self._url) as connection, connection.cursor() as cursor:
                cursor.execute(_LOST)
                self.lost_days = tuple(sorted(day for (day,) in cursor.fetchall()))
                connection.commit()
                if unless_done:
                    # Another run waits here for the end of this transaction, even behind a pool of connections.
                    cursor.execute(f"select pg_advisory_xact_lock({AUDIT_LOCK})")
                    cursor.fetchall()
                    self._refuse_taken(cursor, settings)
                values = (str(self.run_id), self._day, code_version, to_json(settings))
                bind(cursor, _BEGIN, [values], (TEXT, DATE, TEXT, TEXT))
                connection.commit()

    def _refuse_taken(self, cursor: "adbc.Cursor", settings: Mapping[str, object]) -> None:
        bind(cursor, f"select state from audit_runs where day = $1 and {taken(settings)}", [(self._day,)], (DATE,))  # noqa: S608
        if (found := cursor.fetchone()) is not None:
            how = "is being audited by another run" if found[0] == "running" else "was audited by another run"
            raise DayTaken(f"{self._day} {how}")

    def beat(self) -> None:
        """Write that the run is at work; if the database does not take it, the next beat will do."""
        with contextlib.suppress(Error):
            self._change(_BEAT, (str(self.run_id),), (TEXT,))

    def _change(self, statement: str, row: tuple[Any, ...], kinds: Sequence[pa.DataType]) -> None:
        with connected(str(self._url)) as connection, connection.cursor() as cursor:
            bind(cursor, statement, [row], kinds)
            connection.commit()


DAYS_BEFORE: Final = 30
"""For how many days the availability is shown beside the day's."""

_AVAILABLE: Final = (
    "select day, min((measures -> 'measures' ->> 'availability')::float8) from audit_daily"
    " where day >= '{first}' and day < '{day}' and measures -> 'measures' ->> 'availability' is not null"
    " group by day order by day"
)


def before(url: str, day: date) -> Before:
    """Return what audits of the days before said.

    Raises:
        adbc_driver_manager.Error: when the database cannot be read.
    """
    eve, first = day - timedelta(days=1), day - timedelta(days=DAYS_BEFORE)
    audited = rows(url, f"select 1 from audit_runs where day = '{eve}' and state in ('passed', 'failed')")  # noqa: S608
    known = rows(url, f"select distinct group_name, law from audit_findings where day = '{eve}'")  # noqa: S608
    least = rows(url, _AVAILABLE.format(first=first, day=day))
    return Before(frozenset((group, law) for group, law in known) if audited else None, dict(least))


@contextmanager
def recorded(
    database_url: str | None,
    day: date,
    *,
    code_version: str,
    settings: Mapping[str, object],
    group: str | None = None,
    unless_done: bool = False,
) -> Iterator[Run]:
    """Yield a run of the audit of ``day``: shown as ``running`` from here on, as ``broken`` if it does not ``finish``.

    Once a minute it writes that it is at work. Earlier runs that were silent for ten minutes become ``broken``.

    Nothing is written without a database, or for a single ``group``: that is not the audit of the day, and must not
    stand in its place.

    Raises:
        adbc_driver_manager.Error: when the database cannot be reached, or lacks the tables.
        DayTaken: with ``unless_done``, when another run makes this one needless; nothing is written of this one.
    """
    url = None if group is not None else database_url
    run = Run(url, uuid4(), day)
    run.begin(code_version, settings, unless_done=unless_done)
    try:
        with beating(run.beat) if url is not None else contextlib.nullcontext():
            yield run
    except BaseException as error:
        # The first error is the one to report, even if it cannot be written to the database.
        with contextlib.suppress(Error):
            run.broke(reason_of(error, url))
        raise
    if not run.is_finished:
        run.broke("the audit ended without a result")


def reason_of(error: BaseException, url: str | None) -> str:
    """Return why a run broke, in a line, without the secrets of the database's URL."""
    if isinstance(error, KeyboardInterrupt):
        return "the audit was interrupted"
    if isinstance(error, Stopped):
        return error.reason
    if isinstance(error, ConnectionError):
        # Only Spark is reached over sockets of Python's own; the database is not.
        return "Spark ended during the audit: its JVM was killed, or it ran out of memory"
    try:
        lines = [line.strip() for line in str(error).strip().splitlines()]
    except Exception:  # noqa: BLE001 - what an error of a JVM says is asked of the JVM, which may be gone
        lines = []
    # Spark's message has the error of a worker at its end, behind the traceback.
    matches = (re.match(r"(?:Caused by: |: )?([\w.]+(?:Error|Exception): (?!Traceback).+)", line) for line in lines[1:])
    causes = [one[1] for one in matches if one is not None]
    said = causes[-1] if causes else f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return DatabaseUrl.read(url).hide(said) if url else said


def finding_row(run_id: str, number: int, day: date, finding: Finding) -> tuple[Any, ...]:
    evidence = {"sequences": list(finding.sequences), "at": [rfc3339(one) for one in finding.at]}
    values = (finding.group, finding.law, finding.severity.value, finding.task, finding.member, finding.detail)
    return (run_id, number, day, *(None if one is None else plain(one) for one in values), to_json(evidence))


def daily_of(result: AuditResult) -> dict[str, str]:
    """Return what is kept of each group's day, as JSON."""
    advised = {one.group: one for one in result.recommendations}
    return {
        one.group: to_json(
            {
                "measures": one.measures,
                "downtime_by_cause": one.downtime_by_cause,
                "recommendation": asdict(advised[one.group]) if one.group in advised else None,
            }
        )
        for one in result.groups
    }


def plain(said: str) -> str:
    """Return a text as Postgres can hold it: the text of a user may have a NUL in it, or half a character."""
    return said.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()


def to_json(value: object) -> str:
    """Return a value as jsonb can hold it; NaN and infinity become null."""
    return json.dumps(_kept(value), ensure_ascii=False, allow_nan=False)


def _kept(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case str():
            return plain(str(value))
        case float():
            return float(value) if math.isfinite(value) else None
        case Mapping():
            return {plain(str(name)): _kept(item) for name, item in value.items()}
        case list() | tuple():
            return [_kept(item) for item in value]
        case _:
            return plain(str(value))


BEAT_S: Final = 60.0
"""How often a run writes that it is at work."""

ENDS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that Ctrl-C, a scheduler, a container or a closed terminal send."""


class Stopped(SystemExit):
    """The audit was told to stop by a signal; the exit code is the one that shells have for it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        told = f"told to stop ({signal.Signals(number).name})"
        self.reason = f"the audit was {'interrupted' if number == signal.SIGINT else told}"


@contextmanager
def stoppable(end: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Turn signals to stop, Ctrl-C among them, into ``Stopped``, wherever the audit waits.

    ``end`` is called first: it ends what the audit may wait for even while it closes.

    Spark's own handler of Ctrl-C asks its JVM first, which is busy, and shows a traceback. Only the main thread
    receives signals; in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        heard.append(number)
        end()
        raise Stopped(number)

    before = {one: signal.signal(one, stop) for one in ENDS}
    try:
        yield
    except BaseException as error:
        # Closing may fail in its turn: mostly, Spark's own processes have been told to stop as well.
        if heard and not isinstance(error, Stopped):
            raise Stopped(heard[0]) from None
        raise
    finally:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)


@contextmanager
def beating(beat: Callable[[], None], every_s: float = BEAT_S) -> Iterator[None]:
    """Call ``beat`` again and again, in a thread of its own, until the block ends."""
    over = threading.Event()

    def again() -> None:
        while not over.wait(every_s):
            beat()

    thread = threading.Thread(target=again, name="audit-pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        # A beat that hangs at the database must not delay the report of how the run ended.
        thread.join(timeout=min(every_s, 2.0))
