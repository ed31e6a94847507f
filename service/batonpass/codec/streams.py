"""What the leader of a Kafka Streams group sends, and the answers to it, as JSON (docs/kafka-streams.md)."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batonpass.codec.bodies import TAGS_MAX, TEXT_CHARS_MAX, Count, Name, Share, TagValue, TaskName, Text, given
from batonpass.codec.requests import checked_name
from batonpass.codec.shape import Shape, refusal
from batonpass.core.state.errors import InvalidRequest
from batonpass.core.state.ids import GroupId, InstanceId, TaskId, split_task_id
from batonpass.core.state.inputs import OtherAssignment, StreamsProcess, StreamsRebalance
from batonpass.core.state.model import ActiveState, Subtopology, Topology
from batonpass.core.state.policy import KAFKA_NAME_CHARS_MAX, OF_AN_APPLICATION, TAG_KEY_CHARS_MAX
from batonpass.core.state.replies import StreamsAdvice
from batonpass.core.state.soft import TaskReport

CLIENT_ID_CHARS_MAX: Final = 200

# Kafka Streams takes any text for the names of an application and of a process, and a tag without a name.
StreamsTagKey = Annotated[str, Meta(max_length=TAG_KEY_CHARS_MAX)]


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
    name: str = ""
    endpoint: str | None = None
    capacity: Share = 1.0
    client_tags: Annotated[dict[StreamsTagKey, TagValue], Meta(max_length=TAGS_MAX)] = {}
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

    application_id: str = ""
    cluster_id: str = ""


class StreamsBody(StreamsNamesBody, forbid_unknown_fields=True):
    """A rebalance of a Kafka Streams group, as its leader sees it."""

    mode: Literal["assign", "shadow"] = "assign"
    plugin_version: Text = ""
    streams_version: Text = ""
    config: dict[str, Any] = {}
    tasks: tuple[StreamsTaskBody, ...] = ()
    members: tuple[StreamsProcessBody, ...] = ()
    other: StreamsOtherBody | None = None


_STREAMS: Final = Shape(StreamsBody, lenient=True)


def read_rebalance(body: bytes) -> StreamsRebalance:
    """Return the rebalance that a body describes. Unknown fields, from a newer plug-in, are ignored.

    Raises:
        InvalidRequest: naming every fault by path and reason.
    """
    said = _STREAMS.parse(body).value
    topology, faults = _topology(said.tasks)
    if not said.tasks and (not said.members or any(member.tasks for member in said.members)):
        faults.append(("tasks", "names no task; that is right only where no process has any"))
    if not said.members:
        faults.append(("members", "names no process; a rebalance has at least one"))
    seen: set[str] = set()
    for number, member in enumerate(said.members):
        if member.id in seen:
            faults.append((f"members[{number}].id", f"process {member.id} is listed twice"))
        seen.add(member.id)
    other = None
    if said.mode == "shadow" and said.other is None:
        faults.append(("other", "is needed in shadow mode: it says what Kafka's own assignor decided"))
    elif said.mode == "shadow" and said.other is not None:
        given = said.other.assignment.items()
        actives = {InstanceId(name): tuple(map(TaskId, roles.active)) for name, roles in given}
        other = OtherAssignment(said.other.assignor or "Kafka's assignor", actives)
    if faults:
        raise refusal(faults)
    config = {name: said.config[name] for name in OF_AN_APPLICATION if name in said.config} | _names(said)
    return StreamsRebalance(topology, config, tuple(map(_process, said.members)), other)


def read_names(body: bytes) -> dict[str, str]:
    """Return whose rebalance a body is that was refused, as far as it can be read."""
    try:
        return _names(msgspec.json.decode(body, type=StreamsNamesBody))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _names(said: StreamsNamesBody) -> dict[str, str]:
    """Return the names that are known, cut and spelled as the settings of a group can keep them."""
    names = {"application_id": said.application_id, "cluster_id": said.cluster_id}
    return {
        name: "".join(letter if letter.isprintable() else "?" for letter in named[:KAFKA_NAME_CHARS_MAX])
        for name, named in names.items()
        if named
    }


def _topology(tasks: tuple[StreamsTaskBody, ...]) -> tuple[Topology, list[tuple[str, str]]]:
    """Return the topology that these tasks add up to, and what is wrong with them."""
    parts: dict[str, dict[int, StreamsTaskBody]] = {}
    faults: list[tuple[str, str]] = []
    for number, task in enumerate(tasks):
        try:
            name, partition = split_task_id(TaskId(task.id))
        except ValueError as error:
            faults.append((f"tasks[{number}].id", str(error)))
            continue
        part = parts.setdefault(name, {})
        first = next(iter(part.values()), task)
        if partition in part:
            faults.append((f"tasks[{number}].id", f"task {task.id} is listed twice"))
        if task.stateful != first.stateful:
            reason = f"{task.id} and {first.id} are of one subtopology; both have state, or neither"
            faults.append((f"tasks[{number}].stateful", reason))
        part.setdefault(partition, task)
    for name, part in parts.items():
        missing = next((number for number, one in enumerate(sorted(part)) if number != one), None)
        if missing is not None:
            faults.append(("tasks", f"{name}_{missing} is missing; the tasks of a subtopology are numbered from 0"))
    found = [
        Subtopology(
            name,
            partitions=len(part),
            stateful=first.stateful,
            source_topics=first.source_topics,
            changelog_topics=first.changelog_topics,
        )
        for name, part in parts.items()
        for first in [next(iter(part.values()))]
    ]
    return Topology(1, tuple(found)), faults


def _process(said: StreamsProcessBody) -> StreamsProcess:
    tags = {key: value for key, value in sorted(said.client_tags.items()) if key}
    endpoint = said.endpoint if len(said.endpoint or "") <= TEXT_CHARS_MAX else None
    try:
        # Room is left for a number. Characters that make no member id are no reason to refuse a rebalance.
        name = checked_name("member", said.name[:CLIENT_ID_CHARS_MAX])
    except InvalidRequest:
        name = ""
    tasks = {TaskId(task): _report(copy) for task, copy in said.tasks.items()}
    return StreamsProcess(InstanceId(said.id), said.capacity, tags, tasks, name, endpoint)


def _report(said: StreamsCopyBody) -> TaskReport:
    return TaskReport(said.role, ActiveState(said.state) if said.role == "active" else None, given(said.lag))


def advice_body(group_id: GroupId, mode: str, advice: StreamsAdvice) -> dict[str, Any]:
    return {
        "group": group_id,
        "generation": advice.generation,
        "mode": mode,
        "assignment": advice.assignment,
        "followup_ms": advice.follow_up_ms,
        "followup_everyone": advice.follow_up_by_everybody,
        "at_rest": advice.at_rest,
        "moves": advice.moves,
        "lower_bound": advice.lower_bound,
        "held_back": [{"task": task, "to": to, "reason": reason} for task, to, reason in advice.held_back],
        "reasons": [{"task": one.task, "code": one.code, "detail": one.detail} for one in advice.reasons],
    }
