"""The story of each task in pandas: who may run it after each row, and the runs and warmups that follow from that."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from tests.benchmarks.audit.alone_read import GROUP, Day, chosen

TASK: Final = [GROUP, "task"]
HELD: Final = [*TASK, "member"]
OF_TASKS: Final = (
    *("active", "standby", "warmup", "adopted", "claimed", "revoked", "demoted", "dropped", "released", "waived"),
    *("reported", "heir", "target", "parked", "stopped"),
)
COLUMNS: Final = (
    *(*HELD, "seq", "place", "at_ms", "coordinator_epoch", "what", "ms", "token", "until_ms", "ready", "word"),
)
ROLES: Final = {"active": "active", "adopted": "active", "standby": "standby", "warmup": "warmup"} | dict.fromkeys(
    ("revoked", "demoted", "dropped", "gone"), "none"
)
MARKS: Final = {"standby": "standby", "warmup": "warmup"} | {
    **dict.fromkeys(("active", "adopted", "heir"), "promoted"),
    **dict.fromkeys(("revoked", "dropped", "gone"), "dropped"),
}


def story(day: Day) -> pd.DataFrame:
    """Return the rows of each task in the order of the log, with the ends of the members that held something of it."""
    own = day.of(*OF_TASKS)[[*COLUMNS]]
    told = pd.concat([own, _ends(day, own), _given_up(own)], ignore_index=True)
    for name in (*HELD, "what", "word"):
        told[name] = pd.Categorical(told[name], categories=_categories(day, name))
    return told.sort_values([*TASK, "seq", "place"], ignore_index=True)


def _categories(day: Day, name: str) -> pd.Index:
    known = day.changes[name].cat.categories
    return known.union(["gone", "dropped", "restarted", "group-deleted"]) if name in {"what", "word"} else known


def _ends(day: Day, own: pd.DataFrame) -> pd.DataFrame:
    """Return what befell the holders of tasks."""
    columns = [GROUP, "member", "seq", "place", "at_ms", "coordinator_epoch", "ms", "until_ms", "word"]
    gone, away = day.of("gone")[columns], day.of("away")[columns]
    away = away.assign(until_ms=away["ms"], word="restarted")
    deleted = day.of("deleted")[[one for one in columns if one != "member"]]
    joined = day.of("joined")[[GROUP, "member", "seq"]].rename(columns={"seq": "joined_seq"})
    deleted = joined.merge(deleted, on=GROUP).query("joined_seq < seq")
    deleted = deleted.assign(until_ms=deleted["ms"], word="group-deleted")[columns]
    plain = {GROUP: object, "member": object, "word": object}
    ended = pd.concat([one.astype(plain) for one in (gone, away, deleted)], ignore_index=True)
    held = own.loc[own["what"].isin(["active", "standby", "warmup", "adopted", "claimed"]), [*HELD, "seq"]]
    first = held.groupby(HELD, observed=True)["seq"].min().rename("held_seq").reset_index()
    ends = first.astype({GROUP: object, "member": object}).merge(ended, on=[GROUP, "member"])
    return ends[ends["held_seq"] <= ends["seq"]].drop(columns="held_seq").assign(what="gone")


def _given_up(own: pd.DataFrame) -> pd.DataFrame:
    """Return whose task somebody else turned out to run after lost commits: it gives it up."""
    columns = [*TASK, "seq", "place", "at_ms", "coordinator_epoch", "ms"]
    adopted = own.loc[own["what"] == "adopted", [*columns, "member"]].rename(columns={"member": "adopter"})
    held = own.loc[own["what"].isin(["active", "adopted"]), [*HELD, "seq"]].rename(columns={"seq": "held_seq"})
    lost = adopted.merge(held, on=TASK)
    lost = lost[(lost["held_seq"] < lost["seq"]) & (lost["member"] != lost["adopter"])]
    return lost.drop_duplicates([*HELD, "seq"])[[*columns, "member"]].assign(what="dropped")


def before(values: pd.Series, key: pd.Series) -> pd.Series:
    """Return the last value that there is in the rows before, within each key."""
    return values.groupby(key).ffill().groupby(key).shift()


def followed(told: pd.DataFrame) -> pd.DataFrame:
    """Return the story with what follows from the rows before each; standbys that stay such are left out.

    The columns mean what they do in the audit's tables (``timeline.RIGHTS``, ``timeline.FOLLOWED``,
    ``checks_tasks.DOUBTFUL``); ``target_no`` counts the changes of a task's target. ``task_no`` stands for
    a task, ``held_no`` for a task and member, ``stretch`` for a task and run.
    """
    told["held_no"] = told.groupby(HELD, observed=True, dropna=False, sort=False).ngroup()
    role = told["what"].astype(object).map(ROLES)
    told["role_before"] = before(role, told["held_no"]).fillna("none")
    told["was_gone"] = _was_gone(told, role)
    told = told[(told["what"] != "standby") | (told["role_before"] == "warmup")].reset_index(drop=True)
    told["task_no"] = told.groupby(TASK, observed=True, sort=False).ngroup()
    _follow_rights(told)
    _follow_tasks(told)
    return told


def _was_gone(told: pd.DataFrame, role: pd.Series) -> pd.Series:
    """Return whether a member has had nothing of the task since it went, nor was the task meant for it."""
    went = (told["what"] == "gone") & (told["until_ms"] <= told["ms"]).fillna(value=False)
    counts = role.notna() | told["what"].isin(["target", "claimed"])
    return before(went.astype(float).where(counts), told["held_no"]).fillna(0) > 0


def _follow_rights(told: pd.DataFrame) -> None:
    what, key, role = told["what"], told["held_no"], told["role_before"]
    is_hold = what.isin(["active", "adopted"])
    is_claim = (what == "claimed") | (what.isin(["revoked", "demoted", "dropped"]) & (role == "active"))
    is_free = what.isin(["released", "waived"])
    act = chosen([is_hold, is_claim, is_free, what == "gone"], ["hold", "claim", "free", "gone"], None, told.index)
    last_act, last_right = before(act, key), before(act.where(act != "free"), key)
    is_bound = (told["until_ms"] > told["ms"]) & ((role == "active") | (last_act == "claim"))
    # A confirmation of something given up before the present grant ends nothing.
    licensed = chosen(
        [is_hold | is_claim, is_free, what == "gone"],
        [1.0, (last_right == "hold").astype(float), is_bound.astype(float)],
        np.nan,
        told.index,
    )
    told["act"], told["licensed"] = act, licensed
    told["was_licensed"] = before(licensed, key).fillna(0)
    told["grant_ready"] = before(told["ready"].where(is_hold), key)


def _follow_tasks(told: pd.DataFrame) -> None:
    what, key, member = told["what"], told["task_no"], told["member"]
    is_hold, is_report = told["act"] == "hold", what == "reported"
    runs = is_report & (told["word"] == "running")
    told["holders"] = (told["licensed"].fillna(told["was_licensed"]) - told["was_licensed"]).groupby(key).cumsum()
    told["held_token"] = told["token"].where(is_hold).groupby(key).cummax().groupby(key).ffill().groupby(key).shift()
    told["is_up"] = what.isin(["adopted", "stopped"]) | runs
    told["run"] = told["is_up"].astype(int).groupby(key).cumsum()
    told["stretch"] = (told["is_up"] | (key != key.shift())).cumsum()
    told["runner"] = before(member.where(told["is_up"]), key)
    # The place of a member that went is inherited, or lost: the task is meant for somebody else then, if it had one.
    is_target = what == "target"
    target = member.cat.codes.where(is_target)
    is_new = ((what == "gone") & ~told["was_gone"]) | (is_target & (target != before(target, key)))
    told["target_no"] = is_new.astype(int).groupby(key).cumsum()
    told["is_mine"] = member == told["runner"]
    told["fell"] = told["is_mine"] & is_report & ~runs
    ends = (told["was_licensed"] > 0) & (told["licensed"] == 0)
    told["is_down"] = (what == "stopped") | (told["is_mine"] & ends) | told["fell"]


def runs(told: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run, with its end and with who was granted the task next (``timeline.RUNS``)."""

    def first(condition: pd.Series, **names: str) -> pd.DataFrame:
        rows = told.loc[condition, ["stretch", *names.values()]]
        return rows.drop_duplicates("stretch").set_index("stretch").set_axis(list(names), axis=1)

    at = {"seq": "seq", "ms": "ms", "at_ms": "at_ms", "epoch": "coordinator_epoch"}
    claim = {f"claim_{name}": of for name, of in (at | {"target_no": "target_no"}).items()}
    down = {f"down_{name}": name for name in ("seq", "ms", "what", "word")}
    taken = {f"taken_{name}": of for name, of in (at | {"ready": "ready", "role": "role_before"}).items()}
    made = first(told["stretch"].notna(), group_id=GROUP, task="task", task_no="task_no", run="run")
    up = {"runner": "member", "up_ms": "ms", "up_ready": "grant_ready"}
    heirs = told[told["what"] == "heir"].drop_duplicates("stretch", keep="last").set_index("stretch")["member"]
    made = made.join(
        [
            first(told["is_up"], **up),
            first((told["act"] == "claim") & told["is_mine"], **claim),
            first(told["is_down"], **down),
            first((told["act"] == "hold") & (told["what"] != "adopted"), taker="member", **taken),
            first(told["fell"], fell_seq="seq"),
            heirs.rename("heir"),
        ]
    )
    made["parked"] = made.index.isin(told.loc[told["what"] == "parked", "stretch"])
    following = made.groupby("task_no")
    for name, of in (("runner", "runner"), ("up_ms", "up_ms"), ("ready", "up_ready")):
        made[f"next_{name}"] = following[of].shift(-1)
    return made.reset_index(drop=True)


def warmups(told: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each warmup (``timeline.WARMUPS``)."""
    is_warmed = told["held_no"].isin(told.loc[told["what"] == "warmup", "held_no"])
    mark = told["what"].astype(object).map(MARKS)
    marked = told.loc[is_warmed & mark.notna(), ["held_no", *HELD, "seq", "at_ms", "ms"]].assign(mark=mark)
    of_held = marked.groupby("held_no")
    for name in ("seq", "at_ms", "ms"):
        marked[f"to_{name}"] = of_held[name].shift(-1)
    marked["outcome"] = of_held["mark"].shift(-1).fillna("open")
    marked["fresh"] = of_held["mark"].shift().fillna("dropped") == "dropped"
    names = {"seq": "from_seq", "at_ms": "from_at_ms", "ms": "from_ms"}
    found = marked[(marked["mark"] == "warmup") & (marked["outcome"] != "warmup")]
    return found.rename(columns=names).drop(columns=["held_no", "mark"])
