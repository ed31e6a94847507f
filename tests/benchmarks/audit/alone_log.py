"""The laws of the log in pandas: nothing is missing, nobody else wrote, numbers only grow (L2, L4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from tests.benchmarks.audit.alone_read import GROUP, Day, finding, time_of, told

from batonpass.audit import source
from batonpass.audit.checks import changes_shown
from batonpass.audit.findings import Finding, Severity

FATAL, NOTICE = Severity.FATAL, Severity.NOTICE
RECORD = [GROUP, "seq", "at_ms", "coordinator_epoch"]


def log_laws(day: Day) -> Iterator[Finding]:
    """Yield where records are missing or there twice (L2), and where a deposed coordinator wrote (L4)."""
    records = day.changes.loc[day.changes["place"] == 0, RECORD].sort_values(
        [GROUP, "seq", "coordinator_epoch", "at_ms"], ignore_index=True
    )
    of_group = records.groupby(GROUP, observed=True)
    records["after_seq"] = of_group["seq"].shift()
    records["after_at"] = of_group["at_ms"].shift()
    epochs = of_group["coordinator_epoch"].cummax()
    records["highest"] = epochs.groupby(records[GROUP], observed=True).shift()
    base = records[GROUP].map(day.bounds.set_index(GROUP)["base"]).astype("int64")
    records["after"] = records["after_seq"].fillna(base)
    is_off = (records["seq"] != records["after"] + 1) | (records["coordinator_epoch"] < records["highest"])
    for row in day.today(records[is_off]).itertuples():
        yield from _broken(row)


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
    if row.coordinator_epoch < row.highest:
        detail = (
            f"a coordinator of epoch {told(row.coordinator_epoch)} appended after one of epoch {told(row.highest)} at"
        )
        yield finding("L4", FATAL, f"{detail} {at}", row, proof)


def edges(day: Day) -> Iterator[Finding]:
    """Yield what is missing at the end of the log (L2), or before its beginning."""
    for row in day.bounds[day.bounds["missing"] > 0].itertuples():
        head = f"the head counts {row.last + row.missing}, the last one there is {row.last}"
        lost = "record is" if row.missing == 1 else f"{row.missing} records are"
        yield finding("L2", FATAL, f"the last {lost} missing: {head}", row, [(row.last, None)])
    for row in day.bounds[~day.bounds["known"]].itertuples():
        detail = f"no snapshot says what was so before record {row.base + 1}; who had what before it is not known"
        yield finding("unknown-beginning", NOTICE, detail, row)


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
    # Lost commits and adoptions raise epochs out of turn.
    raised = day.of("raised", "adopted")[GROUP].unique()
    rows = day.of("active", "standby", "warmup", "revoked", "demoted")
    rows = rows.loc[(rows["place"] == 0) & ~rows[GROUP].isin(raised), [GROUP, "member", "seq", "at_ms", "number"]]
    pictures = rows.sort_values([GROUP, "member", "seq", "number"], ignore_index=True)
    of_member = pictures.groupby([GROUP, "member"], observed=True)
    for name in ("number", "seq", "at_ms"):
        pictures[f"{name}_before"] = of_member[name].shift()
    is_off = pictures["number_before"].notna() & (pictures["number"] != pictures["number_before"] + 1)
    for row in day.today(pictures[is_off]).itertuples():
        follows = f"its epoch {told(row.number)} follows {told(row.number_before)} at {time_of(row.at_ms)}"
        proof = [(row.seq_before, row.at_ms_before), (row.seq, row.at_ms)]
        yield finding("L2", FATAL, f"{follows}; each change of an assignment adds one", row, proof, of="member")


def generations_told(day: Day) -> Iterator[Finding]:
    """Yield generations that the log has and readers are not shown, the other way round, or told otherwise (L2)."""
    placed = day.today(day.of("placed"))
    placed = placed.loc[placed["token"] > 0, [GROUP, "number", "seq", "at_ms", "until_ms"]].astype({GROUP: str})
    shown = day.generations[[GROUP, "number", "moves", "at_ms", "version"]]
    both = placed.merge(shown, on=[GROUP, "number"], how="outer", suffixes=("_placed", "_shown"))
    differ = both["seq"].isna() | both["version"].isna() | (both["until_ms"] != both["moves"])
    for row in both[differ].itertuples():
        if pd.isna(row.version):
            detail = f"generation {told(row.number)} is in the log, and not among the generations"
        elif pd.isna(row.seq):
            detail = f"generation {told(row.number)} is told, and not in the log"
        else:
            tasks = "task" if row.until_ms == 1 else "tasks"
            moved = f"moved {told(row.until_ms)} {tasks} by the log, {told(row.moves)} as told"
            detail = f"generation {told(row.number)} {moved}"
        at = row.at_ms_shown if pd.isna(row.at_ms_placed) else row.at_ms_placed
        yield finding("L2", FATAL, detail, row, [(row.seq, at)])


def histories_shown(day: Day) -> list[Finding]:
    """Return the groups whose task histories, as readers are shown them, are not what the log says (L2).

    The log's side is counted here; the other one the database counts where it lies, in either way.
    """
    rows = day.today(day.of("active", "reported"))
    grants = rows[rows["what"] == "active"]
    counts = pd.DataFrame(
        {
            "grants": grants.groupby(GROUP, observed=True).size(),
            "tokens": grants.groupby(GROUP, observed=True)["token"].sum(),
            "reports": rows[rows["what"] == "reported"].groupby(GROUP, observed=True).size(),
        }
    )
    counts = counts.reindex(day.bounds[GROUP]).fillna(0).astype("int64")
    logged = {str(group): (one, two, three) for group, one, two, three in counts.itertuples()}
    return changes_shown(logged, lambda sql: source.rows(day.url, sql), day.plan)
