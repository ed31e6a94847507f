"""What pandas on one core looks at: the rows of a day, by the audit's own queries, made flat by its own code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from tests.benchmarks.audit import DAY

from batonpass.audit.database import rows as rows_of
from batonpass.audit.findings import Finding, Severity
from batonpass.audit.flatten import CHANGES, GENERATION, LAG
from batonpass.audit.plan import DayPlan, plan_day
from batonpass.audit.tables import DayTables, read_flat

NAMES: Final = ("group_id", "what", "task", "member", "word")
"""Columns of few words that stand there again and again."""
GROUP: Final = "group_id"


@dataclass(frozen=True, slots=True)
class Day:
    """A day as frames: a row of ``bounds`` for each group, ``changes`` in no order."""

    url: str
    plan: DayPlan
    bounds: pd.DataFrame
    changes: pd.DataFrame
    generations: pd.DataFrame
    lags: pd.DataFrame

    def firsts(self, groups: pd.Series) -> pd.Series:
        """Return where the day of each of these groups begins."""
        return groups.map(self.bounds.set_index(GROUP)["first"]).astype("int64")

    def today(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return those rows that are of this day's records."""
        return rows[rows["seq"] >= self.firsts(rows[GROUP])]

    def of(self, *what: str) -> pd.DataFrame:
        """Return the changes of some kinds."""
        return self.changes[self.changes["what"].isin(what)]


def read(url: str) -> Day:
    """Read a day."""
    plan = plan_day(partial(rows_of, url), DAY)
    # The queries are the same as those of the audit; who makes them needs no session of Spark's.
    nobody: Any = None
    queries = DayTables(nobody, url, plan).queries()
    rows = _frame(read_flat(url, queries))
    is_lag, is_told = rows["what"] == LAG, rows["what"] == GENERATION
    lags = rows.loc[is_lag, [GROUP, "task", "member", "ms", "number"]].rename(columns={"ms": "at_ms", "number": "lag"})
    generations = _generations(rows[is_told])
    changes = rows[~(is_lag | is_told)]
    bounds = [(one.group, one.base, one.first, one.last, one.known, one.base_epoch) for one in plan.groups]
    columns = [GROUP, "base", "first", "last", "known", "base_epoch"]
    return Day(url, plan, pd.DataFrame(bounds, columns=columns), changes, generations, lags)


def _frame(batches: Iterator[pa.RecordBatch]) -> pd.DataFrame:
    """Return rows with repeated words as categories, which are in the order of their letters."""

    def encoded() -> Iterator[pa.Table]:
        for batch in batches:
            columns = [
                column.dictionary_encode() if name in NAMES else column
                for name, column in zip(CHANGES.names, batch.columns, strict=True)
            ]
            yield pa.Table.from_arrays(columns, names=CHANGES.names)

    table = pa.concat_tables(encoded()).unify_dictionaries()
    types = {pa.bool_(): pd.BooleanDtype()}
    frame = table.to_pandas(split_blocks=True, self_destruct=True, types_mapper=types.get)
    for name in NAMES:
        frame[name] = frame[name].cat.reorder_categories(sorted(frame[name].cat.categories))
    return cast("pd.DataFrame", frame)


def _generations(rows: pd.DataFrame) -> pd.DataFrame:
    said = pd.DataFrame([json.loads(word) for word in rows["word"]], columns=["members", "tasks", "score"])
    told = rows[[GROUP, "number", "seq", "at_ms", "token", "until_ms"]].reset_index(drop=True)
    names = {"seq": "version", "token": "moves", "until_ms": "lower_bound"}
    return told.rename(columns=names).join(said).astype({GROUP: str})


def chosen(conditions: Sequence[Any], values: Sequence[Any], default: Any, index: pd.Index) -> pd.Series:
    """Return for each row the value of the first condition that holds."""
    select: Any = np.select
    return pd.Series(select(conditions, values, default=default), index=index)


def subtopologies(tasks: pd.Series) -> pd.Series:
    """Return the part of the topology that each task belongs to."""
    return tasks.astype(str).str.extract(r"^(.*)_\d+$", expand=False).fillna("")


def words(rows: pd.DataFrame) -> list[tuple[str, Any]]:
    """Return what settings and topologies say, with the group of each."""
    return [(str(group), json.loads(word)) for group, word in zip(rows[GROUP], rows["word"], strict=True)]


def told(value: Any) -> str:
    """Return a value as a sentence has it."""
    if pd.isna(value):
        return "?"
    return str(int(value)) if isinstance(value, float | np.number) else str(value)


def time_of(ms: Any) -> str:
    """Return a time as a sentence has it."""
    if pd.isna(ms):
        return "an unknown time"
    return str(pd.Timestamp(int(ms), unit="ms").isoformat(sep=" ", timespec="milliseconds"))


def finding(
    law: str, severity: Severity, detail: str, row: Any, evidence: Sequence[tuple[Any, Any]] = (), *, of: str = ""
) -> Finding:
    """Return what is wrong with a row, proved by records: the number of each, and when it was appended.

    It concerns the row's task and member, of those that are named in ``of``.
    """
    sequences, times = (tuple(int(one[place]) for one in evidence if not pd.isna(one[place])) for place in (0, 1))
    task, member = (_name(row, name) if name in of else None for name in ("task", "member"))
    return Finding(str(row.group_id), law, severity, task, member, detail, sequences, times)


def _name(row: Any, column: str) -> str | None:
    value = getattr(row, column)
    return None if pd.isna(value) else str(value)
