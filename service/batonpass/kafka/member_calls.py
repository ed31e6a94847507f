"""Calls of members as records of ``batonpass.heartbeats``: a body of HTTP, with member and kind of call beside it.

    key    the group
    value  {"kind": "join" | "heartbeat" | "leave" | "drain" | "undrain", "member": ..., and the body's fields}

``leave`` takes ``mode`` (``leave`` or ``restart``), ``drain`` takes ``deadline_ms``, and these and ``undrain`` take the
``reason``. A faulty record is refused in the same words as over HTTP.
"""

from typing import Any, Final

from batonpass.codec.bodies import DurationMs, LeaveQuery, ReasonBody
from batonpass.codec.requests import checked_name, leave_of, read_heartbeat, read_join
from batonpass.codec.shape import Shape, decode_json, refusal
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import DrainRequest, DrainReversal, Input

KINDS: Final = ("join", "heartbeat", "leave", "drain", "undrain")


class _Drain(ReasonBody):
    deadline_ms: DurationMs | None = None


_LEAVE, _DRAIN, _UNDRAIN = Shape(LeaveQuery), Shape(_Drain), Shape(ReasonBody)


def read_addressee(key: bytes | None, value: bytes | None) -> tuple[GroupId, MemberId, str, dict[str, Any]] | None:
    """Return group, member, kind and the rest of a record; None if it names no member that could be answered."""
    try:
        said = decode_json(value or b"")
        group = (key or b"").decode()
        if not isinstance(said, dict):
            return None
        member, kind = said.pop("member", None), said.pop("kind", None)
        if not isinstance(member, str):
            return None
        return GroupId(checked_name("group", group)), MemberId(checked_name("member", member)), str(kind), said
    except (ValueError, RecursionError, ProtocolError):
        return None


def read_item(member_id: MemberId, kind: str, body: bytes, *, tasks_max: int) -> tuple[Input, str]:
    """Return the input that a record asks for, and the reason given for it.

    Raises:
        InvalidRequest: naming every fault by path and reason.
        HasFaults: instead, of a body ``AtOnce``.
        TooLarge: when it reports more than ``tasks_max`` tasks.
    """
    match kind:
        case "join":
            return read_join(member_id, body, tasks_max=tasks_max), ""
        case "heartbeat":
            return read_heartbeat(member_id, body, tasks_max=tasks_max), ""
        case "leave":
            leave = _LEAVE.parse(body).value
            return leave_of(member_id, leave), leave.reason
        case "drain":
            drain = _DRAIN.parse(body).value
            return DrainRequest(member_id, drain.deadline_ms), drain.reason
        case "undrain":
            return DrainReversal(member_id), _UNDRAIN.parse(body).value.reason
        case _:
            raise refusal([("kind", f"{kind[:40]!r} is not one of {', '.join(KINDS)}")])
