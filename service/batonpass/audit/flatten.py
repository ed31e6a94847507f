"""Records and snapshots as flat rows, one for each thing that changed, for windows and joins to work on.

The codec decodes, so that what old programs wrote is read as well; nothing here folds or decides. Damage of any kind
becomes an error of the one record that has it: a coordinator may refuse a group that it cannot read completely, but the
audit looks at all groups. Runs on the executors.
"""

from __future__ import annotations

import gc
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypedDict, Unpack

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from batonpass.audit.plan import GroupPlan
from batonpass.codec.groups import UnreadableGroup, decode_group
from batonpass.codec.records import StoredRecord, UnreadableRecord, decode_record
from batonpass.codec.traces import UnreadableTrace
from batonpass.core.state import records as r
from batonpass.core.state.errors import InvalidConfig
from batonpass.core.state.model import ActiveState, Group, Role, Topology
from batonpass.core.state.policy import GroupConfig, parse_config
from batonpass.core.state.records import Record

Row = tuple[Any, ...]
Rows = list[Row]

RECORD_COLUMNS: Final = ("group_id", "seq", "at_ms", "coordinator_epoch", "kind", "version", "payload")
SNAPSHOT_COLUMNS: Final = ("group_id", "version", "at_ms", "format", "payload")

CHANGES: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("seq", pa.int64()),
        ("place", pa.int32()),
        ("at_ms", pa.int64()),
        ("coordinator_epoch", pa.int64()),
        ("what", pa.string()),
        ("task", pa.string()),
        ("member", pa.string()),
        ("ms", pa.int64()),
        ("number", pa.int64()),
        ("token", pa.int64()),
        ("until_ms", pa.int64()),
        ("ready", pa.bool_()),
        ("word", pa.string()),
    ]
)
"""One row for each thing that changed. ``seq`` is the record, ``place`` orders the rows of one record; each record has
a row of place 0. ``at_ms`` is when it was appended, ``ms`` the time in the record itself (else ``at_ms``). Rows of the
snapshot that the reading starts from have its version as ``seq``, and places below 0.

``what`` changed decides what the other columns mean. Not listed: ``task`` and ``member``, which some rows have.

| ``what`` | |
|---|---|
| active, standby, warmup | ``number``: the member's epoch. Of active ``token``, and ``ready``: its copy was caught up |
| revoked, demoted | ``number``: the member's epoch |
| adopted, dropped | after lost commits; of an adopted one ``token`` |
| reported, stopped | ``word``: the state of the active; how the last run ended |
| released, waived | the member confirmed; the group no longer waits for it |
| unreleased | at the snapshot the group still waited for the member; ``until_ms``: until when |
| next-owner, parked | |
| stalled | ``until_ms``: until then no warmup is tried there |
| placed | ``number``: generation, ``token``: changed targets, ``until_ms``: moves, ``word``: lower bound |
| target | ``number``: the generation, ``word``: why the task waits |
| joined, raised | ``number``: the member's epoch. Of joined ``word``: its instance id |
| gone, away, deleted | ``until_ms``: when the lease, or the grace, ends. Of gone ``word``: the cause |
| inherited | ``word``: the successor |
| drain, undrain, suspected, cleared | of a drain ``until_ms``: its deadline |
| config, topology | ``word``: as JSON |
| probe | ``until_ms``: when it is due |
| other, unreadable | ``word``: the kind of record; why it cannot be read |
"""

BOUNDS, GENERATION, LAG = "bounds", "generation", "lag"
"""Rows of the same shape that are no change: where the day of a group begins and ends (``bounds_rows``), a generation
as readers are shown it, and how far a warmup had come, when it was granted or at a sample."""

GENERATION_COLUMNS: Final = (
    *("group_id", "number", "version", "at_ms", "members", "tasks", "moves", "lower_bound", "score"),
)
LAG_COLUMNS: Final = ("group_id", "at_ms", "task", "member", "lag")

