"""What a commit writes, as rows of each table, and the statement that appends the commits of many groups at once.

Each commit has a guard of its own. The statement moves the heads that are as their commits expect them, and adds the
rows of these commits alone. So it is one transaction and one round trip, and a guard that fails affects no other group.
Two writers of one group meet at the row of its head: the second one leaves its commit out while the first has the row,
and tries again. Instants in the rows are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.codec.records import VERSIONS, StoredRecord, encode_records, json_text
from batonpass.codec.traces import TRACE_VERSION, encode_trace
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId
from batonpass.core.state.model import Member
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit

Row = tuple[Any, ...]
BATCH_CHANGES_MAX: Final = 200
"""How many changes share one row, until sorting gives each its own. Sorting one row must not take long."""

ROW_BYTES: Final = 100
"""About how many bytes a row has beside its payloads."""


class Prepared(NamedTuple):
    """A commit in its stored form. ``rows`` has the rows of each part; ``weight`` is about how many bytes they have.

    ``heals`` says that with this commit the group has taken note that the store lost commits.
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
            (number, one.at_ms, one.type, one.generation, one.member, one.task, json_text(one.body))
            for number, one in enumerate(history.events)
        ],
    }
    rows |= member_rows(commit.records)
    weight = sum(_weight(part) for part in rows.values())
    heals = any(isinstance(one, r.EpochsRaised) for one in commit.records)
    return Prepared(commit, {name: part for name, part in rows.items() if part}, weight, heals=heals)


def plain(said: str) -> str:
    """Return a text as a column of type text can hold it: without NUL, which a caller's text may have in it."""
    return said.replace("\0", "\N{SYMBOL FOR NULL}")


def _weight(part: list[Row]) -> int:
    # Only the last column may be long.
    return sum(ROW_BYTES + len(row[-1]) if isinstance(row[-1], str) else ROW_BYTES for row in part)


def _record_rows(stored: Iterable[StoredRecord], version: int) -> list[Row]:
    return [(seq, one.kind, one.version, one.payload.decode()) for seq, one in enumerate(stored, start=version + 1)]


def _change_rows(changes: Sequence[Change], version: int) -> list[Row]:
    rows: list[Row] = []
    for first in range(0, len(changes), BATCH_CHANGES_MAX):
        tasks, *others = zip(*changes[first : first + BATCH_CHANGES_MAX], strict=True)
        rows.append((version, first, json_text([tasks, *map(_once_if_same, others)])))
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
        json_text(one.triggers),
        *counts,
        one.score_before,
        one.score,
        one.decide_ms,
        json_text(one.reasons),
        json_text(one.moved),
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
    return [
        (history.at_ms, plain(asked.command), plain(asked.who), json_text(asked._asdict()), json_text(history.subject))
    ]


class _MemberChange(NamedTuple):
    """What records change of a member that exists already; None: nothing."""

    drains_since_ms: int | None = None
    drain_said: bool = False
    away_until_ms: int | None = None
    gone_ms: int | None = None
    cause: str | None = None
    capacity: float | None = None
    client_tags: str | None = None
    endpoint: str | None = None


def member_rows(records: Iterable[r.Record]) -> dict[str, list[Row]]:
    """Return what records change in the table of members: new members, members that exist, or all of them."""
    joined: dict[MemberId, Member] = {}
    changes: dict[MemberId, _MemberChange] = {}
    emptied: list[Row] = []
    for record in records:
        match record:
            case r.MemberJoined(member=member):
                joined[member.id] = member
            case r.MemberGone(member_id=member_id, cause=cause, at_ms=at_ms):
                changes[member_id] = changes.get(member_id, _MemberChange())._replace(gone_ms=at_ms, cause=str(cause))
            case r.MemberAway(member_id=member_id, until_ms=until_ms):
                changes[member_id] = changes.get(member_id, _MemberChange())._replace(away_until_ms=until_ms)
            case r.MemberChanged(member_id=member_id, capacity=capacity, client_tags=tags, endpoint=endpoint):
                if member_id in joined:
                    member = replace(joined[member_id], capacity=capacity, client_tags=tags, endpoint=endpoint)
                    joined[member_id] = member
                changes[member_id] = changes.get(member_id, _MemberChange())._replace(
                    capacity=capacity, client_tags=json_text(tags), endpoint=_plain_or_none(endpoint)
                )
            case r.DrainStarted(member_id=member_id, since_ms=since_ms):
                changes[member_id] = changes.get(member_id, _MemberChange())._replace(
                    drains_since_ms=since_ms, drain_said=True
                )
            case r.DrainCancelled(member_id=member_id):
                changes[member_id] = changes.get(member_id, _MemberChange())._replace(
                    drains_since_ms=None, drain_said=True
                )
            case r.GroupDeleted(at_ms=at_ms):
                emptied = [(at_ms,)]
            case _:
                pass
    return {
        "joined": [_joined_row(one, changes.pop(one.id, _MemberChange())) for one in joined.values()],
        "member_changes": [(member_id, *change) for member_id, change in changes.items()],
        "emptied": emptied,
    }


