"""Turn bodies of the protocol into inputs of the core. A call that is refused here never reaches a decision."""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from batonpass.codec.bodies import (
    A_NAME,
    NAME_CHARS_MAX,
    NAME_PATTERN,
    DrainQuery,
    EvictQuery,
    GroupBody,
    HeartbeatBody,
    JoinBody,
    LeaveQuery,
    PauseBody,
    ReportBody,
    TopologyBody,
    WhatIfBody,
    given,
    value_of,
)
from batonpass.codec.shape import UNKNOWN_MAX, Shape, optional_numbers, refusal
from batonpass.core.state.errors import InvalidConfig, InvalidRequest, InvalidTopology, ProtocolError, TooLarge
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeclaration,
    Heartbeat,
    Input,
    Join,
    Leave,
    PauseRequest,
)
from batonpass.core.state.model import ActiveState, OnLeaseLost, PauseScope, Topology
from batonpass.core.state.soft import Positions, TaskReport
from batonpass.dry_run.whatif import WhatIf

# Workers of another version may know fields that this program does not, so these two are lenient (protocol 1.3).
_JOIN: Final = Shape(JoinBody, lenient=True)
_HEARTBEAT: Final = Shape(HeartbeatBody, lenient=True)
OWN_NUMBERS: Final = optional_numbers(HeartbeatBody)
"""What a member may say of itself in a heartbeat. Its view has the same name, and its gauge is ``member_{name}``."""
_LEAVE: Final = Shape(LeaveQuery)
_DRAIN: Final = Shape(DrainQuery)
_EVICT: Final = Shape(EvictQuery)
_GROUP: Final = Shape(GroupBody)
_PAUSE: Final = Shape(PauseBody)
_WHAT_IF: Final = Shape(WhatIfBody)

_NAME: Final = re.compile(NAME_PATTERN)
_STATES: Final = {state.value: state for state in (ActiveState.RESTORING, ActiveState.RUNNING, ActiveState.FAILED)}
Worker = TypeVar("Worker", Join, Heartbeat)
INSTANT_MS_MAX: Final = 253_370_764_800_000
"""The beginning of the year 9999. Later instants cannot be written in every time zone."""

NO_SUCH_REVISION: Final = -1
"""An ``If-Match`` that cannot name any revision."""


def checked_name(kind: str, name: str) -> str:
    """Return the ``name`` of a group, member or task (``kind``) in a path, if it is valid.

    Raises:
        InvalidRequest: if the name is empty, too long, or not a valid name (protocol 1.2).
    """
    if len(name) > NAME_CHARS_MAX or _NAME.match(name) is None:
        raise refusal([(f"path.{kind}", A_NAME)])
    return name


def read_join(member_id: MemberId, body: bytes, *, tasks_max: int) -> Join:
    """Return the join that a body asks for.

    Raises:
        InvalidRequest: naming every fault by path and reason.
        TooLarge: when it reports more than ``tasks_max`` tasks (413).
    """
    said, unknown_fields, invalid_numbers = _JOIN.parse(body)
    fields = asdict(said) | {
        "on_lease_lost": OnLeaseLost(said.on_lease_lost),
        "tasks": _reports(said.tasks, tasks_max),
        "unknown_fields": unknown_fields,
        "invalid_numbers": invalid_numbers,
    }
    del fields["reason"]
    return Join(member_id, **fields)


def naming_query(item: Worker, names: Iterable[str], *, known: Container[str] = ()) -> Worker:
    """Return the join or heartbeat with the unknown parameters of its query added to its unknown fields."""
    unknown: list[str] = [f"query.{name}" for name in sorted(set(names)) if name not in known][:UNKNOWN_MAX]
    return replace(item, unknown_fields=(*item.unknown_fields, *unknown)) if unknown else item


def read_heartbeat(member_id: MemberId, body: bytes, *, tasks_max: int) -> Heartbeat:
    """Return the heartbeat that a body holds.

    Raises:
        InvalidRequest: naming every fault by path and reason.
        TooLarge: when it reports more than ``tasks_max`` tasks (413).
    """
    said, unknown_fields, invalid_numbers = _HEARTBEAT.parse(body)
    tasks = None if said.tasks is UNSET else _reports(said.tasks, tasks_max)
    own = {name: value for name in OWN_NUMBERS if (value := getattr(said, name)) is not UNSET}
    return Heartbeat(member_id, said.seq, said.member_epoch, tasks, unknown_fields, invalid_numbers, own)


def leave_of(member_id: MemberId, said: LeaveQuery) -> Leave:
    return Leave(member_id, restart=said.mode == "restart")


def drain_of(member_id: MemberId, said: DrainQuery) -> DrainRequest:
    return DrainRequest(member_id, given(said.deadline_ms), said.until_undone, given(said.for_ms))


def eviction_of(member_id: MemberId, said: EvictQuery) -> Eviction:
    return Eviction(member_id, said.dead, said.until_undone, given(said.for_ms))


def read_call(kind: str, member_id: MemberId, query: Mapping[str, str], body: bytes, *, tasks_max: int) -> Input:
    """Return the input that a call for a member asks for. ``kind`` is the call's name over Kafka, or ``evict``.

    Raises:
        InvalidRequest: naming every fault by path and reason.
        TooLarge: when it reports more than ``tasks_max`` tasks (413).
    """
    match kind:
        case "join":
            return read_join(member_id, body, tasks_max=tasks_max)
        case "heartbeat":
            return read_heartbeat(member_id, body, tasks_max=tasks_max)
        case "leave":
            return leave_of(member_id, _LEAVE.read(query, prefix="query"))
        case "drain":
            return drain_of(member_id, _DRAIN.read(query, prefix="query"))
        case "undrain":
            return DrainReversal(member_id)
        case "evict":
            return eviction_of(member_id, _EVICT.read(query, prefix="query"))
        case _:
            raise refusal([("kind", f"{kind!r} is no call for a member")])


