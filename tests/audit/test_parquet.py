"""A day in Parquet is one file a table, which is replaced whole or stays as it was."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.audit.sample import DAY, clean_result, sample_result

from batonpass.audit import parquet, places
from batonpass.audit.parquet import write_day, write_result
from batonpass.audit.rows import FindingRow, batch_of, schema_of


class Numbered(NamedTuple):
    """A row."""

    task: str
    n: int


ROWS = [("orders", "0_1", 1), ("clicks", "0_2", 2), ("7", "0_3", 3)]


def batches(*rows: tuple[str, str, int]) -> list[pa.RecordBatch]:
    """Return rows, a batch for each."""
    return [batch_of(Numbered, [(group, Numbered(task, n))]) for group, task, n in rows]


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    """Return the rows of a day, in their order, without the columns that its folders have."""
    return [tuple(row.values()) for row in pq.read_table(path, partitioning=None).to_pylist()]


def names_in(path: Path) -> list[str]:
    """Return what stands in a folder, hidden or not."""
    return sorted(one.name for one in path.iterdir())


def test_a_day_is_replaced_whole(tmp_path: Path) -> None:
    out = tmp_path / "out of here"
    runs = out / "runs"
    write_day(batches(*ROWS), Numbered, str(out), "runs", DAY)
    write_day(batches(ROWS[0]), Numbered, str(out), "runs", DAY.replace(day=21))
    write_day(batches(*ROWS[1:]), Numbered, f"file://{tmp_path}/out%20of%20here/", "runs", DAY)
    assert names_in(runs) == ["day=2026-11-20", "day=2026-11-21"]
    assert rows_of(runs / "day=2026-11-20") == ROWS[1:]
    assert rows_of(runs / "day=2026-11-21") == ROWS[:1]


def test_a_day_without_rows_has_its_columns(tmp_path: Path) -> None:
    write_day([], Numbered, str(tmp_path), "runs", DAY)
    write_result(clean_result(), str(tmp_path))
    assert pq.read_table(tmp_path / "runs").column_names == ["group_id", "task", "n", "day"]
    findings = pq.read_table(tmp_path / "findings")
    assert findings.column_names == [*schema_of(FindingRow).names, "day"]
    assert findings.num_rows == 0


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


def test_what_is_left_of_a_killed_audit_and_of_earlier_versions_is_removed(tmp_path: Path) -> None:
    """Of what has no name yet only the old: another audit may be at work."""
    folder = tmp_path / "runs" / f"day={DAY}"
    folder.mkdir(parents=True)
    for name in (".rows.parquet.old", ".rows.parquet.new", "part-00000-abc.parquet", "others"):
        (folder / name).touch()
        if not name.endswith("new"):
            os.utime(folder / name, (1.0, 1_000_000_000.0))
    write_day(batches(*ROWS), Numbered, str(tmp_path), "runs", DAY)
    assert names_in(folder) == [".rows.parquet.new", "others", "rows.parquet"]


def test_a_write_that_fails_leaves_the_day_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "runs" / f"day={DAY}"
    write_day(batches(*ROWS[:1]), Numbered, str(tmp_path), "runs", DAY)

    def lost() -> Iterator[pa.RecordBatch]:
        yield from batches(*ROWS[1:])
        raise OSError("an executor is gone")

    with pytest.raises(OSError, match="an executor is gone"):
        write_day(lost(), Numbered, str(tmp_path), "runs", DAY)
    assert rows_of(place) == ROWS[:1]
    assert names_in(place) == ["rows.parquet"]


def test_what_an_audit_came_to_can_be_read_as_tables(tmp_path: Path) -> None:
    result = sample_result()
    write_result(result, str(tmp_path))
    findings = pq.read_table(tmp_path / "findings").to_pylist()
    assert {(row["group_id"], row["law"], row["severity"], tuple(row["sequences"])) for row in findings} == {
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


def test_a_store_other_than_amazons_is_asked_for_nothing_that_only_amazons_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S3Proxy answers 501 to checksums in trailers, which the client sends unless it is told otherwise."""
    names = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")
    for name in names:
        monkeypatch.setenv(name, "as found")
        monkeypatch.delenv(name)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    places.located("s3://audits/of-the-night?region=us-east-1")
    assert not os.environ.keys() & {*names}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv(names[0], "when_supported")
    places.located("s3://audits/of-the-night?region=us-east-1")
    assert [os.environ[name] for name in names] == ["when_supported", "when_required"]
