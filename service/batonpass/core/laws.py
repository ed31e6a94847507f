"""The ten laws in words, for reports and pages; `invariants` checks them."""

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