def read_declaration(group_id: GroupId, body: bytes, *, if_match: int | None) -> tuple[GroupDeclaration, str]:
    """Return the declaration of a group, and the reason given for it. The core checks the settings.

    Raises:
        InvalidTopology: when every fault lies in the topology.
        InvalidConfig: when every fault lies in the config.
        InvalidRequest: otherwise; each names every fault by path and reason.
    """
    try:
        said = _GROUP.parse(body).value
    except InvalidRequest as error:
        raise _narrowed(error) from None
    topology = None if isinstance(said.topology, UnsetType) else _topology(said.topology)
    return GroupDeclaration(group_id, topology, given(said.config), if_match), said.reason


def read_pause(body: bytes, *, reason: str = "") -> PauseRequest:
    """Return the pause that a body asks for. If the body has no reason, ``reason`` (from the query) is used.

    Raises:
        InvalidRequest: naming every fault by path and reason.
    """
    said = _PAUSE.parse(body).value
    expires_ms = None if said.expires_at is None else round(said.expires_at.timestamp() * 1_000)
    if expires_ms is not None and not 0 <= expires_ms < INSTANT_MS_MAX:
        reason = "an instant from 1970 to the end of 9998 is expected; leave it out for a pause without an end"
        raise refusal([("expires_at", reason)])
    for_ms = given(said.for_ms)
    if expires_ms is not None and for_ms is not None:
        raise refusal([("for_ms", "expires_at says already when the pause ends; leave one of them out")])
    return PauseRequest(PauseScope(said.scope), said.reason or reason, expires_ms, for_ms)


def read_what_if(body: bytes) -> WhatIf:
    """Return the change that a body asks to imagine. The core checks the settings.

    Raises:
        InvalidRequest: naming every fault by path and reason.
    """
    return value_of(_WHAT_IF.parse(body).value, WhatIf)


def read_if_match(header: str | None, present: int | None) -> int | None:
    """Return the revision that an ``If-Match`` header demands; None without a header.

    ``present`` is the revision that the group has now, for ``*`` and for lists (RFC 9110, 13.1.1).
    """
    if header is None:
        return None
    tags = [tag.strip() for tag in header.split(",")]
    if present is not None and ("*" in tags or etag(present) in tags):
        return present
    only = re.fullmatch(r'"(\d{1,18})"', tags[0], re.ASCII) if len(tags) == 1 else None
    return int(only[1]) if only else NO_SUCH_REVISION


def etag(revision: int) -> str:
    return f'"{revision}"'


def _narrowed(error: InvalidRequest) -> ProtocolError:
    parts = {re.split(r"[.\[]", path, maxsplit=1)[0] for path, _ in error.errors}
    if parts == {"topology"}:
        return InvalidTopology(error.detail, errors=error.errors)
    if parts == {"config"}:
        return InvalidConfig(error.detail, errors=error.errors)
    return error


_OF_ONE: Final = {
    "source_topics": "two readers of a topic would share its committed offsets, so have one task read it for both",
    "changelog_topics": "each state has a topic of its own",
}
"""Which topics are those of one subtopology alone, and why."""


def _topology(said: TopologyBody) -> Topology:
    seen: set[str] = set()
    named: dict[tuple[str, str], str] = {}
    for number, part in enumerate(said.subtopologies):
        place = f"topology.subtopologies[{number}]"
        if part.id in seen:
            fault = (f"{place}.id", f"subtopology {part.id} stands here twice")
            raise InvalidTopology(fault[1], errors=[fault])
        seen.add(part.id)
        for field, why in _OF_ONE.items():
            here: set[str] = set()
            for topic in getattr(part, field):
                other = named.setdefault((field, topic), part.id)
                if other != part.id or topic in here:
                    whose = "twice" if other == part.id else f"and in subtopology {other}"
                    fault = (f"{place}.{field}", f"{topic} stands here {whose}: {why}")
                    raise InvalidTopology(fault[1], errors=[fault])
                here.add(topic)
        if part.stateful is None:
            part.stateful = bool(part.changelog_topics)
    return value_of(said, Topology)


def _reports(said: Mapping[TaskId, ReportBody], tasks_max: int) -> dict[TaskId, TaskReport]:
    if len(said) > tasks_max:
        raise TooLarge(f"the body reports {len(said)} tasks; at most {tasks_max} are accepted")
    return {task: _report(one) for task, one in said.items()}


def _report(said: ReportBody) -> TaskReport:
    # Positional, in the order of the fields: with keywords, reading a heartbeat would take a fifth longer.
    return TaskReport(
        said.role,
        None if said.state is UNSET else _STATES[said.state],
        None if said.lag is UNSET else said.lag,
        _positions(said.position, said.positions),
        _positions(said.end_offset, said.end_offsets),
        said.lost,
        None if said.input_lag is UNSET else said.input_lag,
        said.detail,
        _positions(said.final_position, said.final_positions),
        None if said.fencing_token is UNSET else said.fencing_token,
        None if said.disk_bytes is UNSET else said.disk_bytes,
        None if said.load is UNSET else said.load,
    )


def _positions(single: int | UnsetType, by_topic: dict[str, int] | UnsetType) -> Positions:
    if by_topic is not UNSET:
        return tuple(sorted(by_topic.items()))
    return () if single is UNSET else (("", single),)
