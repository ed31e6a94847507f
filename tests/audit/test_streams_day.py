"""A day of a Kafka Streams application is audited as any other group's is, but for the what-if, which says so."""

from datetime import datetime

import pytest
from tests.audit.replayed import replayed, rows_of_table
from tests.audit.streams_day import BEGIN_MS, MINUTE_MS, REBALANCES, TASKS, lived_by_streams

from batonpass.audit.day_scenario import Sampled
from batonpass.audit.entries import read_entries
from batonpass.audit.fold import GroupFold
from batonpass.audit.plan import GroupPlan
from batonpass.audit.reading import RECORD, LogRow
from batonpass.audit.rows import Generation
from batonpass.audit.whatif import INCOMPLETE, day_of, recommendations
from batonpass.codec.records import StoredRecord
from batonpass.days.rows import EPOCH, GroupRows

END_MS = BEGIN_MS + 24 * 60 * MINUTE_MS


@pytest.fixture(scope="module")
def rows() -> GroupRows:
    """The rows of a day under Kafka's default for what lag is acceptable."""
    return lived_by_streams("g")


def _ms(at: datetime) -> int:
    return round((at - EPOCH).total_seconds() * 1_000)


def _folded(rows: GroupRows) -> GroupFold:
    """Return what comes of looking at the day."""
    shown = [
        Generation(
            one["number"], _ms(one["at"]), one["members"], one["tasks"], one["score"], one["moves"], one["lower_bound"]
        )
        for one in rows_of_table(rows, "generations")
    ]
    plan = GroupPlan("g", base=0, known=True, first=1, last=rows.version, missing=0, ends=True)
    fold = GroupFold(plan, BEGIN_MS, END_MS, generations=shown)
    for one in rows_of_table(rows, "record_log"):
        stored = StoredRecord(one["kind"], one["version"], one["payload"].encode())
        for entry in read_entries(one["seq"], _ms(one["at"]), one["coordinator_epoch"], stored)[0]:
            fold.take(entry)
    fold.end()
    return fold


def test_every_decision_is_made_again_to_the_same(rows: GroupRows) -> None:
    again = replayed(rows)
    assert again.kept.first() == []
    assert again.replayed == len(rows.tables["traces"]) > REBALANCES
    assert again.differing == 0
    assert len(rows.tables["assignment_events"]) > REBALANCES
    assert len(rows.tables["generations"]) > 10


def test_every_law_holds_by_the_records_alone(rows: GroupRows) -> None:
    """The day has Kafka's own assignments, processes that crash, and moves in two rebalances."""
    assert _folded(rows).kept.first() == []


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_a_copy_that_fell_behind_between_two_rebalances_is_for_the_replay_to_judge(seed: int) -> None:
    """Nothing follows the next owner's copy meanwhile; by the traces it was caught up when it was chosen."""
    rows = lived_by_streams("g", 100, resizes=False, seed=seed)
    assert _folded(rows).kept.first() == []
    assert replayed(rows).kept.first() == []


def test_the_day_is_measured(rows: GroupRows) -> None:
    fold = _folded(rows)
    assert fold.day is not None
    day = fold.day.measures
    assert day["records"] == rows.version
    assert day["generations"] == len(rows.tables["generations"])
    assert (day["moves"] or 0) >= (day["lower_bound"] or 0) > 0
    assert sum(one.seen for one in fold.ledger.tasks.values()) == TASKS
    assert min(len(fold.gaps), len(fold.warmups), len(fold.intervals)) > TASKS


def test_the_what_if_says_that_it_does_not_simulate_it(rows: GroupRows) -> None:
    log = [
        LogRow(one["seq"], RECORD, one["coordinator_epoch"], _ms(one["at"]), one["kind"], one["version"], payload)
        for one in rows_of_table(rows, "record_log")
        for payload in (one["payload"].encode(),)
    ]
    day = day_of("g", log, Sampled(), begin_ms=BEGIN_MS, end_ms=END_MS)
    found = recommendations({"g": day}, {}, {})
    assert found.recommendations == ()
    (notice,) = found.findings
    assert (notice.law, notice.group) == (INCOMPLETE, "g")
    assert notice.detail.endswith("the rebalances of a Kafka Streams application are not simulated")
