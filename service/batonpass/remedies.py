"""What helps against what an event tells: a command, and a page of `docs/runbooks`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from batonpass.explain.remedies import HELP, words_of

_TOLD: Final[Mapping[str, str]] = {
    "member-suspected": "silent",
    "member-distrusted": "distrusted",
    "drain-blocked": "drain-blocked",
    "task-failed": "task-failed",
    "task-lost": "task-failed",
    "task-parked": "task-parked",
    "warmup-stalled": "warmup-stalled",
    "storm-began": "storm",
    "paused": "paused",
    "commits-lost": "commits-lost",
    "placement-failed": "placement-failed",
}
"""What is wrong, by the type of the event that tells it."""

_LOST: Final = frozenset({"expired", "fenced", "grace-over"})
"""Causes of `member-gone` that nobody asked for."""


class EventRemedy(NamedTuple):
    """A command line, empty if no command helps, and the name of a runbook."""

    command: str
    runbook: str


def remedy_of(event: Mapping[str, Any], member: str = "") -> EventRemedy | None:
    """Return what helps against what an event tells; None if nothing is wrong. ``member`` is its member's name."""
    what = _TOLD.get(event["type"])
    if event["type"] == "member-gone" and (event.get("body") or {}).get("cause") in _LOST:
        what = "member-lost"
    if what is None:
        return None
    action, runbook, _ = HELP[what]
    about = [str(one) for one in (event.get("task"), member or event.get("member")) if one][:1]
    return EventRemedy(shlex.join(words_of(action, event["group"], *about)) if action else "", runbook)