ROWS_PER_BATCH: Final = 20_000
OTHER: Final = "other"
UNREADABLE: Final = "unreadable"
_PLACE, _AT_MS, _WHAT = 2, 3, 5

NUMBER_MOST: Final = 2**62
"""No token, epoch or generation gets so high; 64 bits hold one more, and the difference of two."""
INSTANT_MOST: Final = 253_402_300_800_000
"""The end of the year 9999, in milliseconds since 1970."""
MOST: Final = {
    **dict.fromkeys(("number", "token"), NUMBER_MOST),
    **dict.fromkeys(("at_ms", "ms", "until_ms"), INSTANT_MOST),
}
"""What the numbers of a row stay below."""
_PLACES: Final = {CHANGES.get_field_index(name): most for name, most in MOST.items() if name != "at_ms"}


DAMAGE: Final = (
    *(UnreadableRecord, UnreadableGroup, UnreadableTrace, InvalidConfig, zlib.error),
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
)
"""The errors of reading damaged data, and of working with impossible values in it."""

SETTING_MOST: Final = 2**40
"""Settings that are used in calculations stay far below."""


def read_record(stored: StoredRecord) -> Record:
    """Return the record that was stored.

    Raises:
        Exception: one of ``DAMAGE``.
    """
    record = decode_record(stored)
    if isinstance(record, r.GroupDeclared | r.ConfigChanged):
        _check_settings(record.config)
    return record


def read_group(form: int, payload: bytes) -> Group:
    """Return the group that a snapshot holds.

    Raises:
        Exception: one of ``DAMAGE``.
    """
    group = decode_group(form, zlib.decompress(payload))
    _check_settings(group.config)
    return group


def _check_settings(config: GroupConfig) -> None:
    """Check settings: the codec takes any text for a number or a share, and whole numbers of any size."""
    parse_config({name: getattr(config, name) for name in ("max_warmup_replicas", "max_drain_warmups")})
    for name in ("max_warmups_per_member", "session_timeout_ms", "suspect_timeout_ms"):
        if not -SETTING_MOST < getattr(config, name) < SETTING_MOST:
            raise ValueError(f"config.{name}: {getattr(config, name)} is out of range")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no cyclic garbage meanwhile: rows have no cycles, and the search took 23 to 43 % of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def flatten_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of CHANGES that follow from records (``RECORD_COLUMNS``).

    Until the last of them was taken the interpreter collects no cyclic garbage.
    """
    with _uncollected():
        yield from _flat_records(batches)


def _flat_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows: Rows = []
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in RECORD_COLUMNS)
        for group, seq, at_ms, epoch, kind, version, payload in zip(*columns, strict=True):
            _append(rows, (group, seq), (at_ms, epoch), StoredRecord(kind, version, payload.encode()))
            if len(rows) >= ROWS_PER_BATCH:
                yield _batch(rows)
                rows = []
    if rows:
        yield _batch(rows)


def flatten_snapshots(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of CHANGES that give the state at a snapshot (``SNAPSHOT_COLUMNS``)."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in SNAPSHOT_COLUMNS)
        for group_id, version, at_ms, form, payload in zip(*columns, strict=True):
            rows: Rows = []
            try:
                said = list(_standing(read_group(form, payload), at_ms))
            except DAMAGE as error:
                said = [_line(UNREADABLE, at_ms, word=str(error)[:200])]
            for place, one in enumerate(said, start=-len(said)):
                rows.append((group_id, version, place, at_ms, 0, *one))
            whole = _batch(rows)
            for begin in range(0, len(rows), ROWS_PER_BATCH):
                yield whole.slice(begin, ROWS_PER_BATCH)


def flatten_generations(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of CHANGES that say which generations readers are shown (``GENERATION_COLUMNS``)."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in GENERATION_COLUMNS)
        rows: Rows = []
        for group, number, version, at_ms, members, tasks, moves, lower_bound, score in zip(*columns, strict=True):
            word = json.dumps({"members": members, "tasks": tasks, "score": score})
            said = _line(GENERATION, at_ms, number=number, token=moves, until_ms=lower_bound, word=word)
            rows.append((group, version, 0, at_ms, 0, *said))
        if rows:
            yield _batch(rows)


def flatten_lags(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of CHANGES that say how far warmups had come (``LAG_COLUMNS``)."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in LAG_COLUMNS)
        rows = [
            (group, 0, 0, at_ms, 0, *_line(LAG, at_ms, task=task, member=member, number=lag))
            for group, at_ms, task, member, lag in zip(*columns, strict=True)
        ]
        if rows:
            yield _batch(rows)


def bounds_rows(groups: Iterable[GroupPlan]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of CHANGES that say where the day of each group begins and ends, and what is known before it."""
    rows: Rows = []
    for one in groups:
        said = _line(BOUNDS, 0, number=one.base, token=one.last, ready=one.known)
        rows.append((one.group, one.first, 0, 0, one.base_epoch, *said))
    if rows:
        yield _arrow(rows)


