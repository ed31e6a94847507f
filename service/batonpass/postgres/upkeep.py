"""The regular upkeep of the database: it makes days ahead, and deletes what is old enough.

Rows of the tables that are cut into days always find a place: rows of a day that was not made yet go into the rest, and
are moved out of it when the day is made. Old days are dropped whole. Only one of several coordinators does this at a
time. It does not wait long for a lock, because others would queue up behind; it tries again later.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import Table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from batonpass.advisory_locks import UPKEEP_LOCK
from batonpass.codec.groups import GROUP_VERSION
from batonpass.postgres.connect import alone, execute, fetch_rows, keep_at, log, transacting
from batonpass.postgres.snapshots import KEPT
from batonpass.postgres.tables import PARTITIONED, assignment_events, samples, traces
from batonpass.runtime.clocks import boot_ms
from batonpass.runtime.ports import StoreUnavailable

DAYS_AHEAD: Final = 4
CHUNK: Final = 5_000
"""How many rows one statement deletes at most, so that none takes long."""

TURN_S: Final = 3_600.0
RETRY_S: Final = 60.0
LOCK_TIMEOUT_MS: Final = 300
DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How many days each kind of row is kept.

    Records are deleted only once a snapshot of that age replaces them, so every day that is kept can be replayed.
    Events are kept for as long again when a reader of the outbox is behind. Revoked and expired tokens are deleted with
    the commands. A day that no audit has exported is kept for ``unexported`` days more, in every exported table. It is
    deleted then all the same, so that a disk does not fill up because no audit runs.
    """

    changes: int = 30
    traces: int = 14
    samples: int = 30
    records: int = 30
    generations: int = 90
    events: int = 7
    commands: int = 400
    audits: int = 400
    unexported: int = 0


DEFAULT_RETENTION: Final = Retention()

_DAYS: Final = text(
    "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid"
    " where i.inhparent = to_regclass(:parent) order by 1"
)
_OLD_SNAPSHOTS: Final = text(
    # The last one before the cut stays: with it, everything after the cut can be replayed.
    "delete from snapshots s where at < :cut and exists (select from snapshots l where l.group_id = s.group_id"
    " and l.version > s.version and l.at < :cut)"
    " and version not in (select version from snapshots n where n.group_id = s.group_id order by version desc"
    " limit :kept)"
)
_FLOORS: Final = text("select group_id, min(version) from snapshots where format <= :format group by group_id")
_OLD_RECORDS: Final = text(
    "delete from record_log where group_id = :of_group and seq in (select seq from record_log"
    " where group_id = :of_group and seq <= :floor and at < :cut order by seq limit :chunk)"
)
# Of both the old ones before the first that is not. Only the first few are looked at, however many are old.
_OLD_EVENTS: Final = text(
    "with first as (select position, at from events"
    " where position <= coalesce((select min(position) from outbox_readers where at > :grace), 1::bigint << 62)"
    " order by position limit :chunk)"
    " delete from events where position in (select position from first"
    " where position < coalesce((select min(position) from first where at >= :cut), 1::bigint << 62))"
)
_OLD_COMMANDS: Final = text(
    "with first as (select position, at from commands order by position limit :chunk)"
    " delete from commands where position in (select position from first"
    " where position < coalesce((select min(position) from first where at >= :cut), 1::bigint << 62))"
)
_OLD_GENERATIONS: Final = text(
    "delete from generations where (group_id, number) in (select group_id, number from generations"
    " where at < :cut order by at limit :chunk)"
)
# Its findings go with it.
_OLD_AUDITS: Final = text(
    "with old_days as (delete from audit_daily where day < :day), old_exports as (delete from exported_days where day < :day)"
    " delete from audit_runs where day < :day"
)
# Rows have the time of the database, so they are old by it, whatever this machine's clock says.
_NOW: Final = text("select clock_timestamp()")
_EXPORTED: Final = text("select day from exported_days where day >= :since and day < :until")
# A declaration that is refused leaves a head of its name, though there is no such group. A coordinator that is about to
# write the first record of a group finds the head gone, and takes the group over again.
_EMPTY_HEADS: Final = text("delete from group_heads where version = 0")
# The audit trail, which is kept for as long, says who made and revoked them.
_OLD_TOKENS: Final = text("delete from tokens where least(revoked_at, expires_at) < :cut")