def _plain_or_none(text: str | None) -> str | None:
    return None if text is None else plain(text)


def _joined_row(member: Member, change: _MemberChange) -> Row:
    instance = _plain_or_none(member.instance_id)
    return (
        member.id,
        instance,
        _plain_or_none(member.endpoint),
        member.capacity,
        member.joined_ms,
        change.drains_since_ms,
        change.away_until_ms,
        change.gone_ms,
        change.cause,
        json_text(member.client_tags),
    )


class Part(NamedTuple):
    """The rows of one table: their columns, in the order of ``rows``, and the statement that writes them.

    In ``sql`` the rows are ``r``, the commits whose guard held are ``m``, and ``$from`` joins the two.
    """

    columns: Mapping[str, str]
    sql: str


def instant(column: str) -> str:
    """Return the SQL for the exact instant of a column of milliseconds."""
    return f"(timestamptz 'epoch' + r.{column} * interval '1 millisecond')"


AT: Final = instant("at_ms")

PARTS: Final[Mapping[str, Part]] = {
    "records": Part(
        {"seq": "bigint", "kind": "text", "version": "smallint", "payload": "text"},
        "insert into record_log (group_id, seq, coordinator_epoch, kind, version, payload)"
        " select m.group_id, r.seq, m.epoch, r.kind, r.version, cast(r.payload as json) $from",
    ),
    "generations": Part(
        {
            "number": "bigint",
            "version": "bigint",
            "group_epoch": "bigint",
            "at_ms": "bigint",
            "triggers": "text",
            "members": "int",
            "tasks": "int",
            "moves": "int",
            "lower_bound": "int",
            "warmups": "int",
            "score_before": "float8",
            "score": "float8",
            "decide_ms": "float8",
            "reasons": "text",
            "moved": "text",
        },
        # Numbers are used again only after lost commits; then the later row is the one that counts.
        "insert into generations as g (group_id, number, version, group_epoch, at, triggers, members, tasks, moves,"
        " lower_bound, warmups, score_before, score, decide_ms, reasons, moved)"
        f" select m.group_id, r.number, r.version, r.group_epoch, {AT},"
        " array(select json_array_elements_text(cast(r.triggers as json))), r.members, r.tasks, r.moves,"
        " r.lower_bound, r.warmups, r.score_before, r.score, r.decide_ms, cast(r.reasons as json),"
        " cast(r.moved as json) $from"
        " on conflict (group_id, number) do update set version = excluded.version, group_epoch = excluded.group_epoch,"
        " at = excluded.at, triggers = excluded.triggers, members = excluded.members, tasks = excluded.tasks,"
        " moves = excluded.moves, lower_bound = excluded.lower_bound, warmups = excluded.warmups,"
        " score_before = excluded.score_before, score = excluded.score, decide_ms = excluded.decide_ms,"
        " reasons = excluded.reasons, moved = excluded.moved",
    ),
    "traces": Part(
        {"at_ms": "bigint", "version": "bigint", "format": "smallint", "code": "text", "cause": "text", "body": "text"},
        "insert into traces (group_id, at, version, format, code, cause, payload)"
        f" select m.group_id, {AT}, r.version, r.format, r.code, r.cause, cast(r.body as json) $from",
    ),
    "commands": Part(
        {"at_ms": "bigint", "command": "text", "who": "text", "asked": "text", "subject": "text"},
        "insert into commands (group_id, at, command, who, asked, subject)"
        f" select m.group_id, {AT}, r.command, r.who, cast(r.asked as json), cast(r.subject as json) $from",
    ),
    # Each change becomes a row later (``sorting``).
    "changes": Part(
        {"version": "bigint", "number": "int", "changes": "text"},
        "insert into change_batches (group_id, version, place, changes)"
        " select m.group_id, r.version, r.number, r.changes $from",
    ),
    "joined": Part(
        {
            "member_id": "text",
            "instance_id": "text",
            "endpoint": "text",
            "capacity": "float8",
            "joined_ms": "bigint",
            "drains_since_ms": "bigint",
            "away_until_ms": "bigint",
            "gone_ms": "bigint",
            "cause": "text",
            "client_tags": "text",
        },
        "insert into members (group_id, member_id, instance_id, endpoint, capacity, joined_at, draining_since,"
        " away_until, gone_at, cause, client_tags)"
        f" select m.group_id, r.member_id, r.instance_id, r.endpoint, r.capacity, {instant('joined_ms')},"
        f" {instant('drains_since_ms')}, {instant('away_until_ms')}, {instant('gone_ms')}, r.cause,"
        " cast(r.client_tags as json) $from"
        " on conflict (group_id, member_id) do update set instance_id = excluded.instance_id,"
        " endpoint = excluded.endpoint, capacity = excluded.capacity, joined_at = excluded.joined_at,"
        " draining_since = excluded.draining_since, away_until = excluded.away_until, gone_at = excluded.gone_at,"
        " cause = excluded.cause, client_tags = excluded.client_tags",
    ),
    "member_changes": Part(
        {
            "member_id": "text",
            "drains_since_ms": "bigint",
            "drain_said": "boolean",
            "away_until_ms": "bigint",
            "gone_ms": "bigint",
            "cause": "text",
            "capacity": "float8",
            "client_tags": "text",
            "endpoint": "text",
        },
        "update members k set"  # noqa: S608 - constants
        f" draining_since = case when r.drain_said then {instant('drains_since_ms')} else k.draining_since end,"
        f" away_until = coalesce({instant('away_until_ms')}, k.away_until),"
        f" gone_at = coalesce({instant('gone_ms')}, k.gone_at), cause = coalesce(r.cause, k.cause),"
        " capacity = coalesce(r.capacity, k.capacity),"
        " client_tags = coalesce(cast(r.client_tags as json), k.client_tags),"
        " endpoint = case when r.capacity is null then k.endpoint else r.endpoint end $from"
        " where k.group_id = m.group_id and k.member_id = r.member_id",
    ),
    "emptied": Part(
        {"at_ms": "bigint"},
        f"update members k set gone_at = {AT}, cause = 'group-deleted' $from"  # noqa: S608 - constants
        " where k.group_id = m.group_id and k.gone_at is null",
    ),
    "events": Part(
        {
            "number": "int",
            "at_ms": "bigint",
            "type": "text",
            "generation": "bigint",
            "member_id": "text",
            "task_id": "text",
            "body": "text",
        },
        # The counter stays locked to the end of the transaction: a transaction with later positions commits later.
        "insert into events (position, group_id, at, type, generation, member_id, task_id, body)"
        " select c.position - c.added + row_number() over (order by r.place, r.number), m.group_id,"
        f" {AT}, r.type, r.generation, r.member_id, r.task_id, cast(r.body as json) $from cross join counted c",
    ),
}