def _batch(rows: Rows) -> pa.RecordBatch:
    """Return rows of whole records as one batch; a record with an impossible number has one row that says so."""
    try:
        batch = _arrow(rows)
    except OverflowError:
        return _arrow(_without_damage(rows))
    for column, most in MOST.items():
        found = pc.min_max(batch.column(column)).as_py()
        if found["max"] is not None and not -most < found["min"] <= found["max"] < most:
            return _arrow(_without_damage(rows))
    return batch


def _arrow(rows: Rows) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, CHANGES.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)


def check_numbers(record: Record, at_ms: int) -> None:
    """Check the numbers of a record.

    Raises:
        ValueError: when one is out of range, so that the record is not among the rows.
    """
    found = _LINES.get(type(record))
    for row in () if found is None else found(record, at_ms):
        for index, most in _PLACES.items():
            value = row[index - _WHAT]
            if value is not None and not -most < value < most:
                raise ValueError(f"{row[0]}: {CHANGES.names[index]} {value} is out of range")


def _without_damage(rows: Rows) -> Rows:
    """Return rows; those of a record with a number out of range are replaced by one row that says so."""
    found: dict[tuple[str, int, bool], Row] = {}
    for row in rows:
        for index, most in {**_PLACES, _AT_MS: INSTANT_MOST}.items():
            value = row[index]
            if value is not None and not -most < value < most:
                # A row that is not of a record has a place behind the first one of a record.
                place = 1 if row[_WHAT] in (GENERATION, LAG) else min(0, row[_PLACE])
                at_ms = row[_AT_MS] if -INSTANT_MOST < row[_AT_MS] < INSTANT_MOST else 0
                said = f"{row[_WHAT]}: {CHANGES.names[index]} {value} is out of range"
                found.setdefault(
                    (*row[:2], place > 0), (*row[:2], place, at_ms, row[4], *_line(UNREADABLE, at_ms, word=said[:200]))
                )
    sound = [row for row in rows if (*row[:2], row[_WHAT] in (GENERATION, LAG)) not in found]
    return sound + list(found.values())


def _append(rows: Rows, key: tuple[str, int], at: tuple[int, int], stored: StoredRecord) -> None:
    at_ms, epoch = at
    try:
        record = read_record(stored)
        found = _LINES.get(type(record))
        said = [] if found is None else found(record, at_ms)
    except DAMAGE as error:
        rows.append((*key, 0, at_ms, epoch, *_line(UNREADABLE, at_ms, word=str(error)[:200])))
        return
    if not said:
        rows.append((*key, 0, at_ms, epoch, OTHER, None, None, at_ms, None, None, None, None, stored.kind))
    for place, one in enumerate(said):
        rows.append((*key, place, at_ms, epoch, *one))


