"""Every call that is served, and which roles may make it. Whatever is not listed here is for admins alone.

docs/security.md shows the same table; a test holds the two, and the OpenAPI document, equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from batonpass.runtime.access import AccessRole

ADMIN: Final = frozenset({AccessRole.ADMIN})
OPERATOR: Final = ADMIN | {AccessRole.OPERATOR}
VIEWER: Final = OPERATOR | {AccessRole.VIEWER}
WORKER: Final = ADMIN | {AccessRole.WORKER}
WORKER_OR_OPERATOR: Final = OPERATOR | {AccessRole.WORKER}
ANYBODY: Final = frozenset(AccessRole)

_GROUP: Final = "/v1/groups/{group}"
_MEMBER: Final = _GROUP + "/members/{member}"
_TASK: Final = _GROUP + "/tasks/{task}"

ROLES: Final[Mapping[tuple[str, str], frozenset[AccessRole]]] = {
    ("GET", "/v1/groups"): VIEWER,
    ("GET", _GROUP): ANYBODY,
    ("PUT", _GROUP): WORKER_OR_OPERATOR,
    ("DELETE", _GROUP): OPERATOR,
    ("GET", _GROUP + "/assignment"): ANYBODY,
    ("GET", _GROUP + "/snapshot"): VIEWER,
    ("POST", _GROUP + "/plan"): VIEWER,
    ("POST", _GROUP + "/advice"): WORKER,
    ("GET", _GROUP + "/explain"): VIEWER,
    ("GET", _GROUP + "/generations"): VIEWER,
    ("GET", _GROUP + "/generations/{number}"): VIEWER,
    ("GET", _GROUP + "/events"): VIEWER,
    ("GET", _GROUP + "/commands"): OPERATOR,
    ("GET", "/v1/events"): VIEWER,
    ("GET", "/v1/commands"): OPERATOR,
    ("GET", _GROUP + "/members"): ANYBODY,
    ("GET", _MEMBER): ANYBODY,
    ("PUT", _MEMBER): WORKER,
    ("DELETE", _MEMBER): WORKER_OR_OPERATOR,
    ("POST", _MEMBER + "/heartbeat"): WORKER,
    ("GET", _MEMBER + "/assignment"): WORKER,
    ("POST", _MEMBER + "/drain"): WORKER_OR_OPERATOR,
    ("DELETE", _MEMBER + "/drain"): WORKER_OR_OPERATOR,
    ("POST", _MEMBER + "/evict"): OPERATOR,
    ("GET", _MEMBER + "/safe-to-stop"): ANYBODY,
    ("POST", _GROUP + "/probe"): OPERATOR,
    ("POST", _GROUP + "/pause"): OPERATOR,
    ("POST", _GROUP + "/resume"): OPERATOR,
    ("GET", _TASK): VIEWER,
    ("GET", _TASK + "/explain"): VIEWER,
    ("GET", _TASK + "/route"): ANYBODY,
    ("PUT", _TASK + "/pin"): OPERATOR,
    ("DELETE", _TASK + "/pin"): OPERATOR,
    ("POST", _TASK + "/release"): OPERATOR,
    ("GET", "/v1/audits"): VIEWER,
    ("GET", "/v1/audits/{day}"): VIEWER,
    ("GET", "/v1/tokens"): ADMIN,
    ("POST", "/v1/tokens"): ADMIN,
    ("DELETE", "/v1/tokens/{token}"): ADMIN,
    ("GET", "/livez"): ANYBODY,
    ("GET", "/readyz"): ANYBODY,
    ("GET", "/metrics"): ANYBODY,
    ("GET", "/openapi.json"): ANYBODY,
    ("GET", "/docs"): ANYBODY,
    ("GET", "/docs/{file}"): ANYBODY,
}
"""The roles of each call. A token that is bound to a group makes calls on that group, and those that tell of none."""

OPEN: Final[Mapping[str, tuple[str, ...]]] = {
    "livez": ("/livez",),
    "readyz": ("/readyz",),
    "metrics": ("/metrics",),
    "openapi": ("/openapi.json",),
    "docs": ("/docs", "/docs/{file}"),
}
"""What may be left open, by the name that the setting has for it."""

EVERYWHERE: Final = frozenset(
    {
        _GROUP + "/generations",
        _GROUP + "/generations/{number}",
        _GROUP + "/events",
        _GROUP + "/commands",
    }
)
"""Calls on a group that every coordinator answers, from the store alone."""

WAITS: Final = frozenset({("GET", _MEMBER + "/assignment"), ("POST", _MEMBER + "/drain")})
"""Calls on a member that may be answered only when there is news of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call: its method and its path as the document writes it.

    ``roles`` are those that may make it; None where nothing is served so. ``on_group``: it is about the group that the
    path names. ``on_member``: it is one that a worker makes for its own member, and counts against that member alone.
    ``is_everywhere``: any coordinator answers it, whoever owns the group. ``waits``: it may be answered only when there
    is news.
    """

    method: str
    path: str
    roles: frozenset[AccessRole] | None
    on_group: bool = False
    on_member: bool = False
    is_everywhere: bool = False
    waits: bool = False


UNKNOWN: Final = Call("", "other", None)
GROUP_PART: Final = 3
MEMBER_PART: Final = 5
"""Where a path that was split at its slashes names its group, and its member."""


def _call(method: str, path: str, roles: frozenset[AccessRole]) -> Call:
    return Call(
        method,
        path,
        roles,
        on_group=path.startswith(_GROUP),
        on_member=path.startswith(_MEMBER) and AccessRole.WORKER in roles,
        is_everywhere=path in EVERYWHERE,
        waits=(method, path) in WAITS,
    )


CALLS: Final = {named: _call(*named, roles) for named, roles in ROLES.items()}
HEARTBEAT: Final = CALLS["POST", _MEMBER + "/heartbeat"]
LONG_POLL: Final = CALLS["GET", _MEMBER + "/assignment"]


class Calls:
    """Finds what a request asks for."""

    def __init__(self, served: Iterable[tuple[str, str]] = ()) -> None:
        """Know the calls above, and of ``served`` those that were forgotten there, which are then for admins only."""
        forgotten = {named: _call(*named, ADMIN) for named in served if named not in CALLS}
        # By the number of parts, then by which of them are literal: what these say is looked up. The form with more
        # literal parts comes first, so that no name can hide what is served.
        self._forms: dict[int, dict[tuple[int, ...], dict[tuple[str, ...], dict[str, Call]]]] = {}
        for call in (CALLS | forgotten).values():
            parts = call.path.split("/")
            literal = tuple(place for place, part in enumerate(parts) if part[:1] != "{")
            forms = self._forms.setdefault(len(parts), {})
            says = tuple(parts[place] for place in literal)
            forms.setdefault(literal, {}).setdefault(says, {})[call.method] = call
        for length, forms in self._forms.items():
            self._forms[length] = dict(sorted(forms.items(), key=lambda form: -len(form[0])))

    def at(self, parts: list[str]) -> Mapping[str, Call]:
        """Return the calls by method of a path that was split at its slashes; none where nothing is served."""
        for literal, paths in self._forms.get(len(parts), {}).items():
            calls = paths.get(tuple([parts[place] for place in literal]))
            if calls is not None and all(parts[1:]):
                return calls
        return {}
