"""A session's workers are started ahead of its first step, and its end does not hold up what comes after it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(300)]

TWICE = """
import time
from batonpass.audit.session import opened
for _ in range(2):
    with opened(records=1, master="local[1]") as session:
        print(session.range(3).count(), session.sparkContext.applicationId)
        time.sleep(0.1)
"""


def test_steps_run_in_the_workers_that_were_roused(spark: SparkSession) -> None:
    """The workers that a session rouses are those of its steps: Spark tells workers apart by their surroundings."""
    from batonpass.audit.session import rouse  # noqa: PLC0415 - tests here that need no Spark run without it

    def pids(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()] * batch.num_rows})

    context = spark.sparkContext
    rouse(context)
    roused = set(context.parallelize(range(2), 2).map(lambda _: os.getpid()).collect())
    used = spark.range(0, 2, 1, 2).mapInArrow(pids, "pid long").toArrow()["pid"].to_pylist()
    assert set(used) <= roused
    assert os.getpid() not in used


def test_a_session_may_follow_another_at_once(tmp_path: Path) -> None:
    """The end of one is not waited for to its last, except by the next one of the same process."""
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-c", TWICE], env=env, capture_output=True, text=True, check=True, timeout=250
    ).stdout.split()
    assert told[::2] == ["3", "3"]
    assert told[1] != told[3]
