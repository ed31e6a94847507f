"""What was committed beside the records, read back from Postgres; and samples of lags and rates."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation, Moved
from batonpass.codec.records import json_text
from batonpass.core.state.ids import GroupId, TaskId
from batonpass.core.state.reasons import Reason
from batonpass.postgres.connect import execute, fetch_rows
from batonpass.postgres.tables import ms_of
from batonpass.runtime.chores import SAMPLE_EVERY_S
from batonpass.runtime.events import Event
from batonpass.runtime.history import Asked, Sample, StoredCommand, StoredEvent
from batonpass.runtime.ports import Archive, StoreUnavailable

_COUNTS: Final = (
    f"number, group_epoch, {ms_of('at')}, triggers, members, tasks, moves, lower_bound, warmups, score_before, score,"
    " decide_ms, cast(reasons as text)"
)
_GENERATIONS: Final = text(
    f"select {_COUNTS} from generations where group_id = :of_group and number < :before"  # noqa: S608 - constants
    " order by number desc limit :most"
)
_GENERATION: Final = text(
    f"select {_COUNTS}, cast(moved as text) from generations"  # noqa: S608 - constants
    " where group_id = :of_group and number = :number"
)
_CHANGE: Final = (
    f"select task_id, member_id, kind, role_before, role, {ms_of('at')}, generation, member_epoch, token, state, warm, why,"
    f" {ms_of('heard_at')},"
    " version, place"
)
_OF_TASK: Final = "where group_id = :of_group and task_id = :task order by version desc, place desc limit :most"
_CHANGES: Final = text(
    f"({_CHANGE} from assignment_events {_OF_TASK}) union all ({_CHANGE} from fresh_changes {_OF_TASK})"
    " order by version desc, place desc limit :most"
)
_EVENTS: Final = (
    f"select position, group_id, type, {ms_of('at')}, generation, member_id, task_id,"  # noqa: S608 - constants
    " cast(body as text) from events"
)
_COMMANDS: Final = (
    f"select position, group_id, {ms_of('at')},"  # noqa: S608 - constants
    " cast(asked as text), cast(subject as text) from commands"
)
_LAGS: Final = text(
    "select cast(extract(epoch from max(at)) * 1000 as bigint), max(behind) from samples"
    " where group_id = :of_group and at > :since and at <= :until and behind is not null"
    " group by floor(extract(epoch from at) / :step_s) order by 1"
)
_INSERT_SAMPLES: Final = text(
    "insert into samples (group_id, at, copies, behind)"
    " select r.group_id, timestamptz 'epoch' + r.at_ms * interval '1 millisecond', cast(r.copies as json), r.behind"
    " from unnest(cast(:groups as text[]), cast(:at_ms as bigint[]), cast(:copies as text[]), cast(:behind as bigint[]))"
    " as r(group_id, at_ms, copies, behind)"
)
_AFTER: Final = "position > :position order by position limit :most"
_BEFORE: Final = "position < :position order by position desc limit :most"
_POSITION: Final = text("select position from event_counter")
BEYOND_ALL: Final = 2**63 - 1


class PostgresArchive(Archive):
    """The histories of all groups in one database. It reads only what is committed."""

    def __init__(self, engine: AsyncEngine) -> None:
        """Read from a database; any coordinator may read any group."""
        self._engine = engine

    async def generations(self, group_id: GroupId, *, before: int | None, limit: int) -> Sequence[Generation]:
        until = BEYOND_ALL if before is None else before
        rows = await fetch_rows(self._engine, _GENERATIONS, of_group=group_id, before=until, most=limit)
        return [_generation(row) for row in rows]

    async def generation(self, group_id: GroupId, number: int) -> Generation | None:
        for row in await fetch_rows(self._engine, _GENERATION, of_group=group_id, number=number):
            return await asyncio.to_thread(_with_moved, row)  # A line for each task of a group, where all have moved.
        return None

    async def task_changes(self, group_id: GroupId, task: TaskId, *, limit: int) -> Sequence[Change]:
        return [
            Change._make(row[:13])
            for row in await fetch_rows(self._engine, _CHANGES, of_group=group_id, task=task, most=limit)
        ]

    async def events(self, group_id: GroupId | None, *, after: int, limit: int) -> Sequence[StoredEvent]:
        return [_event(row) for row in await self._rows(_EVENTS, _AFTER, group_id, position=after, most=limit)]

    async def events_before(self, group_id: GroupId | None, *, before: int | None, limit: int) -> Sequence[StoredEvent]:
        until = BEYOND_ALL if before is None else before
        return [_event(row) for row in await self._rows(_EVENTS, _BEFORE, group_id, position=until, most=limit)]

    async def last_position(self) -> int:
        """Return the position of the newest event; 0 before the first."""
        return next((int(row[0]) for row in await fetch_rows(self._engine, _POSITION)), 0)

    async def commands(self, group_id: GroupId | None, *, before: int | None, limit: int) -> Sequence[StoredCommand]:
        until = BEYOND_ALL if before is None else before
        rows = await self._rows(_COMMANDS, _BEFORE, group_id, position=until, most=limit)
        return [
            StoredCommand(
                position,
                name,
                at_ms,
                Asked(**msgspec.json.decode(asked)),
                msgspec.json.decode(subject),
            )
            for position, name, at_ms, asked, subject in rows
        ]

    async def lags(
        self, group_id: GroupId, *, since: datetime, until: datetime, limit: int
    ) -> Sequence[tuple[int, int]]:
        step_s = max((until - since).total_seconds() / limit, SAMPLE_EVERY_S)
        rows = await fetch_rows(self._engine, _LAGS, of_group=group_id, since=since, until=until, step_s=step_s)
        return [(int(at_ms), int(behind)) for at_ms, behind in rows]

    async def keep_samples(self, samples: Sequence[Sample]) -> None:
        """Keep samples of several groups, all or none: one row for each group and minute."""
        try:
            await execute(self._engine, _INSERT_SAMPLES, **await asyncio.to_thread(_columns, samples))
        except DBAPIError as error:
            raise StoreUnavailable(f"Postgres did not take a sample: {error.orig}") from error

    async def _rows(
        self, select: str, page: str, group_id: GroupId | None, *, position: int, most: int
    ) -> list[tuple[Any, ...]]:
        """Return a page of rows beyond a position, without it; of all groups when ``group_id`` is None."""
        if group_id is None:
            return await fetch_rows(self._engine, text(f"{select} where {page}"), position=position, most=most)
        of_group = text(f"{select} where group_id = :of_group and {page}")
        return await fetch_rows(self._engine, of_group, of_group=group_id, position=position, most=most)


def _generation(row: tuple[Any, ...]) -> Generation:
    fixed = (*row[:3], tuple(row[3]), *row[4:12])
    return Generation._make((*fixed, (), msgspec.json.decode(row[12], type=tuple[Reason, ...])))


def _with_moved(row: tuple[Any, ...]) -> Generation:
    return _generation(row)._replace(moved=msgspec.json.decode(row[-1], type=tuple[Moved, ...]))


def _columns(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    return {
        "groups": [one.group for one in samples],
        "at_ms": [one.at_ms for one in samples],
        "copies": [json_text(one.copies) for one in samples],
        "behind": [one.behind for one in samples],
    }


def _event(row: tuple[Any, ...]) -> StoredEvent:
    position, group_id, kind, at_ms, generation, member, task, body = row
    return StoredEvent(position, group_id, Event(kind, at_ms, generation, member, task, msgspec.json.decode(body)))
