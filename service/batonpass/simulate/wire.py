"""The wire between the worker's machine and the core: the service's own codec encodes and reads the bodies."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from batonpass.codec.answers import status_and_body, to_json
from batonpass.codec.bodies import PollQuery
from batonpass.codec.requests import read_call
from batonpass.codec.shape import Shape
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import Heartbeat, Input, Join
from batonpass.core.state.policy import Policy
from batonpass.core.state.replies import Reply
from batonpass.worker.protocol import Request, RequestKind

Body = Mapping[str, Any]

_POLL: Final = Shape(PollQuery)
_TASKS_MAX: Final = Policy().max_tasks_per_heartbeat


class UnknownToCodecError(Exception):
    """The worker's machine sent fields that the codec does not know: one of the two is wrong."""


def to_input(request: Request) -> Input | None:
    """Return a request as the core's input; None for a long-poll, which is no input."""
    if request.kind is RequestKind.POLL:
        return None
    said = read_call(
        request.kind, MemberId(request.member_id), _query(request), to_json(request.body), tasks_max=_TASKS_MAX
    )
    if isinstance(said, Join | Heartbeat) and said.unknown_fields:
        raise UnknownToCodecError(f"{said.member_id} says {said.unknown_fields}")
    return said


def to_wait(request: Request) -> tuple[int, int]:
    """Return the epoch that a long-poll has seen, and how long it waits for another."""
    said = _POLL.read(_query(request), prefix="query")
    return said.after, said.wait_ms


def _query(request: Request) -> dict[str, str]:
    return {name: str(value) for name, value in request.query.items()}


def to_answer(reply: Reply) -> tuple[int, Body | None]:
    """Return the status of a reply and its body, as the worker receives it."""
    status, body = status_and_body(reply)
    return status, None if body is None else msgspec.json.decode(to_json(body))


def unavailable(kind: str = "store-unavailable") -> tuple[int, Body]:
    """Return the refusal of a coordinator that cannot answer for now."""
    return 503, {"type": kind, "status": 503, "action": "retry", "retry_after_ms": 200}
