"""What a commit writes, as rows of each table, and the statement that appends the commits of many groups at once.

Each commit has a guard of its own. The statement moves the heads that are as their commits expect them, and adds the
rows of these commits alone. So it is one transaction and one round trip, and a guard that fails affects no other group.
Two writers of one group meet at the row of its head: the second one leaves its commit out while the first has the row,
and tries again. Instants in the rows are milliseconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import JSON, Column, DateTime, Table
from sqlalchemy.dialects.postgresql import ARRAY, dialect

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.codec.records import VERSIONS, encode_records, json_text
from batonpass.codec.traces import TRACE_VERSION, encode_trace
from batonpass.core.state import records as r
from batonpass.postgres import tables
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit

Row = tuple[Any, ...]
BATCH_CHANGES_MAX: Final = 200
"""How many changes share one row, until sorting gives each its own. Sorting one row must not take long."""

ROW_BYTES: Final = 100
"""About how many bytes a row has beside its payloads."""


class Prepared(NamedTuple):
    """A commit in its stored form. ``rows`` has the rows of each part; ``weight`` is about how many bytes they have.

    ``notes_recovery`` says that with this commit the group has taken note that the store lost commits.
    """

    commit: Commit
    rows: Mapping[str, list[Row]]
    weight: int
    notes_recovery: bool = False


def prepare(commit: Commit, up_to: Mapping[str, int] = VERSIONS) -> Prepared:
    """Return the stored form of a commit, its records in no newer versions than ``up_to`` allows.

    Raises:
        UnwritableRecord: when a record has no stored form.
    """
    stored = encode_records(commit.records, up_to)
    history, version = commit.history, commit.expected_version
    rows: dict[str, list[Row]] = {
        "records": [
            (seq, one.kind, one.version, one.payload.decode()) for seq, one in enumerate(stored, start=version + 1)
        ],
        "generations": [_generation_row(history.generation, version)] if history.generation else [],
        "traces": _trace_rows(history, version),
        "commands": _command_rows(history),
        "changes": _change_rows(history.changes, version),
        "events": [
            (one.at_ms, one.type, one.generation, one.member, one.task, json_text(one.body)) for one in history.events
        ],
    }
    weight = sum(_weight(part) for part in rows.values())
    notes_recovery = any(isinstance(one, r.EpochsRaised) for one in commit.records)
    return Prepared(commit, {name: part for name, part in rows.items() if part}, weight, notes_recovery=notes_recovery)


def plain(said: str) -> str:
    """Return a text as a column of type text can hold it: without NUL, which a caller's text may have in it."""
    return said.replace("\0", "\N{SYMBOL FOR NULL}")


def _weight(part: list[Row]) -> int:
    # Only the last column may be long.
    return sum(ROW_BYTES + len(row[-1]) if isinstance(row[-1], str) else ROW_BYTES for row in part)


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
    said, about = json_text(asked._asdict()), json_text(history.subject)
    return [(history.at_ms, plain(asked.command), plain(asked.who), said, about)]


class Part(NamedTuple):
    """The rows of one table: the types of their columns, in the order of ``rows``, and the statement that writes them.

    In ``sql`` the rows are ``r``, with ``commit``, the place of theirs in the batch, and ``nth``, their own among all.
    The commits whose guard held are ``m``, and ``$from`` joins the two.
    """

    columns: Mapping[str, str]
    sql: str


def instant(column: str) -> str:
    """Return the SQL for the exact instant of a column of milliseconds."""
    return f"(timestamptz 'epoch' + r.{column} * interval '1 millisecond')"


def _sent(column: Column[Any]) -> tuple[str, str]:
    """Return the type in which a value of a column is sent, and the SQL that makes of it what is stored."""
    match column.type:
        case DateTime():
            return "bigint", instant(column.name)
        case JSON():
            return "text", f"cast(r.{column.name} as json)"
        case ARRAY():
            return "text", f"array(select json_array_elements_text(cast(r.{column.name} as json)))"
        case kind:
            return str(kind.compile(dialect=dialect())), f"r.{column.name}"  # type: ignore[no-untyped-call]


def _insert(table: Table, *, replaces: bool = False, join: str = "", **given: str | None) -> Part:
    """Return the part that adds rows with the columns of a table, in its order.

    ``given`` has the SQL of columns that are in no row; None: the database sets it. ``replaces``: over a row of the
    same key. ``join`` is added to ``$from``.
    """
    sent = {column.name: _sent(column) for column in table.columns if column.name not in {"group_id", *given}}
    sources = {"group_id": "m.group_id"} | {name: sql for name, sql in given.items() if sql is not None}
    sources |= {name: sql for name, (_, sql) in sent.items()}
    sql = f"insert into {table.name} ({', '.join(sources)}) select {', '.join(sources.values())} $from{join}"
    if replaces:
        key = table.primary_key.columns.keys()
        others = ", ".join(f"{name} = excluded.{name}" for name in sources if name not in key)
        sql += f" on conflict ({', '.join(key)}) do update set {others}"
    return Part({name: kind for name, (kind, _) in sent.items()}, sql)


