"""The event stream and its types. docs/api.md has what each means, and ``schemas/event.json`` what its body holds.

Types and fields are part of the public interface: a type may be added, and a field may be added to a body, and
neither is ever renamed. In bodies, names ending in ``_at`` are instants (RFC 3339), those ending in ``_ms`` durations.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from batonpass.core.state.ids import MemberId, TaskId


class Event(NamedTuple):
    """One event of the stream. ``body`` holds the fields of its ``type``, ready to be JSON."""

    type: str
    at_ms: int
    generation: int
    member: MemberId | None
    task: TaskId | None
    body: Mapping[str, object]


class EventType(StrEnum):
    """What happened, in one word."""

    GROUP_DECLARED = "group-declared"
    TOPOLOGY_CHANGED = "topology-changed"
    CONFIG_CHANGED = "config-changed"
    GROUP_DELETED = "group-deleted"
    GENERATION = "generation"
    PLACEMENT_FAILED = "placement-failed"
    AT_REST = "at-rest"
    PROBED = "probed"
    PAUSED = "paused"
    RESUMED = "resumed"
    STORM_BEGAN = "storm-began"
    STORM_ENDED = "storm-ended"
    COMMITS_LOST = "commits-lost"
    MEMBER_JOINED = "member-joined"
    MEMBER_CHANGED = "member-changed"
    MEMBER_GONE = "member-gone"
    MEMBER_AWAY = "member-away"
    MEMBER_SUSPECTED = "member-suspected"
    SUSPICION_CLEARED = "suspicion-cleared"
    MEMBER_DISTRUSTED = "member-distrusted"
    MEMBER_TRUSTED = "member-trusted"
    TASKS_ADOPTED = "tasks-adopted"
    DRAIN_STARTED = "drain-started"
    DRAIN_CANCELLED = "drain-cancelled"
    DRAIN_BLOCKED = "drain-blocked"
    DRAIN_DONE = "drain-done"
    INSTANCE_KEPT_OUT = "instance-kept-out"
    INSTANCE_LET_IN = "instance-let-in"
    HANDOVER_BEGUN = "handover-begun"
    HANDOVER_REDIRECTED = "handover-redirected"
    TASK_STOPPED = "task-stopped"
    HANDOVER_DONE = "handover-done"
    TAKEOVER_BEGUN = "takeover-begun"
    TAKEOVER_DONE = "takeover-done"
    TASK_RECOVERED = "task-recovered"
    TASK_REVOKED = "task-revoked"
    WARMUP_STARTED = "warmup-started"
    WARMUP_CAUGHT_UP = "warmup-caught-up"
    WARMUP_STALLED = "warmup-stalled"
    WARMUP_DROPPED = "warmup-dropped"
    TASK_FAILED = "task-failed"
    TASK_LOST = "task-lost"
    TASK_RESTORING = "task-restoring"
    TASK_PARKED = "task-parked"
    TASK_UNPARKED = "task-unparked"
    TASK_PINNED = "task-pinned"
    TASK_UNPINNED = "task-unpinned"