class _Said(TypedDict, total=False):
    task: str | None
    member: str | None
    number: int | None
    token: int | None
    until_ms: int | None
    ready: bool | None
    word: str | None


def _line(what: str, ms: int, **said: Unpack[_Said]) -> Row:
    get = said.get
    numbers = (get("number"), get("token"), get("until_ms"))
    return (what, get("task"), get("member"), ms, *numbers, get("ready"), get("word"))


def _assignment_changed(record: r.AssignmentChanged, _at_ms: int) -> Rows:
    member, epoch, ms = record.member_id, record.epoch, record.at_ms
    rows: Rows = [("revoked", task, member, ms, epoch, None, None, None, None) for task in record.revoked]
    rows += [("demoted", task, member, ms, epoch, None, None, None, None) for task in record.demoted]
    ready = record.ready
    for task, grant in record.granted.items():
        rows.append((grant.role.value, task, member, ms, epoch, grant.token, None, task in ready, None))
    rows += [(LAG, task, member, ms, lag, None, None, None, None) for task, lag in record.lags.items()]
    return rows


def _placed(record: r.TargetPlaced, _at_ms: int) -> Rows:
    ms, number = record.at_ms, record.generation
    rows: Rows = [
        _line(
            "placed", ms, number=number, token=len(record.changes), until_ms=record.moves, word=str(record.lower_bound)
        )
    ]
    rows += [("target", task, to[0], ms, number, None, None, None, to[2]) for task, to in record.changes.items()]
    return rows


def _adopted(record: r.TasksAdopted, _at_ms: int) -> Rows:
    member, ms = record.member_id, record.at_ms
    rows: Rows = [("dropped", task, member, ms, None, None, None, None, None) for task in record.dropped]
    for task, token in record.tokens.items():
        rows.append(("adopted", task, member, ms, None, token, None, True, ActiveState.RUNNING.value))
    return rows


def _joined(record: r.MemberJoined, _at_ms: int) -> Rows:
    member, drain = record.member, record.member.drain
    joined = _line("joined", member.joined_ms, member=member.id, number=member.epoch, word=member.instance_id)
    return [joined] if drain is None else [joined, _line("drain", drain.since_ms, member=member.id)]


def _raised(record: r.EpochsRaised, at_ms: int) -> Rows:
    return [_line("raised", at_ms, member=member, number=epoch) for member, epoch in record.epochs.items()]


def config_word(config: GroupConfig) -> str:
    """Return the settings of a group as JSON."""
    return msgspec.json.encode(config).decode()


def topology_word(topology: Topology) -> str:
    """Return the parts of a topology as JSON: id, partitions, whether it has state."""
    return json.dumps([[one.id, one.partitions or 0, one.stateful] for one in topology.subtopologies])


def _declared(record: r.GroupDeclared, _at_ms: int) -> Rows:
    return [
        _line("config", record.at_ms, word=config_word(record.config)),
        _line("topology", record.at_ms, word=topology_word(record.topology)),
    ]


