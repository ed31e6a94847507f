"""What of a group's health a page lists: the tasks that are not processed, and what each waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from batonpass.client import LEVELS
from batonpass.dashboard.words import Names, span_whole

Json = Mapping[str, Any]

LEVEL_NAMES: Final = {level: level.replace("-", " ").capitalize() for level in LEVELS}
"""What the levels of a group's health are called, the worst first."""

STANDING_STILL: Final = {
    "failed": "failed",
    "lost": "lost its state",
    "parked": "parked after failures",
    "waiting": "without an owner",
    "restoring": "restoring",
}
"""States of a task that is not processed, the worst first."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A task that is not processed: its state in words, and what it waits for."""

    task: str
    state: str
    waits: tuple[str, ...]


def stuck_tasks(explained: Json, names: Names) -> list[Stuck]:
    """Return the tasks that are not processed, among the first that the explanation lists, the worst first."""
    order = list(STANDING_STILL)
    found = [one for one in explained["waiting"] if one["state"] in order]
    return [
        Stuck(
            one["task"],
            STANDING_STILL[one["state"]],
            tuple(names.within(wait_words(wait)) for wait in one["waits_for"]),
        )
        for one in sorted(found, key=lambda one: order.index(one["state"]))
    ]


def wait_words(wait: Json) -> str:
    """Return what a task waits for: which member, what, and for about how long."""
    who = f"{wait['member']}: " if wait["member"] else ""
    soon = f", about {span_whole(wait['eta_ms'])}" if wait["eta_ms"] else ""
    return f"{who}{wait['detail'] or wait['what']}{soon}"
