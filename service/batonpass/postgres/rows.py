"""What a commit writes, as rows of each table; instants are milliseconds here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.codec.records import VERSIONS, StoredRecord, encode_records
from batonpass.codec.subjects import subject_of
from batonpass.codec.traces import TRACE_VERSION, encode_trace
from batonpass.core import records as r
from batonpass.core.ids import MemberId
from batonpass.core.model import Member
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit

Row = tuple[Any, ...]
BATCH_CHANGES_MAX: Final = 200
"""So many changes stand in one row, until each of them gets its own: what is sorted at once must not take long."""

ROW_BYTES: Final = 100
"""About how many bytes a row has beside its payloads."""


class Prepared(NamedTuple):
    """A commit in its stored form. ``rows`` has those of each part that has any; ``weight`` is about their bytes.

    ``heals`` says that with it the group has been told that the store lost commits.
    """

    commit: Commit
    rows: Mapping[str, list[Row]]
    weight: int
    heals: bool = False


def prepare(commit: Commit, up_to: Mapping[str, int] = VERSIONS) -> Prepared:
    """Return the stored form of a commit, its records in no newer versions than ``up_to`` allows.

    Raises:
        UnwritableRecord: when a record has no stored form.
    """
    stored = encode_records(commit.records, up_to)
    history, version = commit.history, commit.expected_version
    rows: dict[str, list[Row]] = {
        "records": _record_rows(stored, version),
        "generations": [_generation_row(history.generation, version)] if history.generation else [],
        "traces": _trace_rows(history, version),
        "commands": _command_rows(history),
        "changes": _change_rows(history.changes, version),
        "events": [
            (number, one.at_ms, one.type, one.generation, one.member, one.task, _json(one.body))
            for number, one in enumerate(history.events)
        ],
    }
    rows |= member_rows(commit.records)
    weight = sum(_weight(part) for part in rows.values())
    heals = any(isinstance(one, r.EpochsRaised) for one in commit.records)
    return Prepared(commit, {name: part for name, part in rows.items() if part}, weight, heals=heals)


def plain(said: str) -> str:
    """Return a text as a column of type text can hold it: what somebody wrote may have a NUL in it."""
    return said.replace("\0", "\N{SYMBOL FOR NULL}")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _weight(part: list[Row]) -> int:
    # Only the last column may be long.
    return sum(ROW_BYTES + len(row[-1]) if isinstance(row[-1], str) else ROW_BYTES for row in part)


def _record_rows(stored: Iterable[StoredRecord], version: int) -> list[Row]:
    return [(seq, one.kind, one.version, one.payload.decode()) for seq, one in enumerate(stored, start=version + 1)]


def _change_rows(changes: Sequence[Change], version: int) -> list[Row]:
    rows: list[Row] = []
    for first in range(0, len(changes), BATCH_CHANGES_MAX):
        tasks, *others = zip(*changes[first : first + BATCH_CHANGES_MAX], strict=True)
        rows.append((version, first, _json([tasks, *map(_once_if_same, others)])))
    return rows


def _once_if_same(column: tuple[Any, ...]) -> tuple[Any, ...]:
    return column[:1] if column.count(column[0]) == len(column) else column


def _generation_row(one: Generation, version: int) -> Row:
    counts = (one.members, one.tasks, one.moves, one.lower_bound, one.warmups)
    return (
        one.number,
        version,
        one.group_epoch,
        one.at_ms,
        _json(one.triggers),
        *counts,
        one.score_before,
        one.score,
        one.decide_ms,
        _json(one.reasons),
        _json(one.moved),
    )


def _trace_rows(history: History, version: int) -> list[Row]:
    trace = history.trace
    if trace is None:
        return []
    cause = plain(history.asked.cause)
    return [(history.at_ms, version, TRACE_VERSION, trace.code, cause, encode_trace(trace).decode())]


def _command_rows(history: History) -> list[Row]:
    asked = history.asked
    if not asked.command:
        return []
    subject = subject_of(history.item) if history.item else {}
    return [(history.at_ms, plain(asked.command), plain(asked.who), _json(asked._asdict()), _json(subject))]


class _Fate(NamedTuple):
    """What records say of a member that is there already; None: nothing."""

    drains_since_ms: int | None = None
    drain_said: bool = False
    away_until_ms: int | None = None
    gone_ms: int | None = None
    cause: str | None = None


def member_rows(records: Iterable[r.Record]) -> dict[str, list[Row]]:
    """Return what records change of the list of members: those that are new, those that were there, or all of them."""
    joined: dict[MemberId, Member] = {}
    fates: dict[MemberId, _Fate] = {}
    emptied: list[Row] = []
    for record in records:
        match record:
            case r.MemberJoined(member=member):
                joined[member.id] = member
            case r.MemberGone(member_id=member_id, cause=cause, at_ms=at_ms):
                fates[member_id] = fates.get(member_id, _Fate())._replace(gone_ms=at_ms, cause=str(cause))
            case r.MemberAway(member_id=member_id, until_ms=until_ms):
                fates[member_id] = fates.get(member_id, _Fate())._replace(away_until_ms=until_ms)
            case r.DrainStarted(member_id=member_id, since_ms=since_ms):
                fates[member_id] = fates.get(member_id, _Fate())._replace(drains_since_ms=since_ms, drain_said=True)
            case r.DrainCancelled(member_id=member_id):
                fates[member_id] = fates.get(member_id, _Fate())._replace(drains_since_ms=None, drain_said=True)
            case r.GroupDeleted(at_ms=at_ms):
                emptied = [(at_ms,)]
            case _:
                pass
    return {
        "joined": [_joined_row(one, fates.pop(one.id, _Fate())) for one in joined.values()],
        "fates": [(member_id, *fate) for member_id, fate in fates.items()],
        "emptied": emptied,
    }


def _joined_row(member: Member, fate: _Fate) -> Row:
    instance = None if member.instance_id is None else plain(member.instance_id)
    endpoint = None if member.endpoint is None else plain(member.endpoint)
    return (
        member.id,
        instance,
        endpoint,
        member.capacity,
        member.joined_ms,
        fate.drains_since_ms,
        fate.away_until_ms,
        fate.gone_ms,
        fate.cause,
        _json(member.client_tags),
    )
