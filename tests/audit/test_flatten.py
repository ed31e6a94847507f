"""Records and snapshots as flat rows, and the columns that the audit relies on: no Spark is needed to know them."""

from __future__ import annotations

import gc
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pytest
from tests.audit import planted

from batonpass.audit import tables
from batonpass.audit.flatten import (
    CHANGES,
    INSTANT_MOST,
    LAG,
    RECORD_COLUMNS,
    SNAPSHOT_COLUMNS,
    flatten_records,
    flatten_snapshots,
)
from batonpass.codec.groups import GROUP_VERSION, encode_group
from batonpass.codec.records import RECORD_TYPES, StoredRecord, decode_records, encode_record
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import Grant, Group, Role
from batonpass.core.state.records import AssignmentChanged

FIXTURE = Path(__file__).parent.parent / "fixtures" / "records-v1.jsonl"


def rows_of(batches: Any) -> list[dict[str, Any]]:
    """Return the rows of batches, which have the agreed columns."""
    found = list(batches)
    assert all(batch.schema.equals(CHANGES) for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


def records(stored: list[tuple[str, int, str]]) -> pa.RecordBatch:
    """Return records as they are read from the log."""
    rows = [("g", seq, 1_000 * seq, 1, *one) for seq, one in enumerate(stored, start=1)]
    return pa.RecordBatch.from_pylist([dict(zip(RECORD_COLUMNS, row, strict=True)) for row in rows])


def test_every_kind_of_record_has_its_rows() -> None:
    lines = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
    stored = [(one["kind"], one["version"], json.dumps(one["payload"])) for one in lines]
    assert {kind for kind, _, _ in stored} == set(RECORD_TYPES)
    places: dict[int, list[int]] = {}
    for row in rows_of(flatten_records([records(stored)])):
        assert row["what"] != "unreadable", row
        assert row["at_ms"] == 1_000 * row["seq"]
        places.setdefault(row["seq"], []).append(row["place"])
    assert places == {seq: list(range(len(places[seq]))) for seq in range(1, len(stored) + 1)}


def test_what_a_warmup_has_to_restore_stands_beside_its_grant() -> None:
    warmup, standby = Grant(Role.WARMUP, 3, 900), Grant(Role.STANDBY, 3, 900)
    granted = {TaskId("0_1"): standby, TaskId("0_3"): warmup, TaskId("0_4"): warmup}
    stored = encode_record(AssignmentChanged(MemberId("m1"), 3, 900, granted, lags={TaskId("0_3"): 70}))
    found = rows_of(flatten_records([records([(stored.kind, stored.version, stored.payload.decode())])]))
    assert [(row["what"], row["task"], row["ms"]) for row in found[:3]] == [
        ("standby", "0_1", 900),
        ("warmup", "0_3", 900),
        ("warmup", "0_4", 900),
    ]
    (lag,) = found[3:]
    assert (lag["what"], lag["task"], lag["member"], lag["ms"], lag["number"]) == (LAG, "0_3", "m1", 900, 70)


def test_a_record_that_cannot_be_read_becomes_a_row_that_says_so() -> None:
    rows = rows_of(flatten_records([records([("from-the-future", 1, "{}"), ("resumed", 1, "[")])]))
    assert [row["what"] for row in rows] == ["unreadable", "unreadable"]
    payload = zlib.compress(b"{}")
    for form, stored in ((GROUP_VERSION + 1, payload), (GROUP_VERSION, payload), (GROUP_VERSION, b"no zlib")):
        columns = dict(zip(SNAPSHOT_COLUMNS, ("g", 7, 1, form, stored), strict=True))
        (row,) = rows_of(flatten_snapshots([pa.RecordBatch.from_pylist([columns])]))
        assert (row["what"], row["seq"], row["place"]) == ("unreadable", 7, -1)


def test_a_number_that_cannot_be_leaves_its_record_unread() -> None:
    stored = [("warmup-stalled", 1, json.dumps({"task": "0_0", "member_id": "m", "until_ms": ms})) for ms in NUMBERS]
    found = [
        (row["seq"], row["place"], row["what"], row["until_ms"]) for row in rows_of(flatten_records([records(stored)]))
    ]
    last = len(NUMBERS)
    assert sorted(found) == [
        *((1, 0, "stalled", 5), (2, 0, "unreadable", None), (3, 0, "stalled", INSTANT_MOST - 1)),
        *((4, 0, "unreadable", None), (last, 0, "stalled", -5)),
    ]


NUMBERS = (5, 2**70, INSTANT_MOST - 1, INSTANT_MOST, -5)


def test_a_snapshot_says_what_its_records_came_to() -> None:
    log = planted.lived("calm").tables["record_log"]
    stored = [StoredRecord(row[4], row[5], row[6].encode()) for row in log]
    whole = evolve(Group(GroupId("calm")), decode_records(stored))
    columns = dict(
        zip(SNAPSHOT_COLUMNS, ("calm", 9, 1, GROUP_VERSION, zlib.compress(encode_group(whole))), strict=True)
    )
    standing = rows_of(flatten_snapshots([pa.RecordBatch.from_pylist([columns])]))
    assert [row["place"] for row in standing] == list(range(-len(standing), 0))

    held: dict[tuple[str, str], str] = {}
    targets: dict[str, str] = {}
    for row in rows_of(flatten_records([records([(one.kind, one.version, one.payload.decode()) for one in stored])])):
        task, member = row["task"], row["member"]
        if row["what"] in {"active", "standby", "warmup"}:
            held[task, member] = row["what"]
        elif row["what"] in {"revoked", "demoted"}:
            held.pop((task, member), None)
        elif row["what"] in {"gone", "away"}:
            held = {key: role for key, role in held.items() if key[1] != member}
            # The place of who is away is kept.
            gone = member if row["what"] == "gone" else None
            targets = {key: meant for key, meant in targets.items() if meant != gone}
        elif row["what"] == "inherited":
            targets = {key: row["word"] if meant == member else meant for key, meant in targets.items()}
        elif row["what"] == "target":
            targets[task] = member
    copies = {(row["task"], row["member"]): row["what"] for row in standing if row["what"] in set(held.values())}
    assert copies == held
    assert {row["task"]: row["member"] for row in standing if row["what"] == "target"} == targets
    running = {row["task"] for row in standing if row["what"] == "reported" and row["word"] == "running"}
    assert running == {task for (task, _), role in held.items() if role == "active"}


def test_a_snapshot_says_which_tasks_are_parked() -> None:
    """A task that was parked before the day has no owner on purpose, as one that is parked on it."""
    log = planted.lived("calm").tables["record_log"]
    stored = [StoredRecord(row[4], row[5], row[6].encode()) for row in log]
    whole = evolve(Group(GroupId("calm")), decode_records(stored))
    first = min(whole.tasks)
    whole = replace(whole, tasks=whole.tasks.updated({first: whole.tasks[first]._replace(parked=True)}))
    columns = dict(
        zip(SNAPSHOT_COLUMNS, ("calm", 9, 1, GROUP_VERSION, zlib.compress(encode_group(whole))), strict=True)
    )
    standing = rows_of(flatten_snapshots([pa.RecordBatch.from_pylist([columns])]))
    assert [row["task"] for row in standing if row["what"] == "parked"] == [first]


def test_a_snapshot_says_since_when_a_task_is_not_run() -> None:
    rows = planted.VARIANTS["quiet"](planted.lived("calm"), "quiet")
    ((_, version, form, _, payload),) = rows.tables["snapshots"]
    columns = dict(zip(SNAPSHOT_COLUMNS, ("quiet", version, 1, form, payload), strict=True))
    standing = rows_of(flatten_snapshots([pa.RecordBatch.from_pylist([columns])]))
    ((task, word, since_ms),) = [(row["task"], row["word"], row["ms"]) for row in standing if row["what"] == "stopped"]
    assert (task, word) == ("0_4", "revoked")
    assert since_ms == planted.MIDNIGHT_MS + planted.QUIET_MS + 1_000


@pytest.mark.parametrize(
    "name", ["records", "snapshots", "generations", "traces", "warmups", "histories", "whole_generations"]
)
def test_the_audit_and_the_schema_agree(planted_url: str, name: str) -> None:
    wanted = tables.SCHEMAS[name]
    select = tables.SELECTS[name].replace("{within}", "true")
    sql = f"select {', '.join(wanted.names)} from ({select}) as whole limit 1"  # noqa: S608 - constants
    with adbc.connect(planted_url) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        found = cursor.fetch_record_batch().schema
    assert found.names == wanted.names
    for column in wanted:
        assert str(found.field(column.name).type).removeprefix("large_") == str(column.type), column.name


def test_the_collection_of_garbage_goes_on_when_all_is_read() -> None:
    whole = flatten_records([])
    assert list(whole) == []
    assert gc.isenabled()
    broken = flatten_records(iter([None]))
    with pytest.raises(AttributeError):
        next(broken)
    assert gc.isenabled()
