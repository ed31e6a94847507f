"""What a finding of the audit may be, in a line each: a law that was broken, or a notice.

The report, the dashboard and docs/audit.md use the same names; a finding with any other name cannot be made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

LAWS: Final[Mapping[str, str]] = {
    "L1": "at most one member runs a task at any moment",
    "L2": "persist, then change memory, then answer",
    "L3": "a coordinator that was killed goes on from the last commit",
    "L4": "two coordinators never both write for a group",
    "L5": "nobody is expired for a silence that was the coordinator's own",
    "L6": "a member that is not involved in a move is never interrupted",
    "L7": "while the owner is alive and willing, only a caught-up copy takes over",
    "L8": "at most one handover per change of target; extra copies within budget",
    "L9": "the group reaches its target and rests",
    "L10": "same input, same decision",
}
"""The ten laws, in a line each (docs/architecture.md)."""
NOTICES: Final[Mapping[str, str]] = {
    "stuck-warmup": "a warmup that made no progress for an hour, or was given up",
    "stuck-task": "a task that was granted to nobody for ten minutes",
    "flapping-member": "a member that came and went four times within an hour",
    "wasted-warmup": "more than half of the warmups were dropped before they could take over",
    "futile-probes": "nearly all probing rebalances changed nothing: the group never rests",
    "unbalanced": "the most loaded member had much more load than the least loaded one, on average over the day",
    "too-hot": "a member was too hot by measured load for more than an hour of the day",
    "downtime-objective": "available for less of the day than the objective says",
    "replay-incomplete": "not every decision could be made again",
    "what-if-incomplete": "the day could not be simulated under other settings",
    "unknown-beginning": "it is not known how the day began",
    "unreadable-snapshot": "it is not known how the day began",
}
"""What breaks no law and is worth a look, by the name of the finding."""

TITLES: Final[Mapping[str, str]] = {**LAWS, **NOTICES, "L2": "what is stored is whole, and agrees with itself"}
"""What a finding is called for people: a law as it shows in what is stored."""

BROKEN: Final[Mapping[str, tuple[str, str]]] = {
    "L1": (
        (
            "Two members may have processed the same records at the same time. A sink that checks the fencing token refused"
            " the older one; any other sink may have records twice, or older values over newer ones."
        ),
        (
            "If L2 is broken in the group too, begin there. Else see whether two members still claim the task; stop the"
            " one whose assignment lacks it. Then check what the sinks took in these minutes."
        ),
    ),
    "L4": (
        "A coordinator wrote after another one had taken over. Members may have been told different things.",
        (
            "See which coordinators are alive, and end the one that is not the owner; if L2 is broken in the group too, start"
            " none in its place, and go on there. If both had the same database, send the finding and the day's records to"
            " the project: it is a defect."
        ),
    ),
    "L2": (
        (
            "The stored tables contradict each other: rows are missing, damaged or changed. Records of streams are not"
            " touched by that, but the coordinator starts from these rows, and what is said of the group is not proven."
        ),
        (
            "Find out who or what changed rows: a statement by hand, a restore of single tables, a disk. Until you know,"
            " leave coordinators as they are: start none, because it would begin from these rows, and end only one that does"
            " not own the group (L4). The last step is a restore: stop every coordinator first, and restore the whole database, never single"
            " tables: every group goes back to the backup. Run `batonpass db recovered` before a coordinator starts on it"
            " (docs/operations.md, Backup and restore)."
        ),
    ),
    "L10": (
        (
            "A decision comes out differently when it is made again: its input was changed afterwards, or the program is"
            " not deterministic. Data are not affected by that alone."
        ),
        "If L2 is broken in the group too, begin there. Else keep the day's rows and send them to the project.",
    ),
    "L7": (
        (
            "A task went to a member that had to restore it first, although its owner was there. No data are lost; the task"
            " stood still for longer than it had to."
        ),
        "See whether the task runs again. Then send the finding to the project: it is a defect.",
    ),
    "L8": (
        (
            "A task was handed over more often than needed, or more copies were made than allowed. Data are right; brokers,"
            " disks and workers had more to do."
        ),
        (
            "See whether it goes on; pause the group if it does: `batonpass pause GROUP --for 30m` holds moves for balance,"
            " with --all also drains, moves of failed tasks and new copies. Then send the finding to the project."
        ),
    ),
    "L9": (
        (
            "The group does not come to rest, or its state contradicts itself. Data are right as long as no other law is"
            " broken."
        ),
        "See what the group waits for. If L2 is broken in the group too, begin there.",
    ),
    "L3": (
        "After a restart a coordinator did not go on from what was stored. Members may have been told different things.",
        "Treat it as a break of L2.",
    ),
    "L5": (
        "A member was given up for a silence that was the coordinator's own. Its tasks stood still for a while.",
        "See whether the member is back. Then send the finding to the project.",
    ),
    "L6": (
        "A member had to stop tasks of which no move spoke. They stood still for a moment.",
        "See whether it goes on. Then send the finding to the project.",
    ),
}
"""For each law, the worst first: what it means for the data that it was broken, and what to do about it now."""

PARTICULAR: Final = (
    (
        "L1",
        r"is not above|token fell|, which was given",
        (
            "A token that did not grow fences nobody off: a sink that checks it may refuse the rightful owner, or take what"
            " the owner before it still writes. That alone does not mean that two members ran the task."
        ),
        (
            "If L2 is broken in the group too, begin there. Else see in the logs of the owner and of the sinks whether"
            " writes are refused. If the database was restored or failed over, run `batonpass db recovered`: tokens leap"
            " above all that were given. If not, send the finding to the project: it is a defect."
        ),
    ),
    (
        "stuck-task",
        "granted to nobody",
        "The input of the task waits, and its results are late. Data are right.",
        (
            "See what holds the task back; docs/runbooks/task-without-owner.md says for each reason what to do. If the group"
            " has no members, start workers."
        ),
    ),
    (
        "L2",
        r"cannot be read: .*(newer program|this program reads up to)",
        (
            "A record that this version cannot read was probably written by a newer one. Then nothing is damaged, but the"
            " audit could not judge the group from there on."
        ),
        (
            "Audit the day with the newest version of Batonpass that ran on this database. If it cannot read the record"
            " either, or no newer one ever ran, a row was changed: leave"
            " coordinators as they are, and start none, until you know by whom or what."
        ),
    ),
)
"""What has a meaning and advice of its own: the law or notice, what its sentence has in it, and both as above."""


def meaning_of(name: str, sentence: str) -> tuple[str, str]:
    """Return what a finding means for the data and what to do now; both are empty for most notices."""
    for law, has, means, todo in PARTICULAR:
        if law == name and re.search(has, sentence):
            return means, todo
    return BROKEN.get(name, ("", ""))


def require_known(name: str) -> None:
    """Refuse a finding whose name has no meaning here.

    Raises:
        ValueError: when the name is neither a law nor a notice.
    """
    if name not in LAWS and name not in NOTICES:
        raise ValueError(f"{name!r} is neither a law nor a notice; say in batonpass/laws.py what it means")
