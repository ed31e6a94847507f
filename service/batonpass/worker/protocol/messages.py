"""Requests, answers and refusals as they go over HTTP: where a request goes, and what an answer says.

An unknown field is ignored, so that a newer coordinator can talk to an older worker. A known field of the wrong shape
makes the whole answer malformed: acting on half an assignment could run a task that another member has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from batonpass.core.state.ids import split_task_id
from batonpass.worker.protocol.types import Offsets, Problem, Request, RequestKind, Role, Status

_METHOD_AND_TAIL = {
    RequestKind.JOIN: ("PUT", ""),
    RequestKind.HEARTBEAT: ("POST", "/heartbeat"),
    RequestKind.POLL: ("GET", "/assignment"),
    RequestKind.DRAIN: ("POST", "/drain"),
    RequestKind.UNDRAIN: ("DELETE", "/drain"),
    RequestKind.LEAVE: ("DELETE", ""),
}


KINDS = {where: kind for kind, where in _METHOD_AND_TAIL.items()}
"""What is asked for by a method and the path after a member's id."""


def http_target(request: Request, group: str) -> tuple[str, str]:
    """Return the method and the path, query included, of a request over HTTP."""
    method, tail = _METHOD_AND_TAIL[request.kind]
    query = f"?{urlencode(request.query)}" if request.query else ""
    return method, f"/v1/groups/{quote(group, safe='')}/members/{quote(request.member_id, safe='')}{tail}{query}"


class MalformedAnswer(ValueError):
    """An answer that does not have the protocol's shape; the caller treats it as no answer at all."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to run one task: its token, and the position that its last owner reached, where known."""

    fencing_token: int
    restore_to: Offsets | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Everything that a member may hold: a role for each task, and a grant for each active one."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    grants: Mapping[str, Grant] = field(default_factory=dict)


NOTHING_HELD = Assignment()
"""The assignment of a member that may hold nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a join, a heartbeat or a long-poll. ``assignment`` is None where the caller has the current one."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    session_timeout_ms: int
    acceptable_recovery_lag: int
    acceptable_catchup_ms: int | None
    wants_full_report: bool
    assignment: Assignment | None
    statuses: tuple[Status, ...]
    report_interval_ms: int
    topology_epoch: int | None


def parse_answer(body: object) -> Answer:
    """Return the answer that a body of status 200 or 201 holds.

    Raises:
        MalformedAnswer: naming the field at fault.
    """
    fields = _mapping(body, "the answer")
    catchup, topology = fields.get("acceptable_catchup_ms"), fields.get("topology_epoch")
    assignment = fields.get("assignment")
    return Answer(
        member_id=_text(fields.get("member_id"), "member_id"),
        member_epoch=_count(fields.get("member_epoch"), "member_epoch"),
        heartbeat_interval_ms=_count(fields.get("heartbeat_interval_ms"), "heartbeat_interval_ms", least=1),
        session_timeout_ms=_count(fields.get("session_timeout_ms"), "session_timeout_ms", least=1),
        acceptable_recovery_lag=_count(fields.get("acceptable_recovery_lag", 0), "acceptable_recovery_lag"),
        acceptable_catchup_ms=None if catchup is None else _count(catchup, "acceptable_catchup_ms"),
        wants_full_report=fields.get("report") == "full",
        assignment=None if assignment is None else _assignment(assignment),
        statuses=tuple(_status(entry) for entry in _items(fields.get("status", ()), "status")),
        # A coordinator that does not name it wants every change with the next heartbeat.
        report_interval_ms=_count(fields.get("report_interval_ms", 0), "report_interval_ms"),
        topology_epoch=None if topology is None else _count(topology, "topology_epoch"),
    )


def answer_to(request: Request, body: object) -> Answer:
    """Return the answer to this request, which must be for its member, and after a join hold an assignment.

    Raises:
        MalformedAnswer: naming what is wrong.
    """
    answer = parse_answer(body)
    if answer.member_id != request.member_id:
        raise MalformedAnswer(f"the answer is for {answer.member_id!r}, the request was {request.member_id!r}'s")
    if request.kind is RequestKind.JOIN and answer.assignment is None:
        raise MalformedAnswer("the answer to a join must hold the assignment")
    return answer


def parse_problem(status: int, body: object) -> Problem:
    """Return the refusal in a body of status 400 or above; a body that is not a problem object gives an empty type.

    A proxy in between may answer with anything, so no body is malformed here.
    """
    fields: Mapping[str, object] = body if isinstance(body, Mapping) else {}
    wait = fields.get("retry_after_ms")
    answer = fields.get("answer")
    action = fields.get("action")
    errors = fields.get("errors")
    return Problem(
        type=str(fields.get("type", "")),
        status=status,
        title=str(fields.get("title", "")),
        detail=str(fields.get("detail", "")),
        action=action if isinstance(action, str) else None,
        retry_after_ms=wait if isinstance(wait, int) and wait >= 0 else None,
        errors=tuple(
            (str(entry.get("path", "")), str(entry.get("reason", "")))
            for entry in (errors if isinstance(errors, (list, tuple)) else ())
            if isinstance(entry, Mapping)
        ),
        answer=answer if isinstance(answer, Mapping) else None,
    )


def _assignment(value: object) -> Assignment:
    fields = _mapping(value, "assignment")
    roles: dict[str, Role] = {}
    grants: dict[str, Grant] = {}
    for entry in _items(fields.get("active", ()), "assignment.active"):
        active = _mapping(entry, "assignment.active")
        task = _task(active.get("task"), roles)
        restore_to = active.get("restore_to")
        roles[task] = Role.ACTIVE
        grants[task] = Grant(
            fencing_token=_count(active.get("fencing_token"), f"the fencing_token of {task}"),
            restore_to=None if restore_to is None else _offsets(restore_to, f"the restore_to of {task}"),
        )
    for role in (Role.STANDBY, Role.WARMUP):
        for entry in _items(fields.get(role.value, ()), f"assignment.{role}"):
            roles[_task(entry, roles)] = role
    return Assignment(roles, grants)


def _task(value: object, taken: Mapping[str, Role]) -> str:
    task = _text(value, "a task of the assignment")
    try:
        split_task_id(task)
    except ValueError as error:
        raise MalformedAnswer(str(error)) from error
    if task in taken:
        raise MalformedAnswer(f"task {task} stands twice in the assignment")
    return task


def _offsets(value: object, name: str) -> Offsets:
    if isinstance(value, Mapping):
        return {_text(topic, f"a topic of {name}"): _count(offset, name) for topic, offset in value.items()}
    return _count(value, name)


def _status(value: object) -> Status:
    fields = _mapping(value, "status")
    return Status(_text(fields.get("code"), "the code of a status"), str(fields.get("detail") or ""))


def _mapping(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise MalformedAnswer(f"{name} must be an object, not {value!r}")
    return value


def _items(value: object, name: str) -> list[object] | tuple[object, ...]:
    if not isinstance(value, (list, tuple)):
        raise MalformedAnswer(f"{name} must be a list, not {value!r}")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise MalformedAnswer(f"{name} must be text, not {value!r}")
    return value


def _count(value: object, name: str, *, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise MalformedAnswer(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value
