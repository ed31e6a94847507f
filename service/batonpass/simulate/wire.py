"""The bodies of PROTOCOL.md, between the worker's machine and the core, as a coordinator's shell translates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batonpass.core.errors import ProtocolError
from batonpass.core.ids import InstanceId, MemberId, TaskId
from batonpass.core.inputs import DrainRequest, DrainReversal, Heartbeat, Input, Join, Leave
from batonpass.core.model import ActiveState, Grant, OnLeaseLost, Role
from batonpass.core.replies import Answer, DrainProgress, Reply
from batonpass.core.soft import Positions, TaskReport
from batonpass.worker.protocol import Request, RequestKind

Body = Mapping[str, Any]


def to_input(request: Request) -> Input | None:
    """Return what a request says to the core; None for a long-poll, which says nothing."""
    member_id = MemberId(request.member_id)
    body: Body = request.body or {}
    match request.kind:
        case RequestKind.JOIN:
            return _join(member_id, body)
        case RequestKind.HEARTBEAT:
            tasks = body.get("tasks")
            reports = None if tasks is None else _reports(tasks)
            return Heartbeat(member_id, body["seq"], body["member_epoch"], reports)
        case RequestKind.LEAVE:
            return Leave(member_id, restart=request.query.get("mode") == "restart")
        case RequestKind.DRAIN:
            deadline = request.query.get("deadline_ms")
            return DrainRequest(member_id, None if deadline is None else int(deadline))
        case RequestKind.UNDRAIN:
            return DrainReversal(member_id)
        case RequestKind.POLL:
            return None


def _join(member_id: MemberId, body: Body) -> Join:
    instance_id, replaces = body.get("instance_id"), body.get("replaces")
    return Join(
        member_id,
        instance_id=None if instance_id is None else InstanceId(instance_id),
        takeover=body.get("takeover", False),
        replaces=None if replaces is None else MemberId(replaces),
        capacity=body.get("capacity", 1.0),
        max_tasks=body.get("max_tasks"),
        client_tags=body.get("client_tags", {}),
        topology_epoch=body.get("topology_epoch"),
        on_lease_lost=OnLeaseLost(body.get("on_lease_lost", "stop")),
        endpoint=body.get("endpoint"),
        tasks=_reports(body.get("tasks", {})),
    )


def _reports(tasks: Mapping[str, Body]) -> dict[TaskId, TaskReport]:
    return {TaskId(task): _report(said) for task, said in tasks.items()}


def _report(said: Body) -> TaskReport:
    state = said.get("state")
    return TaskReport(
        role=said["role"],
        state=None if state is None else ActiveState(state),
        lag=said.get("lag"),
        positions=_offsets(said, "position", "positions"),
        end_offsets=_offsets(said, "end_offset", "end_offsets"),
        lost=said.get("lost", False),
        input_lag=said.get("input_lag"),
        detail=said.get("detail", ""),
        final=_offsets(said, "final_position", "final_positions"),
        token=said.get("fencing_token"),
    )


def _offsets(said: Body, single: str, many: str) -> Positions:
    if said.get(single) is not None:
        return (("", said[single]),)
    return tuple(sorted(said.get(many, {}).items()))


def to_answer(reply: Reply) -> tuple[int, Body | None]:
    """Return the status and the body that a reply has on the wire."""
    match reply:
        case Answer():
            return (201 if reply.created else 200), answer_body(reply)
        case DrainProgress():
            return (202 if reply.remaining else 200), {"remaining": list(reply.remaining)}
        case ProtocolError():
            return reply.status, _problem(reply)
        case _:
            return 204, None


def answer_body(answer: Answer) -> Body:
    """Return the body of an answer to a join, a heartbeat or a long-poll."""
    return {
        "member_id": answer.member_id,
        "seq": answer.seq,
        "member_epoch": answer.member_epoch,
        "generation": answer.generation,
        "heartbeat_interval_ms": answer.heartbeat_interval_ms,
        "session_timeout_ms": answer.session_timeout_ms,
        "acceptable_recovery_lag": answer.acceptable_recovery_lag,
        "acceptable_catchup_ms": answer.acceptable_catchup_ms,
        "report": answer.report,
        "assignment": None if answer.assignment is None else _assignment(answer.assignment),
        "status": [{"code": code, "detail": detail} for code, detail in answer.status],
    }


def _assignment(picture: Mapping[TaskId, Grant]) -> Body:
    active: list[Body] = []
    copies: dict[Role, list[str]] = {Role.STANDBY: [], Role.WARMUP: []}
    for task, grant in sorted(picture.items()):
        if grant.role is not Role.ACTIVE:
            copies[grant.role].append(task)
            continue
        entry: dict[str, Any] = {"task": task, "fencing_token": grant.token}
        if grant.restore_to:
            entry["restore_to"] = sum(position for _, position in grant.restore_to)
        active.append(entry)
    return {"active": active, "standby": copies[Role.STANDBY], "warmup": copies[Role.WARMUP]}


def _problem(error: ProtocolError) -> Body:
    answer = error.answer
    return {
        "type": error.type,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "action": error.action,
        "retry_after_ms": error.retry_after_ms,
        "errors": [{"path": path, "reason": reason} for path, reason in error.errors],
        "answer": answer_body(answer) if isinstance(answer, Answer) else None,
    }


def unavailable(kind: str = "store-unavailable") -> tuple[int, Body]:
    """Return the refusal of a coordinator that cannot answer for now."""
    return 503, {"type": kind, "status": 503, "action": "retry", "retry_after_ms": 200}
