"""Every call that is served, and which roles may make it. A call that is not listed here is for admins alone.

docs/security.md shows the same table; a test holds the two, and the OpenAPI document, equal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from batonpass.codec.bodies import DrainQuery, PollQuery
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
    ("GET", _GROUP + "/lags"): VIEWER,
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
    ("POST", _MEMBER + "/trust"): OPERATOR,
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
"""The roles of each call. A token that is bound to a group may make calls on it, and calls that reveal no group."""

OPEN: Final[Mapping[str, tuple[str, ...]]] = {
    "livez": ("/livez",),
    "readyz": ("/readyz",),
    "metrics": ("/metrics",),
    "openapi": ("/openapi.json",),
    "docs": ("/docs", "/docs/{file}"),
}
"""The calls that a setting may open to callers without a token, by their names in that setting."""

EVERYWHERE: Final = frozenset(
    {
        _GROUP + "/generations",
        _GROUP + "/generations/{number}",
        _GROUP + "/events",
        _GROUP + "/commands",
    }
)
"""Calls on a group that every coordinator answers, from the store alone."""

WAITS: Final[Mapping[tuple[str, str], int]] = {
    ("GET", _MEMBER + "/assignment"): PollQuery().wait_ms,
    ("POST", _MEMBER + "/drain"): DrainQuery().wait_ms,
}
"""Calls on a member that may wait for news of it, and for how long if they do not say."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call: its method and its path as the document writes it.

    ``roles`` are those that may make it; None if it is not served. ``on_group``: it is about the group that the path
    names. ``on_member``: a worker makes it for its own member, and it counts against that member's rate alone.
    ``is_everywhere``: any coordinator answers it, not only the owner of the group. ``wait_ms``: for how long it waits
    for news unless its query says otherwise; None: it never waits.
    """

    method: str
    path: str
    roles: frozenset[AccessRole] | None
    on_group: bool = False
    on_member: bool = False
    is_everywhere: bool = False
    wait_ms: int | None = None


UNKNOWN: Final = Call("", "other", None)
GROUP_PART: Final = 3
MEMBER_PART: Final = 5
"""The indexes of the group and the member in a path that was split at its slashes."""


def _call(method: str, path: str, roles: frozenset[AccessRole]) -> Call:
    return Call(
        method,
        path,
        roles,
        on_group=path.startswith(_GROUP),
        on_member=path.startswith(_MEMBER) and AccessRole.WORKER in roles,
        is_everywhere=path in EVERYWHERE,
        wait_ms=WAITS.get((method, path)),
    )


CALLS: Final = {named: _call(*named, roles) for named, roles in ROLES.items()}
HEARTBEAT: Final = CALLS["POST", _MEMBER + "/heartbeat"]
LONG_POLL: Final = CALLS["GET", _MEMBER + "/assignment"]


class Calls:
    """Finds the calls that are served at a path."""

    def __init__(self, served: Iterable[tuple[str, str]] = ()) -> None:
        """Take the calls above, and those of ``served`` that are missing there, which are then for admins only."""
        forgotten = {named: _call(*named, ADMIN) for named in served if named not in CALLS}
        # By the number of parts, then by which of them are literal, then by the text of these. The form with more
        # literal parts comes first, so that no name in a path can hide a call.
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
        """Return the calls by method of a path that was split at its slashes; none if nothing is served there."""
        for literal, paths in self._forms.get(len(parts), {}).items():
            calls = paths.get(tuple([parts[place] for place in literal]))
            if calls is not None and all(parts[1:]):
                return calls
        return {}
