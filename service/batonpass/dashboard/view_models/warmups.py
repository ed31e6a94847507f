"""Copies that are being restored: the progress and rate of each, and when it should be done."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from batonpass.client import instant
from batonpass.dashboard.view_models.grid import eta_of, natural

Json = Mapping[str, Any]


class Warmup(NamedTuple):
    """One copy that is being restored. ``share`` of its time has passed, from 0 to 1; None if that is unknown.

    ``kind`` is `warmup`, `standby` (being filled) or `restore` (an active whose task is not processed meanwhile).
    """

    task: str
    member: str
    kind: str
    lag: int | None
    eta_ms: float | None
    share: float | None


def warmups_of(
    members: Sequence[Json], acceptable_lag: int, begun: Mapping[tuple[str, str], str], now: datetime
) -> list[Warmup]:
    """Return every copy that is behind: first those that hold up processing, then by the expected end.

    ``begun`` is when each (task, member) began, as far as events say. The share is one of time, passed over passed and
    left, because the lag at the beginning was never reported.
    """
    found = []
    for member in members:
        said = member["reports"]
        held = member["assignment"]
        wanted = [("warmup", task) for task in held["warmup"]]
        if not (member["silent"] or member["away_until"]):
            wanted += [
                ("standby", task)
                for task in held["standby"]
                if task not in member["revoking"] and eta_of(said.get(task, {}), acceptable_lag) != 0
            ]
        wanted += [
            ("restore", grant["task"])
            for grant in held["active"]
            if said.get(grant["task"], {}).get("state") == "restoring"
        ]
        for kind, task in wanted:
            eta_ms = eta_of(said.get(task, {}), acceptable_lag)
            began, share = instant(begun.get((task, member["member_id"]))), None
            if began is not None and eta_ms is not None:
                gone_ms = max((now - began).total_seconds() * 1_000, 0.0)
                share = gone_ms / (gone_ms + eta_ms) if gone_ms + eta_ms else 1.0
            found.append(Warmup(task, member["member_id"], kind, said.get(task, {}).get("lag"), eta_ms, share))
    kinds = ("restore", "warmup", "standby")
    return sorted(
        found,
        key=lambda one: (
            kinds.index(one.kind),
            one.eta_ms if one.eta_ms is not None else float("inf"),
            natural(one.task),
        ),
    )


def begun_of(events: Sequence[Json]) -> dict[tuple[str, str], str]:
    """Return when each (task, member) began to warm up, from events in any order: the newest counts."""
    found: dict[tuple[str, str], str] = {}
    for event in sorted(events, key=lambda one: int(one["position"])):
        if event["type"] != "warmup-started" or not event["member"]:
            continue
        tasks = [event["task"]] if event["task"] else event["body"].get("sample", [])
        found |= {(task, event["member"]): event["at"] for task in tasks}
    return found
