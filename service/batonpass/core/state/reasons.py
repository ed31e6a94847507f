"""Typed explanations: why a task moved, why a move is held back, why a look changed nothing.

Every decision carries them. The API, the dashboard, the metrics and the audit show the same ones.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Self

from batonpass.core.state.ids import MemberId, TaskId


class Why(StrEnum):
    """Why a task stays where it is, or moves.

    The first eight say why its target is not the member that has it. The others say why its active is where it is when
    a step is complete.
    """

    NO_OWNER = "no-owner"
    DRAIN = "drain"
    PINNED = "pinned"
    MAX_TASKS = "max-tasks"
    TOPOLOGY = "topology"
    BALANCE = "balance"
    HOT = "hot"
    FAILED_ON_OWNER = "failed-on-owner"
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
    STUCK = "stuck"


class WaitsFor(StrEnum):
    """What a task can wait for."""

    WARMUP = "warmup"
    CONFIRMATION = "confirmation"
    LEASE = "lease"
    SLOT = "slot"
    ROOM = "room"
    MEMBER = "member"
    REPORT = "report"
    RESTORE = "restore"
    PLACEMENT = "placement"
    TIME = "time"
    TRANSACTION = "transaction"
    OPERATOR = "operator"


class Held(StrEnum):
    """Why a task is not with its target owner, or has no owner: what its move, or its grant, waits for.

    ``waits_for`` is that in a word, ``MEANINGS`` in a sentence.
    """

    waits_for: WaitsFor

    def __new__(cls, code: str, waits_for: WaitsFor = WaitsFor.TIME) -> Self:
        """Make a reason of its code and its word. Without one it ends at an instant, which has a wake-up."""
        member = str.__new__(cls, code)
        member._value_, member.waits_for = code, waits_for
        return member

    WARMUP_BUDGET = "warmup-budget", WaitsFor.SLOT
    MEMBER_WARMUP_BUDGET = "member-warmup-budget", WaitsFor.SLOT
    DRAIN_BUDGET = "drain-budget", WaitsFor.SLOT
    NO_CAPACITY = "no-capacity", WaitsFor.ROOM
    NO_ELIGIBLE_MEMBER = "no-eligible-member", WaitsFor.MEMBER
    STALE_TOPOLOGY = "stale-topology", WaitsFor.MEMBER
    STATE_UNKNOWN = "state-unknown", WaitsFor.REPORT
    REVOKING = "revoking", WaitsFor.CONFIRMATION
    LEASE = "lease-not-over", WaitsFor.LEASE
    REVOKE_FIRST = "member-must-revoke-first", WaitsFor.CONFIRMATION
    TAKE_OVER_FIRST = "owner-must-take-over-first", WaitsFor.CONFIRMATION
    PARKED = "parked", WaitsFor.OPERATOR
    FAILED = "failed", WaitsFor.OPERATOR
    FAILED_THERE = "failed-there", WaitsFor.TIME
    MEMBER_OVERDUE = "member-overdue", WaitsFor.TIME
    PAUSED = "paused", WaitsFor.OPERATOR
    STORM = "storm", WaitsFor.TIME
    REJOIN_GRACE = "rejoin-grace", WaitsFor.MEMBER
    GRANTS_HELD = "grants-held", WaitsFor.TIME
    STALLED = "warmup-stalled", WaitsFor.WARMUP
    INITIAL_DELAY = "initial-delay", WaitsFor.PLACEMENT
    PLACEMENT_FAILED = "placement-failed", WaitsFor.PLACEMENT
    OPEN_TRANSACTION = "open-transaction", WaitsFor.TRANSACTION
    NEW_MEMBER = "member-is-new", WaitsFor.TIME


class Hold(NamedTuple):
    """Something is held back: why, and until when at the latest. None: an input ends it, or that is not known.

    Whatever holds says so with this, once. The instant is looked at (``wakeups``), and is what explanations show.
    """

    reason: Held
    until_ms: int | None = None


MEANINGS: Final[Mapping[str, str]] = {
    Held.WARMUP_BUDGET: "all warmup slots of the group are taken (max_warmup_replicas)",
    Held.MEMBER_WARMUP_BUDGET: "all warmup slots of the member are taken (max_warmups_per_member)",
    Held.DRAIN_BUDGET: "all warmup slots for drains are taken (max_drain_warmups)",
    Held.NO_CAPACITY: "no member has room for it (max_tasks, max_disk_bytes)",
    Held.NO_ELIGIBLE_MEMBER: "no member may take it; start workers, or undrain one",
    Held.STALE_TOPOLOGY: "no member knows the topology epoch of the task yet; deploy the workers",
    Held.STATE_UNKNOWN: "a copy exists whose lag is unknown; its member has to report it",
    Held.REVOKING: "its last owner has not confirmed yet that it stopped",
    Held.LEASE: "its last owner may run it until its lease is over",
    Held.REVOKE_FIRST: "its next owner has to confirm first that it gave up other tasks; until then its owner keeps it",
    Held.TAKE_OVER_FIRST: "its owner is about to be granted another task, and keeps this one until then",
    Held.PARKED: "it failed on too many members; release it to have it tried again",
    Held.MEMBER_OVERDUE: "a member is silent and may be about to expire; the move waits until that is known",
    Held.FAILED: "it failed where it is, and no other member may try it now; look at the workers' logs",
    Held.FAILED_THERE: "it did not run there lately; it stays where it is, and is tried there again after a while",
    Held.PAUSED: "moves are held by a pause",
    Held.STORM: "too many members vanished at once; it waits for them for a while, or for an operator who resumes",
    Held.REJOIN_GRACE: "the instance that it belongs to is restarting, and its place is kept",
    Held.GRANTS_HELD: "nothing is granted for a while",
    Held.STALLED: "a warmup came no closer there; it is tried again later, after others",
    Held.INITIAL_DELAY: "the group waits for members that are just joining",
    Held.PLACEMENT_FAILED: "placement found no answer; it is tried again at the next change or probe",
    Held.OPEN_TRANSACTION: "a transaction stays open in its changelog; until it ends, no copy can be read to the end",
    Held.NEW_MEMBER: "members keep joining and leaving again soon; balance waits until this one stays (newcomer_wait_ms)",
    "drain-deadline": "its deadline is over",
    "drain-timeout": "drain_timeout_ms is over",
}
"""What each reason for holding a task back, or for a drain that cannot go on, means, and what ends it."""


def meaning_of(code: str) -> str:
    """Return a reason in words. A newer code, which is not in the table, is returned with spaces for its hyphens."""
    return MEANINGS.get(code, code.replace("-", " "))


class NoChange(StrEnum):
    """Why a look changed nothing."""

    AT_REST = "at-rest"
    SAME_TARGET = "same-target"
    NO_MEMBERS = "no-members"
    NOT_READY = "topology-not-ready"
    DUPLICATE = "late-or-doubled"
    UNCHANGED = "unchanged"
    PLACEMENT_FAILED = "placement-failed"
    NOTHING_COOLS = "nothing-cools"
    SHADOW = "load-shadow"


class Happened(StrEnum):
    """What happened to a member without its doing: time passed, or tasks that failed there run elsewhere."""

    EXPIRED = "expired"
    SUSPECTED = "suspected"
    FENCED = "fenced"
    DRAIN_BLOCKED = "drain-blocked"
    DISTRUSTED = "distrusted"


class Reason(NamedTuple):
    """One explanation.

    ``code`` is one of the above, ``store-lost-commits`` (``recovery``) or ``other-assignor`` (``streams``). ``task`` is
    None if the reason concerns the group. ``tasks`` is how many tasks share it.
    """

    code: str
    task: TaskId | None = None
    to: MemberId | None = None
    detail: str = ""
    tasks: int = 1