_OF_MEMBERS: Final = {
    "joined": "select group_id, member_id $from",
    "member_changes": "select group_id, member_id $from",
    "emptied": "select group_id, k.member_id $from join members k using (group_id) where k.gone_at is null",
}
"""Which rows of members exist, or may, that a part changes."""

ALL_PARTS: Final = frozenset(PARTS)
MOVING_PARTS: Final = frozenset({"records", "traces", "changes", "events"})
"""What heartbeats commit while tasks move. Members wait for these commits."""

PLANNED: Final = (MOVING_PARTS, MOVING_PARTS | {"generations", "joined", "member_changes"}, ALL_PARTS)
"""The sets of parts that have a statement, the narrow ones first: a batch uses the first that has all of its parts.
Each part that is not needed costs Postgres a tenth of a millisecond. But a statement for every possible set would have
to be planned on each connection."""

GUARDS: Final[Mapping[str, str]] = {
    "groups": "text",
    "expected": "bigint",
    "added": "bigint",
    "epochs": "bigint",
    "tells": "bigint",
    "heals": "boolean",
}
"""What each commit states about its group. These parameters follow the owner, which is the first one."""

_GUARDED: Final = """
    asked as (
        select * from unnest({guards}) with ordinality as a(group_id, expected, added, epoch, tells, heals, place)
    ), {members} locked as (
        -- A head that another session has locked is left out: the other groups must not wait for it.
        select h.group_id from group_heads h join asked a on a.group_id = h.group_id {are_free}
           for update of h skip locked
    ), moved as (
        update group_heads h
           set version = a.expected + a.added, coordinator_epoch = a.epoch,
               recovered_at = case when a.heals then null else h.recovered_at end
          from asked a join locked l on l.group_id = a.group_id
         where h.group_id = a.group_id and h.version = a.expected and h.coordinator_epoch <= a.epoch
           and h.owner = $1
        returning h.group_id, a.expected, a.epoch, a.tells, a.place
    )
"""
_MEMBERS: Final = """
    concerned as (
        {rows}
    ), free as (
        select k.group_id, k.member_id from members k join concerned using (group_id, member_id)
           for update of k skip locked
    ),
"""
_ARE_FREE: Final = """
    where not exists (
        select from concerned o join members using (group_id, member_id)
         where o.group_id = h.group_id and (o.group_id, o.member_id) not in (select group_id, member_id from free)
    )
"""
"""Neither must they wait for a row of a member: its group is left out, too."""
_COUNTED: Final = """
    counted as (
        insert into event_counter as e (id, position) select 1, sum(tells) from moved having sum(tells) > 0
        on conflict (id) do update set position = e.position + excluded.position
        returning e.position, (select sum(tells) from moved) as added
    )
"""