class Upkeep:
    """Looks after one database."""

    def __init__(self, engine: AsyncEngine, retention: Retention = DEFAULT_RETENTION) -> None:
        self._engine = engine
        self._retention = retention
        self._ahead_ms: float | None = None
        self._forgets_from_ms = 0.0

    async def run(self) -> None:
        """Take a turn now and every hour, until cancelled."""

        async def turn() -> float:
            ((now,),) = await fetch_rows(self._engine, _NOW)
            await self.turn(now, forgets=self._has_run_on(now))
            return TURN_S

        await keep_at(turn, again_s=RETRY_S, failing="no days are made, and no old rows deleted")

    def _has_run_on(self, now: datetime) -> bool:
        """Whether the database's clock has not leapt by a day since yesterday, as to a server whose clock is wrong.

        By such a clock all that is kept may be old. Whoever sets it right has a day for that.
        """
        passed_ms = boot_ms()
        before_ms, self._ahead_ms = self._ahead_ms, now.timestamp() * 1_000 - passed_ms
        if before_ms is not None and abs(self._ahead_ms - before_ms) > DAY_MS:
            log.warning("the database's clock leapt to %s; nothing old is deleted for a day", now)
            self._forgets_from_ms = passed_ms + DAY_MS
        return passed_ms >= self._forgets_from_ms

    async def turn(self, now: datetime, *, forgets: bool = True) -> None:
        """Make days ahead, drop old ones, and delete old rows; unless it ``forgets``, only the first.

        What fails stops nothing else, so that somebody who reads one table for days does not let all of them grow.

        Raises:
            StoreUnavailable, DBAPIError: when the database cannot be reached, a lock was not free, or a statement is
                refused; what was done stays done.
        """
        kept_days = {assignment_events: self._retention.changes, traces: self._retention.traces}
        kept_days[samples] = self._retention.samples
        parts: list[Callable[[], Awaitable[object]]] = []
        for table in PARTITIONED:
            parts.append(partial(self._make_days, table, now.date()))
            if forgets:
                parts.append(partial(self._drop_days, table, now.date() - timedelta(days=kept_days[table])))
        await self._each([*parts, *(self._to_forget(now) if forgets else ())])

    async def _each(self, parts: Iterable[Callable[[], Awaitable[object]]]) -> None:
        """Do all of it, whichever fails, then raise the first error. Once the database is away, no more is tried."""
        failed: list[Exception] = []
        for part in parts:
            try:
                await part()
            except (StoreUnavailable, DBAPIError) as error:
                failed.append(error)
                await fetch_rows(self._engine, _NOW)
        if failed:
            raise failed[0]

    async def _waiting(self, oldest: date, *, with_oldest: bool = False) -> list[date]:
        """Return the days before ``oldest`` that are kept because no audit has exported them yet, in order.

        ``with_oldest`` includes that day too, for the case that only a part of it is to be kept.
        """
        if not self._retention.unexported:
            return []
        since = oldest - timedelta(days=self._retention.unexported)
        until = oldest + timedelta(days=int(with_oldest))
        exported = {day for (day,) in await fetch_rows(self._engine, _EXPORTED, since=since, until=until)}
        days = (since + timedelta(days=number) for number in range((until - since).days))
        return [day for day in days if day not in exported]

    async def _make_days(self, table: Table, today: date) -> None:
        # The last first: a day of which too many rows are in the rest keeps no later one from being made.
        for ahead in reversed(range(DAYS_AHEAD + 1)):
            day = today + timedelta(days=ahead)
            if name_of(table, day) not in await self._days(table):
                await self._alone(lambda connection, day=day: _make_day(connection, table, day))

    async def make_day(self, day: date) -> None:
        """Make the parts of one day, which may be long past; those that exist stay.

        Raises:
            StoreUnavailable: when the database cannot be reached, or a lock was not free.
        """
        for table in PARTITIONED:
            await self._alone(lambda connection, table=table: _make_day(connection, table, day))

    async def _drop_days(self, table: Table, oldest: date) -> None:
        waiting, rest = await self._waiting(oldest), f"{table.name}_rest"
        await self._delete(
            text(
                f"delete from {rest} where ctid = any(array("  # noqa: S608
                f"select ctid from {rest} where at < :cut limit :chunk))"
            ),
            # A date would begin by the clock of the session's zone.
            cut=_midnight(min([oldest, *waiting])),
        )
        for name in await self._days(table):
            day = day_of(table, name)
            if day is not None and day < oldest and day not in waiting:
                await self._alone(lambda connection, name=name: _run(connection, f"drop table if exists {name}"))

    async def _days(self, table: Table) -> list[str]:
        return [name for (name,) in await fetch_rows(self._engine, _DAYS, parent=table.name)]

    async def _alone(self, work: Any) -> None:
        """Do something in a transaction, unless another coordinator is at it; wait for no lock for long."""
        async with transacting(self._engine) as connection:
            await connection.execute(text(f"set local lock_timeout = {LOCK_TIMEOUT_MS}"))
            if await alone(connection, UPKEEP_LOCK):
                await work(connection)

    def _to_forget(self, now: datetime) -> list[Callable[[], Awaitable[object]]]:
        kept, delete, once = self._retention, self._delete, partial(execute, self._engine)

        def before(days: int) -> datetime:
            return now - timedelta(days=days)

        async def exported_before(days: int) -> datetime:
            cut = before(days)
            waiting = await self._waiting(cut.date(), with_oldest=True)
            return min([cut, *map(_midnight, waiting)])

        async def generations() -> None:
            await delete(_OLD_GENERATIONS, cut=await exported_before(kept.generations))

        async def records() -> None:
            cut = await exported_before(kept.records)
            await once(_OLD_SNAPSHOTS, cut=cut, kept=KEPT)
            floors = await fetch_rows(self._engine, _FLOORS, format=GROUP_VERSION)
            await self._each(
                partial(delete, _OLD_RECORDS, of_group=group_id, floor=floor, cut=cut) for group_id, floor in floors
            )

        return [
            partial(delete, _OLD_EVENTS, cut=before(kept.events), grace=before(2 * kept.events)),
            partial(delete, _OLD_COMMANDS, cut=before(kept.commands)),
            generations,
            partial(once, _EMPTY_HEADS),
            partial(once, _OLD_TOKENS, cut=before(kept.commands)),
            partial(once, _OLD_AUDITS, day=before(kept.audits).date()),
            records,
        ]

    async def _delete(self, statement: Any, **parameters: Any) -> None:
        while await execute(self._engine, statement, **parameters, chunk=CHUNK) == CHUNK:
            pass


