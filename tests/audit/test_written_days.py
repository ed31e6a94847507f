"""The audit goes through written days: a clean one is decided again to the same, a faulty one is not. No Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.audit.small_day import DAY, SCENARIO

from batonpass.audit.replay import ORDERED, RECORD, SNAPSHOT, TRACE, replay_batches
from batonpass.days.generate import rows_of
from batonpass.days.plant import Fault, plant
from batonpass.days.rows import GroupRows, rows_of_table


@pytest.fixture(scope="module")
def rows() -> GroupRows:
    """The rows that the small day leaves."""
    return rows_of(SCENARIO, DAY)


def replayed(rows: GroupRows) -> list[dict[str, Any]]:
    """Return what the audit's replay says of a day: its findings, and the counts last."""
    usual = {"group_id": rows.group_id, "at_ms": 0, "kind": "", "form": 0, "code": "", "payload": None, "first": 1}
    found = [usual | {"version": 0, "rank": SNAPSHOT}]
    for row in rows_of_table(rows, "record_log"):
        form, payload = row["version"], row["payload"].encode()
        found.append(
            usual | {"version": row["seq"], "rank": RECORD, "kind": row["kind"], "form": form, "payload": payload}
        )
    for row in rows_of_table(rows, "traces"):
        of_trace = {"version": row["version"], "rank": TRACE, "form": row["format"], "code": row["code"]}
        found.append(usual | of_trace | {"payload": row["payload"].encode()})
    ordered = sorted(found, key=lambda one: (one["version"], one["rank"]))
    return [
        row
        for batch in replay_batches([pa.RecordBatch.from_pylist(ordered, schema=ORDERED)])
        for row in batch.to_pylist()
    ]


def test_a_clean_day_is_decided_again_to_the_same(rows: GroupRows) -> None:
    """Every traced decision is replayed, none differs, and no law is found broken."""
    *findings, counts = replayed(rows)
    assert findings == []
    assert counts["replayed"] == len(rows.tables["traces"]) > 50
    assert counts["differing"] == 0


@pytest.mark.parametrize("fault", [Fault.TWO_OWNERS, Fault.COLD_PROMOTION])
def test_what_no_core_decided_is_found(rows: GroupRows, fault: Fault) -> None:
    """Records that a defective coordinator wrote are not what the last decision leads to."""
    *findings, counts = replayed(plant(rows, [fault]))
    assert counts["differing"] == 1
    assert "L10" in {one["law"] for one in findings}


def test_a_hole_ends_the_replay(rows: GroupRows) -> None:
    """Beyond a missing record nothing can be followed, and that is said."""
    *findings, counts = replayed(plant(rows, [Fault.SEQUENCE_HOLE]))
    assert counts["replayed"] < len(rows.tables["traces"])
    assert [one["law"] for one in findings] == ["replay-incomplete"]
