"""What the leader of a Kafka Streams group sends, and the answers to it, as JSON (docs/kafka-streams.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batonpass.codec.bodies import TAGS_MAX, Count, Name, Share, TagKey, TagValue, TaskName, Text, given
from batonpass.codec.requests import checked_name
from batonpass.codec.shape import Shape, refusal
from batonpass.core.state.errors import InvalidRequest
from batonpass.core.state.ids import GroupId, InstanceId, TaskId, split_task_id
from batonpass.core.state.inputs import OtherAssignment, StreamsProcess, StreamsRebalance
from batonpass.core.state.model import ActiveState, Subtopology, Topology
from batonpass.core.state.replies import StreamsAdvice
from batonpass.core.state.soft import TaskReport

ROLES: Final = ("active", "standby", "warmup")
CLIENT_ID_CHARS_MAX: Final = 200


class StreamsCopyBody(Struct, forbid_unknown_fields=True):
    """What a process has of a task: its active, or any other copy, which Kafka does not tell apart."""

    role: Literal["active", "none"]
    state: Literal["running", "restoring"] = "running"
    lag: Count | UnsetType = UNSET


class StreamsTaskBody(Struct, forbid_unknown_fields=True):
    """A task of the application."""

    id: TaskName
    stateful: bool = True
    changelog_topics: tuple[Name, ...] = ()
    source_topics: tuple[Name, ...] = ()


class StreamsProcessBody(Struct, forbid_unknown_fields=True):
    """A process of the application, with what it has; ``name`` is its client id, for people."""

    id: Name
    name: Text = ""
    endpoint: Text | None = None
    capacity: Share = 1.0
    client_tags: Annotated[dict[TagKey, TagValue], Meta(max_length=TAGS_MAX)] = {}
    tasks: dict[TaskName, StreamsCopyBody] = {}


class StreamsRolesBody(Struct, forbid_unknown_fields=True):
    """What Kafka's own assignor gives to a process."""

    active: tuple[TaskName, ...] = ()
    standby: tuple[TaskName, ...] = ()


class StreamsOtherBody(Struct, forbid_unknown_fields=True):
    """What Kafka's own assignor decided."""

    assignor: Text = ""
    assignment: dict[Name, StreamsRolesBody] = {}
    followup_ms: Count | None = None


class StreamsNamesBody(Struct):
    """Whose rebalance it is. A group keeps both names, so as not to be taken for another application's."""

    application_id: Text = ""
    cluster_id: Text = ""


class StreamsBody(Struct, forbid_unknown_fields=True):
    """A rebalance of a Kafka Streams group, as its leader sees it."""

    mode: Literal["assign", "shadow"] = "assign"
    plugin_version: Text = ""
    streams_version: Text = ""
    application_id: Text = ""
    cluster_id: Text = ""
    config: dict[str, Any] = {}
    tasks: tuple[StreamsTaskBody, ...] = ()
    members: tuple[StreamsProcessBody, ...] = ()
    other: StreamsOtherBody | None = None


_STREAMS: Final = Shape(StreamsBody, lenient=True)
_SETTINGS: Final[tuple[str, ...]] = (
    "acceptable_recovery_lag",
    "max_warmup_replicas",
    "num_standby_replicas",
    "rack_aware_tags",
)
"""The settings of a group that an application has too, and sends at each rebalance. All others are the group's own."""


def read_rebalance(body: bytes) -> StreamsRebalance:
    """Return the rebalance that a body describes. Unknown fields, from a newer plug-in, are ignored.

    Raises:
        InvalidRequest: naming every fault by path and reason.
    """
    said = _STREAMS.parse(body).value
    topology, faults = _topology(said.tasks)
    seen: set[str] = set()
    for number, member in enumerate(said.members):
        if member.id in seen:
            faults.append((f"members[{number}].id", f"process {member.id} is listed twice"))
        seen.add(member.id)
    if not said.members:
        faults.append(("members", "names no process; a rebalance has at least one"))
    if said.mode == "shadow" and said.other is None:
        faults.append(("other", "is needed in shadow mode: it says what Kafka's own assignor decided"))
    if faults:
        raise refusal(faults)
    other = None
    if said.mode == "shadow" and said.other is not None:
        actives = {
            InstanceId(name): tuple(TaskId(task) for task in roles.active)
            for name, roles in said.other.assignment.items()
        }
        other = OtherAssignment(said.other.assignor or "Kafka's assignor", actives)
    config = {name: said.config[name] for name in _SETTINGS if name in said.config}
    config |= _names(said)
    return StreamsRebalance(topology, config, tuple(_process(member) for member in said.members), other)


