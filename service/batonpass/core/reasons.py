"""Typed explanations: why a task moved, why a move is held back, why a look changed nothing.

Every decision carries them. The API, the dashboard, the metrics and the audit show the same ones.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from batonpass.core.ids import MemberId, TaskId


class Why(StrEnum):
    """Why a task stays where it is, or goes where it goes.

    The first six say why its target is not the member that has it. The others say why it has its active where it has it
    when a step is complete.
    """

    NO_OWNER = "no-owner"
    DRAIN = "drain"
    PINNED = "pinned"
    MAX_TASKS = "max-tasks"
    TOPOLOGY = "topology"
    BALANCE = "balance"
    STAYS = "stays"
    HANDOVER = "handover"
    HANDOVER_UNDER_WAY = "handover-under-way"
    FAILOVER = "failover"
    TAKEOVER = "takeover"
    COLD_START = "cold-start"
    WARMING = "warming"
    DEADLINE = "drain-deadline"
    TASK_DROPPED = "copy-dropped"
    """The topology no longer has this task. The code is stored in old records, so it keeps its name."""
    STATELESS = "stateless"
    LOST_STATE = "lost-state"


class Held(StrEnum):
    """Why a task is not with its target owner, or has no owner: what its move, or its grant, waits for."""

    WARMUP_BUDGET = "warmup-budget"
    MEMBER_WARMUP_BUDGET = "member-warmup-budget"
    DRAIN_BUDGET = "drain-budget"
    NO_CAPACITY = "no-capacity"
    NO_ELIGIBLE_MEMBER = "no-eligible-member"
    STALE_TOPOLOGY = "stale-topology"
    STATE_UNKNOWN = "state-unknown"
    REVOKING = "revoking"
    LEASE = "lease-not-over"
    REVOKE_FIRST = "member-must-revoke-first"
    TAKE_OVER_FIRST = "owner-must-take-over-first"
    PARKED = "parked"
    FAILED = "failed"
    MEMBER_OVERDUE = "member-overdue"
    PAUSED = "paused"
    STORM = "storm"
    REJOIN_GRACE = "rejoin-grace"
    GRANTS_HELD = "grants-held"
    STALLED = "warmup-stalled"
    INITIAL_DELAY = "initial-delay"
    PLACEMENT_FAILED = "placement-failed"


class NoChange(StrEnum):
    """Why a look changed nothing."""

    AT_REST = "at-rest"
    SAME_TARGET = "same-target"
    NO_MEMBERS = "no-members"
    NOT_READY = "topology-not-ready"
    DUPLICATE = "late-or-doubled"
    UNCHANGED = "unchanged"
    PLACEMENT_FAILED = "placement-failed"


class Happened(StrEnum):
    """What happened to a member only because time passed."""

    EXPIRED = "expired"
    SUSPECTED = "suspected"
    FENCED = "fenced"
    DRAIN_BLOCKED = "drain-blocked"


class Reason(NamedTuple):
    """One explanation. ``code`` is one of the above, or ``parked`` for a task that has just failed too often.

    ``task`` is None if the reason concerns the group. ``tasks`` is how many tasks share it.
    """

    code: str
    task: TaskId | None = None
    to: MemberId | None = None
    detail: str = ""
    tasks: int = 1
