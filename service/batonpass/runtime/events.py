"""The event stream: every type of event, and what its body holds.

Types and fields are part of the public interface: a type may be added, and a field may be added to a body, and
neither is ever renamed. In bodies, names ending in ``_at`` are instants (RFC 3339), those ending in ``_ms`` durations.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

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


_E = EventType

MEANINGS: Final[Mapping[EventType, tuple[str, tuple[str, ...]]]] = {
    _E.GROUP_DECLARED: ("The group was created.", ("topology_epoch", "tasks")),
    _E.TOPOLOGY_CHANGED: ("The topology of the group changed.", ("topology_epoch", "tasks", "tasks_before")),
    _E.CONFIG_CHANGED: ("Settings of the group changed.", ("changed",)),
    _E.GROUP_DELETED: ("The group was deleted.", ("members", "granted_from_at")),
    _E.GENERATION: (
        "A new target assignment was committed.",
        ("number", "group_epoch", "triggers", "changed", "moves", "lower_bound", "members", "tasks"),
    ),
    _E.PLACEMENT_FAILED: ("Placement failed. The target stays as it was, and placement is tried again.", ("why",)),
    _E.AT_REST: ("Every task is where it belongs, every copy is caught up, and nothing is due.", ()),
    _E.PROBED: ("A probing rebalance looked at the group.", ("changed", "next_probe_at")),
    _E.PAUSED: ("An operator paused moves.", ("scope", "reason", "expires_at")),
    _E.RESUMED: ("The pause is over.", ("scope", "paused_at", "expired")),
    _E.STORM_BEGAN: (
        "Too many members vanished at once. Moves for balance and cold takeovers stop.",
        ("lost", "members_left"),
    ),
    _E.STORM_ENDED: ("The storm is over.", ("began_at",)),
    _E.COMMITS_LOST: ("Alarm: the store lost commits. Members keep the tasks that they run.", ("reason", "until_at")),
    _E.MEMBER_JOINED: (
        "A member joined.",
        (
            "instance_id",
            "capacity",
            "max_tasks",
            "max_disk_bytes",
            "client_tags",
            "endpoint",
            "on_lease_lost",
            "in_place_of",
        ),
    ),
    _E.MEMBER_CHANGED: (
        "A process of a Kafka Streams application has other threads, other tags or another address.",
        ("capacity", "client_tags", "endpoint"),
    ),
    _E.MEMBER_GONE: (
        "A member is gone; `cause` says why.",
        ("cause", "running", "lease_end_at", "last_heard_at", "instance_id", "joined_at"),
    ),
    _E.MEMBER_AWAY: (
        "A member stopped to restart. Its place is kept until `until_at`.",
        ("until_at", "running", "instance_id"),
    ),
    _E.MEMBER_SUSPECTED: ("A member's long-poll broke, and the member has sent nothing since.", ("running",)),
    _E.SUSPICION_CLEARED: (
        "A member that was suspected, or whose lease had run out, sent something: it did not die.",
        (),
    ),
    _E.MEMBER_DISTRUSTED: (
        "Tasks that failed on a member, or died with it, run elsewhere. It is given nothing new until `until_at`.",
        ("why", "times", "until_at"),
    ),
    _E.MEMBER_TRUSTED: ("An operator trusts a member again.", ()),
    _E.TASKS_ADOPTED: (
        "A member keeps the tasks that it reported as running, after lost commits or a rebalance of Kafka Streams.",
        ("tasks", "dropped", "cause"),
    ),
    _E.DRAIN_STARTED: (
        "A member began to hand over its tasks, or its drain has another deadline.",
        ("deadline_at", "gives_up_at", "running"),
    ),
    _E.DRAIN_CANCELLED: ("A drain was taken back. The member stays.", ("since_at",)),
    _E.DRAIN_BLOCKED: (
        "A draining member keeps its tasks: no other member can take them, placement failed, or its time is over.",
        ("why", "running"),
    ),
    _E.DRAIN_DONE: ("A draining member has no active task left.", ("took_ms",)),
    _E.INSTANCE_KEPT_OUT: (
        "An operator keeps an instance out: no run of it gets a task until that is undone, or until `until_at`. `member` is its present run.",
        ("instance_id", "until_at"),
    ),
    _E.INSTANCE_LET_IN: (
        "An instance that was kept out may have tasks again: an operator let it in, or (`expired`) its time is over.",
        ("instance_id", "since_at", "expired"),
    ),
    _E.HANDOVER_BEGUN: ("The running owner was told to give the task up. `member` is the next owner.", ("from", "why")),
    _E.HANDOVER_REDIRECTED: ("The task that is being handed over goes to another member.", ("before",)),
    _E.TASK_STOPPED: (
        "No member runs the task any more: its last owner (`member`) confirmed, or its lease ran out.",
        ("cause", "to"),
    ),
    _E.HANDOVER_DONE: (
        "The new owner (`member`) runs the task.",
        ("from", "cause", "warm", "gap_ms", "stopped_at", "granted_at", "fencing_token"),
    ),
    _E.TAKEOVER_BEGUN: (
        "A task without a running owner was granted to `member`.",
        ("from", "cause", "why", "warm", "stopped_at", "fencing_token"),
    ),
    _E.TAKEOVER_DONE: (
        "The task runs again, on `member`.",
        (
            "from",
            "cause",
            "warm",
            "gap_ms",
            "gap_is_lower_bound",
            "gap_at_most_ms",
            "stopped_at",
            "granted_at",
            "fencing_token",
        ),
    ),
    _E.TASK_RECOVERED: (
        "The task runs again on the owner on which it had failed, lost its state or restored again.",
        ("cause", "gap_ms", "stopped_at"),
    ),
    _E.TASK_REVOKED: ("The running owner was told to give the task up, and no other member gets it now.", ("why",)),
    _E.WARMUP_STARTED: ("A member began to restore a copy.", ("owner",)),
    _E.WARMUP_CAUGHT_UP: ("A warmup caught up.", ("took_ms",)),
    _E.WARMUP_STALLED: (
        "A warmup came no closer. Others have their turn, and another member may be tried.",
        ("until_at",),
    ),
    _E.WARMUP_DROPPED: ("A warmup is no longer needed.", ("after_ms",)),
    _E.TASK_FAILED: ("The owner reported that the task failed.", ("detail", "failures")),
    _E.TASK_LOST: ("The owner lost the state of the task.", ("detail",)),
    _E.TASK_RESTORING: ("An owner that ran the task restores it again.", ("detail",)),
    _E.TASK_PARKED: (
        "The task failed on too many members. It is not tried again until an operator releases it, or a member that was taken for dead with it is heard.",
        ("members",),
    ),
    _E.TASK_UNPARKED: (
        "A parked task is tried again: an operator released it, or a member that was taken for dead with it is heard.",
        (),
    ),
    _E.TASK_PINNED: ("An operator pinned the task to `member`.", ("before",)),
    _E.TASK_UNPINNED: ("An operator removed the pin of the task.", ("before",)),
}
"""What each type means, and the fields of its body. A body always has all of them."""