@lru_cache
def statement(parts: frozenset[str]) -> str:
    """Return the statement that writes these parts. It returns the places of the commits that it has made."""
    first = 2 + len(GUARDS)
    written, concerned = {}, []
    for name in _in_order(parts):
        kinds = ("bigint", *PARTS[name].columns.values())
        arrays = _arrays(kinds, first)
        written[name] = _step(PARTS[name], name, arrays)
        if name in _OF_MEMBERS:
            rows = f"from asked join unnest({arrays}) as r(place, {', '.join(PARTS[name].columns)}) using (place)"
            concerned.append(_OF_MEMBERS[name].replace("$from", rows))
        first += len(kinds)
    members = _MEMBERS.format(rows=" union ".join(concerned)) if concerned else ""
    are_free = _ARE_FREE if concerned else ""
    steps = [_GUARDED.format(guards=_arrays(GUARDS.values(), first=2), members=members, are_free=are_free)]
    # Postgres carries out the last one first. The counter is to be last, because other coordinators wait for it.
    if "events" in written:
        steps += [_COUNTED, written.pop("events")]
    return f"with {', '.join([*steps, *written.values()])} select place from moved"  # noqa: S608 - constants


def _in_order(parts: frozenset[str]) -> list[str]:
    return [name for name in PARTS if name in parts]


def _arrays(kinds: Iterable[str], first: int) -> str:
    return ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, start=first))


def _step(part: Part, name: str, arrays: str) -> str:
    joined = f"from unnest({arrays}) as r(place, {', '.join(part.columns)}) join moved m on m.place = r.place"
    return f"{name} as ({part.sql.replace('$from', joined)})"


def parameters(batch: Sequence[Prepared], parts: frozenset[str], owner: str) -> list[Any]:
    """Return the parameters of the statement, in order; a commit is identified by its place in the batch, from 1."""
    commits = [one.commit for one in batch]
    given: list[Any] = [
        owner,
        [commit.group_id for commit in commits],
        [commit.expected_version for commit in commits],
        [len(commit.records) for commit in commits],
        [commit.coordinator_epoch for commit in commits],
        [len(commit.history.events) for commit in commits],
        [one.heals for one in batch],
    ]
    for name in _in_order(parts):
        rows = [(place, *row) for place, one in enumerate(batch, start=1) for row in one.rows.get(name, ())]
        given += zip(*rows, strict=True) if rows else [()] * (1 + len(PARTS[name].columns))
    return given
