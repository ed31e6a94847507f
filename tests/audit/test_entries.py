"""Records and snapshots as entries, and the columns that the audit relies on: no Spark is needed to know them."""

import json
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import pytest
from tests.audit import planted

from batonpass.audit.entries import INSTANT_MOST, LAG, Entry, read_entries, read_standing
from batonpass.audit.reading import QUERIES, RECORD
from batonpass.codec.groups import GROUP_VERSION, encode_group
from batonpass.codec.records import RECORD_TYPES, StoredRecord, decode_records, encode_record
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import Grant, Group, Role
from batonpass.core.state.records import AssignmentChanged, Resumed

FIXTURE = Path(__file__).parent.parent / "fixtures" / "records-v1.jsonl"


def entries_of(stored: Iterable[StoredRecord]) -> list[Entry]:
    """Return what records changed, in the order of the log."""
    return [entry for seq, one in enumerate(stored, start=1) for entry in read_entries(seq, 1_000 * seq, 1, one)[0]]


def test_every_kind_of_record_has_its_rows() -> None:
    lines = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
    stored = [StoredRecord(one["kind"], one["version"], json.dumps(one["payload"]).encode()) for one in lines]
    assert {one.kind for one in stored} == set(RECORD_TYPES)
    places: dict[int, list[int]] = {}
    for entry in entries_of(stored):
        assert entry.what != "unreadable", entry
        assert entry.at_ms == 1_000 * entry.seq
        places.setdefault(entry.seq, []).append(entry.place)
    assert places == {seq: list(range(len(places[seq]))) for seq in range(1, len(stored) + 1)}


def test_what_a_warmup_has_to_restore_stands_beside_its_grant() -> None:
    warmup, standby = Grant(Role.WARMUP, 3, 900), Grant(Role.STANDBY, 3, 900)
    granted = {TaskId("0_1"): standby, TaskId("0_3"): warmup, TaskId("0_4"): warmup}
    record = AssignmentChanged(MemberId("m1"), 3, 900, granted, lags={TaskId("0_3"): 70})
    found = entries_of([encode_record(record)])
    assert [(one.what, one.task, one.ms) for one in found[:3]] == [
        ("standby", "0_1", 900),
        ("warmup", "0_3", 900),
        ("warmup", "0_4", 900),
    ]
    (lag,) = found[3:]
    assert (lag.what, lag.task, lag.member, lag.ms, lag.number) == (LAG, "0_3", "m1", 900, 70)


def test_a_record_that_cannot_be_read_is_an_entry_that_says_so() -> None:
    stored = [StoredRecord("from-the-future", 1, b"{}"), StoredRecord("resumed", 1, b"[")]
    assert [one.what for one in entries_of(stored)] == ["unreadable", "unreadable"]
    assert [read_entries(1, 0, 1, one)[1] for one in stored] == [None, None]
    payload = zlib.compress(b"{}")
    for form, snapshot in ((GROUP_VERSION + 1, payload), (GROUP_VERSION, payload), (GROUP_VERSION, b"no zlib")):
        (entry,), group = read_standing(7, 1, form, snapshot)
        assert group is None
        assert (entry.what, entry.seq, entry.place) == ("unreadable", 7, -1)


def test_a_number_that_cannot_be_leaves_its_record_unread() -> None:
    stored = [
        StoredRecord("warmup-stalled", 1, json.dumps({"task": "0_0", "member_id": "m", "until_ms": ms}).encode())
        for ms in NUMBERS
    ]
    last = len(NUMBERS)
    assert [(one.seq, one.place, one.what, one.until_ms) for one in entries_of(stored)] == [
        *((1, 0, "stalled", 5), (2, 0, "unreadable", None), (3, 0, "stalled", INSTANT_MOST - 1)),
        *((4, 0, "unreadable", None), (last, 0, "stalled", -5)),
    ]


def test_a_date_that_cannot_be_leaves_the_record_to_the_replay() -> None:
    """The date is of its row, not of the record."""
    entries, record = read_entries(1, INSTANT_MOST, 1, encode_record(Resumed()))
    assert [(one.what, one.at_ms, one.word) for one in entries] == [
        ("unreadable", 0, f"other: at_ms {INSTANT_MOST} is out of range")
    ]
    assert record == Resumed()


NUMBERS = (5, 2**70, INSTANT_MOST - 1, INSTANT_MOST, -5)


def test_a_snapshot_says_what_its_records_came_to() -> None:
    log = planted.lived("calm").tables["record_log"]
    stored = [StoredRecord(row[4], row[5], row[6].encode()) for row in log]
    whole = evolve(Group(GroupId("calm")), decode_records(stored))
    standing, _ = read_standing(9, 1, GROUP_VERSION, zlib.compress(encode_group(whole)))
    assert [row.place for row in standing] == list(range(-len(standing), 0))

    held: dict[tuple[str, str], str] = {}
    targets: dict[str, str] = {}
    for row in entries_of(stored):
        task, member = row.task or "", row.member or ""
        if row.what in {"active", "standby", "warmup"}:
            held[task, member] = row.what
        elif row.what in {"revoked", "demoted"}:
            held.pop((task, member), None)
        elif row.what in {"gone", "away"}:
            held = {key: role for key, role in held.items() if key[1] != member}
            # The place of who is away is kept.
            gone = member if row.what == "gone" else None
            targets = {key: meant for key, meant in targets.items() if meant != gone}
        elif row.what == "inherited":
            targets = {key: row.word or "" if meant == member else meant for key, meant in targets.items()}
        elif row.what == "target":
            targets[task] = member
    copies = {(row.task, row.member): row.what for row in standing if row.what in set(held.values())}
    assert copies == held
    assert {row.task: row.member for row in standing if row.what == "target"} == targets
    running = {row.task for row in standing if row.what == "reported" and row.word == "running"}
    assert running == {task for (task, _), role in held.items() if role == "active"}


def test_a_snapshot_says_which_tasks_are_parked() -> None:
    """A task that was parked before the day has no owner on purpose, as one that is parked on it."""
    log = planted.lived("calm").tables["record_log"]
    stored = [StoredRecord(row[4], row[5], row[6].encode()) for row in log]
    whole = evolve(Group(GroupId("calm")), decode_records(stored))
    first = min(whole.tasks)
    whole = replace(whole, tasks=whole.tasks.updated({first: whole.tasks[first].with_marks(parked=True)}))
    standing, _ = read_standing(9, 1, GROUP_VERSION, zlib.compress(encode_group(whole)))
    assert [row.task for row in standing if row.what == "parked"] == [first]


def test_a_snapshot_says_since_when_a_task_is_not_run() -> None:
    rows = planted.VARIANTS["quiet"](planted.lived("calm"), "quiet")
    ((_, version, form, _, payload),) = rows.tables["snapshots"]
    standing, _ = read_standing(version, 1, form, payload)
    ((task, word, since_ms),) = [(row.task, row.word, row.ms) for row in standing if row.what == "stopped"]
    assert (task, word) == ("0_4", "revoked")
    assert since_ms == planted.MIDNIGHT_MS + planted.QUIET_MS + 1_000


@pytest.mark.parametrize("rank", QUERIES)
def test_the_audit_and_the_schema_agree(planted_url: str, rank: int) -> None:
    sql = QUERIES[rank].replace("{where}", "true").replace("{within}", "true") + " limit 1"
    with adbc.connect(planted_url) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        found = cursor.fetch_record_batch().schema
    kinds = [str(one).removeprefix("large_") for one in found.types]
    assert kinds == ["int64", "int64" if rank == RECORD else "int32", "int64", "string", "int32", "binary"]
