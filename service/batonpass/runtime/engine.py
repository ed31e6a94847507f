"""The engine of one group, and the one safe order: decide, check, persist, change memory, answer.

Inputs that arrived together are decided on, committed and answered together. No caller sees what is not committed (L2).
If the program fails on a batch, or the decision would break a law, each input is decided alone, so that only the
culprit fails. A version conflict means that memory is behind the log: the engine reads the group again and decides the
inputs anew, a few times at most. After an append with an unknown outcome, the engine looks in the log before it decides
anything else. A heartbeat counts even if the store is unavailable, so that no member expires because of that (L5).
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from batonpass.core.arrivals.reports import count_as_heard
from batonpass.core.decide import Decision
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import (
    GroupDeclaration,
    Heartbeat,
    Input,
    Join,
    PartitionCounts,
    PollOpened,
    Started,
    StoreRecovered,
    StreamsRebalance,
)
from batonpass.core.state.model import Group
from batonpass.core.state.records import Record
from batonpass.core.state.replies import Reply
from batonpass.core.state.soft import Soft
from batonpass.invariants import Transition, Violation
from batonpass.runtime.history import NO_HISTORY, NOBODY_ASKED, Asked, Historian, History
from batonpass.runtime.ports import (
    RETRY_AFTER_MS,
    Commit,
    CoordinatorLoading,
    Defect,
    Loaded,
    NotOwner,
    Ports,
    StoreUnavailable,
    Superseded,
    VersionConflict,
    not_owner,
)

Inputs = tuple[Input, ...]

ATTEMPTS_MAX = 4
"""How often inputs are decided while others keep writing to the same group. Then their callers get 503, to retry."""

COPIES_DECIDED_AT_ONCE = 5_000
"""Decisions on groups with more copies than this are made and checked in a thread: that may take longer than heartbeats
of other groups should wait (50 ms). Heartbeats that find such a group at rest and write nothing need no thread, unless
they report as many tasks."""


@dataclass(slots=True)
class Attempt:
    """A decision and the state that it was based on. It is stale once ``group`` or ``soft`` has been replaced.

    ``history`` and ``violations`` are set when it is prepared for the log.
    """

    group: Group
    soft: Soft
    inputs: Inputs
    now_ms: int
    decision: Decision
    decide_ms: float
    history: History = NO_HISTORY
    violations: Sequence[Violation] = ()


class Doubtful(NamedTuple):
    """Memory may be behind the log: ``attempt`` may have been appended, or (None) somebody else has written."""

    attempt: Attempt | None = None


Memory = Literal["empty", "current"] | Doubtful


class LawBroken(Exception):
    """Raised for a batch whose decision would break a law; its inputs are then decided one by one."""


class Engine:
    """One group in memory. Its caller hands it one batch of inputs at a time."""

    def __init__(
        self,
        group_id: GroupId,
        ports: Ports,
        *,
        changed: Callable[[Sequence[Record] | None], None],
        wake_at: Callable[[int | None], None],
    ) -> None:
        """Start empty; the group is read from the log on first use.

        ``changed`` is called with the committed records, or None after the group was read again; ``wake_at`` with the
        next wake-up.
        """
        self.group_id = group_id
        self.group = Group(group_id)
        self.soft = Soft()
        self.is_deciding = False
        """Whether a thread makes a decision, for which what has less of a hurry waits."""
        self._ports = ports
        self._changed = changed
        self._wake_at = wake_at
        self._epoch = 0
        self._memory: Memory = "empty"
        self._recovered = False
        self._missed: dict[MemberId, tuple[Heartbeat | Join, int]] = {}
        self._stalls = ports.stalls()
        self._clock_moved_ms = ports.clock.moved_ms
        self._historian = Historian(ports.policy, ports.code)
        self._snapshot_at = 0

    def try_at_once(self, item: Input) -> Reply | Attempt | None:
        """Decide on an input if that needs no waiting, and return its reply if the decision writes nothing.

        If it writes something, return the attempt, for ``carry_out`` to commit. Return None if the input needs
        ``carry_out`` from the start.
        """
        if not self._is_current() or (not self._is_quiet(item) and self._may_take_long((item,))):
            return None
        try:
            attempt = self._decide((item,))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect, and the group goes on
            return self._defect(item, error)
        return attempt if attempt.decision.records else self._take_effect(attempt)[0]

    async def carry_out(
        self, inputs: Inputs, asked: Asked = NOBODY_ASKED, attempt: Attempt | None = None
    ) -> tuple[Reply, ...]:
        """Decide on inputs, persist the result, and return their replies; errors are returned, not raised.

        ``attempt`` is a decision on these inputs that was made already.
        """
        try:
            return await self._try_batch(inputs, asked, attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect, and the group goes on
            if len(inputs) == 1:
                return (self._defect(inputs[0], error),)
        return tuple([reply for item in inputs for reply in await self.carry_out((item,), asked)])

    async def _try_batch(self, inputs: Inputs, asked: Asked, attempt: Attempt | None) -> tuple[Reply, ...]:
        for _ in range(ATTEMPTS_MAX):
            try:
                await self._be_current()
                return await self._commit(inputs, asked, attempt)
            except NotOwner as error:
                return tuple([self._refuse(item, error) for item in inputs])
            except VersionConflict as conflict:
                self._memory = Doubtful()
                if isinstance(conflict, Superseded):
                    self.let_go()
                self._ports.observer.store_failed(self.group_id, str(conflict))
            except StoreUnavailable as error:
                self._ports.observer.store_failed(self.group_id, error.detail)
                return tuple([self._refuse(item, error) for item in inputs])
        busy = f"group {self.group_id} is being written to by somebody else; try again"
        return tuple([StoreUnavailable(busy, retry_after_ms=RETRY_AFTER_MS) for _ in inputs])

    def _defect(self, item: Input, error: Exception) -> Defect:
        self._ports.observer.defect(self.group_id, item, error)
        self.look_again_soon()
        return Defect("the coordinator failed on this request; nothing has changed")

    @property
    def is_loaded(self) -> bool:
        return self._memory != "empty"

    def let_go(self) -> None:
        """Forget the group, because another coordinator has it. The next use takes it over and reads it again."""
        self.group, self.soft = Group(self.group_id), Soft()
        self._memory = "empty"
        self._ports.ownership.forgotten(self.group_id)
        self._wake_at(None)
        self._changed(None)

    def look_again_soon(self) -> None:
        """Wake up again soon, because a deadline could not be served."""
        self._wake_at(self._ports.clock.now_ms() + RETRY_AFTER_MS)

    def _is_current(self) -> bool:
        return (
            self._memory == "current"
            and self._ports.stalls() == self._stalls
            and self._ports.clock.moved_ms == self._clock_moved_ms
            and self._ports.ownership.holds(self.group_id)
        )

    def _may_take_long(self, inputs: Inputs) -> bool:
        """Whether deciding, checking the decision or writing it down could hold up other groups."""
        if any(isinstance(item, GroupDeclaration | StreamsRebalance | PartitionCounts) for item in inputs):
            return True  # They are seldom, and hold whole topologies.
        # With those of earlier topologies, which members have yet to give up.
        copies = len(self.group.tasks) * (1 + self.group.config.num_standby_replicas)
        return copies + sum(map(_reported, inputs)) > COPIES_DECIDED_AT_ONCE

    def _is_quiet(self, item: Input) -> bool:
        """Whether the group has nothing to do, and the input seldom changes this."""
        group, is_short = self.group, _reported(item) <= COPIES_DECIDED_AT_ONCE
        at_rest = not group.unsettled and group.placement_due_ms is None
        return isinstance(item, Heartbeat | PollOpened) and is_short and at_rest

    async def _be_current(self) -> None:
        if not self._ports.ownership.holds(self.group_id):
            raise not_owner(self._ports.ownership, self.group_id)
        if self._memory != "current":
            await self._read()
        if self._recovered:
            # Before any other decision, because the group may lack commits (L3).
            await self._commit((StoreRecovered(),))
            self._recovered = False
        stalls = self._ports.stalls()
        if stalls != self._stalls:
            # The coordinator itself was silent (L5), so judging of members starts afresh, as after a start.
            await self._commit((Started(),))
            self._stalls = stalls
        moved_ms = self._ports.clock.moved_ms
        if moved_ms != self._clock_moved_ms:
            await self._commit((Started(clock_moved=True),))
            self._clock_moved_ms = moved_ms

    async def _read(self) -> None:
        """Bring memory up to date with the log."""
        log, before, memory = self._ports.log, self.group, self._memory
        if memory == "empty":
            self._epoch = await log.take_over(self.group_id)
        found = await log.read(self.group_id, after_version=None if memory == "empty" else before.version)
        if found.version < before.version:
            # The log has less than memory: the store lost commits. The members' epochs will show that (L3).
            before, found = Group(self.group_id), await log.read(self.group_id)
        self._recovered = found.recovered
        match memory:
            case Doubtful(Attempt() as ours) if ours.group is self.group and ours.decision.records == tuple(
                found.records
            ):
                self.group, self.soft = ours.decision.after, ours.decision.soft
                for item, at_ms in self._missed.values():
                    self.soft = count_as_heard(self.group, self.soft, item, at_ms)
                self._memory = "current"
                self._changed(found.records)
            case Doubtful() if found.version == self.group.version:
                self._memory = "current"
            case _:
                await self._begin_anew(found, before)
        self._missed.clear()

    async def _begin_anew(self, found: Loaded, before: Group) -> None:
        # In a thread: it may have a hundred thousand tasks, and other groups are served meanwhile.
        self.group = await asyncio.to_thread(self._ports.evolve, found.base or before, found.records)
        self.soft = Soft()
        self._historian.begin_anew()
        self._snapshot_at = found.base.version if found.base else 0
        self._memory = "current"
        self._changed(None)
        moved_ms = self._ports.clock.moved_ms
        has_moved = self._was_within_a_session(moved_ms)
        ran_until_ms = self._ports.clock.ran_until_ms if has_moved else 0
        await self._commit((Started(clock_moved=has_moved, ran_until_ms=ran_until_ms),))
        self._clock_moved_ms = moved_ms

    def _was_within_a_session(self, at_ms: int | None) -> bool:
        return at_ms is not None and self._ports.clock.now_ms() - at_ms < self.group.longest_session_ms

    def _decide(self, inputs: Inputs) -> Attempt:
        group, soft = self.group, self.soft
        now_ms = self._ports.clock.now_ms()
        started = time.perf_counter()
        decision = self._ports.decide(group, soft, inputs, now_ms, self._ports.policy)
        return Attempt(group, soft, inputs, now_ms, decision, (time.perf_counter() - started) * 1_000)

    async def _commit(
        self, inputs: Inputs, asked: Asked = NOBODY_ASKED, made: Attempt | None = None
    ) -> tuple[Reply, ...]:
        if made is not None and not self._is_still_valid(made, inputs):
            made = None
        is_large = self._may_take_long(inputs)
        make = partial(self._make, inputs, asked, made)
        self.is_deciding = is_large
        try:
            attempt = await asyncio.to_thread(make) if is_large else make()
        finally:
            self.is_deciding = False
        decision = attempt.decision
        if not decision.records and not _leaves_a_row(asked, decision):
            if not self._ports.ownership.holds(self.group_id):
                raise not_owner(self._ports.ownership, self.group_id)
            return self._take_effect(attempt)
        if attempt.violations:
            laws = ", ".join(sorted({violation.law for violation in attempt.violations}))
            self._ports.observer.law_broken(self.group_id, inputs[0], attempt.violations)
            if len(inputs) > 1:
                raise LawBroken(laws)
            self.look_again_soon()
            return (Defect(f"the decision would break {laws}; it was dropped and nothing has changed"),)
        await self._append(attempt, is_large=is_large)
        return self._take_effect(attempt)

    def _is_still_valid(self, made: Attempt, inputs: Inputs) -> bool:
        return made.group is self.group and made.soft is self.soft and made.inputs == inputs

    async def _append(self, attempt: Attempt, *, is_large: bool) -> None:
        records, history = attempt.decision.records, attempt.history
        commit = Commit(self.group_id, self._epoch, attempt.group.version, records, history, is_large)
        started = time.perf_counter()
        try:
            await self._ports.log.append(commit)
        except StoreUnavailable:
            self._memory = Doubtful(attempt)
            raise
        if attempt.history.trace is not None:
            # The next trace may leave out only what a committed trace has said.
            self._historian.committed(attempt.soft)
        self._ports.observer.committed(commit, (time.perf_counter() - started) * 1_000)

    def _make(self, inputs: Inputs, asked: Asked, made: Attempt | None) -> Attempt:
        """Decide, and prepare what is to be written. Changes nothing in this engine, so that a thread may do it."""
        attempt = made or self._decide(inputs)
        if attempt.decision.records:
            if self._ports.policy.check_laws:
                attempt.violations = self._ports.check_step(_step(attempt))
            before, took = (attempt.group, attempt.soft), (attempt.now_ms, attempt.decide_ms)
            attempt.history = self._historian.history(asked, inputs, before, attempt.decision, at=took)
        elif asked.command:
            attempt.history = History(asked=asked, at_ms=attempt.now_ms, item=inputs[0])
        return attempt

    async def keep_snapshot(self, *, after_records: int = 0) -> None:
        """Store a snapshot of the group, if it got more than ``after_records`` records since the last snapshot.

        Raises:
            StoreUnavailable: when the log cannot be reached.
        """
        group = self.group
        if self.is_loaded and group.version - self._snapshot_at > after_records:
            before, self._snapshot_at = self._snapshot_at, group.version
            try:
                await self._ports.log.keep_snapshot(group)
            except BaseException:
                self._snapshot_at = before
                raise

    def _take_effect(self, attempt: Attempt) -> tuple[Reply, ...]:
        decision = attempt.decision
        self.group, self.soft = decision.after, decision.soft
        self._wake_at(decision.wake_at_ms)
        if decision.records:
            self._changed(decision.records)
        self._ports.observer.decided(attempt.inputs, decision, attempt.decide_ms)
        return decision.replies

    def _refuse(self, item: Input, error: StoreUnavailable | NotOwner) -> ProtocolError:
        self.look_again_soon()
        if not self.is_loaded and not isinstance(error, NotOwner):
            return CoordinatorLoading(
                f"group {self.group_id} could not be read yet: {error.detail}", retry_after_ms=RETRY_AFTER_MS
            )
        if isinstance(item, Heartbeat | Join) and self._may_be_member(item.member_id):
            # The member was heard although nothing could be written: it must not expire because of the store (L5).
            self._missed[item.member_id] = item, self._ports.clock.now_ms()
            self.soft = count_as_heard(self.group, self.soft, *self._missed[item.member_id])
        if isinstance(error, NotOwner):
            return error
        return StoreUnavailable(error.detail, retry_after_ms=error.retry_after_ms or RETRY_AFTER_MS)

    def _may_be_member(self, member_id: MemberId) -> bool:
        """Whether a member is known, or its join may be in the log: of all other ids nothing is kept."""
        attempt = self._memory.attempt if isinstance(self._memory, Doubtful) else None
        joined = () if attempt is None else attempt.decision.after.members
        return member_id in self.soft.members or member_id in self.group.members or member_id in joined


def _reported(item: Input) -> int:
    """Return of how many tasks an input says something."""
    return len(item.tasks or ()) if isinstance(item, Heartbeat | Join) else 0


def _leaves_a_row(asked: Asked, decision: Decision) -> bool:
    """Whether a command that changed nothing gets a row in the audit trail all the same."""
    return bool(asked.command) and not isinstance(decision.replies[0], ProtocolError)


def _step(attempt: Attempt) -> Transition:
    decision = attempt.decision
    return Transition(
        before=attempt.group,
        after=decision.after,
        records=decision.records,
        soft=attempt.soft,
        soft_after=decision.soft,
        now_ms=attempt.now_ms,
        inputs=attempt.inputs,
    )
