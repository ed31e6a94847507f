"""What helps against what is wrong: a command, and a page of `docs/runbooks`. Health and events look it up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HELP: Final[Mapping[str, tuple[str, str]]] = {
    "not-processed": ("release", "task-not-running"),
    "without-owner": ("resume", "task-without-owner"),
    "task-failed": ("", "task-not-running"),
    "restoring": ("", "task-not-running"),
    "members-gone": ("", "storm"),
    "all-left": ("", "task-without-owner"),
    "member-lost": ("", "heartbeat-late"),
    "unheard": ("", "heartbeat-late"),
    "silent": ("evict", "heartbeat-late"),
    "distrusted": ("trust", "member-distrusted"),
    "draining": ("undrain", ""),
    "drain-blocked": ("undrain", "handover-stuck"),
    "warmup-stalled": ("", "warmup-stalled"),
    "storm": ("resume", "storm"),
    "paused": ("resume", "paused-too-long"),
    "commits-lost": ("", "commits-lost"),
    "placement-failed": ("", "placement-failed"),
    "refused": ("", "rebalances-refused"),
}
"""By what is wrong, as a group's health calls it: the command, if one helps, and the runbook, if there is one."""


def words_of(action: str, group: str, *about: str) -> tuple[str, ...]:
    """Return the words of the command line that carries out an action on a group, or on a member or a task of it."""
    return ("batonpass", action, group, *about)
