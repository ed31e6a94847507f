"""Records of ``batonpass.heartbeats`` as inputs of the core: the HTTP bodies, with the call in ``kind``.

    key    the group
    value  {"kind": "join" | "heartbeat" | "leave" | "drain" | "undrain", "member": ..., and the body's fields}

``leave`` takes ``mode`` (``leave`` or ``restart``), ``drain`` takes ``deadline_ms``, and these and ``undrain`` take the
``reason``. What is wrong is refused in the same words as over HTTP.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from batonpass.codec.answers import to_json
from batonpass.codec.bodies import DurationMs, ReasonBody
from batonpass.codec.requests import checked_name, read_heartbeat, read_join
from batonpass.codec.shape import Shape, refusal
from batonpass.core.errors import ProtocolError
from batonpass.core.ids import GroupId, MemberId
from batonpass.core.inputs import DrainRequest, DrainReversal, Input, Leave

KINDS: Final = ("join", "heartbeat", "leave", "drain", "undrain")


class _Leave(ReasonBody):
    mode: Literal["leave", "restart"] = "leave"


class _Drain(ReasonBody):
    deadline_ms: DurationMs | None = None


_LEAVE, _DRAIN, _UNDRAIN = Shape(_Leave), Shape(_Drain), Shape(ReasonBody)


def read_addressee(key: bytes | None, value: bytes | None) -> tuple[GroupId, MemberId, str, dict[str, Any]] | None:
    """Return group, member, kind and the rest of a record; None for one that names no member who could be answered."""
    try:
        said = msgspec.json.decode(value or b"")
        group = (key or b"").decode()
        if not isinstance(said, dict):
            return None
        member, kind = said.pop("member", None), said.pop("kind", None)
        if not isinstance(member, str):
            return None
        return GroupId(checked_name("group", group)), MemberId(checked_name("member", member)), str(kind), said
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ProtocolError):
        return None


def read_item(member_id: MemberId, kind: str, said: dict[str, Any], *, tasks_max: int) -> tuple[Input, str]:
    """Return the input that a record asks for, and why it does.

    Raises:
        InvalidRequest: naming every fault by path and reason.
        TooLarge: when it reports more than ``tasks_max`` tasks.
    """
    body = to_json(said)
    match kind:
        case "join":
            return read_join(member_id, body, tasks_max=tasks_max), ""
        case "heartbeat":
            return read_heartbeat(member_id, body, tasks_max=tasks_max), ""
        case "leave":
            leave = _LEAVE.parse(body).value
            return Leave(member_id, restart=leave.mode == "restart"), leave.reason
        case "drain":
            drain = _DRAIN.parse(body).value
            return DrainRequest(member_id, drain.deadline_ms), drain.reason
        case "undrain":
            return DrainReversal(member_id), _UNDRAIN.parse(body).value.reason
        case _:
            raise refusal([("kind", f"{kind[:40]!r} is not one of {', '.join(KINDS)}")])
