"""The laws of tasks in pandas: one owner at a time (L1), ready copies take over (L7), bounds are kept (L8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from tests.benchmarks.audit.alone_read import GROUP, Day, finding, subtopologies, time_of, told, words

from batonpass.audit.findings import Finding, Severity

FATAL = Severity.FATAL


def one_owner(day: Day, story: pd.DataFrame) -> Iterator[Finding]:
    """Yield grants made while somebody else might still run the task, or under a token that did not grow (L1)."""
    is_grant = (story["act"] == "hold") & (story["what"] == "active")
    wrong = story[is_grant & ((story["holders"] > 1) | (story["token"] <= story["held_token"]))]
    holds = story[(story["act"] == "hold") & story["task_no"].isin(wrong["task_no"])]
    earlier = holds.groupby("task_no")[["seq", "at_ms", "member"]].shift().add_prefix("held_")
    for row in day.today(wrong.join(earlier)).itertuples():
        proof = [(row.held_seq, row.held_at_ms), (row.seq, row.at_ms)]
        granted = f"granted at {time_of(row.ms)}"
        if row.holders > 1:
            unsure = "might still run it: neither confirmed, nor gone, nor out of its lease"
            yield finding(
                "L1", FATAL, f"{granted} while {told(row.held_member)} {unsure}", row, proof, of="task member"
            )
        if row.token <= row.held_token:
            fell = f"under token {told(row.token)}, which is not above {told(row.held_token)} that was granted before"
            yield finding("L1", FATAL, f"{granted} {fell}", row, proof, of="task member")


def stateless(day: Day) -> set[tuple[str, str]]:
    """Return the subtopologies of each group that have no state."""
    return {(group, part[0]) for group, parts in words(day.of("topology")) for part in parts if not part[2]}


def is_stateless(day: Day, tasks: pd.DataFrame) -> pd.Series:
    """Return whether each of these tasks has no state."""
    without = pd.DataFrame(stateless(day), columns=[GROUP, "part"]).assign(has_none=True)
    named = pd.DataFrame({GROUP: tasks[GROUP].astype(str), "part": subtopologies(tasks["task"])})
    found = named.merge(without, on=[GROUP, "part"], how="left")["has_none"].notna()
    return found.set_axis(tasks.index)


def handovers(day: Day, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that ended because their willing owner was told to give the task up to somebody else."""
    rows = day.of("suspected", "drain")
    excused = rows.loc[(rows["what"] == "suspected") | rows["until_ms"].notna(), [GROUP, "member"]].drop_duplicates()
    runners = excused.rename(columns={"member": "runner"}).assign(is_excused=True)
    ended = runs[
        (runs["taken_seq"] > runs["claim_seq"])
        & ~(runs["fell_seq"] <= runs["claim_seq"])
        & ~runs["parked"]
        & (runs["taker"] != runs["runner"])
    ]
    marked = ended.merge(runners, how="left", on=[GROUP, "runner"])
    return marked[marked["is_excused"].isna()]


def cold_promotions(day: Day, moved: pd.DataFrame) -> Iterator[Finding]:
    """Yield handovers from a running, willing owner to a member whose copy was not caught up (L7)."""
    is_chosen = moved["heir"].isna() | (moved["heir"] == moved["taker"])
    cold = moved[~moved["taken_ready"].fillna(value=True) & is_chosen]
    has_copy = cold["taken_role"].isin(["standby", "warmup"])
    cold = cold[(~has_copy | (cold["taken_epoch"] == cold["claim_epoch"])) & ~is_stateless(day, cold)]
    for row in cold[cold["taken_seq"] >= day.firsts(cold[GROUP])].assign(member=cold["taker"]).itertuples():
        is_behind = row.taken_role in {"standby", "warmup"}
        has = f"a {row.taken_role} that was not caught up" if is_behind else "no copy of it"
        taken = f"taken from {row.runner}, which ran it, at {time_of(row.claim_ms)} for {row.taker}, which had {has}"
        proof = [(row.claim_seq, row.claim_at_ms), (row.taken_seq, row.taken_at_ms)]
        yield finding("L7", FATAL, taken, row, proof, of="task member")


