"""The laws of the log in pandas: nothing is missing, nobody else wrote, numbers only grow (L2, L4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from tests.benchmarks.audit.alone_read import GROUP, Day, finding, time_of, told

from batonpass.audit.checks import ASTRAY_MS
from batonpass.audit.findings import Finding, Severity

FATAL, NOTICE = Severity.FATAL, Severity.NOTICE
RECORD = [GROUP, "seq", "at_ms", "coordinator_epoch", "what"]


def _breaks(day: Day) -> pd.DataFrame:
    """Return the records that do not go on where the log was (``checks.BREAKS``)."""
    bounds = day.bounds.set_index(GROUP)
    records = day.changes.loc[day.changes["place"] == 0, RECORD].sort_values(
        [GROUP, "seq", "coordinator_epoch", "at_ms"], ignore_index=True
    )
    of_group = records.groupby(GROUP, observed=True)
    base = records[GROUP].map(bounds["base"]).astype("int64")
    base_epoch = records[GROUP].map(bounds["base_epoch"]).astype("float64")
    records["after_seq"] = of_group["seq"].shift().fillna(base.where(base_epoch.notna()))
    records["after_at"] = of_group["at_ms"].shift()
    epochs = of_group["coordinator_epoch"].cummax()
    records["highest"] = np.fmax(epochs.groupby(records[GROUP], observed=True).shift(), base_epoch)
    records["after"] = records["after_seq"].fillna(base)
    records["next_at"] = of_group["at_ms"].shift(-1)
    at, is_between = records["at_ms"], records["after_at"] <= records["next_at"] + ASTRAY_MS
    is_beside = (at < records["after_at"] - ASTRAY_MS) | (at > records["next_at"] + ASTRAY_MS)
    records["is_astray"] = is_between & is_beside & (records["what"] != "unreadable")
    is_off = (records["seq"] != records["after"] + 1) | (records["coordinator_epoch"] < records["highest"])
    return day.today(records[is_off | records["is_astray"]])


def log_laws(day: Day) -> Iterator[Finding]:
    """Yield where records are missing or there twice (L2), and where a deposed coordinator wrote (L4)."""
    for row in _breaks(day).itertuples():
        yield from _broken(row)


def leaps(day: Day) -> dict[str, list[int]]:
    """Return for each group the records that are not known: unreadable ones, and those behind missing ones."""
    rows = day.of("unreadable")
    breaks = _breaks(day)
    found = pd.concat(
        [rows.loc[rows["place"] >= 0, [GROUP, "seq"]], breaks.loc[breaks["seq"] > breaks["after"] + 1, [GROUP, "seq"]]]
    )
    return {str(group): sorted(some["seq"].astype(int)) for group, some in found.groupby(GROUP, observed=True)}


def _broken(row: Any) -> Iterator[Finding]:
    proof = [(row.after_seq, row.after_at), (row.seq, row.at_ms)]
    at = time_of(row.at_ms)
    if row.seq == row.after + 2:
        yield finding("L2", FATAL, f"record {told(row.after + 1)} is missing before {at}", row, proof)
    elif row.seq > row.after + 1:
        missing = f"records {told(row.after + 1)} to {told(row.seq - 1)} are missing before {at}"
        yield finding("L2", FATAL, missing, row, proof)
    if row.seq == row.after_seq:
        yield finding("L2", FATAL, f"record {told(row.seq)} is there twice", row, proof[1:])
    if row.is_astray:
        beside = f"the one before it is of {time_of(row.after_at)}, the one behind it of {time_of(row.next_at)}"
        yield finding("L2", FATAL, f"record {told(row.seq)} is dated {at}; {beside}", row, proof[1:])
    if row.coordinator_epoch < row.highest:
        detail = (
            f"a coordinator of epoch {told(row.coordinator_epoch)} appended after one of epoch {told(row.highest)} at"
        )
        yield finding("L4", FATAL, f"{detail} {at}", row, proof)


def unreadable(day: Day) -> Iterator[Finding]:
    """Yield records that no program of this version can read (L2), and such snapshots."""
    rows = day.of("unreadable")
    for row in day.today(rows[rows["place"] >= 0]).itertuples():
        detail = f"record {row.seq} cannot be read: {told(row.word)}"
        yield finding("L2", FATAL, detail, row, [(row.seq, row.at_ms)])
    for row in rows[rows["place"] < 0].itertuples():
        yield finding("unreadable-snapshot", NOTICE, f"the snapshot of version {row.seq}: {told(row.word)}", row)


def member_epochs(day: Day) -> Iterator[Finding]:
    """Yield members whose epoch fell, or grew by more than one an assignment (L2: an assignment was lost or undone)."""
    assigned = ["active", "standby", "warmup", "revoked", "demoted"]
    rows = day.of("joined", "raised", *assigned)
    rows = rows[(rows["place"] == 0) | ~rows["what"].isin(assigned)]
    rows = rows[[GROUP, "member", "seq", "place", "at_ms", "what", "number"]]
    rows = rows.sort_values([GROUP, "member", "seq", "place", "number"], ignore_index=True)
    of_member = rows.groupby([GROUP, "member"], observed=True)
    for name in ("number", "seq", "at_ms", "what"):
        rows[f"{name}_before"] = of_member[name].shift()
    highest = of_member["number"].cummax().groupby([rows[GROUP], rows["member"]], observed=True).shift()
    rows["known"] = highest.where(rows["what_before"] == "raised", rows["number_before"])
    is_off = rows["what"].isin(assigned) & rows["known"].notna() & (rows["number"] != rows["known"] + 1)
    # Lost commits and adoptions raise epochs out of turn, and nobody knows what a record that is missing said.
    adopted = day.of("adopted")
    raised = leaps(day)
    for group, seq in zip(adopted[GROUP].astype(str), adopted["seq"], strict=True):
        raised.setdefault(group, []).append(int(seq))
    for row in day.today(rows[is_off]).itertuples():
        if row.number > row.known and any(row.seq_before < seq <= row.seq for seq in raised.get(str(row.group_id), ())):
            continue
        follows = f"its epoch {told(row.number)} follows {told(row.known)} at {time_of(row.at_ms)}"
        proof = [(row.seq_before, row.at_ms_before), (row.seq, row.at_ms)]
        yield finding("L2", FATAL, f"{follows}; each change of an assignment adds one", row, proof, of="member")
