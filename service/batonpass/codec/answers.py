"""Turn replies and errors of the core into bodies of the protocol."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import TaskId, task_sort_key
from batonpass.core.state.model import Grant, Role
from batonpass.core.state.replies import Answer, DrainProgress, Reply
from batonpass.core.state.soft import Positions

_encode: Final = msgspec.json.Encoder().encode


def to_json(body: object) -> bytes:
    """Return a body as JSON in UTF-8."""
    return _encode(body)


def rfc3339(at_ms: int) -> str:
    """Return an instant (milliseconds since 1970) as the wire has it: RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_of(at_ms: int | None) -> str | None:
    """Return an instant as the wire has it, or None."""
    return None if at_ms is None else rfc3339(at_ms)


def status_and_body(reply: Reply) -> tuple[int, dict[str, Any] | None]:
    """Return the status and the body of the reply to a member's call."""
    match reply:
        case Answer():
            return (201 if reply.created else 200), answer_body(reply)
        case DrainProgress():
            return (202 if reply.remaining else 200), drain_body(reply)
        case ProtocolError():
            return reply.status, problem_body(reply)
        case _:
            return 204, None


def answer_body(answer: Answer) -> dict[str, Any]:
    return {
        "member_id": answer.member_id,
        "seq": answer.seq,
        "member_epoch": answer.member_epoch,
        "generation": answer.generation,
        "heartbeat_interval_ms": answer.heartbeat_interval_ms,
        "report_interval_ms": answer.report_interval_ms,
        "session_timeout_ms": answer.session_timeout_ms,
        "acceptable_recovery_lag": answer.acceptable_recovery_lag,
        "acceptable_catchup_ms": answer.acceptable_catchup_ms,
        "topology_epoch": answer.topology_epoch,
        "report": answer.report,
        "assignment": None if answer.assignment is None else assignment_body(answer.assignment),
        "status": [{"code": code, "detail": detail} for code, detail in answer.status],
    }


def assignment_body(assignment: Mapping[TaskId, Grant]) -> dict[str, list[Any]]:
    """Return what a member may hold, in the order of (subtopology, partition)."""
    roles: dict[str, list[Any]] = {"active": [], "standby": [], "warmup": []}
    for task in sorted(assignment, key=task_sort_key):
        grant = assignment[task]
        roles[grant.role].append(_active_body(task, grant) if grant.role is Role.ACTIVE else task)
    return roles


def _active_body(task: TaskId, grant: Grant) -> dict[str, Any]:
    body: dict[str, Any] = {"task": task, "fencing_token": grant.token}
    if grant.restore_to:
        body["restore_to"] = positions_body(grant.restore_to)
    return body


def positions_body(positions: Positions) -> int | dict[str, int]:
    """Return offsets as a number if the member named no topic, else by topic."""
    if len(positions) == 1 and not positions[0][0]:
        return positions[0][1]
    return dict(positions)


def drain_body(progress: DrainProgress) -> dict[str, Any]:
    return {
        "drained": not progress.remaining,
        "remaining": list(progress.remaining),
        "blocked": [{"task": task, "reason": reason} for task, reason in progress.blocked],
        **({"undone": True} if progress.undone else {}),
    }


def problem_body(error: ProtocolError) -> dict[str, Any]:
    """Return an error as a problem object (RFC 9457)."""
    body: dict[str, Any] = {
        "type": error.type,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "action": error.action,
    }
    if error.errors:
        body["errors"] = [{"path": path, "reason": reason} for path, reason in error.errors]
    if error.retry_after_ms is not None:
        body["retry_after_ms"] = error.retry_after_ms
    if isinstance(error.answer, Answer):
        body["answer"] = answer_body(error.answer)
    return body
