"""What the short ways ask first: whose call it is, and whether the caller may make it here and now.

Only what is plain passes. Whatever does not goes the long way (``front``), where every rule about errors, limits and
forwarding stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from batonpass.api.access import Forbidden, check
from batonpass.codec.requests import checked_name
from batonpass.core.errors import ProtocolError
from batonpass.core.ids import GroupId, MemberId

if TYPE_CHECKING:
    from collections.abc import Hashable

    from batonpass.api.calls import Call
    from batonpass.api.edge import Edge

PLACES_MAX: Final = 20_000
"""Of how many paths it is remembered which group and member they name."""

# /v1/groups/{group}/members/{member}/{call}
_PARTS: Final = 7


class Place(NamedTuple):
    """The path of a member's call, and whom it names."""

    path: str
    group_id: GroupId
    member_id: MemberId


class Paths:
    """The paths of one call on members, as far as they were met."""

    def __init__(self, last: str) -> None:
        """Know the paths that end with ``last``."""
        self._last = last
        self._places: dict[bytes, Place] = {}

    def find(self, path: bytes) -> Place | None:
        """Return what a path names; None for one that is not plain, which the long way knows how to read."""
        found = self._places.get(path)
        if found is None:
            found = self._read(path)
            if found is not None:
                if len(self._places) >= PLACES_MAX:
                    self._places.clear()
                self._places[path] = found
        return found

    def _read(self, path: bytes) -> Place | None:
        if b"%" in path or not path.isascii():
            return None
        text = path.decode("ascii")
        parts = text.split("/")
        if len(parts) != _PARTS or (*parts[:3], parts[4], parts[6]) != ("", "v1", "groups", "members", self._last):
            return None
        try:
            return Place(text, GroupId(checked_name("group", parts[3])), MemberId(checked_name("member", parts[5])))
        except ProtocolError:
            return None


def may_pass(edge: Edge, call: Call, place: Place, digest: bytes | None, caller: Hashable) -> bool:
    """Say whether the caller is known, may do this, is not too early, and has come to the right coordinator."""
    if edge.gate is not None:
        principal = edge.gate.remembered_by(digest)
        if principal is None:
            return False
        try:
            check(principal, call, place.group_id)
        except Forbidden:
            return False
    return not edge.limits.member.is_early(caller) and edge.ownership.owner_url(place.group_id) is None
