"""What the bodies and queries of the protocol look like: names, types and ranges, and nothing else.

A field that is ``UNSET`` was left out; a field that may be null has None in its type. The same types decode a body,
explain what is wrong with it, and describe it in the OpenAPI document.
"""

from datetime import date, datetime
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batonpass.core.state.ids import TaskId
from batonpass.core.state.loads import LOAD_MAX
from batonpass.core.state.numbers import WHOLE_MAX

T = TypeVar("T")

DURATION_MS_MAX: Final = 7 * 86_400_000
WAIT_MS_MAX: Final = 300_000
TOKEN_MS_MAX: Final = 10 * 366 * 86_400_000
NAME_CHARS_MAX: Final = 255
PARTITIONS_MAX: Final = 1_000_000
SUBTOPOLOGY_CHARS_MAX: Final = NAME_CHARS_MAX - len(f"_{PARTITIONS_MAX - 1}")
"""The id of a task is a name, too, and ends with the number of its partition."""
TEXT_CHARS_MAX: Final = 2_000
TAGS_MAX: Final = 5
"""KIP-708 allows a client at most five tags."""
SUBTOPOLOGIES_MAX: Final = 10_000
"""Each takes a share of the time in which no other group is served."""

Offset = Annotated[int, Meta(ge=0, le=WHOLE_MAX)]
Count = Annotated[int, Meta(ge=0, le=WHOLE_MAX)]
Bytes = Annotated[int, Meta(ge=1, le=WHOLE_MAX)]
DurationMs = Annotated[int, Meta(ge=0, le=DURATION_MS_MAX)]
KeptOutMs = Annotated[int, Meta(ge=1, le=DURATION_MS_MAX)]
WaitMs = Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)]
# A name is part of paths and of Kafka keys, so it has no slash, no blank and no unprintable character. Clients remove
# "." and ".." from a path before they send it, so nothing with such a name could be reached.
NAME_PATTERN: Final = r"^(?!\.{1,2}$)[^\s/\x00-\x1f\x7f-\x9f\ufffd]+$(?!\n)"
A_NAME: Final = (
    f"a name has 1 to {NAME_CHARS_MAX} characters, no slash, no blank, nothing unprintable; it is not . or .."
)
TASK_PATTERN: Final = r"^[^\s/\x00-\x1f\x7f-\x9f]+_[0-9]+$(?!\n)"
PATTERNS: Final = {
    repr(NAME_PATTERN): A_NAME,
    repr(TASK_PATTERN): "not a task id; expected {subtopology}_{partition}, for example 0_3",
}
"""By pattern: the message for a text that does not match it."""
Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=NAME_PATTERN)]
TaskName = Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=TASK_PATTERN)]
# The core checks whether the group has such a task and such a changelog, so only the length is limited here.
TopicName = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
TaskKey = Annotated[TaskId, Meta(max_length=NAME_CHARS_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
TagKey = Annotated[str, Meta(min_length=1, max_length=20)]
TagValue = Annotated[str, Meta(max_length=30)]
Share = Annotated[float, Meta(ge=0.000_001, le=1_000_000)]
"""A capacity or weight. Within these bounds a load divided by a capacity is a number that JSON can hold."""
Instant = Annotated[datetime, Meta(tz=True)]
Load = Annotated[float, Meta(ge=0, le=LOAD_MAX)]
Page = Annotated[int, Meta(ge=1, le=1_000)]


def given(said: T | UnsetType) -> T | None:
    """Return what was said; None where it was left out."""
    return None if isinstance(said, UnsetType) else said


def value_of(said: object, kind: type[T]) -> T:
    """Return what a body says as a value that has fields of the same names; those left out have their defaults."""
    return msgspec.convert(msgspec.to_builtins(said), kind)


class ReportBody(Struct, forbid_unknown_fields=True, gc=False):
    """What a join or heartbeat says of one task."""

    role: Literal["active", "standby", "warmup", "none"]
    state: Literal["restoring", "running", "failed"] | UnsetType = UNSET
    lag: Offset | UnsetType = UNSET
    position: Offset | UnsetType = UNSET
    end_offset: Offset | UnsetType = UNSET
    positions: dict[TopicName, Offset] | UnsetType = UNSET
    end_offsets: dict[TopicName, Offset] | UnsetType = UNSET
    lost: bool = False
    input_lag: Offset | UnsetType = UNSET
    detail: Text = ""
    final_position: Offset | UnsetType = UNSET
    final_positions: dict[TopicName, Offset] | UnsetType = UNSET
    fencing_token: Count | UnsetType = UNSET
    disk_bytes: Count | UnsetType = UNSET
    load: Load | UnsetType = UNSET


class JoinBody(Struct, forbid_unknown_fields=True):
    """A new run of a worker. Every field is optional."""

    instance_id: Name | None = None
    takeover: bool = False
    replaces: Name | None = None
    capacity: Share = 1.0
    max_tasks: Count | None = None
    max_disk_bytes: Bytes | None = None
    client_tags: Annotated[dict[TagKey, TagValue], Meta(max_length=TAGS_MAX)] = {}
    topology_epoch: Count | None = None
    on_lease_lost: Literal["stop", "continue"] = "stop"
    endpoint: Text | None = None
    tasks: dict[TaskKey, ReportBody] = {}
    reason: Text = ""


class HeartbeatBody(Struct, forbid_unknown_fields=True):
    """What a member reports."""

    seq: Count
    member_epoch: Count
    tasks: dict[TaskKey, ReportBody] | UnsetType = UNSET


class SubtopologyBody(Struct, forbid_unknown_fields=True):
    """A part of the topology whose partitions become tasks."""

    id: Annotated[str, Meta(min_length=1, max_length=SUBTOPOLOGY_CHARS_MAX, pattern=NAME_PATTERN)]
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | None = None
    stateful: bool | None = None
    weight: Share = 1.0
    source_topics: tuple[Name, ...] = ()
    changelog_topics: tuple[Name, ...] = ()
    task_weights: dict[TaskName, Share] = {}


class TopologyBody(Struct, forbid_unknown_fields=True):
    """What a group processes."""

    epoch: Count = 1
    subtopologies: Annotated[tuple[SubtopologyBody, ...], Meta(max_length=SUBTOPOLOGIES_MAX)] = ()


class GroupBody(Struct, forbid_unknown_fields=True):
    """The declaration of a group. What ``config`` may hold is the core's to say."""

    topology: TopologyBody | UnsetType = UNSET
    config: dict[str, Any] | UnsetType = UNSET
    reason: Text = ""


class ReasonBody(Struct, forbid_unknown_fields=True):
    """Why: all that most commands may say, in their body or in their query."""

    reason: Text = ""


class TokenBody(Struct, forbid_unknown_fields=True):
    """A token that is to be made; without ``expires_in_ms`` it lasts until it is revoked."""

    name: Name
    role: Literal["worker", "viewer", "operator", "admin"]
    group: Name | None = None
    expires_in_ms: Annotated[int, Meta(ge=1_000, le=TOKEN_MS_MAX)] | None = None
    reason: Text = ""


class PauseBody(Struct, forbid_unknown_fields=True):
    """A pause of moves: for good, for a time, or until an instant."""

    scope: Literal["balance", "all"] = "balance"
    reason: Text = ""
    expires_at: Instant | None = None
    for_ms: Annotated[int, Meta(ge=1, le=TOKEN_MS_MAX)] | UnsetType = UNSET


class PinBody(Struct, forbid_unknown_fields=True):
    """The member that a task is bound to."""

    member: Name
    reason: Text = ""


class NewcomersBody(Struct, forbid_unknown_fields=True):
    """Members that might join, all alike."""

    capacity: Share = 1.0
    count: Annotated[int, Meta(ge=1, le=100_000)] = 1


class WhatIfBody(Struct, forbid_unknown_fields=True):
    """A change to imagine."""

    join: tuple[NewcomersBody, ...] = ()
    leave: tuple[Name, ...] = ()
    drain: tuple[Name, ...] = ()
    config: dict[str, Any] = {}


class PollQuery(Struct, forbid_unknown_fields=True):
    """A long-poll: the epoch that the caller has seen, and how long to wait for another."""

    after: Count = 0
    wait_ms: WaitMs = 30_000


class LeaveQuery(Struct, forbid_unknown_fields=True):
    """How a member goes."""

    mode: Literal["leave", "restart"] = "leave"
    reason: Text = ""


class DrainQuery(Struct, forbid_unknown_fields=True):
    """By when a drain is to be over, how long the caller waits for that, and whether it holds for the instance.

    ``only_wait``: the caller waits for the drain that goes on, and starts none.
    """

    deadline_ms: DurationMs | UnsetType = UNSET
    wait_ms: WaitMs = 0
    only_wait: bool = False
    until_undone: bool = False
    for_ms: KeptOutMs | UnsetType = UNSET
    reason: Text = ""


class EvictQuery(Struct, forbid_unknown_fields=True):
    """Whether the caller vouches that the process no longer runs, and whether its instance stays out."""

    dead: bool = False
    until_undone: bool = False
    for_ms: KeptOutMs | UnsetType = UNSET
    reason: Text = ""


class DeletionQuery(Struct, forbid_unknown_fields=True):
    """Whether a group goes with its members."""

    force: bool = False
    reason: Text = ""


class PageQuery(Struct, forbid_unknown_fields=True):
    """A page of a list: at most ``limit`` entries, those that come after ``after``."""

    limit: Page = 100
    after: Text = ""


class EventsQuery(Struct, forbid_unknown_fields=True):
    """A page of events: at most ``limit`` of those after the position ``after``, oldest first.

    With ``newest`` or ``before`` it is read backwards: those below ``before``, or all, newest first.
    """

    after: Count | UnsetType = UNSET
    before: Count | UnsetType = UNSET
    newest: bool = False
    limit: Page = 100


class BackQuery(Struct, forbid_unknown_fields=True):
    """A page of a list that begins with the newest: at most ``limit`` entries, those below ``before``."""

    before: Count | UnsetType = UNSET
    limit: Page = 100


class LagsQuery(Struct, forbid_unknown_fields=True):
    """A stretch of time, by default until now, and how many numbers stand for it at most."""

    since: Instant
    until: Instant | UnsetType = UNSET
    limit: Page = 100


class LimitQuery(Struct, forbid_unknown_fields=True):
    """How many entries are listed: of the last changes of a task, of the tasks that wait."""

    limit: Page = 100


class AuditsQuery(Struct, forbid_unknown_fields=True):
    """A page of audited days, newest first: at most ``limit`` of those that come after the day ``after`` in it."""

    after: date | UnsetType = UNSET
    limit: Page = 100


class FindingsQuery(Struct, forbid_unknown_fields=True):
    """A page of findings: at most ``limit`` of those after the number ``after``."""

    after: Count = 0
    limit: Page = 100


class NoQuery(Struct, forbid_unknown_fields=True):
    """Nothing may be asked."""
