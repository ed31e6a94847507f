"""Gaps have the cause that they had: who was killed did not hand over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.audit.planted import DAY, HOUR_MS, MIDNIGHT_MS, MINUTE_MS, STEPS, scenario

from batonpass.audit.flatten import CHANGES, RECORD_COLUMNS, flatten_records
from batonpass.audit.plan import DayPlan
from batonpass.core.policy import GroupConfig
from batonpass.days.generate import rows_of
from batonpass.days.rows import EPOCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from batonpass.simulate.staged.model import Scenario

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]

KILLED_MS = 60 * MINUTE_MS
HEARTBEAT_MS = 3_000
PLAN = DayPlan(DAY, MIDNIGHT_MS, MIDNIGHT_MS + 24 * HOUR_MS, ())


def changes_of(spark: SparkSession, day: Scenario) -> DataFrame:
    """Play a day, and return what became so in it."""
    log = rows_of(day, DAY, sample_every=0).tables["record_log"]
    told = [
        (group, seq, round((at - EPOCH).total_seconds() * 1_000), epoch, kind, version, payload)
        for group, seq, epoch, at, kind, version, payload in log
    ]
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*told, strict=True)], list(RECORD_COLUMNS))
    whole: Any = pa.Table.from_batches(flatten_records([batch]), schema=CHANGES)
    frame: DataFrame = spark.createDataFrame(whole)
    return frame


@pytest.mark.parametrize("fenced", [True, False])
def test_a_killed_member_is_a_failover_and_down_since_it_fell_silent(spark: SparkSession, *, fenced: bool) -> None:
    """Its standbys take over, after suspicion or at the end of its session: neither is a warm handover."""
    from batonpass.audit import timeline  # noqa: PLC0415 - needs Spark
    from batonpass.audit.checks_tasks import stateless  # noqa: PLC0415 - the same
    from batonpass.audit.downtime import gaps  # noqa: PLC0415 - the same

    config = GroupConfig()
    day = scenario("killed", STEPS[1:2])
    changes = changes_of(spark, replace(day, workers=tuple(replace(one, fenced=fenced) for one in day.workers)))
    followed = timeline.follow(timeline.story(changes))
    found = gaps(timeline.runs(followed), changes, stateless(changes), PLAN).collect()
    after = [one for one in found if one["from_ms"] >= MIDNIGHT_MS and one["task"].startswith("0_")]
    suspended = [one for one in after if one["why"] in {"suspected", "expired"}]
    assert suspended
    assert {one["why"] for one in suspended} == ({"suspected"} if fenced else {"expired"})
    assert {one["cause"] for one in suspended} == {"failover"}
    # It takes the survivors a moment to run what they have; the rest is waiting for somebody silent.
    silence_ms = config.suspect_timeout_ms if fenced else config.session_timeout_ms
    assert all(silence_ms <= one["gap_ms"] < silence_ms + 5_000 for one in suspended)
    assert all(one["from_ms"] >= MIDNIGHT_MS + KILLED_MS - HEARTBEAT_MS for one in suspended)
