"""What the day cost each group, in pandas: warmups, looks of the timer, flapping members, balance."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from tests.benchmarks.audit.alone_downtime import causes, lifetimes
from tests.benchmarks.audit.alone_read import GROUP, Day, finding, time_of

from batonpass.audit.findings import Finding, GroupDay, Severity
from batonpass.audit.measures import FLAPPING_WITHIN_MS, FLAPS, STUCK_WARMUP_MS, group_days

NOTICE = Severity.NOTICE
MEMBER = [GROUP, "identity"]
SHOWN = 20


def probes(day: Day) -> pd.DataFrame:
    """Return the looks of the timer, and whether nothing came of each (``measures.PROBES``)."""
    rows = day.of("probe")[[GROUP, "seq", "place", "at_ms", "until_ms"]]
    rows = rows.sort_values([GROUP, "seq", "place"], ignore_index=True)
    due = rows.groupby(GROUP, observed=True)["until_ms"].shift()
    looked = rows[(due <= rows["at_ms"]) & (rows["at_ms"] >= day.plan.begin_ms)]
    is_other = (day.changes["place"] == 0) & (day.changes["what"] != "probe")
    others = day.changes.loc[is_other, [GROUP, "at_ms"]].drop_duplicates().assign(changed=True)
    beside = looked.merge(others, how="left", on=[GROUP, "at_ms"])
    return beside.assign(futile=beside["changed"].isna() & beside["until_ms"].notna())


def departures(day: Day, names: pd.DataFrame) -> pd.DataFrame:
    """Return each time that a member went by itself (``measures.DEPARTURES``)."""
    columns = [GROUP, "member", "seq", "at_ms"]
    rows = day.today(day.of("away", "suspected", "gone"))
    by_itself = rows["word"].isin(["expired", "fenced", "replaced", "taken-over"])
    rows = rows[(rows["what"] != "gone") | by_itself]
    suspected = rows.loc[rows["what"] == "suspected", columns].astype({GROUP: object, "member": object})
    went = rows.loc[rows["what"] != "suspected", columns].astype({GROUP: object, "member": object})
    # Who expires after a suspicion has gone once, not twice.
    once = suspected[[GROUP, "member"]].drop_duplicates().assign(was_suspected=True)
    went = went.merge(once, how="left", on=[GROUP, "member"])
    both = pd.concat([went.loc[went["was_suspected"].isna(), columns], suspected], ignore_index=True)
    named = both.merge(names, how="left", on=[GROUP, "member"])
    # Where the record of its joining is missing, a member is known by its id alone.
    return named.assign(identity=named["identity"].fillna(named["member"]))


def flapping(gone: pd.DataFrame) -> pd.DataFrame:
    """Return the worst hour of each member that came and went again and again: how often, and until when."""
    rows = gone.sort_values([*MEMBER, "at_ms", "seq"])
    # Both edges of the hour are within it.
    within = pd.Timedelta(milliseconds=FLAPPING_WITHIN_MS + 1)
    timed = rows.set_index(pd.to_datetime(rows["at_ms"], unit="ms"))
    times = timed.groupby(MEMBER)["seq"].rolling(within).count()
    rows = rows.assign(times=times.to_numpy().astype(int))
    worst = rows[rows["times"] >= FLAPS].sort_values(["times", "at_ms", "seq"])
    return worst.drop_duplicates(MEMBER, keep="last")


def flapping_members(gone: pd.DataFrame, worst: pd.DataFrame) -> Iterator[Finding]:
    """Yield members that came and went again and again (flapping-member)."""
    for row in worst.assign(member=worst["identity"]).itertuples():
        is_known = gone["identity"] == row.identity
        within = gone["at_ms"].between(row.at_ms - FLAPPING_WITHIN_MS, row.at_ms)
        hour = gone[(gone[GROUP] == row.group_id) & is_known & within].sort_values(["at_ms", "seq"])[:SHOWN]
        detail = f"went and came back {row.times} times within an hour, until {time_of(row.at_ms)}"
        proof = list(zip(hour["seq"], hour["at_ms"], strict=True))
        yield finding("flapping-member", NOTICE, detail, row, proof, of="member")


def stuck_warmups(day: Day, warmups: pd.DataFrame) -> Iterator[Finding]:
    """Yield warmups that took very long without coming closer, and those that Batonpass gave up on (stuck-warmup)."""
    keys = [GROUP, "task", "member"]
    until = warmups["to_ms"].fillna(day.plan.end_ms)
    is_long = (until - warmups["from_ms"] >= STUCK_WARMUP_MS) & (until >= day.plan.begin_ms)
    long = warmups.assign(until_ms=until)[is_long].reset_index(names="warmup")
    seen = long.merge(day.lags.rename(columns={"at_ms": "seen_ms"}), on=keys)
    seen = seen[seen["seen_ms"].between(seen["from_ms"], seen["until_ms"])]
    first = seen.sort_values("seen_ms").drop_duplicates("warmup").set_index("warmup")["lag"].reindex(long["warmup"])
    known = seen[seen["lag"].notna()].sort_values(["seen_ms", "lag"])
    last = known.drop_duplicates("warmup", keep="last").set_index("warmup")["lag"].reindex(first.index)
    stuck = first.index[~(last < first)]
    for row in long[long["warmup"].isin(stuck)].itertuples():
        minutes = int((row.until_ms - row.from_ms) / 60_000 + 0.5)
        detail = f"a warmup since {time_of(row.from_ms)} came to nothing in {minutes} minutes"
        yield finding("stuck-warmup", NOTICE, detail, row, [(row.from_seq, row.from_at_ms)], of="task member")
    for row in day.today(day.of("stalled")).itertuples():
        detail = f"its warmup made no progress and was given up at {time_of(row.at_ms)}"
        yield finding("stuck-warmup", NOTICE, detail, row, [(row.seq, row.at_ms)], of="task member")


def balance(day: Day) -> pd.DataFrame:
    """Return how uneven the load of each group was, by the target of each generation for as long as it stood."""
    rows = day.generations.sort_values([GROUP, "number"], ignore_index=True)
    following = rows.groupby(GROUP)["at_ms"].shift(-1).fillna(day.plan.end_ms)
    rows["stood_ms"] = following - rows["at_ms"]
    rows["weighted"] = rows["score"] * rows["stood_ms"]
    of_group = rows.groupby(GROUP)
    found = of_group.agg(
        balance_worst=("score", "max"),
        members_max=("members", "max"),
        tasks_max=("tasks", "max"),
    )
    sums = of_group[["weighted", "stood_ms"]].sum()
    found["balance_mean"] = sums["weighted"] / sums["stood_ms"].where(sums["stood_ms"] != 0)
    return found


def _counts(day: Day) -> pd.DataFrame:
    # Of the ranges that are read, only what is before the day is not of it.
    of_day = day.today(day.changes[[GROUP, "seq", "place", "what", "token", "until_ms", "word"]])
    placed = of_day[of_day["what"] == "placed"]
    of_group = placed.assign(lower_bound=placed["word"].astype(object).astype(float)).groupby(GROUP, observed=True)
    return pd.DataFrame(
        {
            "records": of_day[of_day["place"] == 0].groupby(GROUP, observed=True).size(),
            "generations": placed[placed["token"] > 0].groupby(GROUP, observed=True).size(),
            "moves": of_group["until_ms"].sum(),
            "lower_bound": of_group["lower_bound"].sum(),
        }
    )


def _downtime(found: pd.DataFrame) -> pd.DataFrame:
    of_group = found.groupby(GROUP, observed=True)
    names = {"warm-handover": "handovers", "failover": "failovers", "cold-start": "cold_starts"}
    times = pd.crosstab(found[GROUP], found["cause"]).reindex(columns=list(names), fill_value=0)
    sums = of_group.agg(downtime_ms=("gap_ms", "sum"), longest_unowned_ms=("unowned_ms", "max"))
    return sums.join(times.rename(columns=names))


def group_measures(
    day: Day, runs: pd.DataFrame, warmups: pd.DataFrame, found: pd.DataFrame, worst: pd.DataFrame
) -> dict[str, GroupDay]:
    """Return what the day of each group came to, from its runs, warmups, gaps and flapping members."""
    reaching = warmups[warmups["to_ms"].fillna(day.plan.end_ms) >= day.plan.begin_ms]
    looks = probes(day).groupby(GROUP, observed=True)
    counted = reaching.assign(wasted=reaching["outcome"] == "dropped").groupby(GROUP, observed=True)
    parts = [
        _counts(day),
        counted.agg(warmups=("wasted", "size"), wasted_warmups=("wasted", "sum")),
        looks.agg(probes=("futile", "size"), futile_probes=("futile", "sum")),
        worst.groupby(GROUP).size().rename("flapping_members"),
        _downtime(found),
        lifetimes(day, runs),
        balance(day),
    ]
    table = day.bounds[[GROUP]].set_index(GROUP)
    for part in parts:
        table = table.join(part.set_axis(part.index.astype(object)))
    days = table.reset_index().astype(object)
    return group_days(days.where(days.notna(), None).to_dict("records"), causes(found).to_dict("records"))
