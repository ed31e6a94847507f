"""Findings as a frame, before they are cut to what a person reads: every check returns one of these."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from pyspark.sql import Window
from pyspark.sql import functions as f

from batonpass.audit.findings import FINDINGS_PER_LAW, Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

FOUND: Final = ("group_id", "law", "severity", "task", "member", "detail", "sequences", "at")
"""A finding; ``sequences`` are the records that prove it, the wrong one last, ``at`` when they were appended."""


def time_of(ms: Column | str) -> Column:
    """Return an instant of milliseconds as people read it (UTC)."""
    column = f.col(ms) if isinstance(ms, str) else ms
    return f.coalesce(f.date_format(f.timestamp_millis(column), "yyyy-MM-dd HH:mm:ss.SSS"), f.lit("an unknown time"))


def said(*parts: Column | str) -> Column:
    """Return one sentence of texts (as they are) and columns (by their values)."""
    return f.concat(
        *(f.lit(one) if isinstance(one, str) else f.coalesce(one.cast("string"), f.lit("?")) for one in parts)
    )


def of(name: str) -> Column:
    """Return a column that is told in a sentence."""
    return f.col(name)


class Proof(TypedDict, total=False):
    """What a finding is about and what proves it: columns by name, or their values."""

    sequences: Sequence[str | Column] | Column
    at: Sequence[str | Column] | Column
    task: str | None
    member: str | None


def found(frame: DataFrame, law: str | Column, severity: Severity, detail: Column, **proof: Unpack[Proof]) -> DataFrame:
    """Return each row of a frame as a finding (``FOUND``)."""
    task, member = proof.get("task", "task"), proof.get("member", "member")
    nothing = f.lit(None).cast("string")
    return frame.select(
        "group_id",
        (f.lit(law) if isinstance(law, str) else law).alias("law"),
        f.lit(severity.value).alias("severity"),
        (f.col(task) if task else nothing).alias("task"),
        (f.col(member) if member else nothing).alias("member"),
        detail.alias("detail"),
        _longs(proof.get("sequences", ())).alias("sequences"),
        _longs(proof.get("at", ())).alias("at"),
    )


def _longs(columns: Sequence[str | Column] | Column) -> Column:
    if not isinstance(columns, list | tuple):
        return columns.cast("array<bigint>")  # type: ignore[union-attr]
    named = [f.col(one) if isinstance(one, str) else one for one in columns]
    return f.array_compact(f.array(*(one.cast("long") for one in named)).cast("array<bigint>"))


def all_of(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the findings of several checks together."""
    return reduce(lambda one, other: one.unionByName(other), (frame.select(*FOUND) for frame in frames))


def cut(findings: DataFrame, limit: int = FINDINGS_PER_LAW) -> tuple[tuple[Finding, ...], int]:
    """Return the first findings of each group and law, in the order of the log, and how many were left out."""
    of_law = Window.partitionBy("group_id", "law").orderBy(
        "severity", f.try_element_at(f.col("at"), f.lit(-1)), "task", "member", "detail"
    )
    whole = Window.partitionBy("group_id", "law").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    kept = (
        findings.withColumn("place", f.row_number().over(of_law))
        .withColumn("count", f.count(f.lit(1)).over(whole))
        .where(f.col("place") <= limit)
        .orderBy("group_id", "law", "place")
        .collect()
    )
    left_out = sum(row["count"] - limit for row in kept if row["place"] == limit)
    return tuple(
        Finding(
            group=row["group_id"],
            law=row["law"],
            severity=Severity(row["severity"]),
            task=row["task"],
            member=row["member"],
            detail=row["detail"],
            sequences=tuple(row["sequences"]),
            at=tuple(row["at"]),
        )
        for row in kept
    ), left_out