PARTS: Final[Mapping[str, Part]] = {
    "records": _insert(tables.record_log, coordinator_epoch="m.epoch", at=None),
    # Numbers are used again only after lost commits; then the later row is the one that counts.
    "generations": _insert(tables.generations, replaces=True),
    "traces": _insert(tables.traces),
    "commands": _insert(tables.commands, position=None),
    # Each change becomes a row later (``sorting``).
    "changes": _insert(tables.change_batches),
    # The counter stays locked to the end of the transaction: a transaction with later positions commits later.
    "events": _insert(
        tables.events,
        join=" cross join counted c",
        position="c.position - c.added + row_number() over (order by r.nth)",
    ),
}

ALL_PARTS: Final = frozenset(PARTS)
MOVING_PARTS: Final = frozenset({"records", "traces", "changes", "events"})
"""What heartbeats commit while tasks move. Members wait for these commits."""

PLANNED: Final = (MOVING_PARTS, MOVING_PARTS | {"generations"}, ALL_PARTS)
"""The sets of parts that have a statement, the narrow ones first: a batch uses the first that has all of its parts.
Each part that is not needed costs Postgres a tenth of a millisecond. But a statement for every possible set would have
to be planned on each connection."""

GUARDS: Final[Mapping[str, str]] = {
    "groups": "text",
    "expected": "bigint",
    "added": "bigint",
    "epochs": "bigint",
    "event_count": "bigint",
    "notes_recovery": "boolean",
}
"""What each commit states about its group. These parameters follow the owner, which is the first one."""

_GUARDED: Final = """
    asked as (
        select * from unnest({guards}) with ordinality as a(group_id, expected, added, epoch, event_count, notes_recovery, place)
    ), locked as (
        -- A head that another session has locked is left out: the other groups must not wait for it.
        select h.group_id from group_heads h join asked a on a.group_id = h.group_id
           for update of h skip locked
    ), moved as (
        update group_heads h
           set version = a.expected + a.added, coordinator_epoch = a.epoch,
               recovered_at = case when a.notes_recovery then null else h.recovered_at end
          from asked a join locked l on l.group_id = a.group_id
         where h.group_id = a.group_id and h.version = a.expected and h.coordinator_epoch <= a.epoch
           and h.owner = $1
        returning h.group_id, a.expected, a.epoch, a.event_count, a.place
    )
"""
_COUNTED: Final = """
    counted as (
        insert into event_counter as e (id, position) select 1, sum(event_count) from moved having sum(event_count) > 0
        on conflict (id) do update set position = e.position + excluded.position
        returning e.position, (select sum(event_count) from moved) as added
    )
"""


@lru_cache
def statement(parts: frozenset[str]) -> str:
    """Return the statement that writes these parts. It returns the places of the commits that it has made."""
    first = 2 + len(GUARDS)
    written = {}
    for name in _in_order(parts):
        kinds = ("bigint", *PARTS[name].columns.values())
        columns = ", ".join(PARTS[name].columns)
        joined = f"from unnest({_arrays(kinds, first)}) with ordinality as r(commit, {columns}, nth) join moved m on m.place = r.commit"
        written[name] = f"{name} as ({PARTS[name].sql.replace('$from', joined)})"
        first += len(kinds)
    steps = [_GUARDED.format(guards=_arrays(GUARDS.values(), first=2))]
    # Postgres carries out the last one first. The counter is to be last, because other coordinators wait for it.
    if "events" in written:
        steps += [_COUNTED, written.pop("events")]
    return f"with {', '.join([*steps, *written.values()])} select place from moved"  # noqa: S608 - constants


def _in_order(parts: frozenset[str]) -> list[str]:
    return [name for name in PARTS if name in parts]


def _arrays(kinds: Iterable[str], first: int) -> str:
    return ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, start=first))


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
        [one.notes_recovery for one in batch],
    ]
    for name in _in_order(parts):
        rows = [(place, *row) for place, one in enumerate(batch, start=1) for row in one.rows.get(name, ())]
        given += zip(*rows, strict=True) if rows else [()] * (1 + len(PARTS[name].columns))
    return given
