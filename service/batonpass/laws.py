"""What a finding of the audit may be, in a line each: a law that was broken, or a notice.

The report, the dashboard and docs/audit.md use the same names; a finding with any other name cannot be made.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

LAWS: Final = tuple(f"L{number}" for number in range(1, 11))
"""The ten laws (docs/architecture.md)."""
NOTICES: Final[Mapping[str, str]] = {
    "stuck-warmup": "a warmup that made no progress for an hour, or was given up",
    "stuck-task": "nobody ran a task for ten minutes or longer",
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


class Meaning(NamedTuple):
    """What has happened where a law is broken: in a line, what it means for the data, and what to do about it now."""

    title: str
    means: str
    todo: str


MEANINGS: Final[Mapping[str, Meaning]] = {
    "L2": Meaning(
        "stored rows are missing or wrong",
        (
            "The coordinator starts from these rows, and nothing else said of these groups is proven until you know who or"
            " what changed them. Records of streams are not touched."
        ),
        (
            "Find out who or what changed rows: a statement by hand, a restore of single tables, a disk. Until you know,"
            " start no coordinator, and end only one that does not own the group (L4). `evict` is safe. The last step:"
            " stop every coordinator, restore the whole database, never single tables (every group goes back to the backup),"
            " and run `batonpass db recovered` before one starts (docs/operations.md, Backup and restore)."
        ),
    ),
    "L1": Meaning(
        "two members may have run a task at once",
        (
            "Both may have processed the same records. A sink that checks the fencing token refused the older owner; any"
            " other sink may have records twice, or older values over newer ones."
        ),
        "Check what the sinks took in that time.",
    ),
    "L4": Meaning(
        "a coordinator wrote after another had taken over",
        "Members may have been told different things.",
        (
            "See which coordinators are alive, and end the one that is not the owner; if L2 is broken in the group too, start"
            " none in its place. If both had the same database, send the finding and the day's records to the project: it is"
            " a defect."
        ),
    ),
    "L3": Meaning(
        "a restart did not go on from what was stored",
        "Members may have been told different things.",
        "Treat it as a break of L2.",
    ),
    "stuck-task": Meaning(
        NOTICES["stuck-task"],
        "The input of the task waits, and its results are late. Data are right.",
        (
            "See what holds the task back (docs/runbooks/task-without-owner.md). If the group has no members, start workers."
        ),
    ),
    "L10": Meaning(
        "a decision comes out differently when made again",
        "Its input was changed afterwards, or the program is not deterministic. Data are not affected by that alone.",
        "Keep the day's rows and send them to the project.",
    ),
    "L7": Meaning(
        "a task was moved to a member that had to restore it first",
        "No data are lost; the task stood still for longer than it had to.",
        "See whether the task runs again. Then send the finding to the project: it is a defect.",
    ),
    "L8": Meaning(
        "too many handovers, or more copies than allowed",
        "Data are right; brokers, disks and workers had more to do.",
        (
            "See whether it goes on. If it does, pause the group: `batonpass pause GROUP --for 30m` holds moves for balance,"
            " with --all also drains, moves of failed tasks and new copies. Then send the finding to the project."
        ),
    ),
    "L9": Meaning(
        "a group did not come to rest, or contradicts itself",
        "Tasks may stay where they should not be. Data are right as long as no other law is broken.",
        "See what the group waits for.",
    ),
    "L5": Meaning(
        "a member was given up for a silence that was the coordinator's own",
        "Its tasks stood still for a while.",
        "See whether the member is back. Then send the finding to the project.",
    ),
    "L6": Meaning(
        "a member had to stop tasks that nobody was moving",
        "They stood still for a moment.",
        "See whether it goes on. Then send the finding to the project.",
    ),
}
"""What to work on, in this order: for each law, and for tasks that nobody ran."""

PARTICULAR: Final = (
    (
        "L1",
        r"is not above|token fell|, which was given",
        Meaning(
            "a fencing token did not grow",
            (
                "Such a token fences nobody off: a sink that checks it may refuse the rightful owner, or take what the owner"
                " before it still writes. That alone does not mean that two members ran the task."
            ),
            (
                "See in the logs of the owner and of the sinks whether writes are refused. If the database was restored or"
                " failed over, run `batonpass db recovered`: it sets tokens above all that were ever given. If not, send the"
                " finding to the project: it is a defect."
            ),
        ),
    ),
    (
        "L10",
        r"there is no trace of the decision",
        Meaning(
            "records stand in the log of which no decision is known",
            "Somebody else wrote them, or what they were decided from was deleted. Nothing that follows could be checked.",
            "Find out who or what wrote them, as for L2, and keep the day's rows.",
        ),
    ),
    (
        "L2",
        r"cannot be read: .*(newer program|this program reads up to)",
        Meaning(
            "a record cannot be read; a newer version may have written it",
            "If so, nothing is damaged, but from that record on the audit could not judge the group.",
            (
                "Audit the day with the newest version of Batonpass that ran on this database. If it cannot read the record"
                " either, or no newer one ever ran, a row was changed: leave"
                " coordinators as they are, and start none, until you know by whom or what."
            ),
        ),
    ),
)
"""What has a meaning of its own, less bad than that of its law: the law, what the sentence of the finding has in it."""

TITLES: Final[Mapping[str, str]] = {**NOTICES, **{name: one.title for name, one in MEANINGS.items()}}
"""What a finding is called for people: of a law, what happened."""


def meaning_of(name: str, sentence: str) -> Meaning:
    """Return what a finding means for the data and what to do now; both are empty for most notices."""
    for law, has, meaning in PARTICULAR:
        if law == name and re.search(has, sentence):
            return meaning
    return MEANINGS.get(name) or Meaning(TITLES[name], "", "")


def require_known(name: str) -> None:
    """Refuse a finding whose name has no meaning here.

    Raises:
        ValueError: when the name is neither a law nor a notice.
    """
    if name not in LAWS and name not in NOTICES:
        raise ValueError(f"{name!r} is neither a law nor a notice; say in batonpass/laws.py what it means")
