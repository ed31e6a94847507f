"""A day is taken out of the database whole, and marked only when every file is in its place."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.audit import plan
from batonpass.audit.export import NotOver, export_day
from batonpass.postgres import tables

DAY = datetime.now(UTC).date() - timedelta(days=3)
GROUPS = ("it's", "orders")
EACH = 3
EXPORTED = ("record_log", "group_heads", "snapshots", "generations", "assignment_events", "traces", "samples")
AROUND = tuple(f"around/{name}" for name in EXPORTED if name not in {"group_heads", "samples"})
# For each group and each of three days, rows at its first instant, in its middle, and at its last one.
FILL = """
    with rows as (
        select g.name as of_group, row_number() over (partition by g.name order by d.day, i.of_day) as n,
               d.day + i.of_day as at
          from (values {groups}) g(name),
               (values (timestamptz '{before}'), (timestamptz '{day}'), (timestamptz '{after}')) d(day),
               (values (interval '0'), (interval '12 hours'), (interval '24 hours' - interval '1 microsecond')) i(of_day)
    ),
    heads as (insert into group_heads (group_id, version, coordinator_epoch) select of_group, max(n), 1 from rows
              group by of_group),
    log as (insert into record_log (group_id, seq, coordinator_epoch, at, kind, version, payload)
            select of_group, n, 1, at, 'x', 1, '{{"b": 1, "a":  [1, "\\u0000"]}}' from rows),
    made as (insert into generations select of_group, n, n, 1, at, array['join', 'x'], 1, 2, 3, 4, 5, 0.5, 0.25, 0.1,
             '[]', '[["a"]]' from rows),
    traced as (insert into traces select of_group, at, n, 1, 'v1', '', '{{}}' from rows),
    sampled as (insert into samples select of_group, at, '[]' from rows),
    kept as (insert into snapshots select of_group, n, 2, at, '\\x00' from rows where n = 5),
    fresh as (insert into fresh_changes select of_group, at, n, 2, '0_2', 'm', 'granted', 'none', 'active', '', 1, 1, 1,
              null, '' from rows)
    insert into assignment_events select of_group, at, n, 1, '0_1', 'm', 'granted', 'none', 'active', '', 1, 1, 1, true,
           'balance' from rows
"""


async def sql(engine: AsyncEngine, statement: str) -> Sequence[Any]:
    """Run a statement and return its rows."""
    async with engine.connect() as connection:
        done = await connection.execute(text(statement.replace(":", r"\:")))
        return [tuple(row) for row in done] if done.returns_rows else []


@pytest.fixture
async def filled(engine: AsyncEngine) -> AsyncEngine:
    """A database with three days of two groups, of which the middle one is ``DAY``."""
    names = ", ".join(f"""('{name.replace("'", "''")}')""" for name in GROUPS)
    days = {"before": DAY - timedelta(days=1), "day": DAY, "after": DAY + timedelta(days=1)}
    await sql(engine, FILL.format(groups=names, **{name: f"{day} 00:00:00+00" for name, day in days.items()}))
    return engine


async def exported(url: str, day: date, out: Path | str) -> Mapping[str, int]:
    """Export a day, as the audit does, beside the event loop."""
    return await asyncio.to_thread(export_day, url, day, str(out))


def files_of(out: Path) -> list[str]:
    """Return every file below a folder, hidden or not."""
    return sorted(str(one.relative_to(out)) for one in out.rglob("*") if one.is_file())


async def test_every_row_of_the_day_is_taken_and_no_other(
    filled: AsyncEngine, database_url: str, tmp_path: Path
) -> None:
    counts_of = await exported(database_url, DAY, tmp_path)
    of_day = {name: len(GROUPS) * EACH * (2 if name == "assignment_events" else 1) for name in EXPORTED}
    of_day |= {"group_heads": len(GROUPS), "snapshots": len(GROUPS)}
    assert {name: counts_of[name] for name in EXPORTED} == of_day
    # Beside it is what an audit of the day needs of the days around it.
    before, behind = len(GROUPS) * EACH, len(GROUPS)
    beside = {"record_log": before + behind, "snapshots": 0, "generations": behind, "assignment_events": 2 * behind}
    assert {name: counts_of[f"around/{name}"] for name in beside} == beside
    assert files_of(tmp_path) == sorted(f"log/{name}/day={DAY}/rows.parquet" for name in (*EXPORTED, *AROUND))
    records = pq.read_table(tmp_path / "log" / "record_log").to_pylist()
    assert [(one["group_id"], one["seq"]) for one in records] == [(name, seq) for name in GROUPS for seq in (4, 5, 6)]
    assert {one["payload"] for one in records} == {'{"b": 1, "a":  [1, "\\u0000"]}'}
    assert {one["day"] for one in records} == {str(DAY)}
    instants = sorted({one["at"] for one in records})
    begin = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
    assert instants == [begin, begin + timedelta(hours=12), begin + timedelta(days=1, microseconds=-1)]
    changes = pq.read_table(tmp_path / "log" / "assignment_events").to_pylist()
    assert {(one["task_id"], one["warm"]) for one in changes} == {("0_1", True), ("0_2", None)}
    generations = pq.read_table(tmp_path / "log" / "generations").to_pylist()
    assert {tuple(one["triggers"]) for one in generations} == {("join", "x")}


