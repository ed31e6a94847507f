"""One group of this process: its engine, mailbox, deadline and watchers.

A deadline decides nothing: when it fires, the core looks again at what is due. So one that fires early is harmless.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import PollBroken, PollOpened, Tick
from batonpass.core.state.records import Record
from batonpass.loop_turns import LoopTurns
from batonpass.runtime.engine import Engine
from batonpass.runtime.feed import Feed
from batonpass.runtime.mailbox import Mailbox
from batonpass.runtime.ports import Clock, Ports
from batonpass.runtime.watchers import Watchers

TICK_RETRY_MS = 200
DELAY_MS_MIN = 1


class Deadline:
    """The wake-up of one group: it posts an input ``Tick`` at the instant that the last decision named."""

    def __init__(self, clock: Clock, tick: Callable[[], None]) -> None:
        self._clock = clock
        self._tick = tick
        self._timer: asyncio.TimerHandle | None = None
        self.wake_at_ms: int | None = None

    def set(self, wake_at_ms: int | None) -> None:
        """Wake at ``wake_at_ms`` instead of the instant set before; None: not at all."""
        if wake_at_ms == self.wake_at_ms and (self._timer is not None or wake_at_ms is None):
            return
        self.cancel()
        self.wake_at_ms = wake_at_ms
        if wake_at_ms is not None:
            self._arm(wake_at_ms - self._clock.now_ms())

    def postpone(self, delay_ms: int) -> None:
        """Wake after ``delay_ms``, because what was due could not be done now."""
        self.cancel()
        self.wake_at_ms = self._clock.now_ms() + delay_ms
        self._arm(delay_ms)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.wake_at_ms = None

    def _arm(self, delay_ms: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(max(delay_ms, DELAY_MS_MIN) / 1_000, self._due)

    def _due(self) -> None:
        self._timer = self.wake_at_ms = None
        self._tick()


class GroupRuntime:
    """One group and everything that runs for it."""

    def __init__(
        self, group_id: GroupId, ports: Ports, feed: Feed, *, requests_waiting_max: int, turns: LoopTurns
    ) -> None:
        self.watchers = Watchers()
        self._feed = feed
        self.deadline = Deadline(ports.clock, self._tick)
        self.engine = Engine(group_id, ports, changed=self._changed, wake_at=self.deadline.set)
        self.mailbox = Mailbox(self.engine, limit=requests_waiting_max, turns=turns)
        self._polls: Counter[MemberId] = Counter()
        self._broken: set[MemberId] = set()

    @property
    def is_vacant(self) -> bool:
        """Whether there is no such group, or none any more, and no request is waiting here."""
        return not self.engine.group.declared and self.mailbox.is_idle and not self.watchers

    def poll_opened(self, member_id: MemberId) -> None:
        """Count a long-poll; one that follows a broken one shows that the member is alive."""
        self._polls[member_id] += 1
        if member_id in self._broken and self.mailbox.post(PollOpened(member_id)):
            self._broken.discard(member_id)

    def poll_closed(self, member_id: MemberId) -> None:
        """Count a long-poll that ended, answered or not."""
        self._polls[member_id] -= 1
        if not self._polls[member_id]:
            del self._polls[member_id]

    def poll_broken(self, member_id: MemberId) -> None:
        """Called when a long-poll broke. While the member has another one open, that does not count against it."""
        is_last = self._polls[member_id] == 1
        if is_last and member_id in self.engine.group.members and self.mailbox.post(PollBroken(member_id)):
            self._broken.add(member_id)

    def _tick(self) -> None:
        if not self.mailbox.post(Tick()):
            self.deadline.postpone(TICK_RETRY_MS)

    def _changed(self, records: Sequence[Record] | None) -> None:
        self._broken = {member_id for member_id in self._broken if member_id in self.engine.group.members}
        if records is None:
            self.watchers.wake_all()
        else:
            self.watchers.wake(records)
        self._feed.wake()
