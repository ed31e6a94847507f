"""Coordinators as thin shells around the core, and the store that they share.

A coordinator keeps the order that the service must keep: decide, check the laws, append, change memory, answer (L2).
The store refuses an append that expects another version, or that comes from a coordinator of an older epoch (L4).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from batonpass.core.arrivals.answers import answer_to_poll
from batonpass.core.arrivals.reports import count_as_heard
from batonpass.core.decide import Decision, decide
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import Heartbeat, Input, Join, PollBroken, PollOpened, Started, StoreRecovered, Tick
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import Record
from batonpass.core.state.replies import Reply
from batonpass.core.state.soft import Soft
from batonpass.simulate.clock import Clock
from batonpass.simulate.wire import Body, to_answer, unavailable

POLICY = Policy()
LEASE_MS = POLICY.coordinator_lease_ms
RENEWAL_MS = LEASE_MS * 3 // 10
KEPT = 40
RETRY_MS = 300
"""How long a coordinator waits before it tries again, after the store did not take its records."""

Respond = Callable[[int, Body | None], None]


class AppendResult(StrEnum):
    """The result of an append. ``DEPOSED``: another coordinator leads by now, or has written unexpected records."""

    COMMITTED = "committed"
    UNAVAILABLE = "unavailable"
    DEPOSED = "deposed"


@dataclass(slots=True)
class Store:
    """The log, kept as the last groups that it led to and the records between them; and the clock of its machine.

    ``clock_ahead_ms`` is by how much that clock is ahead of the world's, and ``clock_moved_ms`` the world's time at
    which it was set.
    """

    group: Group
    coordinator_epoch: int = 0
    is_out: bool = False
    clock_ahead_ms: int = 0
    clock_moved_ms: int | None = None
    history: list[tuple[Group, tuple[Record, ...]]] = field(default_factory=list)

    def append(self, epoch: int, expected: int, records: tuple[Record, ...], after: Group) -> AppendResult:
        """Commit ``records``, unless they come from a coordinator of an older epoch or expect another version."""
        if self.is_out:
            return AppendResult.UNAVAILABLE
        if epoch != self.coordinator_epoch or expected != self.group.version:
            return AppendResult.DEPOSED
        self.history.append((self.group, records))
        del self.history[:-KEPT]
        self.group = after
        return AppendResult.COMMITTED

    def lose(self, commits: int) -> int:
        """Forget the last ``commits`` appends, as a failover to a late replica does; return how many were lost."""
        lost = min(commits, len(self.history))
        for _ in range(lost):
            self.group, _ = self.history.pop()
        return lost

    def load(self) -> Group:
        """Return the group that the log leads to: an older snapshot with all later records folded in."""
        if not self.history:
            return self.group
        base, _ = self.history[0]
        return evolve(base, [record for _, records in self.history for record in records])


class CoordinatorObserver:
    """Is called when coordinators do something. Methods do nothing by default."""

    def loaded(self, coordinator: "SimulatedCoordinator") -> None:
        """Called when a coordinator has started, with the group from the store and nothing known of members."""

    def decided(self, coordinator: "SimulatedCoordinator", item: Input, decision: Decision) -> None:
        """Called with a decision before it is appended; the coordinator still has the state that it was made on."""

    def committed(self, coordinator: "SimulatedCoordinator", decision: Decision) -> None:
        """Called when a decision's records were appended; the coordinator's own group is still the one before."""

    def died(self, coordinator: "SimulatedCoordinator") -> None:
        """Called when a coordinator died between an append and its answer."""

    def noted(self, line: str) -> None:
        """Called with a line for the trace."""


@dataclass(slots=True, eq=False)
class _Poll:
    """An open long-poll, and the epoch that its member has seen."""

    after: int
    respond: Respond


class SimulatedCoordinator:
    """One coordinator process that serves the group, or believes that it does."""

    def __init__(
        self, name: str, clock: Clock, store: Store, observer: CoordinatorObserver, *, clock_error_ms: int = 0
    ) -> None:
        self.name = name
        self.epoch = 0
        self.group = store.group
        self.soft = Soft()
        self.is_up = False
        self.is_cut_from_store = False
        self.stalled_until_ms = 0
        self.lease_until_ms = 0
        self.started_at_ms = 0
        self.decisions = 0
        # The process is to crash right after its next append, before the answer.
        self.dies_after_append = False
        self.heard_at_ms: dict[str, int] = {}
        self._clock = clock
        self._store = store
        self._observer = observer
        self._clock_error_ms = clock_error_ms
        self._read_ahead_ms = store.clock_ahead_ms
        self._polls: dict[str, _Poll] = {}
        self._broken_polls: set[str] = set()
        self._wake_ms: int | None = None
        self._armed = 0

    @property
    def clock_ms(self) -> int:
        """What this coordinator takes for the store's time: what it last read, with a constant error."""
        return self._clock.now_ms + self._read_ahead_ms + self._clock_error_ms

    @property
    def holds_lease(self) -> bool:
        """Whether it may still answer from memory."""
        return self._clock.now_ms < self.lease_until_ms

    @property
    def is_awake(self) -> bool:
        """Whether it runs, and is not stalled."""
        return self.is_up and self._clock.now_ms >= self.stalled_until_ms

    def start(self, *, recovered: bool = False) -> None:
        """Take the group over with a higher epoch and the group from the log; at first no member is judged.

        ``recovered`` says that an operator has declared the loss of commits before the start.
        """
        self._store.coordinator_epoch += 1
        self.epoch = self._store.coordinator_epoch
        self.group = self._store.load()
        self.is_up = True
        self._read_ahead_ms = self._store.clock_ahead_ms
        self.started_at_ms = self._clock.now_ms
        self.lease_until_ms = self._clock.now_ms + LEASE_MS
        self._observer.noted(f"{self.name} starts with epoch {self.epoch} at version {self.group.version}")
        self._observer.loaded(self)
        self._renew()
        if recovered:
            self.decide(StoreRecovered())
        moved_ms = self._store.clock_moved_ms
        has_moved = moved_ms is not None and self._clock.now_ms - moved_ms < self.group.longest_session_ms
        self.decide(Started(clock_moved=has_moved))

    def _renew(self) -> None:
        """Renew the lease by the store's time, unless another coordinator has the group by now."""
        if not self.is_up:
            return
        reachable = not self.is_cut_from_store and not self._store.is_out and self.is_awake
        if reachable and self._store.coordinator_epoch == self.epoch:
            self.lease_until_ms = self._clock.now_ms + LEASE_MS
            self._read_clock()
        self._clock.after(RENEWAL_MS, self._renew)

    def _read_clock(self) -> None:
        """Go by the store's clock; if that has moved, say so before anything else is decided."""
        if self._read_ahead_ms == self._store.clock_ahead_ms:
            return
        self._read_ahead_ms, self._wake_ms = self._store.clock_ahead_ms, None
        self.decide(Started(clock_moved=True))

    def stall(self, for_ms: int) -> None:
        """Freeze the process. When it wakes, it sees by its own clock that it was silent, and judges no member yet."""
        self.stalled_until_ms = max(self.stalled_until_ms, self._clock.now_ms + for_ms)
        self._clock.after(for_ms, self._come_to)

    def _come_to(self) -> None:
        if self.is_awake:
            self.decide(Started())

    def stop(self, *, in_order: bool = False) -> None:
        """End the process; its memory is gone. Open long-polls break, or are answered if it ends in order."""
        self.is_up = False
        polls, self._polls = self._polls, {}
        for _, poll in sorted(polls.items()):
            poll.respond(204 if in_order else 0, None)

    def leap(self, by_ms: int) -> None:
        """Move the lease and the time at which each member was heard ahead by so much; the world moves the clock.

        The core's wake-up moves by as much. Otherwise the core would conclude that it had been silent itself, and judge
        no member for one session timeout.
        """
        self.lease_until_ms += by_ms
        soft, woken_ms = self.soft, self.soft.wake_ms
        later = {one: replace(member, heard_ms=member.heard_ms + by_ms) for one, member in soft.members.items()}
        self.soft = soft._replace(
            wake_ms=None if woken_ms is None else woken_ms + by_ms, members=soft.members.updated(later)
        )
        if self._wake_ms is not None:
            self._wake_ms += by_ms

    # --- requests -----------------------------------------------------------------------------------------------

    def take(self, item: Input) -> tuple[int, Body | None] | None:
        """Decide on a request, commit, then answer; None when the process died in between."""
        if isinstance(item, Heartbeat | Join):
            self.heard_at_ms[item.member_id] = self._clock.now_ms
        before = self.group
        reply = self.decide(item)
        if not self.is_up:
            return None
        if reply is None:
            return unavailable()
        if self.group is before and not self.holds_lease:
            return unavailable("coordinator-loading")
        return to_answer(reply)

    def decide(self, item: Input) -> Reply | None:
        """Decide on an input, commit, and answer long-polls that have news; None when the commit failed."""
        before = self.group
        decision = decide(before, self.soft, (item,), self.clock_ms, POLICY)
        self.decisions += 1
        self._observer.decided(self, item, decision)
        if not self._commit(decision):
            if isinstance(item, Heartbeat | Join):
                self.soft = count_as_heard(self.group, self.soft, item, self.clock_ms)
            return None
        self.soft = decision.soft
        self._arm(decision.wake_at_ms)
        if self.is_up and self.group is not before:
            for member_id in sorted(self._polls):
                self._answer_poll(member_id)
        return decision.replies[0]

    def _commit(self, decision: Decision) -> bool:
        if not decision.records:
            return True
        result = AppendResult.UNAVAILABLE
        if not self.is_cut_from_store:
            result = self._store.append(self.epoch, self.group.version, decision.records, decision.after)
        if result is AppendResult.UNAVAILABLE:
            self._arm(self.clock_ms + RETRY_MS)
            return False
        if result is AppendResult.DEPOSED:
            self._observer.noted(f"{self.name} is refused by the store and steps down")
            self.stop()
            return False
        self._observer.committed(self, decision)
        self.group = decision.after
        if self.dies_after_append:
            self.dies_after_append = False
            self._observer.noted(f"{self.name} dies between append and answer")
            self._observer.died(self)
        return True

    def _arm(self, wake_at_ms: int | None) -> None:
        if wake_at_ms is not None and (self._wake_ms is None or wake_at_ms < self._wake_ms):
            self._wake_ms = wake_at_ms
            self._armed += 1
            self._clock.after(wake_at_ms - self.clock_ms, self._tick, self._armed)

    def _tick(self, armed: int) -> None:
        # A timer that was replaced by an earlier one does nothing; otherwise each would set one more, for ever.
        if armed != self._armed:
            return
        if self.is_awake:
            self._wake_ms = None
            self.decide(Tick())
        elif self.is_up:
            self._clock.after(self.stalled_until_ms - self._clock.now_ms, self._tick, armed)

    # --- long-polls ---------------------------------------------------------------------------------------------

    def park(self, member_id: str, after: int, wait_ms: int, respond: Respond) -> None:
        """Answer a long-poll as soon as there is news for the member, or with 204 at the end of the wait."""
        if member_id in self._broken_polls:
            self._broken_polls.discard(member_id)
            self.decide(PollOpened(MemberId(member_id)))
        if not self.is_up or not self.holds_lease:
            respond(*unavailable("coordinator-loading"))
            return
        self._end_poll(member_id)
        self._polls[member_id] = poll = _Poll(after, respond)
        self._answer_poll(member_id)
        if member_id in self._polls:
            self._clock.after(wait_ms, self._end_poll, member_id, poll)

    def _end_poll(self, member_id: str, only: _Poll | None = None) -> None:
        """End a member's open long-poll without news; with ``only``, unless it has opened another since."""
        poll = self._polls.get(member_id)
        if poll is not None and only in (None, poll):
            del self._polls[member_id]
            poll.respond(204, None)

    def _answer_poll(self, member_id: str) -> None:
        poll = self._polls[member_id]
        answer = answer_to_poll(self.group, self.soft, MemberId(member_id), poll.after)
        if answer is not None:
            del self._polls[member_id]
            poll.respond(*to_answer(answer))

    def poll_broke(self, member_id: str) -> None:
        """Report to the core that the socket of a long-poll closed."""
        if self.is_up and self._polls.pop(member_id, None) is not None:
            self._broken_polls.add(member_id)
            self.decide(PollBroken(MemberId(member_id)))
