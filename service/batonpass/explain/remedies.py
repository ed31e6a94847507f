"""What can be wrong with a group: how bad that is, what to do, the command for it, and a page of `docs/runbooks`.

A group's health and events look it up. What to do is one sentence: a command that is offered is named in it, and a
command that it names is offered.
"""

import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Level(StrEnum):
    """How a group is, the worst first."""

    TROUBLE = "trouble"
    ATTENTION = "attention"
    MOVING = "moving"
    AT_REST = "at-rest"
    NOT_DEPLOYED = "not-deployed"


class Advice(NamedTuple):
    """How bad something is, what to do, with gaps for a health to fill in, the command, if one helps, and the runbook.

    ``option`` is what makes the command do as the sentence says.
    """

    level: Level
    todo: str = ""
    action: str = ""
    runbook: str = ""
    option: str = ""

    def command(self, group: str, *about: str) -> str:
        """Return the command line for a group, or for a member or a task of it; empty if no command helps."""
        words = ("batonpass", self.action, group, *about, *filter(None, [self.option]))
        return shlex.join(words) if self.action else ""


_START: Final = "Start workers."
_WAIT: Final = "Nothing; wait."

HELP: Final[Mapping[str, Advice]] = {
    "not-ready": Advice(Level.ATTENTION, "Create its source topics, or declare what is missing."),
    "not-deployed": Advice(Level.NOT_DEPLOYED, _START),
    "all-left": Advice(Level.ATTENTION, _START, runbook="task-without-owner"),
    "members-gone": Advice(Level.TROUBLE, _START, runbook="storm"),
    "task-parked": Advice(
        Level.TROUBLE,
        "First mend what the worker logged ({detail}), then release what is parked.",
        "release",
        "task-not-running",
    ),
    "task-failed": Advice(
        Level.TROUBLE,
        "Look at the log of {name}, and give it what it lacks; another member is tried by itself, if there is one.",
        runbook="task-not-running",
    ),
    "failed-everywhere": Advice(
        Level.TROUBLE,
        "{name} failed it alike, and no other may try it now: look at their logs, and at what it reads and keeps.",
        runbook="task-not-running",
    ),
    "failed-paused": Advice(
        Level.TROUBLE,
        "Look at the log of {name}, and give it what it lacks; or resume: until then no other member tries it.",
        "resume",
        "task-not-running",
    ),
    "not-started": Advice(
        Level.TROUBLE, "Look at the log of {name}: its callback has not returned.", runbook="task-not-running"
    ),
    "without-owner": Advice(
        Level.TROUBLE,
        "Wait; what the cause names ends by itself. The runbook says what is faster.",
        runbook="task-without-owner",
    ),
    "leased": Advice(
        Level.TROUBLE,
        "Wait; only if the process of {name} is surely dead, evict it with --dead to have that sooner.",
        "evict",
        "task-without-owner",
        option="--dead",
    ),
    "without-place": Advice(
        Level.TROUBLE,
        "Start workers that may take it, or give those that are there more room.",
        runbook="task-without-owner",
    ),
    "no-taker": Advice(
        Level.TROUBLE,
        "Start workers that may take it, give those that are there more room, or undrain one that may.",
        "undrain",
        "task-without-owner",
    ),
    "stale-topology": Advice(
        Level.TROUBLE,
        "Deploy workers that know the newest topology; those that are there do not have these tasks.",
        runbook="task-without-owner",
    ),
    "storm": Advice(
        Level.TROUBLE,
        "If the members will come back, wait; if they are gone for good, resume: their tasks are rebuilt elsewhere.",
        "resume",
        "storm",
    ),
    "slow": Advice(
        Level.ATTENTION,
        "Look at the log of {name}: its callback has not returned. After {span} it is no longer waited for.",
        runbook="handover-stuck",
    ),
    "restoring": Advice(Level.ATTENTION, "Wait; this restore has to finish.", runbook="task-not-running"),
    "member-lost": Advice(Level.ATTENTION, runbook="member-silent"),
    "unheard": Advice(Level.ATTENTION, "Wait {span}; members report by themselves.", runbook="member-silent"),
    "silent": Advice(
        Level.ATTENTION,
        "If {name} does not come back within {span}, its tasks {detail}; "
        "only if its process is surely dead, evict it with --dead to have that sooner.",
        "evict",
        "member-silent",
        option="--dead",
    ),
    "silent-alone": Advice(
        Level.ATTENTION, "Start workers, or {name} anew: nobody else can take its tasks.", runbook="member-silent"
    ),
    "silent-idle": Advice(Level.ATTENTION, "Nothing; wait: no task runs there.", runbook="member-silent"),
    "application-silent": Advice(
        Level.ATTENTION, "Start the application, or mend what is between; else delete the group."
    ),
    "distrusted": Advice(
        Level.ATTENTION,
        "Find out what fails on {name}; once that is mended, trust it, or wait.",
        "trust",
        "member-distrusted",
    ),
    "taking-turns": Advice(
        Level.ATTENTION,
        "If two processes have the instance id {name}, give each its own; if one is started again and again, look at its log.",
        runbook="flapping",
    ),
    "drained": Advice(Level.MOVING, "Stop the process of {name}, or undrain it if it is to stay.", "undrain"),
    "draining": Advice(Level.MOVING, "Nothing; wait, or undrain it if it is to stay.", "undrain"),
    "drain-blocked": Advice(
        Level.ATTENTION, "Start workers that can take what is left, or undrain it.", "undrain", "handover-stuck"
    ),
    "warmup-stalled": Advice(
        Level.ATTENTION,
        "Look at the log of {name}, its disk and what it reads from; the task runs where it is meanwhile.",
        runbook="warmup-stalled",
    ),
    "paused": Advice(Level.ATTENTION, "Resume when what it was paused for is done.", "resume", "paused-too-long"),
    "commits-lost": Advice(
        Level.ATTENTION, "Wait {span}, and find out why the store lost commits.", runbook="commits-lost"
    ),
    "grants-held": Advice(Level.ATTENTION, "Wait {span}; then what waits is granted by itself."),
    "kept-out": Advice(Level.AT_REST, "Nothing if it is to stay out; else undrain it.", "undrain"),
    "placement-failed": Advice(
        Level.ATTENTION,
        "Take back what was last bound, limited, weighted or tagged, then probe.",
        "probe",
        "placement-failed",
    ),
    "refused": Advice(
        Level.TROUBLE, "Mend what is refused, as the runbook says; it is asked again.", runbook="rebalances-refused"
    ),
    "moving": Advice(Level.MOVING, _WAIT),
    "no-spare": Advice(Level.AT_REST, "{detail}, if the spare copies are to come back."),
    "at-rest": Advice(Level.AT_REST, "Nothing."),
}
"""By what is wrong, as a group's health calls it, or more closely. What only events tell has no words on what to do."""

