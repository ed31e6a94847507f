"""Days of a few rows that are written by hand, and what the laws find in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa

from batonpass.audit import checks, timeline
from batonpass.audit.flatten import CHANGES, bounds_rows
from batonpass.audit.part import Part
from batonpass.audit.plan import GroupPlan

Row = dict[str, Any]

DAY: Final = date(2026, 11, 18)
BEGIN_MS: Final = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp() * 1_000)
TASK: Final = "0_0"


def row(seq: int, what: str = "other", member: str | None = None, task: str | None = None, **columns: Any) -> Row:
    """Return a row of CHANGES: appended so many seconds after midnight as it has number, by a first coordinator."""
    at_ms = BEGIN_MS + seq * 1_000
    of_record = {"group_id": "g", "seq": seq, "place": 0, "at_ms": at_ms, "coordinator_epoch": 1, "ms": at_ms}
    return dict.fromkeys(CHANGES.names) | of_record | {"what": what, "member": member, "task": task} | columns


def in_order(*rows: Row, begin: int = 1) -> list[Row]:
    """Return rows as records that follow each other; their times are those of their numbers."""
    return [
        one | {key: value for key, value in row(seq).items() if key in {"seq", "at_ms", "ms"}}
        for seq, one in enumerate(rows, start=begin)
    ]


@contextmanager
def audited(
    rows: Sequence[Row],
    *,
    groups: Sequence[GroupPlan] = (),
    **bounds: Any,
) -> Iterator[Part]:
    """Lend a part of these rows to which every law was put."""
    last = max((one["seq"] for one in rows), default=0)
    whole: dict[str, Any] = {"group": "g", "base": 0, "known": True, "first": 1, "last": last, "missing": 0}
    arriving = [pa.RecordBatch.from_pylist(list(rows), schema=CHANGES)]
    arriving += bounds_rows(groups or [GroupPlan(**whole | bounds)])
    with Part(arriving, BEGIN_MS, BEGIN_MS + 86_400_000) as part:
        for step in timeline.STEPS:
            step(part)
        for law in checks.STEPS:
            law(part)
        yield part


def found(rows: Sequence[Row], **known: Any) -> list[Row]:
    """Return what all laws find in these rows, in the order of the records that prove it."""
    with audited(rows, **known) as part:
        return part.rows("select * from found order by sequences[-1] nulls first, detail")


def sentences(rows: Sequence[Row], **known: Any) -> list[tuple[str, str]]:
    """Return the law and the sentence of what all laws find."""
    return [(one["law"], one["detail"]) for one in found(rows, **known)]


def clock(seq: int) -> str:
    """Return when a record was appended, as a sentence has it."""
    return f"2026-11-18 00:{seq // 60:02}:{seq % 60:02}.000"
