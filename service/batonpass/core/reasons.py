"""Typed explanations: why a task moved, why a move is held back, why a look changed nothing.

Every decision carries them; the API, the dashboard, the metrics and the audit read the same ones.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from batonpass.core.ids import MemberId, TaskId


class Why(StrEnum):
    """Why a task is where it is, or goes where it goes."""

    STAYS = "stays"
    BALANCE = "balance"
    NO_OWNER = "no-owner"
    DRAIN = "drain"
    PINNED = "pinned"
    HANDOVER = "handover"
    HANDOVER_UNDER_WAY = "handover-under-way"
    FAILOVER = "failover"
    TAKEOVER = "takeover"
    COLD_START = "cold-start"
    WARMING = "warming"
    RETURNED = "returned"
    DEADLINE = "drain-deadline"
    STANDBY = "standby"
    STANDBY_MOVES = "standby-moves"
    COPY_DROPPED = "copy-dropped"
    STATELESS = "stateless"
    LOST_STATE = "lost-state"


class Held(StrEnum):
    """Why a task is not with its target owner and has no copy there yet."""

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


class NoChange(StrEnum):
    """Why a look changed nothing."""

    AT_REST = "at-rest"
    NOTHING_CAUGHT_UP = "nothing-caught-up"
    SAME_TARGET = "same-target"
    NO_MEMBERS = "no-members"
    NOT_READY = "topology-not-ready"
    DUPLICATE = "late-or-doubled"
    PAUSED = "paused"
    NOT_DUE = "not-due"
    UNCHANGED = "unchanged"
    PLACEMENT_FAILED = "placement-failed"


class Reason(NamedTuple):
    """One explanation. ``task`` is None where it concerns the group; ``tasks`` is how many tasks share it."""

    code: str
    task: TaskId | None = None
    to: MemberId | None = None
    detail: str = ""
    tasks: int = 1
