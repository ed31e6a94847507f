"""Overlapping owners and downtime come to the same in DuckDB and in Spark's own SQL, on whatever days."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.audit import in_spark_sql
from tests.audit.by_hand import BEGIN_MS, Row, row

from batonpass.audit import checks, downtime, timeline
from batonpass.audit.flatten import CHANGES, bounds_rows, topology_word
from batonpass.audit.part import Part
from batonpass.audit.plan import GroupPlan
from batonpass.core.state.model import Subtopology, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(300)]

END_MS = BEGIN_MS + 86_400_000
GROUPS = 300
RECORDS = 80
TOPOLOGY = topology_word(Topology(1, (Subtopology("0", 1, stateful=True), Subtopology("1", 1, stateful=False))))
PATIENCE = json.dumps({"session_timeout_ms": 45_000, "suspect_timeout_ms": 2_000})
KINDS = (
    *(("active", 8), ("reported", 12), ("revoked", 5), ("released", 5), ("standby", 2), ("warmup", 3), ("demoted", 2)),
    *(("gone", 3), ("away", 1), ("joined", 3), ("waived", 1), ("adopted", 1), ("dropped", 1), ("target", 2)),
    *(("next-owner", 2), ("parked", 0.3), ("deleted", 0.3), ("suspected", 1), ("stalled", 1), ("other", 1)),
)


def random_day(group: str, chance: random.Random) -> list[Row]:
    """Return the rows of a log that no coordinator would write: anything that befalls two tasks and three members."""
    kinds, weights = zip(*KINDS, strict=True)
    rows = [row(1, "config", word=PATIENCE), row(1, "topology", place=1, word=TOPOLOGY)]
    if chance.random() < 0.3:
        rows += [row(0, what, chance.choice("abc"), "0_0", place=place, until_ms=BEGIN_MS + chance.randrange(10**6))
                 for place, what in ((-2, "stopped"), (-1, "unreleased"))]  # fmt: skip
    ms, token = BEGIN_MS - 1_000_000, 0
    for seq in range(2, RECORDS):
        what = chance.choices(kinds, weights)[0]
        ms += chance.choice((0, 40, 3_000, 50_000, 700_000))
        token += chance.choice((1, 1, 1, 1, 0, -1))
        columns: dict[str, Any] = {"ms": ms, "at_ms": ms, "until_ms": ms + chance.choice((-1, 0, 30_000, 900_000))}
        if what in {"active", "adopted"}:
            columns |= {"token": token, "ready": chance.random() < 0.6}
        if what in {"gone", "waived"} and chance.random() < 0.7:
            columns |= {"number": ms - chance.choice((0, 2_000, 45_000))}
        if what == "reported":
            columns |= {"word": chance.choice(("running", "running", "restoring", "failed", "lost"))}
        if what in {"gone", "joined"}:
            columns |= {
                "word": chance.choice(("expired", "fenced", "left")) if what == "gone" else chance.choice((None, "i"))
            }
        of_group = what in {"gone", "away", "joined", "suspected", "deleted", "other"}
        member = None if what in {"deleted", "parked", "other"} else chance.choice("abc")
        rows.append(row(seq, what, member, None if of_group else chance.choice(("0_0", "1_0")), **columns))
    return [one | {"group_id": group} for one in rows]


def sorted_rows(rows: list[Row]) -> list[str]:
    """Return rows in an order of their own."""
    return sorted(str(sorted(one.items())) for one in rows)


def test_duckdb_and_spark_sql_come_to_the_same_on_random_days(spark: SparkSession) -> None:
    chance = random.Random(0)
    groups = [GroupPlan(f"g{number}", 0, True, 1, RECORDS - 1, 0) for number in range(GROUPS)]
    rows = pa.RecordBatch.from_pylist(
        [one for part in groups for one in random_day(part.group, chance)], schema=CHANGES
    )
    with Part([rows, *bounds_rows(groups)], BEGIN_MS, END_MS) as part:
        for step in (*timeline.STEPS, checks.stateless, checks.doubtful, *downtime.STEPS):
            step(part)
        doubtful = part.rows(f"select {', '.join(in_spark_sql.DOUBTFUL)} from doubtful")  # noqa: S608 - our own words
        gaps = part.rows("select * from gaps")
    changes = spark.createDataFrame(pa.Table.from_batches([rows]))
    in_spark_sql.followed(changes)
    assert sorted_rows(in_spark_sql.doubtful(changes).toArrow().to_pylist()) == sorted_rows(doubtful)
    assert sorted_rows(in_spark_sql.gaps(changes, BEGIN_MS, END_MS).toArrow().to_pylist()) == sorted_rows(gaps)
    # Not of two empty lists: grants of every kind were doubtful, and there were gaps of every cause.
    assert Counter(one["may_run"] > 1 for one in doubtful).keys() == {True, False}
    assert {one["cause"] for one in gaps} == {"warm-handover", "failover", "cold-start", "restart", "stuck"}
