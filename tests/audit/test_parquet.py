"""A day in Parquet is replaced whole or stays as it was; it is few files, sorted by group."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.audit.sample import DAY, clean_result, sample_result

from batonpass.audit import parquet, places
from batonpass.audit.parquet import write_day, write_result

pytestmark = pytest.mark.needs("spark")
SCHEMA = "group_id string, task string, n int"
ROWS = [("orders", "0_1", 1), ("clicks", "0_2", 2), ("7", "0_3", 3)]


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    """Return the rows of a day, in their order, without the columns that its folders have."""
    return [tuple(row.values()) for row in pq.read_table(path, partitioning=None).to_pylist()]


def names_in(path: Path) -> list[str]:
    """Return what stands in a folder, hidden or not."""
    return sorted(one.name for one in path.iterdir())


def test_a_day_is_replaced_whole(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out of here"
    first, runs = spark.createDataFrame(ROWS, SCHEMA), out / "runs"
    assert write_day(first, str(out), "runs", DAY) == f"{out}/runs/day={DAY}"
    write_day(first.where("n = 1"), str(out), "runs", DAY.replace(day=21))
    assert names_in(runs) == ["day=2026-11-20", "day=2026-11-21"]
    write_day(first.where("n > 1"), f"file://{tmp_path}/out%20of%20here/", "runs", DAY)
    assert names_in(runs) == ["day=2026-11-20", "day=2026-11-21"]
    assert rows_of(runs / "day=2026-11-20") == [("7", "0_3", 3), ("clicks", "0_2", 2)]
    assert rows_of(runs / "day=2026-11-21") == [("orders", "0_1", 1)]


def test_a_day_without_rows_has_its_columns(spark: Any, tmp_path: Path) -> None:
    write_day(spark.createDataFrame(ROWS, SCHEMA).where("n > 9"), str(tmp_path), "runs", DAY)
    write_result(clean_result(), str(tmp_path))
    assert spark.read.parquet(str(tmp_path / "runs")).columns == ["group_id", "task", "n", "day"]
    findings = spark.read.parquet(str(tmp_path / "findings"))
    assert findings.columns == [*parquet.FINDINGS.names, "day"]
    assert findings.count() == 0


def test_a_day_is_few_files_sorted_by_group(spark: Any, tmp_path: Path) -> None:
    names = ["a=b:c%d*?", "..", "x" * 255, "Größe" * 50, "🏃" * 63, "7"]
    rows = [(names[n % len(names)], "0_1", n) for n in range(200)]
    write_day(spark.createDataFrame(rows, SCHEMA).repartition(8), str(tmp_path), "runs", DAY)
    files = list((tmp_path / "runs" / f"day={DAY}").iterdir())
    assert len(files) <= 2  # as many as there are parts
    each = [[row[0] for row in rows_of(one)] for one in files]
    assert all(found == sorted(found) for found in each)
    assert set.intersection(*map(set, each)) == set() or len(files) == 1
    assert sorted(name for found in each for name in found) == sorted(row[0] for row in rows)


def test_a_report_is_whole_or_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "of the" / "night"
    assert places.put(str(out), "day.html", b"first") == f"{out}/day.html"
    files, root = places.located(str(out))
    with suppress(RuntimeError), places.whole(files, f"{root}/day.html") as path:
        Path(path).write_bytes(b"half")
        raise RuntimeError("the disk is full")
    assert ((out / "day.html").read_bytes(), names_in(out)) == (b"first", ["day.html"])
    places.put(str(out), "day.html", b"second")
    assert ((out / "day.html").read_bytes(), names_in(out)) == (b"second", ["day.html"])


def test_one_group_is_written_beside_the_day_of_all() -> None:
    """A closer look at one group does not replace the night's results."""
    assert parquet.place_of("orders", "s3a://bucket/audits/") == "s3a://bucket/audits/only/orders"
    assert len(parquet.place_of("ö" * 255, "out").encode()) < 100


