"""What a finding of the audit may be, in a line each: a law that was broken, or a notice.

The report, the dashboard and docs/audit.md use the same names; a finding with any other name cannot be made.
"""

from __future__ import annotations

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
    "downtime-objective": "available for less of the day than the objective says",
    "replay-incomplete": "not every decision could be made again",
    "what-if-incomplete": "the day could not be simulated under other settings",
    "unknown-beginning": "it is not known how the day began",
    "unreadable-snapshot": "it is not known how the day began",
}
"""What breaks no law and is worth a look, by the name of the finding."""


def require_known(name: str) -> None:
    """Refuse a finding whose name has no meaning here.

    Raises:
        ValueError: when the name is neither a law nor a notice.
    """
    if name not in LAWS and name not in NOTICES:
        raise ValueError(f"{name!r} is neither a law nor a notice; say in batonpass/laws.py what it means")
