"""A day of a Kafka Streams application is audited as any other group's is, but for the what-if, which says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.audit.replayed import replayed, rows_of_table
from tests.audit.streams_day import BEGIN_MS, MINUTE_MS, REBALANCES, TASKS, lived_by_streams

from batonpass.audit.day_scenario import Sampled
from batonpass.audit.findings import Finding, finding_of
from batonpass.audit.flatten import (
    GENERATION_COLUMNS,
    RECORD_COLUMNS,
    bounds_rows,
    flatten_generations,
    flatten_records,
)
from batonpass.audit.plan import GroupPlan
from batonpass.audit.spread import KINDS, part_results
from batonpass.audit.whatif import INCOMPLETE, Facts, day_batch, recommendations, trial_batches
from batonpass.codec.records import StoredRecord
from batonpass.days.rows import EPOCH, GroupRows

END_MS = BEGIN_MS + 24 * 60 * MINUTE_MS


@pytest.fixture(scope="module")
def rows() -> GroupRows:
    """The rows of a day under Kafka's default for what lag is acceptable."""
    return lived_by_streams("g")


def _ms(at: datetime) -> int:
    return round((at - EPOCH).total_seconds() * 1_000)


def _batch(rows: GroupRows, table: str, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the rows of a table as a query of the audit brings them."""
    found = [one | {"at_ms": _ms(one["at"])} for one in rows_of_table(rows, table)]
    return pa.RecordBatch.from_pylist([{name: one[name] for name in columns} for one in found])


def _results(rows: GroupRows) -> list[dict[str, Any]]:
    """Return what comes of looking at the day, as of a part of one group."""
    plan = GroupPlan("g", base=0, known=True, first=1, last=rows.version, missing=0, ends=True)
    part = [
        *bounds_rows([plan]),
        *flatten_records([_batch(rows, "record_log", RECORD_COLUMNS)]),
        *flatten_generations([_batch(rows, "generations", GENERATION_COLUMNS)]),
    ]
    return [one for batch in part_results(part, BEGIN_MS, END_MS, frames=True) for one in batch.to_pylist()]


def _findings(rows: GroupRows) -> list[tuple[Finding, int]]:
    """Return what the laws find in the records of the day, as `superseded` takes it."""
    found = [{"group_id": "g", **one["finding"]} for one in _results(rows) if one["finding"] is not None]
    return [(finding_of(one), one["of_law"]) for one in found]


def test_every_decision_is_made_again_to_the_same(rows: GroupRows) -> None:
    again = replayed(rows)
    assert again.findings == []
    assert again.replayed == len(rows.tables["traces"]) > REBALANCES
    assert again.differing == 0
    assert len(rows.tables["assignment_events"]) > REBALANCES
    assert len(rows.tables["generations"]) > 10


def test_every_law_holds_by_the_records_alone(rows: GroupRows) -> None:
    """The day has Kafka's own assignments, processes that crash, and moves in two rebalances."""
    assert _findings(rows) == []


def test_a_copy_that_fell_behind_between_two_rebalances_is_for_the_replay_to_judge() -> None:
    """Nothing follows the next owner's copy meanwhile; by the traces it was caught up when it was chosen."""
    rows = lived_by_streams("g", 100, resizes=False)
    assert _findings(rows) == []
    assert replayed(rows).findings == []


def test_the_day_is_measured(rows: GroupRows) -> None:
    found = _results(rows)
    (day,) = [one["day"] for one in found if one["day"] is not None]
    assert day["records"] == rows.version
    assert day["generations"] == len(rows.tables["generations"])
    assert day["moves"] >= day["lower_bound"] > 0
    assert day["tasks_seen"] == TASKS
    counts = Counter(kind for one in found for kind in KINDS if one[kind] is not None)
    assert min(counts["gap"], counts["warmup"], counts["interval"]) > TASKS


def test_the_what_if_says_that_it_does_not_simulate_it(rows: GroupRows) -> None:
    records = [
        (one["seq"], _ms(one["at"]), one["coordinator_epoch"], StoredRecord(one["kind"], one["version"], payload))
        for one in rows_of_table(rows, "record_log")
        for payload in (one["payload"].encode(),)
    ]
    days = day_batch(Facts("g", Sampled(), None, records), begin_ms=BEGIN_MS, end_ms=END_MS)
    lines = [tuple(row.values()) for batch in trial_batches([days]) for row in batch.to_pylist()]
    found = recommendations(lines)
    assert found.recommendations == ()
    (notice,) = found.findings
    assert (notice.law, notice.group) == (INCOMPLETE, "g")
    assert notice.detail.endswith("the rebalances of a Kafka Streams application are not simulated")
