"""A day in Parquet is replaced whole or stays as it was, and any name of a group finds a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.audit.sample import DAY, clean_result, sample_result
from tests.waiting import wait_until

from batonpass.audit import parquet
from batonpass.audit.parquet import write_day, write_result

pytestmark = pytest.mark.needs("spark")
SCHEMA = "group_id string, task string, n int"


def rows_of(spark: Any, path: Path | str) -> list[tuple[Any, ...]]:
    """Return the rows of what was written, sorted, without the columns that its folders have."""
    return sorted(tuple(row) for row in spark.read.parquet(str(path)).drop("group", "day").collect())


def folders(path: Path) -> list[str]:
    """Return what stands in a folder, hidden or not, but for what Spark writes at its end."""
    return sorted(one.name for one in path.iterdir() if "_SUCCESS" not in one.name)


def test_a_day_is_partitioned_and_replaced_whole(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out of here"
    first = spark.createDataFrame([("orders", "0_1", 1), ("clicks", "0_2", 2), ("7", "0_3", 3)], SCHEMA)
    assert write_day(first, str(out), "runs", DAY) == f"file://{out}/runs/day={DAY}"
    write_day(first.where("n = 1"), str(out), "runs", DAY.replace(day=21))
    assert folders(out / "runs") == ["day=2026-11-20", "day=2026-11-21"]
    assert folders(out / "runs" / "day=2026-11-20") == ["group=7", "group=clicks", "group=orders"]
    write_day(first.where("n = 1"), str(out), "runs", DAY.replace(day=21))
    assert folders(out / "runs") == ["day=2026-11-20", "day=2026-11-21"]
    assert folders(out / "runs" / "day=2026-11-20") == ["group=7", "group=clicks", "group=orders"]
    many = spark.createDataFrame([("orders", "0_1", n) for n in range(200)], SCHEMA).repartition(4)
    write_day(many, str(out), "many", DAY)
    assert len(list((out / "many" / "day=2026-11-20" / "group=orders").glob("*.parquet"))) == 1
    write_day(first.where("n > 1"), str(out), "runs", DAY)
    assert folders(out / "runs") == ["day=2026-11-20", "day=2026-11-21"]
    assert rows_of(spark, out / "runs" / "day=2026-11-20") == [("7", "0_3", 3), ("clicks", "0_2", 2)]
    assert rows_of(spark, out / "runs" / "day=2026-11-21") == [("orders", "0_1", 1)]
    write_day(first.where("n > 9"), str(out), "runs", DAY)
    assert folders(out / "runs" / "day=2026-11-20") == []


def test_one_group_is_written_beside_the_day_of_all() -> None:
    """A closer look at one group does not replace the night's results."""
    assert parquet.place_of("orders", "s3a://bucket/audits/") == "s3a://bucket/audits/only/orders"
    assert len(parquet.place_of("ö" * 255, "out").encode()) < 100


def test_what_a_killed_audit_left_is_removed_in_the_end(spark: Any, tmp_path: Path) -> None:
    table = tmp_path / "runs"
    for name in (".day=2026-11-20.old", ".day=2026-11-20.new", ".day=2026-11-19.old", "others"):
        (table / name / "group=orders").mkdir(parents=True)
        if not name.endswith("new"):
            os.utime(table / name, (1.0, 1_000_000_000.0))
    write_day(spark.createDataFrame([("orders", "0_1", 1)], SCHEMA), str(tmp_path), "runs", DAY)
    assert folders(table) == [".day=2026-11-19.old", ".day=2026-11-20.new", "day=2026-11-20", "others"]


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_group_is_one_file(spark: Any, tmp_path: Path, adaptive: str) -> None:
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        rows = spark.createDataFrame([("orders", "0_1", n) for n in range(200)], SCHEMA).repartition(4)
        write_day(rows, str(tmp_path), "runs", DAY)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)
    assert len(list((tmp_path / "runs" / f"day={DAY}" / "group=orders").glob("*.parquet"))) == 1