def handovers_per_target(day: Day, moved: pd.DataFrame) -> Iterator[Finding]:
    """Yield tasks that were handed over more than once from a running owner for one change of target (L8)."""
    times = moved.groupby(["task_no", "claim_target_no"])["claim_seq"].transform("size")
    again = moved[times > 1].sort_values("claim_seq")
    for _, rows in again.groupby(["task_no", "claim_target_no"]):
        proof = list(zip(rows["claim_seq"], rows["claim_at_ms"], strict=True))[:10]
        row: Any = rows.assign(member=rows["taker"]).loc[rows["taken_seq"].idxmax()]
        since = f"since {time_of(proof[0][1])}"
        detail = f"{len(rows)} handovers from running owners for one change of its target, {since}"
        if proof[-1][0] >= int(day.bounds.set_index(GROUP)["first"][row[GROUP]]):
            yield finding("L8", FATAL, detail, row, proof, of="task member")


def _copies(setting: int | str, least: int, stateful: int) -> int:
    if isinstance(setting, str) and setting.endswith("%"):
        return max(1, least, -int(-(float(setting[:-1]) * stateful / 100 - 1e-9) // 1))
    return max(1, int(setting))


def budgets(day: Day) -> pd.DataFrame:
    """Return for each group the most warmups that its settings allowed at any time of the day."""
    sizes: dict[str, int] = {}
    for group, parts in words(day.of("topology")):
        sizes[group] = max(sizes.get(group, 0), sum(part[1] for part in parts if part[2]))
    rows = [
        (
            group,
            _copies(config["max_warmup_replicas"], 1, sizes.get(group, 0)),
            _copies(config["max_drain_warmups"], 2, sizes.get(group, 0)),
            config["max_warmups_per_member"],
        )
        for group, config in words(day.of("config"))
    ]
    most = pd.DataFrame(rows, columns=[GROUP, "replicas", "drains", "allowed_per_member"]).groupby(GROUP).max()
    return most.assign(allowed=most["replicas"] + most["drains"]).reset_index()


def warmup_budgets(day: Day, warmups: pd.DataFrame) -> Iterator[Finding]:
    """Yield decisions that began a warmup beyond the budget of the group or of its member (L8)."""
    columns = [GROUP, "task", "member", "seq", "at_ms"]
    begins = warmups[[GROUP, "task", "member", "from_seq", "from_at_ms"]].set_axis(columns, axis=1).assign(change=1)
    ends = warmups.loc[warmups["to_seq"].notna(), [GROUP, "task", "member", "to_seq", "to_at_ms"]]
    edges = pd.concat([begins, ends.set_axis(columns, axis=1).assign(change=-1)], ignore_index=True)
    edges = edges.sort_values([GROUP, "seq", "change", "task", "member"], ignore_index=True)
    allowed = budgets(day)
    for keys, most, of in (([GROUP], "allowed", "task"), ([GROUP, "member"], "allowed_per_member", "task member")):
        edges["running"] = edges.groupby(keys, observed=True)["change"].cumsum()
        # One decision writes several records at one instant, and is judged by what it comes to.
        decision = [*keys, "at_ms"]
        edges["began"] = edges.groupby(decision, observed=True)["change"].transform("max") > 0
        last = edges.drop_duplicates(decision, keep="last").astype({GROUP: str}).merge(allowed, on=GROUP)
        for row in day.today(last[last["began"] & (last["running"] > last[most])]).itertuples():
            at = time_of(row.at_ms)
            if of == "task":
                detail = f"{row.running} warmups at {at}; max_warmup_replicas and max_drain_warmups together allow"
            else:
                detail = f"{row.running} warmups on one member at {at}; max_warmups_per_member allows"
            said = f"{detail} {getattr(row, most)}"
            yield finding("L8", FATAL, said, row, [(row.seq, row.at_ms)], of=of)
