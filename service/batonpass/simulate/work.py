"""What a worker process does with one task."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Work(StrEnum):
    """What the process does with a task."""

    TAILING = "tailing"
    RESTORING = "restoring"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"


WRITING = frozenset({Work.RUNNING, Work.STOPPING})


@dataclass(slots=True)
class LocalTask:
    """One task in one process. ``position`` was reached at ``at_ms``, world time; ``turn`` tells stale plans."""

    task: str
    work: Work
    position: int
    at_ms: int
    token: int = 0
    turn: int = 0
