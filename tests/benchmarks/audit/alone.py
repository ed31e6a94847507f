"""The same checks in pandas on one core: what the audit is measured against, and a second opinion on what it finds.

It reads the same rows, made flat by the same code, and comes to counts of findings by law and to sums of measures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from tests.benchmarks.audit import DAY

from batonpass.audit import source
from batonpass.audit.downtime import DEATHS, STUCK_MS
from batonpass.audit.flatten import flatten_records
from batonpass.audit.plan import DayPlan, plan_day
from batonpass.audit.tables import SELECTS

TASK: Final = ["group_id", "task"]
HELD: Final = [*TASK, "member"]
FAR: Final = 1 << 62
OF_TASKS: Final = (
    *("active", "standby", "warmup", "adopted", "claimed", "revoked", "demoted", "dropped", "released", "waived"),
    *("reported", "heir", "target", "parked", "stopped"),
)


def audit(url: str) -> dict[str, Any]:
    """Return how often each law was broken, and what the day came to."""
    plan = plan_day(lambda sql: source.rows(url, sql), DAY)
    changes = _read(url)
    firsts = pd.Series({one.group: one.first for one in plan.groups})
    told = _follow(_story(changes))
    runs = _runs(told)
    warmups = _warmups(told)
    gaps = _gaps(runs, changes, plan)
    found = {
        "L1": _one_owner(told),
        "L2+L4": _log(changes),
        "L7": _cold(runs, changes),
        "L8": _twice(runs, changes) + _budgets(warmups, changes),
        "flapping-member": _flapping(changes, firsts),
    }
    placed = changes[changes["what"] == "placed"]
    placed = placed[placed["seq"] >= placed["group_id"].astype(str).map(firsts)]
    return {
        "records": int((changes["place"] == 0).sum()),
        "found": found,
        "runs": len(runs),
        "warmups": len(warmups),
        "downtime_ms": int(gaps["gap_ms"].sum()),
        "causes": {str(cause): int(count) for cause, count in gaps["cause"].value_counts().items()},
        "moves": int(placed["until_ms"].sum()),
    }


def _chosen(conditions: list[Any], values: list[Any], default: Any, index: pd.Index) -> pd.Series:
    """Return for each row the value of the first condition that holds."""
    select: Any = np.select
    return pd.Series(select(conditions, values, default=default), index=index)


def _read(url: str) -> pd.DataFrame:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from flatten_records(source.fetch(url, SELECTS["records"]))

    table = pa.Table.from_batches(batches())
    for place, name in enumerate(table.schema.names):
        if pa.types.is_string(table.schema.types[place]) and name != "word":
            table = table.set_column(place, name, table.column(place).dictionary_encode())
    return table.unify_dictionaries().to_pandas(split_blocks=True, self_destruct=True)


def _log(changes: pd.DataFrame) -> int:
    records = changes.loc[changes["place"] == 0, ["group_id", "seq", "coordinator_epoch"]].sort_values(
        ["group_id", "seq"]
    )
    of_group = records.groupby("group_id", observed=True)
    holes = (of_group["seq"].diff().fillna(1) != 1).sum()
    fell = (records["coordinator_epoch"] < of_group["coordinator_epoch"].cummax()).sum()
    pictures = changes[
        (changes["place"] == 0) & changes["what"].isin(["active", "standby", "warmup", "revoked", "demoted"])
    ]
    of_member = pictures.sort_values("seq").groupby(["group_id", "member"], observed=True)["number"]
    return int(holes + fell + (of_member.diff().fillna(1) != 1).sum())


def _story(changes: pd.DataFrame) -> pd.DataFrame:
    kept = [*HELD, "seq", "place", "at_ms", "coordinator_epoch", "what", "ms", "token", "until_ms", "ready", "word"]
    own = changes.loc[changes["what"].isin(OF_TASKS), kept]
    gone = changes[changes["what"].isin(["gone", "away"])].drop(columns=["task", "token", "ready", "number"])
    gone.loc[gone["what"] == "away", ["until_ms"]] = gone["ms"]
    gone = gone.assign(what="gone", word=gone["word"].where(gone["word"].notna(), "restarted"))
    held = own.loc[own["what"].isin(["active", "standby", "warmup", "adopted", "claimed"]), [*HELD, "seq"]]
    first = held.groupby(HELD, observed=True, as_index=False)["seq"].min().rename(columns={"seq": "held_seq"})
    ends = first.merge(gone, on=["group_id", "member"])
    ends = ends[ends["held_seq"] <= ends["seq"]].drop(columns="held_seq")
    told = pd.concat([own.astype({"what": object}), ends], ignore_index=True)
    for name in HELD:
        told[name] = pd.Categorical(told[name])
    return told.sort_values([*TASK, "seq", "place"], ignore_index=True)


def _before(values: pd.Series, keys: pd.DataFrame, names: list[str]) -> pd.Series:
    """Return the last value that there is in the rows before, within each key."""
    frame = keys[names].assign(value=values)
    filled = frame.groupby(names, observed=True, dropna=False)["value"].ffill()
    return frame.assign(value=filled).groupby(names, observed=True, dropna=False)["value"].shift()


def _follow(told: pd.DataFrame) -> pd.DataFrame:
    what = told["what"]
    role = _chosen(
        [
            what.isin(["active", "adopted"]),
            what.isin(["standby", "warmup"]),
            what.isin(["revoked", "demoted", "dropped", "gone"]),
        ],
        ["active", what, "none"],
        None,
        told.index,
    )
    told["role_before"] = _before(role, told, HELD).fillna("none")
    is_claim = (what == "claimed") | (what.isin(["revoked", "demoted", "dropped"]) & (told["role_before"] == "active"))
    act = _chosen(
        [what.isin(["active", "adopted"]), is_claim, what.isin(["released", "waived"]), what == "gone"],
        ["hold", "claim", "free", "gone"],
        None,
        told.index,
    )
    last_act = _before(act, told, HELD)
    last_right = _before(act.where(act != "free"), told, HELD)
    still = (told["until_ms"] > told["ms"]) & ((told["role_before"] == "active") | (last_act == "claim"))
    licensed = _chosen(
        [act.isin(["hold", "claim"]), act == "free", act == "gone"],
        [1.0, (last_right == "hold").astype(float), still.astype(float)],
        np.nan,
        told.index,
    )
    was = _before(licensed, told, HELD).fillna(0)
    told["act"], told["licensed"], told["was_licensed"] = act, licensed, was
    is_hold = act == "hold"
    told["grant_ready"] = _before(told["ready"].where(is_hold).astype(object), told, HELD)
    change = licensed.fillna(was) - was
    of_task = told[TASK].assign(change=change).groupby(TASK, observed=True)
    told["holders"] = of_task["change"].cumsum()
    told["held_token"] = _before(told["token"].where(is_hold), told, TASK)
    is_up = ((what == "reported") & (told["word"] == "running")) | what.isin(["adopted", "stopped"])
    told["is_up"] = is_up
    told["run"] = told[TASK].assign(up=is_up.astype(int)).groupby(TASK, observed=True)["up"].cumsum()
    told["runner"] = _before(told["member"].astype(object).where(is_up), told, TASK)
    is_target = what == "target"
    target = told["member"].astype(object).where(is_target)
    is_new = (what == "gone") | (is_target & (target != _before(target, told, TASK)))
    told["target_no"] = told[TASK].assign(new=is_new.astype(int)).groupby(TASK, observed=True)["new"].cumsum()
    ends = (was > 0) & (licensed == 0)
    mine = told["member"].astype(object) == told["runner"]
    told["fell"] = mine & (what == "reported") & (told["word"] != "running")
    told["is_down"] = (what == "stopped") | (mine & ends) | told["fell"]
    return told


def _runs(told: pd.DataFrame) -> pd.DataFrame:
    keys = [*TASK, "run"]

    def first(condition: pd.Series, names: dict[str, str]) -> pd.DataFrame:
        rows = told.loc[condition, [*keys, *names]]
        return rows.drop_duplicates(keys).set_index(keys).rename(columns=names)

    mine = told["member"].astype(object) == told["runner"]
    runs = told[keys].drop_duplicates().set_index(keys)
    parts = [
        first(told["is_up"], {"member": "up_member", "ms": "up_ms", "grant_ready": "up_ready"}),
        first(
            (told["act"] == "claim") & mine,
            {"seq": "claim_seq", "ms": "claim_ms", "coordinator_epoch": "claim_epoch", "target_no": "claim_target"},
        ),
        first(told["fell"], {"seq": "fell_seq"}),
        first(told["is_down"], {"seq": "down_seq", "ms": "down_ms", "what": "down_what", "word": "down_word"}),
        first(
            (told["act"] == "hold") & (told["what"] != "adopted"),
            {
                "member": "taker",
                "seq": "taken_seq",
                "ms": "taken_ms",
                "ready": "taken_ready",
                "role_before": "taken_role",
                "coordinator_epoch": "taken_epoch",
            },
        ),
        first(told["what"] == "parked", {"seq": "parked_seq"}),
    ]
    heirs = told[told["what"] == "heir"].drop_duplicates(keys, keep="last").set_index(keys)[["member"]]
    parts.append(heirs.rename(columns={"member": "heir"}))
    for part in parts:
        runs = runs.join(part)
    runs = runs.reset_index().sort_values(keys, ignore_index=True)
    following = runs.groupby(TASK, observed=True)
    for name, of in (("next_member", "up_member"), ("next_up_ms", "up_ms"), ("next_ready", "up_ready")):
        runs[name] = following[of].shift(-1)
    for name in ("up_member", "taker", "heir", "next_member"):
        runs[name] = runs[name].astype(object)
    return runs


def _one_owner(told: pd.DataFrame) -> int:
    grants = told[(told["act"] == "hold") & (told["what"] == "active")]
    return int((grants["holders"] > 1).sum() + (grants["token"] <= grants["held_token"]).sum())


def _willing(runs: pd.DataFrame, changes: pd.DataFrame) -> pd.DataFrame:
    drains = (changes["what"] == "drain") & changes["until_ms"].notna()
    rows = changes.loc[(changes["what"] == "suspected") | drains, ["group_id", "member"]].astype(str)
    excused = set(zip(rows["group_id"], rows["member"], strict=True))
    found = runs[
        runs["claim_seq"].notna()
        & (runs["taken_seq"] > runs["claim_seq"])
        & (runs["fell_seq"].fillna(FAR) > runs["claim_seq"])
        & runs["parked_seq"].isna()
    ]
    names = zip(found["group_id"].astype(str), found["up_member"].astype(str), strict=True)
    return found[[one not in excused for one in names]]


def _stateless(frame: pd.DataFrame, changes: pd.DataFrame) -> pd.Series:
    words = changes.loc[changes["what"] == "topology", ["group_id", "word"]]
    without = {
        (group, part[0])
        for group, word in zip(*words.to_numpy().T, strict=True)
        for part in json.loads(word)
        if not part[2]
    }
    names = frame["task"].astype(str).str.rsplit("_", n=1).str[0]
    pairs = zip(frame["group_id"].astype(str), names, strict=True)
    return pd.Series([pair in without for pair in pairs], index=frame.index, dtype=bool)


def _cold(runs: pd.DataFrame, changes: pd.DataFrame) -> int:
    moved = _willing(runs, changes)
    has_copy = moved["taken_role"].isin(["standby", "warmup"])
    chosen = moved["heir"].isna() | (moved["heir"] == moved["taker"])
    cold = (
        ~moved["taken_ready"].fillna(False).astype(bool)
        & chosen
        & (moved["taker"] != moved["up_member"])
        & (~has_copy | (moved["taken_epoch"] == moved["claim_epoch"]))
    )
    return int((cold & ~_stateless(moved, changes)).sum())


def _twice(runs: pd.DataFrame, changes: pd.DataFrame) -> int:
    moved = _willing(runs, changes)
    moved = moved[moved["taker"] != moved["up_member"]]
    return int((moved.groupby([*TASK, "claim_target"], observed=True).size() > 1).sum())


def _warmups(told: pd.DataFrame) -> pd.DataFrame:
    what = told["what"]
    mark = _chosen(
        [
            what.isin(["active", "adopted", "heir"]),
            what.isin(["standby", "warmup"]),
            what.isin(["revoked", "dropped", "gone"]),
        ],
        ["promoted", what, "dropped"],
        None,
        told.index,
    )
    marked = told.loc[mark.notna() & told["member"].notna(), [*HELD, "seq", "at_ms", "ms"]].assign(mark=mark)
    of_member = marked.groupby(HELD, observed=True)
    for name in ("seq", "at_ms", "mark"):
        marked[f"to_{name}"] = of_member[name].shift(-1)
    return marked[(marked["mark"] == "warmup") & (marked["to_mark"] != "warmup")]


def _budgets(warmups: pd.DataFrame, changes: pd.DataFrame) -> int:
    words = changes.loc[changes["what"] == "config", ["group_id", "word"]]
    configs = {str(group): json.loads(word) for group, word in zip(*words.to_numpy().T, strict=True)}
    words = changes.loc[changes["what"] == "topology", ["group_id", "word"]]
    sizes = {
        str(group): sum(part[1] for part in json.loads(word) if part[2])
        for group, word in zip(*words.to_numpy().T, strict=True)
    }
    allowed = {group: _copies(one, sizes[group]) for group, one in configs.items()}
    single = {group: one["max_warmups_per_member"] for group, one in configs.items()}
    begins = warmups[["group_id", "member", "seq", "at_ms"]].assign(change=1)
    ended = warmups.loc[warmups["to_seq"].notna(), ["group_id", "member", "to_seq", "to_at_ms"]]
    ends = ended.rename(columns={"to_seq": "seq", "to_at_ms": "at_ms"}).assign(change=-1)
    edges = pd.concat([begins, ends], ignore_index=True).sort_values(["group_id", "seq", "change"])
    count = 0
    for keys, most in ((["group_id"], allowed), (["group_id", "member"], single)):
        edges["count"] = edges.groupby(keys, observed=True)["change"].cumsum()
        decisions = edges.groupby([*keys, "at_ms"], observed=True).agg(count=("count", "last"), began=("change", "max"))
        decisions = decisions[decisions["began"] > 0].reset_index()
        count += int((decisions["count"] > decisions["group_id"].astype(str).map(most)).sum())
    return count


def _copies(config: dict[str, Any], stateful: int) -> int:
    def copies(setting: int | str, least: int) -> int:
        if isinstance(setting, str):
            return max(least, -int(-(float(setting[:-1]) * stateful / 100 - 1e-9) // 1))
        return max(1, setting)

    return copies(config["max_warmup_replicas"], 1) + copies(config["max_drain_warmups"], 2)


def _gaps(runs: pd.DataFrame, changes: pd.DataFrame, plan: DayPlan) -> pd.DataFrame:
    joined = changes.loc[changes["what"] == "joined", ["group_id", "member", "word"]].astype(str)
    names = {(g, m): w if w not in {"None", "nan"} else m for g, m, w in zip(*joined.to_numpy().T, strict=True)}
    words = changes.loc[changes["what"] == "config", ["group_id", "word"]]
    configs = {str(group): json.loads(word) for group, word in zip(*words.to_numpy().T, strict=True)}
    session = {group: one["session_timeout_ms"] for group, one in configs.items()}
    patience = {group: one["suspect_timeout_ms"] for group, one in configs.items()}
    down = runs[((runs["run"] == 0) | runs["down_ms"].notna()) & runs["parked_seq"].isna()].copy()
    expired = (down["down_what"] == "gone") & (down["down_word"] == "expired")
    suspected = down["down_what"] == "waived"
    names_of = down["group_id"].astype(str)
    silence = names_of.map(session).where(expired, names_of.map(patience).where(suspected, 0))
    silent = np.maximum(down["up_ms"], down["down_ms"] - silence)
    since = down["taken_ms"].where(down["run"] == 0, silent.where(expired | suspected, down["down_ms"]))
    until = down["next_up_ms"].fillna(plan.end_ms)
    inside = since.notna() & (until > plan.begin_ms) & (since < plan.end_ms)
    down, since, until = down[inside], since[inside], until[inside]
    begin, end = since.clip(lower=plan.begin_ms), until.clip(upper=plan.end_ms)
    down["gap_ms"] = (end - begin).clip(lower=0)
    unowned = (np.minimum(down["taken_ms"].fillna(plan.end_ms), end) - begin).clip(lower=0)
    groups = down["group_id"].astype(str)
    mine = pd.Series([names.get(pair) for pair in zip(groups, down["up_member"], strict=True)], index=down.index)
    theirs = pd.Series([names.get(pair) for pair in zip(groups, down["next_member"], strict=True)], index=down.index)
    ready = down["next_ready"].fillna(False).astype(bool) | _stateless(down, changes)
    died = (down["down_what"] == "waived") | ((down["down_what"] == "gone") & down["down_word"].isin(DEATHS))
    asked = down["claim_seq"].notna() & ~died & (down["fell_seq"].fillna(FAR) > down["claim_seq"])
    down["cause"] = _chosen(
        [unowned > STUCK_MS, down["run"] == 0, mine.notna() & (mine == theirs), ~ready, asked],
        ["stuck", "cold-start", "restart", "cold-start", "warm-handover"],
        "failover",
        down.index,
    )
    return down


def _flapping(changes: pd.DataFrame, firsts: pd.Series) -> int:
    joined = changes.loc[changes["what"] == "joined", ["group_id", "member", "word"]].astype(str)
    names = joined.drop_duplicates(["group_id", "member"])
    suspects = changes[changes["what"] == "suspected"]
    gone = changes[
        (changes["what"] == "away")
        | ((changes["what"] == "gone") & changes["word"].isin(["expired", "fenced", "replaced", "taken-over"]))
    ]
    known = set(zip(suspects["group_id"].astype(str), suspects["member"].astype(str), strict=True))
    pairs = zip(gone["group_id"].astype(str), gone["member"].astype(str), strict=True)
    gone = gone[[pair not in known for pair in pairs]]
    rows = pd.concat([gone, suspects])[["group_id", "member", "seq", "at_ms"]].astype({"group_id": str, "member": str})
    rows = rows[rows["seq"] >= rows["group_id"].map(firsts)].merge(names, on=["group_id", "member"])
    rows["identity"] = rows["word"].where(~rows["word"].isin(["None", "nan"]), rows["member"])
    rows = rows.sort_values("at_ms")
    rows["at"] = pd.to_datetime(rows["at_ms"], unit="ms")
    times = rows.set_index("at").groupby(["group_id", "identity"])["seq"].rolling("3600001ms").count()
    return int((times.groupby(level=[0, 1]).max() >= 4).sum())


if __name__ == "__main__":
    import sys
    import time

    begun = time.monotonic()
    found_there = audit(sys.argv[1])
    # What is not the work is this interpreter with its libraries, which have been imported by now.
    told_there = found_there | {"work_s": time.monotonic() - begun}
    sys.stdout.write(json.dumps(told_there) + "\n")
