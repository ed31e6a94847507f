"""Who speaks over Kafka, so that nobody is expired for a silence that is the cluster's.

A heartbeat that could not be read may well have been sent. So while the heartbeats cannot be read, whoever was last
heard over Kafka counts as heard; once they can be read again, each has a whole session timeout left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from batonpass.core.errors import ProtocolError
from batonpass.core.inputs import Heartbeat, Input
from batonpass.runtime.ports import CoordinatorLoading, StoreUnavailable

if TYPE_CHECKING:
    from batonpass.core.ids import GroupId, MemberId
    from batonpass.core.replies import Reply

LATE: Final = -1
"""A ``seq`` below every other: such a heartbeat changes nothing, and counts as received."""


class Speakers:
    """The members that this coordinator hears over Kafka."""

    def __init__(self) -> None:
        self._heard: dict[tuple[GroupId, MemberId], None] = {}

    def heard(self, group_id: GroupId, member_id: MemberId) -> None:
        """Note that a member spoke."""
        self._heard[group_id, member_id] = None

    def keep(self, groups: Mapping[GroupId, Collection[MemberId]]) -> None:
        """Forget whoever is no member any more."""
        self._heard = {key: None for key in self._heard if key[1] in groups.get(key[0], ())}

    async def excuse(self, ask: Callable[[GroupId, Input], Awaitable[Reply]]) -> None:
        """Have each of them count as heard now; whoever is gone, or another coordinator's, is forgotten."""
        for group_id, member_id in list(self._heard):
            try:
                reply = await ask(group_id, Heartbeat(member_id, LATE, 0))
            except ProtocolError as error:
                reply = error
            if isinstance(reply, ProtocolError) and not isinstance(reply, StoreUnavailable | CoordinatorLoading):
                self._heard.pop((group_id, member_id), None)
