"""Generations: what caused each, and what it moved."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from batonpass.dashboard.words import Names, why

Json = Mapping[str, Any]

TRIGGERS: Final[Mapping[str, str]] = {
    "join": "a member joined",
    "member-changed": "a process has other threads or tags",
    "leave": "a member left",
    "evict": "a member was evicted",
    "expiry": "a lease ran out",
    "fenced": "a member did not confirm in time",
    "grace-over": "a restarting member did not come back",
    "restart": "a member restarts",
    "suspected": "a member fell silent",
    "heard-again": "a silent member spoke again",
    "drain": "a member drains",
    "undrain": "a drain was taken back",
    "suspicion-cleared": "a silent member spoke again",
    "topology": "the topology changed",
    "partitions": "partitions were added",
    "config": "a setting changed",
    "pin": "a pin changed",
    "resume": "an operator resumed",
    "pause-over": "a pause ran out",
    "kept-out-over": "an instance is no longer kept out",
    "storm-ended": "a storm ended",
    "release": "a task was released",
    "member-distrusted": "tasks that failed on a member run elsewhere",
    "member-trusted": "a member is given tasks again",
    "task-failed": "a task failed",
    "warmup-stalled": "a warmup came no closer",
}


class Flow(NamedTuple):
    """How many tasks one generation moved from one member to another."""

    source: str | None
    to: str | None
    tasks: int
    why: str


def because(triggers: Sequence[str]) -> str:
    """Return what caused a generation, in words."""
    return ", ".join(TRIGGERS.get(one, one.replace("-", " ")) for one in triggers) or "nothing in particular"


def flows(diff: Sequence[Json]) -> list[Flow]:
    """Return the moves of actives by source, destination and reason, the largest first."""
    counts = Counter((one["from"], one["to"], one["why"]) for one in diff if one["from"] != one["to"])
    found = [Flow(source, to, tasks, why(code)) for (source, to, code), tasks in counts.items()]
    return sorted(found, key=lambda one: (-one.tasks, one.source or "", one.to or ""))


def reasons(generation: Json, names: Names) -> list[tuple[str, str, int]]:
    """Return the reasons that a generation records: what, details, for how many tasks."""
    return [
        (why(one["code"]), names.within(one["detail"] or one["task"] or ""), one["tasks"])
        for one in generation["reasons"]
    ]