def read_names(body: bytes) -> dict[str, str]:
    """Return whose rebalance a body is that was refused, as far as it can be read."""
    try:
        return _names(msgspec.json.decode(body, type=StreamsNamesBody))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _names(said: StreamsNamesBody | StreamsBody) -> dict[str, str]:
    return {name: named for name in ("application_id", "cluster_id") if (named := getattr(said, name))}


@dataclass(slots=True)
class _Part:
    """A subtopology, collected from its tasks."""

    partitions: set[int]
    task: StreamsTaskBody


def _topology(tasks: tuple[StreamsTaskBody, ...]) -> tuple[Topology, list[tuple[str, str]]]:
    """Return the topology that these tasks add up to, and what is wrong with them."""
    parts: dict[str, _Part] = {}
    faults: list[tuple[str, str]] = [] if tasks else [("tasks", "names no task; an application has at least one")]
    for number, task in enumerate(tasks):
        try:
            name, partition = split_task_id(TaskId(task.id))
        except ValueError as error:
            faults.append((f"tasks[{number}].id", str(error)))
            continue
        part = parts.setdefault(name, _Part(set(), task))
        if partition in part.partitions:
            faults.append((f"tasks[{number}].id", f"task {task.id} is listed twice"))
        if task.stateful != part.task.stateful:
            reason = f"{task.id} and {part.task.id} are of one subtopology; both have state, or neither"
            faults.append((f"tasks[{number}].stateful", reason))
        part.partitions.add(partition)
    for name, part in parts.items():
        missing = next((number for number, one in enumerate(sorted(part.partitions)) if number != one), None)
        if missing is not None:
            faults.append(("tasks", f"{name}_{missing} is missing; the tasks of a subtopology are numbered from 0"))
    found = [
        Subtopology(
            name,
            partitions=len(part.partitions),
            stateful=part.task.stateful,
            source_topics=part.task.source_topics,
            changelog_topics=part.task.changelog_topics,
        )
        for name, part in parts.items()
    ]
    return Topology(1, tuple(found)), faults


def _process(said: StreamsProcessBody) -> StreamsProcess:
    tasks = {TaskId(task): _report(copy) for task, copy in said.tasks.items()}
    tags = dict(sorted(said.client_tags.items()))
    return StreamsProcess(InstanceId(said.id), said.capacity, tags, tasks, _name_of_member(said.name), said.endpoint)


def _name_of_member(client_id: str) -> str:
    """Return a client id, cut to leave room for a number, or "" if its characters do not make a member id."""
    try:
        return checked_name("member", client_id[:CLIENT_ID_CHARS_MAX])
    except InvalidRequest:
        return ""


def _report(said: StreamsCopyBody) -> TaskReport:
    return TaskReport(said.role, ActiveState(said.state) if said.role == "active" else None, given(said.lag))


def advice_body(group_id: GroupId, mode: str, advice: StreamsAdvice) -> dict[str, Any]:
    """Return the body of the answer to a leader."""
    return {
        "group": group_id,
        "generation": advice.generation,
        "mode": mode,
        "assignment": {process: _roles(roles) for process, roles in advice.assignment.items()},
        "followup_ms": advice.follow_up_ms,
        "followup_everyone": advice.follow_up_by_everybody,
        "at_rest": advice.at_rest,
        "moves": advice.moves,
        "lower_bound": advice.lower_bound,
        "held_back": [{"task": task, "to": to, "reason": reason} for task, to, reason in advice.held_back],
        "reasons": [{"task": one.task, "code": one.code, "detail": one.detail} for one in advice.reasons],
    }


def _roles(roles: Mapping[str, tuple[TaskId, ...]]) -> dict[str, list[TaskId]]:
    return {role: list(roles[role]) for role in ROLES}