def test_what_a_killed_audit_left_is_removed_in_the_end(spark: Any, tmp_path: Path) -> None:
    table = tmp_path / "runs"
    for name in (".day=2026-11-20.old", ".day=2026-11-20.new", ".day=2026-11-19.old", "others"):
        (table / name / "within").mkdir(parents=True)
        if not name.endswith("new"):
            os.utime(table / name, (1.0, 1_000_000_000.0))
    write_day(spark.createDataFrame(ROWS, SCHEMA), str(tmp_path), "runs", DAY)
    assert names_in(table) == [".day=2026-11-19.old", ".day=2026-11-20.new", "day=2026-11-20", "others"]


def test_a_write_that_fails_leaves_the_day_as_it_was(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, place = spark.createDataFrame(ROWS[:1], SCHEMA), tmp_path / "runs" / f"day={DAY}"
    write_day(frame, str(tmp_path), "runs", DAY)
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        write_day(frame.selectExpr("group_id", "1 / (n - 1) as n"), str(tmp_path), "runs", DAY)
    assert rows_of(place) == ROWS[:1]
    real = places.replace

    def vanishing(files: Any, given: str, wanted: str) -> None:
        files.delete_dir(given)
        real(files, given, wanted)

    monkeypatch.setattr(parquet, "replace", vanishing)
    with pytest.raises(OSError, match="cannot be written"):
        write_day(frame, str(tmp_path), "runs", DAY)
    assert rows_of(place) == ROWS[:1]
    assert names_in(tmp_path / "runs") == [place.name]


def test_rows_that_no_file_has_replace_no_day(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that shares no folder with the driver leaves none of its files there; here one goes to another."""
    elsewhere, frame = tmp_path / "elsewhere", spark.createDataFrame(ROWS, SCHEMA)
    write_day(frame.limit(1), str(tmp_path / "out"), "runs", DAY)

    class Apart(parquet.WriteParts):
        def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = [batch for batch in batches if batch.num_rows]
            is_far = any("orders" in batch.column("group_id").to_pylist() for batch in rows)
            yield from parquet.WriteParts(str(elsewhere) if is_far else self.out, self.folder)(rows)

    monkeypatch.setattr(parquet, "WriteParts", Apart)
    with pytest.raises(OSError, match=r"of 3 rows are in .*share"):
        write_day(frame, str(tmp_path / "out"), "runs", DAY)
    assert len(rows_of(tmp_path / "out" / "runs" / f"day={DAY}")) == 1
    assert names_in(tmp_path / "out" / "runs") == [f"day={DAY}"]


def test_a_try_of_a_task_that_did_not_count_leaves_no_rows(tmp_path: Path) -> None:
    files, root = places.located(str(tmp_path))
    table = pa.table({"group_id": ["a"]})
    for name in ("counted.parquet", "lost.parquet"):
        pq.write_table(table, tmp_path / name)
    parquet._keep_only(files, root, {"counted.parquet": 1})
    assert names_in(tmp_path) == ["counted.parquet"]
    shutil.rmtree(tmp_path)


def test_what_an_audit_came_to_can_be_read_as_tables(spark: Any, tmp_path: Path) -> None:
    result = sample_result()
    write_result(result, str(tmp_path))
    findings = spark.read.parquet(str(tmp_path / "findings")).collect()
    assert {(row.group_id, row.law, row.severity, tuple(row.sequences)) for row in findings} == {
        (one.group, one.law, one.severity.value, one.sequences) for one in result.findings
    }
    day = f"day={DAY}"
    measures = {(group, name): value for group, name, value in rows_of(tmp_path / "measures" / day)}
    assert measures["orders", "moves"] == 118
    assert measures["quiet", "availability"] is None
    assert ("orders", "stuck", 1, 330_000.0, 330_000.0, 330_000.0, 330_000.0) in rows_of(tmp_path / "downtime" / day)
    write_result(clean_result(), str(tmp_path))
    assert rows_of(tmp_path / "findings" / day) == []
    assert {row[0] for row in rows_of(tmp_path / "measures" / day)} == {"clicks"}