def _midnight(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time(), UTC)


def name_of(table: Table, day: date) -> str:
    """Return the name of the part of a table that holds one day (UTC)."""
    return f"{table.name}_{day:%Y%m%d}"


def day_of(table: Table, name: str) -> date | None:
    """Return the day that a part of a table holds; None for the rest."""
    written = name.removeprefix(f"{table.name}_")
    return date.fromisoformat(written) if written.isdigit() else None


async def _make_day(connection: AsyncConnection, table: Table, day: date) -> None:
    """Make the part of one day, and move its rows out of the rest."""
    name, rest = name_of(table, day), f"{table.name}_rest"
    begin, end = f"'{day} 00:00:00+00'", f"'{day + timedelta(days=1)} 00:00:00+00'"
    within = f"at >= {begin} and at < {end}"
    there = await connection.execute(text("select to_regclass(:name) is not null"), {"name": name})
    if there.scalar_one():
        return
    # No row may come into the rest between the move and the end. Appends for days that are made do not go there.
    await _run(connection, f"lock table {rest} in access exclusive mode")
    # Attached, not made in place: attaching takes a lock that lets appends go on.
    await _run(connection, f"create table {name} (like {table.name} including all, check ({within}))")
    await _run(
        connection,
        f"with moved as (delete from {rest} where {within} returning *) insert into {name} select * from moved",  # noqa: S608
    )
    await _run(connection, f"alter table {table.name} attach partition {name} for values from ({begin}) to ({end})")


async def _run(connection: AsyncConnection, statement: str) -> None:
    await connection.execute(text(statement.replace(":", r"\:")))
