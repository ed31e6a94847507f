"""Records of ``batonpass.heartbeats`` as inputs of the core: the HTTP bodies, with the call in ``kind``.

    key    the group
    value  {"kind": "join" | "heartbeat" | "leave" | "drain" | "undrain", "member": ..., and the body's fields}

``leave`` takes ``mode`` (``leave`` or ``restart``), ``drain`` takes ``deadline_ms``. What is wrong is refused in the
same words as over HTTP.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from batonpass.codec.answers import to_json
from batonpass.codec.bodies import DurationMs
from batonpass.codec.requests import checked_name, read_heartbeat, read_join
from batonpass.codec.shape import refusal
from batonpass.core.errors import ProtocolError
from batonpass.core.ids import GroupId, MemberId
from batonpass.core.inputs import DrainRequest, DrainReversal, Heartbeat, Input, Join, Leave

Body = TypeVar("Body", bound=Struct)
KINDS: Final = ("join", "heartbeat", "leave", "drain", "undrain")


class _Leave(Struct):
    mode: Literal["leave", "restart"] = "leave"


class _Drain(Struct):
    deadline_ms: DurationMs | None = None


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


def read_item(member_id: MemberId, kind: str, said: dict[str, Any], *, tasks_max: int) -> Input:
    """Return the input that a record asks for.

    Raises:
        InvalidRequest: naming every fault by path and reason.
        TooLarge: when it reports more than ``tasks_max`` tasks.
    """
    item: Join | Heartbeat | Leave | DrainRequest | DrainReversal
    match kind:
        case "join":
            item = read_join(member_id, to_json(said), tasks_max=tasks_max)
        case "heartbeat":
            item = read_heartbeat(member_id, to_json(said), tasks_max=tasks_max)
        case "leave":
            item = Leave(member_id, restart=_read(said, _Leave).mode == "restart")
        case "drain":
            item = DrainRequest(member_id, _read(said, _Drain).deadline_ms)
        case "undrain":
            item = DrainReversal(member_id)
        case _:
            raise refusal([("kind", f"{kind[:40]!r} is not one of {', '.join(KINDS)}")])
    return item


def _read(said: dict[str, Any], form: type[Body]) -> Body:
    try:
        return msgspec.convert(said, form)
    except msgspec.ValidationError as error:
        raise refusal([("", str(error))]) from None
