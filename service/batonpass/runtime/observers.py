"""Combines observers, and tracks whether the store answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from batonpass.runtime.ports import Observer

if TYPE_CHECKING:
    from batonpass.core.decide import Decision
    from batonpass.core.state.ids import GroupId
    from batonpass.core.state.inputs import Input
    from batonpass.core.state.model import Group
    from batonpass.invariants import Violation
    from batonpass.runtime.ports import Commit

AWAY_S: Final = 5.0
"""For how long a failure of the store counts, if nothing has been committed since."""


class Observers(Observer):
    """Calls several observers in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)

    def add(self, observer: Observer) -> None:
        """Call one more observer, after the others."""
        self._observers.append(observer)

    def decided(self, before: Group, inputs: Sequence[Input], decision: Decision, decide_ms: float) -> None:
        """Pass on a decision that took effect."""
        for one in self._observers:
            one.decided(before, inputs, decision, decide_ms)

    def committed(self, commit: Commit, append_ms: float) -> None:
        """Pass on a commit."""
        for one in self._observers:
            one.committed(commit, append_ms)

    def store_failed(self, group_id: GroupId, reason: str) -> None:
        """Pass on a failure of the store."""
        for one in self._observers:
            one.store_failed(group_id, reason)

    def law_broken(self, group_id: GroupId, item: Input, violations: Sequence[Violation]) -> None:
        """Pass on a decision that was dropped."""
        for one in self._observers:
            one.law_broken(group_id, item, violations)

    def defect(self, group_id: GroupId, item: Input, error: Exception) -> None:
        """Pass on a defect."""
        for one in self._observers:
            one.defect(group_id, item, error)

    def stalled(self, gap_ms: float) -> None:
        """Pass on a stall."""
        for one in self._observers:
            one.stalled(gap_ms)


class CommitWatch(Observer):
    """Tracks whether the store answers."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failed_at: float | None = None
        self._failure = ""

    def away(self) -> str:
        """Return why the store counts as away now; "" when it does not."""
        if self._failed_at is None or self._monotonic() - self._failed_at > AWAY_S:
            return ""
        return f"the store is away: {self._failure}"

    def committed(self, commit: Commit, append_ms: float) -> None:  # noqa: ARG002 - that there was one is enough
        """Record that the store answers."""
        self._failed_at = None

    def store_failed(self, group_id: GroupId, reason: str) -> None:  # noqa: ARG002 - one group is like another here
        """Record that the store failed."""
        self._failed_at, self._failure = self._monotonic(), reason
