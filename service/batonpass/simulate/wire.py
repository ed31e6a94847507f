"""The wire between the worker's machine and the core: bodies are encoded and read as the service does, by its codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from batonpass.codec.answers import answer_body, drain_body, problem_body, to_json
from batonpass.codec.bodies import DrainQuery, LeaveQuery, PollQuery
from batonpass.codec.requests import read_heartbeat, read_join
from batonpass.codec.shape import Shape
from batonpass.core.errors import ProtocolError
from batonpass.core.ids import MemberId
from batonpass.core.inputs import DrainRequest, DrainReversal, Heartbeat, Input, Join, Leave
from batonpass.core.policy import Policy
from batonpass.core.replies import Answer, DrainProgress, Reply
from batonpass.worker.protocol import Request, RequestKind

Body = Mapping[str, Any]

_LEAVE: Final = Shape(LeaveQuery)
_DRAIN: Final = Shape(DrainQuery)
_POLL: Final = Shape(PollQuery)
_TASKS_MAX: Final = Policy().max_tasks_per_heartbeat


class UnknownToCodecError(Exception):
    """The worker's machine says what the codec does not know: one of them is wrong."""


def to_input(request: Request) -> Input | None:
    """Return what a request says to the core; None for a long-poll, which says nothing."""
    member_id = MemberId(request.member_id)
    query = {name: str(value) for name, value in request.query.items()}
    match request.kind:
        case RequestKind.JOIN:
            return _known(read_join(member_id, to_json(request.body), tasks_max=_TASKS_MAX))
        case RequestKind.HEARTBEAT:
            return _known(read_heartbeat(member_id, to_json(request.body), tasks_max=_TASKS_MAX))
        case RequestKind.LEAVE:
            return Leave(member_id, restart=_LEAVE.read(query, prefix="query").mode == "restart")
        case RequestKind.DRAIN:
            deadline_ms = _DRAIN.read(query, prefix="query").deadline_ms
            return DrainRequest(member_id, None if isinstance(deadline_ms, msgspec.UnsetType) else deadline_ms)
        case RequestKind.UNDRAIN:
            return DrainReversal(member_id)
        case RequestKind.POLL:
            return None


def to_wait(request: Request) -> tuple[int, int]:
    """Return the epoch that a long-poll has seen, and how long it waits for another."""
    said = _POLL.read({name: str(value) for name, value in request.query.items()}, prefix="query")
    return said.after, said.wait_ms


def _known(item: Join | Heartbeat) -> Join | Heartbeat:
    if item.unknown_fields:
        raise UnknownToCodecError(f"{item.member_id} says {item.unknown_fields}")
    return item


def to_answer(reply: Reply) -> tuple[int, Body | None]:
    """Return the status of a reply and its body, as it arrives."""
    match reply:
        case Answer():
            return (201 if reply.created else 200), _arrived(answer_body(reply))
        case DrainProgress():
            return (202 if reply.remaining else 200), _arrived(drain_body(reply))
        case ProtocolError():
            return reply.status, _arrived(problem_body(reply))
        case _:
            return 204, None


def _arrived(body: dict[str, Any]) -> Body:
    found: Body = msgspec.json.decode(to_json(body))
    return found


def unavailable(kind: str = "store-unavailable") -> tuple[int, Body]:
    """Return the refusal of a coordinator that cannot answer for now."""
    return 503, {"type": kind, "status": 503, "action": "retry", "retry_after_ms": 200}