_LINES: Final[Mapping[type[Any], Callable[[Any, int], Rows]]] = {
    r.AssignmentChanged: _assignment_changed,
    r.TargetPlaced: _placed,
    r.TasksAdopted: _adopted,
    r.MemberJoined: _joined,
    r.EpochsRaised: _raised,
    r.GroupDeclared: _declared,
    r.ConfigChanged: lambda one, at: [_line("config", at, word=config_word(one.config))],
    r.TopologyChanged: lambda one, at: [_line("topology", at, word=topology_word(one.topology))],
    r.GroupDeleted: lambda one, _: [_line("deleted", one.at_ms, until_ms=one.lease_end_ms)],
    r.MemberGone: lambda one, _: [
        _line(
            "gone",
            one.at_ms,
            member=one.member_id,
            number=one.heard_ms,
            until_ms=one.lease_end_ms,
            word=one.cause.value,
        )
    ],
    r.MemberAway: lambda one, _: [_line("away", one.at_ms, member=one.member_id, until_ms=one.until_ms)],
    r.PlaceInherited: lambda one, at: [_line("inherited", at, member=one.member_id, word=one.successor)],
    r.DrainStarted: lambda one, _: [_line("drain", one.since_ms, member=one.member_id, until_ms=one.deadline_ms)],
    r.DrainCancelled: lambda one, at: [_line("undrain", at, member=one.member_id)],
    r.MemberSuspected: lambda one, at: [_line("suspected", at, member=one.member_id)],
    r.SuspicionCleared: lambda one, at: [_line("cleared", at, member=one.member_id)],
    r.TaskReleased: lambda one, at: [_line("released", one.at_ms or at, task=one.task, member=one.member_id)],
    r.ReleaseWaived: lambda one, at: [_line("waived", at, task=one.task, member=one.member_id, number=one.heard_ms)],
    r.NextOwnerChosen: lambda one, at: [_line("next-owner", at, task=one.task, member=one.next_owner)],
    r.ActiveReported: lambda one, _: [
        ("reported", one.task, one.member_id, one.at_ms, None, None, None, None, one.state.value)
    ],
    r.WarmupStalled: lambda one, at: [_line("stalled", at, task=one.task, member=one.member_id, until_ms=one.until_ms)],
    r.TaskParked: lambda one, at: [_line("parked", at, task=one.task)],
    # What an application has no longer is granted to nobody, like what is parked.
    r.TasksEnded: lambda one, at: [_line("parked", at, task=task) for task in one.tasks],
    r.ProbeScheduled: lambda one, at: [_line("probe", at, until_ms=one.at_ms)],
}


def _standing(group: Group, at_ms: int) -> Iterator[Row]:
    """Yield the state at a snapshot, in the words of the records that would have led to it."""
    yield _line("config", at_ms, word=config_word(group.config))
    yield _line("topology", at_ms, word=topology_word(group.topology))
    if group.next_probe_ms is not None:
        yield _line("probe", at_ms, until_ms=group.next_probe_ms)
    yield _line("placed", at_ms, number=group.generation, token=0, until_ms=0, word="0")
    for task_id, task in sorted(group.tasks.items()):
        # A task without an owner keeps the state of its last one.
        runs = task.owner is not None and task.state is ActiveState.RUNNING
        if task.stop is not None and task.stop.at_ms is not None and not runs:
            yield _line(
                "stopped",
                task.stop.at_ms,
                task=task_id,
                member=task.stop.member_id,
                number=task.stop.heard_ms,
                word=task.stop.cause,
            )
        if task.parked:
            yield _line("parked", at_ms, task=task_id)
    for member_id, member in sorted(group.members.items()):
        yield _line("joined", member.joined_ms, member=member_id, number=member.epoch, word=member.instance_id)
        if member.drain is not None:
            yield _line("drain", member.drain.since_ms, member=member_id, until_ms=member.drain.deadline_ms)
        if member.suspected:
            yield _line("suspected", at_ms, member=member_id)
        for task_id, grant in sorted(member.assignment.items()):
            yield (grant.role.value, task_id, member_id, grant.since_ms, None, grant.token, None, True, None)
            owned = group.tasks.get(task_id)
            if grant.role is Role.ACTIVE and owned is not None and owned.state is not ActiveState.GRANTED:
                yield _line("reported", owned.since_ms, task=task_id, member=member_id, word=owned.state.value)
    for task_id, task in sorted(group.tasks.items()):
        for entry in task.unreleased:
            yield _line("unreleased", at_ms, task=task_id, member=entry.member_id, until_ms=entry.free_at_ms)
        if task.target is not None:
            yield _line("target", at_ms, task=task_id, member=task.target)
        if task.next_owner is not None:
            yield _line("next-owner", at_ms, task=task_id, member=task.next_owner)
