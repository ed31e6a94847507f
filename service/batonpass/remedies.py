"""What helps against what an event tells: a command, and a page of `docs/runbooks`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_HELP: Final[Mapping[str, tuple[str, str]]] = {
    "member-suspected": ("evict", "heartbeat-late"),
    "member-distrusted": ("trust", "member-distrusted"),
    "drain-blocked": ("undrain", "handover-stuck"),
    "task-failed": ("", "task-not-running"),
    "task-lost": ("", "task-not-running"),
    "task-parked": ("release", "task-not-running"),
    "warmup-stalled": ("", "warmup-stalled"),
    "storm-began": ("resume", "storm"),
    "paused": ("resume", "paused-too-long"),
    "commits-lost": ("", "commits-lost"),
    "placement-failed": ("", "placement-failed"),
}
"""By the type of an event: the command, if one helps, and the runbook."""

_LOST: Final = frozenset({"expired", "fenced", "grace-over"})
"""Causes of `member-gone` that nobody asked for."""


class Remedy(NamedTuple):
    """A command line, empty if no command helps, and the name of a runbook."""

    command: str
    runbook: str


def remedy_of(event: Mapping[str, Any], member: str = "") -> Remedy | None:
    """Return what helps against what an event tells; None if nothing is wrong. ``member`` is its member's name."""
    kind = event["type"]
    if kind == "member-gone" and (event.get("body") or {}).get("cause") in _LOST:
        return Remedy("", "heartbeat-late")
    if kind not in _HELP:
        return None
    action, runbook = _HELP[kind]
    about = [str(one) for one in (event.get("task"), member or event.get("member")) if one][:1]
    return Remedy(shlex.join(["batonpass", action, event["group"], *about]) if action else "", runbook)
