"""Keeps members from expiring that may speak over Kafka, while this coordinator hears nothing there (L5)."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.model import Group
from batonpass.core.state.soft import Soft
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.mailbox import LATE_SEQ

LOOK_S: Final = 0.5


class Line(Protocol):
    """What hears members over Kafka; ``is_connected`` while it listens, but not to the groups ``elsewhere``."""

    is_connected: bool
    elsewhere: set[GroupId]

    def reads(self, partition: int) -> bool:
        """Whether a partition of the heartbeats is read, or is gone, so that nothing is in it."""


class Unheard:
    """The groups whose members may speak over Kafka, while that is not listened to.

    A heartbeat that could not be read may well have been sent. So while its partition is not read, every member last
    heard over Kafka counts as heard; once it is read again, each has a whole session timeout left.

    A coordinator that took a group over meanwhile does not know how each member speaks. So all count as heard that it
    has not heard itself; those that it has heard over HTTP are judged as ever.
    """

    def __init__(self, coordinator: Coordinator, *, told: Callable[[GroupId], None]) -> None:
        """``told`` is called with each group, where the settings have this coordinator never listen to Kafka."""
        self._coordinator = coordinator
        self._told = told
        self._heard: dict[tuple[GroupId, MemberId], int] = {}
        self.line: Line | None = None
        """None: this coordinator never listens to Kafka."""
        self.groups: set[GroupId] = set()

    def heard(self, group_id: GroupId, member_id: MemberId, partition: int) -> None:
        """Note that a member was heard over Kafka, and by which partition."""
        self._heard[group_id, member_id] = partition

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        line, loaded = self.line, self._coordinator.loaded_groups()
        groups = {group.id: (group, soft) for group, soft in loaded if group.config.kafka_heartbeats}
        here = {group_id: group.members for group_id, (group, _) in groups.items()}
        self._heard = {key: at for key, at in self._heard.items() if key[1] in here.get(key[0], ())}
        read = {at for at in set(self._heard.values()) if line is not None and line.reads(at)}
        if line is None:
            for group_id in sorted(groups.keys() - self.groups):
                self._told(group_id)
        self.groups = groups.keys() & (line.elsewhere if line is not None and line.is_connected else groups.keys())
        silent: dict[GroupId, set[MemberId]] = defaultdict(set)
        for (group_id, member_id), at in self._heard.items():
            is_read = at in read and group_id not in self.groups
            if not is_read and here[group_id][member_id].away_until_ms is None:
                silent[group_id].add(member_id)
        for group_id in self.groups:
            silent[group_id].update(_never_heard(*groups[group_id], self._coordinator.now_ms()))
        for group_id, member_ids in silent.items():
            if member_ids:
                self._coordinator.hear(group_id, sorted(member_ids))


def _never_heard(group: Group, soft: Soft, now_ms: int) -> Iterator[MemberId]:
    """Yield the members that this coordinator has never heard, each once per heartbeat interval."""
    for member in group.members.values():
        known = soft.of(member.id)
        was_heard = known.seq > LATE_SEQ or member.joined_ms >= soft.started_ms
        if not was_heard and member.away_until_ms is None and now_ms - known.heard_ms >= group.heartbeat_interval_ms:
            yield member.id
