"""What a worker process does with one task, what may trouble its machine, and how it is set up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from batonpass.simulate.scenario import WorkerPlan
from batonpass.worker.protocol import MemberSettings, OnLeaseLost


class Activity(StrEnum):
    """What the process does with a task."""

    TAILING = "tailing"
    RESTORING = "restoring"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"


WRITING = frozenset({Activity.RUNNING, Activity.STOPPING})


@dataclass(slots=True)
class LocalTask:
    """One task in one process. ``position`` was reached at ``at_ms``, world time; ``turn`` tells stale plans."""

    task: str
    activity: Activity
    position: int
    at_ms: int
    token: int = 0
    turn: int = 0


@dataclass(slots=True)
class Trouble:
    """Until when a machine is cut off, slow or stuck; instants of the world's time.

    Attributes:
        cut_until_ms: no coordinator can be reached.
        cut_poll_until_ms: no long-poll goes through.
        slow_until_ms: a commit takes seconds.
        hangs_until_ms: a commit ends only then.
        frozen_until_ms: nothing is restored.
        mute_until_ms: it cannot be said how far a copy is.
    """

    cut_until_ms: int = 0
    cut_poll_until_ms: int = 0
    slow_until_ms: int = 0
    hangs_until_ms: int = 0
    frozen_until_ms: int = 0
    mute_until_ms: int = 0


def settings_of(plan: WorkerPlan, *, takeover: bool, jitter_seed: int) -> MemberSettings:
    """Return how a process of this machine speaks the protocol; only an instance can be taken over."""
    return MemberSettings(
        instance_id=plan.instance_id,
        takeover=takeover and plan.instance_id is not None,
        capacity=plan.capacity,
        max_tasks=plan.max_tasks,
        client_tags=dict(plan.tags),
        on_lease_lost=OnLeaseLost(plan.on_lease_lost.value),
        poll_wait_ms=4_000,
        request_timeout_ms=1_000,
        jitter_seed=jitter_seed,
    )
