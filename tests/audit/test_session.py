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

from batonpass.audit.daemon import prefer_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(300)]

TWICE = """
import time
from batonpass.audit.session import opened
for _ in range(2):
    with opened(meanwhile=lambda: 1, master="local[1]") as session:
        print(session.range(3).count(), session.sparkContext.applicationId)
        time.sleep(0.1)
"""

FAILS = """
import contextlib
import os
import time
from pathlib import Path
from batonpass.audit.session import opened

def javas():
    found = []
    for one in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = one.read_text().partition("(")[2].rpartition(")")
            if name == "java" and int(rest.split()[1]) == os.getpid():
                found.append(rest.split()[0])
    return found

def fail():
    raise LookupError("no such day")

try:
    with opened(meanwhile=fail, master="local[1]"):
        pass
except LookupError:
    print("raised")
time.sleep(1)
print("left" if javas() else "gone")
with opened(meanwhile=lambda: 1, master="local[1]") as session:
    print(session.range(3).count())
"""


def test_functions_of_machine_learning_are_not_loaded(spark: SparkSession) -> None:
    """Spark's jars bring some along for every session, which takes a second; others are there as ever."""
    registry = getattr(spark._jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$")
    told = getattr(registry, "MODULE$").internal().listFunction()
    names = {told.apply(place).funcName() for place in range(told.size())}
    assert "bloom_filter_agg" in names
    assert "vector_to_array" not in names


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


def test_workers_import_nothing_of_their_own(spark: SparkSession) -> None:
    """A worker has what its daemon imported: from where it is installed, the audit's steps with it, and no pandas."""

    def seen(_numbers: Iterable[int]) -> Iterator[tuple[str, bool, bool]]:
        had = "batonpass.audit.spread" in sys.modules
        pa.array(["a value that might be of pandas"])
        import pyspark  # noqa: PLC0415 - the worker's own

        yield str(pyspark.__file__), had, "pandas" in sys.modules

    [(file, had, has_pandas)] = spark.sparkContext.parallelize([0], 1).mapPartitions(seen).collect()
    assert ".zip" not in file
    assert had
    assert not has_pandas


def test_pyspark_is_taken_from_its_zip_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost where an executor has PySpark from Spark alone."""
    zips = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10.9.9-src.zip"]
    monkeypatch.setattr(sys, "path", [*zips, "/lib.zip", *sys.path])
    prefer_installed()
    assert sys.path[0] == "/lib.zip"
    monkeypatch.setattr(sys, "path", zips)
    monkeypatch.setattr("batonpass.audit.daemon.find_spec", lambda _: None)
    prefer_installed()
    assert sys.path == zips


def test_what_fails_while_java_starts_ends_the_start() -> None:
    """It is raised at once; the JVM that was on its way goes, and another session may begin."""
    told = subprocess.run(
        [sys.executable, "-c", FAILS], capture_output=True, text=True, check=True, timeout=250
    ).stdout.split()
    assert told == ["raised", "gone", "3"]


def test_a_session_may_follow_another_at_once(tmp_path: Path) -> None:
    """The end of one is not waited for to its last, except by the next one of the same process."""
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-c", TWICE], env=env, capture_output=True, text=True, check=True, timeout=250
    ).stdout.split()
    assert told[::2] == ["3", "3"]
    assert told[1] != told[3]
