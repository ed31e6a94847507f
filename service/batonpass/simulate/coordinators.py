"""Coordinators as thin shells around the core, and the store that they share.

A coordinator keeps the order that the service must keep: decide, check the laws, append, change memory, answer (L2).
The store refuses an append that expects another version, or that comes from a coordinator whose epoch has passed (L4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from batonpass.core.answers import answer_to_poll
from batonpass.core.decide import Decision, decide
from batonpass.core.evolve import evolve
from batonpass.core.ids import GroupId, MemberId
from batonpass.core.inputs import Heartbeat, Input, Join, PollBroken, PollOpened, Started, StoreRecovered, Tick
from batonpass.core.model import Group
from batonpass.core.records import Record
from batonpass.core.replies import Reply
from batonpass.core.soft import MemberSoft, Soft
from batonpass.simulate.checks import POLICY
from batonpass.simulate.wire import Body, to_answer, unavailable

if TYPE_CHECKING:
    from batonpass.simulate.world import World

LEASE_MS = POLICY.coordinator_lease_ms
KEPT = 40


def heard(group: Group, soft: Soft, item: Input, now_ms: int) -> Soft:
    """Return the soft state after a refused append: nothing of the input has happened, but its sender was heard (L5).

    Its ``seq`` and reports must not be kept: the repetition would pass for a double, and what it says would be lost.
    """
    if not isinstance(item, Heartbeat | Join) or item.member_id not in group.members:
        return soft
    known = soft.members.get(item.member_id) or MemberSoft(now_ms)
    return replace(soft, members=soft.members.having(item.member_id, replace(known, heard_ms=now_ms)))


class Fate(StrEnum):
    """What became of an append. ``DEPOSED``: somebody else leads by now, or has written what was not expected."""

    COMMITTED = "committed"
    UNAVAILABLE = "unavailable"
    DEPOSED = "deposed"


@dataclass(slots=True)
class Store:
    """The log, as the last groups that it led to, with the records in between."""

    group: Group
    coordinator_epoch: int = 0
    is_out: bool = False
    history: list[tuple[Group, tuple[Record, ...]]] = field(default_factory=list)

    def append(self, epoch: int, expected: int, records: tuple[Record, ...], after: Group) -> Fate:
        """Commit ``records``, unless they come from a coordinator of an older epoch or expect another version."""
        if self.is_out:
            return Fate.UNAVAILABLE
        if epoch != self.coordinator_epoch or expected != self.group.version:
            return Fate.DEPOSED
        self.history.append((self.group, records))
        del self.history[:-KEPT]
        self.group = after
        return Fate.COMMITTED

    def lose(self, commits: int) -> int:
        """Forget the last ``commits`` appends, as a failover to a late replica does; return how many there were."""
        lost = min(commits, len(self.history))
        for _ in range(lost):
            self.group, _ = self.history.pop()
        return lost

    def load(self) -> Group:
        """Return the group as the log leads to it: an older snapshot with the records since folded in."""
        if not self.history:
            return self.group
        base, _ = self.history[0]
        return evolve(base, [record for _, records in self.history for record in records])


class SimulatedCoordinator:
    """One coordinator process that serves the group, or believes so."""

    def __init__(self, name: str, world: World, *, clock_offset_ms: int) -> None:
        self.name = name
        self.world = world
        self.clock_offset_ms = clock_offset_ms
        self.epoch = 0
        self.group = Group(GroupId("g"))
        self.soft = Soft()
        self.is_up = False
        self.is_cut_from_store = False
        self.stalled_until_ms = 0
        self.lease_until_ms = 0
        self.started_at_ms = 0
        # A crash that waits for its moment: right after the next append, before the answer.
        self.dies_after_append = False
        self.polls: dict[str, tuple[int, Callable[[int, Body | None], None], int]] = {}
        self.heard_at_ms: dict[str, int] = {}
        self.broken_polls: dict[str, None] = {}
        self.wake_ms: int | None = None

    @property
    def clock_ms(self) -> int:
        """What this coordinator's clock says: right at its start but for skew, and steady from there."""
        return self.world.now_ms + self.clock_offset_ms

    @property
    def holds_lease(self) -> bool:
        """Whether it may still answer from memory."""
        return self.world.now_ms < self.lease_until_ms

    def start(self, *, recovered: bool = False) -> None:
        """Take the group over: a higher epoch, the group from the log, and nobody judged at first.

        ``recovered`` says that an operator has declared the loss of commits before the start.
        """
        store = self.world.store
        store.coordinator_epoch += 1
        self.epoch = store.coordinator_epoch
        self.group = store.load()
        self.soft = Soft()
        self.is_up = True
        self.started_at_ms = self.world.now_ms
        self.lease_until_ms = self.world.now_ms + LEASE_MS
        self.world.log(f"{self.name} starts with epoch {self.epoch} at version {self.group.version}")
        self.world.checks.on_load(self.group, store.group)
        self._renew()
        if recovered:
            self.take(StoreRecovered())
        self.take(Started())

    def _renew(self) -> None:
        """Renew the lease by the store's time, unless somebody else has the group by now."""
        if not self.is_up:
            return
        store = self.world.store
        reachable = not self.is_cut_from_store and not store.is_out and self.world.now_ms >= self.stalled_until_ms
        if reachable and store.coordinator_epoch == self.epoch:
            self.lease_until_ms = self.world.now_ms + LEASE_MS
        self.world.after(1_500, self._renew)

    def stall(self, for_ms: int) -> None:
        """Freeze the process. When it comes to, it sees by its own clock that it was away, and judges nobody yet."""
        self.stalled_until_ms = max(self.stalled_until_ms, self.world.now_ms + for_ms)
        self.world.after(for_ms, self._come_to)
        if for_ms > LEASE_MS and self is self.world.leader:
            self.world.after(LEASE_MS, self.world.take_over, self)

    def _come_to(self) -> None:
        if self.is_up and self.world.now_ms >= self.stalled_until_ms:
            self.take(Started())

    def stop(self) -> None:
        """End the process: open long-polls break, memory is gone."""
        self.is_up = False
        polls, self.polls = self.polls, {}
        for _, reply, _ in polls.values():
            reply(0, None)

    # --- requests -----------------------------------------------------------------------------------------------

    def take(self, item: Input) -> tuple[int, Body | None] | None:
        """Decide on an input, commit, then answer; None when the process died in between."""
        if isinstance(item, Heartbeat | Join):
            self.heard_at_ms[item.member_id] = self.world.now_ms
        before = self.group
        decision = decide(before, self.soft, (item,), self.clock_ms, POLICY)
        self.world.checks.on_decision(self, (item,), decision)
        if not self._commit(decision):
            self.soft = heard(self.group, self.soft, item, self.clock_ms)
            return unavailable() if self.is_up else None
        self.soft = decision.soft
        self._arm(decision.wake_at_ms)
        if not self.is_up:
            return None
        if self.group is not before:
            self._answer_polls()
        if not decision.records and not self.holds_lease:
            return unavailable("coordinator-loading")
        return to_answer(decision.replies[0])

    def _commit(self, decision: Decision) -> bool:
        if not decision.records:
            return True
        fate = Fate.UNAVAILABLE
        if not self.is_cut_from_store:
            fate = self.world.store.append(self.epoch, self.group.version, decision.records, decision.after)
        if fate is Fate.UNAVAILABLE:
            self.world.after(300, self._tick)
            return False
        if fate is Fate.DEPOSED:
            self.world.log(f"{self.name} is refused by the store and steps down")
            self.stop()
            return False
        self.world.checks.on_commit(self, decision)
        self.group = decision.after
        if self.dies_after_append:
            self.dies_after_append = False
            self.world.log(f"{self.name} dies between append and answer")
            self.world.coordinator_died(self)
        return True

    def reply_to(self, item: Input) -> Reply | None:
        """Decide on an operator's input and return the core's own reply; None when it could not be committed."""
        before = self.soft
        decision = decide(self.group, before, (item,), self.clock_ms, POLICY)
        self.world.checks.on_decision(self, (item,), decision)
        if not self._commit(decision):
            return None
        self.soft = decision.soft
        self._arm(decision.wake_at_ms)
        if self.is_up:
            self._answer_polls()
        return decision.replies[0]

    def _arm(self, wake_at_ms: int | None) -> None:
        if wake_at_ms is None:
            return
        if self.wake_ms is None or wake_at_ms < self.wake_ms:
            self.wake_ms = wake_at_ms
            self.world.after(max(0, wake_at_ms - self.clock_ms), self._tick)

    def _tick(self) -> None:
        if not self.is_up:
            return
        if self.world.now_ms < self.stalled_until_ms:
            self.world.after(self.stalled_until_ms - self.world.now_ms, self._tick)
            return
        self.wake_ms = None
        self.take(Tick())

    # --- long-polls ---------------------------------------------------------------------------------------------

    def park(self, member_id: str, after: int, wait_ms: int, reply: Callable[[int, Body | None], None]) -> None:
        """Answer a long-poll as soon as there is news for the member, or with 204 at the end of the wait."""
        if member_id in self.broken_polls:
            del self.broken_polls[member_id]
            self.take(PollOpened(MemberId(member_id)))
        if not self.is_up or not self.holds_lease:
            reply(*unavailable("coordinator-loading"))
            return
        waiting = self.polls.pop(member_id, None)
        if waiting is not None:
            waiting[1](204, None)
        until_ms = self.world.now_ms + wait_ms
        self.polls[member_id] = (after, reply, until_ms)
        self._answer_poll(member_id)
        if member_id in self.polls:
            self.world.after(wait_ms, self._end_poll, member_id, until_ms)

    def _end_poll(self, member_id: str, until_ms: int) -> None:
        waiting = self.polls.get(member_id)
        if waiting is not None and waiting[2] == until_ms:
            del self.polls[member_id]
            waiting[1](204, None)

    def _answer_polls(self) -> None:
        for member_id in sorted(self.polls):
            self._answer_poll(member_id)

    def _answer_poll(self, member_id: str) -> None:
        after, reply, _ = self.polls[member_id]
        answer = answer_to_poll(self.group, self.soft, MemberId(member_id), after, POLICY)
        if answer is not None:
            del self.polls[member_id]
            reply(*to_answer(answer))

    def poll_broke(self, member_id: str) -> None:
        """Take it that the socket of a long-poll closed."""
        if self.is_up and self.polls.pop(member_id, None) is not None:
            self.broken_polls[member_id] = None
            self.take(PollBroken(MemberId(member_id)))