async def test_every_table_is_sorted_by_group(
    filled: AsyncEngine, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of one group skips the others; the groups of one query are no order of all."""
    monkeypatch.setattr(plan, "GROUPS_AT_ONCE", 1)
    await sql(filled, "update record_log set at = at where group_id = 'it''s'")
    await exported(database_url, DAY, tmp_path)
    for name in (*EXPORTED, *AROUND):
        groups = pq.read_table(tmp_path / "log" / name / f"day={DAY}").column("group_id").to_pylist()
        assert groups == sorted(groups), name
        assert len(set(groups)) in {0, len(GROUPS)}


async def test_no_column_is_left_behind(filled: AsyncEngine, database_url: str, tmp_path: Path) -> None:
    await exported(database_url, DAY, tmp_path)
    for name in EXPORTED:
        schema = pq.read_schema(tmp_path / "log" / name / f"day={DAY}" / "rows.parquet")
        assert set(schema.names) == set(tables.metadata.tables[name].columns.keys()), name


async def test_a_day_that_was_exported_is_marked(filled: AsyncEngine, database_url: str, tmp_path: Path) -> None:
    await exported(database_url, DAY, tmp_path / "first")
    await sql(filled, "delete from samples")
    counts_of = await exported(database_url.replace("postgresql:", "postgresql+asyncpg:"), DAY, tmp_path / "second")
    ((day, place, counts),) = await sql(filled, "select day, place, row_counts from exported_days")
    assert (day, place) == (DAY, str(tmp_path / "second" / "log"))
    assert counts == {**counts_of, "samples": 0}
    assert pq.read_table(tmp_path / "second" / "log" / "samples").num_rows == 0


async def test_a_day_without_anything_is_exported_too(engine: AsyncEngine, database_url: str, tmp_path: Path) -> None:
    """The day is marked, so that no job waits for it."""
    counts_of = await exported(database_url, DAY, tmp_path)
    assert set(counts_of.values()) == {0}
    assert len(files_of(tmp_path)) == len((*EXPORTED, *AROUND))
    assert await sql(engine, "select day from exported_days") == [(DAY,)]


async def test_a_day_that_is_not_over_is_not_exported(engine: AsyncEngine, database_url: str, tmp_path: Path) -> None:
    """Rows of it may still come."""
    today = datetime.now(UTC).date()
    with pytest.raises(NotOver, match=f"from {today + timedelta(days=1)} 00:10"):
        await exported(database_url, today, tmp_path)
    assert files_of(tmp_path) == []
    assert await sql(engine, "select day from exported_days") == []


async def test_an_export_that_fails_marks_nothing_and_leaves_whole_files(
    filled: AsyncEngine, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await exported(database_url, DAY, tmp_path)
    await sql(filled, "delete from exported_days")
    before = files_of(tmp_path)

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_batch", full)
        with pytest.raises(OSError, match="no space left"):
            await exported(database_url, DAY, tmp_path)
    assert files_of(tmp_path) == before
    assert pq.read_table(tmp_path / "log" / "record_log").num_rows == len(GROUPS) * EACH
    assert await sql(filled, "select day from exported_days") == []


async def test_the_place_to_export_to_may_be_a_uri(filled: AsyncEngine, database_url: str, tmp_path: Path) -> None:
    await exported(database_url, DAY, f"file://{tmp_path}/there/")
    assert len(files_of(tmp_path / "there" / "log")) == len((*EXPORTED, *AROUND))
    assert await sql(filled, "select place from exported_days") == [(f"file://{tmp_path}/there/log",)]
    with pytest.raises(OSError, match="no place to write to"):
        await exported(database_url, DAY, "gopher://there")


async def test_very_many_groups_are_taken_in_parts(
    filled: AsyncEngine, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "GROUPS_AT_ONCE", 1)
    counts_of = await exported(database_url, DAY, tmp_path)
    assert counts_of["record_log"] == len(GROUPS) * EACH
