"""Combines observers, and tracks whether the store answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from batonpass.runtime.ports import Observer

if TYPE_CHECKING:
    from batonpass.core.state.ids import GroupId
    from batonpass.runtime.ports import Commit

AWAY_S: Final = 5.0
"""For how long a failure of the store counts, if nothing has been committed since."""


class Observers(Observer):
    """Passes on all that an observer is told, to several observers in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)

    def add(self, observer: Observer) -> None:
        """Call one more observer, after the others."""
        self._observers.append(observer)


def _told_to_each(name: str) -> Callable[..., None]:
    def tell(self: Observers, *what: object) -> None:
        for one in self._observers:
            getattr(one, name)(*what)

    return tell


for _name in vars(Observer):
    if not _name.startswith("_"):
        setattr(Observers, _name, _told_to_each(_name))


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
