"""What each call answers with, in the OpenAPI document: the JSON Schemas of the package, as it refers to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from batonpass import schemas

_GROUP: Final = "/v1/groups/{group}"
_MEMBER: Final = _GROUP + "/members/{member}"
_TASK: Final = _GROUP + "/tasks/{task}"

SHOWN: Final[Mapping[tuple[str, str], str]] = {
    ("GET", "/v1/groups"): "groups_get",
    ("PUT", _GROUP): "group_get",
    ("GET", _GROUP): "group_get",
    ("GET", _GROUP + "/assignment"): "assignment_get",
    ("GET", _GROUP + "/snapshot"): "snapshot",
    ("POST", _GROUP + "/plan"): "plan_answer",
    ("GET", _GROUP + "/explain"): "group_explain",
    ("GET", _GROUP + "/generations"): "generations_get",
    ("GET", _GROUP + "/generations/{number}"): "generation_get",
    ("GET", _GROUP + "/commands"): "commands_get",
    ("GET", _GROUP + "/events"): "events_get",
    ("GET", "/v1/commands"): "commands_get",
    ("GET", "/v1/events"): "events_get",
    ("GET", _GROUP + "/members"): "members_get",
    ("PUT", _MEMBER): "member_answer",
    ("GET", _MEMBER): "member_get",
    ("POST", _MEMBER + "/heartbeat"): "member_answer",
    ("GET", _MEMBER + "/assignment"): "member_answer",
    ("POST", _MEMBER + "/drain"): "drain_answer",
    ("GET", _MEMBER + "/safe-to-stop"): "safe_to_stop_get",
    ("GET", _TASK): "task_get",
    ("GET", _TASK + "/explain"): "task_explain",
    ("GET", _TASK + "/route"): "route_get",
    ("GET", "/v1/audits"): "audits_get",
    ("GET", "/v1/audits/{day}"): "audit_get",
    ("GET", "/v1/tokens"): "tokens_get",
    ("POST", "/v1/tokens"): "token_post",
    ("GET", "/livez"): "livez_get",
    ("GET", "/readyz"): "readyz_get",
}
"""The schema of the body of each call that answers with JSON."""

TEXTS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("GET", _GROUP + "/events"): ("text/event-stream",),
    ("GET", "/v1/events"): ("text/event-stream",),
    ("GET", "/metrics"): ("application/openmetrics-text", "text/plain"),
}
"""The other types of content that some calls answer with."""

_COMMON: Final = "common#/$defs/"
_REF: Final = "#/components/schemas/"


def show(paths: Mapping[str, Any]) -> None:
    """Add to every operation what it answers with; a status without a body is 204."""
    for (method, path), name in SHOWN.items():
        content = {"application/json": {"schema": {"$ref": _REF + name}}}
        _add(paths[path][method.lower()], content)
    for (method, path), kinds in TEXTS.items():
        _add(paths[path][method.lower()], {kind: {"schema": {"type": "string"}} for kind in kinds})


def _add(operation: Any, content: Mapping[str, Any]) -> None:
    for status, answer in operation["responses"].items():
        if status not in ("204", "default"):
            answer.setdefault("content", {}).update(content)


def components() -> dict[str, Any]:
    """Return every schema that an answer refers to, directly or through others, by the name that ``show`` gives it."""
    found: dict[str, Any] = {}
    wanted = sorted(set(SHOWN.values()))
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = _translated(_source(name))
            wanted.extend(_names(found[name]))
    return dict(sorted(found.items()))


def _source(name: str) -> Any:
    if name.startswith("common_"):
        return schemas.load("common")["$defs"][name.removeprefix("common_")]
    whole = schemas.load(name)
    return {key: value for key, value in whole.items() if key not in ("$schema", "$id")}


def _translated(value: Any) -> Any:
    """Return a schema whose references lead to where the document has what they name."""
    if isinstance(value, dict):
        return {key: _reference(item) if key == "$ref" else _translated(item) for key, item in value.items()}
    return [_translated(item) for item in value] if isinstance(value, list) else value


def _reference(urn: str) -> str:
    name = urn.removeprefix(schemas.URN)
    return _REF + (f"common_{name.removeprefix(_COMMON)}" if name.startswith(_COMMON) else name)


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item.removeprefix(_REF)
            else:
                yield from _names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)