def test_any_name_of_a_group_finds_a_folder(spark: Any, tmp_path: Path) -> None:
    names = ["a=b:c%d*?", "..", "__HIVE_DEFAULT_PARTITION__", "x" * 255, "x" * 254 + "y", "Größe" * 50, "🏃" * 63]
    frame = spark.createDataFrame([(name, "0_1", number) for number, name in enumerate(names)], SCHEMA)
    write_day(frame, str(tmp_path), "runs", DAY)
    assert sorted(row[0] for row in rows_of(spark, tmp_path / "runs")) == sorted(names)
    made = folders(tmp_path / "runs" / f"day={DAY}")
    assert len(made) == len(names)


def test_a_write_that_fails_leaves_the_day_as_it_was(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.createDataFrame([("orders", "0_1", 1)], SCHEMA)
    write_day(frame, str(tmp_path), "runs", DAY)
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        write_day(frame.selectExpr("group_id", "1 / (n - 1) as n"), str(tmp_path), "runs", DAY)
    assert rows_of(spark, tmp_path / "runs") == [("orders", "0_1", 1)]
    real = parquet.Files.replace

    def vanishing(files: parquet.Files, unfinished: str, place: str) -> None:
        files.remove(unfinished)
        real(files, unfinished, place)

    monkeypatch.setattr(parquet.Files, "replace", vanishing)
    with pytest.raises(OSError, match="cannot be written"):
        write_day(frame, str(tmp_path), "runs", DAY)
    assert rows_of(spark, tmp_path / "runs") == [("orders", "0_1", 1)]
    assert [name for name in folders(tmp_path / "runs") if not name.endswith(".crc")] == [f"day={DAY}"]


def test_rows_that_no_file_has_replace_no_day(spark: Any, tmp_path: Path) -> None:
    """An executor that shares no folder with the driver leaves none of its files there; this one removes another's."""
    frame = spark.createDataFrame([("orders", "0_1", 1)], SCHEMA)
    write_day(frame, str(tmp_path), "runs", DAY)

    def losing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if "lost" not in batch.column("task").to_pylist():
                wait_until(lambda: any(tmp_path.glob("runs/.day=*/_temporary/*/task_*/**/*.parquet")), within_s=60)
                for one in tmp_path.glob("runs/.day=*/_temporary/*/task_*"):
                    shutil.rmtree(one)
            yield batch

    rows = spark.createDataFrame([("orders", "0_2", 2), ("clicks", "lost", 3)], SCHEMA)
    apart = rows.repartitionByRange(2, "task").mapInArrow(losing, SCHEMA)
    with pytest.raises(OSError, match=r"1 of 2 rows are in .*share"):
        parquet._write(apart.selectExpr("*", "group_id as group"), str(tmp_path), "runs", DAY)
    assert rows_of(spark, tmp_path / "runs") == [("orders", "0_1", 1)]
    assert folders(tmp_path / "runs") == [f"day={DAY}"]


def test_what_an_audit_came_to_can_be_read_as_tables(spark: Any, tmp_path: Path) -> None:
    result = sample_result()
    write_result(spark, result, str(tmp_path))
    findings = spark.read.parquet(str(tmp_path / "findings")).collect()
    assert {(row.group_id, row.law, row.severity, tuple(row.sequences)) for row in findings} == {
        (one.group, one.law, one.severity.value, one.sequences) for one in result.findings
    }
    measures = {(group, name): value for group, name, value in rows_of(spark, tmp_path / "measures")}
    assert measures["orders", "moves"] == 118
    assert measures["quiet", "availability"] is None
    assert ("orders", "stuck", 1, 330_000.0, 330_000.0, 330_000.0, 330_000.0) in rows_of(spark, tmp_path / "downtime")
    write_result(spark, clean_result(), str(tmp_path))
    assert folders(tmp_path / "findings" / f"day={DAY}") == []
    assert {row[0] for row in rows_of(spark, tmp_path / "measures")} == {"clicks"}
