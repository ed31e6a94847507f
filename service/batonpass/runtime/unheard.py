"""Keeps members from expiring that may speak over Kafka, while this coordinator hears nothing there (L5)."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import Heartbeat
from batonpass.core.state.model import Group
from batonpass.core.state.soft import Soft
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.mailbox import LATE_SEQ

LOOK_S: Final = 0.5


class Unheard:
    """The groups whose members may speak over Kafka, while that is not listened to.

    A coordinator that took such a group over does not know how each member speaks. So all count as heard that it has
    not heard itself; those that it has heard over HTTP are judged as ever.
    """

    def __init__(self, coordinator: Coordinator, *, told: Callable[[GroupId], None]) -> None:
        """``told`` is called with each group, where the settings have this coordinator never listen to Kafka."""
        self._coordinator = coordinator
        self._told = told
        self.listens: Callable[[], bool] | None = None
        """Whether Kafka is listened to now. None: this coordinator never does."""
        self.groups: set[GroupId] = set()

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        loaded = [] if self.listens is not None and self.listens() else self._coordinator.loaded_groups()
        found = {group.id: (group, soft) for group, soft in loaded if group.config.kafka_heartbeats}
        if self.listens is None:
            for group_id in sorted(found.keys() - self.groups):
                self._told(group_id)
        self.groups = set(found)
        for group_id, (group, soft) in found.items():
            for member_id in _unheard(group, soft, self._coordinator.now_ms()):
                # Whoever owns the group by now, or once the store is back, looks again.
                with suppress(ProtocolError):
                    await self._coordinator.ask(group_id, Heartbeat(member_id, LATE_SEQ, 0))


def _unheard(group: Group, soft: Soft, now_ms: int) -> Iterator[MemberId]:
    """Yield the members that this coordinator has never heard, each once per heartbeat interval."""
    for member in group.members.values():
        known = soft.of(member.id)
        was_heard = known.seq > LATE_SEQ or member.joined_ms >= soft.started_ms
        if not was_heard and member.away_until_ms is None and now_ms - known.heard_ms >= group.heartbeat_interval_ms:
            yield member.id
