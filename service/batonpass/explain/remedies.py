"""What helps against what is wrong: a command, a runbook, and what to do. Health and events look it up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Advice(NamedTuple):
    """The command, if one helps, the runbook, if there is one, and what to do, for a health to fill in and say."""

    action: str
    runbook: str
    todo: str = ""


_START: Final = "Start workers."
_WAIT: Final = "Nothing; wait."

HELP: Final[Mapping[str, Advice]] = {
    "not-ready": Advice("", "", "Create its source topics, or declare what is missing."),
    "not-deployed": Advice("", "", _START),
    "all-left": Advice("", "task-without-owner", _START),
    "members-gone": Advice("", "storm", _START),
    "task-parked": Advice(
        "release", "task-not-running", "First mend what the worker logged ({detail}), then release what is parked."
    ),
    "task-failed": Advice(
        "",
        "task-not-running",
        "Look at the log of {name}, and give it what it lacks; another member is tried by itself, if there is one.",
    ),
    "not-started": Advice("", "task-not-running", "Look at the log of {name}: its callback has not returned."),
    "without-owner": Advice(
        "",
        "task-without-owner",
        "If no member may take it, or has room, start workers; anything else that the cause names ends by itself.",
    ),
    "leased": Advice("", "task-without-owner", "Wait; evict its last owner with --dead only if its process is dead."),
    "storm": Advice(
        "resume",
        "storm",
        "If the members will come back, wait; if they are gone for good, resume: their tasks are rebuilt elsewhere.",
    ),
    "restoring": Advice("", "task-not-running", "Wait; this restore has to finish."),
    "member-lost": Advice("", "member-silent"),
    "unheard": Advice("", "member-silent", "Wait {span}; members report by themselves."),
    "silent": Advice(
        "evict",
        "member-silent",
        "If {name} does not come back within {span}, its tasks {detail}; "
        "only if its process is surely dead, evict it with --dead to have that sooner.",
    ),
    "silent-alone": Advice("", "member-silent", "Start workers, or {name} anew: nobody else can take its tasks."),
    "silent-idle": Advice("evict", "member-silent", "Nothing; wait: it runs no task."),
    "application-silent": Advice("", "", "Start the application, or mend what is between; else delete the group."),
    "distrusted": Advice(
        "trust", "member-distrusted", "Find out what fails on {name}; once that is mended, trust it, or wait."
    ),
    "drained": Advice("undrain", "", "Stop the process of {name}."),
    "draining": Advice("undrain", "", _WAIT),
    "drain-blocked": Advice("undrain", "handover-stuck", "Start workers that can take what is left, or undrain it."),
    "warmup-stalled": Advice("", "warmup-stalled"),
    "paused": Advice("resume", "paused-too-long", "Resume when what it was paused for is done."),
    "commits-lost": Advice("", "commits-lost", "Wait {span}, and find out why the store lost commits."),
    "placement-failed": Advice("", "placement-failed", "Undo the last pin, limit, weight or tag, and probe."),
    "refused": Advice("", "rebalances-refused", "Mend what is refused, as the runbook says; it is asked again."),
    "moving": Advice("", "", _WAIT),
    "no-spare": Advice("", "", "Start a worker, if the spare copies are to come back."),
    "at-rest": Advice("", "", "Nothing."),
}
"""By what is wrong, as a group's health calls it, or more closely. What only events tell has no words on what to do."""


def words_of(action: str, group: str, *about: str) -> tuple[str, ...]:
    """Return the words of the command line that carries out an action on a group, or on a member or a task of it."""
    return ("batonpass", action, group, *about)
