"""One group of this process: its engine, mailbox, deadline and watchers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from batonpass.core.inputs import PollBroken, PollOpened, Tick
from batonpass.runtime.deadlines import Deadline
from batonpass.runtime.engine import Engine
from batonpass.runtime.mailbox import Mailbox
from batonpass.runtime.watchers import Watchers

if TYPE_CHECKING:
    from batonpass.core.ids import GroupId, MemberId
    from batonpass.core.records import Record
    from batonpass.runtime.feed import Feed
    from batonpass.runtime.ports import Ports

TICK_RETRY_MS = 200


class GroupRuntime:
    """One group and everything that runs for it."""

    def __init__(self, group_id: GroupId, ports: Ports, feed: Feed, *, letters_max: int) -> None:
        self.watchers = Watchers()
        self._feed = feed
        self.deadline = Deadline(ports.clock, self._tick)
        self.engine = Engine(group_id, ports, changed=self._changed, wake_at=self.deadline.set)
        self.mailbox = Mailbox(self.engine, limit=letters_max)
        self._polls: Counter[MemberId] = Counter()
        self._broken: set[MemberId] = set()

    @property
    def is_empty(self) -> bool:
        """Whether the group has never been declared and nobody is waiting here."""
        return self.engine.group.version == 0 and self.mailbox.is_idle and not self.watchers

    def poll_opened(self, member_id: MemberId) -> None:
        """Count a long-poll; one that follows a broken one is the member's word that it lives."""
        self._polls[member_id] += 1
        if member_id in self._broken and self.mailbox.post(PollOpened(member_id)):
            self._broken.discard(member_id)

    def poll_closed(self, member_id: MemberId) -> None:
        """Count a long-poll that ended, answered or not."""
        self._polls[member_id] -= 1
        if not self._polls[member_id]:
            del self._polls[member_id]

    def poll_broken(self, member_id: MemberId) -> None:
        """Hear that a long-poll broke. While the member has another one open, that says nothing about it."""
        is_last = self._polls[member_id] == 1
        if is_last and member_id in self.engine.group.members and self.mailbox.post(PollBroken(member_id)):
            self._broken.add(member_id)

    def _tick(self) -> None:
        if not self.mailbox.post(Tick()):
            self.deadline.postpone(TICK_RETRY_MS)

    def _changed(self, records: Sequence[Record] | None) -> None:
        if records is None:
            self.watchers.wake_all()
        else:
            self.watchers.wake(records)
        self._feed.wake()