_TOLD: Final[Mapping[str, str]] = {
    "member-suspected": "member-lost",
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


def remedy_of(kind: str, cause: str, group: str, *about: str) -> EventRemedy | None:
    """Return what helps against what an event of a type tells; None if nothing is wrong.

    ``cause`` is that of a member that is gone, ``about`` the task or the member, as commands know them.
    """
    what = "member-lost" if kind == "member-gone" and cause in _LOST else _TOLD.get(kind)
    return None if what is None else EventRemedy(HELP[what].command(group, *about), HELP[what].runbook)


class Refusal(NamedTuple):
    """What to do about a call that was refused, and the name of a runbook."""

    todo: str
    runbook: str = ""


_AGAIN: Final = "Ask again in a moment; workers keep what they have meanwhile."

REFUSALS: Final[Mapping[str, Refusal]] = {
    "unauthenticated": Refusal("Give a token: --token, BATONPASS_TOKEN, or --data with the folder of a running `up`."),
    "forbidden": Refusal(
        "Use a token of a higher role, or of this group; an admin makes one: `batonpass token create`."
    ),
    "unknown-group": Refusal("`batonpass groups` lists the groups, `batonpass groups declare` makes one."),
    "unknown-member": Refusal("`batonpass members GROUP` lists the members."),
    "group-not-empty": Refusal("Or delete it with --force; tasks of workers then stop at once."),
    "not-safe-to-stop": Refusal("`batonpass drain GROUP MEMBER --wait` hands its tasks over first."),
    "precondition-failed": Refusal("Somebody changed the group in between: look at it, and ask again."),
    "store-unavailable": Refusal(_AGAIN, "store-errors"),
    "coordinator-loading": Refusal(_AGAIN, "no-coordinator"),
}
"""By the type of the problem; for other types, the coordinator's own detail says it."""
