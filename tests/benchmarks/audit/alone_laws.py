"""The laws of tasks in pandas: one owner at a time (L1), ready copies take over (L7), bounds are kept (L8)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pandas as pd
from tests.benchmarks.audit.alone_log import leaps
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
    # Where the beginning is lost, nobody knows which tasks have state.
    sure = {*day.bounds.loc[day.bounds["known"], GROUP]} - set(leaps(day)) | {*day.of("topology")[GROUP].astype(str)}
    is_sure = cold[GROUP].astype(str).isin(sure)
    cold = cold[(~has_copy | (cold["taken_epoch"] == cold["claim_epoch"])) & ~is_stateless(day, cold) & is_sure]
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


class Budget(NamedTuple):
    """What settings allow from a record on."""

    normal: int
    drains: int
    of_member: int


Steps = dict[str, list[tuple[int, Any]]]
"""By group, in the order of the log: what holds from a record on."""


def _holds(steps: Steps, group: str, seq: int) -> Any:
    """Return what holds at a record; None where nothing does yet."""
    known = steps.get(group, [])
    place = bisect_right(known, seq, key=lambda step: step[0])
    return known[place - 1][1] if place else None


def budgets(day: Day) -> Steps:
    """Return the budgets of each group, by its settings and topology of the moment."""
    made: Steps = {}
    config: dict[str, Any] = {}
    stateful: dict[str, int] = {}
    rows = day.of("config", "topology").sort_values([GROUP, "seq", "place"])
    for seq, what, (group, said) in zip(rows["seq"], rows["what"], words(rows), strict=True):
        if what == "config":
            config[group] = said
        else:
            stateful[group] = sum(part[1] for part in said if part[2])
        if group in config:
            of, tasks = config[group], stateful.get(group, 0)
            normal, drains = _copies(of["max_warmup_replicas"], 1, tasks), _copies(of["max_drain_warmups"], 2, tasks)
            made.setdefault(group, []).append((int(seq), Budget(normal, drains, of["max_warmups_per_member"])))
    return made


def draining(day: Day) -> Steps:
    """Return how many members of each group drain."""
    made: Steps = {}
    now: dict[str, set[str]] = {}
    rows = day.of("drain", "undrain", "gone", "away", "deleted").sort_values([GROUP, "seq", "place"])
    for row in rows.itertuples():
        members = now.setdefault(str(row.group_id), set())
        if row.what == "deleted":
            members.clear()
        elif row.what == "drain":
            members.add(str(row.member))
        else:
            members.discard(str(row.member))
        made.setdefault(str(row.group_id), []).append((int(row.seq), len(members)))
    return made


def warmup_budgets(day: Day, warmups: pd.DataFrame) -> Iterator[Finding]:
    """Yield decisions that began a warmup beyond the budget of the group or of its member (L8)."""
    columns = [GROUP, "task", "member", "seq", "at_ms", "fresh"]
    begins = warmups[[GROUP, "task", "member", "from_seq", "from_at_ms", "fresh"]].set_axis(columns, axis=1)
    ends = warmups.loc[warmups["to_seq"].notna(), [GROUP, "task", "member", "to_seq", "to_at_ms"]].assign(fresh=False)
    edges = pd.concat([begins.assign(change=1), ends.set_axis(columns, axis=1).assign(change=-1)], ignore_index=True)
    edges = edges.sort_values([GROUP, "seq", "change", "task", "member"], ignore_index=True)
    allowed, drains = budgets(day), draining(day)
    for keys, of in (([GROUP], "task"), ([GROUP, "member"], "task member")):
        edges["running"] = edges.groupby(keys, observed=True)["change"].cumsum()
        # One decision writes several records at one instant, and is judged by what it comes to.
        decision = [*keys, "at_ms"]
        edges["began"] = edges.groupby(decision, observed=True)["fresh"].transform("max")
        last = edges.drop_duplicates(decision, keep="last")
        for row in day.today(last[last["began"]]).itertuples():
            group, seq, at = str(row.group_id), int(row.seq), time_of(row.at_ms)
            budget = _holds(allowed, group, seq)
            if budget is None:
                continue
            more = budget.drains if _holds(drains, group, seq) else 0
            if of == "task":
                most = budget.normal + more
                whose = "max_warmup_replicas and max_drain_warmups together allow" if more else ""
                detail = f"{row.running} warmups at {at}; {whose or 'nobody drains, and max_warmup_replicas allows'}"
            else:
                most = budget.of_member
                detail = f"{row.running} warmups on one member at {at}; max_warmups_per_member allows"
            if row.running > most:
                yield finding("L8", FATAL, f"{detail} {most}", row, [(row.seq, row.at_ms)], of=of)


def unproven(day: Day, found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings but for those of which a record that is not known may be the confirmation that lacks."""
    unknown = leaps(day)
    for one in found:
        after = one.sequences[0] if len(one.sequences) > 1 else 0
        if one.law not in {"L1", "L7", "L8"} or not any(
            after < seq <= one.sequences[-1] for seq in unknown.get(one.group, ())
        ):
            yield one
