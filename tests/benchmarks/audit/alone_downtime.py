"""How long nobody ran a task, and why, in pandas: gaps between runs, their causes, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from tests.benchmarks.audit.alone_laws import is_stateless
from tests.benchmarks.audit.alone_read import GROUP, Day, chosen, finding, time_of, told, words

from batonpass.audit.downtime import DEATHS, STUCK_MS
from batonpass.audit.findings import Finding, Severity

CAUSES = ["count", "p50_ms", "p99_ms", "max_ms", "total_ms"]


def identities(day: Day) -> pd.DataFrame:
    """Return by which name each member is known again after a restart: its instance id, else its own."""
    joined = day.of("joined")[[GROUP, "member", "word"]].astype(object)
    joined = joined.sort_values("word", na_position="first").rename(columns={"word": "identity"})
    names = joined.drop_duplicates([GROUP, "member"], keep="last")
    return names.assign(identity=names["identity"].fillna(names["member"]))


def _patience(day: Day) -> pd.DataFrame:
    """Return the longest session timeout of each group, and the longest patience with the silent."""
    rows = [(group, one["session_timeout_ms"], one["suspect_timeout_ms"]) for group, one in words(day.of("config"))]
    return pd.DataFrame(rows, columns=[GROUP, "session_ms", "suspect_ms"]).groupby(GROUP).max().reset_index()


def gaps(day: Day, runs: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """Return the stretches without a runner, with their causes (``downtime.GAPS``)."""
    begin_ms, end_ms = day.plan.begin_ms, day.plan.end_ms
    down = runs[((runs["run"] == 0) | runs["down_ms"].notna()) & ~runs["parked"]].reset_index(drop=True)
    gone = down["down_what"] == "gone"
    is_expired, is_suspected = gone & (down["down_word"] == "expired"), down["down_what"] == "waived"
    patience = down[[GROUP]].astype(str).merge(_patience(day), how="left", on=GROUP)
    silence = patience["session_ms"].where(is_expired, patience["suspect_ms"]).fillna(0)
    since = chosen(
        [down["run"] == 0, is_expired | is_suspected],
        [down["taken_ms"], np.fmax(down["up_ms"], down["down_ms"] - silence)],
        down["down_ms"],
        down.index,
    )
    until = down["next_up_ms"].fillna(end_ms)
    down["from_ms"], down["to_ms"] = since.clip(lower=begin_ms), until.clip(upper=end_ms)
    owned = np.minimum(down["taken_ms"].fillna(end_ms), down["to_ms"])
    down["gap_ms"] = (down["to_ms"] - down["from_ms"]).clip(lower=0)
    down["unowned_ms"] = (owned - down["from_ms"]).clip(lower=0)
    down["why"] = down["down_word"].astype(object).fillna(down["down_what"].astype(object))
    down["why"] = down["why"].mask(is_suspected, "suspected")
    died = is_suspected | (gone & down["down_word"].isin(DEATHS))
    inside = (since < end_ms) & (until > begin_ms)
    return _with_causes(day, down.assign(died=died)[inside].reset_index(drop=True), names)


def _with_causes(day: Day, down: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    mine, theirs = (
        down[[GROUP, of]].astype(object).rename(columns={of: "member"}).merge(names, how="left", on=[GROUP, "member"])
        for of in ("runner", "next_runner")
    )
    is_ready = down["next_ready"].fillna(value=False).astype(bool) | is_stateless(day, down)
    # Who died is told to give its tasks up as well, for when it should live after all.
    asked = down["claim_seq"].notna() & ~(down["fell_seq"] <= down["claim_seq"]) & ~down["died"]
    down["cause"] = chosen(
        [down["unowned_ms"] > STUCK_MS, down["run"] == 0, mine["identity"] == theirs["identity"], ~is_ready, asked],
        ["stuck", "cold-start", "restart", "cold-start", "warm-handover"],
        "failover",
        down.index,
    )
    return down


def causes(found: pd.DataFrame) -> pd.DataFrame:
    """Return the distribution of downtime of each group and cause; a percentile is a gap that there was."""
    by = found.groupby([GROUP, "cause"], observed=True)["gap_ms"]
    shares = by.agg(lambda some: tuple(np.quantile(some, (0.5, 0.99), method="inverted_cdf")))
    made = by.agg(count="size", max_ms="max", total_ms="sum")
    made["p50_ms"], made["p99_ms"] = shares.str[0], shares.str[1]
    return made[CAUSES].reset_index()


def lifetimes(day: Day, runs: pd.DataFrame) -> pd.DataFrame:
    """Return how many tasks each group had, and for how long they were to be run, all together."""
    begin_ms, end_ms = day.plan.begin_ms, day.plan.end_ms
    rows = runs[[GROUP, "task_no"]].assign(first_ms=runs["up_ms"].fillna(runs["taken_ms"]))
    # A task counts from its first grant, if it has one; whether it ran then is what availability says.
    firsts = rows.groupby([GROUP, "task_no"], observed=True)["first_ms"].min().fillna(end_ms)
    meant = end_ms - firsts.clip(begin_ms, end_ms)
    return meant.groupby(level=GROUP, observed=True).agg(tasks_seen="size", task_ms="sum")


def stuck_tasks(found: pd.DataFrame) -> Iterator[Finding]:
    """Yield tasks that were granted to nobody for long (stuck-task)."""
    stuck = found[(found["unowned_ms"] > STUCK_MS) & found["runner"].notna()]
    for row in stuck.assign(member=stuck["runner"]).itertuples():
        minutes = int(row.unowned_ms / 60_000 + 0.5)
        detail = f"granted to nobody for {minutes} minutes from {time_of(row.from_ms)} ({told(row.why)})"
        yield finding("stuck-task", Severity.NOTICE, detail, row, [(row.down_seq, row.from_ms)], of="task member")
